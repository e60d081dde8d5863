//! The compiled part of the Python package `tidefall`.
//!
//! What is large crosses without a detour: numbers as buffers that numpy views (`array.rs`), tables as
//! batches by Arrow's C interface (`stream.rs`). The classes that people use are in `tidefall/*.py`, and
//! turn these into data frames. Nothing here holds the interpreter's lock while it reads or writes.

mod array;
mod calls;
mod database;
mod errors;
mod process;
mod stream;
mod values;
mod wait;
mod write;

use std::ffi::OsString;

use pyo3::prelude::*;

// Answers are large, short-lived buffers of similar sizes. This allocator keeps their memory for the next one;
// that of the system gives it back each time, and taking it again page by page is slower than decoding.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs a command line, whose first part is the program's name; returns the status to exit with.
#[pyfunction]
fn command(py: Python<'_>, line: Vec<OsString>) -> u8 {
    py.detach(|| tidefall_cli::run(line))
}

#[pymodule]
fn _tidefall(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<array::Array>()?;
    module.add_class::<database::Database>()?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<stream::Batch>()?;
    module.add_function(wrap_pyfunction!(command, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    errors::add_to(module)
}
