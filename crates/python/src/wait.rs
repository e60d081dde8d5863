//! Waiting for queries.

use std::pin::pin;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// How often it is asked whether Ctrl+C was pressed: people notice no delay, and the interpreter's lock
/// is rarely taken.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// Runs `work` to its end, without the interpreter's lock but for a look at its signals.
///
/// # Errors
/// What a handler of signals raises, such as `KeyboardInterrupt`; the work is dropped then.
pub(crate) fn wait<T>(runtime: &Runtime, work: impl Future<Output = T>) -> PyResult<T> {
    let mut work = pin!(work);
    loop {
        match runtime.block_on(async { timeout(SIGNALS_EVERY, work.as_mut()).await }) {
            Ok(done) => return Ok(done),
            Err(_) => Python::attach(|py| py.check_signals())?,
        }
    }
}
