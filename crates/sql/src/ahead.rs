//! Batches that are made ahead of their reader, without a thread that waits for it.
//!
//! 1. A *turn* makes batches on a thread that may block, until enough of them are ready or it has taken long.
//! 2. Then it lays down what makes them and gives its thread back. A reader that takes a batch begins the next turn.
//!
//! Batches that are made on demand are so one by one, and never while their reader looks at the one before.
//!
//! So a reader that is slow, or that reads something else first, costs the memory of a few batches and no thread.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::RecordBatchStream;
use futures::Stream;
use tidefall_types::Error;
use tokio::runtime::Handle;

use crate::error::to_datafusion;

/// Batches that are ready at most: enough to hide the hand-over, no more, as nobody counts their memory.
const READY_MAX: usize = 2;

/// When batches are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Some ahead of their reader.
    Ahead,
    /// Each when its reader has done with the one before: it may say then that it needs no more.
    OnDemand,
}

impl Pace {
    const fn ready_max(self) -> usize {
        match self {
            Self::Ahead => READY_MAX,
            Self::OnDemand => 1,
        }
    }
}

/// How long a turn may take before others that wait for a thread have theirs.
const TURN_MAX: Duration = Duration::from_millis(50);

/// Makes batches one after the other, on threads that may block, not always on the same.
pub(crate) type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// The stream of the batches.
pub(crate) struct Ahead {
    schema: SchemaRef,
    shared: Arc<Shared>,
    threads: Handle,
}

impl Ahead {
    /// A stream of `batches`, which have `schema`. Must be called inside a tokio runtime.
    pub(crate) fn new(schema: SchemaRef, batches: Batches, pace: Pace) -> Self {
        let (ready, maker) = (VecDeque::new(), Maker::Resting(batches));
        let state = State { pace, ready, maker, reader: None };
        let shared = Arc::new(Shared(Mutex::new(state)));
        Self { schema, shared, threads: Handle::current() }
    }
}

struct Shared(Mutex<State>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct State {
    pace: Pace,
    ready: VecDeque<Result<RecordBatch>>,
    maker: Maker,
    /// Woken when there is something new.
    reader: Option<Waker>,
}

enum Maker {
    Resting(Batches),
    /// A turn has it.
    Working,
    /// It has no more batches, or nobody wants them.
    Done,
}

impl State {
    /// The maker, if the next turn should begin.
    fn take_resting(&mut self) -> Option<Batches> {
        if self.ready.len() >= self.pace.ready_max() || !matches!(self.maker, Maker::Resting(_)) {
            return None;
        }
        match std::mem::replace(&mut self.maker, Maker::Working) {
            Maker::Resting(batches) => Some(batches),
            Maker::Working | Maker::Done => None,
        }
    }
}

impl Stream for Ahead {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.shared.lock();
        let next = match state.ready.pop_front() {
            Some(batch) => Poll::Ready(Some(batch)),
            None if matches!(state.maker, Maker::Done) => Poll::Ready(None),
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        };
        let resting = match (state.pace, &next) {
            (Pace::OnDemand, Poll::Ready(_)) => None,
            _ => state.take_resting(),
        };
        drop(state);
        if let Some(batches) = resting {
            Turn::begin(Arc::clone(&self.shared), batches, &self.threads);
        }
        next
    }
}

impl RecordBatchStream for Ahead {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let left =
            (std::mem::take(&mut state.ready), std::mem::replace(&mut state.maker, Maker::Done));
        drop(state);
        drop(left);
    }
}

/// One turn.
struct Turn {
    shared: Arc<Shared>,
    /// None when it is laid down, or done.
    batches: Option<Batches>,
}

impl Turn {
    fn begin(shared: Arc<Shared>, batches: Batches, threads: &Handle) {
        let turn = Self { shared, batches: Some(batches) };
        let again = threads.clone();
        threads.spawn_blocking(move || turn.run(&again));
    }

    fn run(mut self, threads: &Handle) {
        let start = Instant::now();
        while let Some(batches) = &mut self.batches {
            let next = batches.next();
            self.hand_over(next);
            if start.elapsed() > TURN_MAX
                && let Some(batches) = self.batches.take()
            {
                Self::begin(Arc::clone(&self.shared), batches, threads);
            }
        }
    }

    fn hand_over(&mut self, next: Option<Result<RecordBatch>>) {
        let is_last = !matches!(next, Some(Ok(_)));
        let mut state = self.shared.lock();
        let is_left = matches!(state.maker, Maker::Done);
        let mut done = None;
        if is_last || is_left {
            state.maker = Maker::Done;
            done = self.batches.take();
        }
        if !is_left {
            state.ready.extend(next);
        }
        if state.ready.len() >= state.pace.ready_max()
            && let Some(batches) = self.batches.take()
        {
            state.maker = Maker::Resting(batches);
        }
        let reader = state.reader.take();
        drop(state);
        drop(done);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Drop for Turn {
    /// A turn that panics, or that never begins as its runtime ends, must not leave the reader waiting.
    fn drop(&mut self) {
        if self.batches.is_some() {
            let error = match std::thread::panicking() {
                true => Error::internal("reading met a fault of the program; its log says where"),
                false => Error::closed("reading was cut off: the program stops"),
            };
            self.hand_over(Some(Err(to_datafusion(error))));
        }
    }
}
