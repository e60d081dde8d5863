//! From segments that a step has written to what the manifest names and readers see.

use std::sync::Arc;

use tidefall_ground::Ground;
use tidefall_ground::manifest::log::ManifestLog;
use tidefall_ground::manifest::{Edit, State};
use tidefall_ground::written::Written;
use tidefall_types::Result;

use crate::context::Context;
use crate::table::{Live, Table};
use crate::version::{LiveSegment, Version};

/// Commits edits of one table, for which `written` was written, and shows them to readers in one step, together
/// with `change`.
///
/// # Errors
/// Those of [`Ground::commit`].
pub(crate) fn install(
    context: &Context,
    table: &Table,
    written: Written,
    mut edits: Vec<Edit>,
    change: impl FnOnce(&mut Live),
) -> Result<()> {
    let ground = &context.ground;
    let _alone = ground.install_alone();
    // What only goes needs nothing beside it, and no room for that.
    if !edits.iter().all(|edit| matches!(edit, Edit::RemoveObject(..))) {
        table.add_what_the_log_holds(ground, &mut edits);
    }
    let mut manifest = ground.manifest();
    ground.commit_written(&mut manifest, written, &edits)?;
    show(context, table, &manifest, change)
}

/// Shows readers what the manifest says of a table now, in one step, together with `change`. Whoever calls has held the manifest since
/// the commit, or somebody else might have shown it without the change.
///
/// # Errors
/// `Corrupt` when a delete is damaged, which none is that the table has brought there.
pub fn show(
    context: &Context,
    table: &Table,
    manifest: &ManifestLog<State>,
    change: impl FnOnce(&mut Live),
) -> Result<()> {
    let state = manifest.state();
    let Some(stored) = state.records(table.id) else {
        // It was dropped.
        change(&mut table.live());
        return Ok(());
    };
    let open = |entry: &_| context.live_segment(entry);
    let following = |version: &Version| {
        let next = version.following(stored, state.wal_from, open);
        // What is in the manifest and not shown here must not be built on.
        next.inspect_err(|error| context.ground.failure.set(error))
    };
    let before = table.version();
    let mut next = following(&before)?;
    let mut live = table.live();
    let now = table.version();
    if !Arc::ptr_eq(&now, &before) {
        // A delete has come. Nothing else comes while the manifest is held.
        next = following(&now)?;
    }
    change(&mut live);
    let (version, replaced) = next;
    table.change_version(&mut live, |shown| *shown = version);
    drop(live);
    watch(&context.ground, &replaced);
    context.ground.memory.rows_left();
    Ok(())
}

/// Lets go of all that a table has, which is no part of the database any more.
pub fn forget(ground: &Ground, table: &Table) {
    let mut live = table.live();
    live.drop_all();
    let mut segments = Arc::default();
    table.change_version(&mut live, |version| std::mem::swap(&mut version.segments, &mut segments));
    drop(live);
    watch(ground, &segments);
    ground.memory.rows_left();
}

/// Keeps segments that were replaced as long as somebody reads them here.
fn watch(ground: &Ground, segments: &[Arc<LiveSegment>]) {
    let watched =
        |segment: &Arc<LiveSegment>| (segment.segment.name().to_owned(), segment.reader());
    ground.obsolete.watch(segments.iter().map(watched));
}

impl Table {
    /// Adds edits that make new deletes durable outside of the log.
    pub fn add_what_the_log_holds(&self, ground: &Ground, edits: &mut Vec<Edit>) {
        if self.damage.is_some() {
            return;
        }
        let deletes = Arc::clone(&self.version().deletes);
        let manifest = ground.manifest();
        let Some((state, _)) = manifest.state().records(self.id) else { return };
        let new = deletes.iter().filter(|delete| !state.has_delete(delete.seq));
        edits.extend(new.map(|delete| Edit::AddTombstone(self.id, delete.to_stored())));
    }
}
