//! Work that may take long or wait for the disk, away from the threads that serve others.

use tidefall_types::{Error, Result};
use tokio::task::JoinError;

/// Runs `work` on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(lost(error)),
    }
}

/// Why there is no outcome: nothing stops such work but a panic, or the end of the program.
pub(crate) fn lost(error: JoinError) -> Error {
    match error.try_into_panic() {
        Ok(panic) => Error::of_panic(&*panic),
        Err(_) => Error::closed("the statement was cut off: the program stops"),
    }
}
