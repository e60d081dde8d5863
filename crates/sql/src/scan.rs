//! Reads rows.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, RecordBatch, RecordBatchOptions, TimestampNanosecondArray,
};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use tidefall_storage::{
    BATCH_ROWS, Comparison, RowBatch, Scan, ScanRequest, TimeOrder, ValueCondition,
};
use tidefall_types::{ColumnKind, TableSchema, TimeRange};

use crate::ahead::Batches;
use crate::arrange::Arrangement;
use crate::error::to_datafusion;
use crate::live::{Around, Columns, Live};
use crate::reads::Tally;
use crate::request::Request;
use crate::source::{Source, SourceNode};
use crate::view::View;

/// Reads rows of a table, sensor by sensor, by time within a sensor. Each partition takes a
/// contiguous part of the sensors; see [`Arrangement`] for their order.
#[derive(Debug, Clone)]
struct RowScan {
    view: Arc<View>,
    request: Request,
    sensors: Vec<u32>,
    parts: Vec<Range<usize>>,
    /// At which end of time to begin, stretch by stretch; sensor by sensor when absent.
    order: Option<TimeOrder>,
}

/// A plan that answers a request from `view` in at most `partitions_max` partitions.
pub(crate) fn plan(
    view: &Arc<View>,
    request: Request,
    partitions_max: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let limit = request.limit;
    // The first rows that come will do: a second reader would only read what nobody needs.
    let few = limit.is_some_and(|limit| limit <= BATCH_ROWS);
    let parts_max = if few { 1 } else { partitions_max };
    let (columns, sensors) = ((&request.arrow, &request.columns[..]), request.resolve(view)?);
    let Arrangement { sensors, parts, equivalence, partitioning } =
        Arrangement::of(view, columns, sensors, parts_max)?;
    let scan = RowScan { view: Arc::clone(view), request, parts, sensors, order: None };
    let node = SourceNode::new(Arc::new(scan), equivalence, limit);
    Ok(Arc::new(node.with_partitioning(partitioning)))
}

impl RowScan {
    fn live_columns(&self) -> Columns<'_> {
        Columns { kinds: &self.request.columns, schema: self.view.schema() }
    }

    /// The columns of a batch in the order of the output.
    fn record_batch(&self, rows: &RowBatch) -> Result<RecordBatch> {
        let mut fields = rows.fields.iter();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.request.columns.len());
        for kind in &self.request.columns {
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
        let arrow = Arc::clone(&self.request.arrow);
        Ok(RecordBatch::try_new_with_options(arrow, columns, &options)?)
    }
}

impl Source for RowScan {
    fn name(&self) -> &'static str {
        "TidefallScan"
    }

    fn describe(&self) -> String {
        let (view, request) = (&self.view, &self.request);
        let text = view.text(self.sensors.len(), request.time());
        let mut text = format!("table={text}, fields=[{}]", view.names(&request.fields()));
        let values = &request.conditions.values;
        if !values.is_empty() {
            let conditions: Vec<String> =
                values.iter().map(|one| condition_text(one, view.schema())).collect();
            text += &format!(", conditions=[{}]", conditions.join(", "));
        }
        match self.order {
            Some(TimeOrder::NewestFirst) => text += ", newest first",
            Some(TimeOrder::OldestFirst) => text += ", oldest first",
            None => {}
        }
        text
    }

    fn partitions(&self) -> usize {
        self.parts.len()
    }

    fn row_bytes(&self) -> u64 {
        self.view.snapshot().text_bytes_per_row(&self.request.fields())
    }

    fn rows_about(&self, partition: Option<usize>) -> Option<usize> {
        let sensors = partition.map_or(self.sensors.len(), |at| self.parts[at].len());
        Some(self.view.snapshot().rows_about(sensors, &self.request.time()))
    }

    fn distinct_about(&self, column: usize) -> Option<usize> {
        match self.request.columns[column] {
            ColumnKind::Tag(tag) => Some(self.view.tag(tag).value_count().min(self.sensors.len())),
            ColumnKind::Time | ColumnKind::Field(_) => None,
        }
    }

    fn is_narrowed_by(&self, filter: &Arc<dyn PhysicalExpr>) -> bool {
        self.live_columns().can_tell(filter)
    }

    fn by_time(&self, column: usize, order: TimeOrder) -> Option<Arc<dyn Source>> {
        let is_time = self.request.columns[column] == ColumnKind::Time;
        is_time.then(|| Arc::new(Self { order: Some(order), ..self.clone() }) as Arc<dyn Source>)
    }

    fn open(
        self: Arc<Self>,
        partition: usize,
        limit: Option<usize>,
        live: Live,
        tally: &Tally,
    ) -> Result<Batches> {
        let mut sensors = self.sensors[self.parts[partition].clone()].to_vec();
        live.retain_wanted(
            &mut sensors,
            self.live_columns(),
            &self.request.arrow,
            |tag, sensors| self.view.tag(tag).of_sensors(sensors),
        );
        let request = ScanRequest {
            sensors,
            time: self.request.time(),
            fields: self.request.fields(),
            conditions: self.request.conditions.values.clone(),
            limit,
        };
        let stretches = match self.order {
            Some(order) => self.view.snapshot().stretches(&request.sensors, &request.time, order),
            None => Ok(vec![request.time]),
        };
        Ok(Box::new(Reading {
            source: self,
            request,
            stretches: stretches.map_err(to_datafusion)?.into(),
            scan: None,
            live,
            around: Around::everything(),
            tally: tally.clone(),
        }))
    }
}

/// A part of a scan under way.
struct Reading {
    source: Arc<RowScan>,
    request: ScanRequest,
    stretches: VecDeque<TimeRange>,
    /// The scan of the stretch before them.
    scan: Option<Scan>,
    live: Live,
    /// What is wanted by now.
    around: Around,
    tally: Tally,
}

impl Reading {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(around) = self.live.news(self.source.live_columns()) {
                if let Some(scan) = &mut self.scan {
                    scan.narrow(&around.time(), around.conditions());
                }
                self.around = around;
            }
            if let Some(rows) = self.scan.as_mut().and_then(Iterator::next) {
                return self.source.record_batch(&rows.map_err(to_datafusion)?).map(Some);
            }
            let Some(stretch) = self.stretches.pop_front() else { return Ok(None) };
            self.scan = self.scan_of(&stretch)?;
        }
    }

    /// A scan of what is wanted of a stretch, if something is.
    fn scan_of(&self, stretch: &TimeRange) -> Result<Option<Scan>> {
        let time = stretch.intersect(&self.around.time());
        if time.is_empty() {
            return Ok(None);
        }
        let request = ScanRequest { time, ..self.request.clone() };
        let scan = self.source.view.snapshot().scan(&request);
        let mut scan = scan.map_err(to_datafusion)?;
        if !self.source.request.columns.contains(&ColumnKind::Time) {
            scan = scan.without_times();
        }
        scan.narrow(&time, self.around.conditions());
        self.tally.add(scan.stats());
        Ok(Some(scan))
    }
}

impl Iterator for Reading {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
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
