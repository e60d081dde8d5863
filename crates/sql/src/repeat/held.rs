//! The build side of a join, which is there before the join begins, so that it can be told how many rows to gather.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt, TryStreamExt};

use super::{BATCH_BYTES, ROWS_FEW, Widths, is_in_parts, rows_of, usual_rows, with_rows};
use crate::passing::{PassesRows, passes_rows_on};

/// Reads a build side, and answers with the bytes of its longest row.
type Reading = Shared<BoxFuture<'static, Result<u64, Arc<DataFusionError>>>>;

/// Rows that wait for their join.
struct Rows {
    /// With the bytes that each is charged for.
    batches: VecDeque<(RecordBatch, usize)>,
    reservation: MemoryReservation,
    /// What there was no memory for.
    rest: Option<SendableRecordBatchStream>,
}

#[derive(Clone)]
struct Part {
    reading: Reading,
    /// None until they are there, and once the join has them.
    rows: Arc<Mutex<Option<Rows>>>,
}

/// Holds the rows of its input until all of them are there.
pub(super) struct HeldExec {
    input: Arc<dyn ExecutionPlan>,
    parts: Mutex<HashMap<usize, Part>>,
}

impl HeldExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input, parts: Mutex::default() }
    }

    /// Reads what the join in `partition` builds on.
    fn read(&self, partition: usize, context: &Arc<TaskContext>) -> Result<Reading> {
        let part = if is_in_parts(&self.input) { partition } else { 0 };
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = parts.get(&part) {
            return Ok(part.reading.clone());
        }
        let usual = with_rows(context, usual_rows(context));
        let stream = self.input.execute(part, usual)?;
        let reservation = MemoryConsumer::new("build side").register(context.memory_pool());
        let rows = Arc::new(Mutex::new(None));
        let reading = gather(stream, reservation, Arc::clone(&rows)).boxed().shared();
        parts.insert(part, Part { reading: reading.clone(), rows });
        Ok(reading)
    }

    fn take(&self, partition: usize) -> Option<Rows> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let part = parts.get(&partition)?.clone();
        part.rows.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

async fn gather(
    mut stream: SendableRecordBatchStream,
    reservation: MemoryReservation,
    place: Arc<Mutex<Option<Rows>>>,
) -> Result<u64, Arc<DataFusionError>> {
    let (mut longest, mut batches, mut rest) = (0, VecDeque::new(), None);
    let mut counter = RecordBatchMemoryCounter::new();
    while let Some(batch) = stream.try_next().await.map_err(Arc::new)? {
        longest = longest.max(Widths::of_batch(&batch).longest());
        let bytes = counter.count_batch(&batch);
        if reservation.try_grow(bytes).is_err() {
            // The join knows what to do without memory. Nobody knows how long the others are.
            batches.push_back((batch, 0));
            longest = longest.max(BATCH_BYTES / ROWS_FEW as u64);
            rest = Some(stream);
            break;
        }
        batches.push_back((batch, bytes));
    }
    let rows = Rows { batches, reservation, rest };
    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(rows);
    Ok(longest)
}

/// The next of the rows that were held, charged to whoever takes them from now on.
async fn next(mut rows: Rows) -> Result<Option<(RecordBatch, Rows)>> {
    if let Some((batch, bytes)) = rows.batches.pop_front() {
        rows.reservation.shrink(bytes);
        return Ok(Some((batch, rows)));
    }
    let Some(rest) = &mut rows.rest else { return Ok(None) };
    Ok(rest.next().await.transpose()?.map(|batch| (batch, rows)))
}

impl fmt::Debug for HeldExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldExec").field("input", &self.input).finish_non_exhaustive()
    }
}

passes_rows_on!(HeldExec);

impl PassesRows for HeldExec {
    const NAME: &'static str = "Held";

    fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self::new(input)
    }

    fn run(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        match self.take(partition) {
            Some(rows) => {
                let batches = futures::stream::try_unfold(rows, next);
                Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
            }
            // A join that had no memory for them asks again.
            None => self.input.execute(partition, with_rows(&context, usual_rows(&context))),
        }
    }
}

/// Has its input gather as many rows as the build side of the join in it allows.
#[derive(Debug)]
pub(super) struct SizedExec {
    input: Arc<dyn ExecutionPlan>,
    /// Rows at most, whatever is built on.
    rows_max: usize,
}

impl SizedExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, rows_max: usize) -> Self {
        Self { input, rows_max }
    }

    /// Reads the build side of the join below, if there is one.
    fn read(&self, partition: usize, context: &Arc<TaskContext>) -> Result<Option<Reading>> {
        let mut node = &self.input;
        loop {
            if let Some(held) = node.downcast_ref::<HeldExec>() {
                return held.read(partition, context).map(Some);
            }
            // Between them are the join, and what gives others a turn.
            match node.children().first() {
                Some(first) if !node.is::<super::CutExec>() => node = *first,
                _ => return Ok(None),
            }
        }
    }
}

passes_rows_on!(SizedExec);

impl PassesRows for SizedExec {
    const NAME: &'static str = "Sized";

    fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input, rows_max: self.rows_max }
    }

    fn run(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows_max = self.rows_max.min(context.session_config().batch_size());
        let Some(reading) = self.read(partition, &context)? else {
            return self.input.execute(partition, with_rows(&context, rows_max));
        };
        let input = Arc::clone(&self.input);
        let batches = async move {
            let longest = reading.await.map_err(DataFusionError::Shared)?;
            input.execute(partition, with_rows(&context, rows_max.min(rows_of(longest))))
        };
        let batches = futures::stream::once(batches).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}
