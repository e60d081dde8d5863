//! Who does what with the tables of a database, one at a time, and who has one of them for himself.

use tidefall_sync::atomic::{AtomicBool, Ordering};
use tidefall_sync::{
    Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

/// A turn, for as long as it is held.
pub type Turn<'a> = MutexGuard<'a, ()>;

/// Locks in the order in which they are taken; that of a table comes behind the second. docs/order.md says who waits for whom.
#[derive(Debug, Default)]
pub struct Turns {
    maintenance: Mutex<()>,
    compaction: Mutex<()>,
    flushing: Mutex<()>,
}

impl Turns {
    /// Held by whoever moves readings to the next model or tends the database: of all tables, one does.
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

/// Whether the objects of a table may be moved: many do at the same time, each for a while, or one keeps all of them from it.
#[derive(Debug, Default)]
pub struct TableLock {
    /// Where all pass, and who will be alone stands until he is: so nobody overtakes him.
    door: Mutex<()>,
    moves: RwLock<()>,
    /// Whether somebody stands there.
    is_waited_for: AtomicBool,
    /// Whether somebody who moved readings has ended for that.
    was_left: AtomicBool,
}

/// Held by whoever moves readings of a table, takes some away, or lays its objects together.
pub type Moving<'a> = RwLockReadGuard<'a, ()>;

/// Held by whoever drops a table or gives its fields other types.
pub type Alone<'a> = RwLockWriteGuard<'a, ()>;

impl TableLock {
    /// Waits for who is alone, or will be next.
    pub fn moving(&self) -> Moving<'_> {
        drop(take(&self.door));
        self.moves.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`TableLock::moving`], unless that would wait.
    pub fn try_moving(&self) -> Option<Moving<'_>> {
        if self.is_waited_for.load(Ordering::Relaxed) {
            return None;
        }
        match self.moves.try_read() {
            Ok(moving) => Some(moving),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Waits until nobody moves anything.
    pub fn alone(&self) -> Alone<'_> {
        let _door = take(&self.door);
        self.is_waited_for.store(true, Ordering::Relaxed);
        let alone = self.moves.write().unwrap_or_else(PoisonError::into_inner);
        self.is_waited_for.store(false, Ordering::Relaxed);
        alone
    }

    /// Whether somebody waits to be alone. Whoever moves much and is told so ends where he can go on later.
    pub fn is_waited_for(&self) -> bool {
        let is_waited_for = self.is_waited_for.load(Ordering::Relaxed);
        if is_waited_for {
            self.was_left.store(true, Ordering::Relaxed);
        }
        is_waited_for
    }

    /// Whether somebody has ended for that since this was asked last.
    pub fn take_left(&self) -> bool {
        self.was_left.swap(false, Ordering::Relaxed)
    }
}
