//! Whether anybody still waits for a window, and the memory that it takes.
//!
//! Functions that are computed over windows are not told for whom. They ask here, on the thread on which their window
//! is computed.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use datafusion::arrow::array::Array;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use tidefall_types::Error;

use crate::error::to_datafusion;

/// Memory is asked for in steps of so many bytes: answers come one by one.
const STEP_BYTES: usize = 64 << 10;

thread_local! {
    /// The window that is computed on this thread.
    static WATCH: RefCell<Option<Arc<Watch>>> = const { RefCell::new(None) };
}

/// What is watched of the windows of one partition of a plan node.
#[derive(Debug)]
pub(crate) struct Watch {
    is_left: AtomicBool,
    reservation: MemoryReservation,
    /// Kept from sorts while there is the window.
    _share: MemoryReservation,
    /// Bytes of the answers for the batch that comes next.
    answers: AtomicUsize,
}

impl Watch {
    /// Charges answers to `reservation`, beside which `share` is kept free.
    pub(super) fn new(reservation: MemoryReservation, share: MemoryReservation) -> Self {
        Self {
            is_left: AtomicBool::new(false),
            reservation,
            _share: share,
            answers: AtomicUsize::new(0),
        }
    }

    /// Nobody waits any more.
    pub(super) fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }

    /// The answers have been given on.
    pub(super) fn give(&self) {
        self.answers.store(0, Ordering::Relaxed);
        self.reservation.free();
    }

    /// Computes something that is watched.
    pub(super) fn during<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        let _before = Before(WATCH.replace(Some(Arc::clone(self))));
        work()
    }

    fn check(&self) -> Result<()> {
        match self.is_left.load(Ordering::Relaxed) {
            true => Err(to_datafusion(Error::closed("nobody waits for the window any more"))),
            false => Ok(()),
        }
    }

    fn take(&self, bytes: usize) -> Result<()> {
        self.check()?;
        let taken = self.answers.load(Ordering::Relaxed).saturating_add(bytes);
        let reserved = self.reservation.size();
        if taken > reserved {
            self.reservation.try_grow((taken - reserved).max(STEP_BYTES))?;
        }
        self.answers.store(taken, Ordering::Relaxed);
        Ok(())
    }
}

/// Gives the thread back to the window that was computed on it before.
struct Before(Option<Arc<Watch>>);

impl Drop for Before {
    fn drop(&mut self) {
        WATCH.replace(self.0.take());
    }
}

fn with_watch(work: impl FnOnce(&Watch) -> Result<()>) -> Result<()> {
    WATCH.with_borrow(|watch| watch.as_ref().map_or(Ok(()), |watch| work(watch)))
}

/// Looks whether anybody still waits for the window that is computed on this thread.
///
/// # Errors
/// `Closed` if nobody does.
pub(crate) fn check() -> Result<()> {
    with_watch(Watch::check)
}

/// Charges the answer for a row, which is about to be laid beside those of others.
///
/// # Errors
/// `Closed` if nobody waits for it, `Limit` when there is no memory.
pub(crate) fn answered(answer: &ScalarValue) -> Result<()> {
    with_watch(|watch| watch.take(heap_bytes(answer).saturating_add(size_of::<ScalarValue>())))
}

/// Charges so many bytes of answers.
///
/// # Errors
/// `Closed` if nobody waits for them, `Limit` when there is no memory.
pub(crate) fn took(bytes: usize) -> Result<()> {
    with_watch(|watch| watch.take(bytes))
}

/// Memory for what is kept of a window; none where no window is computed.
pub(crate) fn reservation() -> Option<MemoryReservation> {
    WATCH.with_borrow(|watch| watch.as_ref().map(|watch| watch.reservation.new_empty()))
}

/// Bytes of a value beside those that each value has.
pub(crate) fn heap_bytes(value: &ScalarValue) -> usize {
    // Parts of a column share its buffers, which count as a whole otherwise.
    let of = |array: &dyn Array| array.to_data().get_slice_memory_size().unwrap_or_default();
    match value {
        ScalarValue::List(list) => of(&**list),
        ScalarValue::LargeList(list) => of(&**list),
        ScalarValue::FixedSizeList(list) => of(&**list),
        ScalarValue::Struct(fields) => of(&**fields),
        ScalarValue::Map(entries) => of(&**entries),
        other => other.size().saturating_sub(size_of::<ScalarValue>()),
    }
}
