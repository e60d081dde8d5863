//! The compiled part of the Python package `tidefall`.
//!
//! What is large crosses without a detour: numbers as buffers that numpy views (`array.rs`), tables as
//! batches by Arrow's C interface (`stream.rs`). The classes that people use are in `tidefall/*.py`, and
//! turn these into data frames. Nothing here holds the interpreter's lock while it reads or writes.

mod array;
mod database;
mod errors;
mod question;
mod stream;

use pyo3::prelude::*;

// Answers are large, short-lived buffers of similar sizes. This allocator keeps their memory for the next one;
// that of the system gives it back each time, and taking it again page by page is slower than decoding.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[pymodule]
fn _tidefall(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<array::Array>()?;
    module.add_class::<database::Database>()?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<stream::Batch>()?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    errors::add_to(module)
}
