//! Calls from Python into the engine: without the interpreter's lock, and without a panic that leaves them. Such a one
//! would be no `Exception` in Python, so that hardly anybody is ready for it, and the end of the process where C calls.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;
use tidefall_types::{Error, Result};

use crate::errors::to_python;

/// What `act` gives; a panic, which is a bug, becomes an error.
///
/// What `act` has locked may be used again: all locks are taken whether a panic poisoned them or not, and a query that
/// panicked is dropped.
pub(crate) fn caught<T>(act: impl FnOnce() -> Result<T>) -> Result<T> {
    caught_as(act, |error| error)
}

/// As [`caught`], of what may also fail in Python.
pub(crate) fn caught_here<T>(act: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    caught_as(act, to_python)
}

fn caught_as<T, E>(
    act: impl FnOnce() -> std::result::Result<T, E>,
    of: impl FnOnce(Error) -> E,
) -> std::result::Result<T, E> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| Err(of(Error::of_panic(&*panic))))
}

/// Calls the engine without the interpreter's lock.
pub(crate) fn call<T: Send>(py: Python<'_>, act: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    py.detach(|| caught(act)).map_err(to_python)
}

/// As [`call`], of what takes the interpreter's lock now and then and may fail there.
pub(crate) fn call_and_look<T: Send>(
    py: Python<'_>,
    act: impl FnOnce() -> PyResult<T> + Send,
) -> PyResult<T> {
    py.detach(|| caught_here(act))
}
