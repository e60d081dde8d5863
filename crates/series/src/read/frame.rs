//! The row view: readings of several sensors side by side, a row for each time (as in PL-NagareDB).
//!
//! 1. The values of every sensor are decoded into its own column of one buffer, by several threads.
//! 2. Where all sensors have the same times, which is the rule, that buffer is the answer.
//! 3. Else the values move to the rows of the union of all times.
//!
//! With a condition on values each column keeps those that meet it, chunk by chunk while they are in the
//! processor's cache.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::ScalarBuffer;
use tidefall_codec::PageValue;
use tidefall_ground::parallel::{spread, threads_for};
use tidefall_types::{Error, FieldId, FieldType, Result, TimeRange};

use super::buffer::{Buffer, BufferColumn};
use super::chunk::{Times, copy_nulls};
use super::fetch::Fetched;
use super::merge::SensorStream;
use super::parts::{AHEAD_BYTES, Sources, Wanted};
use super::request::ReadStats;
use crate::rows::SensorRows;

/// Readings of several sensors, a row for each time at which one of them has a reading.
#[derive(Debug, Clone)]
pub struct Frame<T> {
    /// The time of each row in nanoseconds since 1970 UTC, ascending.
    pub time: ScalarBuffer<i64>,
    /// The values: all rows of the first sensor, then all of the second, and so on.
    pub values: Vec<T>,
    /// How many of `values` stand for none: NaN for floats, 0 for integers.
    pub missing: usize,
}

/// Which values are kept, compared as doubles. Neither NaN nor a missing value ever is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Keep {
    /// All from the first up to the second, both included.
    Between(f64, f64),
    /// All up to the first and all from the second, both included.
    Outside(f64, f64),
}

impl Keep {
    /// Whether a value is kept.
    #[inline]
    pub fn keeps(&self, value: f64) -> bool {
        match *self {
            Self::Between(low, high) => (value >= low) & (value <= high),
            Self::Outside(low, high) => (value <= low) | (value >= high),
        }
    }
}

/// What a frame may take at most; more than the memory of any machine that this is made for, though some would promise it.
const FRAME_BYTES_MAX: usize = 1 << 38;

/// A sensor's column as it was read; its values stand elsewhere.
struct Column {
    times: Vec<Times>,
    rows: usize,
    missing: usize,
}

/// The times and values of a sensor, one for each other.
type Readings<T> = (ScalarBuffer<i64>, Vec<T>);

/// Reads the numeric field `field`, whose native type is `T`; all values, or those that are kept.
pub(super) fn read_frame<T: PageValue>(
    sources: &Sources,
    sensors: &[u32],
    time: &TimeRange,
    field: (FieldId, FieldType),
    keep: Option<&Keep>,
) -> Result<Frame<T>> {
    let fields: Arc<[(FieldId, FieldType)]> = Arc::new([field]);
    let stats = Arc::new(ReadStats::default());
    sources.open(&sensors.into(), time, Wanted::Pages(&fields))?;
    let streams: Vec<SensorStream> = sensors
        .iter()
        .map(|sensor| SensorStream::new(sources, *sensor, time, &fields, &stats))
        .collect::<Result<_>>()?;
    announce(&streams)?;
    match keep {
        None => read_all(streams, time),
        Some(keep) => read_some(streams, time, keep),
    }
}

/// Announces the reads of some sensors, as far as that many can be.
fn announce(streams: &[SensorStream]) -> Result<()> {
    let mut bytes = 0;
    for stream in streams {
        bytes += stream.announce()?;
        if bytes >= AHEAD_BYTES {
            break;
        }
    }
    Ok(())
}

fn read_all<T: PageValue>(streams: Vec<SensorStream>, time: &TimeRange) -> Result<Frame<T>> {
    let rows_max = streams.iter().map(|stream| stream.rows_within(time)).max().unwrap_or(0);
    let (memory, count) = memory_for(rows_max, streams.len())?;
    let mut buffer = Buffer::new(memory, count);
    let threads = threads_for(rows_max * streams.len());
    let work = streams.into_iter().zip(buffer.columns(rows_max)).collect();
    let read = |(stream, out): (SensorStream, BufferColumn<'_, T>), fetched: &mut Fetched| {
        read_column(stream, time, out, fetched)
    };
    let columns: Vec<Column> = spread(threads, work, read)?;
    let mut values = buffer.finish();
    let missing = columns.iter().map(|column| column.missing).sum();
    if let Some(time) = common_times(&columns) {
        compact(&mut values, rows_max, time.len());
        return Ok(Frame { time, values, missing });
    }
    let lists: Vec<ScalarBuffer<i64>> = columns.iter().map(Column::listed).collect();
    let columns = lists.iter().zip(values.chunks(rows_max.max(1)));
    let columns: Vec<(&[i64], &[T])> =
        columns.map(|(times, values)| (&times[..], &values[..times.len()])).collect();
    Frame::side_by_side(&columns, missing)
}

/// As [`read_all`], of the values that are kept.
fn read_some<T: PageValue>(
    streams: Vec<SensorStream>,
    time: &TimeRange,
    keep: &Keep,
) -> Result<Frame<T>> {
    let rows_max = streams.iter().map(|stream| stream.rows_within(time)).max().unwrap_or(0);
    let values_max = rows_max.saturating_mul(streams.len());
    let read = |stream, fetched: &mut Fetched| read_kept(stream, time, keep, fetched);
    let mut columns: Vec<Readings<T>> = spread(threads_for(values_max), streams, read)?;
    if columns.len() > 1 {
        let columns: Vec<(&[i64], &[T])> =
            columns.iter().map(|(times, values)| (&times[..], &values[..])).collect();
        return Frame::side_by_side(&columns, 0);
    }
    let (time, values) = columns.pop().unwrap_or_default();
    Ok(Frame { time, values, missing: 0 })
}

/// Memory for a frame, and how many values that has.
///
/// # Errors
/// `Limit` when there is not as much.
pub(super) fn memory_for<T>(rows: usize, columns: usize) -> Result<(Vec<T>, usize)> {
    let too_large = || {
        Error::limit(format!(
            "a frame of {rows} rows and {columns} columns is too large; ask for fewer sensors or a \
             shorter time"
        ))
    };
    let count = rows.checked_mul(columns);
    let count = count.filter(|count| *count <= FRAME_BYTES_MAX / size_of::<T>());
    let count = count.ok_or_else(too_large)?;
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| too_large())?;
    Ok((values, count))
}

fn read_column<T: PageValue>(
    mut stream: SensorStream,
    time: &TimeRange,
    mut out: BufferColumn<'_, T>,
    fetched: &mut Fetched,
) -> Result<Column> {
    let (fields, stats) = (stream.fields().clone(), stream.stats().clone());
    let mut column = Column { times: Vec::new(), rows: 0, missing: 0 };
    loop {
        let part = stream.take_part(|part| part.bare_chunk().is_some());
        let (times, missing) = if let Some(chunk) = part.as_ref().and_then(|part| part.bare_chunk())
        {
            let out = out.at(column.rows, chunk.rows_within(time));
            chunk.read_into(time, &fields, out, fetched, &stats)?
        } else if let Some(rows) = stream.next(fetched)? {
            let out = out.at(column.rows, rows.len());
            let missing = match &rows.fields[0] {
                Some(values) => copy_values(values, out),
                None => copy_nulls(out),
            };
            (Times::Listed(rows.times), missing)
        } else {
            out.close();
            return Ok(column);
        };
        column.rows += times.len();
        column.missing += missing;
        if times.len() > 0 {
            column.times.push(times);
        }
    }
}

/// As [`read_column`], but the values that are kept alone.
fn read_kept<T: PageValue>(
    mut stream: SensorStream,
    time: &TimeRange,
    keep: &Keep,
    fetched: &mut Fetched,
) -> Result<Readings<T>> {
    let (fields, stats) = (stream.fields().clone(), stream.stats().clone());
    let mut kept: (Vec<i64>, Vec<T>) = Default::default();
    let mut values = Vec::new();
    loop {
        let part = stream.take_part(|part| part.bare_chunk().is_some());
        if let Some((part, chunk)) =
            part.as_ref().and_then(|part| part.bare_chunk().map(|chunk| (part, chunk)))
        {
            values.resize(chunk.rows().max(values.len()), T::default());
            let (times, missing) = chunk.read_into(time, &fields, &mut values, fetched, &stats)?;
            if missing == 0 || T::IS_FLOAT {
                keep_values(keep, &times, &values[..times.len()], &mut kept);
            } else {
                // Which of the zeros stand for none is known to the arrays alone.
                keep_rows(keep, &part.read(&fields, fetched, &stats)?, &mut kept);
            }
        } else if let Some(rows) = stream.next(fetched)? {
            keep_rows(keep, &rows, &mut kept);
        } else {
            return Ok((kept.0.into(), kept.1));
        }
    }
}

/// Rows that are looked through at once.
const KEEP_ROWS: usize = 1024;

/// Appends the values that are kept, and their times.
fn keep_values<T: PageValue>(
    keep: &Keep,
    times: &Times,
    values: &[T],
    kept: &mut (Vec<i64>, Vec<T>),
) {
    let mut rows = [0_usize; KEEP_ROWS];
    for (place, values) in values.chunks(KEEP_ROWS).enumerate() {
        let mut count = 0;
        for (row, value) in values.iter().enumerate() {
            // Written whether it stays or not: a branch that nobody can foresee costs more.
            rows[count] = row;
            count += usize::from(keep.keeps(value.to_f64()));
        }
        let rows = &rows[..count];
        kept.1.extend(rows.iter().map(|row| values[*row]));
        kept.0.extend(rows.iter().map(|row| times.at(place * KEEP_ROWS + row)));
    }
}

/// As [`keep_values`], of an array.
fn keep_rows<T: PageValue>(keep: &Keep, rows: &SensorRows, kept: &mut (Vec<i64>, Vec<T>)) {
    let Some(values) = &rows.fields[0] else { return };
    for (time, value) in rows.times.iter().zip(values.as_primitive::<T::Arrow>()) {
        if let Some(value) = value.filter(|value| keep.keeps(value.to_f64())) {
            kept.0.push(*time);
            kept.1.push(value);
        }
    }
}

/// Copies an array of `T`, and returns how many are null.
fn copy_values<T: PageValue>(values: &ArrayRef, out: &mut [T]) -> usize {
    let values = values.as_primitive::<T::Arrow>();
    out.copy_from_slice(values.values());
    let Some(nulls) = values.nulls() else { return 0 };
    out.iter_mut().enumerate().filter(|(row, _)| nulls.is_null(*row)).for_each(|(_, value)| {
        *value = T::NULL;
    });
    nulls.null_count()
}

impl Column {
    fn listed(&self) -> ScalarBuffer<i64> {
        if let [Times::Listed(times)] = &self.times[..] {
            return times.clone();
        }
        let mut all = Vec::with_capacity(self.rows);
        self.times.iter().for_each(|times| times.append_to(0..times.len(), &mut all));
        all.into()
    }
}

/// The times, if all columns have the same.
fn common_times(columns: &[Column]) -> Option<ScalarBuffer<i64>> {
    let Some((first, others)) = columns.split_first() else {
        return Some(Vec::new().into());
    };
    if others.iter().any(|column| column.rows != first.rows) {
        return None;
    }
    let times = first.listed();
    others
        .iter()
        // Chunks that are cut alike are the same without a look at single times.
        .all(|column| column.times == first.times || column.listed() == times)
        .then_some(times)
}

/// Moves columns of `rows` values together that stand `rows_max` apart.
fn compact<T: Copy>(values: &mut Vec<T>, rows_max: usize, rows: usize) {
    if rows < rows_max {
        let columns = values.len() / rows_max;
        for column in 1..columns {
            values.copy_within(column * rows_max..column * rows_max + rows, column * rows);
        }
        values.truncate(columns * rows);
    }
}
