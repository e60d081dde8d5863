//! Steps: whatever may write. A database that closes takes no more of them and waits for those that are under
//! way, so that nothing is written once its lock is given back.

use tidefall_sync::{Condvar, Mutex, MutexGuard, PoisonError};
use tidefall_types::{Error, Result};

/// The steps that are under way.
#[derive(Debug, Default)]
pub struct Steps {
    inner: Mutex<Inner>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    running: usize,
    is_closing: bool,
}

/// The right to write, for as long as it is held.
#[derive(Debug)]
pub struct Step<'a> {
    steps: &'a Steps,
}

impl Steps {
    /// Begins a step.
    ///
    /// # Errors
    /// `Closed` when the database is closed, or closes.
    pub fn begin(&self) -> Result<Step<'_>> {
        let mut inner = self.lock();
        if inner.is_closing {
            return Err(closed());
        }
        inner.running += 1;
        Ok(Step { steps: self })
    }

    /// Whether a step may go on with something that takes long or waits: not when the database closes.
    ///
    /// # Errors
    /// `Closed` then.
    pub fn check(&self) -> Result<()> {
        if self.lock().is_closing { Err(closed()) } else { Ok(()) }
    }

    /// Refuses steps from now on.
    pub fn refuse(&self) {
        self.lock().is_closing = true;
    }

    /// Waits until no step is under way.
    pub fn wait(&self) {
        let mut inner = self.lock();
        while inner.running > 0 {
            inner = self.ended.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.steps.lock().running -= 1;
        self.steps.ended.notify_all();
    }
}

fn closed() -> Error {
    Error::closed("the database is closed; open it again")
}
