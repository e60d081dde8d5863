//! Who does what with the tables of a database, one at a time.

use tidefall_sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A turn, for as long as it is held.
pub type Turn<'a> = MutexGuard<'a, ()>;

/// Locks in the order in which they are taken. docs/order.md says who waits for whom.
#[derive(Debug, Default)]
pub struct Turns {
    maintenance: Mutex<()>,
    compaction: Mutex<()>,
    flushing: Mutex<()>,
}

impl Turns {
    /// Held by whoever moves readings to the next model, tends the database, drops a table or gives fields other types.
    pub fn maintain(&self) -> Turn<'_> {
        take(&self.maintenance)
    }

    /// As [`Turns::maintain`], if nobody does.
    pub fn try_to_maintain(&self) -> Option<Turn<'_>> {
        match self.maintenance.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Held by whoever lays run files or parts of a day together, a group at a time, and by whoever wants nobody to.
    pub fn compact(&self) -> Turn<'_> {
        take(&self.compaction)
    }

    /// Held by whoever takes rows out of memory, or puts objects where no such rows may come between. It goes on while the database closes.
    pub fn flush(&self) -> Turn<'_> {
        take(&self.flushing)
    }
}

fn take(turns: &Mutex<()>) -> Turn<'_> {
    turns.lock().unwrap_or_else(PoisonError::into_inner)
}
