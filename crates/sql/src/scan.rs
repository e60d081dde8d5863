//! The plan node that reads rows.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, RecordBatch, RecordBatchOptions, TimestampNanosecondArray,
};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    ConstExpr, EquivalenceProperties, Partitioning, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions, SchedulingType,
};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use tidefall_storage::{BATCH_ROWS, Comparison, RowBatch, ScanRequest, ValueCondition};
use tidefall_types::{ColumnKind, FieldId, TableSchema, TimeRange};

use crate::error::to_datafusion;
use crate::pushdown::Conditions;
use crate::reads::{self, Tally};
use crate::table::View;

/// Batches that a partition reads ahead of its consumer: one to hide the hand-over, no more, as
/// nobody counts their memory.
const BATCHES_AHEAD: usize = 2;

/// What is wanted of a table.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// The conditions on rows.
    pub(crate) conditions: Conditions,
    /// The sensors that meet them, ordered by their tags.
    pub(crate) sensors: Vec<u32>,
    /// The positions of the wanted columns in the table.
    pub(crate) columns: Vec<usize>,
    /// Rows that are enough.
    pub(crate) limit: Option<usize>,
}

/// Reads rows of a table, sensor by sensor in the order of their tags, by time within a sensor.
/// Each partition takes a contiguous part of the sensors.
#[derive(Debug, Clone)]
pub(crate) struct ScanNode {
    view: Arc<View>,
    columns: Arc<[ColumnKind]>,
    sensors: Arc<[u32]>,
    parts: Arc<[Range<usize>]>,
    time: TimeRange,
    conditions: Arc<[ValueCondition]>,
    limit: Option<usize>,
    properties: Arc<PlanProperties>,
    tally: Tally,
}

impl ScanNode {
    /// A scan of `view` in at most `partitions_max` partitions.
    pub(crate) fn try_new(view: Arc<View>, wanted: Wanted, partitions_max: usize) -> Result<Self> {
        let schema = Arc::new(view.arrow().project(&wanted.columns)?);
        let kinds: Arc<[ColumnKind]> =
            wanted.columns.iter().map(|&at| view.schema().columns[at].kind).collect();
        // The first rows that come will do: a second reader would only read what nobody needs.
        let few = wanted.limit.is_some_and(|limit| limit <= BATCH_ROWS);
        let parts = split(wanted.sensors.len(), if few { 1 } else { partitions_max });
        let equivalence = equivalence(&view, &schema, &kinds, &wanted.sensors)?;
        let properties = PlanProperties::new(
            equivalence,
            Partitioning::UnknownPartitioning(parts.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Ok(Self {
            view,
            columns: kinds,
            sensors: wanted.sensors.into(),
            parts: parts.into(),
            time: wanted.conditions.time,
            conditions: wanted.conditions.values.into(),
            limit: wanted.limit,
            properties: Arc::new(properties),
            tally: Tally::default(),
        })
    }

    /// What the scan has read so far.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    fn fields(&self) -> Vec<FieldId> {
        let field = |kind: &ColumnKind| match kind {
            ColumnKind::Field(id) => Some(*id),
            _ => None,
        };
        self.columns.iter().filter_map(field).collect()
    }

    fn request(&self, partition: usize) -> ScanRequest {
        ScanRequest {
            sensors: self.sensors[self.parts[partition].clone()].to_vec(),
            time: self.time,
            fields: self.fields(),
            conditions: self.conditions.to_vec(),
            limit: self.limit,
        }
    }

    /// The columns of a batch in the order of the output.
    fn record_batch(&self, schema: &SchemaRef, rows: &RowBatch) -> Result<RecordBatch> {
        let mut fields = rows.fields.iter();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.columns.len());
        for kind in self.columns.iter() {
            match kind {
                ColumnKind::Time => {
                    let time = TimestampNanosecondArray::new(rows.time.clone(), None);
                    columns.push(Arc::new(time));
                }
                ColumnKind::Tag(tag) => {
                    columns.push(self.view.tag(*tag).of_sensors(&rows.sensors)?);
                }
                ColumnKind::Field(_) => columns.extend(fields.next().map(Arc::clone)),
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
    }

    /// Runs on a thread that may block. `deliver` answers whether more is wanted.
    fn read(&self, partition: usize, mut deliver: impl FnMut(RecordBatch) -> bool) -> Result<()> {
        let schema = self.schema();
        let mut left = self.limit.unwrap_or(usize::MAX);
        let request = self.request(partition);
        let scan = self.view.snapshot().scan(&request).map_err(to_datafusion)?;
        self.tally.add(scan.stats());
        for rows in scan {
            let batch = self.record_batch(&schema, &rows.map_err(to_datafusion)?)?;
            let batch = if batch.num_rows() > left { batch.slice(0, left) } else { batch };
            left -= batch.num_rows();
            if !deliver(batch) || left == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// Splits `count` sensors into at most `parts_max` parts of about the same size; at least one.
fn split(count: usize, parts_max: usize) -> Vec<Range<usize>> {
    let parts = parts_max.min(count).max(1);
    (0..parts).map(|part| count * part / parts..count * (part + 1) / parts).collect()
}

/// States what is constant and how the rows are ordered: by the tags in the order of the schema,
/// then by time. Tags that all sensors share do not stand in the way of an order by time.
fn equivalence(
    view: &View,
    schema: &SchemaRef,
    columns: &[ColumnKind],
    sensors: &[u32],
) -> Result<EquivalenceProperties> {
    let column_of = |kind: ColumnKind| -> Option<Arc<dyn PhysicalExpr>> {
        let at = columns.iter().position(|column| *column == kind)?;
        Some(Arc::new(Column::new(schema.field(at).name(), at)))
    };
    let ascending = SortOptions { descending: false, nulls_first: false };
    let (mut ordering, mut constants, mut broken) = (Vec::new(), Vec::new(), false);
    for tag in (0..view.schema().tags.len()).map(|at| tidefall_types::TagId(at as u16)) {
        let column = column_of(ColumnKind::Tag(tag));
        if view.tag(tag).is_constant(sensors) {
            constants.extend(column.map(ConstExpr::from));
            continue;
        }
        match column {
            Some(column) if !broken => ordering.push(PhysicalSortExpr::new(column, ascending)),
            _ => broken = true,
        }
    }
    match column_of(ColumnKind::Time) {
        Some(time) if !broken => ordering.push(PhysicalSortExpr::new(time, ascending)),
        _ => {}
    }
    let mut properties = EquivalenceProperties::new_with_orderings(Arc::clone(schema), [ordering]);
    properties.add_constants(constants)?;
    Ok(properties)
}

impl DisplayAs for ScanNode {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.view.schema();
        let (found, all) = (self.sensors.len(), self.view.snapshot().sensor_count());
        write!(f, "TidefallScan: table={}, sensors={found} of {all}", schema.name)?;
        write!(f, ", time=[{}]", TimeText(self.time))?;
        let fields: Vec<&str> =
            self.fields().iter().map(|id| schema.fields[id.index()].name.as_str()).collect();
        write!(f, ", fields=[{}]", fields.join(", "))?;
        if !self.conditions.is_empty() {
            let conditions: Vec<String> =
                self.conditions.iter().map(|one| condition_text(one, schema)).collect();
            write!(f, ", conditions=[{}]", conditions.join(", "))?;
        }
        if let Some(limit) = self.limit {
            write!(f, ", limit={limit}")?;
        }
        write!(f, ", partitions={}", self.parts.len())
    }
}

/// A time range as `EXPLAIN` shows it.
pub(crate) struct TimeText(pub(crate) TimeRange);

impl fmt::Display for TimeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(range) = self;
        match (range.first_ns, range.last_ns) {
            (i64::MIN, i64::MAX) => f.write_str("all"),
            _ if range.is_empty() => f.write_str("none"),
            (i64::MIN, last) => write!(f, ".. {}", tidefall_types::format_time(last)),
            (first, i64::MAX) => write!(f, "{} ..", tidefall_types::format_time(first)),
            _ => range.fmt(f),
        }
    }
}

fn condition_text(condition: &ValueCondition, schema: &TableSchema) -> String {
    let op = match condition.op {
        Comparison::Lt => "<",
        Comparison::LtEq => "<=",
        Comparison::Gt => ">",
        Comparison::GtEq => ">=",
        Comparison::Eq => "=",
    };
    format!("{} {op} {}", schema.fields[condition.field.index()].name, condition.value)
}

impl ExecutionPlan for ScanNode {
    fn name(&self) -> &str {
        "TidefallScan"
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
        let mut stream = RecordBatchReceiverStream::builder(self.schema(), BATCHES_AHEAD);
        let (sender, node) = (stream.tx(), self.clone());
        stream.spawn_blocking(move || {
            node.read(partition, |batch| sender.blocking_send(Ok(batch)).is_ok())
        });
        Ok(stream.build())
    }
}
