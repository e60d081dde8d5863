//! Objects that are no part of the database any more.
//!
//! They stay for a while: read-only processes that know an older manifest may be reading them, and so may
//! snapshots of this process. The manifest remembers since when, so that they stay as long, and no longer, also
//! when the database is closed and opened again meanwhile.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Bound;

use tidefall_sync::{Mutex, MutexGuard, PoisonError, Weak};

use crate::manifest::OBSOLETE_NS;

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
pub struct ObsoleteObjects {
    objects: Mutex<BTreeMap<String, Obsolete>>,
}

#[derive(Debug)]
struct Obsolete {
    since_ns: i64,
    /// Whoever reads it here.
    reader: Weak<Watched>,
}

impl ObsoleteObjects {
    /// Takes in what was replaced, and when.
    pub fn add<'a>(&self, replaced: impl IntoIterator<Item = (&'a String, &'a i64)>) {
        let mut objects = self.lock();
        for (name, &since_ns) in replaced {
            let object = || Obsolete { since_ns, reader: none() };
            objects.entry(name.clone()).or_insert_with(object);
        }
    }

    /// Keeps obsolete objects as long as they are in use here.
    pub fn watch(&self, obsolete: impl IntoIterator<Item = (String, Weak<Watched>)>) {
        let mut objects = self.lock();
        for (name, reader) in obsolete {
            if let Some(object) = objects.get_mut(&name) {
                object.reader = reader;
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
        let is_due = |object: &mut Obsolete| {
            // A clock that was ahead must not keep it until the time comes again that it showed.
            object.since_ns = object.since_ns.min(now_ns);
            let is_old = now_ns.saturating_sub(object.since_ns) >= OBSOLETE_NS;
            (is_old || elsewhere == Elsewhere::Nobody) && object.reader.strong_count() == 0
        };
        let mut objects = self.lock();
        let behind = (Bound::Excluded(behind), Bound::Unbounded);
        objects
            .range_mut::<str, _>(behind)
            .filter_map(|(name, object)| is_due(object).then(|| name.clone()))
            .collect()
    }

    /// Forgets an object that is deleted.
    pub fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Obsolete>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that was ahead kept what was replaced meanwhile until the time came again that it had shown.
    #[test]
    fn a_clock_that_is_set_back_keeps_nothing_for_longer() {
        const YEAR_NS: i64 = 365 * 24 * 60 * 60 * 1_000_000_000;
        let objects = ObsoleteObjects::default();
        objects.add([(&"a".to_owned(), &YEAR_NS)]);
        let due = |now_ns| objects.due(now_ns, Elsewhere::Anybody, "").len();
        assert_eq!((due(YEAR_NS), due(0), due(OBSOLETE_NS - 1), due(OBSOLETE_NS)), (0, 0, 0, 1));
    }
}
