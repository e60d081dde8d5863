//! Why a database takes no more writes.

use tidefall_store::SyncFailure;
use tidefall_sync::{Arc, OnceLock};
use tidefall_types::{Error, ErrorKind};

/// Why a database takes no more writes, if it does not: something could not be made durable, or nobody knows what is in it. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Failure {
    disk: SyncFailure,
    other: Arc<OnceLock<Error>>,
}

impl Failure {
    /// That of a database on a disk that may fail.
    pub fn of(disk: SyncFailure) -> Self {
        Self { disk, other: Arc::default() }
    }

    /// What every write gets.
    pub fn get(&self) -> Option<Error> {
        self.other.get().cloned().or_else(|| self.disk.get())
    }

    /// Makes all further writes fail; but a full disk does not, which leaves nothing half done.
    pub fn set(&self, error: &Error) {
        if error.kind() == ErrorKind::Full {
            return;
        }
        self.other.get_or_init(|| {
            Error::closed(format!(
                "no more writes after a failure; open the database again: {error}"
            ))
        });
    }
}
