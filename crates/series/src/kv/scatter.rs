//! From runs in the order of arrival to columns in the order of sensors: the work of the first
//! step of the cascade.
//!
//! 1. Count the rows of each sensor; prefix sums give each sensor its place.
//! 2. Write each row's time and values to the next free slot of its sensor. Reading is
//!    sequential; writing goes to as many streams as there are sensors.
//! 3. Texts stay where they are (`texts.rs`).
//! 4. A sensor whose times came in order (the rule) is done. Another one is sorted, and of rows
//!    with one time the latest values are kept.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, UInt32Array, make_array};
use arrow_buffer::{ArrowNativeType, Buffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use tidefall_ground::parallel::spread;
use tidefall_types::{FieldType, Result};

use super::run::Run;
use super::sort::sort_by_time;
use super::texts::Texts;
use crate::rows::{SensorRows, SeriesSet, gather, pick_latest};

/// The rows of several runs, sensor by sensor.
#[derive(Debug)]
pub(crate) struct SortedRuns {
    /// The sensors that have rows, and where these lie.
    sensors: Vec<(u32, Range<usize>)>,
    /// The rows of each sensor in the order of their writes, but for their texts.
    columns: SensorRows,
    texts: Option<Texts>,
    /// For each sensor the rows in the order of their times; none where they all came in that order.
    order: Option<Vec<u32>>,
}

/// Sorts the rows of runs, which follow each other in the order of their writes, on up to `threads` threads.
/// `types` are those of all their fields, and maybe of more.
pub(crate) fn sort_runs(
    runs: &[Arc<Run>],
    types: &[FieldType],
    threads: usize,
) -> Result<SortedRuns> {
    debug_assert!(runs.iter().all(|run| run.fields.len() <= types.len()), "fields would be lost");
    let count = runs
        .iter()
        .flat_map(|run| run.sensor.iter())
        .max()
        .map_or(0, |greatest| *greatest as usize + 1);
    let mut starts = vec![0_u32; count + 1];
    for run in runs {
        for &sensor in &run.sensor {
            starts[sensor as usize + 1] += 1;
        }
    }
    for sensor in 0..count {
        starts[sensor + 1] += starts[sensor];
    }
    let scatter = Scatter { runs, starts: &starts };
    let times = scatter.native(|run| Some(run.time.clone()));
    // Only columns that cannot be scattered directly need the rows' places.
    let mut places = None;
    let fields = types
        .iter()
        .enumerate()
        .map(|(field, ty)| match ty {
            FieldType::Text => Ok(None),
            ty => scatter.field(field, *ty, &mut places),
        })
        .collect::<Result<_>>()?;
    let ranges = starts.windows(2).map(|ends| ends[0] as usize..ends[1] as usize);
    let sensors: Vec<(u32, Range<usize>)> =
        (0..).zip(ranges).filter(|(_, range)| !range.is_empty()).collect();
    let order = order_of_times(&times, &sensors, threads)?;
    let mut texts = Texts::of(runs, types, || scatter.places_in_runs());
    if let Some(texts) = &mut texts {
        texts.set_order(order.as_deref());
    }
    Ok(SortedRuns { sensors, columns: SensorRows { times, fields }, texts, order })
}

/// The rows of each sensor ordered by their times; nothing when they are so already.
fn order_of_times(
    times: &[i64],
    sensors: &[(u32, Range<usize>)],
    threads: usize,
) -> Result<Option<Vec<u32>>> {
    let is_late = |range: &Range<usize>| !times[range.clone()].is_sorted();
    if !sensors.iter().any(|(_, range)| is_late(range)) {
        return Ok(None);
    }
    let mut order: Vec<u32> = (0..times.len() as u32).collect();
    let (mut rest, mut late) = (&mut order[..], Vec::new());
    for (_, range) in sensors {
        let (rows, behind) = rest.split_at_mut(range.len());
        rest = behind;
        late.extend(is_late(range).then_some(rows));
    }
    let sort = |rows: &mut [u32], late: &mut Vec<u32>| {
        sort_by_time(rows, times, late);
        Ok(())
    };
    spread(threads, late, sort)?;
    Ok(Some(order))
}

impl SortedRuns {
    /// Where a row of a sensor stands in the columns.
    fn row(&self, place: usize, row: usize) -> usize {
        let row = self.sensors[place].1.start + row;
        self.order.as_ref().map_or(row, |order| order[row] as usize)
    }
}

impl SeriesSet for SortedRuns {
    fn sensors(&self) -> usize {
        self.sensors.len()
    }

    fn sensor(&self, place: usize) -> u32 {
        self.sensors[place].0
    }

    fn rows(&self, place: usize) -> usize {
        self.sensors[place].1.len()
    }

    fn time(&self, place: usize, row: usize) -> i64 {
        self.columns.times[self.row(place, row)]
    }

    fn text_bytes(&self, place: usize, rows: Range<usize>) -> usize {
        let start = self.sensors[place].1.start;
        let texts = self.texts.as_ref();
        texts.map_or(0, |texts| texts.bytes(start + rows.start..start + rows.end))
    }

    fn read(&self, place: usize, rows: Range<usize>) -> Result<SensorRows> {
        let first = self.sensors[place].1.start + rows.start;
        let mut columns = self.columns.slice(first, rows.len());
        let came_in_order = match &self.order {
            None => true,
            Some(order) => {
                (first..).zip(&order[first..]).take(rows.len()).all(|(row, at)| row == *at as usize)
            }
        };
        if came_in_order && columns.times.windows(2).all(|pair| pair[0] < pair[1]) {
            if let Some(texts) = &self.texts {
                texts.put(first..first + rows.len(), &mut columns.fields)?;
            }
            return Ok(columns);
        }
        let key = |row| {
            let row = self.row(place, row);
            (self.columns.times[row], row as u32)
        };
        let keys: Vec<(i64, u32)> = rows.map(key).collect();
        let mut latest = pick_latest(&keys, &self.columns.fields)?;
        if let Some(texts) = &self.texts {
            texts.put_latest(&keys, &mut latest.fields)?;
        }
        Ok(latest)
    }
}

struct Scatter<'a> {
    runs: &'a [Arc<Run>],
    starts: &'a [u32],
}

impl Scatter<'_> {
    /// Scatters a column of numbers; a run without it leaves zeros.
    fn native<T: ArrowNativeType>(
        &self,
        column: impl Fn(&Run) -> Option<ScalarBuffer<T>>,
    ) -> ScalarBuffer<T> {
        let mut next = self.starts.to_vec();
        let rows = next.last().map_or(0, |rows| *rows as usize);
        let mut out = vec![T::default(); rows];
        for run in self.runs {
            match column(run) {
                Some(values) => {
                    for (&sensor, &value) in run.sensor.iter().zip(&values) {
                        let slot = &mut next[sensor as usize];
                        out[*slot as usize] = value;
                        *slot += 1;
                    }
                }
                None => {
                    for &sensor in &run.sensor {
                        next[sensor as usize] += 1;
                    }
                }
            }
        }
        out.into()
    }

    fn field(
        &self,
        field: usize,
        ty: FieldType,
        places: &mut Option<UInt32Array>,
    ) -> Result<Option<ArrayRef>> {
        let columns = || self.runs.iter().map(|run| run.field(field));
        if columns().all(|column| column.is_none()) {
            return Ok(None);
        }
        let is_plain = columns().all(|column| column.is_some_and(|c| c.null_count() == 0));
        if is_plain && let Some(values) = self.plain(field, ty) {
            return Ok(Some(values));
        }
        let arrow = ty.arrow();
        let parts: Vec<ArrayRef> = self
            .runs
            .iter()
            .map(|run| match run.field(field) {
                Some(column) => Arc::clone(column),
                None => arrow_array::new_null_array(&arrow, run.rows()),
            })
            .collect();
        let parts: Vec<&dyn Array> = parts.iter().map(|part| &**part).collect();
        let all =
            arrow_select::concat::concat(&parts).map_err(tidefall_ground::kept::arrow_error)?;
        let places = places.get_or_insert_with(|| self.places());
        gather(&all, places).map(Some)
    }

    /// A numeric column without nulls.
    fn plain(&self, field: usize, ty: FieldType) -> Option<ArrayRef> {
        let buffer: Buffer = match ty.width_bytes() {
            _ if matches!(ty, FieldType::Bool | FieldType::Text) => return None,
            1 => self.native(|run| native_values::<u8>(run, field)).into_inner(),
            2 => self.native(|run| native_values::<u16>(run, field)).into_inner(),
            4 => self.native(|run| native_values::<u32>(run, field)).into_inner(),
            _ => self.native(|run| native_values::<u64>(run, field)).into_inner(),
        };
        let arrow: DataType = ty.arrow();
        let rows = buffer.len() / ty.width_bytes();
        ArrayData::builder(arrow).len(rows).add_buffer(buffer).build().ok().map(make_array)
    }

    /// For each slot the run and the row that belong there.
    fn places_in_runs(&self) -> Vec<(u32, u32)> {
        let mut next = self.starts.to_vec();
        let mut places = vec![(0, 0); next.last().map_or(0, |rows| *rows as usize)];
        for (number, run) in (0..).zip(self.runs) {
            for (row, &sensor) in (0..).zip(&run.sensor) {
                places[next[sensor as usize] as usize] = (number, row);
                next[sensor as usize] += 1;
            }
        }
        places
    }

    /// For each slot the row that belongs there, counted through the runs.
    fn places(&self) -> UInt32Array {
        let mut next = self.starts.to_vec();
        let mut places = vec![0_u32; next.last().map_or(0, |rows| *rows as usize)];
        let sensors = self.runs.iter().flat_map(|run| run.sensor.iter());
        for (row, &sensor) in sensors.enumerate() {
            places[next[sensor as usize] as usize] = row as u32;
            next[sensor as usize] += 1;
        }
        places.into()
    }
}

/// The values of a fixed-width column as unsigned integers of its width.
fn native_values<T: ArrowNativeType>(run: &Run, field: usize) -> Option<ScalarBuffer<T>> {
    let data = run.field(field)?.to_data();
    let values = data.buffers().first()?.clone();
    Some(ScalarBuffer::new(values, data.offset(), data.len()))
}
