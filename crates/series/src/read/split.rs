//! What of a sensor's time is answered by blocks, and where rows must be read.

use std::ops::Range;
use std::sync::Arc;

use tidefall_types::{FieldId, FieldType, Result, TimeRange};

use super::bin::{Bin, Bins};
use super::objects::LiveObject;
use super::parts::{Part, Place};
use super::prune::blocks_of;
use crate::segment::metrics::Blocks;
use crate::segment::wanted::Wanted;

/// What is asked of a sensor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) time: TimeRange,
    pub(super) bin: Option<Bin>,
    pub(super) fields: &'a [(FieldId, FieldType)],
}

/// Blocks that answer for their time, and the times for which rows must be read.
#[derive(Debug, Default)]
pub(super) struct Split {
    pub(super) blocks: Vec<(Arc<LiveObject>, Arc<Blocks>, Range<usize>)>,
    /// In order, without overlaps. Blocks that answer for their time have no row in them.
    pub(super) rows: Vec<TimeRange>,
}

/// Divides the time of a sensor's parts between blocks and rows.
pub(super) fn split(sensor: u32, parts: &[Part], asked: Asked<'_>) -> Result<Split> {
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
        split_object(sensor, object, parts, asked, &mut split)?;
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
    asked: Asked<'_>,
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
    let places = object.segment.places(asked.fields)?;
    let wanted = Wanted::ALL.of_places(&places, object.segment.field_count()?);
    for blocks in object.segment.metrics(sensor, sensor, &wanted)? {
        let candidates = blocks_of(&blocks, sensor, &asked.time, block_ns);
        let mut start = candidates.start;
        let mut bins = asked.bin.map(Bins::new);
        for block in candidates.clone() {
            let time = blocks.time(block, block_ns);
            let wanted_time = time.intersect(&asked.time);
            let is_whole = wanted_time == time
                && bins.as_mut().is_none_or(|bins| bins.are_together(time.first_ns, time.last_ns))
                && (foreign.is_empty() || !overlaps_any(&foreign, &time))
                && places.iter().flatten().all(|place| blocks.fields[*place].is_exact(block));
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

/// Whether some ranges, which are in order and do not overlap, have something in common with another.
pub(super) fn overlaps_any(ranges: &[TimeRange], time: &TimeRange) -> bool {
    let next = ranges.partition_point(|range| range.last_ns < time.first_ns);
    ranges.get(next).is_some_and(|range| range.overlaps(time))
}
