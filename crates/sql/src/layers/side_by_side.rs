//! Reads sensors side by side: a row for each time at which one of them has a reading.
//!
//! 1. The time is divided into windows whose readings fit into a share of the memory.
//! 2. Of a window all sensors are read, on several threads; of those that are not shown the times alone.
//! 3. The union of the times is cut into pieces, and the values are laid on each of them.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, RecordBatch, RecordBatchOptions, TimestampNanosecondArray, UInt32Array,
    new_null_array,
};
use datafusion::arrow::buffer::ScalarBuffer;
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use tidefall_storage::{
    BATCH_ROWS, Bin, ReadStats, SensorSeries, spread, threads_for, union_of_times,
};
use tidefall_types::{FieldId, TimeRange, format_duration};

use super::LAYER;
use crate::ahead::Batches;
use crate::error::to_datafusion;
use crate::live::Live;
use crate::reads::Tally;
use crate::source::Source;
use crate::view::View;

/// What the times of a reading take while a window is read, in values: of the sensor, and twice while the times of
/// all sensors become one list.
const TIME_VALUES: u64 = 3;

/// What is read of a sensor.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) sensor: u32,
    pub(super) fields: Vec<FieldId>,
    /// For each field the column of the answer in which it stands.
    pub(super) places: Vec<usize>,
    /// Whether each of its readings has a row, or only has its values shown where others have one.
    pub(super) has_rows: bool,
}

/// Reads sensors side by side.
#[derive(Debug)]
pub(super) struct SideBySide {
    pub(super) view: Arc<View>,
    /// The columns of the answer: those that no sensor fills hold the time.
    pub(super) arrow: SchemaRef,
    /// Each once, first those of which values are shown.
    pub(super) sensors: Vec<Wanted>,
    pub(super) time: TimeRange,
    /// The bins at whose starts the rows stand, if they are aligned.
    pub(super) every: Option<Bin>,
    pub(super) window_bytes: u64,
}

/// The readings of a window.
struct Window {
    /// The times of its rows.
    times: ScalarBuffer<i64>,
    /// Those of the sensors that have values.
    series: Vec<SensorSeries>,
}

impl SideBySide {
    /// The time in which rows may be; none where there are no readings.
    fn extent(&self) -> Result<Option<TimeRange>> {
        let mut extent: Option<TimeRange> = None;
        for wanted in self.sensors.iter().filter(|wanted| wanted.has_rows) {
            let found = self.view.snapshot().extent(&[wanted.sensor], &self.time);
            let Some((time, _)) = found.map_err(to_datafusion)? else { continue };
            extent = Some(extent.map_or(time, |all| all.union(&time)));
        }
        Ok(extent.map(|TimeRange { first_ns: first, last_ns: last }| match self.every {
            // Bins are whole: sensors that have no rows of their own may have readings at their ends.
            Some(every) => TimeRange::new(
                every.start_of(first),
                every.start_of(last).saturating_add(every.width_ns - 1),
            ),
            None => TimeRange::new(first, last),
        }))
    }

    /// About how many values are in memory while a window is read.
    fn values_within(&self, window: &TimeRange) -> Result<u64> {
        let (snapshot, mut values) = (self.view.snapshot(), 0_u64);
        for wanted in &self.sensors {
            let rows = snapshot.sensor_rows_about(wanted.sensor, &window.intersect(&self.time));
            let texts = snapshot.text_bytes_per_row(&wanted.fields).div_ceil(8);
            let row_values = (wanted.fields.len() as u64 + TIME_VALUES).saturating_add(texts);
            let rows = rows.map_err(to_datafusion)? as u64;
            values = values.saturating_add(rows.saturating_mul(row_values));
        }
        Ok(values)
    }

    /// The time at which the second half of a window begins, if it can be cut there.
    fn middle_of(&self, window: &TimeRange) -> Option<i64> {
        let middle_ns = window.first_ns.midpoint(window.last_ns);
        let middle_ns = match self.every {
            Some(every) => every.start_of(middle_ns),
            None => middle_ns,
        };
        // Of two nanoseconds, or two bins, the middle is the first.
        let next = || match self.every {
            Some(every) => middle_ns.checked_add(every.width_ns),
            None => middle_ns.checked_add(1),
        };
        let middle_ns = if middle_ns > window.first_ns { middle_ns } else { next()? };
        (middle_ns <= window.last_ns).then_some(middle_ns)
    }

    /// The readings of a window of about so many values.
    fn read(&self, window: &TimeRange, values: usize, stats: &Arc<ReadStats>) -> Result<Window> {
        let snapshot = self.view.snapshot();
        let read = |wanted: &Wanted, _: &mut ()| {
            let (sensor, fields) = (wanted.sensor, &wanted.fields);
            let series = snapshot.read_sensor_counted(sensor, window, fields, stats)?;
            Ok(match self.every {
                Some(every) => align(series, every),
                None => series,
            })
        };
        let mut series = spread(threads_for(values), self.sensors.iter().collect(), read)
            .map_err(to_datafusion)?;
        let with_rows = self.sensors.iter().zip(&series).filter(|(wanted, _)| wanted.has_rows);
        let times: Vec<&[i64]> = with_rows.map(|(_, series)| &series.time[..]).collect();
        let times: ScalarBuffer<i64> = union_of_times(&times).into();
        series.truncate(self.sensors.partition_point(|wanted| !wanted.fields.is_empty()));
        Ok(Window { times, series })
    }

    /// Some rows of a window.
    fn batch(&self, window: &Window, rows: Range<usize>) -> Result<RecordBatch> {
        let times = window.times.slice(rows.start, rows.len());
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.arrow.fields().len()];
        for (wanted, series) in self.sensors.iter().zip(&window.series) {
            let own = Own::among(&series.time, &times);
            for (values, place) in series.fields.iter().zip(&wanted.places) {
                columns[*place] = Some(own.lay(values)?);
            }
        }
        let time: ArrayRef = Arc::new(TimestampNanosecondArray::new(times, None));
        let columns = columns.into_iter().map(|column| column.unwrap_or_else(|| Arc::clone(&time)));
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let (arrow, columns) = (Arc::clone(&self.arrow), columns.collect());
        Ok(RecordBatch::try_new_with_options(arrow, columns, &options)?)
    }

    /// The rows of a window in batches that are no larger than it.
    fn batches(
        self: Arc<Self>,
        window: &TimeRange,
        values: usize,
        stats: &Arc<ReadStats>,
    ) -> Batches {
        let window = match self.read(window, values, stats) {
            Ok(window) => window,
            Err(error) => return Box::new(std::iter::once(Err(error))),
        };
        let columns = 8 * self.arrow.fields().len().max(1) as u64;
        let row_bytes = columns.saturating_add(self.row_bytes());
        let most = usize::try_from(self.window_bytes / row_bytes).unwrap_or(usize::MAX);
        let (rows, most) = (window.times.len(), most.clamp(1, BATCH_ROWS));
        let starts = (0..rows).step_by(most);
        Box::new(starts.map(move |start| self.batch(&window, start..rows.min(start + most))))
    }
}

impl Source for SideBySide {
    fn name(&self) -> &'static str {
        LAYER
    }

    fn describe(&self) -> String {
        let every = self.every.map(|bin| format!(", every={}", format_duration(bin.width_ns)));
        let text = self.view.text(self.sensors.len(), self.time);
        format!("rows of {text}{}", every.unwrap_or_default())
    }

    fn partitions(&self) -> usize {
        1
    }

    /// As if the sensors had readings at the same times.
    fn rows_about(&self, _partition: Option<usize>) -> Option<usize> {
        Some(self.view.snapshot().rows_about(1, &self.time))
    }

    fn row_bytes(&self) -> u64 {
        let snapshot = self.view.snapshot();
        let texts = self.sensors.iter().map(|wanted| snapshot.text_bytes_per_row(&wanted.fields));
        texts.fold(0, u64::saturating_add)
    }

    fn open(
        self: Arc<Self>,
        _partition: usize,
        _limit: Option<usize>,
        _live: Live,
        tally: &Tally,
    ) -> Result<Batches> {
        let stats = tally.start();
        let windows = Windows { left: self.extent()?.into_iter().collect(), of: Arc::clone(&self) };
        let batches = move |window: Result<(TimeRange, usize)>| match window {
            Ok((window, values)) => Arc::clone(&self).batches(&window, values, &stats),
            Err(error) => Box::new(std::iter::once(Err(error))),
        };
        Ok(Box::new(windows.flat_map(batches)))
    }
}

/// Parts of the time whose readings fit into a window, and about how many values each of them has. The time is halved
/// until they do, as there may be far more readings in one hour than in another.
struct Windows {
    of: Arc<SideBySide>,
    /// What is left of the time, the next part last.
    left: Vec<TimeRange>,
}

impl Iterator for Windows {
    type Item = Result<(TimeRange, usize)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let window = self.left.pop()?;
            let values = match self.of.values_within(&window) {
                Ok(0) => continue,
                Ok(values) => values,
                Err(error) => {
                    self.left.clear();
                    return Some(Err(error));
                }
            };
            match self.of.middle_of(&window).filter(|_| values > self.of.window_bytes / 8) {
                Some(middle_ns) => {
                    self.left.push(TimeRange::new(middle_ns, window.last_ns));
                    self.left.push(TimeRange::new(window.first_ns, middle_ns - 1));
                }
                None => {
                    let values = usize::try_from(values).unwrap_or(usize::MAX);
                    return Some(Ok((window.intersect(&self.of.time), values)));
                }
            }
        }
    }
}

/// The latest value of each field in each bin, at the start of the bin.
fn align(series: SensorSeries, every: Bin) -> SensorSeries {
    let mut bins: Vec<i64> = Vec::new();
    let mut rows: Vec<Range<usize>> = Vec::new();
    for (row, time_ns) in series.time.iter().enumerate() {
        let bin = every.start_of(*time_ns);
        match (bins.last(), rows.last_mut()) {
            (Some(last), Some(range)) if *last == bin => range.end = row + 1,
            _ => {
                bins.push(bin);
                rows.push(row..row + 1);
            }
        }
    }
    let latest = |values: &ArrayRef| {
        let places: UInt32Array = rows
            .iter()
            .map(|rows| rows.clone().rev().find(|row| values.is_valid(*row)).map(|row| row as u32))
            .collect();
        // Every place lies within the array, of which there are as many rows as times.
        take(values, &places, None)
            .unwrap_or_else(|_| new_null_array(values.data_type(), bins.len()))
    };
    let fields = series.fields.iter().map(latest).collect();
    SensorSeries { time: bins.into(), fields }
}

/// The readings of a sensor that stand in some rows.
enum Own {
    /// All rows are those of these readings.
    Same(Range<usize>),
    /// The reading of each row, where there is one.
    At(UInt32Array),
    /// None stands in so many rows.
    Nowhere(usize),
}

impl Own {
    /// The readings at the times `own` that stand at `times`; both ascend.
    fn among(own: &[i64], times: &[i64]) -> Self {
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            return Self::Nowhere(0);
        };
        let start = own.partition_point(|time| time < first);
        let own = &own[..own.partition_point(|time| time <= last).max(start)];
        if own.len() == start {
            return Self::Nowhere(times.len());
        }
        if own[start..] == *times {
            return Self::Same(start..own.len());
        }
        let mut next = start;
        let places = times.iter().map(|time| {
            // Readings between the rows are not shown.
            while own.get(next).is_some_and(|own| own < time) {
                next += 1;
            }
            (own.get(next) == Some(time)).then_some(next as u32)
        });
        Self::At(places.collect())
    }

    fn lay(&self, values: &ArrayRef) -> Result<ArrayRef> {
        Ok(match self {
            Self::Same(rows) => values.slice(rows.start, rows.len()),
            Self::At(places) => take(values, places, None)?,
            Self::Nowhere(rows) => new_null_array(values.data_type(), *rows),
        })
    }
}
