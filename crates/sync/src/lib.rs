//! Locks, atomics, threads and instants, as the engine uses them.
//!
//! They are those of the standard library. With `--cfg tidefall_shuttle` they are models of the crate `shuttle`, which runs all threads of a test
//! on one, chooses before each lock and each atomic operation whose turn it is, and can choose so again (docs/testing.md). What it lacks is in `model.rs`.

#[cfg(tidefall_shuttle)]
mod model;

#[cfg(tidefall_shuttle)]
pub use model::*;
#[cfg(tidefall_shuttle)]
pub use shuttle;
pub use std::sync::{Arc, PoisonError, TryLockError, Weak};
#[cfg(not(tidefall_shuttle))]
pub use std::{
    sync::{
        Condvar, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic,
        mpsc,
    },
    thread,
    time::Instant,
};
