//! Arrow record batches into write batches.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowTimestampType, Date32Type, Date64Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt32Type,
};
use arrow_array::{
    Array, ArrayRef, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray,
    downcast_dictionary_array,
};
use arrow_buffer::{ArrowNativeType, ScalarBuffer};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, TimeUnit};
use chrono::DateTime;
use tidefall_types::{
    Error, FieldColumn, FieldType, NO_TAG, NS_PER_DAY, NS_PER_MICRO, NS_PER_MILLI, NS_PER_SECOND,
    Result, RowError, TableSchema, TagColumn, WriteBatch, nearest_floats, parse_time,
    sql_type_name,
};

use crate::csv::{TimeParser, is_rather_time};

/// The name that a time column has as a rule.
const TIME: &str = "time";

/// What the columns of a record batch are. All others are fields.
#[derive(Debug, Clone, Default)]
pub struct ArrowOptions {
    /// The time column; `None` for the one called `time` if it is of a timestamp or date type, else the
    /// first timestamp, else the first date. It is an error if numbers or texts beside it are called `time`,
    /// `timestamp` or the like, and it is not.
    pub time: Option<String>,
    /// The columns that name the sensor.
    pub tags: Vec<String>,
}

impl ArrowOptions {
    /// Refuses a time and tags that are named for a table of records.
    ///
    /// # Errors
    /// `Invalid` then.
    pub fn refuse_for_records(&self, table: &str) -> Result<()> {
        match self.time.is_none() && self.tags.is_empty() {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "table {table} is of records, which have no time and no tags of their own: do not name any"
            ))),
        }
    }

    /// Checks that rows for a table have all of its tags: those without one are of no sensor there, so that those of equal time
    /// would replace each other.
    ///
    /// # Errors
    /// `Invalid`, naming the tags that are missing.
    pub fn check_tags(&self, table: &TableSchema) -> Result<()> {
        let missing: Vec<String> = table
            .tags
            .iter()
            .filter(|tag| !self.tags.contains(tag))
            .map(|tag| format!("{tag:?}"))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the table {:?} has the {} {}, which these rows lack: name the columns among the tags, or add them to the rows, \
             with nothing in them where rows have none",
            table.name,
            if missing.len() == 1 { "tag" } else { "tags" },
            missing.join(", ")
        )))
    }
}

/// Makes a write batch of a record batch.
///
/// Times may be timestamps of any unit and zone, dates, text as
/// [`tidefall_types::parse_time`] reads it, or whole numbers, which are nanoseconds since 1970.
/// Tags of other types than text are written as text. Dates and timestamps of any unit and zone among the fields
/// become `TIMESTAMP`, times of day and lengths of time of any unit become whole numbers of nanoseconds, decimals the
/// nearest `DOUBLE`.
///
/// # Errors
/// `Invalid` when a column is missing, appears twice, or has a type that is not stored, when it is not
/// clear which is the time, or when a row has no time, or one in any column that 64-bit nanoseconds do
/// not reach; the row is counted from 1.
pub fn batch_from_arrow(batch: &RecordBatch, options: &ArrowOptions) -> Result<WriteBatch> {
    let (batch, bad) = convert(batch, options, None)?;
    match bad.into_iter().min_by_key(|bad| bad.row) {
        None => Ok(batch),
        Some(bad) => {
            let number = bad.number();
            Err(bad.error.context(format_args!("row {number}")))
        }
    }
}

/// The columns of a record batch as those of a table of records: as the fields of a write batch, and texts as times where the table has times.
///
/// # Errors
/// `Invalid` for a text that is no time and a value that is out of range, with the row, counted from 1; `Unsupported` for a type that is not stored.
pub fn columns_from_arrow(batch: &RecordBatch, table: &TableSchema) -> Result<Vec<FieldColumn>> {
    let (mut columns, mut bad) = (Vec::with_capacity(batch.num_columns()), Vec::new());
    for (field, values) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let name = field.name();
        if values.data_type() == &DataType::Null {
            continue;
        }
        let known = table.fields.iter().find(|known| known.name == *name);
        let is_time = known.is_some_and(|known| known.ty == FieldType::Timestamp);
        let values = match field_values(name, values, &mut bad)? {
            texts if is_time && texts.data_type() == &DataType::Utf8 => {
                times_of_texts(name, &texts, &mut bad)
            }
            values => values,
        };
        columns.push(FieldColumn { name: name.clone(), values });
    }
    match bad.into_iter().min_by_key(|bad| bad.row) {
        None => Ok(columns),
        Some(bad) => {
            let number = bad.number();
            Err(bad.error.context(format_args!("row {number}")))
        }
    }
}

/// Texts as times, and NULL in the place of those that are none, whose rows are added to `bad`.
fn times_of_texts(name: &str, texts: &ArrayRef, bad: &mut Vec<RowError>) -> ArrayRef {
    let parse = |(row, text): (usize, Option<&str>)| match parse_time(text?) {
        Ok(time_ns) => Some(time_ns),
        Err(error) => {
            let error = error.context(format_args!("column {name:?}"));
            bad.push(RowError { row, error });
            None
        }
    };
    Arc::new(
        texts
            .as_string::<i32>()
            .iter()
            .enumerate()
            .map(parse)
            .collect::<TimestampNanosecondArray>(),
    )
}

/// Makes a write batch, in which the rows named in the second part have no right time, or another value that is out of
/// range; a row may be named for each of them. `parser` reads times that are numbers or text.
pub(crate) fn convert(
    batch: &RecordBatch,
    options: &ArrowOptions,
    parser: Option<&mut TimeParser>,
) -> Result<(WriteBatch, Vec<RowError>)> {
    let schema = batch.schema_ref();
    // Text has a form that cannot take more, and what would become more ends the process.
    if let Some((name, bytes)) = unshared(batch, options).find(|it| i32::try_from(it.1).is_err()) {
        return Err(Error::limit(format!(
            "column {name:?}: the values of {} rows take {bytes} bytes, and up to {} can be read at once; send fewer \
             rows at once",
            batch.num_rows(),
            i32::MAX
        )));
    }
    let time_column = time_column(schema, options)?;
    let mut tags = Vec::with_capacity(options.tags.len());
    for (at, name) in options.tags.iter().enumerate() {
        if options.tags[..at].contains(name) {
            return Err(Error::invalid(format!("the tag {name:?} is named twice")));
        }
        let column = find(schema, name)?;
        if column == time_column {
            return Err(Error::invalid(format!("column {name:?} cannot be time and tag")));
        }
        tags.push(tag_column(name, batch.column(column))?);
    }
    let (mut fields, mut bad_values) = (Vec::new(), Vec::new());
    for (column, field) in schema.fields().iter().enumerate() {
        if column == time_column || options.tags.contains(field.name()) {
            continue;
        }
        let values = batch.column(column);
        // A column of nothing says nothing, not even its type.
        if values.data_type() != &DataType::Null {
            let values = field_values(field.name(), values, &mut bad_values)?;
            fields.push(FieldColumn { name: field.name().clone(), values });
        }
    }
    let (name, values) = (schema.field(time_column).name(), batch.column(time_column));
    let (time, mut bad) = match parser.filter(|_| !values.data_type().is_temporal()) {
        Some(parser) => formatted_times(name, values, parser)?,
        None => time_values(name, values)?,
    };
    let batch = WriteBatch { time, tags, fields };
    batch.check()?;
    bad.extend(bad_values);
    Ok((batch, bad))
}

/// What a tag takes that was a number: its text, two places of texts, and a key.
const TAG_BYTES: usize = 32;

/// The bytes that the columns of a batch take beside their own once each row has a value of its own, as it gets when it becomes one of a
/// [`WriteBatch`]: many times their own where rows share values, in dictionaries and views.
pub fn unshared_bytes(batch: &RecordBatch, options: &ArrowOptions) -> usize {
    unshared(batch, options).map(|(_, bytes)| bytes).sum()
}

/// The columns in which rows lose what they share, and their bytes then. Tags that share values stay as they are.
fn unshared<'a>(
    batch: &'a RecordBatch,
    options: &'a ArrowOptions,
) -> impl Iterator<Item = (&'a str, usize)> {
    let columns = batch.schema_ref().fields().iter().zip(batch.columns());
    columns.filter_map(|(field, values)| {
        let name = field.name().as_str();
        let is_tag = options.tags.iter().any(|tag| tag == name);
        let stays = is_tag && matches!(values.data_type(), DataType::Dictionary(..));
        // What is no text becomes one, with its place among all and a key.
        let made = if is_tag && !stays { values.len() * TAG_BYTES } else { 0 };
        (!stays).then(|| (name, bytes_unshared(values) + made))
    })
}

/// The bytes that values take when no rows share one; nothing where none do.
fn bytes_unshared(values: &ArrayRef) -> usize {
    if let Some(views) = values.as_string_view_opt() {
        return views.views().iter().map(|view| *view as u32 as usize).sum();
    }
    downcast_dictionary_array!(
        values => {
            let lengths = lengths(values.values());
            let length = |key: usize| lengths.get(key).copied().unwrap_or(0);
            values.keys().values().iter().map(|key| length(key.as_usize())).sum()
        },
        _ => 0
    )
}

/// The bytes of each of some values.
fn lengths(values: &ArrayRef) -> Vec<usize> {
    match values.data_type() {
        DataType::Utf8 => values.as_string::<i32>().offsets().lengths().collect(),
        DataType::LargeUtf8 => values.as_string::<i64>().offsets().lengths().collect(),
        DataType::Utf8View => {
            values.as_string_view().views().iter().map(|view| *view as u32 as usize).collect()
        }
        ty => vec![ty.primitive_width().unwrap_or(0); values.len()],
    }
}

fn find(schema: &arrow_schema::Schema, name: &str) -> Result<usize> {
    schema.index_of(name).map_err(|_| {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        Error::invalid(format!("there is no column {name:?}; the columns are {names:?}"))
    })
}

/// The position of the time column.
pub(crate) fn time_column(schema: &arrow_schema::Schema, options: &ArrowOptions) -> Result<usize> {
    if let Some(name) = &options.time {
        return find(schema, name);
    }
    let first = |fits: &dyn Fn(&Field) -> bool| {
        let mut fields = schema.fields().iter();
        fields.position(|field| fits(field) && !options.tags.contains(field.name()))
    };
    let found = first(&|field| {
        field.name() == TIME && (is_timestamp(field.data_type()) || is_date(field.data_type()))
    })
    .or_else(|| first(&|field| is_timestamp(field.data_type())))
    .or_else(|| first(&|field| is_date(field.data_type())))
    .ok_or_else(|| Error::invalid("no column is a timestamp or a date; say which is the time"))?;
    let time = schema.field(found);
    let is_better = |field: &Field| {
        is_rather_time(field.name(), time.name())
            && may_be_time(field.data_type(), time.data_type())
    };
    match first(&is_better) {
        None => Ok(found),
        Some(other) => Err(which_time(time, schema.field(other))),
    }
}

fn is_date(ty: &DataType) -> bool {
    matches!(ty, DataType::Date32 | DataType::Date64)
}

fn is_timestamp(ty: &DataType) -> bool {
    matches!(ty, DataType::Timestamp(..))
}

/// Whether values of a type may be the times of rows, beside a time of the type `found`.
fn may_be_time(ty: &DataType, found: &DataType) -> bool {
    match ty {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => may_be_time(values, found),
        // Without their times of day, the rows of a day replace each other.
        DataType::Time32(_) | DataType::Time64(_) => is_date(found),
        _ => ty.is_numeric(),
    }
}

/// The error for a time beside a column that is called so: it may be the moment of anything, such as that at which the
/// row was stored, and then rows replace each other.
fn which_time(found: &Field, called: &Field) -> Error {
    Error::invalid(format!(
        "the time may be {:?} or {:?}, which is called so and holds values of type {}: say which it is, with --time \
         NAME or the parameter time",
        found.name(),
        called.name(),
        called.data_type()
    ))
}

type Times = (ScalarBuffer<i64>, Vec<RowError>);

fn time_values(name: &str, values: &ArrayRef) -> Result<Times> {
    if let DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Dictionary(..) =
        values.data_type()
    {
        let text = cast_plain(name, values, &DataType::Utf8)?;
        let text = text.as_string::<i32>();
        return Ok(times(text.iter().map(|text| text.map(parse_time))));
    }
    let (values, unit_ns) = counts(values).ok_or_else(|| {
        Error::invalid(format!("column {name:?} of type {} holds no times", values.data_type()))
    })?;
    if unit_ns == 1 && values.null_count() == 0 {
        return Ok((values.values().clone(), Vec::new()));
    }
    Ok(times(values.iter().map(|count| {
        count.map(|count| {
            count.checked_mul(unit_ns).ok_or_else(|| out_of_range("the time", (count, unit_ns)))
        })
    })))
}

/// The error for `what`, a count of so many nanoseconds since 1970.
pub(crate) fn out_of_range(what: &str, (count, unit_ns): (i64, i64)) -> Error {
    let seconds = i128::from(count) * i128::from(unit_ns) / i128::from(NS_PER_SECOND);
    let instant = i64::try_from(seconds).ok().and_then(|s| DateTime::from_timestamp(s, 0));
    let shown = match instant {
        Some(instant) => instant.naive_utc().to_string(),
        None => format!("{seconds} seconds from 1970"),
    };
    Error::invalid(format!("{what} {shown} lies outside of 1677-09-21 .. 2262-04-11"))
}

/// Dates and timestamps of any unit as those that are stored. Rows that are out of range are added to `bad`, and null.
pub(crate) fn timestamps(
    name: &str,
    values: &ArrayRef,
    bad: &mut Vec<RowError>,
) -> Result<ArrayRef> {
    if let DataType::Dictionary(_, inner) = values.data_type() {
        return timestamps(name, &cast_plain(name, values, inner)?, bad);
    }
    let counted = counts(values).ok_or_else(|| not_stored(name, values.data_type()))?;
    let outside = |counted| out_of_range(&format!("column {name:?}:"), counted);
    let times: TimestampNanosecondArray = nanoseconds(counted, outside, bad).reinterpret_cast();
    Ok(Arc::new(times.with_data_type(FieldType::Timestamp.arrow())))
}

/// Counts of so many nanoseconds as nanoseconds. Rows for which 64 bits are too few are added to `bad`, and null.
fn nanoseconds(
    (counts, unit_ns): (Int64Array, i64),
    error: impl Fn((i64, i64)) -> Error,
    bad: &mut Vec<RowError>,
) -> Int64Array {
    if unit_ns == 1 {
        return counts;
    }
    let ns: Int64Array = counts.unary_opt(|count| count.checked_mul(unit_ns));
    if ns.null_count() > counts.null_count() {
        let is_out = |row: &usize| counts.is_valid(*row) && ns.is_null(*row);
        let error = |row| RowError { row, error: error((counts.value(row), unit_ns)) };
        bad.extend((0..counts.len()).filter(is_out).map(error));
    }
    ns
}

/// Times that are written in a form, also as numbers.
fn formatted_times(name: &str, values: &ArrayRef, parser: &mut TimeParser) -> Result<Times> {
    let text = cast_plain(name, values, &DataType::Utf8)?;
    let text = text.as_string::<i32>();
    Ok(times(text.iter().map(|text| text.map(|text| parser.parse(text.as_bytes())))))
}

fn times(values: impl Iterator<Item = Option<Result<i64>>>) -> Times {
    let mut bad = Vec::new();
    let times = values
        .enumerate()
        .map(|(row, value)| {
            let value = value.unwrap_or_else(|| Err(Error::invalid("the time is missing")));
            value.unwrap_or_else(|error| {
                bad.push(RowError { row, error });
                0
            })
        })
        .collect();
    (times, bad)
}

/// Dates and timestamps as counts of so many nanoseconds.
pub(crate) fn counts(values: &ArrayRef) -> Option<(Int64Array, i64)> {
    fn plain<T: ArrowTimestampType>(values: &ArrayRef) -> Int64Array {
        values.as_primitive::<T>().reinterpret_cast()
    }
    Some(match values.data_type() {
        DataType::Int64 => (values.as_primitive::<Int64Type>().clone(), 1),
        DataType::Timestamp(unit, _) => {
            let counts = match unit {
                TimeUnit::Second => plain::<TimestampSecondType>(values),
                TimeUnit::Millisecond => plain::<TimestampMillisecondType>(values),
                TimeUnit::Microsecond => plain::<TimestampMicrosecondType>(values),
                TimeUnit::Nanosecond => plain::<TimestampNanosecondType>(values),
            };
            (counts, length_ns(*unit))
        }
        DataType::Date32 => (values.as_primitive::<Date32Type>().unary(i64::from), NS_PER_DAY),
        DataType::Date64 => (values.as_primitive::<Date64Type>().reinterpret_cast(), NS_PER_MILLI),
        _ => return None,
    })
}

fn length_ns(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => NS_PER_SECOND,
        TimeUnit::Millisecond => NS_PER_MILLI,
        TimeUnit::Microsecond => NS_PER_MICRO,
        TimeUnit::Nanosecond => 1,
    }
}

fn tag_column(name: &str, values: &ArrayRef) -> Result<TagColumn> {
    let dictionary = DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8));
    let values = match values.data_type() {
        DataType::Dictionary(..) => cast_plain(name, values, &dictionary)?,
        ty @ DataType::RunEndEncoded(..) => return Err(not_stored(name, ty)),
        _ => cast_plain(name, &cast_plain(name, values, &DataType::Utf8)?, &dictionary)?,
    };
    let values = values.as_dictionary::<UInt32Type>();
    let texts: &StringArray = values.values().as_string();
    let keys: ScalarBuffer<u32> = match (values.keys().nulls(), texts.null_count()) {
        (None, 0) => values.keys().values().clone(),
        _ => values
            .keys()
            .iter()
            .map(|key| key.filter(|&key| texts.is_valid(key as usize)).unwrap_or(NO_TAG))
            .collect(),
    };
    Ok(TagColumn { name: name.to_owned(), values: texts.clone(), keys })
}

/// The values of a column as those of a field. Rows whose values are out of range are added to `bad`, and null.
fn field_values(name: &str, values: &ArrayRef, bad: &mut Vec<RowError>) -> Result<ArrayRef> {
    let ty = values.data_type();
    if let Some(stored) = FieldType::from_arrow(ty) {
        // Text has one form in memory.
        return match stored {
            FieldType::Text => cast_plain(name, values, &stored.arrow()),
            _ => Ok(Arc::clone(values)),
        };
    }
    match ty {
        DataType::Float16 => cast_plain(name, values, &DataType::Float32),
        DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => {
            nearest_floats(values, &DataType::Float64).ok_or_else(|| not_stored(name, ty))
        }
        DataType::Dictionary(_, inner) => {
            // Text is repeated for each row in a form that cannot take more than 2 GiB, and nothing else that can be long.
            let plain = match FieldType::from_arrow(inner) {
                Some(FieldType::Text) => &FieldType::Text.arrow(),
                None if !inner.is_primitive() => return Err(not_stored(name, ty)),
                _ => &**inner,
            };
            field_values(name, &cast_plain(name, values, plain)?, bad)
        }
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => {
            timestamps(name, values, bad)
        }
        // Whatever unit a file or a frame counts them in, a field has one.
        DataType::Time32(_) | DataType::Time64(_) => {
            let ns = cast_plain(name, values, &DataType::Time64(TimeUnit::Nanosecond))?;
            cast_plain(name, &ns, &DataType::Int64)
        }
        DataType::Duration(unit) => {
            let counts = cast_plain(name, values, &DataType::Int64)?;
            let counted = (counts.as_primitive::<Int64Type>().clone(), length_ns(*unit));
            let too_long = |(count, _)| {
                let what = format!("column {name:?}: {count} {unit} are more nanoseconds");
                Error::invalid(format!("{what} than 64 bits hold"))
            };
            Ok(Arc::new(nanoseconds(counted, too_long, bad)))
        }
        _ => Err(not_stored(name, ty)),
    }
}

fn not_stored(name: &str, ty: &DataType) -> Error {
    Error::unsupported(format!(
        "column {name:?}: values of type {} cannot be stored; leave the column out",
        sql_type_name(ty)
    ))
}

pub(crate) fn cast_plain(name: &str, values: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    // A value that does not fit is an error, not a null.
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let outcome = match values.data_type() == to {
        true => return Ok(Arc::clone(values)),
        false => cast_with_options(values, to, &strict),
    };
    outcome.map_err(|error| Error::invalid(format!("column {name:?}: {error}")))
}

#[cfg(test)]
mod tests;
