//! Segments that are left as they are until somebody asks for it: those that could not be read when they were to become others, and those that became no
//! fewer.

use std::collections::BTreeSet;

use tidefall_sync::{Mutex, MutexGuard, PoisonError};
use tidefall_types::{Error, ErrorKind, ObjectId};

use crate::version::LiveSegment;

/// The segments of a table that are left as they are.
#[derive(Debug, Default)]
pub struct Failed(Mutex<Segments>);

#[derive(Debug, Default)]
struct Segments {
    damaged: BTreeSet<ObjectId>,
    /// These are laid together with no others.
    no_fewer: BTreeSet<ObjectId>,
}

impl Failed {
    /// Tries all of them again: somebody asks for it, who may have put a file back.
    pub fn forget(&self) {
        *self.lock() = Segments::default();
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
        named.is_some_and(|segment| self.lock().damaged.insert(segment.entry.id))
    }

    /// Lays segments together with no others, which would become as many others again.
    pub(crate) fn leave(&self, segments: impl IntoIterator<Item = ObjectId>) {
        self.lock().no_fewer.extend(segments);
    }

    /// Whether a segment cannot be read.
    pub(crate) fn has(&self, segment: &LiveSegment) -> bool {
        self.lock().damaged.contains(&segment.entry.id)
    }

    /// Whether a segment is laid together with no others.
    pub(crate) fn keeps_apart(&self, segment: &LiveSegment) -> bool {
        let (all, id) = (self.lock(), &segment.entry.id);
        all.damaged.contains(id) || all.no_fewer.contains(id)
    }

    fn lock(&self) -> MutexGuard<'_, Segments> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
