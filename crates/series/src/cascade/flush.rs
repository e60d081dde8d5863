//! From memory to objects: the step that empties the key-value model's memory and lets the log be
//! cut.

use std::sync::Arc;

use tidefall_ground::manifest::series::Edit::AddObject;
use tidefall_ground::manifest::series::Model;
use tidefall_ground::manifest::{Edit, Flushed};
use tidefall_ground::memory::Memory;
use tidefall_ground::options::CascadeReport;
use tidefall_sync::atomic::Ordering;
use tidefall_types::{FieldType, Result, Seq, TimeRange};

use super::boundaries::Boundaries;
use super::series::{Span, days_of, extent_within, within, write_series};
use crate::context::Context;
use crate::install::install;
use crate::kv::{Fact, NO_TIMES, Run, SortedRuns, Together, dense_runs, sort_runs};
use crate::read::{Deletes, Version};
use crate::rows::SeriesSet;
use crate::table::Table;

/// Which rows a flush takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// Those that have come of age.
    Due,
    /// Those that have not: late ones stay until there are many of them.
    Young,
    /// As [`Take::Due`], to free memory for others.
    Late,
    /// All of them.
    All,
    /// All that were written before this.
    WrittenBefore(Seq),
}

/// So many late rows may stay in memory of which it is not known whether they replace others: who asks looks them up. Those that are flushed are
/// looked up at once.
const UNSETTLED_MAX: usize = if cfg!(debug_assertions) { 1 << 13 } else { 1 << 19 };
/// Rows are copied when those that stay beside them are more than one of so many.
const COPIED_SHARE: usize = 4;
/// Rows that came late are scattered when they lie in so many days or more, ...
const SCATTERED_SPANS: usize = 3;
/// ... with fewer rows for each sensor of a day.
const SCATTERED_ROWS: usize = 256;
/// Rows that are far behind all others have no run file of their own if there are fewer. Tests, which run with assertions, have fewer.
const TAIL_ROWS_MIN: usize = if cfg!(debug_assertions) { 16 } else { 1024 };
/// Their times reach so many times as far as those of the others.
const TAIL_SPANS: i128 = 4;
/// Rows of which the times are looked at to find them.
const SAMPLE_ROWS: usize = 4096;

/// Writes rows of a table that are in memory to objects.
///
/// # Errors
/// `Io` and `Full` from the disk, and those of the commit; the rows stay in memory then.
pub fn flush(
    context: &Context,
    table: &Arc<Table>,
    boundaries: &Boundaries,
    take: Take,
) -> Result<CascadeReport> {
    let mut report = CascadeReport::default();
    let mut sources = {
        let mut live = table.live();
        live.seal()?;
        table.sources_of(&live)
    };
    if boundaries.kv_ns < i64::MAX {
        table.kv_ns.store(boundaries.kv_ns, Ordering::Relaxed);
    }
    if let Take::WrittenBefore(seq) = take {
        sources.runs.retain(|run| run.last_seq < seq);
    }
    let is_late = |run: &Arc<Run>| run.range.last_ns < boundaries.kv_ns;
    if take == Take::Late
        && let Some(last) = sources.runs.iter().rposition(is_late)
    {
        // What earlier flushes have left. Runs behind it, which have young rows as well, are divided when these are flushed: it
        // would be a copy of all of them, and writers wait.
        sources.runs.truncate(last + 1);
    }
    let all = sources.runs.clone();
    let times = Flushed {
        before_ns: if matches!(take, Take::Due | Take::Late) { boundaries.kv_ns } else { i64::MAX },
        from_ns: if take == Take::Young { boundaries.kv_ns } else { i64::MIN },
        upto: Seq::default(),
    };
    let is_due = |run: &Arc<Run>| match take {
        Take::Due | Take::Late => run.range.first_ns < times.before_ns,
        Take::Young => run.range.last_ns >= times.from_ns,
        Take::All | Take::WrittenBefore(_) => true,
    };
    if !all.iter().any(is_due) {
        return Ok(report);
    }
    let unsettled = all.iter().map(|run| run.unsettled_rows(&TimeRange::ALL)).sum::<usize>();
    let range = if unsettled < UNSETTLED_MAX { times.range() } else { TimeRange::ALL };
    sources.settle(&range, context.ground.threads());
    drop(sources);
    let mut rest = all;
    while !rest.is_empty() {
        let behind = rest.split_off(runs_together(&context.ground.memory, &rest));
        // They go as they are written, before the next ones are sorted.
        let batch = std::mem::replace(&mut rest, behind);
        let Some(upto) = batch.iter().any(is_due).then(|| batch.last()).flatten() else { continue };
        let flushed = Flushed { upto: upto.last_seq, ..times };
        let spans = |rows: &Taken<'_>| spans(rows, boundaries, take);
        report += flush_batch(context, table, &batch, spans, flushed)?;
        if take == Take::Young && context.ground.memory.blocked().is_none() {
            // What has come last makes a larger object with what comes next.
            break;
        }
    }
    Ok(report)
}

/// The number of runs, from the first on, that one flush takes: as many as stay within their share of memory, as they are and as the
/// columns that will be made of them.
fn runs_together(memory: &Memory, runs: &[Arc<Run>]) -> usize {
    let share = memory.flush_bytes();
    let (mut bytes, mut together) = (0, Together::default());
    let fitting = runs.iter().take_while(|run| {
        bytes += run.size_bytes;
        together.add(run);
        bytes.max(together.bytes()) <= share
    });
    fitting.count().max(1)
}

/// The rows that a flush takes.
struct Taken<'a> {
    /// These, and maybe some of other times.
    series: &'a SortedRuns,
    /// All of their times.
    time: TimeRange,
    /// Rows of other times came late.
    in_order: TimeRange,
}

fn flush_batch(
    context: &Context,
    table: &Arc<Table>,
    batch: &[Arc<Run>],
    spans: impl FnOnce(&Taken<'_>) -> Result<Vec<Span>>,
    flushed: Flushed,
) -> Result<CascadeReport> {
    // Read behind the runs: it has every field that they have. A write may add fields meanwhile, which they
    // do not have.
    let Version { schema, deletes, .. } = table.version().with_objects([]);
    let types: Vec<FieldType> = schema.fields.iter().map(|field| field.ty).collect();
    let Divided { taken, kept, rows_dropped } = divide(batch, &deletes, &flushed)?;
    let range = flushed.range();
    let facts = taken.iter().filter(|run| !run.is_distinct(&range));
    let facts: Vec<Fact> = facts.flat_map(|run| run.late.facts().cloned()).collect();
    let in_order = taken.iter().map(|run| run.late.in_order.intersect(&range));
    let in_order = in_order.filter(|times| !times.is_empty());
    let in_order = in_order.reduce(|all, more| all.union(&more)).unwrap_or(NO_TIMES);
    let series = sort_runs(&taken, &types, context.ground.threads())?;
    drop(taken);
    let spans = match extent_within(&series, &range) {
        Some(time) => spans(&Taken { series: &series, time, in_order })?,
        None => Vec::new(),
    };
    let written = context.ground.written();
    let mut outputs =
        write_series(context, table, &schema, &series, &spans, flushed.upto, &written)?;
    drop(series);
    for entry in &mut outputs {
        entry.last_delete = deletes.last_seq();
        entry.is_distinct = Fact::are_new(&facts, &entry.time);
    }
    let mut report = CascadeReport { rows_dropped, ..CascadeReport::default() };
    for output in &outputs {
        report.steps += 1;
        report.rows += output.rows;
        report.bytes += output.bytes;
    }
    let mut edits: Vec<Edit> =
        outputs.iter().map(|entry| AddObject(table.id, entry.clone()).into()).collect();
    edits.push(Edit::Flushed(table.id, flushed));
    let bytes = |runs: &[Arc<Run>]| runs.iter().map(|run| run.size_bytes).sum::<usize>();
    let freed_bytes = bytes(batch).saturating_sub(bytes(&kept));
    install(context, table, written, edits, |live| live.replace_runs(batch, kept))?;
    context.ground.worked.flushed(freed_bytes, report.bytes);
    Ok(report)
}

/// What becomes of the rows of some runs.
struct Divided {
    /// Runs with all rows that are flushed, and maybe some of other times.
    taken: Vec<Arc<Run>>,
    /// Runs of all others.
    kept: Vec<Arc<Run>>,
    /// Rows that had been deleted.
    rows_dropped: u64,
}

fn divide(batch: &[Arc<Run>], deletes: &Deletes, flushed: &Flushed) -> Result<Divided> {
    let (mut taken, mut kept) = (Vec::with_capacity(batch.len()), Vec::new());
    let mut rows_dropped = 0;
    for run in batch {
        let unknown = run.unsettled_rows(&flushed.range());
        debug_assert_eq!(unknown, 0, "rows are taken of which nothing is known");
        let left = without_deleted(run, deletes)?;
        rows_dropped += (run.rows() - left.as_ref().map_or(0, |left| left.rows())) as u64;
        let Some(left) = left else { continue };
        if flushed.has_time(left.range.first_ns) && flushed.has_time(left.range.last_ns) {
            taken.push(left);
            continue;
        }
        if !flushed.overlaps(&left.range) {
            kept.push(left);
            continue;
        }
        let rows_kept = left.rows_where(|_, time| !flushed.has_time(time));
        if rows_kept.len() * COPIED_SHARE <= left.rows() {
            // They are passed over where the objects are written: that takes less than a copy of all others.
            taken.push(Arc::clone(&left));
        } else {
            let rows_taken = left.rows_where(|_, time| flushed.has_time(time));
            taken.extend(left.of_kept(rows_taken)?.map(Arc::new));
        }
        kept.extend(left.of_kept(rows_kept)?.map(Arc::new));
    }
    if flushed.from_ns != i64::MIN {
        kept = together(kept);
    }
    Ok(Divided { taken, kept, rows_dropped })
}

/// The objects to write of some rows.
fn spans(taken: &Taken<'_>, boundaries: &Boundaries, take: Take) -> Result<Vec<Span>> {
    let Taken { series, time, in_order } = taken;
    let time = *time;
    let spans = boundaries.spans(&time, |short| Ok(days_of(*series, short)))?;
    let rows: usize = (0..series.sensors()).map(|place| within(*series, place, &time).len()).sum();
    let chunks = series.sensors() * spans.len();
    // A few rows of each sensor for each of many days are one run file, which moves with others of its kind.
    let is_scattered = spans.len() >= SCATTERED_SPANS && rows < SCATTERED_ROWS * chunks;
    if take == Take::Late && is_scattered {
        return Ok(vec![Span { model: Model::Kv, time, is_late: true }]);
    }
    let mut apart = Vec::with_capacity(spans.len() + 1);
    for (model, mut time) in spans {
        if model == Model::Kv
            && let Some(end_ns) = end_of_tail(series, &time)
        {
            let tail = TimeRange::new(time.first_ns, end_ns - 1);
            apart.push(Span { model, time: tail, is_late: true });
            time.first_ns = end_ns;
        }
        let is_late = model != Model::Kv && !time.overlaps(in_order);
        apart.push(Span { model, time, is_late });
    }
    Ok(apart)
}

/// Where the few rows end that lie far behind all others in time, if they are many enough for a run file of their own: beside the others, which are of the
/// time that has just passed, each later row of their time would have to be looked up in it.
fn end_of_tail(series: &SortedRuns, time: &TimeRange) -> Option<i64> {
    let rows_of = |place| within(series, place, time);
    let rows: usize = (0..series.sensors()).map(|place| rows_of(place).len()).sum();
    let (step, mut next) = (rows.div_ceil(SAMPLE_ROWS).max(1), 0);
    let mut sample = Vec::with_capacity(SAMPLE_ROWS);
    for place in 0..series.sensors() {
        let rows = rows_of(place);
        while next < rows.len() {
            sample.push(series.time(place, rows.start + next));
            next += step;
        }
        next -= rows.len();
    }
    sample.sort_unstable();
    let (low, high) = (*sample.get(sample.len() / 4)?, *sample.get(sample.len() * 19 / 20)?);
    // The rows that are not late are rather evenly spread, and a quarter of them begins no further before the rest.
    let end_ns = low.saturating_sub(high.saturating_sub(low));
    let length = |first_ns: i64, end_ns: i64| i128::from(end_ns) - i128::from(first_ns);
    let is_far = length(time.first_ns, end_ns) > TAIL_SPANS * length(end_ns, high);
    let tail = TimeRange::new(time.first_ns, end_ns.saturating_sub(1));
    let rows = (0..series.sensors()).map(|place| within(series, place, &tail).len());
    (is_far && rows.sum::<usize>() >= TAIL_ROWS_MIN).then_some(end_ns)
}

/// What stays of some runs as few: a few rows of each do. What was deleted between them is not in them any more. Neighbours of different
/// fields stay apart, as they would take more memory than what has left it.
fn together(kept: Vec<Arc<Run>>) -> Vec<Arc<Run>> {
    let mut together = Vec::new();
    let mut rest = &kept[..];
    while !rest.is_empty() {
        let (dense, behind) = rest.split_at(dense_runs(rest));
        match dense {
            [alone] => together.push(Arc::clone(alone)),
            several => match Run::concat(several) {
                Ok(run) => together.push(Arc::new(run)),
                Err(error) => {
                    // They can be read as they are.
                    tracing::warn!(%error, "rows in memory stay apart");
                    together.extend_from_slice(several);
                }
            },
        }
        rest = behind;
    }
    together
}

fn without_deleted(run: &Arc<Run>, deletes: &Deletes) -> Result<Option<Arc<Run>>> {
    let later = deletes.within(run.range).filter(|delete| delete.seq > run.last_seq);
    let hiding: Deletes = later.cloned().collect();
    if hiding.len() == 0 {
        return Ok(Some(Arc::clone(run)));
    }
    let is_hidden = |sensor: u32, time: i64| {
        hiding.within(TimeRange::new(time, time)).any(|delete| delete.hides(sensor))
    };
    let left = run.rows_where(|sensor, time| !is_hidden(sensor, time));
    Ok(run.of_kept(left)?.map(Arc::new))
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Float64Array};

    use super::*;

    /// Runs of a field each, as one, had all fields in all rows. One that has many fields keeps no others apart.
    #[test]
    fn what_stays_is_one_run_only_where_that_is_no_larger() {
        const ROWS: usize = 30;
        let run = |seq: usize, field: usize| {
            let mut fields: Vec<Option<ArrayRef>> = vec![None; field + 1];
            fields[field] = Some(Arc::new(Float64Array::from(vec![1.5; ROWS])));
            let seq = Seq(seq as u64);
            let sensors = vec![0; ROWS].into();
            Arc::new(Run::new((seq, seq), sensors, (0..ROWS as i64).collect(), fields))
        };
        let bytes = |runs: &[Arc<Run>]| runs.iter().map(|run| run.size_bytes).sum::<usize>();
        let apart: Vec<_> = (0..400).map(|seq| run(seq, seq)).collect();
        let kept = together(apart.clone());
        assert!(bytes(&kept) <= bytes(&apart) * 5 / 4, "{} of {}", bytes(&kept), bytes(&apart));
        let kept = together((0..400).map(|seq| run(seq, 0)).collect());
        assert_eq!(kept.iter().map(|run| run.rows()).collect::<Vec<_>>(), [400 * ROWS]);
        let wide = |seq| if seq == 200 { 500 } else { 0 };
        let kept = together((0..400).map(|seq| run(seq, wide(seq))).collect());
        let rows: Vec<usize> = kept.iter().map(|run| run.rows()).collect();
        assert!(rows.len() <= 4 && rows.iter().sum::<usize>() == 400 * ROWS, "{rows:?}");
        assert!(kept.is_sorted_by_key(|run| run.last_seq));
    }
}
