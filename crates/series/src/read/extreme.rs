//! The least or the greatest value of a sensor, with its time.
//!
//! Metrics tell in which part of a long time it lies; only that part is read. Of values that are the same
//! the earliest counts. NaN is passed over.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use tidefall_codec::PageValue;
use tidefall_types::{FieldId, FieldType, NS_PER_DAY, Result, TimeRange};

use super::aggregate::aggregate;
use super::bin::Bin;
use super::merge::SensorStream;
use super::parts::Sources;
use super::request::{AggregateRequest, ReadStats};
use super::series::read_series;

/// Which end of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extreme {
    /// The least value.
    Lowest,
    /// The greatest value.
    Highest,
}

/// So many rows are read faster than their metrics.
const ROWS_WITHOUT_METRICS: usize = 8 << 10;
/// Into about so many parts a longer time is cut, each of them whole days: of nearly every table these
/// are whole blocks of metrics.
const PARTS: i64 = 256;

/// The extreme value of a sensor within `time`, in a field whose native type is `T`.
pub(super) fn extreme<T: PageValue>(
    sources: &Sources,
    sensor: u32,
    time: &TimeRange,
    field: (FieldId, FieldType),
    which: Extreme,
) -> Result<Option<(i64, T)>> {
    let fields: Arc<[(FieldId, FieldType)]> = Arc::new([field]);
    let stats = Arc::new(ReadStats::default());
    let stream = |time| SensorStream::new(sources, sensor, time, &fields, &stats);
    let mut within = *time;
    if stream(time)?.rows_within(time) > ROWS_WITHOUT_METRICS {
        within = narrow::<T>(sources, sensor, time, &fields, which)?.unwrap_or(within);
    }
    let series = read_series(stream(&within)?, &within)?;
    let best = best::<T>(&series.fields[0], which);
    Ok(best.map(|(row, value)| (series.time[row], value)))
}

/// The part of `time` in which the value lies, if metrics can tell.
fn narrow<T: PageValue>(
    sources: &Sources,
    sensor: u32,
    time: &TimeRange,
    fields: &Arc<[(FieldId, FieldType)]>,
    which: Extreme,
) -> Result<Option<TimeRange>> {
    let parts = sources.parts(sensor, time)?;
    let Some(first_ns) = parts.iter().map(|part| part.time.first_ns).min() else { return Ok(None) };
    let last_ns = parts.iter().map(|part| part.time.last_ns).max().unwrap_or(first_ns);
    let Some(span_ns) = last_ns.checked_sub(first_ns) else { return Ok(None) };
    let days = (span_ns / PARTS / NS_PER_DAY).max(1);
    let bin = Bin { width_ns: days.saturating_mul(NS_PER_DAY), origin_ns: 0 };
    let request = AggregateRequest {
        sensors: vec![sensor].into(),
        groups: vec![0],
        group_count: 1,
        time: *time,
        bin: Some(bin),
        fields: vec![fields[0].0],
        deviations: false,
        extremes: true,
        ends: true,
    };
    let found = aggregate(sources, &request, fields, 1, &Arc::new(ReadStats::default()))?;
    let metrics = &found.fields[0];
    let values = match which {
        Extreme::Lowest => &metrics.min,
        Extreme::Highest => &metrics.max,
    };
    // NaN counts as greatest there, and hides what is below it.
    if values.as_primitive::<T::Arrow>().iter().flatten().any(is_nan) {
        return Ok(None);
    }
    Ok(best::<T>(values, which).map(|(line, _)| {
        let start_ns = found.bin_start_ns[line];
        TimeRange::new(start_ns, start_ns.saturating_add(bin.width_ns - 1)).intersect(time)
    }))
}

/// The first of the extreme values of an array, and its place.
fn best<T: PageValue>(values: &ArrayRef, which: Extreme) -> Option<(usize, T)> {
    let values = values.as_primitive::<T::Arrow>();
    let is_better = |value: T, best: T| match which {
        Extreme::Lowest => value < best,
        Extreme::Highest => value > best,
    };
    let mut best: Option<(usize, T)> = None;
    for (row, &value) in values.values().iter().enumerate() {
        let is_first = best.is_none_or(|(_, best)| is_better(value, best));
        if is_first && !is_nan(value) && values.is_valid(row) {
            best = Some((row, value));
        }
    }
    best
}

fn is_nan<T: PageValue>(value: T) -> bool {
    value.partial_cmp(&value).is_none()
}
