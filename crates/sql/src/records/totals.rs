//! Aggregates of all rows in some boxes: of leaves that are inside as a whole they come from metrics.
//!
//! 1. [`TotalsRule`] looks for an `Aggregate` without groups over a table of records whose conditions are boxes and nothing else, and whose functions
//!    count, add up, or take the mean or an extreme.
//! 2. It replaces that, and what lies below, by a [`TotalsNode`]. Expressions above stay with DataFusion.
//! 3. A [`Totals`] asks each place, when it is read.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, UInt64Array};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::tree_node::Transformed;
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Aggregate, Extension, LogicalPlan, UserDefinedLogicalNode};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use tidefall_storage::record_tables::merge::Visible;
use tidefall_storage::record_tables::ordinal::column_of;
use tidefall_storage::record_tables::read::{Effort, Touched};
use tidefall_storage::record_tables::region::Regions;
use tidefall_storage::record_tables::total::{Sum, Total};
use tidefall_storage::{ReadStats, RecordsSnapshot, spread};
use tidefall_types::{FieldId, FieldType, OneForm};

use super::RecordsTable;
use super::cover::Cover;
use crate::ahead::Batches;
use crate::answer_node::{AnswerNode, Asked};
use crate::error::to_datafusion;
use crate::live::Live;
use crate::metrics::{Measure, replace_columns, scan_below};
use crate::reads::Tally;
use crate::settings::Settings;
use crate::source::{Source, SourceNode};

/// From so many rows on that are looked at, several threads do.
const ROWS_FOR_THREADS: u64 = if cfg!(debug_assertions) { 1 << 12 } else { 1 << 17 };
/// Cells that a thread works on at once.
const CELLS_TOGETHER: usize = 8;

/// What is asked. Its parts are all that an answer depends on, so that equal questions have equal answers.
#[derive(Debug)]
struct Question {
    snapshot: Arc<RecordsSnapshot>,
    /// Where the rows are: in all of these, and all rows there.
    regions: Vec<Regions>,
    measures: Vec<Measure>,
}

impl PartialEq for Question {
    /// What two snapshots show may differ.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.snapshot, &other.snapshot)
            && self.regions == other.regions
            && self.measures == other.measures
    }
}

impl Eq for Question {}

impl Hash for Question {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.snapshot).hash(state);
        self.measures.hash(state);
    }
}

impl Question {
    /// The question that has the answer of an aggregate, if there is one.
    fn of(aggregate: &Aggregate) -> Result<Option<Self>> {
        if !aggregate.group_expr.is_empty() {
            return Ok(None);
        }
        let Some((scan, meaning)) = scan_below(&aggregate.input)? else { return Ok(None) };
        let Ok(provider) = source_as_provider(&scan.source) else { return Ok(None) };
        let Some(table) = provider.downcast_ref::<RecordsTable>() else { return Ok(None) };
        let schema = table.table_schema();
        let (regions, is_exact) = Cover::of_all(&scan.filters, schema);
        if !is_exact || scan.fetch.is_some() {
            return Ok(None);
        }
        let mut measures = Vec::with_capacity(aggregate.aggr_expr.len());
        for expr in &aggregate.aggr_expr {
            match Measure::of(&replace_columns(expr, &meaning)?, schema) {
                Some(measure) if is_known(measure) => measures.push(measure),
                _ => return Ok(None),
            }
        }
        Ok(Some(Self { snapshot: Arc::clone(table.snapshot()), regions, measures }))
    }

    fn fields(&self) -> Vec<FieldId> {
        let mut fields: Vec<FieldId> = self.measures.iter().filter_map(|one| one.field()).collect();
        fields.sort_unstable();
        fields.dedup();
        fields
    }

    fn type_of(&self, field: FieldId) -> FieldType {
        self.snapshot.schema().fields[field.index()].ty
    }
}

const fn is_known(measure: Measure) -> bool {
    matches!(
        measure,
        Measure::Rows
            | Measure::Count(_)
            | Measure::Min(_)
            | Measure::Max(_)
            | Measure::Sum(_)
            | Measure::Mean(_)
    )
}

/// Replaces aggregates of all rows in boxes by questions for totals.
#[derive(Debug)]
pub(crate) struct TotalsRule;

impl OptimizerRule for TotalsRule {
    fn name(&self) -> &str {
        "tidefall_totals"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
        let is_off = |settings: &Settings| !settings.metrics;
        if config.options().extensions.get::<Settings>().is_some_and(is_off) {
            return Ok(Transformed::no(plan));
        }
        let Some(question) = Question::of(aggregate)? else { return Ok(Transformed::no(plan)) };
        let node = TotalsNode::new(question, Arc::clone(&aggregate.schema));
        Ok(Transformed::yes(LogicalPlan::Extension(Extension { node: Arc::new(node) })))
    }
}

/// A question for totals in the logical plan.
type TotalsNode = AnswerNode<Question>;

impl Asked for Question {
    const NAME: &'static str = "TidefallTotals";

    fn explain(&self, columns: &[&str]) -> String {
        format!("table={}, aggr=[{}]", self.snapshot.schema().name, columns.join(", "))
    }
}

/// Plans the question.
pub(crate) struct TotalsPlanner;

#[async_trait]
impl ExtensionPlanner for TotalsPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        _physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        _planning_ctx: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<TotalsNode>() else { return Ok(None) };
        let (question, arrow) = (Arc::clone(node.question()), node.arrow());
        let places = question.snapshot.places(&question.regions).map_err(to_datafusion)?;
        let threads = session.config().target_partitions().max(1);
        let totals = Arc::new(Totals { question, places, arrow: Arc::clone(&arrow), threads });
        Ok(Some(Arc::new(SourceNode::new(totals, EquivalenceProperties::new(arrow), None))))
    }
}

/// Asks each place for what its rows come to.
struct Totals {
    question: Arc<Question>,
    places: Vec<Visible>,
    arrow: SchemaRef,
    /// On so many threads at most.
    threads: usize,
}

impl fmt::Debug for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(Question::NAME).field("question", &self.question).finish_non_exhaustive()
    }
}

impl Totals {
    /// What of each place is asked for.
    fn touched(&self) -> impl Iterator<Item = Touched<'_>> {
        let regions = &self.question.regions;
        self.places.iter().map(|(place, hidden)| Touched::new(place, regions, hidden))
    }

    /// The number of rows, and what they come to in some columns.
    fn add_up(
        &self,
        fields: &[FieldId],
        stats: &ReadStats,
    ) -> tidefall_types::Result<(u64, Vec<Total>)> {
        let touched: Vec<Touched<'_>> = self.touched().collect();
        let effort: Effort = touched.iter().map(Touched::effort).sum();
        stats.blocks_from_metrics.fetch_add(effort.leaves - effort.cut, Ordering::Relaxed);
        stats.rows.fetch_add(effort.rows, Ordering::Relaxed);
        let threads = if effort.rows < ROWS_FOR_THREADS { 1 } else { self.threads };
        let none = |field: &FieldId| Total::of_type(self.question.type_of(*field));
        let (mut rows, mut totals) = (0, fields.iter().map(none).collect::<Vec<_>>());
        let mut add = |(more, of_some): (u64, Vec<Total>)| {
            rows += more;
            totals.iter_mut().zip(&of_some).for_each(|(total, more)| total.add(more));
        };
        for one in &touched {
            add(self.of_place(one, fields, |held| one.inside(held))?);
        }
        let pieces = touched.iter().flat_map(|one| {
            let cells: Vec<usize> = one.cut_cells().collect();
            let pieces = cells.chunks(CELLS_TOGETHER).map(<[usize]>::to_vec);
            pieces.map(move |cells| (one, cells)).collect::<Vec<_>>()
        });
        // Dealt out one by one, as those of one place may have all the work; added in one order, however many threads there are.
        let mut pieces: Vec<_> = pieces.enumerate().collect();
        pieces.sort_by_key(|(at, _)| at % threads);
        let mut found = spread(threads, pieces, |(at, (one, cells)), _: &mut ()| {
            Ok((at, self.of_place(one, fields, |held| one.cut(&cells, held))?))
        })?;
        found.sort_by_key(|(at, _)| *at);
        found.into_iter().for_each(|(_, of_piece)| add(of_piece));
        Ok((rows, totals))
    }

    /// What `ask` says of the columns that a place holds, of all columns: one that the place lacks came later, and all of its values are NULL there.
    fn of_place(
        &self,
        touched: &Touched<'_>,
        fields: &[FieldId],
        ask: impl FnOnce(&[usize]) -> tidefall_types::Result<(u64, Vec<Total>)>,
    ) -> tidefall_types::Result<(u64, Vec<Total>)> {
        let layout = touched.place().layout();
        let held: Vec<Option<usize>> = fields.iter().map(|id| layout.place(*id)).collect();
        let (rows, found) = ask(&held.iter().flatten().copied().collect::<Vec<_>>())?;
        let mut found = found.into_iter();
        let totals = fields.iter().zip(held).map(|(field, held)| {
            let found = held.and_then(|_| found.next());
            found.unwrap_or_else(|| Total::of_type(self.question.type_of(*field)))
        });
        Ok((rows, totals.collect()))
    }

    fn answer(&self, stats: &ReadStats) -> Result<RecordBatch> {
        let fields = self.question.fields();
        let (rows, totals) = self.add_up(&fields, stats).map_err(to_datafusion)?;
        let of = |field: &FieldId| fields.binary_search(field).ok().map(|at| &totals[at]);
        let columns =
            self.question.measures.iter().zip(self.arrow.fields()).map(|(measure, column)| {
                match measure.field().as_ref().and_then(of) {
                    None => Arc::new(Int64Array::from(vec![rows as i64])) as ArrayRef,
                    Some(total) => {
                        let ty =
                            measure.field().map_or(FieldType::I64, |id| self.question.type_of(id));
                        told(*measure, total, ty, column.data_type())
                    }
                }
            });
        Ok(RecordBatch::try_new(Arc::clone(&self.arrow), columns.collect())?)
    }
}

/// A measure of a column of a type, as one of another.
fn told(measure: Measure, total: &Total, ty: FieldType, to: &DataType) -> ArrayRef {
    let is_some = total.count > 0;
    match measure {
        Measure::Min(_) => column_of(ty, [is_some.then_some(total.least)]),
        Measure::Max(_) => column_of(ty, [is_some.then_some(total.greatest)]),
        Measure::Sum(_) => sum(total.sum, is_some, to),
        Measure::Mean(_) => {
            let mean = total.sum.to_f64() / total.count as f64;
            Arc::new(Float64Array::from(vec![is_some.then(|| mean.one_form())]))
        }
        _ => Arc::new(Int64Array::from(vec![total.count as i64])),
    }
}

/// Sums of whole numbers wrap around, as DataFusion's do.
fn sum(sum: Sum, is_some: bool, to: &DataType) -> ArrayRef {
    match (sum, to) {
        (Sum::Whole(sum), DataType::Int64) => {
            Arc::new(Int64Array::from(vec![is_some.then_some(sum as i64)]))
        }
        (Sum::Whole(sum), DataType::UInt64) => {
            Arc::new(UInt64Array::from(vec![is_some.then_some(sum as u64)]))
        }
        (sum, _) => Arc::new(Float64Array::from(vec![is_some.then(|| sum.to_f64().one_form())])),
    }
}

impl Source for Totals {
    fn name(&self) -> &'static str {
        Question::NAME
    }

    fn describe(&self) -> String {
        let effort: Effort = self.touched().map(|one| one.effort()).sum();
        let boxes: usize = self.question.regions.iter().map(|one| one.boxes().len()).sum();
        format!(
            "table={}, boxes={boxes}, places={} of {}, leaves={}, cut={}",
            self.question.snapshot.schema().name,
            self.places.len(),
            self.question.snapshot.all_places(),
            effort.leaves,
            effort.cut,
        )
    }

    fn partitions(&self) -> usize {
        1
    }

    fn rows_about(&self, _: Option<usize>) -> Option<usize> {
        Some(1)
    }

    fn open(
        self: Arc<Self>,
        _partition: usize,
        _limit: Option<usize>,
        _live: Live,
        tally: &Tally,
    ) -> Result<Batches> {
        let stats = tally.start();
        Ok(Box::new(std::iter::once_with(move || self.answer(&stats))))
    }
}
