//! Laying objects together while new ones come: run files, and parts of a day.
//!
//! Objects of similar size, one written behind the other, become one, as soon as there are [`FAN_IN`] of them. Sizes are
//! told apart by factors of as many, so that what comes of it is of the next size: a row is written anew at most once for each
//! factor of eight between what leaves memory at once and [`LARGE_BYTES`], beyond which objects stay as they are. Of each size fewer than
//! [`FAN_IN`] are left, of run files of late rows and of others, whatever came, and a merge takes seconds at most.

use std::ops::Range;
use std::sync::Arc;

use tidefall_ground::manifest::series::Model;
use tidefall_ground::options::CascadeReport;
use tidefall_types::{Result, Seq, TimeRange};

use super::boundaries::{Boundaries, Target};
use super::failed::{Outcome, write_group};
use super::kv_to_short::{by_day, is_of_age, move_aged, whole_days};
use super::rewrite::rewrite;
use crate::context::Context;
use crate::read::LiveObject;
use crate::table::Table;

/// Objects of one size that become one.
const FAN_IN: usize = 8;
/// When more have piled up, so many of them become one, and more only if [`FAN_IN`] of one size are not among them.
const INPUTS_MAX: usize = 4 * FAN_IN;
/// Run files of rows that came late, or have come of age, move by the clock, or when there are so many of them.
const AGED_MAX: usize = 2 * FAN_IN;
/// Objects of so many bytes, or of the size that begins with it, stay as they are until they come of age.
const LARGE_BYTES: u64 = 128 << 20;

/// Lays together what has piled up, one group of objects after the other. Whoever calls holds the turn of compaction and the lock of the table.
///
/// # Errors
/// The first error; groups that can be read are laid together all the same.
pub fn compact(context: &Context, table: &Arc<Table>) -> Result<CascadeReport> {
    let mut all = CascadeReport::default();
    loop {
        context.ground.steps.check()?;
        let done = compact_once(context, table)?;
        if done.steps == 0 {
            return Ok(all);
        }
        all += done;
    }
}

/// Lays one group of run files together, and one of each day.
///
/// # Errors
/// As [`compact`].
pub fn compact_once(context: &Context, table: &Arc<Table>) -> Result<CascadeReport> {
    let mut outcome = Outcome::default();
    let boundaries =
        Boundaries::new(&table.schema().options, Target::ByAge, context.ground.now_ns());
    if aged(table, &boundaries) >= AGED_MAX {
        move_aged(context, table, &boundaries, &mut outcome)?;
    }
    for (model, stretches) in neighbours(table, &boundaries) {
        let steps = outcome.steps();
        for mut rest in stretches.iter().map(Vec::as_slice) {
            // One that must not become one, as something lies between, keeps no other from it.
            while outcome.steps() == steps
                && let Some(due) = due(rest, bytes_and_seq)
            {
                outcome.check(context.ground.steps.check())?;
                let (group, behind) = (&rest[due.clone()], &rest[due.end..]);
                write_group(table, group, &mut outcome, &|part| part.len() > 1, &|part| {
                    rewrite(context, table, part, &[(model, span(model, part))])
                })?;
                rest = behind;
            }
        }
    }
    outcome.end()
}

/// Objects of a table that are due to be laid together, or to move to the next model before the clock says so, and nobody does.
#[derive(Debug, Default, Clone, Copy)]
pub struct Backlog {
    /// How many these are.
    pub objects: usize,
    /// Since when some of them are due to be laid together, in nanoseconds since 1970 UTC.
    pub since_ns: Option<i64>,
}

/// How far compaction of a table is behind.
pub fn backlog(context: &Context, table: &Arc<Table>) -> Backlog {
    let boundaries =
        Boundaries::new(&table.schema().options, Target::ByAge, context.ground.now_ns());
    let mut backlog = Backlog::default();
    for stretch in neighbours(table, &boundaries).into_iter().flat_map(|(_, stretches)| stretches) {
        let mut rest = &stretch[..];
        while let Some(due) = due(rest, bytes_and_seq) {
            backlog.objects += due.len();
            // Since the last of them came.
            let since_ns = rest[due.clone()].iter().map(|object| object.since_ns).max();
            backlog.since_ns = since_ns.into_iter().chain(backlog.since_ns).min();
            rest = &rest[due.end..];
        }
    }
    let aged = aged(table, &boundaries);
    if aged >= AGED_MAX {
        backlog.objects += aged;
    }
    backlog
}

/// Objects among which neighbours may become one: stretches of run files, and of the parts of each day, in the order of their writes.
fn neighbours(table: &Table, boundaries: &Boundaries) -> Vec<(Model, Vec<Vec<Arc<LiveObject>>>)> {
    let (mut runs, short) = {
        let version = table.version();
        (version.objects.of(Model::Kv), version.objects.of(Model::Short))
    };
    // Others have them, or cannot read them, or they move soon.
    let is_free = |object: &Arc<LiveObject>| {
        let moves = is_of_age(object, boundaries);
        !moves && !table.claims.has(object.entry.id) && !table.failed.has(object)
    };
    // Files of late rows lie between all others, and have none of their times.
    runs.retain(|object| object.entry.time.last_ns >= boundaries.kv_ns);
    runs.sort_by_key(|object| (object.entry.last_seq, object.entry.id));
    let of_runs = late_apart(runs).into_iter().map(|runs| (Model::Kv, runs));
    let all = of_runs.chain(by_day(short).map(|day| (Model::Short, day)));
    let stretches = all.map(|(model, mut objects)| {
        objects.sort_by_key(|object| (object.entry.last_seq, object.entry.id));
        (model, objects.split(|object| !is_free(object)).map(<[_]>::to_vec).collect())
    });
    stretches.collect()
}

/// Run files in the order of their writes: those of late rows and all others, which may become one past each other where all are distinct; and all up to the last
/// one that is not.
fn late_apart(mut runs: Vec<Arc<LiveObject>>) -> [Vec<Arc<LiveObject>>; 3] {
    let behind = runs.iter().rposition(|object| !object.entry.is_distinct).map_or(0, |at| at + 1);
    let distinct = runs.split_off(behind);
    // Of few nothing is due. One that cannot be read is met when it is written anew.
    let has_filters = |object: &Arc<LiveObject>| object.segment.has_filters().unwrap_or_default();
    let are_many = distinct.len() >= FAN_IN;
    let is_late = |object: &Arc<LiveObject>| are_many && has_filters(object);
    let (late, others) = distinct.into_iter().partition(is_late);
    [runs, late, others]
}

/// How many run files have come of age that somebody may move.
fn aged(table: &Table, boundaries: &Boundaries) -> usize {
    let runs = table.version().objects.of(Model::Kv);
    let is_due = |object: &&Arc<LiveObject>| {
        is_of_age(object, boundaries)
            && !table.claims.has(object.entry.id)
            && !table.failed.has(object)
    };
    runs.iter().filter(is_due).count()
}

fn span(model: Model, part: &[Arc<LiveObject>]) -> TimeRange {
    let times = part.iter().map(|object| object.entry.time);
    let time = times.reduce(|all, more| all.union(&more)).unwrap_or(TimeRange::new(0, -1));
    if model == Model::Short { whole_days(&time) } else { time }
}

fn bytes_and_seq(object: &Arc<LiveObject>) -> (u64, Seq) {
    (object.entry.bytes, object.entry.last_seq)
}

/// Those of some objects, in the order of their writes, that shall become one: neighbours of one size and what lies between them, which is
/// smaller. What one flush has written stays together.
fn due<T>(objects: &[T], bytes_and_seq: impl Fn(&T) -> (u64, Seq)) -> Option<Range<usize>> {
    let (sizes, seqs): (Vec<u32>, Vec<Seq>) =
        objects.iter().map(&bytes_and_seq).map(|(bytes, seq)| (size(bytes), seq)).unzip();
    (0..size(LARGE_BYTES)).find_map(|size| {
        let mut stretch = 0..0;
        let mut count = 0;
        for (at, other) in sizes.iter().enumerate() {
            if *other > size {
                if count >= FAN_IN {
                    break;
                }
                (stretch, count) = (at + 1..at + 1, 0);
                continue;
            }
            stretch.end = at + 1;
            count += usize::from(*other == size);
            if count >= FAN_IN && stretch.len() >= INPUTS_MAX {
                break;
            }
        }
        let is_parted = |end: usize| end > 0 && seqs.get(end) == Some(&seqs[end - 1]);
        while count >= FAN_IN && is_parted(stretch.end) {
            stretch.end -= 1;
            count -= usize::from(sizes[stretch.end] == size);
        }
        (count >= FAN_IN).then_some(stretch)
    })
}

/// The factors of [`FAN_IN`] in a number of bytes.
pub(super) const fn size(bytes: u64) -> u32 {
    match bytes.checked_ilog(FAN_IN as u64) {
        Some(size) => size,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn numbered(objects: &[u64]) -> Vec<(u64, Seq)> {
        objects.iter().zip(0..).map(|(bytes, seq)| (*bytes, Seq(seq))).collect()
    }

    /// Whatever comes, few objects are left, each byte is written few times, and large objects stay.
    #[test]
    fn few_objects_are_left_and_little_is_written() {
        for seed in 0..20 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let most: u64 = 8_u64.pow(rng.random_range(2..9));
            let (mut objects, mut came, mut written) = (Vec::new(), 0, 0);
            for _ in 0..5_000 {
                let bytes = rng.random_range(most / 4..=most);
                came += bytes;
                objects.push(bytes);
                while let Some(due) = due(&numbered(&objects), |object| *object) {
                    assert!(due.len() >= FAN_IN);
                    let all: u64 = objects[due.clone()].iter().sum();
                    assert!(objects[due.clone()].iter().all(|bytes| *bytes < LARGE_BYTES));
                    written += all;
                    objects.splice(due, [all]);
                }
            }
            assert_eq!(objects.iter().sum::<u64>(), came);
            let large = objects.iter().filter(|bytes| size(**bytes) >= size(LARGE_BYTES)).count();
            let sizes = (size(LARGE_BYTES) - size(most / 4)) as usize;
            assert!(objects.len() - large <= (sizes + 1) * FAN_IN, "{objects:?}");
            assert!(written <= came * sizes as u64, "{written} of {came}, {sizes} sizes");
        }
    }

    /// Two of one flush, of which one became another without the other one, kept all from becoming one.
    #[test]
    fn what_one_flush_has_written_stays_together() {
        let pairs = |sizes: [u64; 2], count: u64| -> Vec<(u64, Seq)> {
            (0..count).flat_map(|seq| sizes.map(|bytes| (bytes, Seq(seq)))).collect()
        };
        let due = |objects: &[(u64, Seq)]| due(objects, |object| *object);
        assert_eq!(due(&pairs([1, 1], 30)), Some(0..INPUTS_MAX));
        let odd = &pairs([1, 1], 30)[1..];
        assert_eq!(due(odd), Some(0..INPUTS_MAX - 1));
        assert_eq!(due(&pairs([1, 1_000], 8)), Some(0..16));
        let mut burst = pairs([1, 1], 4);
        burst.extend([(1, Seq(9)), (1_000, Seq(9))]);
        assert_eq!(due(&burst), Some(0..8));
        assert_eq!(due(&burst[1..]), None);
    }

    #[test]
    fn one_that_is_larger_is_not_written_for_a_few_small_ones() {
        let due = |objects: &[u64]| due(&numbered(objects), |object| *object);
        assert_eq!(due(&[1000, 1, 1, 1, 1, 1, 1, 1]), None);
        assert_eq!(due(&[1000, 1, 1, 1, 1, 1, 1, 1, 1]), Some(1..9));
        assert_eq!(due(&[1000, 1000, 1000, 1000, 1, 1000, 1000, 1000, 1000]), Some(0..9));
        assert_eq!(due(&[1; 100]), Some(0..INPUTS_MAX));
        assert_eq!(due(&[LARGE_BYTES; 100]), None);
    }
}
