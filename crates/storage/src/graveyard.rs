//! Objects that are no part of the database any more.
//!
//! They stay for a while: read-only processes that know an older manifest may be reading them, and so may
//! snapshots of this process. The manifest remembers since when, so that they stay as long, and no longer, also
//! when the database is closed and opened again meanwhile.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::manifest::GRAVE_NS;
use crate::read::LiveObject;

/// Who reads the database in other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    Nobody,
    Anybody,
}

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
    pub(crate) fn bury<'a>(&self, replaced: impl IntoIterator<Item = (&'a String, &'a i64)>) {
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

    /// How many objects there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }

    /// The objects that were replaced, and that nobody reads any more: nobody here, and nobody `elsewhere` unless it was some time ago.
    /// Only those whose names come behind another, in the order of names.
    pub(crate) fn due(&self, now_ns: i64, elsewhere: Elsewhere, behind: &str) -> Vec<String> {
        let is_due = |grave: &Grave| {
            let is_old = now_ns.saturating_sub(grave.since_ns) >= GRAVE_NS;
            (is_old || elsewhere == Elsewhere::Nobody) && grave.object.strong_count() == 0
        };
        let graves = self.lock();
        let behind = (Bound::Excluded(behind), Bound::Unbounded);
        graves
            .range::<str, _>(behind)
            .filter(|(_, grave)| is_due(grave))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Forgets an object that is deleted.
    pub(crate) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Grave>> {
        self.graves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
