//! What rows in memory take.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes of rows in memory, of all tables together. Clones are one sum.
#[derive(Debug, Clone, Default)]
pub(crate) struct KvBytes(Arc<AtomicUsize>);

/// The part of one table in such a sum, which it leaves when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Held {
    sum: KvBytes,
    bytes: usize,
}

impl KvBytes {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

impl Held {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes the part to `bytes`.
    pub(crate) fn set(&mut self, bytes: usize) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.sum.0.fetch_add(more, Ordering::AcqRel),
            None => self.sum.0.fetch_sub(self.bytes - bytes, Ordering::AcqRel),
        };
        self.bytes = bytes;
    }

    /// Makes it a part of another sum.
    pub(crate) fn move_to(&mut self, sum: &KvBytes) {
        let bytes = self.bytes;
        self.set(0);
        self.sum = sum.clone();
        self.set(bytes);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}
