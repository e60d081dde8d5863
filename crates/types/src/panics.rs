//! Panics of code that others wait for.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Error, Result};

/// What `act` gives; a panic, which is a bug, becomes an error, so that whoever waits for the outcome gets one.
///
/// What `act` has locked may be used again: all locks are taken whether a panic poisoned them or not, and what
/// they guard is either changed by calls that do not panic half-way or is not used after one.
///
/// # Errors
/// Those of `act`; `Internal` for a panic.
pub fn caught<T>(act: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| Err(Error::of_panic(&*panic)))
}
