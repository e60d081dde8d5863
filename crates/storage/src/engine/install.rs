//! From objects that a step has written to what the manifest names and readers see.

use tidefall_types::{ErrorKind, Result};

use super::Engine;
use crate::manifest::log::ManifestLog;
use crate::manifest::{Edit, State};
use crate::table::{Live, Table};
use crate::written::Written;

impl Engine {
    /// Commits edits that name what was written. Objects stay when nobody knows whether they are named, and go when there was no
    /// room for the names, or when nobody has tried to name them because an earlier commit has failed.
    pub(super) fn commit_written(&self, written: Written, edits: &[Edit]) -> Result<()> {
        let (is_named, outcome) = self.name(&mut self.manifest(), edits);
        if is_named {
            written.hand_over();
        }
        outcome
    }

    /// Commits edits that name what was written, and says whether they may name it now.
    pub(crate) fn name(
        &self,
        manifest: &mut ManifestLog<State>,
        edits: &[Edit],
    ) -> (bool, Result<()>) {
        if let Err(error) = manifest.check_open() {
            return (false, Err(error));
        }
        let outcome = self.commit(manifest, edits);
        let is_full = outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Full);
        (!is_full, outcome)
    }

    /// Commits edits of one table, for which `written` was written, and shows them to readers in one step, together
    /// with `change`.
    pub(crate) fn install(
        &self,
        table: &Table,
        written: Written,
        mut edits: Vec<Edit>,
        change: impl FnOnce(&mut Live),
    ) -> Result<()> {
        let _alone = self.install_alone();
        // What only goes needs nothing beside it, and no room for that.
        if !edits.iter().all(|edit| matches!(edit, Edit::RemoveObject(..))) {
            self.add_what_the_log_holds(&mut edits, &written)?;
        }
        self.commit_written(written, &edits)?;
        self.show(table, &self.manifest(), change);
        Ok(())
    }

    /// Shows readers which objects of a table the manifest names now, in one step, together with `change`. Whoever calls holds
    /// [`Engine::install_alone`].
    pub(crate) fn show(
        &self,
        table: &Table,
        manifest: &ManifestLog<State>,
        change: impl FnOnce(&mut Live),
    ) {
        let before = table.live().objects.clone();
        let stored = manifest.state().tables.get(&table.id);
        // One that was dropped has none.
        let following =
            stored.map(|stored| before.following(&stored.objects, |it| self.live_object(it)));
        let mut live = table.live();
        change(&mut live);
        let mut replaced = Vec::new();
        if let Some((objects, gone)) = following {
            (live.objects, replaced) = (objects, gone);
        }
        live.count_bytes();
        drop(live);
        self.graveyard.watch(&replaced);
        self.rows_left();
    }
}
