//! The plan node that everything is read by: rows, metrics and layers are its sources.

use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_expr_common::physical_expr::format_physical_expr_list;
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions, SchedulingType,
};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, Statistics,
};
use futures::{Stream, StreamExt};
use tidefall_storage::{BATCH_ROWS, TimeOrder};
use tidefall_types::text_bytes;

use crate::ahead::{Ahead, Batches, Pace, Turns};
use crate::cooperate::Steps;
use crate::live::Live;
use crate::reads::{self, Reads, Tally};

/// Bytes of texts and lists that a batch should have: as many as one that comes from the storage.
pub(crate) const BATCH_BYTES: u64 = 1 << 20;

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
    /// Begins to make the batches of a part, of which the first `limit` rows are wanted; it may make more. Rows that
    /// `live` rules out meanwhile need not come. This and the making run on threads that may block.
    fn open(
        self: Arc<Self>,
        partition: usize,
        limit: Option<usize>,
        live: Live,
        tally: &Tally,
    ) -> Result<Batches>;
    /// About how many rows it makes, in one part or in all, if it can tell without reading any.
    fn rows_about(&self, _partition: Option<usize>) -> Option<usize> {
        None
    }
    /// About how many different values a column has, if it can tell without reading any.
    fn distinct_about(&self, _column: usize) -> Option<usize> {
        None
    }
    /// Whether a filter on its batches that changes while they are made can spare it work.
    fn is_narrowed_by(&self, _filter: &Arc<dyn PhysicalExpr>) -> bool {
        false
    }
    /// The same source, whose batches begin at one end of `column`, a time or, ascending, a distance, and go on to the other stretch
    /// by stretch, in no order within; none where it cannot.
    fn by_time(&self, _column: usize, _order: TimeOrder) -> Option<Arc<dyn Source>> {
        None
    }
}

/// Reads a source.
#[derive(Debug, Clone)]
pub(crate) struct SourceNode {
    source: Arc<dyn Source>,
    properties: Arc<PlanProperties>,
    limit: Option<usize>,
    /// Filters that change; none beside a limit, which counts the rows without them.
    filters: Vec<Arc<dyn PhysicalExpr>>,
    pace: Pace,
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
        let (filters, tally) = (Vec::new(), Tally::default());
        Self { source, properties: Arc::new(properties), limit, filters, pace: Pace::Ahead, tally }
    }

    /// The same node over a source that begins at one end of time, if `column` is its time.
    pub(crate) fn by_time(&self, column: usize, order: TimeOrder) -> Result<Option<Self>> {
        if self.limit.is_some() {
            return Ok(None);
        }
        let Some(source) = self.source.by_time(column, order) else { return Ok(None) };
        let mut equivalence = EquivalenceProperties::new(self.schema());
        equivalence.add_constants(self.properties.equivalence_properties().constants())?;
        let properties = PlanProperties::clone(&self.properties).with_eq_properties(equivalence);
        let (properties, pace) = (Arc::new(properties), Pace::OnDemand);
        Ok(Some(Self { source, properties, pace, tally: Tally::default(), ..self.clone() }))
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

    /// What all nodes of a plan have read so far.
    pub(crate) fn reads_below(plan: &Arc<dyn ExecutionPlan>) -> Reads {
        let mut all = Reads::default();
        let mut waiting = vec![plan];
        while let Some(node) = waiting.pop() {
            if let Some(node) = node.downcast_ref::<Self>() {
                all.add(&node.tally.sum());
            }
            waiting.extend(node.children());
        }
        all
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
                let SourceNode { source, limit, filters, tally, .. } = &self.node;
                let live = Live::new(filters.clone());
                none.insert(Arc::clone(source).open(self.partition, *limit, live, tally)?)
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
        if !self.filters.is_empty() {
            write!(f, ", filters={}", format_physical_expr_list(&self.filters))?;
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
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for filter in &self.filters {
            if f(filter)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
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
        let filters = if limit.is_some() { Vec::new() } else { self.filters.clone() };
        Some(Arc::new(Self { limit, filters, tally: Tally::default(), ..self.clone() }))
    }

    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        pushed: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        // Filters that never change have come with the scan.
        let filters: Vec<Arc<dyn PhysicalExpr>> = match (phase, self.limit) {
            (FilterPushdownPhase::Post, None) => pushed
                .parent_filters
                .iter()
                .map(|pushed| &pushed.filter)
                .filter(|filter| self.source.is_narrowed_by(filter))
                .map(Arc::clone)
                .collect(),
            _ => Vec::new(),
        };
        let propagation = FilterPushdownPropagation::if_all(pushed);
        if filters.is_empty() {
            return Ok(propagation);
        }
        // The properties stay the very same, by which the nodes above know that nothing else has changed.
        let node: Arc<dyn ExecutionPlan> = Arc::new(Self { filters, ..self.clone() });
        Ok(propagation.with_updated_node(node))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self { filters: Vec::new(), ..Self::clone(&self) }))
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }

    /// Never exact: answers must not come from them, and what a delete hides is counted, too.
    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let schema = self.schema();
        let mut statistics = Statistics::new_unknown(&schema);
        if let Some(rows) = self.source.rows_about(args.partition()) {
            let rows = self.limit.map_or(rows, |limit| rows.min(limit));
            let types = || schema.fields().iter().map(|field| field.data_type());
            let lists = match types().any(|data_type| matches!(data_type, DataType::List(_))) {
                true => usize::try_from(self.source.row_bytes()).unwrap_or(usize::MAX),
                false => 0,
            };
            let bytes_per_row = types().map(bytes_about).sum::<usize>().max(lists);
            statistics.num_rows = Precision::Inexact(rows);
            statistics.total_byte_size = Precision::Inexact(rows.saturating_mul(bytes_per_row));
        }
        for (at, column) in statistics.column_statistics.iter_mut().enumerate() {
            if let Some(values) = self.source.distinct_about(at) {
                column.distinct_count = Precision::Inexact(values);
            }
        }
        Ok(Arc::new(statistics))
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
        let turns = context.session_config().get_extension::<Turns>();
        // Every session has some.
        let turns = turns.unwrap_or_else(|| Arc::new(Turns::new(1)));
        let batches = Ahead::new(self.schema(), Box::new(part), self.pace, turns);
        Ok(Box::pin(InSteps { batches, steps: Steps::begin() }))
    }
}

/// The batches of a source, between which others have a turn.
struct InSteps {
    batches: Ahead,
    steps: Steps,
}

impl Stream for InSteps {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let step = ready!(self.steps.poll_step(cx));
        let next = self.batches.poll_next_unpin(cx);
        match next.is_ready() {
            true => step.made_progress(),
            false => self.steps.rest(),
        }
        next
    }
}

impl RecordBatchStream for InSteps {
    fn schema(&self) -> SchemaRef {
        self.batches.schema()
    }
}

/// What a text in a column takes, about.
const TEXT_BYTES: usize = 32;

/// What a value in a column takes, about.
fn bytes_about(data_type: &DataType) -> usize {
    match data_type {
        DataType::Boolean => 1,
        DataType::Dictionary(keys, _) => bytes_about(keys),
        other => other.primitive_width().unwrap_or(TEXT_BYTES),
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
