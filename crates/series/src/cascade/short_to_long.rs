//! From short columns to long ones, and from parts of long columns that overlap to one.
//!
//! 1. Late readings from all over the years are one object, which shares months with many segments. It is cut where one of
//!    these ends and another begins, if they have many times its bytes: all of them would become one with it, the whole history.
//! 2. Objects that share months, and small neighbours, are a group. It becomes one when a month of it has come of age, or when what is beside the
//!    largest of them comes to something; before that others of one size, and what is smaller, become one without it when they are many.
//! 3. A few readings that stay beside a segment, or many deletes, have it written anew some time: one segment of a table, and after it none for as
//!    long as its bytes are worth.

use std::sync::Arc;

use tidefall_ground::manifest::series::{Model, ObjectEntry};
use tidefall_ground::options::CascadeReport;
use tidefall_types::{Month, NS_PER_MINUTE, ObjectId, Result, TimeRange};

use super::boundaries::{Boundaries, Target};
use super::compact::size;
use super::failed::{Outcome, write_group};
use super::kv_to_short::{WORTH_SHARE, is_much_beside_largest};
use super::rewrite::{rewrite, share};
use crate::context::Context;
use crate::read::{LiveObject, LiveTombstone};
use crate::table::Table;

/// Bytes that a long segment should have: one read per sensor and segment, few segments, and
/// little to rewrite when something arrives late. Tests, which run with assertions, have smaller ones.
const SEGMENT_BYTES: f64 = (if cfg!(debug_assertions) { 1_u64 << 20 } else { 128 << 20 }) as f64;
/// Parts of one size, beside the largest of a group, beyond which they become one.
const PARTS_MAX: usize = 4;
/// Deletes that may hide something in a group beyond which it is written anew some time, ...
const DELETES_SOME: usize = 32;
/// ... or at once: every question looks at them.
const DELETES_MAX: usize = 1024;
/// Bytes of objects that may fail to be written anew for a few readings before others are left for another time.
const FAILED_BYTES_MAX: u64 = 1 << 30;
/// So many bytes of a table are written anew each minute at most for a few readings or deletes.
const FEW_BYTES_PER_MINUTE: u64 = 1 << 20;

/// Moves months that have come of age, makes parts one, and takes out what was deleted.
pub(crate) fn short_to_long(
    context: &Context,
    table: &Arc<Table>,
    boundaries: &Boundaries,
    target: Target,
    outcome: &mut Outcome,
) -> Result<()> {
    let uncut = cut_bridges(context, table, boundaries, outcome)?;
    let mut left = long_objects(table, boundaries);
    // One that somebody else has must not bring together what lies on its sides.
    left.retain(|object| !uncut.contains(&object.entry.id));
    let is_due = |group: &[Arc<LiveObject>]| is_due(group, table, target);
    // What cannot be read keeps none but itself from it, and is told of where it would be written.
    for group in groups(left.clone()).iter().filter(|group| is_due(group)) {
        for error in group.iter().filter_map(|object| table.failed.error(object)) {
            outcome.note(Err(error))?;
        }
    }
    left.retain(|object| !table.failed.has(object));
    let mut with_few: Vec<Vec<Arc<LiveObject>>> = Vec::new();
    for mut group in groups(left) {
        if is_due(&group) {
            let (steps, count) = (outcome.steps(), group.len());
            write(context, table, &group, outcome, &is_due)?;
            group.retain(|object| !table.failed.has(object));
            // Where some could not be read, little may be due of the others.
            if outcome.steps() > steps || group.len() == count {
                continue;
            }
        }
        let steps = outcome.steps();
        for small in small_parts(&group) {
            // Larger ones that were written between may keep small ones apart, and become one with them.
            if outcome.steps() == steps {
                write(context, table, &small, outcome, &|part| part.len() > 1)?;
            }
        }
        if outcome.steps() == steps && has_few(&group, table) {
            with_few.push(group);
        }
    }
    write_few(context, table, with_few, outcome)
}

/// The long columns, and what has come of age for them.
fn long_objects(table: &Table, boundaries: &Boundaries) -> Vec<Arc<LiveObject>> {
    let long_range = boundaries.range(Model::Long);
    let version = table.version();
    let short = version.objects.of(Model::Short).into_iter();
    let mut objects = version.objects.of(Model::Long);
    objects.extend(short.filter(|object| long_range.covers(&object.entry.time)));
    objects
}

/// Cuts what reaches over many times its bytes. Returns the objects that should have been cut, be they or not.
fn cut_bridges(
    context: &Context,
    table: &Arc<Table>,
    boundaries: &Boundaries,
    outcome: &mut Outcome,
) -> Result<Vec<ObjectId>> {
    let found = long_objects(table, boundaries);
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
    Ok(uncut)
}

/// Has a group written anew, or the groups that are left of it without what kept them together, as far as they are wanted.
fn write(
    context: &Context,
    table: &Arc<Table>,
    group: &[Arc<LiveObject>],
    outcome: &mut Outcome,
    is_wanted: &IsWanted<'_>,
) -> Result<()> {
    outcome.check(context.ground.steps.check())?;
    let are_wanted =
        |part: &[Arc<LiveObject>]| groups(part.to_vec()).iter().any(|it| is_wanted(it));
    write_group(table, group, outcome, &are_wanted, &|part| {
        let mut report = CascadeReport::default();
        for group in groups(part.to_vec()).iter().filter(|group| is_wanted(group)) {
            report += rewrite(context, table, group, &spans(group))?;
        }
        Ok(report)
    })
}

/// Has one of some groups with few readings, or many deletes, written anew, unless one was not long ago.
fn write_few(
    context: &Context,
    table: &Arc<Table>,
    mut with_few: Vec<Vec<Arc<LiveObject>>>,
    outcome: &mut Outcome,
) -> Result<()> {
    with_few.sort_by_cached_key(|group| since_ns(group));
    let now_ns = context.ground.now_ns();
    if !table.rest.is_over(now_ns) {
        return Ok(());
    }
    let mut failed_bytes = 0;
    // Of some nothing can be written yet, and some cannot be read: they keep no other from it.
    for group in with_few {
        let before = outcome.so_far();
        let written = write(context, table, &group, outcome, &|part| has_few(part, table));
        let after = outcome.so_far();
        // What has failed may have been written up to its end.
        let has_failed = written.is_err() || after.failures > before.failures;
        failed_bytes += if has_failed { bytes_of(&group) } else { 0 };
        let bytes = after.bytes - before.bytes;
        table.rest.begin(now_ns, rest_ns(bytes + failed_bytes));
        written?;
        if bytes > 0 || failed_bytes > FAILED_BYTES_MAX {
            break;
        }
    }
    Ok(())
}

/// How long nothing is written for few readings after so many bytes were.
fn rest_ns(bytes: u64) -> i64 {
    let ns = u128::from(bytes) * NS_PER_MINUTE as u128 / u128::from(FEW_BYTES_PER_MINUTE);
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Whether some objects become one, or are written anew.
type IsWanted<'a> = dyn Fn(&[Arc<LiveObject>]) -> bool + 'a;

fn largest(group: &[Arc<LiveObject>]) -> Option<&Arc<LiveObject>> {
    group.iter().max_by_key(|object| object.entry.bytes)
}

/// Since when the largest object of a group is there.
fn since_ns(group: &[Arc<LiveObject>]) -> i64 {
    largest(group).map_or(i64::MAX, |object| object.since_ns)
}

fn bytes_of(group: &[Arc<LiveObject>]) -> u64 {
    group.iter().map(|object| object.entry.bytes).sum()
}

/// Those beside the largest of a group that become one without it: all of a size of which there are too many, and what is smaller. The smallest
/// size comes first; none when there are too many of no size.
fn small_parts(group: &[Arc<LiveObject>]) -> Vec<Vec<Arc<LiveObject>>> {
    let largest = largest(group).map(|object| object.entry.id);
    let mut parts: Vec<Arc<LiveObject>> = group.to_vec();
    parts.retain(|object| Some(object.entry.id) != largest);
    let due = due_sizes(parts.iter().map(|object| object.entry.bytes));
    let upto = |due: u32| {
        let small = parts.iter().filter(move |object| size(object.entry.bytes) <= due);
        small.cloned().collect()
    };
    due.into_iter().map(upto).collect()
}

/// The sizes of which there are more than [`PARTS_MAX`], ascending. So a byte is written anew a few times for each factor of eight.
fn due_sizes(bytes: impl Iterator<Item = u64>) -> Vec<u32> {
    let mut sizes: Vec<u32> = bytes.map(size).collect();
    sizes.sort_unstable();
    let due = sizes.chunk_by(|one, next| one == next).filter(|same| same.len() > PARTS_MAX);
    due.filter_map(|same| same.first().copied()).collect()
}

/// Objects that share months with others which have many times their bytes, and of which some share none with each other; and the stretches of time, each
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

/// The time of an object, in the stretches into which larger ones with which it shares months divide it: as [`groups`] does.
fn spans_between(entry: &ObjectEntry, others: &[&ObjectEntry]) -> Vec<TimeRange> {
    let (first, last) = months(&entry.time);
    let mut larger: Vec<&ObjectEntry> = others.to_vec();
    larger.retain(|other| {
        let (from, until) = months(&other.time);
        from <= last && until >= first
    });
    // Of less, what is written anew for it is worth it.
    let bytes: u64 = larger.iter().map(|other| other.bytes).sum();
    if bytes < entry.bytes.saturating_mul(WORTH_SHARE) {
        return vec![entry.time];
    }
    larger.sort_unstable_by_key(|other| (other.time.first_ns, other.id));
    let mut spans = vec![entry.time];
    let (mut reached, mut bytes) = (None, 0);
    for other in larger {
        let (from, until) = months(&other.time);
        if reached.is_some_and(|reached| reached < from) && !are_small(bytes + other.bytes) {
            if let Some(span) = spans.last_mut() {
                let rest = TimeRange::new(from.range().first_ns, span.last_ns);
                span.last_ns = rest.first_ns - 1;
                spans.push(rest);
            }
            bytes = 0;
        }
        bytes += other.bytes;
        reached = reached.max(Some(until));
    }
    spans
}

/// Whether neighbours with so many bytes together are better one object.
fn are_small(bytes: u64) -> bool {
    (bytes as f64) < SEGMENT_BYTES / 2.0
}

/// Whether a group is written anew at once.
fn is_due(group: &[Arc<LiveObject>], table: &Table, target: Target) -> bool {
    let is_moving = group.iter().any(|object| object.entry.model == Model::Short);
    let has_parts = group.len() > 1;
    let is_much = has_parts && is_much_beside_largest(group, WORTH_SHARE);
    let deletes_max = if target == Target::Long { 0 } else { DELETES_MAX };
    let is_asked = target == Target::Long && has_parts;
    is_moving || is_much || is_asked || deletes_in(group, table) > deletes_max
}

/// Whether a group is written anew some time.
fn has_few(group: &[Arc<LiveObject>], table: &Table) -> bool {
    group.len() > 1 || deletes_in(group, table) > DELETES_SOME
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

/// Objects that share months, directly or through others; and such groups that are small neighbours, which are better one object.
fn groups(mut objects: Vec<Arc<LiveObject>>) -> Vec<Vec<Arc<LiveObject>>> {
    objects.sort_by_key(|object| (object.entry.time.first_ns, object.entry.id));
    let mut sharing: Vec<(Month, Vec<Arc<LiveObject>>)> = Vec::new();
    for object in objects {
        let (first, last) = months(&object.entry.time);
        match sharing.last_mut() {
            Some((until, group)) if first <= *until => {
                *until = last.max(*until);
                group.push(object);
            }
            _ => sharing.push((last, vec![object])),
        }
    }
    let mut groups: Vec<Vec<Arc<LiveObject>>> = Vec::new();
    for (_, group) in sharing {
        match groups.last_mut() {
            Some(before) if are_small(bytes_of(before) + bytes_of(&group)) => before.extend(group),
            _ => groups.push(group),
        }
    }
    groups
}

fn spans(group: &[Arc<LiveObject>]) -> Vec<(Model, TimeRange)> {
    let Some(all) = group.iter().map(|object| object.entry.time).reduce(|a, b| a.union(&b)) else {
        return Vec::new();
    };
    let bytes_within = |month: &TimeRange| {
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
    segment_spans(months, bytes_within).into_iter().map(|span| (Model::Long, span)).collect()
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
    use tidefall_types::Seq;

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
            since_ns: 0,
            model: Model::Long,
            last_seq: Seq(id),
            last_delete: Seq::default(),
            is_distinct: true,
            time: TimeRange::new(middle(months.0), middle(months.1)),
            first_sensor: 0,
            last_sensor: 0,
            rows: 1,
            bytes: bytes * (SEGMENT_BYTES as u64) / 100,
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
        assert_eq!(with(&[((-5, 12), 30)]), [(3, vec![-5, 1, 4])]);
        assert_eq!(with(&[((3, 4), 1), ((2, 3), 1), ((5, 6), 1)]), [(3, vec![3, 4])]);
        // Those that are cut themselves keep none together.
        assert_eq!(with(&[((0, 9), 1), ((0, 9), 30)]), [(4, vec![0, 1, 4]), (3, vec![0, 1, 4])]);
        // What it reaches over is written anew for less than eight times as much.
        assert_eq!(with(&[((0, 9), 51)]), []);
        let months: Vec<_> = (0..10).map(|month| ((month, month), 100)).collect();
        let with = |more: &[((i32, i32), u64)]| cuts(&[&months, more].concat());
        assert_eq!(with(&[((0, 9), 60)]), [(10, (0..10).collect())]);
        // Nor do two of a size keep each other from it.
        let cut = with(&[((0, 9), 100), ((0, 9), 100)]);
        assert_eq!(cut, [(10, (0..10).collect()), (11, (0..10).collect())]);
        // Small ones share months with a large one, and it stays as it is.
        assert_eq!(cuts(&[((0, 9), 100), ((1, 1), 1), ((5, 5), 1)]), []);
        assert_eq!(cuts(&[]), []);
        // Small neighbours become one object, and so may what comes to them.
        assert_eq!(
            cuts(&[((0, 0), 20), ((1, 1), 20), ((2, 2), 20), ((0, 2), 1)]),
            [(3, vec![0, 2])]
        );
    }

    /// Whatever comes beside a segment, few parts are left and each byte is written few times.
    #[test]
    fn small_parts_are_few_and_written_few_times() {
        for each in [1_000, 50_000, 3_000_000] {
            let (mut parts, mut came, mut written) = (Vec::new(), 0, 0);
            while came < 16 << 20 {
                parts.push(each);
                came += each;
                while let [due, ..] = due_sizes(parts.iter().copied())[..] {
                    let all: u64 = parts.extract_if(.., |part| size(*part) <= due).sum();
                    written += all;
                    parts.push(all);
                }
            }
            assert_eq!(parts.iter().sum::<u64>(), came);
            let sizes = size(came) - size(each) + 1;
            assert!(parts.len() <= sizes as usize * PARTS_MAX, "{parts:?}");
            assert!(written <= 2 * came * u64::from(sizes), "{written} of {came}, {sizes} sizes");
        }
    }
}
