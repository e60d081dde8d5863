//! Asks for metrics.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use datafusion::arrow::compute::{SortOptions, take};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use tidefall_storage::{AggregateRequest, AggregateResult, Bin, TimeOrder};
use tidefall_types::{FieldId, TimeRange, format_duration, format_time};

use super::by_time::ByTime;
use super::columns::{Answer, of_nothing, times};
use super::groups::Grouped;
use super::node::Question;
use super::spec::Group;
use crate::ahead::Batches;
use crate::error::to_datafusion;
use crate::pushdown::Conditions;
use crate::reads::Tally;
use crate::scan::split;
use crate::source::{Source, SourceNode, sliced};
use crate::table::View;

/// Lines of an answer that are in memory at once: enough to keep the cost of a call small beside
/// its work, few enough to be a small part of the smallest memory budget.
const LINES_PER_CALL: i128 = 64 * 1024;

/// From so many sensors on, groups are shared out among cores.
const SENSORS_FOR_CORES: usize = 32;

/// Answers a question from metrics.
#[derive(Debug, Clone)]
pub(super) struct Answers {
    question: Arc<Question>,
    arrow: SchemaRef,
    grouped: Grouped,
    /// The groups of each partition.
    parts: Vec<Range<u32>>,
}

/// A part of a question that one call answers.
#[derive(Debug, Clone)]
struct Piece {
    groups: Range<u32>,
    time: TimeRange,
}

/// A plan for `question`, whose answer has the columns of `arrow`, in at most `partitions_max` partitions.
pub(super) fn plan(
    question: Arc<Question>,
    arrow: SchemaRef,
    partitions_max: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let grouped = Grouped::of(&question)?;
    let parallel = grouped.sensors.len() >= SENSORS_FOR_CORES;
    let parts = split(grouped.count as usize, if parallel { partitions_max } else { 1 });
    let parts = parts.into_iter().map(|part| part.start as u32..part.end as u32).collect();
    let equivalence = ordered(&question, &arrow);
    let answers = Answers { question, arrow, grouped, parts };
    Ok(Arc::new(SourceNode::new(Arc::new(answers), equivalence, None)))
}

impl Answers {
    fn bin(&self) -> Option<Bin> {
        self.question.groups.iter().find_map(|group| match group {
            Group::Bin(bin) => Some(*bin),
            Group::Tags(_) => None,
        })
    }

    fn fields(&self) -> Vec<FieldId> {
        let mut fields: Vec<FieldId> =
            self.question.measures.iter().filter_map(|measure| measure.field()).collect();
        fields.sort_unstable();
        fields.dedup();
        fields
    }

    fn request(&self, piece: &Piece) -> AggregateRequest {
        let first = self.grouped.groups.partition_point(|group| *group < piece.groups.start);
        let behind = self.grouped.groups.partition_point(|group| *group < piece.groups.end);
        let groups = &self.grouped.groups[first..behind];
        AggregateRequest {
            sensors: self.grouped.sensors[first..behind].to_vec(),
            groups: groups.iter().map(|group| group - piece.groups.start).collect(),
            group_count: piece.groups.end - piece.groups.start,
            time: piece.time,
            bin: self.bin(),
            fields: self.fields(),
        }
    }

    /// The table.
    pub(super) fn view(&self) -> &View {
        &self.question.view
    }

    /// The sensors and the time that a partition is about.
    pub(super) fn asked_for(&self, partition: usize) -> (Vec<u32>, TimeRange) {
        let (groups, time) = (self.parts[partition].clone(), self.question.conditions.time);
        (self.request(&Piece { groups, time }).sensors, time)
    }

    /// The answers to the same question about a stretch of its time.
    pub(super) fn within(&self, time: TimeRange) -> Self {
        let conditions = Conditions { time, ..self.question.conditions.clone() };
        let question = Question { conditions, ..Question::clone(&self.question) };
        Self { question: Arc::new(question), ..self.clone() }
    }

    fn whole(&self) -> Piece {
        Piece { groups: 0..self.grouped.count, time: self.question.conditions.time }
    }

    /// Cuts a partition into pieces whose answers have a bounded number of lines. The pieces come
    /// in the order of the lines: by group, then by time.
    fn pieces(&self, groups: Range<u32>, tally: &Tally) -> Result<Vec<Piece>> {
        let time = self.question.conditions.time;
        let Some(bin) = self.bin() else {
            return Ok(cut_groups(groups, LINES_PER_CALL, time));
        };
        let count = i128::from(groups.end - groups.start);
        if bins(time, bin).saturating_mul(count) <= LINES_PER_CALL {
            return Ok(vec![Piece { groups, time }]);
        }
        let Some((time, _)) = self.extent(groups.clone(), self.question.conditions.time, tally)?
        else {
            return Ok(Vec::new());
        };
        let bins_per_group = bins(time, bin);
        if bins_per_group <= LINES_PER_CALL {
            return Ok(cut_groups(groups, LINES_PER_CALL / bins_per_group, time));
        }
        let mut pieces = Vec::new();
        for group in groups {
            self.cut_time(group, time, bin, tally, &mut pieces)?;
        }
        Ok(pieces)
    }

    /// Halves the time of a group until no piece has too many bins with rows: bins may be far narrower than
    /// the distance between readings.
    fn cut_time(
        &self,
        group: u32,
        time: TimeRange,
        bin: Bin,
        tally: &Tally,
        pieces: &mut Vec<Piece>,
    ) -> Result<()> {
        let groups = group..group + 1;
        let Some((time, rows)) = self.extent(groups.clone(), time, tally)? else { return Ok(()) };
        if bins(time, bin).min(rows) <= LINES_PER_CALL {
            pieces.push(Piece { groups, time });
            return Ok(());
        }
        // There are many bins, so the middle one begins behind the first time.
        let middle_ns = bin.start_of(time.first_ns.midpoint(time.last_ns));
        self.cut_time(group, TimeRange::new(time.first_ns, middle_ns - 1), bin, tally, pieces)?;
        self.cut_time(group, TimeRange::new(middle_ns, time.last_ns), bin, tally, pieces)
    }

    /// The time from the first to the last reading of some groups within `time`, and the number of rows, from
    /// metrics too.
    fn extent(
        &self,
        groups: Range<u32>,
        time: TimeRange,
        tally: &Tally,
    ) -> Result<Option<(TimeRange, i128)>> {
        let mut request = self.request(&Piece { groups, time });
        request.groups.fill(0);
        let request = AggregateRequest { group_count: 1, bin: None, fields: vec![], ..request };
        let result = self.ask(&request, tally)?;
        let ends = result.first_time_ns.first().zip(result.last_time_ns.first());
        let rows = result.rows.first().map_or(0, |rows| i128::from(*rows));
        Ok(ends.map(|(first, last)| (TimeRange::new(*first, *last), rows)))
    }

    fn ask(&self, request: &AggregateRequest, tally: &Tally) -> Result<AggregateResult> {
        let snapshot = self.question.view.snapshot();
        snapshot.aggregate(request, &tally.start()).map_err(to_datafusion)
    }

    /// The answer to a piece of the question.
    fn answer(&self, piece: &Piece, tally: &Tally) -> Result<RecordBatch> {
        let request = self.request(piece);
        let result = self.ask(&request, tally)?;
        self.batch(piece, &request, &result, tally)
    }

    fn batch(
        &self,
        piece: &Piece,
        request: &AggregateRequest,
        result: &AggregateResult,
        tally: &Tally,
    ) -> Result<RecordBatch> {
        let schema = Arc::clone(&self.arrow);
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
        let group_of_line: UInt32Array =
            result.group.iter().map(|group| group + piece.groups.start).collect();
        let mut values = self.grouped.values.iter();
        for group in &self.question.groups {
            match group {
                Group::Bin(_) => columns.push(times(&result.bin_start_ns)),
                Group::Tags(_) => {
                    if let Some(values) = values.next() {
                        columns.push(take(values, &group_of_line, None)?);
                    }
                }
            }
        }
        let answer = Answer { view: &self.question.view, request, result, tally };
        for measure in &self.question.measures {
            let data_type = schema.field(columns.len()).data_type();
            columns.push(answer.column(*measure, data_type)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(result.rows.len()));
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }

    fn nothing(&self) -> Result<RecordBatch> {
        let schema = Arc::clone(&self.arrow);
        let columns = self
            .question
            .measures
            .iter()
            .zip(schema.fields())
            .map(|(measure, field)| of_nothing(*measure, field.data_type()))
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }
}

fn cut_groups(groups: Range<u32>, per_piece: i128, time: TimeRange) -> Vec<Piece> {
    let step = usize::try_from(per_piece.max(1)).unwrap_or(usize::MAX);
    let end = groups.end;
    groups
        .step_by(step)
        .map(|first| Piece { groups: first..end.min(first.saturating_add(step as u32)), time })
        .collect()
}

/// The number of bins that a time range touches.
fn bins(time: TimeRange, bin: Bin) -> i128 {
    if time.is_empty() {
        return 0;
    }
    let of = |time_ns: i64| {
        (i128::from(time_ns) - i128::from(bin.origin_ns)).div_euclid(i128::from(bin.width_ns))
    };
    of(time.last_ns) - of(time.first_ns) + 1
}

/// Lines come by group, groups by their values, and by time within a group.
fn ordered(question: &Question, schema: &SchemaRef) -> EquivalenceProperties {
    let ascending = SortOptions { descending: false, nulls_first: false };
    let mut ordering = Vec::new();
    let mut bins = Vec::new();
    for (at, group) in question.groups.iter().enumerate() {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(schema.field(at).name(), at));
        let sort = PhysicalSortExpr::new(column, ascending);
        match group {
            Group::Tags(_) => ordering.push(sort),
            Group::Bin(_) => bins.push(sort),
        }
    }
    ordering.extend(bins);
    EquivalenceProperties::new_with_orderings(Arc::clone(schema), [ordering])
}

impl Source for Answers {
    fn name(&self) -> &'static str {
        "TidefallMetrics"
    }

    fn describe(&self) -> String {
        let view = &self.question.view;
        let shown = view.text(self.grouped.sensors.len(), self.question.conditions.time);
        let mut text = format!("table={shown}");
        if let Some(bin) = self.bin() {
            text += &format!(", bins={}", format_duration(bin.width_ns));
            if bin.origin_ns != 0 {
                text += &format!(" from {}", format_time(bin.origin_ns));
            }
        }
        let names = view.names(&self.fields());
        text += &format!(", groups={}, fields=[{names}]", self.grouped.count);
        // The answer itself may fail later and will say why; a plan without figures is still one.
        if let Ok(plan) = view.snapshot().plan_aggregate(&self.request(&self.whole())) {
            text += &format!(
                ", blocks_from_metrics={}, pages={}, rows_from_memory={}",
                plan.blocks_from_metrics, plan.pages, plan.rows_from_memory
            );
        }
        text
    }

    fn partitions(&self) -> usize {
        self.parts.len()
    }

    fn by_time(&self, column: usize, order: TimeOrder) -> Option<Arc<dyn Source>> {
        match self.question.groups.get(column)? {
            Group::Bin(bin) => Some(Arc::new(ByTime::new(self.clone(), (*bin, column), order))),
            Group::Tags(_) => None,
        }
    }

    fn open(
        self: Arc<Self>,
        partition: usize,
        _limit: Option<usize>,
        tally: &Tally,
    ) -> Result<Batches> {
        let groups = self.parts[partition].clone();
        let pieces = if groups.is_empty() { Vec::new() } else { self.pieces(groups, tally)? };
        let (mut pieces, tally) = (pieces.into_iter(), tally.clone());
        let mut lines = 0;
        let answers = std::iter::from_fn(move || match pieces.next() {
            Some(piece) => {
                Some(self.answer(&piece, &tally).inspect(|batch| lines += batch.num_rows()))
            }
            // SQL: without GROUP BY there is one group, even if nothing is in it.
            None if lines == 0 && self.question.groups.is_empty() => {
                lines = 1;
                Some(self.nothing())
            }
            None => None,
        });
        Ok(sliced(answers))
    }
}
