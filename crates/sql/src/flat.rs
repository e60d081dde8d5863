//! Lists, structs and maps as text, for formats whose cells are plain values.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use tidefall_types::{Error, Result};

/// The batch with its nested columns as text, such as `[1.0, null]`; `time_format` is how times inside
/// of them are written, and `None` is Arrow's own way. Other columns stay as they are.
///
/// # Errors
/// `Unsupported` when values of a type cannot be written as text.
pub(crate) fn flat(batch: &RecordBatch, time_format: Option<&str>) -> Result<RecordBatch> {
    let schema = batch.schema();
    if !schema.fields().iter().any(|field| field.data_type().is_nested()) {
        return Ok(batch.clone());
    }
    let options = FormatOptions::default().with_null("null").with_timestamp_format(time_format);
    let mut fields = Vec::with_capacity(batch.num_columns());
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        if field.data_type().is_nested() {
            fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
            columns.push(texts(column, &options).map_err(unwritable)?);
        } else {
            fields.push(Arc::clone(field));
            columns.push(Arc::clone(column));
        }
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(unwritable)
}

fn texts(
    column: &ArrayRef,
    options: &FormatOptions<'_>,
) -> std::result::Result<ArrayRef, ArrowError> {
    let values = ArrayFormatter::try_new(column, options)?;
    let text =
        |row: usize| column.is_valid(row).then(|| values.value(row).try_to_string()).transpose();
    let texts: StringArray = (0..column.len()).map(text).collect::<std::result::Result<_, _>>()?;
    Ok(Arc::new(texts))
}

fn unwritable(error: ArrowError) -> Error {
    Error::unsupported(format!("the answer cannot be written as text: {error}"))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Float64Array, ListArray};
    use datafusion::arrow::datatypes::Float64Type;

    use super::*;

    #[test]
    fn lists_become_text_and_plain_columns_stay() {
        let lists = vec![Some(vec![Some(1.0), None]), None, Some(vec![])];
        let lists = ListArray::from_iter_primitive::<Float64Type, _, _>(lists);
        let plain: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0]));
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("lists", Arc::new(lists) as ArrayRef, true),
            ("plain", Arc::clone(&plain), true),
        ])
        .unwrap();
        let found = flat(&batch, None).unwrap();
        let expected = StringArray::from(vec![Some("[1.0, null]"), None, Some("[]")]);
        assert_eq!(found.column(0).as_ref(), &expected as &dyn Array);
        assert_eq!(found.column(1), &plain);
        let plain = RecordBatch::try_from_iter([("plain", plain)]).unwrap();
        assert_eq!(flat(&plain, None), Ok(plain));
    }
}
