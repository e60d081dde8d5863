//! Calls from Python into the engine: without the interpreter's lock, and without a panic that leaves them. Such a one
//! would be no `Exception` in Python, so that hardly anybody is ready for it, and the end of the process where C calls.

use pyo3::prelude::*;
use tidefall_types::{Result, caught};

use crate::errors::to_python;

/// As [`caught`], of what may also fail in Python.
pub(crate) fn caught_here<T>(act: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    caught(|| Ok(act())).map_err(to_python)?
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
