//! Whether rows in memory that came late replace others.
//!
//! Where no place has a reading of another one, each answers for its own rows, and most questions are answered from metrics. Rows that are
//! newer than all of their sensor replace nothing. Of the others it has to be looked up: once, when somebody asks about many
//! sensors, or when they leave memory, for all of them together. So each page of times is decoded once, however many of them may lie in it.
//!
//! 1. Late rows of many runs are ordered by sensor and time.
//! 2. They are looked up in each object that has rows at their times: first in its filters, where it has any.
//! 3. What lies in memory is held against them run by run: nearly all of it is passed over by one look at a filter.
//!
//! What they may have replaced must still be there to be seen. Deletes and retention take readings away, and older snapshots
//! still have them; so late rows from before such a loss are taken to replace something (`Settling::losses`).

use std::borrow::Cow;
use std::ops::{Range, RangeInclusive};

use tidefall_ground::parallel::spread;
use tidefall_sync::Arc;
use tidefall_sync::atomic::{AtomicBool, Ordering};
use tidefall_types::{ErrorKind, Result, TimeRange, caught};

use super::objects::LiveObject;
use super::parts::Sources;
use super::repeats::Found;
use crate::kv::{Run, Settling};
use crate::segment::Fence;
use crate::segment::filter::key;

/// Late rows that are looked up together.
const TOGETHER_MAX: usize = if cfg!(debug_assertions) { 64 } else { 1 << 20 };

/// As many rows are looked through in the time in which one is looked up.
const LOOKUP_ROWS: usize = 128;

/// As many bytes of a filter are read in the time in which a row is looked up in a page.
const LOOKUP_BYTES: u64 = 4 << 10;

/// Filters that are announced before the first of them is read, on a store on which that takes long.
const FILTERS_AHEAD: usize = 16;

/// Bits of a filter for each row.
const FILTER_BITS: usize = 32;

/// A row that came late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LateRow {
    sensor: u32,
    time_ns: i64,
    /// The place of its run among the sources.
    run: usize,
    row: u32,
}

impl LateRow {
    fn key(&self) -> (u32, i64) {
        (self.sensor, self.time_ns)
    }
}

impl Sources {
    /// Finds out of all runs with rows within `range` whether these replace others. All places of the table are here.
    pub(crate) fn settle(&self, range: &TimeRange, settling: &Settling, threads: usize) {
        let is_wanted = |run: &Arc<Run>| !run.unsettled().is_empty() && run.range.overlaps(range);
        if !self.runs.iter().any(is_wanted) {
            return;
        }
        let _turn = settling.turn();
        let (mut together, mut count) = (Vec::new(), 0);
        for (at, run) in self.runs.iter().enumerate().filter(|(_, run)| is_wanted(run)) {
            if run.late.losses != settling.losses {
                run.settle(false);
                continue;
            }
            count += run.unsettled().len();
            together.push(at);
            if count >= TOGETHER_MAX {
                self.settle_together(&together, threads);
                (count, together) = (0, Vec::new());
            }
        }
        self.settle_together(&together, threads);
    }

    fn settle_together(&self, runs: &[usize], threads: usize) {
        let mut late: Vec<LateRow> = Vec::new();
        for &at in runs {
            let run = &self.runs[at];
            late.extend(run.unsettled().iter().map(|&row| {
                let (sensor, time_ns) = (run.sensor[row as usize], run.time[row as usize]);
                LateRow { sensor, time_ns, run: at, row }
            }));
        }
        late.sort_unstable();
        let replaces = self.runs.iter().map(|_| AtomicBool::new(false)).collect();
        let mut looked = Looked { late, replaces };
        looked.take_repeats_out();
        // A panic of who only wants to know must end nothing else.
        let found = caught(|| self.look_up(&looked, threads));
        if let Err(error) = &found {
            tracing::debug!(%error, "late readings could not be looked up");
        }
        for &at in runs {
            self.runs[at].settle(found.is_ok() && !looked.is_known(at));
        }
    }

    fn look_up(&self, looked: &Looked, threads: usize) -> Result<()> {
        let Some(extent) = Extent::of(looked.late.iter()) else { return Ok(()) };
        let objects = self.version.objects.within(&extent.time).filter(|object| {
            object.entry.first_sensor <= *extent.sensors.end()
                && *extent.sensors.start() <= object.entry.last_sensor
        });
        spread(threads, objects.collect(), |object, _: &mut ()| {
            looked.look_up_in_object(self, object)
        })?;
        // Of rows that are newer than all in memory there is nothing to be found.
        let in_memory = || {
            let is_in_memory = |row: &&LateRow| !self.runs[row.run].late.are_behind_memory;
            looked.late.iter().filter(is_in_memory)
        };
        let Some(extent) = Extent::of(in_memory()) else { return Ok(()) };
        let filter = Filter::new(in_memory());
        let by_time = by_time(in_memory());
        let last = in_memory().map(|row| row.run).max().unwrap_or_default();
        let runs = self.runs[..=last].iter().enumerate();
        let runs = runs.filter(|(_, run)| run.range.overlaps(&extent.time));
        spread(threads, runs.collect(), |(at, run), _: &mut ()| {
            let Some((late, others)) = run.late.apart() else {
                looked.look_up_in_rows(self, (at, run), 0..run.rows() as u32, &filter, &extent);
                return Ok(());
            };
            let among = &by_time[within(&by_time, &others)];
            if among.len() * LOOKUP_ROWS > run.rows() {
                looked.look_up_in_rows(self, (at, run), 0..run.rows() as u32, &filter, &extent);
                return Ok(());
            }
            // Nearly all rows are of times that are newer than nearly all late ones.
            looked.look_up_in_rows(self, (at, run), late.iter().copied(), &filter, &extent);
            among.iter().for_each(|row| looked.look_up_row(self, (at, run), row));
            Ok(())
        })?;
        Ok(())
    }
}

/// Late rows, in their order, one of each reading; and the runs of which a row is known to replace another.
struct Looked {
    late: Vec<LateRow>,
    /// By the places of the runs among the sources.
    replaces: Vec<AtomicBool>,
}

impl Looked {
    fn note(&self, row: &LateRow) {
        self.replaces[row.run].store(true, Ordering::Relaxed);
    }

    fn is_known(&self, run: usize) -> bool {
        self.replaces[run].load(Ordering::Relaxed)
    }

    /// Leaves the first row of each reading: the others replace it.
    fn take_repeats_out(&mut self) {
        for rows in self.late.windows(2).filter(|rows| rows[0].key() == rows[1].key()) {
            self.note(&rows[1]);
        }
        self.late.dedup_by_key(|row| row.key());
    }

    fn look_up_in_object(&self, all: &Sources, object: &Arc<LiveObject>) -> Result<()> {
        let alone = Sources::of(std::slice::from_ref(object), &all.version);
        let entry = &object.entry;
        let first = self.late.partition_point(|row| row.sensor < entry.first_sensor);
        let end = self.late.partition_point(|row| row.sensor <= entry.last_sensor);
        let late = filtered(object, &self.late[first..end])?;
        let mut found = Found::new(&alone);
        let mut times = Vec::new();
        for rows in late.chunk_by(|one, next| one.sensor == next.sensor) {
            let first = rows.partition_point(|row| row.time_ns < entry.time.first_ns);
            let end = rows.partition_point(|row| row.time_ns <= entry.time.last_ns);
            let Some(row) = rows[first..end].first() else { continue };
            times.clear();
            times.extend(rows[first..end].iter().map(|row| row.time_ns));
            let are_there = found.are_there(row.sensor, &times)?;
            let there = rows[first..end].iter().zip(are_there).filter(|(_, is_there)| *is_there);
            there.for_each(|(row, _)| self.note(row));
        }
        Ok(())
    }

    /// Looks whether a late row has the reading of a row of a run before it.
    fn look_up_row(&self, all: &Sources, (at, run): (usize, &Arc<Run>), late: &LateRow) {
        if at > late.run || self.is_known(late.run) {
            return;
        }
        let time = TimeRange::new(late.time_ns, late.time_ns);
        let same = run.find(late.sensor, &time).len();
        // It finds itself in its own run, of which all rows but late ones came before late ones of their reading.
        if same > usize::from(at == late.run) && !all.hides(run, late.sensor, late.time_ns) {
            self.note(late);
        }
    }

    /// Looks whether late rows have the readings of some rows of a run.
    fn look_up_in_rows(
        &self,
        all: &Sources,
        (at, run): (usize, &Arc<Run>),
        rows: impl Iterator<Item = u32>,
        filter: &Filter,
        extent: &Extent,
    ) {
        for row in rows {
            let (sensor, time_ns) = (run.sensor[row as usize], run.time[row as usize]);
            if !extent.time.contains(time_ns) || !filter.may_have(sensor, time_ns) {
                continue;
            }
            let first = self.late.partition_point(|late| late.key() < (sensor, time_ns));
            let same = self.late.get(first).filter(|late| late.key() == (sensor, time_ns));
            // It replaces what was written before it only.
            let behind = same.filter(|late| (late.run, late.row) > (at, row));
            if let Some(late) = behind.filter(|late| !self.is_known(late.run))
                && !all.hides(run, sensor, time_ns)
            {
                self.note(late);
            }
        }
    }
}

/// Those of late rows, which are ordered by sensor, that an object may have as far as its filters tell.
fn filtered<'a>(object: &LiveObject, late: &'a [LateRow]) -> Result<Cow<'a, [LateRow]>> {
    let Some(extent) = Extent::of(late.iter()) else { return Ok(late.into()) };
    let Some(filters) = object.segment.filters(extent.sensors, &extent.time)? else {
        return Ok(late.into());
    };
    let of_filter = |fence: &Fence| {
        let first = late.partition_point(|row| row.sensor < fence.first_sensor);
        let end = late.partition_point(|row| row.sensor <= fence.last_sensor);
        let time = fence.time;
        late[first..end].iter().filter(move |row| time.contains(row.time_ns))
    };
    // Of few rows the pages are read sooner.
    let is_worth_it = |fence: &Fence| of_filter(fence).count() as u64 * LOOKUP_BYTES >= fence.bytes;
    let (filters, others): (Vec<Fence>, Vec<Fence>) = filters.into_iter().partition(is_worth_it);
    let mut left: Vec<LateRow> = others.iter().flat_map(of_filter).copied().collect();
    let mut bytes = Vec::new();
    for filters in filters.chunks(FILTERS_AHEAD) {
        filters.iter().for_each(|fence| object.segment.will_read_filter(fence));
        for fence in filters {
            match object.segment.filter(fence, &mut bytes) {
                Ok(filter) => {
                    let may_have = |row: &&LateRow| filter.may_have(key(row.sensor, row.time_ns));
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
    left.sort_unstable();
    left.dedup();
    Ok(left.into())
}

/// Late rows by their times.
fn by_time<'a>(late: impl Iterator<Item = &'a LateRow>) -> Vec<LateRow> {
    let mut by_time: Vec<LateRow> = late.copied().collect();
    by_time.sort_unstable_by_key(|row| row.time_ns);
    by_time
}

/// Where those within `times` are.
fn within(by_time: &[LateRow], times: &TimeRange) -> Range<usize> {
    let first = by_time.partition_point(|row| row.time_ns < times.first_ns);
    let end = by_time.partition_point(|row| row.time_ns <= times.last_ns);
    first.min(end)..end
}

/// The sensors and the times of late rows.
struct Extent {
    sensors: RangeInclusive<u32>,
    time: TimeRange,
}

impl Extent {
    fn of<'a>(late: impl Iterator<Item = &'a LateRow>) -> Option<Self> {
        let one =
            |row: &LateRow| (row.sensor..=row.sensor, TimeRange::new(row.time_ns, row.time_ns));
        let (sensors, time) = late.map(one).reduce(|(sensors, time), (sensor, at)| {
            let first = *sensors.start().min(sensor.start());
            (first..=*sensors.end().max(sensor.end()), time.union(&at))
        })?;
        Some(Self { sensors, time })
    }
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
                .map(|row| LateRow {
                    sensor: row % 1000,
                    time_ns: i64::from(row / 1000) * 10_000_000 + 7,
                    run: 0,
                    row,
                })
                .collect();
            let filter = Filter::new(rows.iter());
            assert!(rows.iter().all(|row| filter.may_have(row.sensor, row.time_ns)));
            let others = (0..100_000_u32)
                .filter(|row| filter.may_have(row % 1000, i64::from(row / 1000) * 10_000_000 + 8));
            assert!(others.count() < 1_000, "{count} rows");
        }
    }
}
