//! Which log goes with a manifest, and how a writer begins.
//!
//! Sensors have numbers that the records of the log use, and the manifest says which writes are in objects. So a log means something only
//! behind the manifest of its own database, and behind no other writer. Where the log lies beside its objects the directory says so. A log that lies apart has a
//! number (a file `wal/{number}.id`), another one after each open, and the manifest has that of its last writer; 0 stands for the log beside the objects.
//!
//! 1. A log goes with the manifest if one of its numbers is there. Another one has to be without records, and the last one *spent*: closed
//!    in order when nothing in it was needed any more. Otherwise the open is refused, unless [`MissingLog::GiveUp`] tells it to do without the last one.
//! 2. What can fail is done: manifest, log and tables are read.
//! 3. The log gets a new number, durably.
//! 4. The manifest takes that number with the commit by which the writer begins. It fails if another writer has begun meanwhile.
//! 5. The earlier numbers go.
//!
//! A crash before 4 leaves the earlier number in the log and in the manifest, one behind it the new one in both: the same log is opened again
//! either way, and until 4 so is the one before. Copies of a log part ways when the first of them is opened, unless a full disk keeps it from
//! getting another number. Where log and objects lie in one place, the commit and
//! the number are left out: opening changes nothing in the manifest then, and works on a full disk.

use std::sync::Arc;

use tidefall_ground::manifest::log::ManifestLog;
use tidefall_ground::manifest::{Edit, State};
use tidefall_ground::options::MissingLog;
use tidefall_ground::wal;
use tidefall_store::{Disk, names};
use tidefall_types::{Error, ErrorKind, Result};

use crate::recovery::{is_logged, seq_behind};

/// Where a log lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogPlace {
    /// Beside the objects.
    Together,
    /// On a disk of its own.
    Apart,
}

/// A writer that may begin.
#[derive(Debug)]
pub(crate) struct Beginning {
    place: LogPlace,
    /// The number of the log in the manifest, if it is this one.
    known: Option<u32>,
    edits: Vec<Edit>,
}

impl Beginning {
    /// Checks that the log on a disk may go with a manifest. Changes nothing.
    ///
    /// # Errors
    /// `Conflict` when another one does. `Io` and `Full` when the log cannot be read now.
    pub(crate) fn check(
        disk: &Arc<dyn Disk>,
        place: LogPlace,
        manifest: &ManifestLog<State>,
        missing: MissingLog,
    ) -> Result<Self> {
        let state = manifest.state();
        let last = state.writers.last_log();
        if manifest.version() == 0 || (place == LogPlace::Together && last == 0) {
            return Ok(Self { place, known: Some(0), edits: Vec::new() });
        }
        if wal::ids(&**disk)?.contains(&last) {
            return Ok(Self { place, known: Some(last), edits: Vec::new() });
        }
        if is_logged(disk)? {
            return Err(another_log(
                last,
                "this one has records, which may mean something else by now",
            ));
        }
        if !state.has_spent_log {
            match missing {
                MissingLog::Refuse => return Err(another_log(last, "this one is empty")),
                MissingLog::GiveUp => tracing::warn!("what only the last log holds is given up"),
            }
        }
        // Above all that the last one may have had.
        let from = seq_behind(state).max(state.log_end);
        let edits = if from > state.wal_from { vec![Edit::WalFrom(from)] } else { Vec::new() };
        Ok(Self { place, known: None, edits })
    }

    /// What the manifest will say when the writer has begun.
    pub(crate) fn state(&self, manifest: &ManifestLog<State>) -> State {
        let mut state = State::clone(manifest.state());
        self.edits.iter().for_each(|edit| state.apply(edit));
        state
    }

    /// Begins: no other log goes with the manifest from then on, and no earlier writer can change it.
    ///
    /// # Errors
    /// `Conflict` when another writer has begun meanwhile, and as [`ManifestLog::commit`]; the log that went with the manifest
    /// before does so still, unless the commit is there.
    pub(crate) fn begin(self, disk: &dyn Disk, manifest: &mut ManifestLog<State>) -> Result<()> {
        let log = match self.place {
            LogPlace::Together if self.known == Some(0) => return Ok(()),
            LogPlace::Together => None,
            LogPlace::Apart => Some(match wal::add_id(disk) {
                // It is opened all the same: what leaves memory makes room.
                Err(error) if error.kind() == ErrorKind::Full && self.has_id() => {
                    tracing::warn!(%error, "the log keeps its number");
                    self.known.unwrap_or_default()
                }
                id => id?,
            }),
        };
        manifest.begin(log.unwrap_or_default(), &self.edits)?;
        if let Err(error) = wal::remove_ids(disk, log) {
            tracing::warn!(%error, "earlier numbers of the log stay");
        }
        Ok(())
    }

    fn has_id(&self) -> bool {
        self.known.is_some_and(|id| id != 0)
    }
}

/// Checks that the log beside a manifest goes with it, whose `ids` were read before.
///
/// # Errors
/// `Conflict` when the log lies elsewhere. `Io` and `Full` when it cannot be read now.
pub(crate) fn check_together(disk: &Arc<dyn Disk>, state: &State, ids: &[u32]) -> Result<()> {
    let last = state.writers.last_log();
    if last == 0 || ids.contains(&last) || (state.has_spent_log && !is_logged(disk)?) {
        return Ok(());
    }
    Err(another_log(last, "this one lies beside the objects, where the last one did not"))
}

fn another_log(last: u32, why: &str) -> Error {
    let (id, dir) = (names::wal_id(last), names::WAL_DIR);
    let which = match last {
        0 => format!("which lies in {dir}/ beside the objects"),
        _ => format!("which has the file {id}"),
    };
    Error::conflict(format!(
        "this is not the log that was written last, {which} and may hold what is nowhere else; {why}. Nothing was changed. Open the database with \
         the last log; if these are its files and only {id} did not come with them, make that file, empty, beside them. If it is lost, open the \
         database with an empty log and the option missing_log (MissingLog::GiveUp), without what only the last log holds"
    ))
}
