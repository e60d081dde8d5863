//! From short columns to long ones, and from parts of long columns that overlap to one.

use std::sync::Arc;

use tidefall_ground::manifest::Model;
use tidefall_types::{Month, Result, TimeRange};

use super::boundaries::{Boundaries, Target};
use super::failed::{Outcome, write_group};
use super::rewrite::{rewrite, share};
use crate::context::Context;
use crate::read::{LiveObject, LiveTombstone};
use crate::table::Table;

/// Bytes that a long segment should have: one read per sensor and segment, few segments, and
/// little to rewrite when something arrives late.
const SEGMENT_BYTES: f64 = (128_u64 << 20) as f64;
/// Parts of one stretch of months beyond which they become one without being asked.
const PARTS_MAX: usize = 4;
/// Deletes that may hide something in such a stretch beyond which it is written anew without being asked.
const DELETES_MAX: usize = 32;

/// Moves months that have come of age, makes parts one, and takes out what was deleted.
pub(crate) fn short_to_long(
    context: &Context,
    table: &Arc<Table>,
    boundaries: &Boundaries,
    target: Target,
    outcome: &mut Outcome,
) -> Result<()> {
    let long_range = boundaries.range(Model::Long);
    let version = table.version();
    let (mut objects, short) = (version.objects.of(Model::Long), version.objects.of(Model::Short));
    drop(version);
    objects.extend(short.into_iter().filter(|object| long_range.covers(&object.entry.time)));
    for group in groups(objects) {
        outcome.check(context.ground.steps.check())?;
        let is_wanted = |part: &[Arc<LiveObject>]| is_wanted(part, table, target);
        write_group(table, &group, outcome, &is_wanted, &|part| {
            rewrite(context, table, part, &spans(part))
        })?;
    }
    Ok(())
}

fn is_wanted(group: &[Arc<LiveObject>], table: &Table, target: Target) -> bool {
    let is_moving = group.iter().any(|object| object.entry.model == Model::Short);
    let deletes = deletes_in(group, table);
    let is_asked = target == Target::Long && (group.len() > 1 || deletes > 0);
    let is_ragged = group.len() > PARTS_MAX || deletes > DELETES_MAX;
    is_moving || is_asked || is_ragged
}

/// The deletes that may hide something in a group.
fn deletes_in(group: &[Arc<LiveObject>], table: &Table) -> usize {
    let Some(time) = group.iter().map(|object| object.entry.time).reduce(|a, b| a.union(&b)) else {
        return 0;
    };
    let deletes = Arc::clone(&table.version().deletes);
    let hides = |delete: &&LiveTombstone| group.iter().any(|o| delete.may_hide_in(&o.entry));
    deletes.within(time).filter(hides).count()
}

/// The months that an object reaches into.
fn months(time: &TimeRange) -> (Month, Month) {
    (Month::of(time.first_ns), Month::of(time.last_ns))
}

/// Objects that share months, directly or through others, and small neighbours, which are better
/// one object.
fn groups(mut objects: Vec<Arc<LiveObject>>) -> Vec<Vec<Arc<LiveObject>>> {
    objects.sort_by_key(|object| (object.entry.time.first_ns, object.entry.id));
    let mut groups: Vec<(Month, u64, Vec<Arc<LiveObject>>)> = Vec::new();
    for object in objects {
        let (first, last) = months(&object.entry.time);
        let bytes = object.entry.bytes;
        match groups.last_mut() {
            Some((until, total, group))
                if first <= *until || ((*total + bytes) as f64) < SEGMENT_BYTES / 2.0 =>
            {
                *until = last.max(*until);
                *total += bytes;
                group.push(object);
            }
            _ => groups.push((last, bytes, vec![object])),
        }
    }
    groups.into_iter().map(|(_, _, group)| group).collect()
}

fn spans(group: &[Arc<LiveObject>]) -> Vec<(Model, TimeRange)> {
    let Some(all) = group.iter().map(|object| object.entry.time).reduce(|a, b| a.union(&b)) else {
        return Vec::new();
    };
    let bytes_of = |month: &TimeRange| {
        let overlapping = group.iter().filter(|object| object.entry.time.overlaps(month));
        overlapping
            .map(|object| {
                let time = &object.entry.time;
                object.entry.bytes as f64 * share(time, &time.intersect(month))
            })
            .sum()
    };
    let (first, last) = months(&all);
    let has_rows = |month: &Month| group.iter().any(|o| o.entry.time.overlaps(&month.range()));
    let months = (first.0..=last.0).map(Month).filter(has_rows);
    segment_spans(months, bytes_of).into_iter().map(|span| (Model::Long, span)).collect()
}

/// Stretches of whole months, those of `months` and what lies between them, that will hold about [`SEGMENT_BYTES`] each,
/// a month at least.
pub(super) fn segment_spans(
    months: impl IntoIterator<Item = Month>,
    month_bytes: impl Fn(&TimeRange) -> f64,
) -> Vec<TimeRange> {
    let mut spans: Vec<TimeRange> = Vec::new();
    let mut bytes = 0.0;
    for month in months {
        let month = month.range();
        let month_bytes = month_bytes(&month);
        match spans.last_mut() {
            Some(span) if bytes <= 0.0 || bytes + month_bytes <= SEGMENT_BYTES => {
                *span = span.union(&month);
                bytes += month_bytes;
            }
            _ => {
                spans.push(month);
                bytes = month_bytes;
            }
        }
    }
    spans
}
