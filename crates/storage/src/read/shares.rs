//! Parts of a question for metrics that threads answer side by side.

use std::sync::Arc;

use tidefall_types::{FieldId, FieldType, Result, TimeRange};

use super::aggregate::{in_order, overlaps_any, split};
use super::parts::{Part, Sources};
use super::request::AggregateRequest;
use crate::parallel::threads_for;

/// Of so many sensors for each thread, each thread takes some; fewer may be too little work, or too unequal.
const SENSORS_PER_THREAD: usize = 16;

/// Cuts a question into at most `threads`, whose answers together are that to the whole; into none where one thread is
/// enough.
pub(super) fn shares(
    sources: &Sources,
    request: &AggregateRequest,
    fields: &Arc<[(FieldId, FieldType)]>,
    threads: usize,
) -> Result<Vec<AggregateRequest>> {
    if threads <= 1 {
        return Ok(Vec::new());
    }
    if request.sensors.len() >= threads * SENSORS_PER_THREAD {
        return Ok(by_sensors(request, threads));
    }
    if !reads_rows(sources, request)? {
        return Ok(Vec::new());
    }
    let Some((time, rows)) = rows_to_read(sources, request, fields)? else {
        return Ok(Vec::new());
    };
    Ok(match threads_for(rows).min(threads) {
        ..=1 => Vec::new(),
        threads => by_time(request, time, threads),
    })
}

fn by_sensors(request: &AggregateRequest, threads: usize) -> Vec<AggregateRequest> {
    let sensors = in_order(request);
    let of = |share: &[(u32, u32)]| AggregateRequest {
        sensors: share.iter().map(|(sensor, _)| *sensor).collect(),
        groups: share.iter().map(|(_, group)| *group).collect(),
        fields: request.fields.clone(),
        ..*request
    };
    sensors.chunks(sensors.len().div_ceil(threads)).map(of).collect()
}

/// Cuts the stretch of time in which rows will be read. Blocks that lie across a cut are read as rows by both sides.
fn by_time(request: &AggregateRequest, time: TimeRange, threads: usize) -> Vec<AggregateRequest> {
    let span_ns = i128::from(time.last_ns) - i128::from(time.first_ns);
    let cut_ns = |cut: usize| {
        let offset_ns = span_ns * cut as i128 / threads as i128;
        (i128::from(time.first_ns) + offset_ns) as i64
    };
    let share = |at: usize| {
        let first_ns = if at == 0 { request.time.first_ns } else { cut_ns(at) };
        let last_ns = if at + 1 == threads { request.time.last_ns } else { cut_ns(at + 1) - 1 };
        AggregateRequest { time: TimeRange::new(first_ns, last_ns), ..request.clone() }
    };
    (0..threads).map(share).collect()
}

/// Whether there is something within the time of the question whose blocks do not fit its bins, or that has none: a
/// look at the objects alone.
fn reads_rows(sources: &Sources, request: &AggregateRequest) -> Result<bool> {
    if sources.runs.iter().any(|run| run.range.overlaps(&request.time)) {
        return Ok(true);
    }
    let Some(bin) = request.bin else { return Ok(false) };
    let objects = sources.objects.iter().filter(|object| {
        object.entry.time.overlaps(&request.time) && object.may_have_one_of(&request.sensors)
    });
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
    for sensor in &request.sensors {
        let parts = sources.parts(*sensor, &request.time)?;
        let split = split(*sensor, &parts, request, fields)?;
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
