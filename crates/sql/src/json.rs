//! Answers as JSON: objects whose names differ, and times that can be written.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::Write;
use std::sync::Arc;

use arrow_json::writer::{JsonFormat, LineDelimited};
use arrow_json::{StructMode, WriterBuilder};
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use tidefall_types::{Error, Result};

/// What rows are in JSON, and what stands between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonShape {
    /// Lists, with commas and new lines between them.
    Lists,
    /// Objects, with commas and new lines between them.
    Objects,
    /// Objects, each in a line of its own.
    Lines,
}

/// Writes the rows of an answer as JSON; what stands around all of them is the caller's.
#[derive(Debug)]
pub struct JsonRows {
    shape: JsonShape,
    names: UniqueNames,
    time_format: Option<&'static str>,
    is_begun: bool,
}

impl JsonRows {
    /// For an answer with these columns. `time_format` is how times are written, and `None` is Arrow's own way.
    ///
    /// # Errors
    /// `Invalid` when rows are objects and a struct among the columns has two fields of one name.
    pub fn new(
        shape: JsonShape,
        schema: &Schema,
        time_format: Option<&'static str>,
    ) -> Result<Self> {
        let names = match shape {
            JsonShape::Lists => UniqueNames { names: None },
            JsonShape::Objects | JsonShape::Lines => UniqueNames::new(schema)?,
        };
        Ok(Self { shape, names, time_format, is_begun: false })
    }

    /// Writes the rows of a batch behind those before.
    ///
    /// # Errors
    /// `Unsupported` when a type or a value cannot be written, or `out` takes no more.
    pub fn write(&mut self, out: &mut impl Write, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        check_times(batch)?;
        let batch = self.names.apply(batch)?;
        let is_begun = std::mem::replace(&mut self.is_begun, true);
        if is_begun && self.shape != JsonShape::Lines {
            out.write_all(BETWEEN).map_err(|error| unwritable(error.into()))?;
        }
        match self.shape {
            JsonShape::Lists => self.write_as::<Between>(out, &batch, StructMode::ListOnly),
            JsonShape::Objects => self.write_as::<Between>(out, &batch, StructMode::ObjectOnly),
            JsonShape::Lines => self.write_as::<LineDelimited>(out, &batch, StructMode::ObjectOnly),
        }
    }

    fn write_as<F: JsonFormat>(
        &self,
        out: &mut impl Write,
        batch: &RecordBatch,
        mode: StructMode,
    ) -> Result<()> {
        let mut builder = WriterBuilder::new().with_explicit_nulls(true).with_struct_mode(mode);
        if let Some(format) = self.time_format {
            builder = builder.with_timestamp_format(format.to_owned());
        }
        builder.build::<_, F>(out).write(batch).map_err(unwritable)
    }
}

/// What stands between rows.
const BETWEEN: &[u8] = b",\n";

/// Rows with commas and new lines between them.
#[derive(Debug, Default)]
struct Between;

impl JsonFormat for Between {
    fn start_row<W: Write>(
        &self,
        writer: &mut W,
        is_first_row: bool,
    ) -> std::result::Result<(), ArrowError> {
        if !is_first_row {
            writer.write_all(BETWEEN)?;
        }
        Ok(())
    }
}

fn unwritable(error: ArrowError) -> Error {
    Error::unsupported(format!("the answer cannot be written as JSON: {error}"))
}

/// Gives the columns of an answer names that differ, as objects need them: of several of one name, those behind the
/// first get `_1`, `_2`, ... at the end, the first that is free.
#[derive(Debug)]
struct UniqueNames {
    /// None where they differ already.
    names: Option<Vec<String>>,
}

impl UniqueNames {
    /// For an answer with these columns.
    ///
    /// # Errors
    /// `Invalid` when a struct among them has two fields of one name.
    fn new(schema: &Schema) -> Result<Self> {
        for field in schema.fields() {
            if let Some(twice) = name_twice_within(field.data_type()) {
                return Err(Error::invalid(format!(
                    "column {:?}: JSON cannot have a struct with two fields {twice:?}; give them different names",
                    field.name()
                )));
            }
        }
        if name_twice(schema.fields()).is_none() {
            return Ok(Self { names: None });
        }
        let mut taken: HashSet<String> =
            schema.fields().iter().map(|field| field.name().clone()).collect();
        // How often each was seen, and the numbers that were tried for it.
        let mut seen: HashMap<&str, usize> = HashMap::new();
        let names = schema.fields().iter().map(|field| {
            let Some(number) = seen.get_mut(field.name().as_str()) else {
                seen.insert(field.name(), 0);
                return field.name().clone();
            };
            loop {
                *number += 1;
                let name = format!("{}_{number}", field.name());
                if taken.insert(name.clone()) {
                    return name;
                }
            }
        });
        Ok(Self { names: Some(names.collect()) })
    }

    /// The batch with these names.
    ///
    /// # Errors
    /// `Unsupported` when it is not one of the answer.
    fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let Some(names) = &self.names else { return Ok(batch.clone()) };
        let schema = batch.schema();
        let named = schema.fields().iter().zip(names);
        let fields: Fields =
            named.map(|(field, name)| Field::clone(field).with_name(name)).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), batch.columns().to_vec())
            .map_err(|error| Error::unsupported(format!("columns under other names: {error}")))
    }
}

fn name_twice(fields: &Fields) -> Option<&str> {
    let mut seen = HashSet::new();
    fields.iter().map(|field| field.name().as_str()).find(|name| !seen.insert(*name))
}

fn name_twice_within(ty: &DataType) -> Option<&str> {
    match ty {
        DataType::Struct(fields) => name_twice(fields)
            .or_else(|| fields.iter().find_map(|field| name_twice_within(field.data_type()))),
        _ => inner(ty).find_map(|field| name_twice_within(field.data_type())),
    }
}

/// The fields right inside of a type.
fn inner(ty: &DataType) -> impl Iterator<Item = &Arc<Field>> {
    let (one, many) = match ty {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => (Some(field), None),
        DataType::Struct(fields) => (None, Some(fields)),
        _ => (None, None),
    };
    one.into_iter().chain(many.into_iter().flatten())
}

/// Refuses times that cannot be written, as of years of seven digits; the writer of JSON would put the text of an error in their
/// place.
///
/// # Errors
/// `Unsupported`, with the column and the number.
fn check_times(batch: &RecordBatch) -> Result<()> {
    let schema = batch.schema();
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        if may_be_unwritable(field.data_type()) {
            check_column(column).map_err(|error| {
                Error::unsupported(format!(
                    "column {:?} has a time that cannot be written: {error}",
                    field.name()
                ))
            })?;
        }
    }
    Ok(())
}

/// Nanoseconds end before the years do that can be written, and other units behind them.
fn may_be_unwritable(ty: &DataType) -> bool {
    match ty {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => false,
        DataType::Dictionary(_, values) => may_be_unwritable(values),
        _ => ty.is_temporal() || inner(ty).any(|field| may_be_unwritable(field.data_type())),
    }
}

fn check_column(column: &ArrayRef) -> std::result::Result<(), String> {
    let options = FormatOptions::default().with_display_error(false);
    let values = ArrayFormatter::try_new(column, &options).map_err(|error| error.to_string())?;
    for row in (0..column.len()).filter(|row| column.is_valid(*row)) {
        if fmt::write(&mut Nowhere, format_args!("{}", values.value(row))).is_err() {
            let error = values.value(row).try_to_string().err();
            return Err(error.map_or_else(String::new, |error| error.to_string()));
        }
    }
    Ok(())
}

struct Nowhere;

impl fmt::Write for Nowhere {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{
        Int64Array, ListArray, StructArray, TimestampNanosecondArray, TimestampSecondArray,
    };
    use datafusion::arrow::datatypes::TimestampSecondType;

    use super::*;

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        let fields: Fields = columns
            .iter()
            .map(|(name, values)| Field::new(*name, values.data_type().clone(), true))
            .collect();
        let columns = columns.into_iter().map(|(_, values)| values).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }

    fn int() -> ArrayRef {
        Arc::new(Int64Array::from(vec![1]))
    }

    #[test]
    fn columns_of_one_name_get_different_ones() {
        let names = |names: &[&str]| {
            let batch = batch(names.iter().map(|name| (*name, int())).collect());
            let unique = UniqueNames::new(&batch.schema()).unwrap().apply(&batch).unwrap();
            assert_eq!(unique.columns(), batch.columns());
            let schema = unique.schema();
            schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&["a", "b"]), ["a", "b"]);
        assert_eq!(names(&["a", "a", "b", "a"]), ["a", "a_1", "b", "a_2"]);
        assert_eq!(names(&["a", "a", "a_1", "a_1"]), ["a", "a_2", "a_1", "a_1_1"]);
        let inside: Fields =
            ["x", "x"].map(|name| Field::new(name, DataType::Int64, true)).to_vec().into();
        let inside = StructArray::new(inside, vec![int(), int()], None);
        let error = UniqueNames::new(&batch(vec![("s", Arc::new(inside))]).schema()).unwrap_err();
        assert!(
            error.message().contains("column \"s\"") && error.message().contains("\"x\""),
            "{error}"
        );
    }

    #[test]
    fn times_that_cannot_be_written_are_refused() {
        let far: ArrayRef =
            Arc::new(TimestampSecondArray::from(vec![Some(0), None, Some(9_999_999_999_999_999)]));
        let near: ArrayRef =
            Arc::new(TimestampSecondArray::from(vec![Some(0), None, Some(99_999_999_999)]));
        let ends: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![i64::MIN, 0, i64::MAX]));
        let lists = ListArray::from_iter_primitive::<TimestampSecondType, _, _>(vec![
            Some(vec![Some(9_999_999_999_999_999)]),
            None,
            Some(vec![]),
        ]);
        assert_eq!(check_times(&batch(vec![("a", near), ("b", ends)])), Ok(()));
        let error = check_times(&batch(vec![("t", Arc::clone(&far))])).unwrap_err();
        assert!(error.message().contains("9999999999999999"), "{error}");
        for column in [far, Arc::new(lists) as ArrayRef] {
            let error = check_times(&batch(vec![("t", Arc::clone(&column))])).unwrap_err();
            assert!(error.message().contains("column \"t\""), "{error}");
            assert_eq!(check_times(&batch(vec![("t", column.slice(1, 1))])), Ok(()));
        }
    }
}
