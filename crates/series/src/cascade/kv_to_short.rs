//! From the key-value model's run files to short columns, and of several parts of one day to one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidefall_ground::manifest::series::Model;
use tidefall_types::{Day, NS_PER_MINUTE, Result, TimeRange};

use super::boundaries::Boundaries;
use super::failed::{Outcome, write_group};
use super::rewrite::rewrite;
use crate::context::Context;
use crate::read::{Fetched, LiveObject, ReadStats, SensorStream, Sources};
use crate::table::Table;

/// Of days with so many bytes at most all parts are laid together, however few rows came late.
const FEW_BYTES: u64 = 16 << 20;
/// Of others, when what is to be laid into the largest part has this share of its bytes, ...
pub(super) const WORTH_SHARE: u64 = 8;
/// ... or this one, as long as rows come to the day: each time that so much has come it is written anew as a whole, beside what
/// compaction does.
const BUSY_SHARE: u64 = 2;
/// A day that nothing has come to for so long is quiet.
const QUIET_NS: i64 = 10 * NS_PER_MINUTE;

/// How much is written anew so that readings are found in few places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// What is worth it.
    Some,
    /// All that may be.
    All,
}

/// Whether what is in memory moves, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// It does.
    First,
    /// Not again: others had some of the objects when it was looked for them last.
    Again,
}

/// Moves run files whose rows have come of age, and makes the parts of a day one: all of them, or where much comes together
/// for what is written.
///
/// # Errors
/// The first one, when no step would get past it: `Full`, or `Closed` when writes have ended. Others are noted in `outcome`.
pub fn kv_to_short(
    context: &Context,
    table: &Arc<Table>,
    boundaries: &Boundaries,
    effort: Effort,
    outcome: &mut Outcome,
) -> Result<()> {
    move_aged(context, table, boundaries, outcome)?;
    let short = table.version().objects.of(Model::Short);
    for day in by_day(short) {
        outcome.check(context.ground.steps.check())?;
        let time =
            day.first().map_or(TimeRange::new(0, -1), |object| whole_days(&object.entry.time));
        let is_due = |part: &[_]| is_worth_it(part, effort, context.ground.now_ns());
        write_group(table, &day, outcome, &is_due, &|part| {
            rewrite(context, table, part, &[(Model::Short, time)])
        })?;
    }
    Ok(())
}

/// Moves run files whose rows have come of age.
pub(super) fn move_aged(
    context: &Context,
    table: &Arc<Table>,
    boundaries: &Boundaries,
    outcome: &mut Outcome,
) -> Result<()> {
    let is_due = |objects: &[Arc<LiveObject>]| objects.iter().any(|one| is_of_age(one, boundaries));
    let mut runs = table.version().objects.of(Model::Kv);
    runs.retain(|object| is_of_age(object, boundaries));
    write_group(table, &runs, outcome, &is_due, &|part| {
        rewrite(context, table, part, &spans(table, part, boundaries)?)
    })
}

/// Whether an object is a run file with rows that have come of age.
pub(super) fn is_of_age(object: &LiveObject, boundaries: &Boundaries) -> bool {
    object.entry.model == Model::Kv && object.entry.time.first_ns < boundaries.kv_ns
}

/// Whether parts of a day shall become one.
fn is_worth_it(parts: &[Arc<LiveObject>], effort: Effort, now_ns: i64) -> bool {
    // A clock that was set back makes none wait for longer.
    let has_come =
        |part: &Arc<LiveObject>| (0..QUIET_NS).contains(&now_ns.saturating_sub(part.since_ns));
    let is_quiet = !parts.iter().any(has_come);
    let share = if is_quiet { WORTH_SHARE } else { BUSY_SHARE };
    let are_few = parts.iter().map(|part| part.entry.bytes).sum::<u64>() <= FEW_BYTES;
    parts.len() > 1 && (effort == Effort::All || are_few || is_much_beside_largest(parts, share))
}

/// Whether the parts beside the largest have so large a share of its bytes: one of so many.
pub(super) fn is_much_beside_largest(parts: &[Arc<LiveObject>], share: u64) -> bool {
    let bytes = || parts.iter().map(|part| part.entry.bytes);
    let (all, largest) = (bytes().sum::<u64>(), bytes().max().unwrap_or_default());
    (all - largest).saturating_mul(share) >= largest
}

pub(super) fn whole_days(time: &TimeRange) -> TimeRange {
    Day::of(time.first_ns).range().union(&Day::of(time.last_ns).range())
}

/// The objects to write of some others.
fn spans(
    table: &Table,
    inputs: &[Arc<LiveObject>],
    boundaries: &Boundaries,
) -> Result<Vec<(Model, TimeRange)>> {
    let times = inputs.iter().map(|object| object.entry.time);
    let Some(time) = times.reduce(|all, more| all.union(&more)) else { return Ok(Vec::new()) };
    let mut spans = boundaries.spans(&time, |short| days_of(table, inputs, short))?;
    spans.retain(|(_, span)| inputs.iter().any(|object| object.entry.time.overlaps(span)));
    Ok(spans)
}

/// The days within a stretch of time that have rows in some objects, whatever deletes hide. There are no more of them than
/// rows, or about as many: of a chunk with fewer rows than days the times are read.
fn days_of(table: &Table, inputs: &[Arc<LiveObject>], time: &TimeRange) -> Result<Vec<Day>> {
    let mut days = BTreeSet::new();
    let (stats, no_fields) = (Arc::new(ReadStats::default()), Arc::from(Vec::new()));
    let mut fetched = Fetched::default();
    let sources = Sources::of(inputs, &table.version().undeleted());
    for object in inputs.iter().filter(|object| object.entry.time.overlaps(time)) {
        let alone = Sources::of(std::slice::from_ref(object), &sources.version);
        for position in 0..object.segment.index_block_count()? {
            let index = object.segment.index_block_at(position)?;
            for (place, &sensor) in index.sensors().iter().enumerate() {
                let chunk = index.chunk(place);
                let within = chunk.time().intersect(time);
                if within.is_empty() {
                    continue;
                }
                let (first, last) = (Day::of(within.first_ns), Day::of(within.last_ns));
                if i64::from(last.0) - i64::from(first.0) <= i64::from(chunk.meta.rows) {
                    days.extend((first.0..=last.0).map(Day));
                    continue;
                }
                let mut stream = SensorStream::new(&alone, sensor, &within, &no_fields, &stats)?;
                while let Some(rows) = stream.next(&mut fetched)? {
                    let of_chunk = rows.times.iter().filter(|at| within.contains(**at));
                    days.extend(of_chunk.map(|at| Day::of(*at)));
                }
            }
        }
    }
    Ok(days.into_iter().collect())
}

/// The parts of each day.
pub(super) fn by_day(short: Vec<Arc<LiveObject>>) -> impl Iterator<Item = Vec<Arc<LiveObject>>> {
    let mut days: BTreeMap<Day, Vec<Arc<LiveObject>>> = BTreeMap::new();
    for object in short {
        days.entry(Day::of(object.entry.time.first_ns)).or_default().push(object);
    }
    days.into_values().filter(|objects| objects.len() > 1)
}
