//! From runs in the order of arrival to columns in the order of sensors: the work of the first
//! step of the cascade.
//!
//! 1. Count the rows of each sensor; prefix sums give each sensor its place.
//! 2. Write each row's time and values to the next free slot of its sensor. Reading is
//!    sequential; writing goes to as many streams as there are sensors.
//! 3. A sensor whose times came in order (the rule) is done. Another one is sorted, and of rows
//!    with one time the latest values are kept.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, UInt32Array, make_array};
use arrow_buffer::{ArrowNativeType, Buffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use tidefall_types::{FieldType, Result};

use super::run::Run;
use crate::parallel::spread;
use crate::rows::{SensorRows, gather, pick_latest};

/// The rows of runs, which follow each other in the order of their writes: for each sensor those that it has,
/// ordered by time without repeats. Sensors whose times did not come in order are sorted on up to `threads`
/// threads.
pub(crate) fn sort_runs(
    runs: &[Arc<Run>],
    types: &[FieldType],
    threads: usize,
) -> Result<Vec<(u32, SensorRows)>> {
    let sensors = runs
        .iter()
        .flat_map(|run| run.sensor.iter())
        .max()
        .map_or(0, |greatest| *greatest as usize + 1);
    let mut starts = vec![0_u32; sensors + 1];
    for run in runs {
        for &sensor in &run.sensor {
            starts[sensor as usize + 1] += 1;
        }
    }
    for sensor in 0..sensors {
        starts[sensor + 1] += starts[sensor];
    }
    let scatter = Scatter { runs, starts: &starts };
    let times = scatter.native(|run| Some(run.time.clone()));
    // Only columns that cannot be scattered directly need the rows' places.
    let mut places = None;
    let fields: Vec<Option<ArrayRef>> = types
        .iter()
        .enumerate()
        .map(|(field, ty)| scatter.field(field, *ty, &mut places))
        .collect::<Result<_>>()?;
    let rows_of = |sensor: u32| {
        let (start, end) = (starts[sensor as usize] as usize, starts[sensor as usize + 1] as usize);
        let field = |field: &Option<ArrayRef>| field.as_ref().map(|f| f.slice(start, end - start));
        let times = times.slice(start, end - start);
        SensorRows { times, fields: fields.iter().map(field).collect() }
    };
    let series = (0..sensors as u32).map(|sensor| (sensor, rows_of(sensor)));
    let series = series.filter(|(_, rows)| rows.len() > 0).collect();
    spread(threads, series, |(sensor, rows), _: &mut ()| Ok((sensor, ordered(rows)?)))
}

/// Rows ordered by time without repeats, of rows in the order of their writes.
fn ordered(rows: SensorRows) -> Result<SensorRows> {
    if rows.times.windows(2).all(|pair| pair[0] < pair[1]) {
        return Ok(rows);
    }
    let mut keys: Vec<(i64, u32)> =
        rows.times.iter().enumerate().map(|(row, time)| (*time, row as u32)).collect();
    keys.sort_unstable();
    pick_latest(&keys, &rows.fields)
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
        let all = arrow_select::concat::concat(&parts).map_err(crate::rows::arrow_error)?;
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
