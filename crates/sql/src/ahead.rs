//! Batches that are made ahead of their reader, without a thread that waits for it.
//!
//! 1. A *turn* makes batches on a thread that may block, until enough of them are ready or it has taken long.
//! 2. Then it lays down what makes them and gives its thread back. A reader that has taken half of them begins the next
//!    turn.
//! 3. A reader that waits is woken when there is something to do for a while, or when nothing more comes soon.
//!
//! It costs as much to wake a thread as to make a batch of numbers, so that many are made in a turn. But a reader that has
//! found what it looks for wants no more: the number grows with what it has taken.
//!
//! Batches that are made on demand are so one by one, and never while their reader looks at the one before.
//!
//! So a reader that is slow, or that reads something else first, costs the memory of a few batches and no thread.
//!
//! Of all readers of a session a few turns are taken at once ([`Turns`]), the others one after the other in the order in which they begin. More would
//! take no less time, and an allocator keeps for each thread what others have freed of its memory. A turn whose reader has gone counts no more: it
//! ends with the batch that it makes, and that may take a minute.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
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

/// Batches that are ready at most, to begin with: enough to hide the hand-over.
const READY_FIRST: usize = 2;
/// Later on, for each so many that the reader has taken there is one more,
const TAKEN_PER_MORE: usize = 4;
/// up to this number,
const READY_MAX: usize = 16;
/// and while they have fewer bytes than this, as nobody counts their memory. One that has more by itself is enough.
const READY_BYTES_MAX: usize = 1 << 20;

/// A batch that took less is soon followed by the next.
const SOON: Duration = Duration::from_micros(200);

/// When batches are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Some ahead of their reader.
    Ahead,
    /// Each when its reader has done with the one before: it may say then that it needs no more.
    OnDemand,
}

impl Pace {
    fn ready_max(self, taken: usize) -> usize {
        match self {
            Self::Ahead => (READY_FIRST + taken / TAKEN_PER_MORE).min(READY_MAX),
            Self::OnDemand => 1,
        }
    }
}

/// How long a turn may take before others that wait for a thread have theirs.
const TURN_MAX: Duration = Duration::from_millis(50);

/// For each turn that is taken at once, so many may go on whose readers have gone before they count as others do.
const LEFT_PER_TURN: usize = 8;

/// Makes batches one after the other, on threads that may block, not always on the same.
pub(crate) type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// The stream of the batches.
pub(crate) struct Ahead {
    schema: SchemaRef,
    shared: Arc<Shared>,
    turns: Arc<Turns>,
    threads: Handle,
}

impl Ahead {
    /// A stream of `batches`, which have `schema`. Must be called inside a tokio runtime.
    pub(crate) fn new(schema: SchemaRef, batches: Batches, pace: Pace, turns: Arc<Turns>) -> Self {
        let state = State::new(pace, Maker::Resting(batches));
        let shared = Arc::new(Shared(Mutex::new(state)));
        Self { schema, shared, turns, threads: Handle::current() }
    }
}

/// The turns of a session.
#[derive(Debug)]
pub(crate) struct Turns {
    at_once: usize,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Threads that take turns.
    threads: usize,
    /// Those of them whose readers have gone.
    left: usize,
    waiting: VecDeque<Turn>,
}

impl Queue {
    /// The threads whose turns somebody waits for, or that look for one.
    fn counted(&self) -> usize {
        self.threads - self.left
    }
}

impl Turns {
    /// For so many threads.
    pub(crate) fn new(at_once: usize) -> Self {
        Self { at_once: at_once.max(1), queue: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a turn taken, behind those that wait.
    fn begin(self: &Arc<Self>, turn: Turn, threads: &Handle) {
        let mut queue = self.lock();
        queue.waiting.push_back(turn);
        self.add_thread(queue, threads);
    }

    /// Takes note that the reader of a turn that is taken has gone. Returns whether the turn counts no more.
    fn leave(self: &Arc<Self>, threads: &Handle) -> bool {
        let mut queue = self.lock();
        if queue.left >= LEFT_PER_TURN * self.at_once {
            return false;
        }
        queue.left += 1;
        self.add_thread(queue, threads);
        true
    }

    /// One more thread, if turns wait and one may take them.
    fn add_thread(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue>, threads: &Handle) {
        if queue.waiting.is_empty() || queue.counted() >= self.at_once {
            return;
        }
        queue.threads += 1;
        drop(queue);
        let thread = TurnThread { turns: Arc::clone(self), has_begun: false };
        threads.spawn_blocking(move || thread.run());
    }
}

/// A thread that takes turns as long as some wait.
struct TurnThread {
    turns: Arc<Turns>,
    has_begun: bool,
}

impl TurnThread {
    fn run(mut self) {
        self.has_begun = true;
        let mut again = None;
        loop {
            let mut queue = self.turns.lock();
            queue.waiting.extend(again.take());
            // Another one has begun while this one was at work for nobody.
            let is_needed = queue.counted() <= self.turns.at_once;
            let turn = if is_needed { queue.waiting.pop_front() } else { None };
            let Some(turn) = turn else {
                queue.threads -= 1;
                return;
            };
            drop(queue);
            let shared = Arc::clone(&turn.shared);
            let number = shared.lock().take_turn();
            // A panic is told to the reader as the turn is dropped.
            again = catch_unwind(AssertUnwindSafe(|| turn.run())).ok().flatten();
            let was_uncounted = shared.lock().end_turn(number);
            if was_uncounted {
                self.turns.lock().left -= 1;
            }
        }
    }
}

impl Drop for TurnThread {
    /// One that never begins, as its runtime ends, must not leave readers waiting.
    fn drop(&mut self) {
        if self.has_begun {
            return;
        }
        let mut queue = self.turns.lock();
        queue.threads -= 1;
        let left = match queue.threads {
            0 => std::mem::take(&mut queue.waiting),
            _ => VecDeque::new(),
        };
        drop(queue);
        drop(left);
    }
}

struct Shared(Mutex<State>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the reader has gone.
    fn is_left(&self) -> bool {
        matches!(self.lock().maker, Maker::Done)
    }
}

struct State {
    pace: Pace,
    ready: VecDeque<Result<RecordBatch>>,
    ready_bytes: usize,
    /// Batches that the reader has taken.
    taken: usize,
    maker: Maker,
    /// Woken when there is something new.
    reader: Option<Waker>,
    /// The number of the turn that was taken last. When that lays down the batches, the next may be taken before its thread looks here again.
    turn: u64,
    /// Whether a thread is at that turn.
    is_taken: bool,
    /// Whether that turn counts no more among those of the session.
    is_uncounted: bool,
}

enum Maker {
    Resting(Batches),
    /// A turn has it.
    Working,
    /// It has no more batches, or nobody wants them.
    Done,
}

fn bytes_of(batch: &Result<RecordBatch>) -> usize {
    batch.as_ref().map_or(0, RecordBatch::get_array_memory_size)
}

impl State {
    fn new(pace: Pace, maker: Maker) -> Self {
        let ready = VecDeque::new();
        let (is_taken, is_uncounted) = (false, false);
        let (ready_bytes, taken, turn, reader) = (0, 0, 0, None);
        Self { pace, ready, ready_bytes, taken, maker, reader, turn, is_taken, is_uncounted }
    }

    /// A thread takes the next turn. Returns its number.
    fn take_turn(&mut self) -> u64 {
        self.is_taken = true;
        self.turn += 1;
        self.turn
    }

    /// The turn of a number has ended. Returns whether it counted no more.
    fn end_turn(&mut self, number: u64) -> bool {
        if number != self.turn {
            return false;
        }
        self.is_taken = false;
        std::mem::take(&mut self.is_uncounted)
    }

    fn ready_max(&self) -> usize {
        self.pace.ready_max(self.taken)
    }

    fn push(&mut self, batch: Result<RecordBatch>) {
        self.ready_bytes += bytes_of(&batch);
        self.ready.push_back(batch);
    }

    fn pop(&mut self) -> Option<Result<RecordBatch>> {
        let batch = self.ready.pop_front()?;
        self.ready_bytes = self.ready_bytes.saturating_sub(bytes_of(&batch));
        self.taken += 1;
        Some(batch)
    }

    /// Whether a turn should end.
    fn is_full(&self) -> bool {
        self.ready.len() >= self.ready_max() || self.ready_bytes >= READY_BYTES_MAX
    }

    /// Whether the next turn should begin.
    fn is_half_empty(&self) -> bool {
        let count = self.ready.len();
        let bytes_max = if count < READY_FIRST { READY_BYTES_MAX - 1 } else { READY_BYTES_MAX / 2 };
        count <= self.ready_max() / 2 && self.ready_bytes <= bytes_max
    }

    /// The maker, if the next turn should begin.
    fn take_resting(&mut self) -> Option<Batches> {
        if !self.is_half_empty() || !matches!(self.maker, Maker::Resting(_)) {
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
        let next = match state.pop() {
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
            let turn = Turn { shared: Arc::clone(&self.shared), batches: Some(batches) };
            self.turns.begin(turn, &self.threads);
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
        // Nobody locks a state while it holds the queue.
        state.is_uncounted = state.is_taken && self.turns.leave(&self.threads);
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

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}

impl Turn {
    /// Makes batches until there are enough. Where that takes long, returns what is to be made behind the turns of others.
    fn run(mut self) -> Option<Self> {
        let start = Instant::now();
        let mut made = start;
        while let Some(batches) = &mut self.batches {
            if self.shared.is_left() {
                self.batches = None;
                break;
            }
            let next = batches.next();
            let (before, is_long) = (made, start.elapsed() > TURN_MAX);
            made = Instant::now();
            self.hand_over(next, is_long || made.duration_since(before) > SOON);
            if is_long && self.batches.is_some() {
                return Some(self);
            }
        }
        None
    }

    /// Hands a batch over to the reader, who is woken at once if the next does not come soon.
    fn hand_over(&mut self, next: Option<Result<RecordBatch>>, at_once: bool) {
        let is_last = !matches!(next, Some(Ok(_)));
        let mut state = self.shared.lock();
        let is_left = matches!(state.maker, Maker::Done);
        let mut done = None;
        if is_last || is_left {
            state.maker = Maker::Done;
            done = self.batches.take();
        }
        if !is_left {
            next.into_iter().for_each(|batch| state.push(batch));
        }
        if state.is_full()
            && let Some(batches) = self.batches.take()
        {
            state.maker = Maker::Resting(batches);
        }
        // The first one may be all that is wanted, however long the next takes.
        let is_first = state.taken == 0;
        let wakes = at_once || is_first || self.batches.is_none() || !state.is_half_empty();
        let reader = if wakes { state.reader.take() } else { None };
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
            self.hand_over(Some(Err(to_datafusion(error))), true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use datafusion::arrow::array::Int64Array;
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use futures::StreamExt;
    use futures::future::join_all;

    use super::*;

    fn batch(rows: usize) -> Result<RecordBatch> {
        let schema = Schema::new(vec![Field::new("v", DataType::Int64, false)]);
        let column = Arc::new(Int64Array::from(vec![0; rows]));
        Ok(RecordBatch::try_new(Arc::new(schema), vec![column])?)
    }

    /// How many batches are ready when a turn ends, and how many are left when the next one begins.
    fn ends(state: &mut State, rows: usize) -> (usize, usize) {
        while !state.is_full() {
            state.push(batch(rows));
        }
        let full = state.ready.len();
        while !state.is_half_empty() {
            state.pop();
        }
        (full, state.ready.len())
    }

    #[test]
    fn the_more_is_taken_the_more_is_made_ahead() {
        let state = || State::new(Pace::Ahead, Maker::Done);
        let mut small = state();
        assert_eq!(ends(&mut small, 100), (2, 1));
        for _ in 0..23 {
            small.push(batch(100));
            small.pop();
        }
        assert_eq!(small.ready_max(), 8);
        small.taken = 1000;
        assert_eq!(ends(&mut small, 100), (16, 8));
        // Batches of a quarter of what all may have, and of more than that.
        let mut large = state();
        large.taken = 1000;
        assert_eq!(ends(&mut large, 30_000), (5, 2));
        let mut huge = state();
        huge.taken = 1000;
        assert_eq!(ends(&mut huge, 1 << 18), (1, 0));
        let mut on_demand = State::new(Pace::OnDemand, Maker::Done);
        on_demand.taken = 1000;
        assert_eq!(ends(&mut on_demand, 100), (1, 0));
    }

    /// Batches were made for nobody, one for each turn that waited for a thread.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn nothing_is_made_for_a_reader_that_has_gone() {
        let asked = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&asked);
        let batches = std::iter::repeat_with(move || {
            *counted.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            batch(1)
        });
        let shared = Arc::new(Shared(Mutex::new(State::new(Pace::Ahead, Maker::Working))));
        let turn = Turn { shared: Arc::clone(&shared), batches: Some(Box::new(batches)) };
        let schema = batch(1).map(|batch| batch.schema()).expect("a batch");
        let turns = Arc::new(Turns::new(1));
        drop(Ahead { schema, shared, turns, threads: Handle::current() });
        assert!(turn.run().is_none());
        assert_eq!(*asked.lock().unwrap_or_else(PoisonError::into_inner), 0);
    }

    /// Each had a thread, hundreds where many read at once, and an allocator kept megabytes for each.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_few_turns_are_taken_at_once_and_all_in_the_end() {
        const READERS: usize = 24;
        const BATCHES: usize = 30;
        const AT_ONCE: usize = 2;
        let schema = batch(1).map(|batch| batch.schema()).expect("a batch");
        let turns = Arc::new(Turns::new(AT_ONCE));
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let streams = (0..READERS).map(|reader| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            let batches = (0..BATCHES).map(move |number| {
                assert!((reader, number) != (7, 9), "the turn of this reader panics");
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_micros(300));
                now.fetch_sub(1, Ordering::SeqCst);
                batch(10)
            });
            let schema = Arc::clone(&schema);
            let ahead = Ahead::new(schema, Box::new(batches), Pace::Ahead, Arc::clone(&turns));
            tokio::spawn(ahead.collect::<Vec<_>>())
        });
        for (reader, found) in join_all(streams).await.into_iter().enumerate() {
            let found = found.expect("a reader");
            match reader {
                7 => assert!(found.last().is_some_and(Result::is_err)),
                _ => assert_eq!(found.iter().filter(|batch| batch.is_ok()).count(), BATCHES),
            }
        }
        assert_eq!(most.load(Ordering::SeqCst), AT_ONCE);
        let start = Instant::now();
        while turns.lock().threads > 0 && start.elapsed() < Duration::from_secs(60) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(turns.lock().threads, 0);
    }

    /// Readers that had gone kept the threads from all others for as long as a batch of theirs took.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_has_gone_keeps_no_turn_from_others() {
        let turns = Arc::new(Turns::new(2));
        let schema = batch(1).map(|batch| batch.schema()).expect("a batch");
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (ended, begun) = (Arc::new(Mutex::new(ended)), Arc::new(AtomicUsize::new(0)));
        for readers in 1..=2 {
            let (ended, counted) = (Arc::clone(&ended), Arc::clone(&begun));
            let batches = std::iter::once_with(move || {
                counted.fetch_add(1, Ordering::SeqCst);
                // Until nobody can send any more.
                let _ = ended.lock().unwrap_or_else(PoisonError::into_inner).recv();
                batch(1)
            });
            let schema = Arc::clone(&schema);
            let mut gone = Ahead::new(schema, Box::new(batches), Pace::Ahead, Arc::clone(&turns));
            assert!(futures::poll!(gone.next()).is_pending());
            while begun.load(Ordering::SeqCst) < readers {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        let batches = std::iter::repeat_with(|| batch(10)).take(40);
        let stays = Ahead::new(schema, Box::new(batches), Pace::Ahead, Arc::clone(&turns));
        let found = tokio::time::timeout(Duration::from_secs(20), stays.collect::<Vec<_>>()).await;
        assert_eq!(found.map(|batches| batches.len()).ok(), Some(40));
        drop(end);
        let start = Instant::now();
        while turns.lock().threads > 0 && start.elapsed() < Duration::from_secs(60) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let queue = turns.lock();
        assert_eq!((queue.threads, queue.left), (0, 0));
    }

    /// The thread of a turn that had laid down its batches took those of the next one for its own, which then counted for as long as it took though its
    /// reader had gone.
    #[test]
    fn a_turn_that_ends_leaves_the_next_one_alone() {
        let mut state = State::new(Pace::Ahead, Maker::Working);
        let first = state.take_turn();
        let second = state.take_turn();
        assert!(!state.end_turn(first));
        assert!(state.is_taken, "the second turn goes on");
        state.is_uncounted = true;
        assert!(!state.end_turn(first));
        assert!(state.end_turn(second));
        assert!(!state.is_taken && !state.is_uncounted);
    }

    /// A first batch that came at once was told with the second, which may take a minute.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn the_first_batch_comes_before_the_next_is_made() {
        let schema = batch(1).map(|batch| batch.schema()).expect("a batch");
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let mut number = 0;
        let batches = std::iter::repeat_with(move || {
            number += 1;
            if number == 2 {
                // Until nobody can send any more.
                let _ = ended.recv();
            }
            batch(1)
        });
        let turns = Arc::new(Turns::new(1));
        let mut stream = Ahead::new(schema, Box::new(batches), Pace::Ahead, turns);
        let first = tokio::time::timeout(Duration::from_secs(20), stream.next()).await;
        assert!(matches!(first, Ok(Some(Ok(_)))));
        drop(end);
    }
}
