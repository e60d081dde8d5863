//! What rows in memory take.

use std::sync::Arc;

use tidefall_sync::atomic::{AtomicUsize, Ordering};

/// Bytes of rows, of all tables together: of those in memory, or of those that somebody holds. Clones are one sum.
#[derive(Debug, Clone, Default)]
pub struct RowBytes(Arc<AtomicUsize>);

/// A part of such a sum, that of a table or of a run, which leaves the sum when it is dropped.
#[derive(Debug, Default)]
pub struct Held {
    sum: RowBytes,
    bytes: usize,
}

impl RowBytes {
    /// The sum.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

impl Held {
    /// A part of `bytes`.
    pub fn of(sum: &RowBytes, bytes: usize) -> Self {
        let mut held = Self { sum: sum.clone(), bytes: 0 };
        held.set(bytes);
        held
    }

    /// The part.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes the part to `bytes`.
    pub fn set(&mut self, bytes: usize) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.sum.0.fetch_add(more, Ordering::AcqRel),
            None => self.sum.0.fetch_sub(self.bytes - bytes, Ordering::AcqRel),
        };
        self.bytes = bytes;
    }

    /// Makes it a part of another sum.
    pub fn move_to(&mut self, sum: &RowBytes) {
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
