//! Who writes which objects anew: several steps do so at the same time, and none takes what another has.

use std::collections::BTreeSet;

use tidefall_sync::atomic::{AtomicBool, Ordering};
use tidefall_sync::{Mutex, MutexGuard, PoisonError};
use tidefall_types::ObjectId;

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
    /// Claims objects of a table, all or none: none if one of them is claimed, or if they are not all live any more, which is asked while nobody else
    /// claims.
    pub fn claim(
        &self,
        objects: Vec<ObjectId>,
        are_live: impl FnOnce() -> bool,
    ) -> Option<Claim<'_>> {
        let mut claimed = self.lock();
        let is_claimed = objects.iter().any(|object| claimed.contains(object));
        // Those that are gone have become others, which may be due as these were.
        if is_claimed || !are_live() {
            self.refuse();
            return None;
        }
        claimed.extend(&objects);
        drop(claimed);
        Some(Claim { claims: self, objects })
    }

    /// Whether an object is being written anew.
    pub fn has(&self, object: ObjectId) -> bool {
        self.lock().contains(&object)
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
