//! What is done for a table by itself, besides what each write does.

use tidefall_ground::manifest::Edit;
use tidefall_ground::options::CascadeReport;
use tidefall_types::Result;

use crate::compact::{apply_deletes, drop_hidden, due_since_ns, rewrite_alone};
use crate::context::Context;
use crate::deletes::Delete;
use crate::flush::flush;
use crate::install::show;
use crate::retention::Old;
use crate::table::Table;

/// Boxes of deletes beyond which what they hide is taken out: each question looks at all of them.
const DELETED_BOXES_MAX: usize = 64;

/// Takes away what is too old, and what deletes hide: by the clock segments of which all is hidden, and where deletes have many boxes all of it. For somebody who asks rows in
/// memory are written to segments before, and all is taken out. Whoever calls holds the turn of maintenance and the lock of the table.
///
/// # Errors
/// The first one.
pub fn tend(context: &Context, table: &Table, asked: Asked) -> Result<CascadeReport> {
    table.check_whole()?;
    context.ground.steps.check()?;
    let mut report = CascadeReport::default();
    if asked == Asked::BySomebody {
        let _flushing = context.ground.turns.flush();
        report += flush(context, table)?;
    }
    report += drop_hidden(context, table)?;
    report += cut_old(context, table)?;
    if asked == Asked::BySomebody || table.version().deletes.boxes() > DELETED_BOXES_MAX {
        report += apply_deletes(context, table)?;
    }
    Ok(report)
}

/// Writes segments that reach far over the limit of age anew without what is too old.
fn cut_old(context: &Context, table: &Table) -> Result<CascadeReport> {
    let mut all = CascadeReport::default();
    let version = table.version();
    let Some(old) = Old::of(&version.schema, context.ground.now_ns()) else { return Ok(all) };
    for segment in version.segments.iter().filter(|segment| old.cuts(segment)) {
        context.ground.steps.check()?;
        if table.lock.is_waited_for() {
            table.claims.refuse();
            break;
        }
        all += rewrite_alone(context, table, segment)?;
    }
    Ok(all)
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
