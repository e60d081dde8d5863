//! Whole columns of sensors, straight to objects of the models that own their times: the way in
//! for what is sorted already, which needs neither the log nor the key-value model.
//!
//! 1. Encode and write the objects, while others read and write.
//! 2. Take a place among the writes. What was written before and overlaps must leave memory first,
//!    or it would later become part of objects that count as written after this.
//! 3. Install the objects.

use tidefall_ground::gate::Inside;
use tidefall_ground::manifest::series::Edit::AddObject;
use tidefall_ground::manifest::series::Model;
use tidefall_sync::Arc;
use tidefall_sync::atomic::Ordering;
use tidefall_types::{Error, Result, Seq, TableSchema, TimeRange};

use super::boundaries::{Boundaries, Target};
use super::flush::{Take, flush};
use super::series::{Span, days_of, extent, months_of, within, write_series};
use super::short_to_long::segment_spans;
use crate::change::Mark;
use crate::context::Context;
use crate::install::install;
use crate::read::Sources;
use crate::rows::{SensorRows, SeriesSet};
use crate::table::Table;

/// Bytes that a value is taken to need in a long segment when the segments of a load are planned.
const VALUE_BYTES: f64 = 3.0;

/// What became of a load.
pub enum Loaded {
    /// It is durable and visible; what was there before it, if it has rows.
    Shown(Option<Sources>),
    /// Fields have got other types meanwhile, and nothing was written.
    Outdated,
}

/// Writes series, at most one for each sensor, each ordered by time without repeats and with all
/// fields of `schema`. Once their objects are written `enter` lets the load pass the gate of the table, and `take_place` gives a mark its place
/// among the writes, behind all that have come.
///
/// # Errors
/// Those of both; `NotFound` when the table is dropped meanwhile; `Io` and `Full` from the disk.
pub fn load(
    context: &Context,
    table: &Arc<Table>,
    schema: &TableSchema,
    mut series: Vec<(u32, SensorRows)>,
    enter: impl FnOnce() -> Result<Inside>,
    take_place: impl FnOnce(Mark) -> Result<Seq>,
) -> Result<Loaded> {
    series.retain(|(_, rows)| !rows.is_empty());
    series.sort_unstable_by_key(|(sensor, _)| *sensor);
    let Some(time) = extent(&series) else { return Ok(Loaded::Shown(None)) };
    let boundaries = Boundaries::new(&schema.options, Target::ByAge, context.ground.now_ns());
    let spans = spans(&boundaries, &series, &time, schema.fields.len())?;
    let written = context.ground.written();
    let alike = |(model, time)| Span { model, time, is_late: false };
    let spans: Vec<Span> = spans.into_iter().map(alike).collect();
    let mut entries =
        write_series(context, table, schema, &series, &spans, Seq::default(), &written)?;
    drop(series);
    // Until it is shown: who must see all that comes before it, or nothing beside it, shuts the gate.
    let _inside = enter()?;
    // From here on nobody drops the table, and no rows that were written before leave memory with later ones.
    let _flushing = context.ground.turns.flush();
    if table.live().is_dropped {
        return Err(Error::not_found(format!(
            "table {} was dropped during a load into it; nothing was written",
            schema.name
        )));
    }
    // Types change while nobody else flushes.
    if !table.schema().fields.starts_with(&schema.fields) {
        return Ok(Loaded::Outdated);
    }
    let _loading = Loading::new(table);
    let mark = Mark { time, are_new: Arc::default() };
    let seq = take_place(mark.clone())?;
    if table.live().all_runs().any(|run| run.last_seq < seq && run.range.overlaps(&time)) {
        flush(context, table, &boundaries, Take::WrittenBefore(seq))?;
    }
    let is_distinct = mark.are_new.load(Ordering::Acquire);
    for entry in &mut entries {
        (entry.last_seq, entry.is_distinct) = (seq, is_distinct);
    }
    let bytes = entries.iter().map(|entry| entry.bytes).sum();
    let edits = entries.into_iter().map(|entry| AddObject(table.id, entry).into()).collect();
    let mut before = None;
    install(context, table, written, edits, |live| before = Some(table.sources_of(live)))?;
    context.ground.worked.flushed(0, bytes);
    Ok(Loaded::Shown(before))
}

/// A load that has its place among the writes, or will have it soon: what comes behind may replace rows of it that nobody sees as yet.
struct Loading<'a>(&'a Table);

impl<'a> Loading<'a> {
    fn new(table: &'a Table) -> Self {
        table.live().loads += 1;
        Self(table)
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        self.0.live().loads -= 1;
    }
}

/// Where the rows go: months of long columns that fill a segment, and younger spans.
fn spans(
    boundaries: &Boundaries,
    series: &impl SeriesSet,
    time: &TimeRange,
    fields: usize,
) -> Result<Vec<(Model, TimeRange)>> {
    let mut spans = boundaries.young_spans(time, |short| Ok(days_of(series, short)))?;
    let long = boundaries.range(Model::Long).intersect(time);
    if !long.is_empty() {
        let value_bytes = fields.max(1) as f64 * VALUE_BYTES;
        let rows_within = |month: &TimeRange| {
            let rows = |place| within(series, place, month).len();
            (0..series.sensors()).map(rows).sum::<usize>() as f64
        };
        let months = months_of(series, &long);
        for span in segment_spans(months, |month| rows_within(month) * value_bytes) {
            spans.push((Model::Long, span.intersect(&long)));
        }
    }
    Ok(spans)
}
