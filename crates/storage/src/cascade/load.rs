//! Whole columns of sensors, straight to objects of the models that own their times: the way in
//! for what is sorted already, which needs neither the log nor the key-value model.
//!
//! 1. Encode and write the objects, while others read and write.
//! 2. Take a place among the writes. What was written before and overlaps must leave memory first,
//!    or it would later become part of objects that count as written after this.
//! 3. Install the objects.

use std::sync::{Arc, PoisonError, mpsc};

use tidefall_types::{Day, Error, FieldId, FieldType, Result, Seq, TimeRange};

use super::boundaries::Boundaries;
use super::drain::{Take, cut, drain};
use super::pieces::PIECE_ROWS;
use super::rewrite::{Estimate, Output, write_object, write_objects};
use super::short_to_long::segment_spans;
use crate::engine::Engine;
use crate::ingest::commit::{Change, Commit};
use crate::manifest::{Edit, Model, ObjectEntry};
use crate::options::Target;
use crate::rows::SensorRows;
use crate::segment::encode::Stretch;
use crate::table::Table;

/// Bytes that a value is taken to need in a long segment when the segments of a load are planned.
const VALUE_BYTES: f64 = 3.0;

/// Writes series, at most one for each sensor, each ordered by time without repeats and with all
/// fields of the table. They are durable and visible on return.
pub(crate) fn load(
    engine: &Engine,
    table: &Arc<Table>,
    mut series: Vec<(u32, SensorRows)>,
) -> Result<()> {
    series.retain(|(_, rows)| rows.len() > 0);
    series.sort_unstable_by_key(|(sensor, _)| *sensor);
    let Some(time) = series.iter().map(|(_, rows)| time_of(rows)).reduce(|a, b| a.union(&b)) else {
        return Ok(());
    };
    let boundaries = Boundaries::new(&table.schema().options, Target::ByAge, engine.now_ns());
    let mut entries = write_series(engine, table, &boundaries, &series, &time)?;
    drop(series);
    let _maintenance = engine.maintenance.lock().unwrap_or_else(PoisonError::into_inner);
    let seq = take_place(engine, table)?;
    if table.live().all_runs().any(|run| run.last_seq < seq && run.range.overlaps(&time)) {
        drain(engine, table, &boundaries, Take::WrittenBefore(seq))?;
    }
    entries.iter_mut().for_each(|entry| entry.last_seq = seq);
    let edits = entries.into_iter().map(|entry| Edit::AddObject(table.id, entry)).collect();
    engine.install(table, edits, |_| {})
}

fn write_series(
    engine: &Engine,
    table: &Table,
    boundaries: &Boundaries,
    series: &[(u32, SensorRows)],
    time: &TimeRange,
) -> Result<Vec<ObjectEntry>> {
    let schema = table.schema();
    let fields: Vec<(FieldId, FieldType)> = schema
        .fields
        .iter()
        .enumerate()
        .map(|(id, field)| (FieldId(id as u16), field.ty))
        .collect();
    write_objects(&spans(boundaries, series, time, fields.len()), |(model, span)| {
        let pieces = pieces(series, span);
        let estimate = Estimate {
            rows: pieces.iter().map(|(_, rows)| rows.len() as u64).sum(),
            sensors: series.len() as u64,
            time: span.intersect(time),
        };
        write_object(
            engine,
            table.id,
            Output { model: *model, fields: &fields, block_ns: schema.options.block_ns },
            Seq::default(),
            estimate,
            &pieces,
            |(sensor, rows)| Ok((*sensor, vec![vec![Stretch::Rows(rows.clone())]])),
        )
    })
}

/// Where the rows go: days of short columns, and months of long ones that fill a segment.
fn spans(
    boundaries: &Boundaries,
    series: &[(u32, SensorRows)],
    time: &TimeRange,
    fields: usize,
) -> Vec<(Model, TimeRange)> {
    let mut spans = Vec::new();
    let long = boundaries.range(Model::Long).intersect(time);
    if !long.is_empty() {
        let value_bytes = fields.max(1) as f64 * VALUE_BYTES;
        let rows_within = |month: &TimeRange| {
            series.iter().map(|(_, rows)| cut(rows, month).len()).sum::<usize>() as f64
        };
        for span in segment_spans(&long, |month| rows_within(month) * value_bytes) {
            spans.push((Model::Long, span.intersect(&long)));
        }
    }
    let short = boundaries.range(Model::Short).intersect(time);
    if !short.is_empty() {
        for day in Day::of(short.first_ns).0..=Day::of(short.last_ns).0 {
            spans.push((Model::Short, Day(day).range().intersect(&short)));
        }
    }
    spans.push((Model::Kv, boundaries.range(Model::Kv).intersect(time)));
    spans.retain(|(_, span)| !span.is_empty());
    spans
}

/// The rows within a span, in pieces that several threads can encode.
fn pieces(series: &[(u32, SensorRows)], span: &TimeRange) -> Vec<(u32, SensorRows)> {
    let mut pieces = Vec::new();
    for (sensor, rows) in series {
        let rows = cut(rows, span);
        for first in (0..rows.len()).step_by(PIECE_ROWS) {
            pieces.push((*sensor, rows.slice(first, PIECE_ROWS.min(rows.len() - first))));
        }
    }
    pieces
}

fn time_of(rows: &SensorRows) -> TimeRange {
    let end = |time: Option<&i64>| time.copied().unwrap_or_default();
    TimeRange::new(end(rows.times.first()), end(rows.times.last()))
}

fn take_place(engine: &Engine, table: &Arc<Table>) -> Result<Seq> {
    let (send, receive) = mpsc::sync_channel(1);
    engine.commits.submit(Commit {
        table: Arc::clone(table),
        change: Change::Mark,
        record: None,
        is_durable: false,
        done: Box::new(move |outcome| {
            // The receiver waits below; it is gone only if this thread is.
            let _ = send.send(outcome);
        }),
    })?;
    receive.recv().map_err(|_| Error::closed("the database was closed during a write"))?
}
