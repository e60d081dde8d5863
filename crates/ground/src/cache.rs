//! A cache of decoded pieces of objects, bounded in bytes.

use std::collections::HashMap;

use tidefall_sync::atomic::{AtomicU64, Ordering};
use tidefall_sync::{Arc, Mutex, PoisonError};
use tidefall_types::{ObjectId, Result};

/// What a cached value costs.
pub trait Weight {
    /// Bytes of memory.
    fn weight_bytes(&self) -> usize;
}

/// Keeps what was used last, and lets go of what was used longest ago.
#[derive(Debug)]
pub struct Cache<T> {
    capacity_bytes: usize,
    clock: AtomicU64,
    inner: Mutex<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    entries: HashMap<(ObjectId, u32), Entry<T>>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry<T> {
    value: Arc<T>,
    bytes: usize,
    used: u64,
}

impl<T: Weight> Cache<T> {
    /// An empty one that holds so many bytes.
    pub fn new(capacity_bytes: usize) -> Self {
        let inner = Inner { entries: HashMap::new(), bytes: 0 };
        Self { capacity_bytes, clock: AtomicU64::new(0), inner: Mutex::new(inner) }
    }

    /// The part of an object, made by `load` if it is not there. Two threads may load the same
    /// part at the same time; one of the results stays.
    ///
    /// # Errors
    /// Those of `load`; nothing is kept then.
    pub fn get(
        &self,
        object: ObjectId,
        part: u32,
        load: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        self.get_enough(object, part, |_| true, |_| load())
    }

    /// As [`Cache::get`], where what is there may not be enough and is then replaced by what `load` makes in view of it.
    ///
    /// # Errors
    /// As [`Cache::get`]; what was there stays.
    pub fn get_enough(
        &self,
        object: ObjectId,
        part: u32,
        is_enough: impl Fn(&T) -> bool,
        load: impl FnOnce(Option<&T>) -> Result<T>,
    ) -> Result<Arc<T>> {
        let used = self.clock.fetch_add(1, Ordering::Relaxed);
        let known = self.lock().entries.get_mut(&(object, part)).map(|entry| {
            entry.used = used;
            Arc::clone(&entry.value)
        });
        if let Some(value) = known.as_ref().filter(|value| is_enough(value)) {
            return Ok(Arc::clone(value));
        }
        let value = Arc::new(load(known.as_deref())?);
        let bytes = value.weight_bytes();
        let mut inner = self.lock();
        let entry = Entry { value: Arc::clone(&value), bytes, used };
        inner.bytes += bytes;
        if let Some(other) = inner.entries.insert((object, part), entry) {
            inner.bytes -= other.bytes;
        }
        if inner.bytes > self.capacity_bytes {
            inner.shrink(self.capacity_bytes);
        }
        Ok(value)
    }

    /// Whether the part of an object is there.
    pub fn contains(&self, object: ObjectId, part: u32) -> bool {
        self.lock().entries.contains_key(&(object, part))
    }

    /// Lets go of what belongs to objects that are gone.
    pub fn forget(&self, is_gone: impl Fn(ObjectId) -> bool) {
        let mut inner = self.lock();
        let mut freed = 0;
        inner.entries.retain(|(id, _), entry| {
            let keep = !is_gone(*id);
            freed += if keep { 0 } else { entry.bytes };
            keep
        });
        inner.bytes -= freed;
    }

    fn lock(&self) -> tidefall_sync::MutexGuard<'_, Inner<T>> {
        // A panic while the lock was held cannot have left the map unusable: every change to it
        // is one call of the standard library.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Inner<T> {
    /// Drops the entries used longest ago until an eighth of the capacity is free, so that the
    /// sort is paid once for many insertions.
    fn shrink(&mut self, capacity_bytes: usize) {
        let mut by_age: Vec<(u64, (ObjectId, u32))> =
            self.entries.iter().map(|(key, entry)| (entry.used, *key)).collect();
        by_age.sort_unstable();
        for (_, key) in by_age {
            if self.bytes <= capacity_bytes / 8 * 7 {
                break;
            }
            if let Some(entry) = self.entries.remove(&key) {
                self.bytes -= entry.bytes;
            }
        }
    }
}
