//! Rows as columns, inside of the engine.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_buffer::ScalarBuffer;
use arrow_select::take::take;
use tidefall_ground::kept::{arrow_error, keeps_too_much};
use tidefall_ground::texts::{all_text_bytes, text_bytes};
use tidefall_types::Result;

/// The readings of one sensor, ordered by time without repeats.
#[derive(Debug, Clone)]
pub struct SensorRows {
    /// Ascending, each once.
    pub times: ScalarBuffer<i64>,
    /// The fields asked for; none where all is null.
    pub fields: Vec<Option<ArrayRef>>,
}

impl SensorRows {
    /// How many rows.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// The bytes of its texts.
    pub(crate) fn text_bytes(&self) -> usize {
        all_text_bytes(&self.fields)
    }

    pub(crate) fn slice(&self, first: usize, rows: usize) -> Self {
        let fields = self.fields.iter().map(|f| f.as_ref().map(|f| f.slice(first, rows)));
        Self { times: self.times.slice(first, rows), fields: fields.collect() }
    }
}

/// Rows of many sensors in memory. Of each sensor they are ordered by time, and rows of one time by their writes.
pub(crate) trait SeriesSet: Sync {
    /// How many sensors there are; each has a place, in the order of the sensors, and at least one row.
    fn sensors(&self) -> usize;
    /// The sensor at a place.
    fn sensor(&self, place: usize) -> u32;
    /// How many rows the sensor at a place has.
    fn rows(&self, place: usize) -> usize;
    /// The time of one of them.
    fn time(&self, place: usize, row: usize) -> i64;
    /// The bytes of the texts of some of them.
    fn text_bytes(&self, place: usize, rows: Range<usize>) -> usize;
    /// Some of them, with all fields, of each time the latest values. Rows of one time must not be parted.
    fn read(&self, place: usize, rows: Range<usize>) -> Result<SensorRows>;
}

/// Columns of sensors, each ordered by time without repeats.
impl SeriesSet for Vec<(u32, SensorRows)> {
    fn sensors(&self) -> usize {
        self.len()
    }

    fn sensor(&self, place: usize) -> u32 {
        self[place].0
    }

    fn rows(&self, place: usize) -> usize {
        self[place].1.len()
    }

    fn time(&self, place: usize, row: usize) -> i64 {
        self[place].1.times[row]
    }

    fn text_bytes(&self, place: usize, rows: Range<usize>) -> usize {
        let columns = self[place].1.fields.iter().flatten();
        columns.map(|column| text_bytes(column, rows.clone())).sum()
    }

    fn read(&self, place: usize, rows: Range<usize>) -> Result<SensorRows> {
        Ok(self[place].1.slice(rows.start, rows.len()))
    }
}

/// The value of one row, without the memory of the others.
pub(crate) fn alone(column: &dyn Array, row: usize) -> Result<ArrayRef> {
    gather(column, &UInt32Array::from(vec![row as u32]))
}

/// As [`compact`], for times.
pub(crate) fn compact_times(times: ScalarBuffer<i64>) -> ScalarBuffer<i64> {
    match keeps_too_much(size_of_val(&times[..]), times.inner().capacity()) {
        true => times.to_vec().into(),
        false => times,
    }
}

/// The rows of a column at `rows`.
pub(crate) fn gather(column: &dyn Array, rows: &UInt32Array) -> Result<ArrayRef> {
    take(column, rows, None).map_err(arrow_error)
}

/// The rows of columns at `rows`, where there is a column.
pub(crate) fn gather_all(
    columns: &[Option<ArrayRef>],
    rows: &UInt32Array,
) -> Result<Vec<Option<ArrayRef>>> {
    let gathered = columns.iter().map(|column| {
        let column = column.as_ref();
        column.map(|column| gather(column, rows)).transpose()
    });
    gathered.collect()
}

/// The values at `rows`.
pub(crate) fn values_at<T: Copy, C: FromIterator<T>>(values: &[T], rows: &UInt32Array) -> C {
    rows.values().iter().map(|row| values[*row as usize]).collect()
}

/// Lays the rows of one sensor from several places together. Later parts win over earlier ones,
/// field by field: a null leaves what an earlier part says.
pub(crate) fn merge(parts: &[SensorRows]) -> Result<SensorRows> {
    if let [only] = parts {
        return Ok(only.clone());
    }
    let fields = parts.first().map_or(0, |part| part.fields.len());
    if parts.windows(2).all(|pair| pair[0].times.last() < pair[1].times.first()) {
        return concat(parts, fields);
    }
    let mut starts = Vec::with_capacity(parts.len());
    let mut keys: Vec<(i64, u32)> = Vec::with_capacity(parts.iter().map(SensorRows::len).sum());
    for part in parts {
        let start = keys.len() as u32;
        starts.push(start);
        keys.extend(part.times.iter().enumerate().map(|(row, time)| (*time, start + row as u32)));
    }
    // Rows count upwards through the parts, so equal times stay in the order of the parts.
    keys.sort_unstable();
    let columns: Vec<Option<ArrayRef>> =
        (0..fields).map(|field| concat_parts(parts, field)).collect::<Result<_>>()?;
    pick_latest(&keys, &columns)
}

/// Rows that follow each other in time, as one stretch.
fn concat(parts: &[SensorRows], fields: usize) -> Result<SensorRows> {
    let mut times = Vec::with_capacity(parts.iter().map(SensorRows::len).sum());
    parts.iter().for_each(|part| times.extend_from_slice(&part.times));
    let fields = (0..fields).map(|field| concat_parts(parts, field)).collect::<Result<_>>()?;
    Ok(SensorRows { times: times.into(), fields })
}

/// Picks one row for each time from rows ordered by time and age: for each field the latest value
/// that is not null. `keys` are times and rows of `columns`.
pub(crate) fn pick_latest(keys: &[(i64, u32)], columns: &[Option<ArrayRef>]) -> Result<SensorRows> {
    let has_repeats = keys.windows(2).any(|pair| pair[0].0 == pair[1].0);
    let mut times = Vec::with_capacity(keys.len());
    let mut last_rows = Vec::with_capacity(keys.len());
    let mut groups = Vec::new();
    for (position, (time, row)) in keys.iter().enumerate() {
        if times.last() == Some(time) {
            if let Some(last) = last_rows.last_mut() {
                *last = *row;
            }
        } else {
            if has_repeats {
                groups.push(position);
            }
            times.push(*time);
            last_rows.push(*row);
        }
    }
    groups.push(keys.len());
    let last_rows = UInt32Array::from(last_rows);
    let fields = columns
        .iter()
        .map(|column| {
            let Some(column) = column else { return Ok(None) };
            match column.nulls() {
                Some(nulls) if has_repeats => {
                    let rows = groups.windows(2).map(|group| {
                        let group = &keys[group[0]..group[1]];
                        let latest = group.iter().rev().find(|key| nulls.is_valid(key.1 as usize));
                        latest.or(group.last()).map(|key| key.1)
                    });
                    gather(column, &rows.collect::<UInt32Array>()).map(Some)
                }
                _ => gather(column, &last_rows).map(Some),
            }
        })
        .collect::<Result<_>>()?;
    Ok(SensorRows { times: times.into(), fields })
}

fn concat_parts(parts: &[SensorRows], field: usize) -> Result<Option<ArrayRef>> {
    let Some(some) = parts.iter().find_map(|part| part.fields[field].as_ref()) else {
        return Ok(None);
    };
    let columns: Vec<ArrayRef> = parts
        .iter()
        .map(|part| match &part.fields[field] {
            Some(column) => Arc::clone(column),
            None => arrow_array::new_null_array(some.data_type(), part.len()),
        })
        .collect();
    let columns: Vec<&dyn Array> = columns.iter().map(|column| &**column).collect();
    arrow_select::concat::concat(&columns).map(Some).map_err(arrow_error)
}
