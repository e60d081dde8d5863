//! Decimals into the floats that are nearest to them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType,
};
use arrow_array::{ArrayRef, Float64Array};
use arrow_buffer::ArrowNativeType;
use arrow_schema::DataType;
use tidefall_types::{Error, Result};

use super::not_stored;
use crate::csv::{EXACT_MAX, POWERS_OF_TEN};

/// The floats nearest to the values of a column of decimals. Arrow's own cast rounds the digits and then
/// their quotient, which may be another float.
///
/// # Errors
/// `Unsupported` if the column has no decimals.
pub(super) fn floats(name: &str, values: &ArrayRef) -> Result<ArrayRef> {
    match values.data_type() {
        DataType::Decimal32(_, scale) => nearest::<Decimal32Type>(name, values, *scale),
        DataType::Decimal64(_, scale) => nearest::<Decimal64Type>(name, values, *scale),
        DataType::Decimal128(_, scale) => nearest::<Decimal128Type>(name, values, *scale),
        DataType::Decimal256(_, scale) => nearest::<Decimal256Type>(name, values, *scale),
        other => Err(not_stored(name, other)),
    }
}

fn nearest<T: DecimalType>(name: &str, values: &ArrayRef, scale: i8) -> Result<ArrayRef> {
    let values = values.as_primitive::<T>();
    let power = usize::try_from(scale).ok().and_then(|scale| POWERS_OF_TEN.get(scale));
    let read = |row: usize| -> Result<f64> {
        let digits = values.value(row).to_i64().filter(|digits| digits.unsigned_abs() <= EXACT_MAX);
        if let (Some(digits), Some(power)) = (digits, power) {
            // Both are exact, so that their quotient is rounded once.
            return Ok(digits as f64 / power);
        }
        let text = values.value_as_string(row);
        let wrong = || Error::invalid(format!("column {name:?}: {text} is not a number"));
        text.parse().map_err(|_| wrong())
    };
    let floats = values.iter().enumerate();
    let floats = floats.map(|(row, value)| value.map(|_| read(row)).transpose());
    Ok(Arc::new(floats.collect::<Result<Float64Array>>()?))
}
