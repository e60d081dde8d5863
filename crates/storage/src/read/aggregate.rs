//! Metrics for a question: from block metrics where a block lies whole in a bin and nothing else
//! speaks for its time, from rows at the ragged edges.

use std::ops::Range;
use std::sync::Arc;

use tidefall_types::{FieldId, FieldType, Result, TimeRange};

use super::accumulate::Accumulator;
use super::bin::Bins;
use super::fetch::Fetched;
use super::merge::SensorStream;
use super::parts::{LiveObject, Part, Place, Sources, Wanted};
use super::prune::blocks_of;
use super::request::{AggregateRequest, AggregateResult, ReadStats};
use crate::segment::metrics::Blocks;

/// What an aggregate will read, found from the index alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AggregatePlan {
    /// Blocks that are answered from their metrics.
    pub blocks_from_metrics: u64,
    /// Pages that will be decoded.
    pub pages: u64,
    /// Rows that will be taken from the key-value model in memory.
    pub rows_from_memory: u64,
}

/// Blocks that answer for their time, and the times for which rows must be read.
#[derive(Debug, Default)]
pub(crate) struct Split {
    pub(crate) blocks: Vec<(Arc<LiveObject>, Arc<Blocks>, Range<usize>)>,
    /// In order, without overlaps. Blocks that answer for their time have no row in them.
    pub(crate) rows: Vec<TimeRange>,
}

/// Answers a request.
pub(crate) fn aggregate(
    sources: &Sources,
    request: &AggregateRequest,
    fields: &Arc<[(FieldId, FieldType)]>,
    stats: &Arc<ReadStats>,
) -> Result<AggregateResult> {
    sources.open(&request.sensors, &request.time, Wanted::Metrics)?;
    let mut accumulator = Accumulator::new(request, fields);
    let mut fetched = Fetched::default();
    for (&sensor, &group) in request.sensors.iter().zip(&request.groups) {
        let parts = sources.parts(sensor, &request.time)?;
        if parts.is_empty() {
            continue;
        }
        let split = split(sensor, &parts, request, fields)?;
        accumulator.reserve(split.blocks.iter().map(|(.., range)| range.len()).sum());
        for (object, blocks, range) in &split.blocks {
            ReadStats::add(&stats.blocks_from_metrics, range.len() as u64);
            let held = object.segment.fields()?;
            accumulator.add_blocks(group, blocks, range.clone(), &held, object.segment.block_ns()?);
        }
        for range in &split.rows {
            let mut stream = SensorStream::new(sources, sensor, range, fields, stats)?;
            while let Some(rows) = stream.next(&mut fetched)? {
                ReadStats::add(&stats.rows, rows.len() as u64);
                accumulator.add_rows(group, sensor, &rows);
            }
        }
    }
    accumulator.finish()
}

/// What [`aggregate`] would do.
pub(crate) fn plan(
    sources: &Sources,
    request: &AggregateRequest,
    fields: &Arc<[(FieldId, FieldType)]>,
) -> Result<AggregatePlan> {
    let mut plan = AggregatePlan::default();
    for &sensor in &request.sensors {
        let parts = sources.parts(sensor, &request.time)?;
        let split = split(sensor, &parts, request, fields)?;
        plan.blocks_from_metrics += split.blocks.iter().map(|b| b.2.len() as u64).sum::<u64>();
        let is_read = |part: &&Part| split.rows.iter().any(|rows| rows.overlaps(&part.time));
        for part in parts.iter().filter(is_read) {
            match &part.place {
                Place::Run(_, place) => plan.rows_from_memory += place.len() as u64,
                Place::Chunk(placed) => {
                    let held = placed.object().segment.fields()?;
                    let chunk = placed.meta();
                    plan.pages += u64::from(!chunk.time_page().is_empty());
                    plan.pages += fields
                        .iter()
                        .filter_map(|(id, _)| held.iter().position(|(other, _)| other == id))
                        .filter(|place| !chunk.field_page(*place).is_empty())
                        .count() as u64;
                }
            }
        }
    }
    Ok(plan)
}

/// Divides the time of a sensor's parts between blocks and rows.
fn split(
    sensor: u32,
    parts: &[Part],
    request: &AggregateRequest,
    fields: &Arc<[(FieldId, FieldType)]>,
) -> Result<Split> {
    let mut split = Split::default();
    let mut objects: Vec<&Arc<LiveObject>> = Vec::new();
    for part in parts {
        match &part.place {
            Place::Run(..) => split.rows.push(part.time),
            Place::Chunk(chunk) => {
                if objects.iter().all(|other| !Arc::ptr_eq(other, chunk.object())) {
                    objects.push(chunk.object());
                }
            }
        }
    }
    for object in objects {
        split_object(sensor, object, parts, request, fields, &mut split)?;
    }
    split.rows = join(std::mem::take(&mut split.rows));
    Ok(split)
}

/// The times at which others than `object` have rows of the sensor, or at which deletes hide
/// rows of `object`: in order, without overlaps.
fn foreign_times(parts: &[Part], object: &Arc<LiveObject>) -> Vec<TimeRange> {
    let mut foreign = Vec::new();
    for part in parts {
        match part.is_of(object) {
            true => foreign.extend_from_slice(&part.hidden),
            false => foreign.push(part.time),
        }
    }
    join(foreign)
}

/// What some ranges, which are in order and do not overlap, have in common with another.
fn shared<'a>(ranges: &'a [TimeRange], time: &'a TimeRange) -> impl Iterator<Item = TimeRange> {
    let first = ranges.partition_point(|range| range.last_ns < time.first_ns);
    let near = ranges[first..].iter().take_while(|range| range.first_ns <= time.last_ns);
    near.map(|range| range.intersect(time))
}

fn join(mut ranges: Vec<TimeRange>) -> Vec<TimeRange> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.first_ns);
    let mut joined: Vec<TimeRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.first_ns <= last.last_ns.saturating_add(1) => {
                last.last_ns = last.last_ns.max(range.last_ns);
            }
            _ => joined.push(range),
        }
    }
    joined
}

fn split_object(
    sensor: u32,
    object: &Arc<LiveObject>,
    parts: &[Part],
    request: &AggregateRequest,
    fields: &Arc<[(FieldId, FieldType)]>,
    split: &mut Split,
) -> Result<()> {
    let foreign = foreign_times(parts, object);
    // When the object has rows. Its chunks may have gaps, in which others have rows: a block that reaches over such
    // a gap must not have it read, as blocks of others within it answer for themselves.
    let mut own: Option<Vec<TimeRange>> = None;
    let own_times = || {
        let of_object = parts.iter().filter(|part| part.is_of(object));
        of_object.map(|part| part.time).collect::<Vec<TimeRange>>()
    };
    let block_ns = object.segment.block_ns()?;
    let held = object.segment.fields()?;
    let wanted: Vec<usize> = fields
        .iter()
        .filter_map(|(id, _)| held.iter().position(|(other, _)| other == id))
        .collect();
    for blocks in object.segment.metrics(sensor, sensor)? {
        let candidates = blocks_of(&blocks, sensor, &request.time, block_ns);
        let mut start = candidates.start;
        let mut bins = request.bin.map(Bins::new);
        for block in candidates.clone() {
            let time = block_time(&blocks, block, block_ns);
            let wanted_time = time.intersect(&request.time);
            let is_whole = wanted_time == time
                && bins.as_mut().is_none_or(|bins| bins.are_together(time.first_ns, time.last_ns))
                && (foreign.is_empty() || !overlaps_any(&foreign, &time))
                && wanted.iter().all(|field| blocks.fields[*field].is_exact(block));
            if !is_whole {
                if start < block {
                    split.blocks.push((Arc::clone(object), Arc::clone(&blocks), start..block));
                }
                start = block + 1;
                split.rows.extend(shared(own.get_or_insert_with(own_times), &wanted_time));
            }
        }
        if start < candidates.end {
            split.blocks.push((Arc::clone(object), Arc::clone(&blocks), start..candidates.end));
        }
    }
    Ok(())
}

/// The first and the last time of a block's rows.
pub(crate) fn block_time(blocks: &Blocks, block: usize, block_ns: i64) -> TimeRange {
    // The start may lie before the first nanosecond of time; where the rows lie is right all the same, as
    // all is counted modulo 2^64.
    let start = blocks.block[block].wrapping_mul(block_ns);
    let at = |offset: i64| start.wrapping_add(offset);
    TimeRange::new(at(blocks.first_offset_ns[block]), at(blocks.last_offset_ns[block]))
}

fn overlaps_any(ranges: &[TimeRange], time: &TimeRange) -> bool {
    let next = ranges.partition_point(|range| range.last_ns < time.first_ns);
    ranges.get(next).is_some_and(|range| range.overlaps(time))
}

#[cfg(test)]
mod tests;
