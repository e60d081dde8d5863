//! How much memory rows take, and who waits for it.

use std::time::Duration;

use tidefall_sync::{Condvar, Mutex, PoisonError};
use tidefall_types::{Error, Result};

use crate::held::RowBytes;
use crate::pace::Pace;

/// Of the memory budget: rows in memory beyond which they are flushed in the background. While
/// they are, a sorted copy of as many bytes exists, one of those that leave if others stay, and as much again may arrive.
const ROWS_SHARE: f64 = 0.18;
/// Of the memory budget: rows in memory beyond which writers wait for the flush. Between the two they are slowed.
const ROWS_SHARE_MAX: f64 = 0.36;

/// Who waits looks this often whether it is in vain.
const CHECK_PAUSE: Duration = Duration::from_millis(50);

/// The memory that rows take before they are in objects.
#[derive(Debug, Default)]
pub struct Memory {
    budget_bytes: usize,
    /// Of rows in memory.
    pub rows: RowBytes,
    /// Of all rows that somebody holds: those in memory, and those that have left it under the eyes of a reader.
    pub held: RowBytes,
    left: Condvar,
    left_lock: Mutex<()>,
    pace: Pace,
    /// Why rows cannot leave, when a full disk keeps them there.
    blocked: Mutex<Option<Error>>,
}

impl Memory {
    /// Of a database with this budget.
    pub fn new(budget_bytes: usize) -> Self {
        Self { budget_bytes, ..Self::default() }
    }

    /// So many bytes of the budget.
    pub fn share(&self, share: f64) -> usize {
        (self.budget_bytes as f64 * share) as usize
    }

    /// Bytes of rows that are flushed together.
    pub fn flush_bytes(&self) -> usize {
        self.share(ROWS_SHARE)
    }

    /// Bytes of rows beyond which writers wait.
    pub fn bytes_max(&self) -> usize {
        self.share(ROWS_SHARE_MAX)
    }

    /// Whether there are so many bytes of rows in memory that they shall be flushed.
    pub fn is_full(&self) -> bool {
        self.rows.get() >= self.flush_bytes()
    }

    /// Whether more rows may come into memory.
    pub fn takes_rows(&self) -> bool {
        self.rows.get() <= self.bytes_max()
    }

    /// The bytes of rows that have left memory and that readers, or a flush under way, still hold.
    pub fn retained_bytes(&self) -> usize {
        self.held.get().saturating_sub(self.rows.get())
    }

    /// Wakes those who wait for memory.
    pub fn rows_left(&self) {
        let _guard = self.left_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.left.notify_all();
    }

    /// Whether so many bytes of rows could come into memory without waiting.
    pub fn takes_at_once(&self, bytes: usize) -> bool {
        let is_free = || self.pace.is_free(self.pause(bytes));
        !self.is_full() || is_free()
    }

    /// How long so many bytes of rows take to come while others are flushed.
    fn pause(&self, bytes: usize) -> Duration {
        let (from, upto) = (self.flush_bytes(), self.bytes_max());
        self.pace.pause(bytes, self.rows.get().saturating_sub(from), upto.saturating_sub(from))
    }

    /// Why rows cannot leave memory, when a full disk keeps them there: writers learn it instead of waiting.
    pub fn blocked(&self) -> Option<Error> {
        self.blocked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says why rows cannot leave memory, or that they can.
    pub fn set_blocked(&self, why: Option<Error>) {
        *self.blocked.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Takes note of so many bytes that have left in a time: rows come as fast from then on.
    pub fn freed(&self, bytes: usize, time: Duration) {
        self.pace.freed(bytes, time);
    }

    /// Waits until more rows may come into memory, and longer while memory is filled faster than emptied. `call` wakes who empties it, and
    /// `check` says whether to wait is in vain. Returns whether it had to wait.
    ///
    /// # Errors
    /// That of `check`; `Full` when a full disk keeps rows in memory and no more may come.
    pub fn wait_until_free(
        &self,
        bytes: usize,
        check: impl Fn() -> Result<()>,
        call: impl Fn(),
    ) -> Result<bool> {
        if !self.is_full() {
            return Ok(false);
        }
        let (turn, mut waits) = (self.pace.turn(), false);
        let pause = loop {
            if !self.is_full() {
                break Duration::ZERO;
            }
            check()?;
            match self.blocked() {
                Some(full) if !self.takes_rows() => return Err(full),
                // Nothing leaves memory; rows come as long as they may.
                Some(_) => break Duration::ZERO,
                None => {}
            }
            let pause = self.pause(bytes);
            let Some(left) = turn.left(pause) else { break pause };
            waits = true;
            // Rows take more memory also without a write that would have called for the flush: when a reader has small
            // runs laid together.
            call();
            let guard = self.left_lock.lock().unwrap_or_else(PoisonError::into_inner);
            if self.is_full() {
                // Woken by the flush; the time-out lets a failure or a close be noticed.
                drop(self.left.wait_timeout(guard, left.min(CHECK_PAUSE)));
            }
        };
        turn.end(pause);
        Ok(waits)
    }
}
