//! What a frame of metrics comes to, all sensors together: it answers for the frame where all of them count into one group.

use std::sync::Arc;

use tidefall_types::{FieldId, FieldType, TimeRange};

use super::accumulate::{Accumulator, Chosen};
use super::request::AggregateRequest;
use super::sums::TimedBlocks;
use crate::segment::metrics::Blocks;

/// All blocks of a frame as one, with the fields that were read, which need not answer for a field where one of them does not. Nothing where times lie too
/// far apart for that.
pub(super) fn total_of(
    blocks: &Blocks,
    fields: &[(FieldId, FieldType)],
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
    let place_of = |place: usize| blocks.fields[place].read.sums.then_some(place);
    let places: Vec<Option<usize>> = (0..fields.len()).map(place_of).collect();
    let mut all = Accumulator::new(&request, &Arc::from(fields));
    all.add_chosen(&TimedBlocks { blocks, block_ns }, &chosen, &places);
    all.into_block(|place| blocks.fields[place].are_exact())
}
