//! From a column to a page.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use tidefall_types::{Error, FieldType, Result};

use crate::numeric::Nesting;
use crate::page::put;
use crate::profile::{MAX_PAGE_ROWS, Profile};
use crate::stream::Effort;
use crate::validity::Validity;
use crate::value::{Number, PageValue, with_number};
use crate::{numeric, text};

/// Appends a page of all rows of `column` to `out`.
///
/// `column` has the Arrow type of any [`FieldType`] (text also as `LargeUtf8` or `Utf8View`) and at most
/// [`MAX_PAGE_ROWS`] rows, with or without nulls.
///
/// # Errors
/// `Invalid` for another type or too many rows, `Limit` for too much text. Then `out` is as it was.
pub fn encode_page(column: &dyn Array, profile: Profile, out: &mut Vec<u8>) -> Result<()> {
    let nulls = column.nulls();
    let Some(ty) = FieldType::from_arrow(column.data_type()) else {
        return Err(Error::invalid(format!(
            "a page cannot hold a column of type {}",
            column.data_type()
        )));
    };
    match ty {
        FieldType::Text => encode_text(column, profile, out),
        FieldType::Bool => {
            let bytes: Vec<u8> = column.as_boolean().values().iter().map(u8::from).collect();
            encode_numbers(&bytes, nulls, FieldType::Bool, profile, out)
        }
        FieldType::Timestamp => {
            let times = column.as_primitive::<TimestampNanosecondType>();
            encode_numbers(times.values(), nulls, ty, profile, out)
        }
        _ => with_number!(ty, T => {
            let column = column.as_primitive::<<T as Number>::Arrow>();
            encode_numbers(column.values(), nulls, ty, profile, out)
        }),
    }
}

/// Appends a page of `values` to `out`; like [`encode_page`] for callers that have no Arrow array.
/// Rows that `nulls` marks as null may hold anything.
///
/// # Errors
/// `Invalid` for too many rows, or for a validity of another length.
pub fn encode_slice<T: PageValue>(
    values: &[T],
    nulls: Option<&NullBuffer>,
    profile: Profile,
    out: &mut Vec<u8>,
) -> Result<()> {
    encode_numbers(values, nulls, T::TYPE, profile, out)
}

/// One page of `values` for every codec that can hold them: to compare the codecs, and to test those that
/// would not be chosen. Each comes with the name of its codec; integers packed by `pco` have their own.
///
/// # Errors
/// `Invalid` for too many rows or for none.
pub fn encode_with_each<T: PageValue>(values: &[T]) -> Result<Vec<(&'static str, Vec<u8>)>> {
    check_rows(values.len(), None)?;
    if values.is_empty() {
        return Err(Error::invalid("no value to compare codecs on"));
    }
    let mut pages = Vec::new();
    for (name, codec, body) in numeric::encode_all(values)? {
        let mut page = Vec::new();
        let validity = Validity::encode(values.len(), None, Effort::Light);
        put(codec, T::TYPE, &validity, &body, &mut page)?;
        pages.push((name, page));
    }
    Ok(pages)
}

fn check_rows(rows: usize, nulls: Option<&NullBuffer>) -> Result<()> {
    if rows > MAX_PAGE_ROWS {
        return Err(Error::invalid(format!("{rows} rows in a page of at most {MAX_PAGE_ROWS}")));
    }
    match nulls {
        Some(nulls) if nulls.len() != rows => {
            Err(Error::invalid(format!("validity of {} rows for {rows} values", nulls.len())))
        }
        _ => Ok(()),
    }
}

fn encode_numbers<T: PageValue>(
    values: &[T],
    nulls: Option<&NullBuffer>,
    ty: FieldType,
    profile: Profile,
    out: &mut Vec<u8>,
) -> Result<()> {
    check_rows(values.len(), nulls)?;
    let (codec, body) = match nulls.filter(|nulls| nulls.null_count() > 0) {
        Some(nulls) => {
            let present: Vec<T> = nulls.valid_indices().map(|row| values[row]).collect();
            numeric::encode(&present, profile.into(), Nesting::Page)?
        }
        None => numeric::encode(values, profile.into(), Nesting::Page)?,
    };
    put(codec, ty, &Validity::encode(values.len(), nulls, profile.into()), &body, out)
}

fn encode_text(column: &dyn Array, profile: Profile, out: &mut Vec<u8>) -> Result<()> {
    check_rows(column.len(), column.nulls())?;
    let present: Vec<&str> = match column.data_type() {
        DataType::LargeUtf8 => column.as_string::<i64>().iter().flatten().collect(),
        DataType::Utf8View => column.as_string_view().iter().flatten().collect(),
        _ => column.as_string::<i32>().iter().flatten().collect(),
    };
    let (codec, body) = text::encode(&present, profile)?;
    let validity = Validity::encode(column.len(), column.nulls(), profile.into());
    put(codec, FieldType::Text, &validity, &body, out)
}
