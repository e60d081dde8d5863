//! Answers as CSV, which an import reads back as what they were: an empty text is `""`, and NULL is nothing. Arrow writes both alike. (A
//! line of nothing but one NULL would be empty, and passed over: it is `""`, too.)

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use tidefall_types::{Error, Result};

/// Writes a header with the names of columns.
pub fn write_csv_header(out: &mut Vec<u8>, schema: &Schema) {
    let names = schema.fields().iter().map(|field| Some(field.name().as_str()));
    put_line(out, names);
}

/// Writes the rows of a batch, lists and structs as text, such as `[1.0, null]`. `time_format` is how times are written, also
/// inside of these, and `None` is Arrow's own way.
///
/// # Errors
/// `Unsupported` when a value cannot be written as text.
pub fn write_csv(out: &mut Vec<u8>, batch: &RecordBatch, time_format: Option<&str>) -> Result<()> {
    let plain = FormatOptions::default().with_timestamp_format(time_format);
    let nested = plain.clone().with_null("null");
    let columns = batch.columns().iter().map(|column| {
        let options = if column.data_type().is_nested() { &nested } else { &plain };
        Ok((ArrayFormatter::try_new(column, options)?, column.logical_nulls()))
    });
    let columns =
        columns.collect::<std::result::Result<Vec<_>, ArrowError>>().map_err(unwritable)?;
    let mut cells = vec![String::new(); columns.len()];
    for row in 0..batch.num_rows() {
        let is_null = |at: usize| columns[at].1.as_ref().is_some_and(|nulls| nulls.is_null(row));
        for (at, cell) in cells.iter_mut().enumerate() {
            cell.clear();
            if !is_null(at) {
                // Printed in another way, what cannot be written would be the text of an error.
                columns[at].0.value(row).write(cell).map_err(unwritable)?;
            }
        }
        let cells = cells.iter().enumerate();
        put_line(out, cells.map(|(at, cell)| (!is_null(at)).then_some(cell.as_str())));
    }
    Ok(())
}

/// A line with some texts, or nothing in their place. One without any text would be no line for most who read it.
fn put_line<'a>(out: &mut Vec<u8>, cells: impl ExactSizeIterator<Item = Option<&'a str>>) {
    let is_alone = cells.len() == 1;
    for (at, cell) in cells.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        match cell {
            Some("") => out.extend(b"\"\""),
            None if is_alone => out.extend(b"\"\""),
            None => {}
            Some(text) if text.contains(['"', ',', '\n', '\r']) => {
                out.push(b'"');
                out.extend(text.replace('"', "\"\"").bytes());
                out.push(b'"');
            }
            Some(text) => out.extend(text.bytes()),
        }
    }
    out.push(b'\n');
}

fn unwritable(error: ArrowError) -> Error {
    Error::unsupported(format!("the answer cannot be written as CSV: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{
        ArrayRef, Int64Array, ListArray, StringArray, TimestampNanosecondArray,
    };
    use datafusion::arrow::datatypes::Float64Type;

    use super::*;

    #[test]
    fn an_empty_text_is_not_null() {
        let texts = [Some(""), None, Some("a,b"), Some("say \"so\""), Some("two\nlines")];
        let texts: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        let times = TimestampNanosecondArray::from(vec![Some(1), Some(0), None, Some(-1), None]);
        let numbers = Int64Array::from(vec![None, Some(-7), Some(0), None, None]);
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("t", Arc::clone(&texts), true),
            ("at, UTC", Arc::new(times) as ArrayRef, true),
            ("n", Arc::new(numbers) as ArrayRef, true),
        ])
        .unwrap();
        let mut out = Vec::new();
        write_csv_header(&mut out, &batch.schema());
        write_csv(&mut out, &batch, Some("%Y %f")).unwrap();
        let expected = "t,\"at, UTC\",n\n\"\",1970 000000001,\n,1970 000000000,-7\n\"a,b\",,0\n\
                        \"say \"\"so\"\"\",1969 999999999,\n\"two\nlines\",,\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let batch = RecordBatch::try_from_iter_with_nullable([("t", texts, true)]).unwrap();
        let mut out = Vec::new();
        write_csv(&mut out, &batch.slice(0, 3), None).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\"\"\n\"\"\n\"a,b\"\n");
    }

    #[test]
    fn lists_are_text() {
        let lists = vec![Some(vec![Some(1.0), None]), None, Some(vec![])];
        let lists = ListArray::from_iter_primitive::<Float64Type, _, _>(lists);
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let columns = [("l", Arc::new(lists) as ArrayRef, true), ("n", numbers, true)];
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let mut out = Vec::new();
        write_csv(&mut out, &batch, None).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\"[1.0, null]\",1\n,2\n[],3\n");
    }
}
