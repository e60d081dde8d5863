//! Objects that are no part of the database any more.
//!
//! They stay for a while: read-only processes that know an older manifest may be reading them, and so may
//! snapshots of this process. The manifest remembers since when, so that they stay as long, and no longer, also
//! when the database is closed and opened again meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::read::LiveObject;

/// How long objects stay after they were replaced: a read-only process has so long to read what it found when it
/// opened the database.
pub(crate) const GRAVE_NS: i64 = 60 * tidefall_types::NS_PER_SECOND;

/// The objects that were replaced and are not deleted yet, by name.
#[derive(Debug, Default)]
pub(crate) struct Graveyard {
    graves: Mutex<BTreeMap<String, Grave>>,
}

#[derive(Debug)]
struct Grave {
    since_ns: i64,
    /// Whoever reads it here.
    object: Weak<LiveObject>,
}

impl Graveyard {
    /// Takes in what was replaced, and when.
    pub(crate) fn bury(&self, replaced: &BTreeMap<String, i64>) {
        let mut graves = self.lock();
        for (name, &since_ns) in replaced {
            let grave = || Grave { since_ns, object: Weak::new() };
            graves.entry(name.clone()).or_insert_with(grave);
        }
    }

    /// Keeps buried objects as long as they are in use here.
    pub(crate) fn watch(&self, objects: &[Arc<LiveObject>]) {
        let mut graves = self.lock();
        for object in objects {
            if let Some(grave) = graves.get_mut(object.segment.name()) {
                grave.object = Arc::downgrade(object);
            }
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }

    /// The objects that were replaced some time ago and that nobody here reads any more.
    pub(crate) fn due(&self, now_ns: i64) -> Vec<String> {
        let is_due = |grave: &Grave| {
            let is_old = now_ns.saturating_sub(grave.since_ns) >= GRAVE_NS;
            is_old && grave.object.strong_count() == 0
        };
        let graves = self.lock();
        graves.iter().filter(|(_, grave)| is_due(grave)).map(|(name, _)| name.clone()).collect()
    }

    /// Forgets an object that is deleted.
    pub(crate) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Grave>> {
        self.graves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
