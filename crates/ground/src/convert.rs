//! Values of one type in a field of another: which fit, and why the others do not.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_cast::display::array_value_to_string;
use arrow_cast::{CastOptions, cast_with_options};
use tidefall_types::{Error, Field, FieldType, Result, RowError, TableSchema, one_form};

use crate::kept::arrow_error;
use crate::texts::{VALUE_BYTES_MAX, text_bytes};

/// Values that came for a field, in its type and its one form, and NULL in the place of those that do not fit, whose rows are added to `bad`;
/// nothing when all are NULL.
///
/// # Errors
/// `Invalid` for values of a type that no field has.
pub fn fitted(
    schema: &TableSchema,
    field: &Field,
    values: &ArrayRef,
    bad: &mut Vec<RowError>,
) -> Result<Option<ArrayRef>> {
    if values.null_count() == values.len() {
        return Ok(None);
    }
    let values = match values.data_type() {
        same if *same == field.ty.arrow() => Arc::clone(values),
        _ => convert(schema, &field.name, field.ty, values, bad)?,
    };
    check_lengths(schema, &field.name, &values, bad);
    Ok(Some(one_form(&values).unwrap_or(values)))
}

/// Texts must not be longer than what can be logged, and read again, as one.
fn check_lengths(schema: &TableSchema, name: &str, values: &ArrayRef, bad: &mut Vec<RowError>) {
    if text_bytes(values, 0..values.len()) <= VALUE_BYTES_MAX {
        return;
    }
    for row in 0..values.len() {
        let bytes = text_bytes(values, row..row + 1);
        if bytes > VALUE_BYTES_MAX {
            let error = Error::limit(format!(
                "table {}, field {name:?}: a text of {bytes} bytes; up to {VALUE_BYTES_MAX} can be stored",
                schema.name
            ));
            bad.push(RowError { row, error });
        }
    }
}

/// Whether values of one type may be stored in a field of another, value by value where they fit.
fn may_convert(from: FieldType, to: FieldType) -> bool {
    match (from, to) {
        (FieldType::Text, FieldType::Text) => true,
        // Timestamps became such numbers before there were fields for them.
        (FieldType::Timestamp, FieldType::I64) => true,
        (from, to) => from.is_numeric() && to.is_numeric(),
    }
}

/// Up to here, 2^53, a float tells every whole number from the next one. Beyond it may be one that was rounded.
const WHOLE_MAX: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;

const fn is_float(ty: FieldType) -> bool {
    matches!(ty, FieldType::F32 | FieldType::F64)
}

/// The values of a column in the type of its field, and NULL in the place of those that do not fit, whose rows are added to `bad`.
fn convert(
    schema: &TableSchema,
    name: &str,
    to: FieldType,
    values: &ArrayRef,
    bad: &mut Vec<RowError>,
) -> Result<ArrayRef> {
    let from = FieldType::from_arrow(values.data_type()).ok_or_else(|| {
        Error::invalid(format!(
            "table {}, field {name:?}: values of type {} cannot be stored",
            schema.name,
            values.data_type()
        ))
    })?;
    if !may_convert(from, to) {
        let error = conflict(schema, name, to, from);
        let rows = (0..values.len()).filter(|&row| values.is_valid(row));
        bad.extend(rows.map(|row| RowError { row, error: error.clone() }));
        return Ok(arrow_array::new_null_array(&to.arrow(), values.len()));
    }
    let (converted, fits) = in_type(values, from, to)?;
    for row in (0..values.len()).filter(|&row| values.is_valid(row) && !fits.value(row)) {
        let value = array_value_to_string(values, row).map_err(arrow_error)?;
        bad.push(RowError { row, error: misfit(schema, name, (from, to), &value) });
    }
    Ok(converted)
}

/// Values in another type, and which of them fit.
fn in_type(values: &ArrayRef, from: FieldType, to: FieldType) -> Result<(ArrayRef, BooleanArray)> {
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let converted = cast_with_options(values, &to.arrow(), &options).map_err(arrow_error)?;
    let fits = fits(values, &converted, from, to)?;
    Ok((converted, fits))
}

/// Whether all values may be stored in a field of another type; none if no value of theirs can be.
pub fn all_fit(values: &ArrayRef, from: FieldType, to: FieldType) -> Result<Option<bool>> {
    if !may_convert(from, to) {
        return Ok(None);
    }
    let (_, fits) = in_type(values, from, to)?;
    Ok(Some((0..values.len()).all(|row| values.is_null(row) || fits.value(row))))
}

/// The values of a field in another type.
///
/// # Errors
/// `Conflict` for the first one that is not the same there.
pub fn recast(
    schema: &TableSchema,
    field: &Field,
    to: FieldType,
    values: &ArrayRef,
) -> Result<ArrayRef> {
    let (name, from) = (&field.name, field.ty);
    let cannot = |what: &str| {
        Error::conflict(format!(
            "table {}: field {name:?} cannot become {}: it is {}, and holds {what} (what is deleted or replaced counts until it \
             is cascaded)",
            schema.name,
            to.sql_name(),
            from.sql_name()
        ))
    };
    if values.null_count() == values.len() {
        return Ok(arrow_array::new_null_array(&to.arrow(), values.len()));
    }
    if !may_convert(from, to) || from == FieldType::Timestamp {
        return Err(cannot("values"));
    }
    let (converted, fits) = in_type(values, from, to)?;
    let exact = match is_float(from) && is_float(to) {
        // They may be near to each other only.
        true => are_same_floats(values, &converted)?,
        false => fits,
    };
    let misfit = (0..values.len()).find(|&row| values.is_valid(row) && !exact.value(row));
    match misfit {
        None => Ok(one_form(&converted).unwrap_or(converted)),
        Some(row) => {
            let value = array_value_to_string(values, row).map_err(arrow_error)?;
            Err(cannot(&format!("{value}, which is not the same there")))
        }
    }
}

/// Which floats are the same as their converted ones.
fn are_same_floats(values: &ArrayRef, converted: &ArrayRef) -> Result<BooleanArray> {
    let wide = |array: &ArrayRef| {
        let wide = cast_with_options(array, &FieldType::F64.arrow(), &CastOptions::default());
        wide.map_err(arrow_error)
    };
    let (old, new) = (wide(values)?, wide(converted)?);
    let pairs = old.as_primitive::<Float64Type>().iter().zip(new.as_primitive::<Float64Type>());
    let is_same = |(old, new): (Option<f64>, Option<f64>)| match (old, new) {
        (Some(old), Some(new)) => old == new || (old.is_nan() && new.is_nan()),
        (old, new) => old.is_none() && new.is_none(),
    };
    Ok(pairs.map(|pair| Some(is_same(pair))).collect())
}

/// The error of a value of one type that is not to be had in another.
fn misfit(
    schema: &TableSchema,
    name: &str,
    (from, to): (FieldType, FieldType),
    value: &str,
) -> Error {
    let (field, ty) = (format!("table {}, field {name:?}", schema.name), to.sql_name());
    if !is_float(from) || is_float(to) {
        return Error::invalid(format!("{field}: {value} does not fit into {ty}"));
    }
    let is_rounded = value.parse::<f64>().is_ok_and(|value| value.abs() > WHOLE_MAX);
    let why = match is_rounded {
        true => {
            "floats beyond 2^53 leave whole numbers out; send integers, in pandas of the type Int64, which may be \
                 missing, too"
        }
        false => "ALTER TABLE ... ALTER COLUMN ... TYPE DOUBLE makes it a field that can",
    };
    Error::conflict(format!("{field} is of type {ty}, which cannot hold {value}: {why}"))
}

fn conflict(schema: &TableSchema, name: &str, to: FieldType, from: FieldType) -> Error {
    let advice = match is_float(from) && to.is_numeric() {
        true => "; write whole numbers, or make another table in which it is DOUBLE",
        false => "",
    };
    Error::conflict(format!(
        "table {}: field {name:?} is of type {}, this row has a {} for it{advice}",
        schema.name,
        to.sql_name(),
        from.sql_name()
    ))
}

/// Which values kept their meaning: an integer must be the same number again, and a float that becomes one be that
/// number without doubt; a float may lose precision when the field is narrower but not become infinite.
fn fits(
    values: &ArrayRef,
    converted: &ArrayRef,
    from: FieldType,
    to: FieldType,
) -> Result<BooleanArray> {
    if from == FieldType::Text {
        return Ok(BooleanArray::from(vec![true; values.len()]));
    }
    let back = |array: &ArrayRef, to: FieldType| {
        cast_with_options(array, &to.arrow(), &CastOptions { safe: true, ..CastOptions::default() })
            .map_err(arrow_error)
    };
    if is_float(from) {
        let (old, new) = (back(values, FieldType::F64)?, back(converted, FieldType::F64)?);
        let (old, new) = (old.as_primitive::<Float64Type>(), new.as_primitive::<Float64Type>());
        let is_whole = |row: usize| {
            let (old, new) = (old.value(row), new.is_valid(row).then(|| new.value(row)));
            new == Some(old) && old.abs() <= WHOLE_MAX
        };
        let is_near = |row: usize| new.value(row).is_finite() || !old.value(row).is_finite();
        let same = |row: usize| if is_float(to) { is_near(row) } else { is_whole(row) };
        return Ok((0..values.len()).map(|row| Some(same(row))).collect());
    }
    if from == FieldType::U64 || to == FieldType::U64 {
        let (old, new) = (back(values, FieldType::U64)?, back(converted, FieldType::U64)?);
        let (old, new) = (old.as_primitive::<UInt64Type>(), new.as_primitive::<UInt64Type>());
        let same =
            |row: usize| old.is_valid(row) && new.is_valid(row) && old.value(row) == new.value(row);
        return Ok((0..values.len()).map(|row| Some(same(row))).collect());
    }
    let (old, new) = (back(values, FieldType::I64)?, back(converted, FieldType::I64)?);
    let (old, new) = (old.as_primitive::<Int64Type>(), new.as_primitive::<Int64Type>());
    let same = |row: usize| new.is_valid(row) && old.value(row) == new.value(row);
    Ok((0..values.len()).map(|row| Some(same(row))).collect())
}
