//! The plan node that everything is read by: rows, metrics and layers are its sources.

use std::fmt;
use std::ops::Range;
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
use tidefall_types::text_bytes;

use crate::ahead::{Ahead, Batches};
use crate::bounds::BATCH_BYTES;
use crate::reads::{self, Tally};

/// Makes batches.
pub(crate) trait Source: fmt::Debug + Send + Sync {
    /// The name of its node in `EXPLAIN`.
    fn name(&self) -> &'static str;
    /// What it makes, for `EXPLAIN`.
    fn describe(&self) -> String;
    /// The number of parts that can be made at the same time.
    fn partitions(&self) -> usize;
    /// About how many bytes a row has in what may be of any length: texts and lists.
    fn row_bytes(&self) -> u64 {
        0
    }
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

    /// About how many bytes a row has in what may be of any length.
    pub(crate) fn row_bytes(&self) -> u64 {
        self.source.row_bytes()
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
    /// Rows of a batch at most.
    batch_rows: usize,
    /// What did not fit into the last batch.
    rest: Option<RecordBatch>,
}

impl Part {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.rows_left == 0 {
            return Ok(None);
        }
        let Some(mut batch) = self.take_batch()? else { return Ok(None) };
        let rows = self.rows_left.min(self.batch_rows);
        if batch.num_rows() > rows {
            self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
            batch = batch.slice(0, rows);
        }
        self.rows_left -= batch.num_rows();
        Ok(Some(batch))
    }

    fn take_batch(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(rest) = self.rest.take() {
            return Ok(Some(rest));
        }
        let batches = match &mut self.batches {
            Some(batches) => batches,
            none => {
                let SourceNode { source, limit, tally, .. } = &self.node;
                none.insert(Arc::clone(source).open(self.partition, *limit, tally)?)
            }
        };
        batches.next().transpose()
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
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let part = Part {
            node: self.clone(),
            partition,
            batches: None,
            rows_left: self.limit.unwrap_or(usize::MAX),
            // Beside a source of long rows, as a join may lay them beside each of these.
            batch_rows: context.session_config().batch_size().max(1),
            rest: None,
        };
        Ok(Box::pin(cooperative(Ahead::new(self.schema(), Box::new(part)))))
    }
}

fn texts_of(batch: &RecordBatch, rows: Range<usize>) -> u64 {
    batch.columns().iter().map(|column| text_bytes(column, rows.clone()) as u64).sum()
}

/// Large batches as slices of the usual size.
pub(crate) fn sliced(
    batches: impl Iterator<Item = Result<RecordBatch>> + Send + 'static,
) -> Batches {
    Box::new(batches.flat_map(|batch| match batch {
        Ok(batch) => {
            let (mut slices, mut start) = (Vec::new(), 0);
            while start < batch.num_rows() {
                let mut rows = BATCH_ROWS.min(batch.num_rows() - start);
                while rows > 1 && texts_of(&batch, start..start + rows) > BATCH_BYTES {
                    rows /= 2;
                }
                slices.push(Ok(batch.slice(start, rows)));
                start += rows;
            }
            slices
        }
        error => vec![error],
    }))
}
