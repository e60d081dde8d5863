//! One value a sensor: at a moment, or the latest (the key-value view of PL-NagareDB).
//!
//! Readings that are still in memory lie in the order of their arrival, which is that of time where
//! nothing is late. There all sensors at one moment lie side by side, and the latest of all sensors
//! at the end; neither needs a search for each sensor. What is not answered so is looked up sensor
//! by sensor.

use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_select::interleave::interleave;
use tidefall_ground::kept::arrow_error;
use tidefall_ground::parallel::{cores, spread};
use tidefall_types::{ErrorKind, FieldId, FieldType, Result, TimeRange};

use super::aggregate::aggregate;
use super::fetch::Fetched;
use super::merge::SensorStream;
use super::parts::{self, AHEAD_BYTES, Near, Sources, Wanted};
use super::request::{AggregateRequest, ReadStats};
use crate::kv::Run;
use crate::rows::alone;

/// With fewer sensors to look up a second thread costs more than it saves.
const SENSORS_PER_THREAD_MIN: usize = 16;

/// From so many sensors on, metrics are asked for latest values.
const SENSORS_FOR_METRICS: usize = 4096;
/// Readings that a sensor has on average at most where metrics are asked: of more, the last page costs less.
const ROWS_PER_SENSOR_MAX: u64 = 256;

/// A value of each of some sensors.
#[derive(Debug, Clone)]
pub struct SensorValues {
    /// The sensors that have a value, in the order in which they were asked for.
    pub sensors: Vec<u32>,
    /// The time of each value in nanoseconds since 1970 UTC.
    pub time: Vec<i64>,
    /// The values; none is null.
    pub values: ArrayRef,
}

/// Where the value of a sensor was found.
#[derive(Debug, Clone, Copy)]
struct Found {
    time_ns: i64,
    array: usize,
    row: usize,
}

/// The sensors that are asked for and what was found of them.
struct Points<'a> {
    sources: &'a Sources,
    sensors: &'a [u32],
    field: (FieldId, FieldType),
    /// The place of a sensor among `sensors` + 1.
    places: Vec<u32>,
    found: Vec<Option<Found>>,
    left: usize,
    arrays: Vec<ArrayRef>,
}

/// The values of `sensors` at exactly `time_ns`.
pub(super) fn at(
    sources: &Sources,
    sensors: &[u32],
    time_ns: i64,
    field: (FieldId, FieldType),
) -> Result<SensorValues> {
    let mut points = Points::new(sources, sensors, field);
    let moment = TimeRange::new(time_ns, time_ns);
    if sources.version.objects.within(&moment).next().is_some() {
        points.look_up(&moment)?;
    } else {
        let mut runs: Vec<&Arc<Run>> =
            sources.runs.iter().filter(|run| run.range.overlaps(&moment)).collect();
        runs.sort_by_key(|run| std::cmp::Reverse(run.last_seq));
        for run in runs {
            let Some(values) = run.field(field.0.index()) else { continue };
            points.arrays.push(Arc::clone(values));
            // Later rows of a run win as later runs do.
            for row in run.rows_at(time_ns).into_iter().rev() {
                points.offer(points.arrays.len() - 1, run, row);
            }
        }
    }
    points.finish()
}

/// The latest values of `sensors`.
pub(super) fn latest(
    sources: &Sources,
    sensors: &[u32],
    field: (FieldId, FieldType),
) -> Result<SensorValues> {
    let mut points = Points::new(sources, sensors, field);
    points.walk_back();
    points.ask_metrics()?;
    points.look_back()?;
    points.finish()
}

impl<'a> Points<'a> {
    fn new(sources: &'a Sources, sensors: &'a [u32], field: (FieldId, FieldType)) -> Self {
        let places = sensors.iter().max().map_or(0, |last| *last as usize + 1);
        let mut places = vec![0; places];
        for (place, sensor) in sensors.iter().enumerate() {
            places[*sensor as usize] = place as u32 + 1;
        }
        let (found, left) = (vec![None; sensors.len()], sensors.len());
        Self { sources, sensors, field, places, found, left, arrays: Vec::new() }
    }

    /// Takes a row of a run, whose values are the array with the number `array`, unless its sensor has a
    /// value already, or this one is null or deleted.
    fn offer(&mut self, array: usize, run: &Run, row: usize) {
        let (sensor, time_ns) = (run.sensor[row], run.time[row]);
        let Some(place @ 1..) = self.places.get(sensor as usize).copied() else { return };
        let found = &mut self.found[place as usize - 1];
        let is_null = self.arrays[array].is_null(row);
        if found.is_some() || is_null || self.sources.hides(run, sensor, time_ns) {
            return;
        }
        *found = Some(Found { time_ns, array, row });
        self.left -= 1;
    }

    /// Goes through the runs from the latest time back, to where something that is not ordered by time
    /// may have later readings.
    fn walk_back(&mut self) {
        let runs = || self.sources.runs.iter();
        let unordered = runs().filter(|run| !run.is_ordered_by_time()).map(|run| run.range.last_ns);
        let objects = self.sources.version.objects.iter().map(|object| object.entry.time.last_ns);
        let bound_ns = unordered.chain(objects).max();
        let field = self.field.0.index();
        let later =
            |run: &&Arc<Run>| run.is_ordered_by_time() && Some(run.range.last_ns) > bound_ns;
        let runs: Vec<(&Arc<Run>, &ArrayRef)> =
            runs().filter(later).filter_map(|run| Some((run, run.field(field)?))).collect();
        let first_array = self.arrays.len();
        self.arrays.extend(runs.iter().map(|(_, values)| Arc::clone(values)));
        let cursor = |index: usize, row: usize| {
            let run = runs[index].0;
            (run.time[row], run.last_seq, index, row)
        };
        let mut heap: BinaryHeap<_> =
            (0..runs.len()).map(|index| cursor(index, runs[index].0.rows() - 1)).collect();
        while let Some((time_ns, _, index, row)) = heap.pop() {
            if Some(time_ns) <= bound_ns || self.left == 0 {
                return;
            }
            self.offer(first_array + index, runs[index].0, row);
            if row > 0 {
                heap.push(cursor(index, row - 1));
            }
        }
    }

    /// Takes the last values of many sensors from their metrics, which cost little where there are few for each. A value that
    /// is not of the last row is left to others, as nothing tells its time.
    fn ask_metrics(&mut self) -> Result<()> {
        let stored: u64 = self.sources.version.objects.iter().map(|object| object.entry.rows).sum();
        let is_sparse = stored <= ROWS_PER_SENSOR_MAX * self.left as u64;
        if self.left < SENSORS_FOR_METRICS || !is_sparse || !self.field.1.is_numeric() {
            return Ok(());
        }
        let is_open = |place: &usize| self.found[*place].is_none();
        let places: Vec<usize> = (0..self.sensors.len()).filter(is_open).collect();
        let request = AggregateRequest {
            sensors: places.iter().map(|place| self.sensors[*place]).collect::<Vec<_>>().into(),
            groups: (0..places.len() as u32).collect(),
            group_count: places.len() as u32,
            time: TimeRange::ALL,
            bin: None,
            fields: vec![self.field.0],
            deviations: false,
            extremes: true,
            ends: true,
        };
        let stats = Arc::new(ReadStats::default());
        let fields: Arc<[(FieldId, FieldType)]> = Arc::new([self.field]);
        let answer = match aggregate(self.sources, &request, &fields, cores(), &stats) {
            // Damaged metrics keep nobody from the rows.
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(()),
            answer => answer?,
        };
        let Some(metrics) = answer.fields.first() else { return Ok(()) };
        let array = self.arrays.len();
        self.arrays.push(Arc::clone(&metrics.last));
        for (row, group) in answer.group.iter().enumerate() {
            if metrics.count[row] == answer.rows[row] {
                let time_ns = answer.last_time_ns[row];
                self.found[places[*group as usize]] = Some(Found { time_ns, array, row });
                self.left -= 1;
            }
        }
        Ok(())
    }

    /// Looks from the newest objects back for the last value of each sensor that has none yet, each time in twice as many of them: those that
    /// end before all of these values are not opened.
    fn look_back(&mut self) -> Result<()> {
        let objects = &self.sources.version.objects;
        let (mut upto_ns, mut count) = (i64::MAX, 1);
        while self.left > 0 {
            let from_ns = objects.newest_from(upto_ns, count);
            self.look_up(&TimeRange::new(from_ns, upto_ns))?;
            let Some(before_ns) = from_ns.checked_sub(1) else { break };
            (upto_ns, count) = (before_ns, 2 * count);
        }
        Ok(())
    }

    /// Looks within `range` for the last value of each sensor that has none yet.
    fn look_up(&mut self, range: &TimeRange) -> Result<()> {
        let is_open = |place: &usize| self.found[*place].is_none();
        let places: Vec<usize> = (0..self.sensors.len()).filter(is_open).collect();
        let sensors: Vec<u32> = places.iter().map(|place| self.sensors[*place]).collect();
        let is_moment = range.first_ns == range.last_ns;
        let fields = [self.field];
        let wanted = if is_moment { Wanted::Pages(&fields) } else { Wanted::Nothing };
        self.sources.open(&sensors[..].into(), range, wanted)?;
        if self.sources.are_slow() {
            self.announce(&sensors, range)?;
        }
        let lookup = Lookup {
            sources: self.sources,
            fields: Arc::new([self.field]),
            stats: Arc::new(ReadStats::default()),
        };
        let threads = cores().min(places.len() / SENSORS_PER_THREAD_MIN);
        let found = spread(threads, places, |place, reader: &mut Reader| {
            Ok((place, lookup.last(self.sensors[place], range, reader)?))
        })?;
        for (place, found) in found {
            if let Some((time_ns, values, row)) = found {
                self.found[place] = Some(Found { time_ns, array: self.arrays.len(), row });
                self.arrays.push(values);
                self.left -= 1;
            }
        }
        Ok(())
    }

    /// Announces the pages in which the last value of each sensor within `range` probably lies, on a store on which a read takes long.
    fn announce(&self, sensors: &[u32], range: &TimeRange) -> Result<()> {
        let (mut near, mut bytes) = (Near::default(), 0);
        for sensor in sensors {
            let parts = self.sources.parts_near(*sensor, range, &mut near)?;
            let newest = parts.iter().max_by_key(|part| part.time.last_ns);
            bytes += parts::announce(newest.into_iter(), &[self.field])?;
            if bytes > AHEAD_BYTES {
                break;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<SensorValues> {
        let mut answer = SensorValues {
            sensors: Vec::with_capacity(self.sensors.len()),
            time: Vec::with_capacity(self.sensors.len()),
            values: arrow_array::new_empty_array(&self.field.1.arrow()),
        };
        let mut rows = Vec::with_capacity(self.sensors.len());
        for (sensor, found) in self.sensors.iter().zip(&self.found) {
            let Some(found) = found else { continue };
            answer.sensors.push(*sensor);
            answer.time.push(found.time_ns);
            rows.push((found.array, found.row));
        }
        if !rows.is_empty() {
            let arrays: Vec<&dyn Array> = self.arrays.iter().map(|array| &**array).collect();
            answer.values = interleave(&arrays, &rows).map_err(arrow_error)?;
        }
        Ok(answer)
    }
}

/// What a thread that looks sensors up has at hand.
#[derive(Default)]
struct Reader {
    fetched: Fetched,
    near: Near,
}

/// Looks single sensors up in all places.
struct Lookup<'a> {
    sources: &'a Sources,
    fields: Arc<[(FieldId, FieldType)]>,
    stats: Arc<ReadStats>,
}

impl Lookup<'_> {
    /// The last value of a sensor within `range`: its time, and an array with the row in it. The parts
    /// that end last are read first.
    fn last(
        &self,
        sensor: u32,
        range: &TimeRange,
        reader: &mut Reader,
    ) -> Result<Option<(i64, ArrayRef, usize)>> {
        let mut range = *range;
        loop {
            let parts = self.sources.parts_near(sensor, &range, &mut reader.near)?;
            let Some(newest) = parts.iter().max_by_key(|part| part.time.last_ns) else {
                return Ok(None);
            };
            let window = TimeRange::new(newest.time.first_ns, range.last_ns);
            let parts = match parts.len() {
                1 => parts,
                _ => self.sources.parts_near(sensor, &window, &mut reader.near)?,
            };
            let mut stream = SensorStream::of(parts, &self.fields, &self.stats);
            let mut last = None;
            while let Some(rows) = stream.next(&mut reader.fetched)? {
                let Some(values) = &rows.fields[0] else { continue };
                if let Some(row) = (0..rows.len()).rev().find(|row| values.is_valid(*row)) {
                    last = Some((rows.times[row], Arc::clone(values), row));
                }
            }
            match window.first_ns.checked_sub(1).filter(|before| *before >= range.first_ns) {
                Some(before_ns) if last.is_none() => range.last_ns = before_ns,
                _ => {
                    let Some((time_ns, values, row)) = last else { return Ok(None) };
                    // Nothing that was read with it is kept until all sensors are looked up.
                    return Ok(Some((time_ns, alone(&values, row)?, 0)));
                }
            }
        }
    }
}
