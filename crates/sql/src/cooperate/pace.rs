//! The probe side of a join, in batches that the join works through in time for others to have a turn.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use futures::{Stream, StreamExt};

use crate::passing::{PassesRows, passes_rows_on};

/// How long a join may keep its thread.
const TURN: Duration = Duration::from_millis(20);
/// Rows of the first batch. Each may meet all rows of the other side.
const ROWS_FIRST: usize = 1;
/// By how much batches grow for which a join needs less than a quarter of its turn.
const GROWTH: usize = 4;

/// How each partition of a join keeps its thread.
#[derive(Debug)]
pub(super) struct Kept {
    base: Instant,
    partitions: Vec<Partition>,
}

/// Times are in nanoseconds.
#[derive(Debug, Default)]
struct Partition {
    /// Since when the thread is kept, from `base`.
    turn: AtomicU64,
    /// The same, or since when the join works on, if it has asked for a batch meanwhile.
    since: AtomicU64,
    /// What the batch took that was given last, without the time in which the thread was others'.
    worked: AtomicU64,
}

impl Kept {
    pub(super) fn new(partitions: usize) -> Self {
        let partitions = (0..partitions).map(|_| Partition::default()).collect();
        Self { base: Instant::now(), partitions }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.base.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The join is asked for a batch.
    pub(super) fn begin(&self, partition: usize) {
        if let Some(partition) = self.partitions.get(partition) {
            let now = self.now();
            partition.turn.store(now, Ordering::Relaxed);
            partition.since.store(now, Ordering::Relaxed);
        }
    }

    /// The join gives the thread back, or asks for a batch itself: how long it kept the thread, and how long it worked on
    /// the batch that it was given last.
    pub(super) fn end(&self, partition: usize) -> (Duration, Duration) {
        let Some(partition) = self.partitions.get(partition) else { return Default::default() };
        let now = self.now();
        let kept = now.saturating_sub(partition.turn.load(Ordering::Relaxed));
        let more = now.saturating_sub(partition.since.swap(now, Ordering::Relaxed));
        let worked = more + partition.worked.fetch_add(more, Ordering::Relaxed);
        (Duration::from_nanos(kept), Duration::from_nanos(worked))
    }

    /// The join is given a batch.
    fn give(&self, partition: usize) {
        if let Some(partition) = self.partitions.get(partition) {
            partition.worked.store(0, Ordering::Relaxed);
            partition.since.store(self.now(), Ordering::Relaxed);
        }
    }
}

/// Cuts the batches of a join's probe side to what the join works through within its turn.
#[derive(Debug)]
pub(super) struct PaceExec {
    input: Arc<dyn ExecutionPlan>,
    kept: Arc<Kept>,
}

impl PaceExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, kept: Arc<Kept>) -> Self {
        Self { input, kept }
    }
}

passes_rows_on!(PaceExec);

impl PassesRows for PaceExec {
    const NAME: &'static str = "Pace";

    fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input, kept: Arc::clone(&self.kept) }
    }

    fn run(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let kept = Arc::clone(&self.kept);
        Ok(Box::pin(Pace { input, rest: None, rows: ROWS_FIRST, given: 0, kept, partition }))
    }
}

struct Pace {
    input: SendableRecordBatchStream,
    /// What is left of a batch.
    rest: Option<RecordBatch>,
    /// Rows that the join is given at once.
    rows: usize,
    /// Rows that it was given last; none if it has been looked at since.
    given: usize,
    kept: Arc<Kept>,
    partition: usize,
}

/// The rows of the next batch, if the join worked for so long on `given` of at most `rows`.
fn next_rows(rows: usize, given: usize, worked: Duration) -> usize {
    if worked > TURN {
        let share = TURN.as_nanos() * given as u128 / worked.as_nanos();
        return usize::try_from(share).unwrap_or(rows).max(1);
    }
    match worked < TURN / 4 && given == rows {
        true => rows.saturating_mul(GROWTH),
        false => rows,
    }
}

impl Stream for Pace {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let (kept, worked) = self.kept.end(self.partition);
        if self.given > 0 {
            self.rows = next_rows(self.rows, self.given, worked);
            self.given = 0;
            if kept > TURN {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        let batch = match self.rest.take() {
            Some(batch) => batch,
            None => match ready!(self.input.poll_next_unpin(cx)) {
                Some(Ok(batch)) => batch,
                other => return Poll::Ready(other),
            },
        };
        // Time that the input took is not the join's.
        self.kept.give(self.partition);
        let rows = batch.num_rows().min(self.rows);
        if rows < batch.num_rows() {
            self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        self.given = rows;
        Poll::Ready(Some(Ok(batch.slice(0, rows))))
    }
}

impl RecordBatchStream for Pace {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_shrink_to_a_turn_and_grow_again() {
        let millis = Duration::from_millis;
        assert_eq!(next_rows(64, 64, millis(1)), 256);
        assert_eq!(next_rows(64, 64, millis(10)), 64);
        assert_eq!(next_rows(64, 64, millis(80)), 16);
        assert_eq!(next_rows(64, 64, millis(80_000)), 1);
        assert_eq!(next_rows(1, 1, millis(80_000)), 1);
        // A short batch tells nothing of long ones.
        assert_eq!(next_rows(64, 3, millis(1)), 64);
        assert_eq!(next_rows(8_192, 100, millis(80)), 25);
        assert_eq!(next_rows(usize::MAX, usize::MAX, millis(1)), usize::MAX);
    }
}
