//! What the background threads of a database wait for.

use tidefall_sync::{Condvar, Instant, Mutex, PoisonError};

/// Wakes the background threads.
#[derive(Debug, Default)]
pub struct Alarms {
    raised: Mutex<Alarm>,
    changed: Condvar,
}

/// Why a background thread shall wake up.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Alarm {
    /// Rows in memory have outgrown their share.
    pub is_full: bool,
    /// There are more run files.
    pub is_flushed: bool,
    /// The upkeep has been round.
    pub is_tended: bool,
    /// The database closes.
    pub is_closing: bool,
}

impl Alarms {
    /// Raises an alarm.
    pub fn raise(&self, change: impl FnOnce(&mut Alarm)) {
        change(&mut self.raised.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Waits until a moment, or until somebody has called, which it takes note of. False when the database closes.
    pub fn wait(&self, until: Instant, called: impl Fn(&mut Alarm) -> bool) -> bool {
        let pause = until.saturating_duration_since(Instant::now());
        let guard = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |alarm: &mut Alarm| !alarm.is_closing && !called(alarm);
        let waited = self.changed.wait_timeout_while(guard, pause, waits);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_closing
    }
}
