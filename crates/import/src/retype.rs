//! Columns of one type into columns of another.

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_ord::cmp::eq;
use arrow_schema::{ArrowError, DataType};
use tidefall_types::{Error, FieldType, Result, RowError};

/// The values as another type. Rows whose value does not keep its meaning are added to `bad`, and
/// null.
pub(crate) fn retype(
    name: &str,
    values: &ArrayRef,
    ty: FieldType,
    bad: &mut Vec<RowError>,
) -> Result<ArrayRef> {
    let failed = |error: ArrowError| {
        Error::invalid(format!("column {name:?} cannot be {}: {error}", ty.sql_name()))
    };
    let cast = |values: &ArrayRef, to: &DataType| {
        // What does not fit becomes null.
        cast_with_options(values, to, &CastOptions { safe: true, ..CastOptions::default() })
    };
    if *values.data_type() == ty.arrow() {
        return Ok(values.clone());
    }
    if ty == FieldType::Timestamp && values.data_type().is_numeric() {
        return Err(Error::invalid(format!(
            "column {name:?} holds numbers, of which nobody knows what they count; write them as timestamps \
             to have them as {}",
            ty.sql_name()
        )));
    }
    let converted = cast(values, &ty.arrow()).map_err(failed)?;
    let back = cast(&converted, values.data_type()).map_err(failed)?;
    let is_same = match (values.data_type(), ty) {
        // A number may be written in many ways.
        (DataType::Utf8, _) => None,
        // It may lose digits, but not become infinite.
        (DataType::Float64, FieldType::F32) => Some(are_as_finite(&back, values)),
        _ => Some(eq(&back, values).map_err(failed)?),
    };
    let is_kept = |row: usize| is_same.as_ref().is_none_or(|same| same.value(row));
    let fits = |row: usize| converted.is_valid(row) && is_kept(row);
    for row in (0..values.len()).filter(|&row| values.is_valid(row) && !fits(row)) {
        let error = Error::invalid(format!(
            "column {name:?}: the value does not fit into {}",
            ty.sql_name()
        ));
        bad.push(RowError { row, error });
    }
    Ok(converted)
}

fn are_as_finite(one: &ArrayRef, other: &ArrayRef) -> BooleanArray {
    let (one, other) = (one.as_primitive::<Float64Type>(), other.as_primitive::<Float64Type>());
    one.values()
        .iter()
        .zip(other.values())
        .map(|(a, b)| Some(a.is_finite() == b.is_finite()))
        .collect()
}
