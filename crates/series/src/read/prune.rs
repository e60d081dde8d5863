//! Leaves out what cannot hold a wanted row, by block metrics.

use std::collections::VecDeque;

use tidefall_ground::search::first_behind;
use tidefall_types::{FieldId, FieldType, Result, TimeRange};

use super::near::{NearMetrics, ObjectMetrics};
use super::parts::{Part, Place};
use super::request::{Comparison, LateCondition, ReadStats, ValueCondition};
use crate::segment::metrics::{Blocks, FieldBlocks, NumberBlocks};
use crate::segment::numbers::Number;

/// Drops the parts of a sensor in which no row meets all conditions.
///
/// `near` is of the fields of the conditions. Only parts that overlap no other are looked at: a later part takes rows away from an earlier
/// one even where its own rows do not meet the conditions.
pub(crate) fn drop_parts(
    sensor: u32,
    conditions: &[ValueCondition],
    parts: &mut VecDeque<Part>,
    near: &mut NearMetrics,
    stats: &ReadStats,
) -> Result<()> {
    if conditions.is_empty() {
        return Ok(());
    }
    let mut behind = i128::MIN;
    let mut kept = VecDeque::with_capacity(parts.len());
    while let Some(part) = parts.pop_front() {
        let starts_alone = i128::from(part.time.first_ns) > behind;
        let ends_alone = parts.front().is_none_or(|next| next.time.first_ns > part.time.last_ns);
        behind = behind.max(i128::from(part.time.last_ns));
        if starts_alone && ends_alone && !may_match(sensor, conditions, &part, near)? {
            ReadStats::add(&stats.pages_pruned, 1);
        } else {
            kept.push_back(part);
        }
    }
    *parts = kept;
    Ok(())
}

/// Whether block metrics tell that no row of a part meets all conditions, of whose fields `near` is.
pub(crate) fn is_ruled_out(
    sensor: u32,
    conditions: &[LateCondition],
    part: &Part,
    near: &mut NearMetrics,
    stats: &ReadStats,
) -> Result<bool> {
    let is_ruled_out = !some_block(sensor, part, near, |fields, blocks, block| {
        conditions.iter().all(|late| {
            let field = fields.iter().position(|(id, _)| *id == late.condition.field);
            let Some(field) = field.map(|field| &blocks.fields[field]) else {
                return late.or_null;
            };
            let has_null = late.or_null && field.count[block] < blocks.rows[block];
            has_null || block_may_meet(field, block, &late.condition)
        })
    })?;
    if is_ruled_out {
        ReadStats::add(&stats.pages_pruned, 1);
    }
    Ok(is_ruled_out)
}

fn may_match(
    sensor: u32,
    conditions: &[ValueCondition],
    part: &Part,
    near: &mut NearMetrics,
) -> Result<bool> {
    some_block(sensor, part, near, |fields, blocks, block| {
        let meets = |condition: &ValueCondition| {
            let field = fields.iter().position(|(id, _)| *id == condition.field);
            field.is_some_and(|field| block_may_meet(&blocks.fields[field], block, condition))
        };
        conditions.iter().all(meets)
    })
}

/// Whether one of the blocks of a part is wanted; true for a part without metrics.
fn some_block(
    sensor: u32,
    part: &Part,
    near: &mut NearMetrics,
    is_wanted: impl Fn(&[(FieldId, FieldType)], &Blocks, usize) -> bool,
) -> Result<bool> {
    let Place::Chunk(chunk) = &part.place else { return Ok(true) };
    let segment = &chunk.object().segment;
    let ObjectMetrics { fields, block_ns, wanted, near } = near.of(chunk.object())?;
    if let Some(of_sensor) = near.find(segment, sensor, wanted)? {
        let Some(blocks) = near.frame() else { return Ok(false) };
        let mut within = blocks_within(blocks, of_sensor, &part.time, *block_ns);
        return Ok(within.any(|block| is_wanted(fields, blocks, block)));
    }
    for blocks in segment.metrics(sensor, sensor, wanted)? {
        let mut within = blocks_of(&blocks, sensor, &part.time, *block_ns);
        if within.any(|block| is_wanted(fields, &blocks, block)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The blocks of a sensor that have rows in a stretch of time.
pub(crate) fn blocks_of(
    blocks: &Blocks,
    sensor: u32,
    time: &TimeRange,
    block_ns: i64,
) -> std::ops::Range<usize> {
    let start = blocks.sensor.partition_point(|other| *other < sensor);
    let end = start + blocks.sensor[start..].partition_point(|other| *other == sensor);
    blocks_within(blocks, start..end, time, block_ns)
}

/// Those of the blocks of one sensor that have rows in a stretch of time.
pub(crate) fn blocks_within(
    blocks: &Blocks,
    of_sensor: std::ops::Range<usize>,
    time: &TimeRange,
    block_ns: i64,
) -> std::ops::Range<usize> {
    let first_block = time.first_ns.div_euclid(block_ns);
    let last_block = time.last_ns.div_euclid(block_ns);
    let first = first_behind(of_sensor.clone(), |at| blocks.block[at] < first_block);
    let behind = first_behind(of_sensor, |at| blocks.block[at] <= last_block);
    first..behind.max(first)
}

fn block_may_meet(field: &FieldBlocks, block: usize, condition: &ValueCondition) -> bool {
    if field.count[block] == 0 {
        return false;
    }
    let (min, max) = match &field.numbers {
        NumberBlocks::None => return true,
        NumberBlocks::Float(c) => (c.min[block], c.max[block]),
        NumberBlocks::Int(c) => (c.min[block].to_f64(), c.max[block].to_f64()),
        NumberBlocks::UInt(c) => (c.min[block].to_f64(), c.max[block].to_f64()),
    };
    // A block whose metrics are not exact may hold NaN, or integers that round as floats.
    !field.is_exact(block)
        || match condition.op {
            Comparison::Lt => min < condition.value,
            Comparison::LtEq => min <= condition.value,
            Comparison::Gt => max > condition.value,
            Comparison::GtEq => max >= condition.value,
            Comparison::Eq => min <= condition.value && condition.value <= max,
        }
}
