//! Parts of a question for metrics that threads answer side by side.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use tidefall_ground::parallel::threads_for;
use tidefall_types::{FieldId, FieldType, Result, TimeRange};

use super::parts::{Part, Sources};
use super::request::AggregateRequest;
use super::sensors::SensorSlice;
use super::split::{Asked, overlaps_any, split};

/// Of so many sensors for each thread, each thread takes some; fewer may be too little work, or too unequal.
const SENSORS_PER_THREAD: usize = 16;

/// A part of a question.
#[derive(Debug)]
pub(super) struct Share<'a> {
    pub(super) sensors: SensorSlice<'a>,
    /// The group of each of them; nothing where all count into group 0.
    pub(super) groups: &'a [u32],
    pub(super) time: TimeRange,
}

impl Share<'_> {
    /// The sensors, each with its group.
    pub(super) fn grouped(&self) -> impl Iterator<Item = (u32, u32)> {
        let groups = self.groups.iter().copied();
        let rest = self.sensors.len() - groups.len();
        self.sensors.clone().into_iter().zip(groups.chain(std::iter::repeat_n(0, rest)))
    }

    /// What it asks of some sensors, where its own ascend.
    pub(super) fn within(&self, known: &RangeInclusive<u32>) -> Self {
        self.at(self.sensors.places_within(known))
    }

    /// The group of all of its sensors, if they have one.
    pub(super) fn only_group(&self) -> Option<u32> {
        let first = self.groups.first().copied().unwrap_or(0);
        self.groups.iter().all(|group| *group == first).then_some(first)
    }

    fn at(&self, places: Range<usize>) -> Self {
        let groups = if self.groups.is_empty() { &[] } else { &self.groups[places.clone()] };
        Self { sensors: self.sensors.at(places), groups, time: self.time }
    }
}

/// Cuts a question into at most `threads`, whose answers together are that to the whole.
pub(super) fn shares<'a>(
    sources: &Sources,
    request: &'a AggregateRequest,
    fields: &Arc<[(FieldId, FieldType)]>,
    threads: usize,
) -> Result<Vec<Share<'a>>> {
    let all = || by_time(request, request.time, 1);
    if threads <= 1 {
        return Ok(all());
    }
    if request.sensors.len() >= threads * SENSORS_PER_THREAD {
        return Ok(by_sensors(request, threads));
    }
    if !reads_rows(sources, request)? {
        return Ok(all());
    }
    let Some((time, rows)) = rows_to_read(sources, request, fields)? else {
        return Ok(all());
    };
    Ok(by_time(request, time, threads_for(rows).min(threads)))
}

fn by_sensors(request: &AggregateRequest, threads: usize) -> Vec<Share<'_>> {
    let (all, sensors) = (whole(request, request.time), request.sensors.len());
    let step = sensors.div_ceil(threads).max(1);
    (0..sensors).step_by(step).map(|start| all.at(start..sensors.min(start + step))).collect()
}

fn whole(request: &AggregateRequest, time: TimeRange) -> Share<'_> {
    Share { sensors: request.sensors.as_slice(), groups: &request.groups, time }
}

/// Cuts the stretch of time in which rows will be read. Blocks that lie across a cut are read as rows by both sides.
fn by_time(request: &AggregateRequest, time: TimeRange, threads: usize) -> Vec<Share<'_>> {
    let span_ns = i128::from(time.last_ns) - i128::from(time.first_ns);
    let cut_ns = |cut: usize| i128::from(time.first_ns) + span_ns * cut as i128 / threads as i128;
    let share = |at: usize| {
        let (first_ns, last_ns) = (request.time.first_ns, request.time.last_ns);
        let first_ns = if at == 0 { first_ns } else { cut_ns(at) as i64 };
        // A stretch that is shorter than they are many leaves nothing to some, even before the first nanosecond.
        let last_ns =
            if at + 1 == threads { last_ns } else { i64::try_from(cut_ns(at + 1) - 1).ok()? };
        let time = TimeRange::new(first_ns, last_ns);
        (!time.is_empty()).then(|| whole(request, time))
    };
    (0..threads).filter_map(share).collect()
}

/// Whether there is something within the time of the question whose blocks do not fit its bins, or that has none: a
/// look at the objects alone.
fn reads_rows(sources: &Sources, request: &AggregateRequest) -> Result<bool> {
    if sources.runs.iter().any(|run| run.range.overlaps(&request.time)) {
        return Ok(true);
    }
    let Some(bin) = request.bin else { return Ok(false) };
    let sensors = request.sensors.as_slice();
    let objects = sources.version.objects.within(&request.time);
    let objects = objects.filter(|object| sensors.has_one_of(&object.sensors()));
    for object in objects {
        let block_ns = object.segment.block_ns()?;
        if bin.width_ns % block_ns != 0 || bin.origin_ns % block_ns != 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The time within which rows have to be read, and how many they are at most.
fn rows_to_read(
    sources: &Sources,
    request: &AggregateRequest,
    fields: &Arc<[(FieldId, FieldType)]>,
) -> Result<Option<(TimeRange, usize)>> {
    let mut found: Option<(TimeRange, usize)> = None;
    let asked = Asked { time: request.time, bin: request.bin, fields };
    for sensor in request.sensors.iter() {
        let parts = sources.parts(sensor, &request.time)?;
        let split = split(sensor, &parts, asked)?;
        let (Some(first), Some(last)) = (split.rows.first(), split.rows.last()) else { continue };
        let sensor_time = TimeRange::new(first.first_ns, last.last_ns);
        let is_read = |part: &&Part| overlaps_any(&split.rows, &part.time);
        let rows: usize =
            parts.iter().filter(is_read).map(|part| part.rows_within(&part.time)).sum();
        let (time, all_rows) = found.get_or_insert((sensor_time, 0));
        (*time, *all_rows) = (time.union(&sensor_time), *all_rows + rows);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_time_are_all_of_it_once() {
        const ENDS: [i64; 9] =
            [i64::MIN, i64::MIN + 1, i64::MIN + 5, -3, 0, 2, i64::MAX - 4, i64::MAX - 1, i64::MAX];
        let ranges =
            || ENDS.iter().flat_map(|first| ENDS.iter().map(|last| TimeRange::new(*first, *last)));
        for all in ranges().filter(|range| !range.is_empty()) {
            let request = AggregateRequest {
                sensors: vec![1].into(),
                groups: Vec::new(),
                group_count: 1,
                time: all,
                bin: None,
                fields: Vec::new(),
                deviations: false,
                extremes: false,
                ends: false,
            };
            for read in ranges().filter(|range| !range.is_empty() && all.covers(range)) {
                for threads in 1..5 {
                    let mut next = Some(all.first_ns);
                    for share in by_time(&request, read, threads) {
                        assert_eq!(next, Some(share.time.first_ns), "{read} of {all}");
                        assert!(!share.time.is_empty(), "{read} of {all}");
                        next = share.time.last_ns.checked_add(1);
                    }
                    assert_eq!(next, all.last_ns.checked_add(1), "{read} of {all}");
                }
            }
        }
    }
}
