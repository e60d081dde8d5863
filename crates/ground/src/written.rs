//! Objects that a step has written and that nothing names yet. When the step fails they go at once: each retry
//! would leave more of them, until the database is opened the next time.

use tidefall_store::ObjectIo;
use tidefall_sync::{Arc, Mutex, PoisonError};

/// The objects that a step has written. Dropped before they are handed over, it deletes them, unless by a panic.
#[derive(Debug)]
pub struct Written {
    io: Arc<dyn ObjectIo>,
    names: Mutex<Vec<String>>,
}

impl Written {
    /// Nothing as yet.
    pub fn new(io: &Arc<dyn ObjectIo>) -> Self {
        Self { io: Arc::clone(io), names: Mutex::new(Vec::new()) }
    }

    /// Takes note of an object that is about to be there: whoever makes it may fail when it is.
    pub fn note(&self, name: String) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).push(name);
    }

    /// The manifest names them, or nobody knows whether it does: they stay.
    pub fn hand_over(self) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // In the middle of a commit nobody knows whether they are named.
        if tidefall_sync::thread::panicking() {
            return;
        }
        let names = self.names.get_mut().unwrap_or_else(PoisonError::into_inner);
        for name in names.drain(..) {
            if let Err(error) = self.io.delete(&name) {
                tracing::warn!(%name, %error, "an object that nothing names stays until the next open");
            }
        }
    }
}
