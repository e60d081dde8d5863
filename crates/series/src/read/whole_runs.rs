//! Runs in memory that are answered for as a whole.

use std::sync::Arc;

use tidefall_types::{FieldId, FieldType};

use super::parts::Sources;
use super::request::AggregateRequest;
use crate::kv::Run;
use crate::segment::metrics::{Blocks, FieldBlocks};

/// The blocks of the total of a run: one for all times from 1970 on.
pub(super) const TOTAL_NS: i64 = i64::MAX;

/// Runs in memory that are answered for as a whole, and what is left: where all sensors count into one group and nothing has the same
/// readings twice, their rows need not be told apart.
pub(super) fn of_whole_runs(
    sources: &Sources,
    request: &AggregateRequest,
    fields: &Arc<[(FieldId, FieldType)]>,
) -> (Vec<(u64, Blocks)>, Sources) {
    let (mut totals, mut rest) = (Vec::new(), sources.clone());
    let group = request.groups.first();
    let is_one_group = request.groups.iter().all(|other| Some(other) == group);
    if request.bin.is_some() || !is_one_group || !sources.are_distinct(&request.time) {
        return (totals, rest);
    }
    let sensors = request.sensors.as_slice();
    rest.runs.retain(|run| {
        let takes_all = request.time.covers(&run.range)
            && sensors.is_sorted()
            && sensors.has_all_of(&run.sensors)
            && !sources.version.deletes.within(run.range).any(|delete| delete.seq > run.last_seq);
        let is_ordered = || !request.ends || run.is_ordered_by_time();
        let total = if takes_all && is_ordered() { total(run, fields) } else { None };
        let is_left = total.is_none();
        totals.extend(total.map(|total| (run.rows() as u64, total)));
        is_left
    });
    (totals, rest)
}

/// All rows of a run as one block, with times from 1970 and blocks of [`TOTAL_NS`], if the numbers of these fields answer for them. Its ends
/// are those of rows that came in the order of their times.
fn total(run: &Run, fields: &[(FieldId, FieldType)]) -> Option<Blocks> {
    let is_one_block = run.range.first_ns >= 0 && run.range.last_ns < TOTAL_NS;
    if !is_one_block {
        return None;
    }
    let mut all = Blocks::new(&[]);
    all.append_rows(0, &run.time, &[], TOTAL_NS);
    for (id, ty) in fields {
        let of_field = run.known_of(*id, || {
            let mut blocks = Blocks::new(&[*ty]);
            blocks.append_rows(0, &run.time, &[run.field(id.index()).cloned()], TOTAL_NS);
            blocks.fields.remove(0)
        });
        if !of_field.are_exact() {
            return None;
        }
        all.fields.push(FieldBlocks::clone(&of_field));
    }
    Some(all)
}
