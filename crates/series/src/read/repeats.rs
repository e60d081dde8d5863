//! How many rows of a write take the place of others: of readings that were there before it, or of
//! rows of its own, with the same sensor and time.
//!
//! 1. Rows whose times ascend sensor by sensor do not repeat each other: one pass tells.
//! 2. Only runs and objects count that overlap the rows in sensors and in time. In the rule there
//!    are none, and that is all.
//! 3. Of the rows that they overlap, those of each sensor are held against its parts there. Only
//!    then are pages of times decoded; regular times have none.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow_buffer::ScalarBuffer;
use tidefall_types::{Result, TimeRange};

use super::chunk::PlacedChunk;
use super::fetch::Fetched;
use super::parts::{Near, Sources};
use super::request::ReadStats;
use super::version::Version;
use crate::kv::{Run, order_of};

/// Sensors are remembered by place up to so many for each row; of more, sorting is cheaper.
const SENSORS_PER_ROW_MAX: usize = 8;

/// Rows that take the place of others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repeats {
    /// How many rows.
    pub rows: u64,
    /// The sensor and the time of one of them.
    pub example: Option<(u32, i64)>,
}

impl Repeats {
    fn add(&mut self, sensor: u32, time_ns: i64) {
        self.rows += 1;
        self.example.get_or_insert((sensor, time_ns));
    }
}

impl Sources {
    /// Which of some rows, in any order, take the place of readings that lie here or of rows before them.
    ///
    /// # Errors
    /// `Io` and `Corrupt` from storage.
    pub fn repeats_of_rows(&self, sensors: &[u32], times: &[i64]) -> Result<Repeats> {
        let mut repeats = Repeats::default();
        if !times.is_sorted_by(|one, next| one < next) && !ascends(sensors, times) {
            let key = |row: u32| (sensors[row as usize], times[row as usize]);
            for rows in order_of(sensors, times).windows(2) {
                if key(rows[0]) == key(rows[1]) {
                    repeats.add(key(rows[1]).0, key(rows[1]).1);
                }
            }
        }
        let (Some(known), Some(time)) = (span(sensors), span(times)) else { return Ok(repeats) };
        let near = self.only_near(&known, &TimeRange::new(*time.start(), *time.end()));
        let Some(places) = near.extent() else { return Ok(repeats) };
        let mut rows: Vec<(u32, i64)> =
            sensors.iter().copied().zip(times.iter().copied()).collect();
        rows.retain(|(sensor, time)| places.contain(*sensor, *time));
        if !rows.is_sorted() {
            rows.sort_unstable();
        }
        rows.dedup();
        let mut found = Found::new(&near);
        for rows in rows.chunk_by(|one, next| one.0 == next.0) {
            let times: Vec<i64> = rows.iter().map(|(_, time)| *time).collect();
            found.look(rows[0].0, &times, &mut repeats)?;
        }
        Ok(repeats)
    }

    /// Which rows of some sensors, whose times ascend, take the place of readings that lie here.
    ///
    /// # Errors
    /// `Io` and `Corrupt` from storage.
    pub fn repeats_of_series(&self, series: Vec<(u32, ScalarBuffer<i64>)>) -> Result<Repeats> {
        let mut repeats = Repeats::default();
        let sensors: Vec<u32> = series.iter().map(|(sensor, _)| *sensor).collect();
        let times = series.iter().filter_map(|(_, times)| span_of_sorted(times));
        let time = times.reduce(|one, other| one.union(&other));
        let (Some(known), Some(time)) = (span(&sensors), time) else { return Ok(repeats) };
        let near = self.only_near(&known, &time);
        let mut found = Found::new(&near);
        for (sensor, times) in &series {
            found.look(*sensor, times, &mut repeats)?;
        }
        Ok(repeats)
    }

    /// Of some places those that may hold rows of some sensors within a stretch of time.
    pub(crate) fn near<'a>(
        runs: impl Iterator<Item = &'a Arc<Run>>,
        version: &Version,
        (sensors, time): (&RangeInclusive<u32>, &TimeRange),
    ) -> Self {
        let overlaps = |other: &RangeInclusive<u32>| {
            other.start() <= sensors.end() && sensors.start() <= other.end()
        };
        let runs = runs.filter(|run| run.range.overlaps(time) && overlaps(&run.sensors));
        let objects = version.objects.within(time).filter(|object| overlaps(&object.sensors()));
        let version = Arc::new(version.with_objects(objects.cloned()));
        Self { runs: runs.cloned().collect(), version, settling: None }
    }

    fn only_near(&self, sensors: &RangeInclusive<u32>, time: &TimeRange) -> Self {
        Self::near(self.runs.iter(), &self.version, (sensors, time))
    }

    /// What the places cover together; nothing when there are none.
    fn extent(&self) -> Option<Extent> {
        let runs = self.runs.iter().map(|run| (run.sensors.clone(), run.range));
        let objects = self.version.objects.iter().map(|object| {
            (object.entry.first_sensor..=object.entry.last_sensor, object.entry.time)
        });
        let (mut sensors, mut times): (Vec<_>, Vec<_>) = runs.chain(objects).unzip();
        times.sort_unstable_by_key(|time| time.first_ns);
        times.dedup_by(|next, all| {
            let joins = next.first_ns <= all.last_ns;
            if joins {
                *all = all.union(next);
            }
            joins
        });
        let first = sensors.iter().map(|sensors| *sensors.start()).min()?;
        let last = sensors.drain(..).map(|sensors| *sensors.end()).max()?;
        Some(Extent { sensors: first..=last, times })
    }
}

/// Sensors and times, the latter ordered and apart from each other.
struct Extent {
    sensors: RangeInclusive<u32>,
    times: Vec<TimeRange>,
}

impl Extent {
    fn contain(&self, sensor: u32, time_ns: i64) -> bool {
        let next = self.times.partition_point(|time| time.last_ns < time_ns);
        self.sensors.contains(&sensor)
            && self.times.get(next).is_some_and(|time| time.first_ns <= time_ns)
    }
}

/// Looks rows up in some places.
pub(super) struct Found<'a> {
    near: &'a Sources,
    frames: Near,
    fetched: Fetched,
    stats: ReadStats,
}

impl<'a> Found<'a> {
    pub(super) fn new(near: &'a Sources) -> Self {
        let (fetched, stats) = (Fetched::default(), ReadStats::default());
        Self { near, frames: Near::default(), fetched, stats }
    }

    /// Adds those of the `times` of a sensor, which ascend, that are there.
    fn look(&mut self, sensor: u32, times: &[i64], repeats: &mut Repeats) -> Result<()> {
        let is_there = self.are_there(sensor, times)?;
        let there = times.iter().zip(is_there).filter(|(_, is_there)| *is_there);
        there.for_each(|(time, _)| repeats.add(sensor, *time));
        Ok(())
    }

    /// Which of the `times` of a sensor, which ascend, are there.
    pub(super) fn are_there(&mut self, sensor: u32, times: &[i64]) -> Result<Vec<bool>> {
        let Some(time) = span_of_sorted(times) else { return Ok(Vec::new()) };
        let mut are_there = vec![false; times.len()];
        for place in self.near.version.objects.places_within(&time) {
            self.look_in_object(place, sensor, times, &mut are_there)?;
        }
        let mut parts = Vec::new();
        self.near.run_parts(sensor, &time, &mut parts);
        for part in parts {
            let start = times.partition_point(|time| *time < part.time.first_ns);
            let end = times.partition_point(|time| *time <= part.time.last_ns);
            if start >= end {
                continue;
            }
            let rows = part.read(&[], &mut self.fetched, &self.stats)?;
            let mut rest = &rows.times[..];
            for (time, is_there) in times[start..end].iter().zip(&mut are_there[start..end]) {
                rest = &rest[rest.partition_point(|other| other < time)..];
                *is_there |= rest.first() == Some(time);
            }
        }
        Ok(are_there)
    }

    /// Looks in those chunks of an object that may have one of the times.
    fn look_in_object(
        &mut self,
        place: usize,
        sensor: u32,
        times: &[i64],
        are_there: &mut [bool],
    ) -> Result<()> {
        let object = &self.near.version.objects[place];
        for index in self.frames.indexes(object, place, sensor)? {
            let mut at = 0;
            while let Some(first_ns) = times.get(at) {
                let behind = TimeRange::new(*first_ns, i64::MAX);
                let chunks = index.chunks_within(sensor, &behind);
                let Some(position) = chunks.clone().next() else { break };
                let time = index.chunk(position).time();
                let start = at + times[at..].partition_point(|at| *at < time.first_ns);
                at = start + times[start..].partition_point(|at| *at <= time.last_ns);
                if start == at {
                    continue;
                }
                let (object, index, end) = (Arc::clone(object), Arc::clone(&index), position + 1);
                let chunk = PlacedChunk { object, index, position, end };
                let mut found = vec![false; at - start];
                chunk.find(&times[start..at], &mut found, &mut self.fetched, &self.stats)?;
                let deletes_upto = chunk.object().entry.deletes_upto();
                let hidden = self.near.hidden(sensor, deletes_upto, &time);
                let is_hidden = |time: i64| hidden.iter().any(|hidden| hidden.contains(time));
                for (place, _) in found.iter().enumerate().filter(|(_, is_found)| **is_found) {
                    are_there[start + place] |= !is_hidden(times[start + place]);
                }
            }
        }
        Ok(())
    }
}

/// Whether the times of each sensor ascend without repeats. It may say no where they do, when there are very many
/// sensors.
fn ascends(sensors: &[u32], times: &[i64]) -> bool {
    let Some(known) = span(sensors) else { return true };
    let count = (known.end() - known.start()) as usize + 1;
    if count > SENSORS_PER_ROW_MAX * sensors.len() {
        return false;
    }
    let mut latest: Vec<Option<i64>> = vec![None; count];
    sensors.iter().zip(times).all(|(sensor, time)| {
        let before = latest[(sensor - known.start()) as usize].replace(*time);
        before.is_none_or(|before| before < *time)
    })
}

fn span_of_sorted(times: &[i64]) -> Option<TimeRange> {
    Some(TimeRange::new(*times.first()?, *times.last()?))
}

/// The least and the greatest of some values.
fn span<T: Copy + Ord>(values: &[T]) -> Option<RangeInclusive<T>> {
    let (first, rest) = values.split_first()?;
    let (least, greatest) = rest.iter().fold((*first, *first), |(least, greatest), value| {
        (least.min(*value), greatest.max(*value))
    });
    Some(least..=greatest)
}
