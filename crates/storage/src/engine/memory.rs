//! How much memory rows take, and who waits for it.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tidefall_types::{Error, Result};

use super::{Alarm, Engine};
use crate::kv::{Run, Together};

/// Of the memory budget: rows in memory beyond which they are drained in the background. While
/// they are, a sorted copy of as many bytes exists, one of those that leave if others stay, and as much again may arrive.
const KV_SHARE: f64 = 0.18;
/// Of the memory budget: rows in memory beyond which writers wait for the drain. Between the two they are slowed.
const KV_SHARE_MAX: f64 = 0.36;
/// Of the memory budget: rows for days that are in objects already, which stay while others leave.
const LATE_SHARE: f64 = 0.05;
/// Of the memory budget: bytes of the log beyond which no rows stay that keep it.
const LATE_LOG_SHARE: f64 = 1.0;
/// Bytes of texts that one record of the log holds at most before they are packed, or their share of the memory of rows
/// if that is less. Twice what a record takes packed.
const LOGGED_TEXT_BYTES_MAX: usize = 64 << 20;

/// Who waits looks this often whether it is in vain.
const CHECK_PAUSE: Duration = Duration::from_millis(50);

impl Engine {
    /// Wakes the drain when so many bytes of rows, which have come into memory, are too many.
    pub(crate) fn rows_came(&self, bytes: usize) {
        if bytes > 0 && self.is_full() {
            self.raise(|alarm| alarm.is_full = true);
        }
    }

    /// Whether there are so many bytes of rows in memory that they shall be drained.
    pub(crate) fn is_full(&self) -> bool {
        self.kv_bytes() >= self.budget_share(KV_SHARE)
    }

    /// Wakes those who wait for room.
    pub(super) fn rows_left(&self) {
        let _guard = self.drained_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.drained.notify_all();
    }

    /// The bytes of rows in memory.
    pub(crate) fn kv_bytes(&self) -> usize {
        self.kv_bytes.get()
    }

    /// The bytes of rows that have left memory and that readers, or a drain under way, still hold.
    pub(crate) fn retained_bytes(&self) -> usize {
        self.run_bytes.get().saturating_sub(self.kv_bytes())
    }

    /// Whether there is room for more rows in memory.
    fn has_room(&self) -> bool {
        self.kv_bytes() <= self.budget_share(KV_SHARE_MAX)
    }

    /// Whether so many bytes of rows could come into memory without waiting.
    pub(crate) fn is_free_for(&self, bytes: usize) -> bool {
        let is_free = || self.pace.is_free(self.pause(bytes));
        !self.is_full() || is_free()
    }

    /// How long so many bytes of rows take to come while others are drained.
    fn pause(&self, bytes: usize) -> Duration {
        let (from, upto) = (self.budget_share(KV_SHARE), self.budget_share(KV_SHARE_MAX));
        self.pace.pause(bytes, self.kv_bytes().saturating_sub(from), upto.saturating_sub(from))
    }

    /// Bytes of late rows that may stay in memory, and keep the log, while others leave it.
    pub(crate) fn late_bytes_max(&self) -> usize {
        match self.log_has(LATE_LOG_SHARE) {
            true => 0,
            false => self.budget_share(LATE_SHARE),
        }
    }

    /// Bytes of texts that one record of the log may hold.
    pub(crate) fn logged_texts_max(&self) -> usize {
        self.budget_share(KV_SHARE_MAX).min(LOGGED_TEXT_BYTES_MAX)
    }

    /// Waits until there is room for more rows in memory, and longer while it is filled faster than emptied. The thread that
    /// commits only calls for the drain: others wait for it, perhaps while they keep the drain from beginning.
    pub(crate) fn wait_for_room(&self, bytes: usize) -> Result<()> {
        if self.commits.is_committer() {
            if !self.has_room() {
                self.raise(|alarm| alarm.is_full = true);
            }
            return Ok(());
        }
        if !self.is_full() {
            return Ok(());
        }
        let (start, mut waits) = (Instant::now(), false);
        let turn = self.pace.turn();
        let pause = loop {
            if !self.is_full() {
                break Duration::ZERO;
            }
            self.steps.check()?;
            if let Some(failure) = self.commits.failure() {
                return Err(failure);
            }
            match self.blocked() {
                Some(full) if !self.has_room() => return Err(full),
                // Nothing leaves memory; rows come as long as there is room.
                Some(_) => break Duration::ZERO,
                None => {}
            }
            let pause = self.pause(bytes);
            let Some(left) = turn.left(pause) else { break pause };
            waits = true;
            // Rows take more memory also without a write that would have called for the drain: when a reader has small
            // runs laid together.
            self.raise(|alarm| alarm.is_full = true);
            let guard = self.drained_lock.lock().unwrap_or_else(PoisonError::into_inner);
            if self.is_full() {
                // Woken by the drain; the time-out lets a failure or a close be noticed.
                drop(self.drained.wait_timeout(guard, left.min(CHECK_PAUSE)));
            }
        };
        turn.end(pause);
        if waits {
            self.worked.delayed(start.elapsed());
        }
        Ok(())
    }

    /// Empties memory because it is full, and learns from it how fast that goes.
    pub(crate) fn make_room<T>(&self, flush: impl FnOnce() -> Result<T>) -> Result<T> {
        let (start, before) = (Instant::now(), self.worked.freed_bytes());
        let flushed = flush()?;
        let freed = self.worked.freed_bytes() - before;
        self.pace.freed(freed, start.elapsed());
        Ok(flushed)
    }

    /// Why rows cannot leave memory, when a full disk keeps them there: writers learn it instead of waiting.
    pub(crate) fn blocked(&self) -> Option<Error> {
        self.blocked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_blocked(&self, why: Option<Error>) {
        *self.blocked.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    pub(crate) fn raise(&self, change: impl FnOnce(&mut Alarm)) {
        change(&mut self.alarm.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.alarm.1.notify_all();
    }

    /// The number of runs, from the first on, that one drain takes: as many as stay within the share of the
    /// key-value model, as they are and as the columns that will be made of them.
    pub(crate) fn drain_batch(&self, runs: &[Arc<Run>]) -> usize {
        let share = self.budget_share(KV_SHARE);
        let (mut bytes, mut together) = (0, Together::default());
        let fitting = runs.iter().take_while(|run| {
            bytes += run.size_bytes;
            together.add(run);
            bytes.max(together.bytes()) <= share
        });
        fitting.count().max(1)
    }

    pub(super) fn budget_share(&self, share: f64) -> usize {
        (self.options.memory_bytes as f64 * share) as usize
    }
}
