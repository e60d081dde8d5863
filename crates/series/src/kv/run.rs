//! A run: rows in the order of their arrival.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_buffer::ScalarBuffer;
use tidefall_ground::held::{Held, RowBytes};
use tidefall_ground::kept::{arrow_error, size_bytes};
use tidefall_ground::search::leading;
use tidefall_ground::texts::{CHUNK_TEXT_BYTES, all_text_bytes, text_bytes};
use tidefall_sync::{Arc, Mutex, OnceLock, PoisonError};
use tidefall_types::{FieldId, Result, Seq, TimeRange};

use super::Late;
use super::late::NO_TIMES;
use super::sort::sort_by_time;
use crate::rows::{SensorRows, gather_all, pick_latest, values_at};

/// Runs stay apart when together they would take more than so many times the memory.
pub(crate) const GROWTH_MAX: usize = 4;

/// What a column takes beside its values.
const COLUMN_BYTES: usize = 128;

/// Rows in the order of their arrival, as columns. Never changes.
#[derive(Debug)]
pub struct Run {
    pub first_seq: Seq,
    pub(crate) last_seq: Seq,
    pub(crate) sensor: ScalarBuffer<u32>,
    pub time: ScalarBuffer<i64>,
    /// By field id; fields behind the end are null.
    pub fields: Vec<Option<ArrayRef>>,
    pub(crate) range: TimeRange,
    /// The first and the last sensor.
    pub(crate) sensors: RangeInclusive<u32>,
    pub(crate) size_bytes: usize,
    text_bytes: usize,
    pub(crate) late: Late,
    /// Its part in the bytes of all runs that somebody holds.
    share: OnceLock<Held>,
    order: OnceLock<Vec<u32>>,
    is_ordered_by_time: OnceLock<bool>,
    /// What readers have found out about its fields.
    known: Mutex<BTreeMap<FieldId, Arc<dyn Any + Send + Sync>>>,
}

/// What the values of runs take as columns that all of their rows have: a null where a run lacks a field
/// takes as much as a value.
#[derive(Debug, Default)]
pub(crate) struct Together {
    rows: usize,
    /// By field id, whether a run has it.
    has: Vec<bool>,
    fields: usize,
}

impl Together {
    pub(crate) fn add(&mut self, run: &Run) {
        self.rows += run.rows();
        self.has.resize(self.has.len().max(run.fields.len()), false);
        for (has, column) in self.has.iter_mut().zip(&run.fields) {
            self.fields += usize::from(column.is_some() && !*has);
            *has |= column.is_some();
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.rows * self.fields * size_of::<f64>()
    }
}

/// Whether runs have so different fields that one run, with nulls where each lacks a field, would be far
/// larger than they are.
pub(crate) fn is_sparse(runs: &[Arc<Run>]) -> bool {
    let mut together = Together::default();
    runs.iter().for_each(|run| together.add(run));
    let apart: usize = runs.iter().map(|run| run.size_bytes).sum();
    together.bytes() > GROWTH_MAX * apart
}

/// How many of some runs, from the first on, have fields so much alike that one run of them takes no more memory than they do, or little.
pub(crate) fn dense_runs(runs: &[Arc<Run>]) -> usize {
    let (mut together, mut apart) = (Together::default(), 0);
    let mut is_dense = |run: &&Arc<Run>| {
        together.add(run);
        apart += run.size_bytes;
        together.bytes() <= apart
    };
    runs.iter().take_while(|run| is_dense(run)).count().max(1)
}

impl Run {
    /// A run of at least one row.
    pub(crate) fn new(
        seqs: (Seq, Seq),
        sensor: ScalarBuffer<u32>,
        time: ScalarBuffer<i64>,
        fields: Vec<Option<ArrayRef>>,
    ) -> Self {
        debug_assert!(!time.is_empty(), "a run without rows");
        debug_assert_eq!(sensor.len(), time.len(), "columns of a run differ in length");
        let (first_ns, last_ns) =
            time.iter().fold((i64::MAX, i64::MIN), |(min, max), &t| (min.min(t), max.max(t)));
        let (first, last) = sensor
            .iter()
            .fold((u32::MAX, 0), |(min, max), &sensor| (min.min(sensor), max.max(sensor)));
        let columns = fields.iter().flatten();
        let values: usize = columns.map(|column| size_bytes(column) + COLUMN_BYTES).sum();
        let places = size_of::<Self>() + fields.len() * size_of::<Option<ArrayRef>>();
        Self {
            first_seq: seqs.0,
            last_seq: seqs.1,
            size_bytes: time.len() * 16 + values + places,
            text_bytes: all_text_bytes(&fields),
            sensor,
            time,
            fields,
            range: TimeRange::new(first_ns, last_ns),
            sensors: first..=last,
            share: OnceLock::new(),
            late: Late::default(),
            order: OnceLock::new(),
            is_ordered_by_time: OnceLock::new(),
            known: Mutex::default(),
        }
    }

    /// The same run with the order of its rows, which [`order_of`] has found.
    pub(crate) fn with_order(self, order: Vec<u32>) -> Self {
        debug_assert_eq!(order.len(), self.rows(), "an order of other rows");
        Self { order: OnceLock::from(order), ..self }
    }

    /// The same run with those of its rows that are late, which [`Newest`](super::Newest) knows.
    pub(crate) fn with_late(self, mut late: Late) -> Self {
        let in_order = late.in_order.intersect(&self.range);
        late.in_order = if in_order.is_empty() { NO_TIMES } else { in_order };
        Self { size_bytes: self.size_bytes + late.size_bytes(), late, ..self }
    }

    pub fn rows(&self) -> usize {
        self.time.len()
    }

    /// Whether none of its rows within `range` replaces another, as `ObjectEntry::is_distinct` says of objects, as far as is known.
    pub(crate) fn is_distinct(&self, range: &TimeRange) -> bool {
        self.late.are_new(range)
    }

    /// The rows of which it is not known whether they replace others: of some times, as far as others are known apart from them.
    pub(crate) fn unsettled(&self, range: &TimeRange) -> impl Iterator<Item = u32> {
        self.late.unsettled(range).flat_map(|group| group.rows.iter().copied())
    }

    /// The number of these.
    pub(crate) fn unsettled_rows(&self, range: &TimeRange) -> usize {
        self.late.unsettled(range).map(|group| group.rows.len()).sum()
    }

    /// Takes note of what was found out about these.
    pub(crate) fn settle(&self, range: &TimeRange, is_distinct: bool) {
        self.late.settle(range, is_distinct);
    }

    /// About how many bytes its rows before a time take.
    pub(crate) fn bytes_before(&self, time_ns: i64) -> usize {
        if self.range.last_ns < time_ns {
            return self.size_bytes;
        }
        if self.range.first_ns >= time_ns {
            return 0;
        }
        let rows = self.time.iter().filter(|time| **time < time_ns).count();
        (self.size_bytes as f64 * rows as f64 / self.time.len() as f64) as usize
    }

    /// Counts its bytes, once, for as long as somebody holds it.
    pub(crate) fn count_into(&self, sum: &RowBytes) {
        self.share.get_or_init(|| Held::of(sum, self.size_bytes));
    }

    /// One run with the rows of several that followed each other, and all the fields that one of them has.
    pub(crate) fn concat(runs: &[Arc<Self>]) -> Result<Self> {
        let mut sensor = Vec::new();
        let mut time = Vec::new();
        for run in runs {
            sensor.extend_from_slice(&run.sensor);
            time.extend_from_slice(&run.time);
        }
        let fields = (0..runs.iter().map(|run| run.fields.len()).max().unwrap_or(0))
            .map(|field| {
                let Some(some) = runs.iter().find_map(|run| run.field(field)) else {
                    return Ok(None);
                };
                let columns: Vec<ArrayRef> = runs
                    .iter()
                    .map(|run| match run.field(field) {
                        Some(column) => Arc::clone(column),
                        None => arrow_array::new_null_array(some.data_type(), run.rows()),
                    })
                    .collect();
                let columns: Vec<&dyn Array> = columns.iter().map(|column| &**column).collect();
                arrow_select::concat::concat(&columns).map(Some).map_err(arrow_error)
            })
            .collect::<Result<_>>()?;
        let seqs = (
            runs.first().map_or(Seq(0), |run| run.first_seq),
            runs.last().map_or(Seq(0), |run| run.last_seq),
        );
        let known: Vec<_> = runs.iter().map(|run| (&run.late, run.rows(), run.range)).collect();
        let late = Late::concat(&known);
        Ok(Self::new(seqs, sensor.into(), time.into(), fields).with_late(late))
    }

    /// The bytes of the texts of some fields.
    pub(crate) fn text_bytes_of(&self, fields: &[FieldId]) -> usize {
        if self.text_bytes == 0 {
            return 0;
        }
        let columns = fields.iter().filter_map(|field| self.field(field.index()));
        columns.map(|column| text_bytes(column, 0..column.len())).sum()
    }

    /// A field, if some row has a value for it.
    pub(crate) fn field(&self, field: usize) -> Option<&ArrayRef> {
        self.fields.get(field)?.as_ref()
    }

    /// The rows of which `holds` is true of their sensors and times.
    pub(crate) fn rows_where(&self, holds: impl Fn(u32, i64) -> bool) -> Vec<u32> {
        let rows = (0..).zip(self.sensor.iter().zip(&self.time));
        rows.filter(|(_, (sensor, time))| holds(**sensor, **time)).map(|(row, _)| row).collect()
    }

    /// A run of those rows that are `kept`, which ascend; none when no row is.
    pub(crate) fn of_kept(&self, keep: Vec<u32>) -> Result<Option<Self>> {
        if keep.is_empty() {
            return Ok(None);
        }
        let late = self.late.of_kept(&keep, &self.range);
        let keep = UInt32Array::from(keep);
        let (sensor, time) = (values_at(&self.sensor, &keep), values_at(&self.time, &keep));
        let (seqs, fields) = ((self.first_seq, self.last_seq), gather_all(&self.fields, &keep)?);
        Ok(Some(Self::new(seqs, sensor, time, fields).with_late(late)))
    }

    /// Whether the rows arrived in the order of their times.
    pub(crate) fn is_ordered_by_time(&self) -> bool {
        *self.is_ordered_by_time.get_or_init(|| self.time.is_sorted())
    }

    /// What is to be found out about a field, all of it by one kind of reader: once, as the run never changes.
    pub(crate) fn known_of<T>(&self, field: FieldId, find: impl FnOnce() -> T) -> Arc<T>
    where
        T: Any + Send + Sync,
    {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let of_field = known.get(&field).and_then(|of_field| Arc::clone(of_field).downcast().ok());
        of_field.unwrap_or_else(|| {
            let found = Arc::new(find());
            known.insert(field, Arc::clone(&found) as Arc<dyn Any + Send + Sync>);
            found
        })
    }

    /// The rows of all sensors at a time.
    pub(crate) fn rows_at(&self, time_ns: i64) -> Vec<usize> {
        if self.is_ordered_by_time() {
            let first = self.time.partition_point(|time| *time < time_ns);
            let length = self.time[first..].partition_point(|time| *time == time_ns);
            return (first..first + length).collect();
        }
        (0..self.rows()).filter(|row| self.time[*row] == time_ns).collect()
    }

    /// Where the rows of a sensor within `range` stand in the run's order.
    pub(crate) fn find(&self, sensor: u32, range: &TimeRange) -> Range<usize> {
        let order = self.order();
        let key = |row: &u32| (self.sensor[*row as usize], self.time[*row as usize]);
        let first = order.partition_point(|row| key(row) < (sensor, range.first_ns));
        let length = order[first..].partition_point(|row| key(row) <= (sensor, range.last_ns));
        first..first + length
    }

    /// As much of a place of the run's order, which holds rows of one sensor, as is read at once: all of it, or rows
    /// whose texts are not too long together. Rows of one time stay together.
    pub(crate) fn readable(&self, place: Range<usize>) -> Range<usize> {
        if self.text_bytes <= CHUNK_TEXT_BYTES {
            return place;
        }
        let order = self.order();
        let (mut bytes, mut last) = (0, None);
        for at in place.clone() {
            let row = order[at] as usize;
            if bytes >= CHUNK_TEXT_BYTES && last.is_some_and(|last| last != self.time[row]) {
                return place.start..at;
            }
            let columns = self.fields.iter().flatten();
            bytes += columns.map(|column| text_bytes(column, row..row + 1)).sum::<usize>();
            last = Some(self.time[row]);
        }
        place
    }

    /// The first and the last time of the rows at a place of the run's order, which holds rows of
    /// one sensor.
    pub(crate) fn times_at(&self, place: &Range<usize>) -> TimeRange {
        let order = &self.order()[place.clone()];
        let time = |row: Option<&u32>| row.map_or(0, |row| self.time[*row as usize]);
        TimeRange::new(time(order.first()), time(order.last()))
    }

    /// The rows at a place of the run's order, with the given fields.
    pub(crate) fn read(&self, place: Range<usize>, fields: &[FieldId]) -> Result<SensorRows> {
        let keys: Vec<(i64, u32)> =
            self.order()[place].iter().map(|&row| (self.time[row as usize], row)).collect();
        let columns: Vec<Option<ArrayRef>> =
            fields.iter().map(|field| self.field(field.index()).cloned()).collect();
        pick_latest(&keys, &columns)
    }

    /// The rows by sensor, time and arrival.
    fn order(&self) -> &[u32] {
        self.order.get_or_init(|| order_of(&self.sensor, &self.time))
    }
}

/// Looks sensors up in a run, best in their order: the rows of those that follow are laid side by side in advance.
#[derive(Debug)]
pub(crate) struct RunWalk<'a> {
    run: &'a Run,
    fields: &'a [FieldId],
    /// Texts are long: few of them are laid out.
    has_texts: bool,
    /// The sensor from which on rows are laid out.
    first: u32,
    /// The place in the run's order of what is laid out.
    place: Range<usize>,
    sensor: Vec<u32>,
    rows: SensorRows,
    /// The place in it of the sensor that was asked for last.
    at: usize,
}

/// What a run has of a sensor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Nothing,
    /// Places in [`RunWalk::rows`], which are ordered by time without repeats.
    Rows(Range<usize>),
    /// Rows that are too many, or that are not as simple.
    Others,
}

/// Rows that are laid out at once, at first and at most.
const LAID_ROWS: (usize, usize) = (32, 32 << 10);

impl<'a> RunWalk<'a> {
    pub(crate) fn new(run: &'a Run, fields: &'a [FieldId]) -> Self {
        let rows = SensorRows { times: Vec::new().into(), fields: Vec::new() };
        let has_texts = run.text_bytes_of(fields) > 0;
        Self { run, fields, has_texts, first: 0, place: 0..0, sensor: Vec::new(), rows, at: 0 }
    }

    /// What is laid out: rows of several sensors.
    pub(crate) fn rows(&self) -> &SensorRows {
        &self.rows
    }

    /// Looks a sensor up.
    pub(crate) fn find(&mut self, sensor: u32, time: &TimeRange) -> Result<Known> {
        if !self.run.sensors.contains(&sensor) {
            return Ok(Known::Nothing);
        }
        if !self.has_all_of(sensor) {
            self.lay_out(sensor)?;
            if !self.has_all_of(sensor) {
                return Ok(Known::Others);
            }
        }
        let is_ahead = self.sensor.get(self.at).is_some_and(|other| *other <= sensor);
        let start = if is_ahead { self.at } else { 0 };
        let start = start + leading(&self.sensor[start..], |other| other < sensor);
        let end = start + leading(&self.sensor[start..], |other| other == sensor);
        self.at = start;
        let times = &self.rows.times[start..end];
        if !times.is_sorted_by(|one, next| one < next) {
            return Ok(Known::Others);
        }
        let first = start + leading(times, |other| other < time.first_ns);
        let behind = start + leading(times, |other| other <= time.last_ns);
        Ok(if first < behind { Known::Rows(first..behind) } else { Known::Nothing })
    }

    /// Whether all rows of a sensor are surely laid out, if there are any.
    fn has_all_of(&self, sensor: u32) -> bool {
        let is_end = self.place.end == self.run.rows();
        self.first <= sensor && (is_end || self.sensor.last().is_some_and(|last| sensor < *last))
    }

    /// Lays rows out from a sensor on: in growing steps, as nobody knows how many will be wanted.
    fn lay_out(&mut self, sensor: u32) -> Result<()> {
        let order = self.run.order();
        let is_before = |row: u32| self.run.sensor[row as usize] < sensor;
        // Mostly it is the last of those that were laid out.
        let near = order.get(self.place.start).is_some_and(|row| is_before(*row));
        let near = if near { self.place.start } else { 0 };
        let start = near + leading(&order[near..], is_before);
        let (least, most) = LAID_ROWS;
        let most = if self.has_texts { least } else { most };
        let rows = match start <= self.place.end {
            true => (2 * self.place.len()).clamp(least, most),
            false => least,
        };
        (self.first, self.place) = (sensor, start..order.len().min(start + rows));
        let order = &order[self.place.clone()];
        self.sensor = order.iter().map(|row| self.run.sensor[*row as usize]).collect();
        let times: Vec<i64> = order.iter().map(|row| self.run.time[*row as usize]).collect();
        let order = UInt32Array::from(order.to_vec());
        let columns = self.fields.iter().map(|field| self.run.field(field.index()));
        let columns = columns
            .map(|column| column.map(|column| crate::rows::gather(column, &order)).transpose());
        self.rows = SensorRows { times: times.into(), fields: columns.collect::<Result<_>>()? };
        self.at = 0;
        Ok(())
    }
}

/// Up to so many sensors a row are counted; of more, counting would take longer than sorting.
const SENSORS_PER_ROW_MAX: usize = 8;

/// The rows by sensor, time and arrival: dealt out to their sensors, whose times mostly ascend already.
pub(crate) fn order_of(sensor: &[u32], time: &[i64]) -> Vec<u32> {
    let least = sensor.iter().copied().min().unwrap_or(0);
    let sensors = sensor.iter().map(|sensor| (sensor - least) as usize + 1).max().unwrap_or(0);
    if sensors > SENSORS_PER_ROW_MAX * sensor.len() {
        let mut order: Vec<u32> = (0..sensor.len() as u32).collect();
        // Stable, so that rows of one identity stay in the order of their arrival.
        order.sort_by_key(|row| (sensor[*row as usize], time[*row as usize]));
        return order;
    }
    let mut ends = vec![0_u32; sensors];
    sensor.iter().for_each(|sensor| ends[(sensor - least) as usize] += 1);
    let mut start = 0;
    for end in &mut ends {
        // Where the rows of the sensor start, and in the end where they end.
        start += std::mem::replace(end, start);
    }
    let mut order = vec![0; sensor.len()];
    for (row, sensor) in (0..).zip(sensor) {
        let place = &mut ends[(sensor - least) as usize];
        order[*place as usize] = row;
        *place += 1;
    }
    let (mut start, mut late) = (0, Vec::new());
    for end in ends {
        sort_by_time(&mut order[start as usize..end as usize], time, &mut late);
        start = end;
    }
    order
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::UInt32Type;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn the_order_is_that_of_a_stable_sort() {
        let mut rng = SmallRng::seed_from_u64(11);
        for round in 0..200 {
            let rows = rng.random_range(0..200);
            // From one sensor to far more than rows, from times in order to many repeats.
            let sensors = [1, 3, 100, 1 << 30][round % 4];
            let (first, times) = (rng.random_range(0..1000), [2, 50, i64::MAX][round % 3]);
            let sensor: Vec<u32> =
                (0..rows).map(|_| first + rng.random_range(0..sensors)).collect();
            let mut time: Vec<i64> = (0..rows).map(|_| rng.random_range(-times..times)).collect();
            if round % 5 == 0 {
                time.sort_unstable();
            }
            let mut expected: Vec<u32> = (0..rows as u32).collect();
            expected.sort_by_key(|row| (sensor[*row as usize], time[*row as usize], *row));
            assert_eq!(order_of(&sensor, &time), expected, "round {round}");
        }
    }

    #[test]
    fn a_walk_finds_what_the_rows_say() {
        let mut rng = SmallRng::seed_from_u64(12);
        for round in 0..60 {
            let rows = rng.random_range(1..3000);
            // From many rows a sensor to sensors of which most have none, with and without repeats.
            let (sensors, times) = ([7, 400, 40_000][round % 3], [6, 1 << 40][round % 2]);
            let sensor: Vec<u32> = (0..rows).map(|_| rng.random_range(0..sensors)).collect();
            let time: Vec<i64> = (0..rows).map(|_| rng.random_range(0..times)).collect();
            let values: ArrayRef = Arc::new(UInt32Array::from_iter_values(0..rows as u32));
            let columns = (ScalarBuffer::from(sensor.clone()), ScalarBuffer::from(time.clone()));
            let run = Run::new((Seq(1), Seq(1)), columns.0, columns.1, vec![Some(values)]);
            let fields = [FieldId(0), FieldId(1)];
            let mut walk = RunWalk::new(&run, &fields);
            let mut asked: Vec<u32> = (0..2000).map(|_| rng.random_range(0..sensors + 9)).collect();
            if round % 4 > 0 {
                asked.sort_unstable();
            }
            let range = [TimeRange::ALL, TimeRange::new(times / 3, times / 2)][round % 5 % 2];
            for asked in asked {
                let of_sensor = |row: &u32| sensor[*row as usize] == asked;
                let mut all: Vec<u32> = (0..rows as u32).filter(of_sensor).collect();
                all.sort_by_key(|row| time[*row as usize]);
                let time_of = |row: &u32| time[*row as usize];
                let repeats = all.windows(2).any(|pair| time_of(&pair[0]) == time_of(&pair[1]));
                let simple = !repeats && all.len() < LAID_ROWS.0;
                all.retain(|row| range.contains(time_of(row)));
                match walk.find(asked, &range).unwrap() {
                    Known::Nothing => assert!(all.is_empty(), "round {round}: {asked}"),
                    Known::Others => assert!(!simple, "round {round}: {asked}"),
                    Known::Rows(found) => {
                        let SensorRows { times, fields } = walk.rows();
                        assert!(times[found.clone()].iter().copied().eq(all.iter().map(time_of)));
                        let values = fields[0].as_ref().unwrap().slice(found.start, found.len());
                        assert_eq!(values.as_primitive::<UInt32Type>().values()[..], all);
                        assert!(fields[1].is_none());
                    }
                }
            }
        }
    }
}
