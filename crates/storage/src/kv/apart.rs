//! What late rows were held against.

use std::sync::{Mutex, PoisonError};

use hashbrown::HashMap;
use tidefall_types::ObjectId;

use super::RunId;

/// A place with readings that never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PlaceId {
    Run(RunId),
    Object(ObjectId),
}

/// Places that are remembered at most.
const KNOWN_MAX: usize = 1024;

/// With which places some late rows share a reading, as far as anybody has looked.
#[derive(Debug, Default)]
pub(crate) struct Apart(Mutex<HashMap<PlaceId, bool>>);

impl Apart {
    /// Whether no reading is shared with a place; nothing where nobody has looked.
    pub(crate) fn is_apart(&self, place: PlaceId) -> Option<bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&place).copied()
    }

    /// Notes what somebody has seen.
    pub(crate) fn note(&self, place: PlaceId, is_apart: bool) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            // Most of them are gone, as places come and go.
            known.clear();
        }
        known.insert(place, is_apart);
    }
}
