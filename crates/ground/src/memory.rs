//! How much memory rows take, and who waits for it.

use std::time::Duration;

use tidefall_sync::atomic::{AtomicUsize, Ordering};
use tidefall_sync::{Condvar, Mutex, PoisonError};
use tidefall_types::{Error, Result};

use crate::held::RowBytes;
use crate::pace::{Pace, part_left};

/// Of the memory budget: rows in memory beyond which they are flushed in the background. While
/// they are, a sorted copy of as many bytes exists, one of those that leave if others stay, and as much again may arrive.
const ROWS_SHARE: f64 = 0.16;
/// Of the memory budget: rows in memory beyond which writers wait for the flush. Between the two they are slowed.
const ROWS_SHARE_MAX: f64 = 0.32;

/// Objects of a table that are due to be laid together beyond which writers are slowed: more than there are while compaction keeps up.
pub const BACKLOG_FREE: usize = 128;
/// With so many objects they are as slow as they get, at [`SLOWEST`].
pub const BACKLOG_MAX: usize = 512;
/// The part of the speed of flushes at which rows come at least, however many objects are due: far less than compaction takes, so that there are
/// hardly ever more; and a compaction that cannot go on stops no writer.
const SLOWEST: f64 = 1.0 / 32.0;

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
    /// Objects that are due to be laid together, of the table that has the most of them.
    backlog: AtomicUsize,
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

    /// Bytes of rows beyond which writers wait, if readers hold none that have left memory.
    pub fn bytes_max(&self) -> usize {
        self.share(ROWS_SHARE_MAX)
    }

    /// Bytes of rows beyond which writers wait now. What readers hold counts, but half of what comes during a flush may come in any case: a reader
    /// that never ends stops no writer.
    fn bytes_max_now(&self) -> usize {
        let during_flush = self.bytes_max() - self.flush_bytes();
        self.bytes_max() - self.retained_bytes().min(during_flush / 2)
    }

    /// Whether there are so many bytes of rows in memory that they shall be flushed.
    pub fn is_full(&self) -> bool {
        self.rows.get() >= self.flush_bytes()
    }

    /// Whether more rows may come into memory.
    pub fn takes_rows(&self) -> bool {
        self.rows.get() <= self.bytes_max_now()
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

    /// Takes note of how many objects of a table are due to be laid together: rows come the slower the more there are.
    pub fn set_backlog(&self, objects: usize) {
        self.backlog.store(objects, Ordering::Relaxed);
    }

    /// Whether rows come as fast as they are written: neither memory nor compaction is behind.
    fn is_free(&self) -> bool {
        !self.is_full() && self.backlog.load(Ordering::Relaxed) <= BACKLOG_FREE
    }

    /// Whether so many bytes of rows could come into memory without waiting.
    pub fn takes_at_once(&self, bytes: usize) -> bool {
        self.is_free() || self.pace.is_free(self.pause(bytes))
    }

    /// How long so many bytes of rows take to come while others are flushed and laid together. More than may come at once take as long as that.
    fn pause(&self, bytes: usize) -> Duration {
        let (from, upto) = (self.flush_bytes(), self.bytes_max_now());
        let limit = upto.saturating_sub(from);
        let of_memory = match self.is_full() {
            true => part_left(self.rows.get().saturating_sub(from), limit),
            false => 1.0,
        };
        let behind = self.backlog.load(Ordering::Relaxed).saturating_sub(BACKLOG_FREE);
        let of_backlog = part_left(behind, BACKLOG_MAX - BACKLOG_FREE).max(SLOWEST);
        self.pace.pause(bytes.min(limit), of_memory * of_backlog)
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

    /// Waits until more rows may come into memory, and longer while memory is filled faster than emptied, or objects come faster than they are laid
    /// together. `call` wakes who empties it, and `check` says whether to wait is in vain. Returns whether it had to wait.
    ///
    /// # Errors
    /// That of `check`; `Full` when a full disk keeps rows in memory and no more may come.
    pub fn wait_until_free(
        &self,
        bytes: usize,
        check: impl Fn() -> Result<()>,
        call: impl Fn(),
    ) -> Result<bool> {
        if self.is_free() {
            return Ok(false);
        }
        let (turn, mut waits) = (self.pace.turn(), false);
        let pause = loop {
            if self.is_free() {
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
            if !self.is_free() {
                // Woken by the flush; the time-out lets a failure or a close be noticed.
                drop(self.left.wait_timeout(guard, left.min(CHECK_PAUSE)));
            }
        };
        turn.end(pause);
        Ok(waits)
    }
}

#[cfg(test)]
mod tests {
    use tidefall_types::Error;

    use super::*;
    use crate::held::Held;

    /// Of an empty memory, how long a write of a megabyte takes that finds so many objects due.
    fn pause(backlog: usize) -> Duration {
        let memory = Memory::new(512 << 20);
        memory.freed(100 << 20, Duration::from_secs(1));
        memory.set_backlog(backlog);
        memory.pause(1 << 20)
    }

    /// What the ten minutes of four writers of late rows showed: queries held what flushes let go, and the process had a third more than its budget.
    #[test]
    fn what_readers_hold_counts_for_writers_up_to_half_of_what_comes_during_a_flush() {
        let memory = Memory::new(1000 << 20);
        let (from, most) = (memory.flush_bytes(), memory.bytes_max());
        let during_flush = most - from;
        let takes = |rows, held| {
            let _rows = Held::of(&memory.rows, rows);
            let _held = Held::of(&memory.held, held);
            memory.takes_rows()
        };
        assert!(takes(most, most) && !takes(most + 1, most + 1));
        let held = during_flush / 4;
        assert!(takes(most - held, most) && !takes(most - held + 1, most + 1));
        // However much they hold.
        for held in [during_flush / 2, most, usize::MAX / 4] {
            let rows = most - during_flush / 2;
            assert!(takes(rows, rows + held) && !takes(rows + 1, rows + 1 + held), "{held}");
        }
        // Nearer to the limit rows come slower.
        memory.freed(100 << 20, Duration::from_secs(1));
        let _rows = Held::of(&memory.rows, from + during_flush / 4);
        let alone = memory.pause(1 << 20);
        let _held = Held::of(&memory.held, from + during_flush / 4 + (usize::MAX / 4));
        assert!(memory.pause(1 << 20) > alone);
    }

    #[test]
    fn rows_come_slower_the_more_objects_are_due_and_never_stop() {
        let memory = Memory::new(512 << 20);
        let wait = |bytes| memory.wait_until_free(bytes, || Ok(()), || {});
        memory.set_backlog(BACKLOG_FREE);
        assert!(!wait(100 << 20).unwrap());
        assert!(memory.takes_at_once(usize::MAX));
        memory.set_backlog(BACKLOG_FREE + 1);
        memory.freed(10 << 20, Duration::from_secs(1));
        assert!(!memory.takes_at_once(1 << 20));
        assert!(wait(1 << 20).unwrap());
        // Whoever waits learns that it is in vain, and that it is over.
        memory.set_backlog(usize::MAX);
        let in_vain = memory.wait_until_free(1 << 20, || Err(Error::closed("closed")), || {});
        in_vain.unwrap_err();
        memory.set_backlog(0);
        assert!(!wait(1 << 20).unwrap());
        let pauses = [0, BACKLOG_FREE, 200, 400, BACKLOG_MAX, usize::MAX].map(pause);
        assert!(pauses.is_sorted(), "{pauses:?}");
        let ten_ms = Duration::from_millis(9)..Duration::from_millis(11);
        assert!(ten_ms.contains(&pauses[0]) && ten_ms.contains(&pauses[1]), "{pauses:?}");
        assert!(pauses[5] == pauses[4] && pauses[5] < 33 * pauses[0], "{pauses:?}");
        // One of any size takes no longer than what may come at once.
        assert!(memory.pause(usize::MAX) < Duration::from_secs(30));
    }
}
