//! Objects that could not be read when they were to become others. They stay as they are until something changes.

use std::collections::BTreeMap;

use tidefall_sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidefall_types::{Error, ErrorKind, ObjectId};

use crate::read::LiveObject;

/// The objects of a table that could not be read, and why.
#[derive(Debug, Default)]
pub struct Failed(Mutex<BTreeMap<ObjectId, Error>>);

impl Failed {
    /// Tries all of them again: somebody asks for it, who may have put a file back.
    pub fn forget(&self) {
        self.lock().clear();
    }

    /// Tries those again that a disk may read when it is well. What is damaged once stays so.
    pub(crate) fn forget_passing(&self) {
        self.lock().retain(|_, error| error.kind() == ErrorKind::Corrupt);
    }

    /// Notes which of some objects an error names. Returns whether it is one of them.
    pub(crate) fn note(&self, objects: &[Arc<LiveObject>], error: &Error) -> bool {
        // Every error of reading an object has the object's name in it.
        let is_named = |object: &&Arc<LiveObject>| error.message().contains(object.segment.name());
        let named = objects.iter().find(is_named);
        named.is_some_and(|object| self.lock().insert(object.entry.id, error.clone()).is_none())
    }

    /// Whether an object could not be read.
    pub(crate) fn has(&self, object: &LiveObject) -> bool {
        self.error(object).is_some()
    }

    pub(crate) fn error(&self, object: &LiveObject) -> Option<Error> {
        self.lock().get(&object.entry.id).cloned()
    }

    /// Of some objects those that could not be read; the others are forgotten.
    pub(crate) fn among(&self, objects: &[Arc<LiveObject>]) -> Vec<Arc<LiveObject>> {
        let mut failed = self.lock();
        failed.retain(|id, _| objects.iter().any(|object| object.entry.id == *id));
        let has_failed = |object: &&Arc<LiveObject>| failed.contains_key(&object.entry.id);
        objects.iter().filter(has_failed).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectId, Error>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
