//! Segments that are left as they are until somebody asks for it: those that could not be read when they were to become others, and those that became no
//! fewer.

use std::collections::BTreeSet;

use tidefall_sync::{Mutex, MutexGuard, PoisonError};
use tidefall_types::{Error, ErrorKind, ObjectId};

use crate::version::LiveSegment;

/// The segments of a table that are left as they are.
#[derive(Debug, Default)]
pub struct Failed(Mutex<BTreeSet<ObjectId>>);

impl Failed {
    /// Tries all of them again: somebody asks for it, who may have put a file back.
    pub fn forget(&self) {
        self.lock().clear();
    }

    /// Notes which of some segments an error of damage names. Returns whether it is one of them.
    pub(crate) fn note<'a>(
        &self,
        segments: impl IntoIterator<Item = &'a LiveSegment>,
        error: &Error,
    ) -> bool {
        // Every error of reading a segment has its name in it.
        let is_named = |segment: &&LiveSegment| error.message().contains(segment.segment.name());
        let named =
            segments.into_iter().find(is_named).filter(|_| error.kind() == ErrorKind::Corrupt);
        named.is_some_and(|segment| self.lock().insert(segment.entry.id))
    }

    /// Leaves segments as they are, which would become as many others again.
    pub(crate) fn leave(&self, segments: impl IntoIterator<Item = ObjectId>) {
        self.lock().extend(segments);
    }

    /// Whether a segment is left as it is.
    pub(crate) fn has(&self, segment: &LiveSegment) -> bool {
        self.lock().contains(&segment.entry.id)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<ObjectId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
