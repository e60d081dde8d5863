//! Ways in: rows, and wide frames whose columns are sensors.

use std::sync::Arc;

use arrow_array::ffi_stream::ArrowArrayStreamReader;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchReader, StringArray,
};
use arrow_buffer::ScalarBuffer;
use arrow_select::concat::concat;
use arrow_select::filter::filter;
use tidefall_import::{ArrowOptions, batch_from_arrow, columns_from_arrow};
use tidefall_storage::{Ack, Db, Existing, FieldTypes, Unknown, WriteOptions, WriteReport};
use tidefall_types::{
    Error, Result, Series, SeriesBatch, TableSchema, TagColumn, WriteBatch, caught,
};

use crate::stream::arrow_error;

/// Rows that are written at once, if their texts are not too long for that.
const WRITE_ROWS: usize = 1 << 17;
/// Bytes of texts that are written at once; the log takes as much with the least memory budget.
const WRITE_TEXT_BYTES: usize = 16 << 20;

/// What Python calls the ways to treat readings that are there already.
///
/// # Errors
/// `Invalid` for another word.
pub(crate) fn existing_of(word: &str) -> Result<Existing> {
    Ok(match word {
        "count" => Existing::Count,
        "replace" => Existing::Replace,
        "refuse" => Existing::Refuse,
        other => {
            let why = format!("existing {other:?} is unknown: say count, replace or refuse");
            return Err(Error::invalid(why));
        }
    })
}

/// How many rows were written, and how many of them replaced others, if that is known.
type Written = (u64, Option<u64>);

/// Adds up what was written.
struct Sum<'a> {
    db: &'a Db,
    table: &'a str,
    existing: Existing,
    rows: u64,
    replaced: Option<u64>,
    /// Whether there are several pieces, which are acknowledged from memory.
    is_long: bool,
}

impl Sum<'_> {
    fn write(&mut self, batch: &WriteBatch, ack: Ack) -> Result<()> {
        let report = self.db.write(self.table, batch, &WriteOptions { ack, ..self.options() });
        self.add(&report.map_err(|error| self.behind(error))?);
        Ok(())
    }

    /// Writes what waits, as all rows before those that are wrong stay written; gives the error of what follows.
    fn stop(&mut self, waiting: Option<WriteBatch>, error: Error) -> Error {
        self.is_long |= waiting.is_some();
        match waiting.map_or(Ok(()), |batch| self.write(&batch, Ack::Memory)) {
            Ok(()) => self.behind(error),
            Err(earlier) => earlier,
        }
    }

    /// Rows are named as they are counted behind those that are written, or nobody knows which are meant.
    fn behind(&self, error: Error) -> Error {
        match self.rows {
            0 => error,
            rows => error.context(format_args!("of the rows from {} on", rows + 1)),
        }
    }

    fn options(&self) -> WriteOptions {
        WriteOptions {
            unknown: Unknown::Create,
            existing: self.existing,
            field_types: FieldTypes::Widen,
            ..WriteOptions::default()
        }
    }

    fn add(&mut self, report: &WriteReport) {
        self.rows += report.rows as u64;
        // An empty batch replaces nothing.
        let replaced = report.replaced.or((report.rows == 0).then_some(0));
        self.replaced = self.replaced.zip(replaced).map(|(sum, more)| sum + more);
    }

    fn written(self) -> Written {
        let is_counted = self.existing != Existing::Replace;
        (self.rows, self.replaced.filter(|_| is_counted))
    }
}

/// Writes all rows of `batches`, and returns their number when they are on disk: those of a short table
/// in the log, those of a long one in objects. After an error, too, all rows that were written are on disk.
pub(crate) fn write_all(
    db: &Db,
    table: &str,
    batches: ArrowArrayStreamReader,
    options: &ArrowOptions,
    existing: Existing,
) -> Result<Written> {
    let mut sum = Sum { db, table, existing, rows: 0, replaced: Some(0), is_long: false };
    let work = caught(|| write_pieces(&mut sum, batches, options));
    match sum.is_long {
        true => db.flush_after(work),
        false => work,
    }?;
    Ok(sum.written())
}

/// Writes rows piece by piece: a single one to the log, several to memory.
fn write_pieces(
    sum: &mut Sum<'_>,
    batches: ArrowArrayStreamReader,
    options: &ArrowOptions,
) -> Result<()> {
    let mut before: Option<WriteBatch> = None;
    let schema = batches.schema();
    for batch in batches {
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => return Err(sum.stop(before, arrow_error(error))),
        };
        for start in (0..batch.num_rows()).step_by(WRITE_ROWS) {
            let part = batch.slice(start, WRITE_ROWS.min(batch.num_rows() - start));
            let part = match batch_from_arrow(&part, options) {
                Ok(part) => part,
                Err(error) => return Err(sum.stop(before, error)),
            };
            for part in part.parts(WRITE_TEXT_BYTES) {
                if let Some(before) = before.replace(part) {
                    sum.is_long = true;
                    sum.write(&before, Ack::Memory)?;
                }
            }
        }
    }
    if before.is_none() {
        // Also without rows it is said which columns there are.
        before = Some(batch_from_arrow(&RecordBatch::new_empty(schema), options)?);
    }
    let ack = if sum.is_long { Ack::Memory } else { Ack::Durable };
    before.map_or(Ok(()), |last| sum.write(&last, ack))
}

/// Records that are written at once: many go straight to segments.
const WRITE_RECORDS: usize = 1 << 20;

/// Writes all rows of `batches` to a table of records, piece by piece; each is on disk before the next, and those before an error stay.
pub(crate) fn write_records(
    db: &Db,
    schema: &TableSchema,
    batches: ArrowArrayStreamReader,
) -> Result<Written> {
    let mut rows = 0;
    for batch in batches {
        let behind = |rows: u64, error: Error| match rows {
            0 => error,
            rows => error.context(format_args!("of the rows from {} on", rows + 1)),
        };
        let batch = batch.map_err(|error| behind(rows, arrow_error(error)))?;
        for start in (0..batch.num_rows()).step_by(WRITE_RECORDS) {
            let part = batch.slice(start, WRITE_RECORDS.min(batch.num_rows() - start));
            let columns = columns_from_arrow(&part, schema);
            let report = columns.and_then(|columns| {
                db.write_records(&schema.name, &columns, &WriteOptions::default())
            });
            rows += report.map_err(|error| behind(rows, error))?.rows as u64;
        }
    }
    Ok((rows, Some(0)))
}

/// Writes series; one without any value is none.
pub(crate) fn write_series(
    db: &Db,
    table: &str,
    series: &SeriesBatch,
    existing: Existing,
) -> Result<Written> {
    let mut sum = Sum { db, table, existing, rows: 0, replaced: Some(0), is_long: false };
    if !series.series.is_empty() {
        sum.add(&db.load_with(table, series, &sum.options())?);
    }
    Ok(sum.written())
}

/// The columns of wide batches, one for each sensor that has values, as series of the field `field`.
pub(crate) fn series_of(
    batches: &[RecordBatch],
    time: Option<String>,
    tag: &str,
    field: &str,
) -> Result<SeriesBatch> {
    let options = ArrowOptions { time, tags: Vec::new() };
    let batches: Vec<WriteBatch> =
        batches.iter().map(|batch| batch_from_arrow(batch, &options)).collect::<Result<_>>()?;
    let Some(first) = batches.first() else { return Ok(SeriesBatch::default()) };
    let mut times: Vec<i64> = Vec::new();
    batches.iter().for_each(|batch| times.extend_from_slice(&batch.time));
    let time: ScalarBuffer<i64> = times.into();
    let mut names: Vec<&str> = Vec::with_capacity(first.fields.len());
    let mut series = Vec::with_capacity(first.fields.len());
    for (place, column) in first.fields.iter().enumerate() {
        let parts: Vec<&dyn Array> =
            batches.iter().map(|batch| &*batch.fields[place].values).collect();
        let values = match parts[..] {
            [_] => Arc::clone(&column.values),
            _ => concat(&parts).map_err(arrow_error)?,
        };
        if let Some(readings) = readings(&time, values)? {
            names.push(&column.name);
            series.push(readings);
        }
    }
    let keys: ScalarBuffer<u32> = (0..names.len() as u32).collect();
    let values = StringArray::from(names);
    let tags = vec![TagColumn { name: tag.to_owned(), values, keys }];
    Ok(SeriesBatch { tags, fields: vec![field.to_owned()], series })
}

/// The times and values of a column without its gaps, which are no readings; nothing when it has no values.
fn readings(time: &ScalarBuffer<i64>, values: ArrayRef) -> Result<Option<Series>> {
    if values.null_count() == values.len() {
        return Ok(None);
    }
    let Some(nulls) = values.nulls().filter(|nulls| nulls.null_count() > 0).cloned() else {
        return Ok(Some(Series { time: time.clone(), fields: vec![values] }));
    };
    let is_there = BooleanArray::new(nulls.into_inner(), None);
    let time = filter(&Int64Array::new(time.clone(), None), &is_there).map_err(arrow_error)?;
    let time = time.to_data().buffer::<i64>(0)[..time.len()].to_vec().into();
    let values = filter(&values, &is_there).map_err(arrow_error)?;
    Ok(Some(Series { time, fields: vec![values] }))
}
