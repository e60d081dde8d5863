//! Who writes which objects anew: several steps do so at the same time, and none takes what another has.

use std::collections::BTreeSet;

use tidefall_sync::atomic::{AtomicBool, Ordering};
use tidefall_sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidefall_types::ObjectId;

use crate::read::{LiveObject, Version};

/// The objects of a table that are being written anew.
#[derive(Debug, Default)]
pub struct Claims {
    claimed: Mutex<BTreeSet<ObjectId>>,
    /// Whether somebody did without objects that others had.
    was_refused: AtomicBool,
}

/// Some objects that nobody else writes anew or removes while it is held.
#[derive(Debug)]
pub struct Claim<'a> {
    claims: &'a Claims,
    objects: Vec<ObjectId>,
}

impl Claims {
    /// Claims objects of a table, all or none: none if one of them is claimed or is not `live` any more, which is asked while nobody else claims.
    pub(crate) fn claim(
        &self,
        objects: &[Arc<LiveObject>],
        live: impl FnOnce() -> Arc<Version>,
    ) -> Option<Claim<'_>> {
        let ids: Vec<ObjectId> = objects.iter().map(|object| object.entry.id).collect();
        let mut claimed = self.lock();
        if ids.iter().any(|object| claimed.contains(object)) {
            self.refuse();
            return None;
        }
        let live = live();
        if !objects.iter().all(|object| live.objects.have(object)) {
            // They have become others, which may be due as these were.
            self.refuse();
            return None;
        }
        claimed.extend(&ids);
        drop(claimed);
        Some(Claim { claims: self, objects: ids })
    }

    /// Whether an object is being written anew.
    pub fn has(&self, object: &LiveObject) -> bool {
        self.lock().contains(&object.entry.id)
    }

    /// Notes that somebody has left what is due to a later look.
    pub fn refuse(&self) {
        self.was_refused.store(true, Ordering::Relaxed);
    }

    /// Whether somebody has done without objects that others had since this was asked last: what was due may be due still.
    pub fn take_refused(&self) -> bool {
        self.was_refused.swap(false, Ordering::Relaxed)
    }

    /// As [`Claims::take_refused`], and it can be asked again.
    pub fn is_refused(&self) -> bool {
        self.was_refused.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<ObjectId>> {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut claimed = self.claims.lock();
        for object in &self.objects {
            claimed.remove(object);
        }
    }
}
