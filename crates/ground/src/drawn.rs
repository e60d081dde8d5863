//! Numbers by chance, which tell apart what was made at different times and places.

use std::hash::{BuildHasher, RandomState};

use tidefall_sync::Instant;

/// A number by chance, which is never that of nobody. The seeds of the standard library are alike in processes that were forked from one.
pub(crate) fn draw() -> u32 {
    (RandomState::new().hash_one((std::process::id(), Instant::now())) as u32).max(1)
}
