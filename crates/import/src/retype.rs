//! Columns of one type into columns of another.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, TimestampNanosecondArray};
use arrow_cast::display::array_value_to_string;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_ord::cmp::eq;
use arrow_schema::{ArrowError, DataType};
use tidefall_types::{Error, FieldType, Result, RowError};

use crate::LocalZone;
use crate::csv::{TimeParser, quoted};

/// The values as another type. Rows whose value does not keep its meaning are added to `bad`, and
/// null. Texts that are times are those of `zone` if they name none.
pub(crate) fn retype(
    name: &str,
    values: &ArrayRef,
    ty: FieldType,
    zone: Option<LocalZone>,
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
    if ty == FieldType::Timestamp && *values.data_type() == FieldType::Text.arrow() {
        return Ok(times(name, values, zone, bad));
    }
    let converted = cast(values, &ty.arrow()).map_err(failed)?;
    let back = cast(&converted, values.data_type()).map_err(failed)?;
    let is_same = match (values.data_type(), ty) {
        // A number may be written in many ways; one of digits that became infinite is too large.
        (DataType::Utf8, FieldType::F32 | FieldType::F64) => {
            Some(are_within_floats(&converted, values).map_err(failed)?)
        }
        (DataType::Utf8, _) => None,
        // It may lose digits, but not become infinite.
        (DataType::Float64, FieldType::F32) => Some(are_as_finite(&back, values)),
        _ => Some(eq(&back, values).map_err(failed)?),
    };
    let is_kept = |row: usize| is_same.as_ref().is_none_or(|same| same.value(row));
    let fits = |row: usize| converted.is_valid(row) && is_kept(row);
    for row in (0..values.len()).filter(|&row| values.is_valid(row) && !fits(row)) {
        let value = array_value_to_string(values, row).map_err(failed)?;
        let error = Error::invalid(format!(
            "column {name:?}: {} does not fit into {}",
            quoted(value.as_bytes()),
            ty.sql_name()
        ));
        bad.push(RowError { row, error });
    }
    Ok(converted)
}

/// Texts as times; those that are none are added to `bad`.
fn times(
    name: &str,
    texts: &ArrayRef,
    zone: Option<LocalZone>,
    bad: &mut Vec<RowError>,
) -> ArrayRef {
    let mut parser = TimeParser::default().with_zone(zone);
    let time = |(row, text): (usize, Option<&str>)| {
        let time = parser.parse(text?.as_bytes());
        let named = |error: Error| error.context(format_args!("column {name:?}"));
        time.map_err(|error| bad.push(RowError { row, error: named(error) })).ok()
    };
    let times: TimestampNanosecondArray =
        texts.as_string::<i32>().iter().enumerate().map(time).collect();
    Arc::new(times.with_data_type(FieldType::Timestamp.arrow()))
}

/// Whether each number that was read from a text is finite, or is not because the text names what it stands for, as `inf` does.
fn are_within_floats(numbers: &ArrayRef, texts: &ArrayRef) -> Result<BooleanArray, ArrowError> {
    let numbers = cast_with_options(numbers, &DataType::Float64, &CastOptions::default())?;
    let has_digits = |text: &str| text.bytes().any(|byte| byte.is_ascii_digit());
    let numbers = numbers.as_primitive::<Float64Type>().iter();
    Ok(numbers
        .zip(texts.as_string::<i32>())
        .map(|(number, text)| Some(number?.is_finite() || !has_digits(text?)))
        .collect())
}

fn are_as_finite(one: &ArrayRef, other: &ArrayRef) -> BooleanArray {
    let (one, other) = (one.as_primitive::<Float64Type>(), other.as_primitive::<Float64Type>());
    one.values()
        .iter()
        .zip(other.values())
        .map(|(a, b)| Some(a.is_finite() == b.is_finite()))
        .collect()
}
