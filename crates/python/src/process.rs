//! What belongs to the process that made it.

use std::process;

use tidefall_types::{Error, Result};

/// Something that only the process that made it uses and drops. One that is forked off has a copy of its
/// memory but not its threads, and shares its open files.
pub(crate) struct Owned<T> {
    process: u32,
    // None while it is dropped.
    value: Option<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: process::id(), value: Some(value) }
    }

    /// # Errors
    /// `Closed` in another process.
    pub(crate) fn get(&self) -> Result<&T> {
        self.check()?;
        self.value.as_ref().ok_or_else(|| Error::closed("it is closed"))
    }

    /// # Errors
    /// `Closed` in another process.
    pub(crate) fn get_mut(&mut self) -> Result<&mut T> {
        self.check()?;
        self.value.as_mut().ok_or_else(|| Error::closed("it is closed"))
    }

    fn check(&self) -> Result<()> {
        if self.process == process::id() {
            return Ok(());
        }
        Err(Error::closed(format!(
            "this database was opened in process {}; open it again in this one, after closing it \
             there, or use a server",
            self.process
        )))
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.check().is_err() {
            // To drop it would wait for threads that do not exist here.
            std::mem::forget(self.value.take());
        }
    }
}
