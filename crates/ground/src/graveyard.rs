//! Objects that are no part of the database any more.
//!
//! They stay for a while: read-only processes that know an older manifest may be reading them, and so may
//! snapshots of this process. The manifest remembers since when, so that they stay as long, and no longer, also
//! when the database is closed and opened again meanwhile.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use crate::manifest::GRAVE_NS;

/// Who reads the database in other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elsewhere {
    /// Nobody does.
    Nobody,
    /// Somebody may.
    Anybody,
}

/// What stands for an object while somebody reads it.
pub type Watched = dyn Any + Send + Sync;

fn none() -> Weak<Watched> {
    Weak::<()>::new()
}

/// The objects that were replaced and are not deleted yet, by name.
#[derive(Debug, Default)]
pub struct Graveyard {
    graves: Mutex<BTreeMap<String, Grave>>,
}

#[derive(Debug)]
struct Grave {
    since_ns: i64,
    /// Whoever reads it here.
    object: Weak<Watched>,
}

impl Graveyard {
    /// Takes in what was replaced, and when.
    pub fn bury<'a>(&self, replaced: impl IntoIterator<Item = (&'a String, &'a i64)>) {
        let mut graves = self.lock();
        for (name, &since_ns) in replaced {
            let grave = || Grave { since_ns, object: none() };
            graves.entry(name.clone()).or_insert_with(grave);
        }
    }

    /// Keeps buried objects as long as they are in use here.
    pub fn watch(&self, objects: impl IntoIterator<Item = (String, Weak<Watched>)>) {
        let mut graves = self.lock();
        for (name, object) in objects {
            if let Some(grave) = graves.get_mut(&name) {
                grave.object = object;
            }
        }
    }

    /// How many objects there are.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Whether an object of this name was replaced.
    pub fn has(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }

    /// The objects that were replaced, and that nobody reads any more: nobody here, and nobody `elsewhere` unless it was some time ago.
    /// Only those whose names come behind another, in the order of names.
    pub fn due(&self, now_ns: i64, elsewhere: Elsewhere, behind: &str) -> Vec<String> {
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
    pub fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Grave>> {
        self.graves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
