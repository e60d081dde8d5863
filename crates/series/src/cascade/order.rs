//! Which objects may become one without changing which write is the later one.
//!
//! An object has one place among the writes, that of its latest. When objects written at 10 and 30
//! become one, it counts as written at 30; what an object outside wrote at 20 for the same time
//! would then lose against what was written at 10. So would rows that were written at 20 and are
//! still in memory, because they are younger than what was flushed since.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidefall_types::Seq;

use crate::kv::Run;
use crate::read::LiveObject;
use crate::table::Table;

/// What else overlaps `inputs` in time and was written between them: the first and the last number of each. What is in
/// memory leaves it by itself some time, and does not hold them up any more then.
pub(super) fn writes_between(inputs: &[Arc<LiveObject>], table: &Table) -> Vec<(Seq, Seq)> {
    let times = inputs.iter().map(|input| input.entry.time);
    let Some(time) = times.reduce(|all, more| all.union(&more)) else { return Vec::new() };
    let seqs = || inputs.iter().map(|input| input.entry.last_seq);
    let (Some(first), Some(last)) = (seqs().min(), seqs().max()) else { return Vec::new() };
    // Places that are distinct have no reading in common, whichever is the later one.
    let are_distinct = inputs.iter().all(|input| input.entry.is_distinct);
    // Objects of one flush share its number, and no reading. So one that has the first number of all is earlier than the inputs.
    let is_between = |other: &&Arc<LiveObject>| {
        let entry = &other.entry;
        first < entry.last_seq
            && entry.last_seq <= last
            && !(are_distinct && entry.is_distinct)
            && inputs.iter().all(|input| input.entry.id != entry.id)
            && inputs.iter().any(|input| input.entry.time.overlaps(&entry.time))
    };
    let live = table.live();
    let version = table.version();
    let objects = version.objects.within(&time).filter(is_between);
    let runs = live.all_runs().filter(|run| is_run_between(run, inputs));
    let objects = objects.map(|other| (other.entry.last_seq, other.entry.last_seq));
    objects.chain(runs.map(|run| (run.first_seq, run.last_seq))).collect()
}

/// The parts of a group that may each become one though some objects must stay apart: what was written before, with and after each
/// of those that share times with the group.
pub(super) fn parts_around(
    group: Vec<Arc<LiveObject>>,
    apart: &[Arc<LiveObject>],
) -> Vec<Vec<Arc<LiveObject>>> {
    let shares_times = |other: &&Arc<LiveObject>| {
        group.iter().any(|object| object.entry.time.overlaps(&other.entry.time))
    };
    let shared = apart.iter().filter(shares_times);
    let writes: Vec<_> = shared.map(|it| (it.entry.last_seq, it.entry.last_seq)).collect();
    parts_by(group, &writes)
}

/// The parts of a group before, among and behind writes, each with its first and its last number.
pub(super) fn parts_by(
    group: Vec<Arc<LiveObject>>,
    writes: &[(Seq, Seq)],
) -> Vec<Vec<Arc<LiveObject>>> {
    let mut parts: BTreeMap<(usize, bool), Vec<Arc<LiveObject>>> = BTreeMap::new();
    for object in group {
        let seq = object.entry.last_seq;
        let before = writes.iter().filter(|(_, last)| *last < seq).count();
        let is_among = writes.iter().any(|(first, last)| *first <= seq && seq <= *last);
        parts.entry((before, is_among)).or_default().push(object);
    }
    parts.into_values().collect()
}

/// The latest write among objects.
pub(super) fn last_seq(objects: &[Arc<LiveObject>]) -> Seq {
    objects.iter().map(|object| object.entry.last_seq).max().unwrap_or_default()
}

fn is_run_between(run: &Arc<Run>, inputs: &[Arc<LiveObject>]) -> bool {
    let is_earlier = |input: &Arc<LiveObject>| input.entry.last_seq <= run.last_seq;
    let is_later = |input: &Arc<LiveObject>| input.entry.last_seq >= run.first_seq;
    inputs.iter().any(is_earlier)
        && inputs.iter().any(is_later)
        && inputs.iter().any(|input| input.entry.time.overlaps(&run.range))
}
