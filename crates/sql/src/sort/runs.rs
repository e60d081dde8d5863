//! The sort of a partition: rows that are held in memory, and runs of them on the disk.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{
    GreedyMemoryPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
    UnboundedMemoryPool,
};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::sorts::sort::sort_batch;
use datafusion::physical_plan::sorts::streaming_merge::{SortedSpillFile, StreamingMergeBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{EmptyRecordBatchStream, SpillManager};
use futures::StreamExt;

use super::several_keys;
use crate::over::bytes_of;
use crate::repeat::Widths;

/// Batches that DataFusion's merge sets aside for each run: two, with their keys.
const BATCHES_A_RUN: usize = 4;

/// Batches with which it can merge two runs, one of each.
const BATCHES_MIN: usize = 4;

/// Bytes that the form in which keys are compared adds at most to a list: marks, and what fills the last block of a text.
const KEY_VALUE_BYTES: u64 = 24;

/// Likewise for each row: where its keys begin.
const KEY_ROW_BYTES: u64 = 8;

/// The memory that a sort keeps to.
#[derive(Debug, Clone, Copy)]
pub(super) struct SortMemory {
    /// What it holds at most.
    most_bytes: usize,
    /// What it holds at least before it writes a run, whatever others hold.
    least_bytes: usize,
    /// Rows that are sorted in one go, with their keys: so few parts are merged that it pays, and they are a small part of the memory.
    part_bytes: usize,
    /// How long a batch of a run is.
    batch_bytes: usize,
    /// How long the batches are at most that come out of a merge, unless one row is longer.
    merged_bytes: usize,
}

impl SortMemory {
    /// A share of the memory of queries for each of so many partitions.
    pub(super) fn of(pool: &dyn MemoryPool, partitions: usize) -> Self {
        let limit = match pool.memory_limit() {
            MemoryLimit::Finite(bytes) => bytes,
            MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
        };
        let share = limit / partitions.max(1);
        let batch_bytes = (limit / 256).clamp(16 << 10, 1 << 20);
        Self {
            // What comes after a sort may need memory as well.
            most_bytes: share / 4 * 3,
            least_bytes: (share / 64).min(4 << 20),
            part_bytes: (share / 32).clamp(16 << 10, 8 << 20),
            batch_bytes,
            // Much longer than those of a run: one long row would make all of them short.
            merged_bytes: (share / 16).max(batch_bytes),
        }
    }
}

/// What is counted of a sort.
pub(super) struct SortMetrics {
    rows: BaselineMetrics,
    spilled: SpillMetrics,
}

impl SortMetrics {
    pub(super) fn new(set: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        Self {
            rows: BaselineMetrics::new(set, partition),
            spilled: SpillMetrics::new(set, partition),
        }
    }
}

/// What a sort is asked for.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) keys: LexOrdering,
    /// The first rows, so many, are enough.
    pub(super) fetch: Option<usize>,
    /// Rows of a batch.
    pub(super) batch_rows: usize,
}

/// Sorts the rows of a partition.
pub(super) struct Sorter {
    wanted: Wanted,
    schema: SchemaRef,
    memory: SortMemory,
    /// Rows as they came, too few yet to be sorted.
    loose: Loose,
    /// Batches, each sorted by itself.
    sorted: Vec<RecordBatch>,
    /// Files of sorted rows.
    runs: Vec<SortedSpillFile>,
    /// Bytes of the longest row.
    longest: u64,
    /// Memory for the sorted batches, their keys, and later for the merge of runs.
    charged: MemoryReservation,
    spills: SpillManager,
    rows: BaselineMetrics,
}

impl fmt::Debug for Sorter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sorter").field("runs", &self.runs).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Loose {
    batches: Vec<RecordBatch>,
    bytes: usize,
    /// What their keys take where they are merged.
    key_bytes: usize,
}

impl Loose {
    fn push(&mut self, batch: RecordBatch, bytes: usize, key_bytes: usize) {
        self.bytes += bytes;
        self.key_bytes = self.key_bytes.saturating_add(key_bytes);
        self.batches.push(batch);
    }

    fn total_bytes(&self) -> usize {
        self.bytes.saturating_add(self.key_bytes)
    }
}

impl Sorter {
    pub(super) fn new(
        wanted: Wanted,
        schema: SchemaRef,
        memory: SortMemory,
        metrics: SortMetrics,
        context: &TaskContext,
    ) -> Self {
        let consumer = MemoryConsumer::new("Sort").with_can_spill(true);
        let spills = SpillManager::new(context.runtime_env(), metrics.spilled, Arc::clone(&schema))
            .with_compression_type(context.session_config().spill_compression());
        Self {
            wanted,
            schema,
            memory,
            loose: Loose::default(),
            sorted: Vec::new(),
            runs: Vec::new(),
            longest: 0,
            charged: consumer.register(context.memory_pool()),
            spills,
            rows: metrics.rows,
        }
    }

    /// Takes more rows.
    pub(super) async fn push(&mut self, batch: RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let (bytes, key_bytes) = (bytes_of_batch(&batch), key_bytes(&self.wanted.keys, &batch)?);
        self.loose.push(batch, bytes, key_bytes);
        match self.loose.total_bytes() >= self.memory.part_bytes {
            true => self.settle().await,
            false => Ok(()),
        }
    }

    /// All rows in their order.
    pub(super) async fn finish(mut self) -> Result<SendableRecordBatchStream> {
        self.settle().await?;
        if self.runs.is_empty() {
            let sorted = std::mem::take(&mut self.sorted);
            let merged = self.merge(sorted, self.rows.clone())?;
            return Ok(self.holding(merged));
        }
        // Merging takes the memory of what is still held.
        self.write_run().await?;
        self.merge_runs()
    }

    /// Sorts the rows that came last.
    async fn settle(&mut self) -> Result<()> {
        let loose = std::mem::take(&mut self.loose);
        let Some(first) = loose.batches.first() else { return Ok(()) };
        let batch = match loose.batches.len() {
            1 => first.clone(),
            _ => concat_batches(&self.schema, &loose.batches)?,
        };
        let key_bytes = loose.key_bytes;
        drop(loose);
        let (keys, fetch) = (&self.wanted.keys, self.wanted.fetch);
        // One batch of rows may have keys of any length: those are compared where they are.
        let is_short = key_bytes <= 2 * self.memory.part_bytes;
        let batch = match keys.len() > 1 && is_short {
            true => several_keys::sorted(&batch, keys, fetch)?,
            false => sort_batch(&batch, keys, fetch)?,
        };
        self.longest = self.longest.max(Widths::of_batch(&batch).longest());
        let needed = bytes_of_batch(&batch).saturating_add(key_bytes);
        if !self.try_charge(needed) {
            if self.charged.size() >= self.memory.least_bytes {
                self.write_run().await?;
            }
            // It is there already; without it nothing would go on.
            self.charged.grow(needed);
        }
        self.sorted.push(batch);
        Ok(())
    }

    /// Charges more bytes, and says whether they could be had.
    fn try_charge(&self, bytes: usize) -> bool {
        self.charged.size().saturating_add(bytes) <= self.memory.most_bytes
            && self.charged.try_grow(bytes).is_ok()
    }

    /// Writes what is held as one run.
    async fn write_run(&mut self) -> Result<()> {
        let sorted = std::mem::take(&mut self.sorted);
        if sorted.is_empty() {
            return Ok(());
        }
        let mut merged = self.merge(sorted, self.rows.intermediate())?;
        let mut file = self.spills.create_in_progress_file("sorted rows")?;
        let mut longest = 0;
        while let Some(batch) = merged.next().await {
            let batch = batch?;
            // Short enough for several of them to be merged in little memory.
            let most_bytes = self.memory.batch_bytes as u64;
            for rows in Widths::of_batch(&batch).parts(batch.num_rows(), most_bytes) {
                let part = batch.slice(rows.start, rows.len());
                longest = longest.max(file.append_batch(&part)?);
            }
            // The rows are all here: nothing else would give others a turn.
            tokio::task::yield_now().await;
        }
        drop(merged);
        self.charged.free();
        if let Some(file) = file.finish()? {
            self.runs.push(SortedSpillFile { file, max_record_batch_memory: longest });
        }
        Ok(())
    }

    /// Rows of the batches that come out of a merge: long rows may all follow each other there.
    fn merged_rows(&self) -> usize {
        let longest = usize::try_from(self.longest).unwrap_or(usize::MAX).max(1);
        (self.memory.merged_bytes / longest).clamp(1, self.wanted.batch_rows.max(1))
    }

    /// One stream out of batches that are sorted each by itself. Their memory is charged.
    fn merge(
        &self,
        mut batches: Vec<RecordBatch>,
        metrics: BaselineMetrics,
    ) -> Result<SendableRecordBatchStream> {
        let (schema, rows) = (Arc::clone(&self.schema), self.merged_rows());
        if batches.len() < 2 {
            let Some(batch) = batches.pop() else {
                return Ok(Box::pin(EmptyRecordBatchStream::new(schema)));
            };
            let count = batch.num_rows();
            let parts = (0..count).step_by(rows);
            let parts = parts.map(move |at| Ok(batch.slice(at, rows.min(count - at))));
            let parts: Vec<_> = parts.collect();
            let parts = futures::stream::iter(parts)
                .inspect(move |part| metrics.record_output(part.as_ref().map_or(0, rows_of)));
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, parts)));
        }
        let one = |batch| {
            let batches = futures::stream::iter([Ok(batch)]);
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), batches)) as _
        };
        let inputs = batches.into_iter().map(one).collect();
        let charged_already: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        StreamingMergeBuilder::new()
            .with_streams(inputs)
            .with_schema(Arc::clone(&self.schema))
            .with_expressions(&self.wanted.keys)
            .with_metrics(metrics)
            .with_batch_size(rows)
            .with_fetch(self.wanted.fetch)
            .with_reservation(MemoryConsumer::new("Sort").register(&charged_already))
            .with_round_robin_tie_breaker(false)
            .build()
    }

    /// All runs as one stream.
    fn merge_runs(mut self) -> Result<SendableRecordBatchStream> {
        let runs = std::mem::take(&mut self.runs);
        let Some(longest) = runs.iter().map(|run| run.max_record_batch_memory).max() else {
            return internal_err!("there are no runs to merge");
        };
        // Where not all are merged at once, what comes of some of them is a run of longer batches.
        let merged = self.longest.saturating_mul(self.merged_rows() as u64);
        let merged = usize::try_from(merged).unwrap_or(usize::MAX);
        let merged = longest.max(merged.saturating_add(merged / 4));
        let bytes = self.charge_runs(longest, merged, runs.len());
        let mine: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes));
        let merged = StreamingMergeBuilder::new()
            .with_sorted_spill_files(runs)
            .with_spill_manager(self.spills.clone())
            .with_schema(Arc::clone(&self.schema))
            .with_expressions(&self.wanted.keys)
            .with_metrics(self.rows.clone())
            .with_batch_size(self.merged_rows())
            .with_fetch(self.wanted.fetch)
            .with_reservation(MemoryConsumer::new("SortedRuns").register(&mine))
            .build()?;
        Ok(self.holding(merged))
    }

    /// Takes memory for as many runs at once as possible, of batches of so many bytes at most, and in any case for two of those
    /// that come of merging some.
    fn charge_runs(&self, batch_bytes: usize, merged_bytes: usize, runs: usize) -> usize {
        self.charged.free();
        let all = batch_bytes.saturating_mul(BATCHES_A_RUN).saturating_mul(runs);
        let least = merged_bytes.saturating_mul(BATCHES_MIN).min(all);
        let mut bytes = all;
        loop {
            if self.try_charge(bytes) {
                return bytes;
            }
            if bytes == least {
                self.charged.grow(least);
                return least;
            }
            bytes = (bytes / 2).max(least);
        }
    }

    /// A stream for which the memory is charged until it ends.
    fn holding(self, merged: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let schema = merged.schema();
        let batches = merged.inspect(move |_| _ = &self.charged);
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }
}

fn rows_of(batch: &RecordBatch) -> usize {
    batch.num_rows()
}

fn bytes_of_batch(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| bytes_of(&**column)).sum()
}

/// Bytes that the keys of rows take in the form in which a merge compares them.
fn key_bytes(keys: &LexOrdering, batch: &RecordBatch) -> Result<usize> {
    let mut sum = batch.num_rows() as u64 * KEY_ROW_BYTES;
    for key in keys {
        let values = key.expr.evaluate(batch)?.into_array(batch.num_rows())?;
        if keys.len() == 1 && is_compared_in_place(values.data_type()) {
            return Ok(0);
        }
        sum = sum.saturating_add(compared_bytes(&values));
    }
    Ok(usize::try_from(sum).unwrap_or(usize::MAX))
}

/// Bytes of values in the form in which keys are compared.
pub(super) fn compared_bytes(values: &ArrayRef) -> u64 {
    let rows = values.len() as u64;
    let data_type = values.data_type();
    if let Some(width) = data_type.primitive_width() {
        return rows * (1 + width as u64);
    }
    if let Some(dictionary) = values.as_any_dictionary_opt() {
        if dictionary.values().is_empty() {
            return rows;
        }
        let widths = Widths::of_columns([dictionary.values()]);
        let keys = dictionary.normalized_keys();
        return keys.iter().map(|key| compared_text_bytes(widths.of(*key))).sum();
    }
    if data_type.is_string() || data_type.is_binary() {
        let widths = Widths::of_columns([values]);
        return (0..values.len()).map(|row| compared_text_bytes(widths.of(row))).sum();
    }
    let bytes = Widths::with_ends(&**values).total(values.len());
    bytes + bytes / 8 + rows * KEY_VALUE_BYTES
}

/// Bytes of a text: short ones come in blocks of 8 bytes, long ones in blocks of 32, each with a mark.
fn compared_text_bytes(length: u64) -> u64 {
    match length {
        ..=32 => 1 + length.div_ceil(8) * 9,
        _ => 4 + length.div_ceil(32).saturating_mul(33),
    }
}

/// Whether a merge by this key alone takes the values as they are.
fn is_compared_in_place(key: &DataType) -> bool {
    key.is_primitive() || key.is_string() || key.is_binary()
}
