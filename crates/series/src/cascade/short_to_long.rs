//! From short columns to long ones, and from parts of long columns that overlap to one.
//!
//! 1. A few late readings from all over the years are one small object, which shares months with many segments. It is cut where one of
//!    these ends and another begins: all of them would become one with it, the whole history, for a few readings.
//! 2. Objects that share months, and small neighbours, are a group. It becomes one when a month of it has come of age, when the small parts
//!    come to something beside the largest, and for few readings when that has rested for so long that it is not written too often. Until then small parts become one
//!    without it when they are many.

use std::sync::Arc;

use tidefall_ground::manifest::{Model, ObjectEntry};
use tidefall_types::{Month, NS_PER_MINUTE, Result, TimeRange};

use super::boundaries::{Boundaries, Target};
use super::failed::{Outcome, write_group};
use super::rewrite::{rewrite, share};
use crate::context::Context;
use crate::read::{LiveObject, LiveTombstone};
use crate::table::Table;

/// Bytes that a long segment should have: one read per sensor and segment, few segments, and
/// little to rewrite when something arrives late. Tests, which run with assertions, have smaller ones.
const SEGMENT_BYTES: f64 = (if cfg!(debug_assertions) { 1_u64 << 20 } else { 128 << 20 }) as f64;
/// Parts of one stretch of months beyond which they become one without being asked.
const PARTS_MAX: usize = 4;
/// Deletes that may hide something in such a stretch beyond which it is written anew without being asked, if it has rested.
const DELETES_MAX: usize = 32;
/// When the parts beside the largest have this share of its bytes, all become one.
const WORTH_SHARE: u64 = 8;
/// So many bytes of an object are written anew each minute at most for a few readings or deletes.
const BYTES_PER_MINUTE: u64 = 1 << 20;
/// An object is small beside others that have so many times its bytes.
const SMALL_SHARE: u64 = 2;

/// Moves months that have come of age, makes parts one, and takes out what was deleted.
pub(crate) fn short_to_long(
    context: &Context,
    table: &Arc<Table>,
    boundaries: &Boundaries,
    target: Target,
    outcome: &mut Outcome,
) -> Result<()> {
    let objects = || {
        let long_range = boundaries.range(Model::Long);
        let version = table.version();
        let short = version.objects.of(Model::Short).into_iter();
        let mut objects = version.objects.of(Model::Long);
        objects.extend(short.filter(|object| long_range.covers(&object.entry.time)));
        objects
    };
    let found = objects();
    let entries: Vec<&ObjectEntry> = found.iter().map(|object| &object.entry).collect();
    let mut uncut = Vec::new();
    for (place, spans) in bridges(&entries) {
        outcome.check(context.ground.steps.check())?;
        let bridge = std::slice::from_ref(&found[place]);
        let spans: Vec<_> = spans.into_iter().map(|span| (Model::Long, span)).collect();
        write_group(table, bridge, outcome, &|_| true, &|part| {
            rewrite(context, table, part, &spans)
        })?;
        uncut.push(entries[place].id);
    }
    let mut left = objects();
    // One that somebody else has must not bring together what lies on its sides.
    left.retain(|object| !uncut.contains(&object.entry.id));
    for group in groups(left) {
        outcome.check(context.ground.steps.check())?;
        let now_ns = context.ground.now_ns();
        let is_wanted = |part: &[Arc<LiveObject>]| is_wanted(part, table, target, now_ns);
        let group = worth_writing(group, table, target, now_ns);
        write_group(table, &group, outcome, &is_wanted, &|part| {
            rewrite(context, table, part, &spans(part))
        })?;
    }
    Ok(())
}

/// Objects that are small beside those with which they share months, of which some share none with each other; and the stretches of time, each
/// with one of those or several that share months, of which they should have an object each.
fn bridges(entries: &[&ObjectEntry]) -> Vec<(usize, Vec<TimeRange>)> {
    let mut places: Vec<usize> = (0..entries.len()).collect();
    // What is cut keeps nothing together that is smaller.
    places.sort_by_key(|place| (std::cmp::Reverse(entries[*place].bytes), entries[*place].id));
    let (mut found, mut others): (Vec<_>, Vec<&ObjectEntry>) = (Vec::new(), Vec::new());
    for place in places {
        let entry = entries[place];
        let (first, last) = months(&entry.time);
        let spans = match first == last {
            true => Vec::new(),
            false => spans_between(entry, &others),
        };
        match spans.len() {
            0 | 1 => others.push(entry),
            _ => found.push((place, spans)),
        }
    }
    found
}

/// The time of an object, in the stretches into which larger ones with which it shares months divide it.
fn spans_between(entry: &ObjectEntry, others: &[&ObjectEntry]) -> Vec<TimeRange> {
    let (first, last) = months(&entry.time);
    let is_larger = |other: &&ObjectEntry| other.bytes >= entry.bytes.saturating_mul(SMALL_SHARE);
    let mut of_others: Vec<(Month, Month)> =
        others.iter().copied().filter(is_larger).map(|other| months(&other.time)).collect();
    of_others.retain(|(from, until)| *from <= last && *until >= first);
    of_others.sort_unstable();
    let mut spans = vec![entry.time];
    let mut reached: Option<Month> = None;
    for (from, until) in of_others {
        if let Some(span) = spans.last_mut()
            && reached.is_some_and(|reached| reached < from)
        {
            let rest = TimeRange::new(from.range().first_ns, span.last_ns);
            span.last_ns = rest.first_ns - 1;
            spans.push(rest);
        }
        reached = reached.max(Some(until));
    }
    spans
}

fn is_wanted(group: &[Arc<LiveObject>], table: &Table, target: Target, now_ns: i64) -> bool {
    is_due(group, table, target, now_ns) || group.len() > PARTS_MAX
}

/// Whether a group becomes one, and not its small parts alone.
fn is_due(group: &[Arc<LiveObject>], table: &Table, target: Target, now_ns: i64) -> bool {
    let is_moving = group.iter().any(|object| object.entry.model == Model::Short);
    let Some(largest) = group.iter().max_by_key(|object| object.entry.bytes) else { return false };
    let bytes: u64 = group.iter().map(|object| object.entry.bytes).sum();
    let is_much = (bytes - largest.entry.bytes) * WORTH_SHARE >= largest.entry.bytes;
    let minutes = i64::try_from(largest.entry.bytes / BYTES_PER_MINUTE).unwrap_or(i64::MAX);
    let has_rested =
        now_ns.saturating_sub(largest.since_ns) >= minutes.saturating_mul(NS_PER_MINUTE);
    let deletes = deletes_in(group, table);
    let has_parts = group.len() > 1;
    is_moving
        || has_parts && (is_much || has_rested)
        || deletes > DELETES_MAX && has_rested
        || target == Target::Long && (has_parts || deletes > 0)
}

/// A group, or its small parts alone when they are not worth that all of it is written anew.
fn worth_writing(
    mut group: Vec<Arc<LiveObject>>,
    table: &Table,
    target: Target,
    now_ns: i64,
) -> Vec<Arc<LiveObject>> {
    let largest = group.iter().enumerate().max_by_key(|(_, object)| object.entry.bytes);
    if let Some((largest, _)) = largest
        && !is_due(&group, table, target, now_ns)
    {
        group.remove(largest);
    }
    group
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

#[cfg(test)]
mod tests {
    use tidefall_types::{ObjectId, Seq};

    use super::*;

    /// January 2000.
    const FIRST: i32 = 12 * 2000;

    /// An object from the middle of one month to the middle of another.
    fn entry(id: u64, months: (i32, i32), bytes: u64) -> ObjectEntry {
        let middle = |month: i32| {
            let range = Month(FIRST + month).range();
            range.first_ns + (range.last_ns - range.first_ns) / 2
        };
        ObjectEntry {
            id: ObjectId(id),
            writer: 0,
            model: Model::Long,
            last_seq: Seq(id),
            last_delete: Seq::default(),
            is_distinct: true,
            time: TimeRange::new(middle(months.0), middle(months.1)),
            first_sensor: 0,
            last_sensor: 0,
            rows: 1,
            bytes,
        }
    }

    /// The months in which the stretches begin into which objects are cut, by the places of these.
    fn cuts(objects: &[((i32, i32), u64)]) -> Vec<(usize, Vec<i32>)> {
        let entries: Vec<ObjectEntry> =
            (0..).zip(objects).map(|(id, (months, bytes))| entry(id, *months, *bytes)).collect();
        let entries: Vec<&ObjectEntry> = entries.iter().collect();
        let cut = bridges(&entries).into_iter().map(|(place, spans)| {
            let all = entries[place].time;
            assert_eq!(
                (spans[0].first_ns, spans[spans.len() - 1].last_ns),
                (all.first_ns, all.last_ns)
            );
            assert!(spans.iter().all(|span| !span.is_empty()));
            assert!(spans.windows(2).all(|pair| pair[0].last_ns + 1 == pair[1].first_ns));
            let months = spans.iter().map(|span| Month::of(span.first_ns).0 - FIRST);
            (place, months.collect())
        });
        cut.collect()
    }

    #[test]
    fn objects_are_cut_that_keep_larger_ones_together() {
        let years = [((0, 0), 100), ((1, 3), 100), ((4, 9), 100)];
        let with = |more: &[((i32, i32), u64)]| cuts(&[&years, more].concat());
        assert_eq!(with(&[]), []);
        assert_eq!(with(&[((0, 9), 1)]), [(3, vec![0, 1, 4])]);
        assert_eq!(with(&[((-5, 12), 50)]), [(3, vec![-5, 1, 4])]);
        assert_eq!(with(&[((3, 4), 1), ((2, 3), 1), ((5, 6), 1)]), [(3, vec![3, 4])]);
        // Those that are cut themselves keep none together.
        assert_eq!(with(&[((0, 9), 1), ((0, 9), 40)]), [(4, vec![0, 1, 4]), (3, vec![0, 1, 4])]);
        // Not worth it: nearly as much would be written as if all became one.
        assert_eq!(with(&[((0, 9), 51)]), []);
        // Small ones share months with a large one, and it stays as it is.
        assert_eq!(cuts(&[((0, 9), 100), ((1, 1), 1), ((5, 5), 1)]), []);
        assert_eq!(cuts(&[]), []);
    }
}
