//! Sorts of more rows than there is memory for.
//!
//! DataFusion's sort gives its memory back before it merges what it holds, and asks for it anew meanwhile: whoever sorts
//! beside it takes that memory, and the one or the other fails, sooner or later. Here a sort asks for memory once, for
//! rows, their keys and the merge of both, and nothing that comes after that can be refused:
//!
//! 1. Rows are sorted as they come, some ten thousand at a time, and held (`runs.rs`, `several_keys.rs`).
//! 2. When they have taken their share of the memory, they are merged into a file, a *run*.
//! 3. At the end runs are merged, as many at a time as there is memory for, and at least two.
//!
//! What a sort or a merge needs at least is some batches for each input. That is taken without being asked for
//! (`Overdraft`), and counts: a query may pass its memory by these, but not fail for want of them.

mod runs;
mod several_keys;

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::sorts::streaming_merge::StreamingMergeBuilder;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
};
use futures::{StreamExt, TryStreamExt};

use self::runs::{SortMemory, SortMetrics, Sorter, Wanted};
use crate::bounds::text_bytes;
use crate::otherwise::{RunsOtherwise, runs_otherwise};
use crate::tree::Tree;

/// A sort that keeps a few rows holds them in memory: as many as take one part of so many of it.
const KEPT_SHARE: usize = 4;

/// What a row that is kept takes beside its values: its key, and its place among the others.
const KEPT_ROW_BYTES: usize = 128;

/// A guess for texts and lists where no table knows more of their length.
const TEXT_BYTES: usize = 32;

/// Lets sorts and merges keep to the memory that there is.
#[derive(Debug)]
pub(crate) struct BoundedSorts {
    /// The memory that queries have.
    pub(crate) query_bytes: usize,
}

impl PhysicalOptimizerRule for BoundedSorts {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let changed = plan.transform_up(|node| {
            if let Some(sort) = node.downcast_ref::<SortExec>() {
                return Ok(match self.bounded(sort)? {
                    Some(sort) => Transformed::yes(Arc::new(sort) as _),
                    None => Transformed::no(node),
                });
            }
            Ok(match node.downcast_ref::<SortPreservingMergeExec>() {
                Some(merge) => Transformed::yes(Arc::new(MergedExec::new(merge.clone())) as _),
                None => Transformed::no(node),
            })
        });
        changed.map(|changed| changed.data)
    }

    fn name(&self) -> &str {
        "tidefall_bounded_sorts"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl BoundedSorts {
    /// The same sort within the memory; none where it sorts nothing, or keeps so few rows that they have room.
    fn bounded(&self, sort: &SortExec) -> Result<Option<SortedExec>> {
        let ordered = sort.input().equivalence_properties();
        let is_small = match sort.fetch() {
            Some(rows) => kept_bytes(sort, rows)? <= self.query_bytes / KEPT_SHARE,
            None => false,
        };
        if is_small || ordered.ordering_satisfy(sort.expr().clone())? {
            return Ok(None);
        }
        Ok(Some(SortedExec::new(sort.with_fetch(None), sort.fetch())))
    }
}

/// About how many bytes a sort holds that keeps so many rows of each partition.
fn kept_bytes(sort: &SortExec, rows: usize) -> Result<usize> {
    let schema = sort.input().schema();
    let widths = || schema.fields().iter().map(|field| field.data_type().primitive_width());
    let guessed = widths().filter(Option::is_none).count() * TEXT_BYTES;
    let texts = match guessed {
        0 => 0,
        _ => usize::try_from(text_bytes(sort.input())?).unwrap_or(usize::MAX).max(guessed),
    };
    let row_bytes = texts.saturating_add(KEPT_ROW_BYTES + widths().flatten().sum::<usize>());
    let partitions = match sort.preserve_partitioning() {
        true => sort.input().output_partitioning().partition_count(),
        false => 1,
    };
    Ok(row_bytes.saturating_mul(rows).saturating_mul(partitions))
}

/// A sort of the rows of each partition.
#[derive(Debug)]
pub(crate) struct SortedExec {
    /// What is sorted by what; it keeps all rows.
    inner: Arc<SortExec>,
    /// The first rows, so many, are enough.
    fetch: Option<usize>,
    metrics: ExecutionPlanMetricsSet,
}

impl SortedExec {
    fn new(inner: SortExec, fetch: Option<usize>) -> Self {
        Self { inner: Arc::new(inner), fetch, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// What is sorted by what.
    pub(crate) fn sort(&self) -> &SortExec {
        &self.inner
    }
}

runs_otherwise!(SortedExec);

impl RunsOtherwise for SortedExec {
    // As of DataFusion's: whoever reads plans knows it.
    const NAME: &'static str = "SortExec";

    type Inner = SortExec;

    fn inner(&self) -> &Arc<SortExec> {
        &self.inner
    }

    fn over(&self, sort: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        match sort.downcast_ref::<SortExec>() {
            Some(sort) => Arc::new(Self::new(sort.clone(), self.fetch)),
            None => sort,
        }
    }

    fn kept(&self) -> Option<usize> {
        self.fetch
    }

    fn measured(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn run(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let mut input = self.inner.input().execute(partition, Arc::clone(&context))?;
        let partitions = self.inner.input().output_partitioning().partition_count();
        let memory = SortMemory::of(&**context.memory_pool(), partitions);
        let schema = self.schema();
        let wanted = Wanted {
            keys: self.inner.expr().clone(),
            fetch: self.fetch,
            batch_rows: context.session_config().batch_size(),
        };
        let metrics = SortMetrics::new(&self.metrics, partition);
        let mut sorter = Sorter::new(wanted, Arc::clone(&schema), memory, metrics, &context);
        let sorted = futures::stream::once(async move {
            while let Some(batch) = input.next().await {
                sorter.push(batch?).await?;
            }
            drop(input);
            sorter.finish().await
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, sorted.try_flatten())))
    }
}

impl DisplayAs for SortedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: by=[{}]", Self::NAME, self.inner.expr())?;
        match self.fetch {
            Some(rows) => write!(f, ", fetch={rows}"),
            None => Ok(()),
        }
    }
}

/// A merge of partitions that are sorted.
#[derive(Debug)]
struct MergedExec {
    inner: Arc<SortPreservingMergeExec>,
    metrics: ExecutionPlanMetricsSet,
}

impl MergedExec {
    fn new(inner: SortPreservingMergeExec) -> Self {
        Self { inner: Arc::new(inner), metrics: ExecutionPlanMetricsSet::new() }
    }
}

runs_otherwise!(MergedExec);

impl RunsOtherwise for MergedExec {
    const NAME: &'static str = "SortPreservingMergeExec";

    type Inner = SortPreservingMergeExec;

    fn inner(&self) -> &Arc<SortPreservingMergeExec> {
        &self.inner
    }

    fn over(&self, merge: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        match merge.downcast_ref::<SortPreservingMergeExec>() {
            Some(merge) => Arc::new(Self::new(merge.clone())),
            None => merge,
        }
    }

    fn kept(&self) -> Option<usize> {
        self.inner.fetch()
    }

    fn measured(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn run(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let input = self.inner.input();
        let partitions = input.output_partitioning().partition_count();
        if partitions < 2 {
            return self.inner.execute(partition, context);
        }
        let inputs = (0..partitions)
            .map(|partition| Ok(spawn_buffered(input.execute(partition, Arc::clone(&context))?, 1)))
            .collect::<Result<_>>()?;
        StreamingMergeBuilder::new()
            .with_streams(inputs)
            .with_schema(self.schema())
            .with_expressions(self.inner.expr())
            .with_metrics(BaselineMetrics::new(&self.metrics, partition))
            .with_batch_size(context.session_config().batch_size())
            .with_fetch(self.inner.fetch())
            .with_reservation(Overdraft::reservation(context.memory_pool()))
            .build()
    }
}

impl DisplayAs for MergedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: by=[{}]", Self::NAME, self.inner.expr())?;
        match self.inner.fetch() {
            Some(rows) => write!(f, ", fetch={rows}"),
            None => Ok(()),
        }
    }
}

/// Takes memory for what cannot do without, whether there is some or not. It counts in the pool of all others, who get
/// less meanwhile.
#[derive(Debug)]
struct Overdraft {
    counted: MemoryReservation,
}

impl Overdraft {
    fn reservation(pool: &Arc<dyn MemoryPool>) -> MemoryReservation {
        let counted = MemoryConsumer::new(MergedExec::NAME).register(pool);
        let pool: Arc<dyn MemoryPool> = Arc::new(Self { counted });
        MemoryConsumer::new(MergedExec::NAME).register(&pool)
    }
}

impl fmt::Display for Overdraft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(used: {})", self.name(), self.reserved())
    }
}

impl MemoryPool for Overdraft {
    fn name(&self) -> &str {
        "overdraft"
    }

    fn grow(&self, _: &MemoryReservation, additional: usize) {
        self.counted.grow(additional);
    }

    fn shrink(&self, _: &MemoryReservation, shrink: usize) {
        self.counted.shrink(shrink);
    }

    fn try_grow(&self, _: &MemoryReservation, additional: usize) -> Result<()> {
        self.counted.grow(additional);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.counted.size()
    }
}

#[cfg(test)]
mod tests;
