//! Where "now" comes from.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A source of wall-clock time. The age of data, and with it the cascade and retention, depend on
/// it, so tests inject a [`ManualClock`].
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Nanoseconds since 1970-01-01T00:00:00Z.
    fn now_ns(&self) -> i64;
}

/// The clock of the operating system.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ns(&self) -> i64 {
        // The one place that may ask the operating system for the time.
        #[allow(clippy::disallowed_methods)]
        let now = SystemTime::now();
        match now.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
        }
    }
}

/// A clock that stands still until it is set.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `now_ns`.
    pub fn new(now_ns: i64) -> Self {
        Self(AtomicI64::new(now_ns))
    }

    /// Makes the clock show `now_ns` from now on.
    pub fn set(&self, now_ns: i64) {
        self.0.store(now_ns, Ordering::Release);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> i64 {
        self.0.load(Ordering::Acquire)
    }
}
