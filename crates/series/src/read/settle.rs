//! Whether rows in memory that came late replace others.
//!
//! Where no place has a reading of another one, each answers for its own rows, and most questions are answered from metrics. Rows that are
//! newer than all of their sensor replace nothing. Of the others it has to be looked up: once, when somebody asks about many
//! sensors, or when they leave memory, for all of them together. So each page of times is decoded once, however many of them may lie in it.
//!
//! 1. Late rows of many runs are ordered by day, sensor and time.
//! 2. They are looked up in each object that has rows at their times: first in its filters, where it has any.
//! 3. What lies in memory is held against them run by run: nearly all of it is passed over by one look at a filter.
//!
//! What they may have replaced must still be there to be seen. Deletes and retention take readings away, and older snapshots
//! still have them; so late rows of their times are taken to replace something (`Live::lose`).

use std::ops::Range;

use tidefall_ground::parallel::spread;
use tidefall_sync::Arc;
use tidefall_sync::atomic::{AtomicBool, Ordering};
use tidefall_types::{Error, ErrorKind, Result, TimeRange, caught};

use super::late_rows::{LateRow, LateRows};
use super::objects::LiveObject;
use super::parts::Sources;
use super::repeats::Found;
use crate::kv::{Group, Run, Settling};
use crate::segment::Fence;
use crate::segment::filter::key;

/// Late rows that are looked up together.
const TOGETHER_MAX: usize = if cfg!(debug_assertions) { 64 } else { 1 << 20 };

/// As many rows are looked through in the time in which one is looked up.
const LOOKUP_ROWS: usize = 128;

/// As many bytes of a filter are read in the time in which a row is looked up in a page of times.
const LOOKUP_BYTES: u64 = 32 << 10;

/// Filters that are announced before the first of them is read, on a store on which that takes long.
const FILTERS_AHEAD: usize = 16;

/// Bits of a filter for each row.
const FILTER_BITS: usize = 32;

impl Sources {
    /// Finds out of rows within `range` whether these replace others, one who asks behind the other. All places of the table are here.
    pub(crate) fn settle_in_turn(&self, range: &TimeRange, settling: &Settling, threads: usize) {
        if self.runs.iter().any(|run| run.unsettled_rows(range) > 0) {
            let _turn = settling.turn();
            self.settle_if(range, threads, may_pass);
        }
    }

    /// As [`Sources::settle_in_turn`], whatever others look up meanwhile: writers wait for it. Of all rows it is known afterwards: those that
    /// could not be looked up are taken to replace others.
    pub(crate) fn settle(&self, range: &TimeRange, threads: usize) {
        self.settle_if(range, threads, |_| false);
    }

    /// Rows stay as they are after a failure of a certain kind.
    fn settle_if(&self, range: &TimeRange, threads: usize, stay: fn(&Error) -> bool) {
        let (mut together, mut count) = (Vec::new(), 0);
        for (at, run) in self.runs.iter().enumerate() {
            let rows = run.unsettled_rows(range);
            if rows == 0 {
                continue;
            }
            count += rows;
            together.push(at);
            if count >= TOGETHER_MAX {
                self.settle_together(range, &together, threads, stay);
                (count, together) = (0, Vec::new());
            }
        }
        self.settle_together(range, &together, threads, stay);
    }

    fn settle_together(
        &self,
        range: &TimeRange,
        runs: &[usize],
        threads: usize,
        stay: fn(&Error) -> bool,
    ) {
        if runs.is_empty() {
            return;
        }
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.runs.len()];
        let count = runs.iter().map(|&at| self.runs[at].unsettled_rows(range)).sum();
        let mut late: Vec<LateRow> = Vec::with_capacity(count);
        for &at in runs {
            let run = &self.runs[at];
            rows[at] = run.unsettled(range).collect();
            rows[at].sort_unstable();
            late.extend(rows[at].iter().map(|&row| {
                let (sensor, time_ns) = (run.sensor[row as usize], run.time[row as usize]);
                LateRow::new(sensor, time_ns, at as u32, row)
            }));
        }
        let replaces: Vec<AtomicBool> = self.runs.iter().map(|_| AtomicBool::default()).collect();
        let late = LateRows::new(late, |row| note(&replaces, row));
        let looked = Looked { late, rows, replaces };
        // A panic of who only wants to know must end nothing else.
        let found = caught(|| self.look_up(&looked, threads));
        if let Err(error) = &found {
            tracing::debug!(%error, "late readings could not be looked up");
            if stay(error) {
                return;
            }
        }
        for &at in runs {
            self.runs[at].settle(range, found.is_ok() && !looked.is_known(at));
        }
    }

    fn look_up(&self, looked: &Looked, threads: usize) -> Result<()> {
        let Some(time) = looked.late.time() else { return Ok(()) };
        let objects = self.version.objects.within(&time);
        spread(threads, objects.collect(), |object, bytes: &mut Vec<u8>| {
            looked.look_up_in_object(self, object, bytes)
        })?;
        // Of rows that are newer than all in memory there is nothing to be found.
        let is_in_memory = |row: &&LateRow| !self.runs[row.run as usize].late.are_behind_memory;
        let in_memory = || looked.late.iter().filter(is_in_memory);
        let Some(last) = in_memory().map(|row| row.run as usize).max() else { return Ok(()) };
        let filter = Filter::new(in_memory());
        let runs = self.runs[..=last].iter().enumerate();
        let runs = runs.filter(|(_, run)| run.range.overlaps(&time));
        spread(threads, runs.collect(), |(at, run), _: &mut ()| {
            let look_up_in = |rows: &mut dyn Iterator<Item = u32>| {
                looked.look_up_in_rows(self, (at, run), rows, &filter, &time);
            };
            // Rows that are looked up themselves are not looked through: of two with one reading it is known.
            let mut all = gaps(&looked.rows[at], run.rows() as u32).flatten();
            let Some((groups, others)) = run.late.apart() else {
                look_up_in(&mut all);
                return Ok(());
            };
            let among_max = run.rows() / LOOKUP_ROWS;
            let among = looked.late.within(run.sensors.clone(), others).filter(is_in_memory);
            let among: Vec<&LateRow> = among.take(among_max + 1).collect();
            if among.len() > among_max {
                look_up_in(&mut all);
                return Ok(());
            }
            // Nearly all rows are of times that are newer than nearly all late ones.
            let late = groups.iter().filter(|group| !looked.has(at, group));
            look_up_in(&mut late.flat_map(|group| group.rows.iter().copied()));
            among.iter().for_each(|row| looked.look_up_row(self, (at, run), row));
            Ok(())
        })?;
        Ok(())
    }
}

/// Whether what failed may go well another time, as reads of a store do that is away for a moment, or where too many files are open: whoever asks
/// next looks again.
fn may_pass(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Full)
}

/// Late rows, one of each reading; and the runs of which a row is known to replace another.
struct Looked {
    late: LateRows,
    /// By the places of the runs among the sources: which of their rows these are, in their order.
    rows: Vec<Vec<u32>>,
    /// By the places of the runs among the sources.
    replaces: Vec<AtomicBool>,
}

/// Notes that a row replaces another one: of runs by their places among the sources.
fn note(replaces: &[AtomicBool], row: &LateRow) {
    replaces[row.run as usize].store(true, Ordering::Relaxed);
}

impl Looked {
    fn is_known(&self, run: usize) -> bool {
        self.replaces[run].load(Ordering::Relaxed)
    }

    /// Whether the rows of a group of a run are among them.
    fn has(&self, run: usize, group: &Group) -> bool {
        group.rows.first().is_some_and(|row| self.rows[run].binary_search(row).is_ok())
    }

    /// The memory of `bytes` is used again.
    fn look_up_in_object(
        &self,
        all: &Sources,
        object: &Arc<LiveObject>,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        let alone = Sources::of(std::slice::from_ref(object), &all.version);
        let late = self.filtered(object, bytes)?;
        let mut found = Found::new(&alone);
        let mut times = Vec::new();
        for rows in late.chunk_by(|one, next| one.sensor == next.sensor) {
            let Some(row) = rows.first() else { continue };
            times.clear();
            times.extend(rows.iter().map(|row| row.time_ns));
            let are_there = found.are_there(row.sensor, &times)?;
            let there = rows.iter().zip(are_there).filter(|(_, is_there)| *is_there);
            there.for_each(|(row, _)| note(&self.replaces, row));
        }
        Ok(())
    }

    /// Those rows, by sensor and time, that an object may have as far as its filters tell.
    fn filtered(&self, object: &LiveObject, bytes: &mut Vec<u8>) -> Result<Vec<LateRow>> {
        let entry = &object.entry;
        let mut left: Vec<LateRow> = Vec::new();
        let filters = object.segment.filters(object.sensors(), &entry.time)?;
        let Some(filters) = filters else {
            left.extend(self.late.within(object.sensors(), entry.time));
            left.sort_unstable_by_key(LateRow::key);
            return Ok(left);
        };
        let of_filter =
            |fence: &Fence| self.late.within(fence.first_sensor..=fence.last_sensor, fence.time);
        // Of few rows the pages are read sooner.
        let is_worth_it =
            |fence: &Fence| of_filter(fence).count() as u64 * LOOKUP_BYTES >= fence.bytes;
        let (filters, others): (Vec<Fence>, Vec<Fence>) =
            filters.into_iter().partition(is_worth_it);
        others.iter().for_each(|fence| left.extend(of_filter(fence)));
        for filters in filters.chunks(FILTERS_AHEAD) {
            filters.iter().for_each(|fence| object.segment.will_read_filter(fence));
            for fence in filters {
                match object.segment.filter(fence, bytes) {
                    Ok(filter) => {
                        let may_have =
                            |row: &&LateRow| filter.may_have(key(row.sensor, row.time_ns));
                        left.extend(of_filter(fence).filter(may_have));
                    }
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        tracing::warn!(%error, "a filter is passed over");
                        left.extend(of_filter(fence));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        // Of a sensor that two filters know, rows may be in both.
        left.sort_unstable_by_key(LateRow::key);
        left.dedup();
        Ok(left)
    }

    /// Looks whether a late row has the reading of a row of a run before it.
    fn look_up_row(&self, all: &Sources, (at, run): (usize, &Arc<Run>), late: &LateRow) {
        let of_late = late.run as usize;
        if at > of_late || self.is_known(of_late) {
            return;
        }
        let time = TimeRange::new(late.time_ns, late.time_ns);
        let same = run.find(late.sensor, &time).len();
        // It finds itself in its own run. Of a run that was laid together, others may have its reading and have come behind: it is taken to replace
        // them, which costs a look and nothing else.
        if same > usize::from(at == of_late) && !all.hides(run, late.sensor, late.time_ns) {
            note(&self.replaces, late);
        }
    }

    /// Looks whether late rows have the readings of some rows of a run.
    fn look_up_in_rows(
        &self,
        all: &Sources,
        (at, run): (usize, &Arc<Run>),
        rows: impl Iterator<Item = u32>,
        filter: &Filter,
        times: &TimeRange,
    ) {
        for row in rows {
            let (sensor, time_ns) = (run.sensor[row as usize], run.time[row as usize]);
            if !times.contains(time_ns) || !filter.may_have(sensor, time_ns) {
                continue;
            }
            // It replaces what was written before it only.
            let late = self.late.find(sensor, time_ns);
            let behind = late.filter(|late| (late.run as usize, late.row) > (at, row));
            if let Some(late) = behind.filter(|late| !self.is_known(late.run as usize))
                && !all.hides(run, sensor, time_ns)
            {
                note(&self.replaces, late);
            }
        }
    }
}

/// The stretches of rows between those of a list, which ascends, up to an end.
fn gaps(rows: &[u32], end: u32) -> impl Iterator<Item = Range<u32>> {
    let starts = std::iter::once(0).chain(rows.iter().map(|row| row + 1));
    let ends = rows.iter().copied().chain(std::iter::once(end));
    starts.zip(ends).map(|(start, end)| start..end)
}

/// Tells of nearly all rows at once that none of some others is of their sensor and time: a Bloom filter of one word for each.
struct Filter {
    words: Vec<u64>,
    shift: u32,
}

impl Filter {
    fn new<'a>(late: impl Iterator<Item = &'a LateRow> + Clone) -> Self {
        let bits = (late.clone().count() * FILTER_BITS).next_power_of_two();
        // A shift by all bits is none.
        let words = (bits / u64::BITS as usize).max(2);
        let mut filter = Self { words: vec![0; words], shift: u64::BITS - words.trailing_zeros() };
        for row in late {
            let (word, bits) = filter.place(row.sensor, row.time_ns);
            filter.words[word] |= bits;
        }
        filter
    }

    fn may_have(&self, sensor: u32, time_ns: i64) -> bool {
        let (word, bits) = self.place(sensor, time_ns);
        self.words[word] & bits == bits
    }

    /// By Fibonacci hashing: the highest bits say which word it is, others which of its bits.
    fn place(&self, sensor: u32, time_ns: i64) -> (usize, u64) {
        const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
        let of_time = (time_ns as u64).wrapping_mul(GOLDEN).rotate_right(32);
        let hash = (of_time ^ u64::from(sensor)).wrapping_mul(GOLDEN);
        let bit = |at: u32| 1 << (hash >> at & 63);
        ((hash >> self.shift) as usize, bit(8) | bit(14) | bit(20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_what_is_in_it_and_little_else() {
        for count in [1, 2, 100, 100_000] {
            let rows: Vec<LateRow> = (0..count)
                .map(|row| LateRow::new(row % 1000, i64::from(row / 1000) * 10_000_000 + 7, 0, row))
                .collect();
            let filter = Filter::new(rows.iter());
            assert!(rows.iter().all(|row| filter.may_have(row.sensor, row.time_ns)));
            let others = (0..100_000_u32)
                .filter(|row| filter.may_have(row % 1000, i64::from(row / 1000) * 10_000_000 + 8));
            assert!(others.count() < 1_000, "{count} rows");
        }
    }
}
