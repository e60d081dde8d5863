//! What a frame of metrics comes to, all sensors together: it answers for the frame where all of them count into one group.

use std::sync::Arc;

use tidefall_types::{FieldId, FieldType, TimeRange};

use super::accumulate::{Accumulator, Chosen};
use super::request::AggregateRequest;
use super::sums::TimedBlocks;
use crate::segment::metrics::Blocks;

/// All blocks of a frame as one, with some fields, which are at these places and of which all was read. It need not answer for
/// a field where one of them does not. Nothing where times lie too far apart for that.
pub(super) fn total_of(
    blocks: &Blocks,
    fields: &[(FieldId, FieldType)],
    places: &[usize],
    block_ns: i64,
) -> Option<Blocks> {
    let request = AggregateRequest {
        sensors: Vec::new().into(),
        groups: Vec::new(),
        group_count: 1,
        time: TimeRange::ALL,
        bin: None,
        fields: fields.iter().map(|(id, _)| *id).collect(),
        deviations: true,
        extremes: true,
        ends: true,
    };
    let chosen: Vec<Chosen> =
        (0..blocks.len() as u32).map(|block| Chosen { block, group: 0 }).collect();
    let of_blocks: Vec<Option<usize>> = places.iter().copied().map(Some).collect();
    let mut all = Accumulator::new(&request, &Arc::from(fields));
    all.add_chosen(&TimedBlocks { blocks, block_ns }, &chosen, &of_blocks);
    all.into_block(|at| blocks.fields[places[at]].are_exact())
}
