//! The plan node that everything is read by: rows, metrics and layers are its sources.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions, SchedulingType,
};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use crate::reads::{self, Tally};

/// Batches that a partition makes ahead of their consumer: enough to hide the hand-over, no more, as nobody counts
/// their memory.
const BATCHES_AHEAD: usize = 2;

/// Takes a batch and answers whether more are wanted.
pub(crate) type Deliver<'a> = dyn FnMut(RecordBatch) -> bool + 'a;

/// Makes batches.
pub(crate) trait Source: fmt::Debug + Send + Sync {
    /// The name of its node in `EXPLAIN`.
    fn name(&self) -> &'static str;
    /// What it makes, for `EXPLAIN`.
    fn describe(&self) -> String;
    /// The number of parts that can be made at the same time.
    fn partitions(&self) -> usize;
    /// Makes the batches of a part, of which the first `limit` rows are wanted; it may make more. Runs on a
    /// thread that may block.
    fn produce(
        &self,
        partition: usize,
        limit: Option<usize>,
        tally: &Tally,
        deliver: &mut Deliver<'_>,
    ) -> Result<()>;
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

    /// What it has read so far.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    fn read(&self, partition: usize, mut deliver: impl FnMut(RecordBatch) -> bool) -> Result<()> {
        let mut left = self.limit.unwrap_or(usize::MAX);
        self.source.produce(partition, self.limit, &self.tally, &mut |batch| {
            let batch = if batch.num_rows() > left { batch.slice(0, left) } else { batch };
            left -= batch.num_rows();
            deliver(batch) && left > 0
        })
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
        let schema: SchemaRef = self.schema();
        let mut stream = RecordBatchReceiverStream::builder(schema, BATCHES_AHEAD);
        let (sender, node) = (stream.tx(), self.clone());
        stream.spawn_blocking(move || {
            node.read(partition, |batch| sender.blocking_send(Ok(batch)).is_ok())
        });
        Ok(stream.build())
    }
}
