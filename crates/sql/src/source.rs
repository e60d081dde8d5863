//! The plan node that everything is read by: rows, metrics and layers are its sources.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions, SchedulingType,
};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use tidefall_storage::BATCH_ROWS;

use crate::ahead::{Ahead, Batches};
use crate::reads::{self, Tally};

/// Makes batches.
pub(crate) trait Source: fmt::Debug + Send + Sync {
    /// The name of its node in `EXPLAIN`.
    fn name(&self) -> &'static str;
    /// What it makes, for `EXPLAIN`.
    fn describe(&self) -> String;
    /// The number of parts that can be made at the same time.
    fn partitions(&self) -> usize;
    /// Begins to make the batches of a part, of which the first `limit` rows are wanted; it may make more. This
    /// and the making run on threads that may block.
    fn open(
        self: Arc<Self>,
        partition: usize,
        limit: Option<usize>,
        tally: &Tally,
    ) -> Result<Batches>;
}

/// Reads a source.
#[derive(Debug, Clone)]
pub(crate) struct SourceNode {
    source: Arc<dyn Source>,
    properties: Arc<PlanProperties>,
    limit: Option<usize>,
    tally: Tally,
}

impl SourceNode {
    /// A plan that reads `source`; `equivalence` has the schema of its batches and tells how they are ordered.
    pub(crate) fn new(
        source: Arc<dyn Source>,
        equivalence: EquivalenceProperties,
        limit: Option<usize>,
    ) -> Self {
        let properties = PlanProperties::new(
            equivalence,
            Partitioning::UnknownPartitioning(source.partitions()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Self { source, properties: Arc::new(properties), limit, tally: Tally::default() }
    }

    /// The same, where it is known which rows are in which part.
    pub(crate) fn with_partitioning(self, partitioning: Partitioning) -> Self {
        debug_assert_eq!(partitioning.partition_count(), self.source.partitions());
        let properties = PlanProperties::clone(&self.properties).with_partitioning(partitioning);
        Self { properties: Arc::new(properties), ..self }
    }

    /// What it has read so far.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }
}

/// A part of a source, opened when its first batch is asked for, up to the limit of rows.
struct Part {
    node: SourceNode,
    partition: usize,
    batches: Option<Batches>,
    rows_left: usize,
}

impl Part {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.rows_left == 0 {
            return Ok(None);
        }
        let batches = match &mut self.batches {
            Some(batches) => batches,
            none => {
                let SourceNode { source, limit, tally, .. } = &self.node;
                none.insert(Arc::clone(source).open(self.partition, *limit, tally)?)
            }
        };
        let Some(mut batch) = batches.next().transpose()? else { return Ok(None) };
        if batch.num_rows() > self.rows_left {
            batch = batch.slice(0, self.rows_left);
        }
        self.rows_left -= batch.num_rows();
        Ok(Some(batch))
    }
}

impl Iterator for Part {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

impl DisplayAs for SourceNode {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source.name(), self.source.describe())?;
        if let Some(limit) = self.limit {
            write!(f, ", limit={limit}")?;
        }
        write!(f, ", partitions={}", self.source.partitions())
    }
}

impl ExecutionPlan for SourceNode {
    fn name(&self) -> &str {
        self.source.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(Self { limit, tally: Tally::default(), ..self.clone() }))
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(reads::metrics(&self.tally))
    }

    fn execute(
        &self,
        partition: usize,
        _context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows_left = self.limit.unwrap_or(usize::MAX);
        let part = Part { node: self.clone(), partition, batches: None, rows_left };
        Ok(Box::pin(cooperative(Ahead::new(self.schema(), Box::new(part)))))
    }
}

/// Large batches as slices of the usual size.
pub(crate) fn sliced(
    batches: impl Iterator<Item = Result<RecordBatch>> + Send + 'static,
) -> Batches {
    Box::new(batches.flat_map(|batch| match batch {
        Ok(batch) => {
            let starts = (0..batch.num_rows()).step_by(BATCH_ROWS);
            let rows = |start| BATCH_ROWS.min(batch.num_rows() - start);
            starts.map(|start| Ok(batch.slice(start, rows(start)))).collect::<Vec<_>>()
        }
        error => vec![error],
    }))
}
