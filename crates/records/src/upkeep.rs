//! What is done for a table by itself, besides what each write does.

use tidefall_ground::manifest::Edit;
use tidefall_ground::options::CascadeReport;
use tidefall_types::Result;

use crate::compact::{apply_deletes, drop_hidden, due_since_ns, rewrite_each};
use crate::context::Context;
use crate::deletes::Delete;
use crate::flush::flush;
use crate::install::show;
use crate::retention::Old;
use crate::table::Table;

/// Boxes of deletes beyond which what they hide is taken out: each question looks at all of them.
const DELETED_BOXES_MAX: usize = 64;

/// Takes away what is too old, and what deletes hide: by the clock segments of which all is hidden, and where deletes have many boxes all of it. For somebody who asks, and where
/// they are too old, rows in memory are written to segments before; for somebody who asks all is taken out. Whoever calls holds the turn of maintenance and the lock of the table.
///
/// # Errors
/// The first one.
pub fn tend(context: &Context, table: &Table, asked: Asked) -> Result<CascadeReport> {
    table.check_whole()?;
    context.ground.steps.check()?;
    let mut report = CascadeReport::default();
    let old = Old::of(&table.version().schema, context.ground.now_ns());
    if asked == Asked::BySomebody || is_old_in_memory(table, old.as_ref())? {
        let _flushing = context.ground.turns.flush();
        report += flush(context, table)?;
    }
    // What cannot be done keeps nothing else from being done.
    let dropped = drop_hidden(context, table);
    let cut = old.map(|old| rewrite_each(context, table, |segment| old.cuts(&segment.bounds)));
    let is_due = asked == Asked::BySomebody || table.version().deletes.boxes() > DELETED_BOXES_MAX;
    let applied = is_due.then(|| apply_deletes(context, table));
    for done in [Some(dropped), cut, applied].into_iter().flatten() {
        report += done?;
    }
    Ok(report)
}

/// Whether rows in memory reach so far over the limit of age that they are written without what is too old.
fn is_old_in_memory(table: &Table, old: Option<&Old>) -> Result<bool> {
    let Some(old) = old else { return Ok(false) };
    let (chunks, _) = table.sources()?;
    Ok(chunks.iter().any(|chunk| old.cuts(&chunk.packed.leaves().bounds())))
}

/// Who asks for upkeep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Nobody: it is time to look.
    ByTheClock,
    /// Somebody who wants all to be in segments as they shall be.
    BySomebody,
}

/// Forgets deletes that hide nothing any more.
///
/// # Errors
/// Those of the commit.
pub fn retire_deletes(context: &Context, table: &Table) -> Result<()> {
    let ground = &context.ground;
    // A load that has its number, but is not to be seen yet, may be older than a delete that hides nothing else.
    let _flushing = ground.turns.flush();
    if table.live().is_dropped {
        return Ok(());
    }
    let _alone = ground.install_alone();
    // A delete in the log must not be forgotten before the log is cut behind it.
    let from = ground.manifest().state().wal_from;
    let version = table.version();
    // None that is earlier comes while nobody flushes.
    let in_memory = table.live().oldest_seq();
    let is_spent = |delete: &&Delete| {
        let may_hide = |segment: &crate::version::LiveSegment| {
            segment.entry.deletes_upto() < delete.seq && delete.regions.reaches(&segment.bounds)
        };
        delete.seq < from
            && in_memory.is_none_or(|seq| seq > delete.seq)
            && !version.segments.iter().any(|segment| may_hide(segment))
    };
    let spent = version.deletes.iter().filter(is_spent);
    let edits: Vec<Edit> =
        spent.map(|delete| Edit::RemoveTombstone(table.id, delete.seq)).collect();
    if edits.is_empty() {
        return Ok(());
    }
    let mut manifest = ground.manifest();
    ground.commit_written(&mut manifest, ground.written(), &edits)?;
    show(context, table, &manifest, |_| {})
}

/// For how long the oldest step of a table has been due; nothing where none is.
pub fn behind_ns(context: &Context, table: &Table) -> Option<i64> {
    let now_ns = context.ground.now_ns();
    due_since_ns(table).map(|since_ns| now_ns.saturating_sub(since_ns).max(0))
}
