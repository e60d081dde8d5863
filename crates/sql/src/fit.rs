//! Values on their way into a column: each of them fits, or is named.
//!
//! - Numbers fit into integers where they are the same numbers again, and into floats where no more than digits behind
//!   the point get lost: an integer stays itself, and nothing becomes infinite.
//! - Texts are read as what the column holds, and everything can be a text.
//! - Times are times: a number might count seconds or nanoseconds.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray};
use datafusion::arrow::compute::kernels::cmp::not_distinct;
use datafusion::arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::common::ScalarValue;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature};
use tidefall_types::{Error, Result, one_form, sql_type_name};

use crate::amend::{any_one, time_form};
use crate::error::{from_datafusion, to_datafusion};
use crate::types::is_text;

/// A column that takes values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    /// Its name.
    pub(crate) column: String,
    /// Its type in SQL.
    pub(crate) type_name: &'static str,
    /// Its type.
    pub(crate) data_type: DataType,
    /// Whether every row must have a value.
    pub(crate) is_time: bool,
}

/// The values in the type of the column. The first of them stands in row `first_row`.
///
/// # Errors
/// `Invalid` for a value that does not fit, with its row, column and the reason.
pub(crate) fn fit(values: &ArrayRef, slot: &Slot, first_row: usize) -> Result<ArrayRef> {
    let to = &slot.data_type;
    let refuse = |row: usize, why: String| {
        Err(Error::invalid(format!("row {}, column {}: {why}", first_row + row, slot.column)))
    };
    let nulls = values.logical_nulls();
    let is_null = |row: &usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(*row));
    if slot.is_time
        && let Some(row) = (0..values.len()).find(is_null)
    {
        return refuse(row, "it is the time and cannot be NULL; give every row one".to_owned());
    }
    if values.data_type() == to {
        return Ok(Arc::clone(values));
    }
    // Nothing but NULL, which has no type.
    if *values.data_type() == DataType::Null {
        return cast(values, to);
    }
    let values = &plain(values)?;
    let first = (0..values.len()).find(|row| values.is_valid(*row));
    if let (Some(row), Some(why)) = (first, mismatch(values, slot, first)) {
        return refuse(row, why);
    }
    if matches!(to, DataType::Timestamp(..)) && is_text(values.data_type()) {
        return times(values, to).or_else(|(row, error)| refuse(row, error.message().to_owned()));
    }
    let converted = cast(values, to)?;
    let fits = fits(values, &converted)?;
    match (0..values.len()).find(|row| values.is_valid(*row) && !fits.value(*row)) {
        None => Ok(converted),
        Some(row) => {
            let value = text(values, row);
            refuse(row, format!("{value} does not fit into {}", slot.type_name))
        }
    }
}

/// Fits what an expression of a row of `VALUES` computes.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fit {
    /// The column.
    pub(crate) slot: Slot,
    /// The row, counted from 1.
    pub(crate) row: usize,
}

impl ScalarUDFImpl for Fit {
    fn name(&self) -> &str {
        "fit"
    }

    fn signature(&self) -> &Signature {
        any_one()
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(self.slot.data_type.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let value = args.args[0].to_array(1)?;
        let fitted = fit(&value, &self.slot, self.row).map_err(to_datafusion)?;
        Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&fitted, 0)?))
    }
}

fn cast(values: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let options = CastOptions { safe: true, ..CastOptions::default() };
    cast_with_options(values, to, &options).map_err(|error| from_datafusion(error.into()))
}

/// Values without a dictionary, floats in their one form.
fn plain(values: &ArrayRef) -> Result<ArrayRef> {
    let plain = match values.data_type() {
        DataType::Dictionary(_, value_type) => cast(values, value_type)?,
        _ => Arc::clone(values),
    };
    Ok(one_form(&plain).unwrap_or(plain))
}

fn text(values: &ArrayRef, row: usize) -> String {
    let text = array_value_to_string(values, row).unwrap_or_default();
    if is_text(values.data_type()) { format!("{text:?}") } else { text }
}

/// Why no value of this type can stand in the column, if that is so.
fn mismatch(values: &ArrayRef, slot: &Slot, example: Option<usize>) -> Option<String> {
    let (from, to) = (values.data_type(), &slot.data_type);
    let value = example.map(|row| text(values, row)).unwrap_or_default();
    if matches!(to, DataType::Timestamp(..)) && (from.is_numeric() || *from == DataType::Boolean) {
        return Some(format!(
            "{value} is a number, of which nobody knows what it counts; write the time as text, or as \
             to_timestamp_seconds({value}), to_timestamp_millis({value}), to_timestamp_micros({value}) or \
             to_timestamp_nanos({value})"
        ));
    }
    let is_number = to.is_numeric() || *to == DataType::Boolean;
    if (from.is_temporal() && is_number) || !can_cast_types(from, to) {
        return Some(format!(
            "{value} is of type {}, which does not fit into {}",
            sql_type_name(from),
            slot.type_name
        ));
    }
    None
}

/// Texts as times, or the row of the first that is none.
fn times(texts: &ArrayRef, to: &DataType) -> std::result::Result<ArrayRef, (usize, Error)> {
    let strings = cast(texts, &DataType::Utf8).map_err(|error| (0, error))?;
    let mut forms = Vec::with_capacity(strings.len());
    for (row, text) in strings.as_string::<i32>().iter().enumerate() {
        forms.push(text.map(time_form).transpose().map_err(|error| (row, error))?);
    }
    let forms: ArrayRef = Arc::new(StringArray::from_iter(forms));
    cast(&forms, to).map_err(|error| (0, error))
}

/// Which values have kept their meaning.
fn fits(values: &ArrayRef, converted: &ArrayRef) -> Result<BooleanArray> {
    let (from, to) = (values.data_type(), converted.data_type());
    let is_number =
        |data_type: &DataType| data_type.is_numeric() || *data_type == DataType::Boolean;
    if to.is_floating() && !from.is_integer() {
        return finite_stays_finite(values, converted);
    }
    if is_number(from) && is_number(to) {
        let back = cast(converted, from)?;
        return not_distinct(values, &back).map_err(|error| from_datafusion(error.into()));
    }
    Ok((0..converted.len()).map(|row| Some(converted.is_valid(row))).collect())
}

fn finite_stays_finite(values: &ArrayRef, converted: &ArrayRef) -> Result<BooleanArray> {
    let found = cast(converted, &DataType::Float64)?;
    let found = found.as_primitive::<Float64Type>();
    let is_infinite: Box<dyn Fn(usize) -> bool> = match values.data_type() {
        from if from.is_floating() => {
            let given = cast(values, &DataType::Float64)?.as_primitive::<Float64Type>().clone();
            Box::new(move |row| given.value(row).is_infinite())
        }
        from if is_text(from) => {
            let given = cast(values, &DataType::Utf8)?.as_string::<i32>().clone();
            Box::new(move |row| given.value(row).to_ascii_lowercase().contains("inf"))
        }
        _ => Box::new(|_| false),
    };
    let fits = |row| found.is_valid(row) && (!found.value(row).is_infinite() || is_infinite(row));
    Ok((0..found.len()).map(|row| Some(fits(row))).collect())
}
