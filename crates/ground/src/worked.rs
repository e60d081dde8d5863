//! What storage has done since the database was opened.

use std::time::Duration;

use tidefall_sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counts what is done.
#[derive(Debug, Default)]
pub struct Worked {
    /// Bytes that rows took in memory before they left it.
    freed_bytes: AtomicUsize,
    flushed_bytes: AtomicU64,
    rewritten_bytes: AtomicU64,
    delayed: AtomicU64,
    delayed_us: AtomicU64,
    /// Flushed bytes when somebody was told of them.
    told_bytes: AtomicU64,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Worked {
    /// Rows that took so many bytes in memory have become objects of so many bytes.
    pub fn flushed(&self, freed_bytes: usize, bytes: u64) {
        self.freed_bytes.fetch_add(freed_bytes, Ordering::Relaxed);
        add(&self.flushed_bytes, bytes);
    }

    /// The bytes that rows took in memory before they left it.
    pub fn freed_bytes(&self) -> usize {
        self.freed_bytes.load(Ordering::Relaxed)
    }

    /// Objects have become others of so many bytes.
    pub fn rewritten(&self, bytes: u64) {
        add(&self.rewritten_bytes, bytes);
    }

    /// The bytes of the objects that rows in memory have become.
    pub fn flushed_bytes(&self) -> u64 {
        get(&self.flushed_bytes)
    }

    /// The bytes of the objects that others have become.
    pub fn rewritten_bytes(&self) -> u64 {
        get(&self.rewritten_bytes)
    }

    /// How many writes have waited for memory, and how long together.
    pub fn delays(&self) -> (u64, Duration) {
        (get(&self.delayed), Duration::from_micros(get(&self.delayed_us)))
    }

    /// Whether new rows have become objects since this was asked last.
    pub fn has_news(&self) -> bool {
        let bytes = get(&self.flushed_bytes);
        self.told_bytes.swap(bytes, Ordering::Relaxed) != bytes
    }

    /// A write has waited for memory.
    pub fn delayed(&self, time: Duration) {
        add(&self.delayed, 1);
        add(&self.delayed_us, u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }
}
