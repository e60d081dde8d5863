//! Makes the answers to a question, piece by piece so that memory stays bounded.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    LexOrdering, Partitioning, PhysicalSortExpr, RangePartitioning, SplitPoint,
};
use tidefall_storage::{AggregateRequest, AggregateResult, BATCH_ROWS, Bin, Sensors};
use tidefall_types::{FieldId, TimeRange, format_duration, format_time};

use super::columns::{Answer, of_nothing, times};
use super::groups::Grouped;
use super::question::Question;
use super::spec::Group;
use crate::ahead::Batches;
use crate::arrange::ASCENDING;
use crate::error::to_datafusion;
use crate::pushdown::Conditions;
use crate::reads::Tally;
use crate::source::sliced;
use crate::view::View;

/// Bytes of metrics that all threads of a plan node have at once: enough to keep the cost of a call small beside its
/// work, few enough to be a small part of the default memory budget.
const METRICS_BYTES: usize = 64 << 20;
/// What a line takes beside its fields: its group, bin, rows and times, and its place in a table of lines.
const LINE_BYTES: usize = 80;
/// What a field of a line takes.
const FIELD_BYTES: usize = 80;
/// A call is for so many lines even where there are many threads and fields.
const LINES_MIN: usize = 8 * 1024;
/// Where many questions are asked at once, a call may be for as few lines as this.
const SHARED_LINES_MIN: usize = 1024;
/// A call is for so many lines at most: they are also the rows of an answer that waits to be taken.
const LINES_MAX: usize = 512 * 1024;

/// From so many sensors on, groups are shared out among cores.
const SENSORS_FOR_CORES: usize = 32;

/// From so many sensors on, and with so many for each line, the lines of several threads are added up.
const SENSORS_FOR_LINES: usize = 1024;
const SENSORS_PER_LINE: usize = 4;

/// The answers to a question, from metrics.
#[derive(Debug, Clone)]
pub(super) struct Answers {
    question: Arc<Question>,
    arrow: SchemaRef,
    grouped: Arc<Grouped>,
    parts: Vec<Part>,
    /// Lines that a call may have.
    lines_max: i128,
}

/// What one partition answers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    groups: Range<u32>,
    /// Threads that it may use.
    threads: usize,
}

/// A part of a question that one call answers.
#[derive(Debug, Clone)]
struct Piece {
    groups: Range<u32>,
    time: TimeRange,
}

/// What a question may take of the machine, beside others that are asked at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    /// Threads, and partitions, at most.
    pub(super) threads: usize,
    /// Bytes of metrics that a thread has at once.
    thread_bytes: usize,
    lines_min: usize,
}

impl Share {
    /// All of it.
    pub(super) fn whole(threads: usize) -> Self {
        let threads = threads.max(1);
        Self { threads, thread_bytes: METRICS_BYTES / threads, lines_min: LINES_MIN }
    }

    /// For each of some questions as many threads as it has of their rows, and memory for these.
    pub(super) fn among(questions: &[Arc<Question>], threads: usize) -> Vec<Self> {
        let rows: Vec<usize> = questions.iter().map(|question| question.rows_about()).collect();
        shares(&rows, threads.max(1))
    }
}

fn shares(rows: &[usize], threads: usize) -> Vec<Share> {
    let all = rows.iter().map(|rows| *rows as f64).sum::<f64>().max(1.0);
    let threads = |rows: &usize| (threads as f64 * *rows as f64 / all).ceil().max(1.0) as usize;
    let threads: Vec<usize> = rows.iter().map(threads).collect();
    let thread_bytes = METRICS_BYTES / threads.iter().sum::<usize>().max(1);
    let lines_min = (LINES_MIN / rows.len().max(1)).max(SHARED_LINES_MIN);
    threads.into_iter().map(|threads| Share { threads, thread_bytes, lines_min }).collect()
}

/// Shares groups out, of which `groups` has one for each sensor in their order, in at most `partitions_max` parts with
/// about as many sensors for each thread. A group stays whole: where one is larger than a share, its part has more threads.
fn parts(groups: &[u32], partitions_max: usize) -> Vec<Part> {
    let (sensors, mut first, mut parts) = (groups.len(), 0, Vec::new());
    if sensors < SENSORS_FOR_CORES {
        let all = 0..groups.last().map_or(0, |last| last + 1);
        return vec![Part { groups: all, threads: partitions_max }];
    }
    for place in 1..=partitions_max {
        let Some(last) = (sensors * place / partitions_max).checked_sub(1) else { continue };
        let end = groups.partition_point(|group| *group <= groups[last]);
        if first < end {
            let threads = ((end - first) * partitions_max + sensors / 2) / sensors;
            parts.push(Part { groups: groups[first]..groups[last] + 1, threads: threads.max(1) });
            first = end;
        }
    }
    parts
}

/// Whether so many sensors count into so few lines that one call is for all of them, which looks at the sensors in their own
/// order.
fn has_few_lines(question: &Question, grouped: &Grouped, lines_max: i128) -> bool {
    let Grouped { groups, count, .. } = grouped;
    let bins = question.bin().map_or(1, |bin| bins(question.time_with_rows(), bin));
    let lines = bins.saturating_mul(i128::from(*count));
    groups.len() >= SENSORS_FOR_LINES
        && lines <= lines_max.min((groups.len() / SENSORS_PER_LINE) as i128)
        && !groups.is_sorted()
}

/// Lines that each call may have, so that all that run at once keep to their memory.
fn lines_max(question: &Question, share: Share) -> i128 {
    let fields = fields(question).len();
    let lines = share.thread_bytes / (LINE_BYTES + FIELD_BYTES * fields);
    lines.clamp(share.lines_min, LINES_MAX) as i128
}

/// The fields whose metrics are needed.
fn fields(question: &Question) -> Vec<FieldId> {
    let mut fields: Vec<FieldId> =
        question.measures.iter().filter_map(|measure| measure.field()).collect();
    fields.sort_unstable();
    fields.dedup();
    fields
}

impl Answers {
    /// The name of their node in `EXPLAIN`.
    pub(super) const NAME: &str = "TidefallMetrics";

    /// Answers to `question` with the columns of `arrow`.
    pub(super) fn of(question: Arc<Question>, arrow: SchemaRef, share: Share) -> Result<Self> {
        let grouped = Grouped::of(&question)?;
        let (lines_max, partitions_max) = (lines_max(&question, share), share.threads);
        let (grouped, parts) = if has_few_lines(&question, &grouped, lines_max) {
            let all = Part { groups: 0..grouped.count, threads: partitions_max };
            (grouped, vec![all])
        } else {
            let grouped = grouped.group_after_group();
            let parts = match grouped.count {
                0 | 1 => vec![Part { groups: 0..grouped.count, threads: partitions_max }],
                _ => parts(&grouped.groups, partitions_max),
            };
            (grouped, parts)
        };
        Ok(Self { question, arrow, grouped: Arc::new(grouped), parts, lines_max })
    }

    /// What is answered, for `EXPLAIN`.
    pub(super) fn describe(&self) -> String {
        let view = &self.question.view;
        let shown = view.text(self.grouped.sensors.len(), self.question.conditions.time);
        let mut text = format!("table={shown}");
        if let Some(bin) = self.bin() {
            text += &format!(", bins={}", format_duration(bin.width_ns));
            if bin.origin_ns != 0 {
                text += &format!(" from {}", format_time(bin.origin_ns));
            }
        }
        let names = view.names(&fields(&self.question));
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

    /// The number of partitions.
    pub(super) fn partitions(&self) -> usize {
        self.parts.len()
    }

    /// Which groups are in which partition: ranges of the first columns that tell apart what lies on both sides of each cut. Of
    /// values that DataFusion cannot compare, as lists and what has NULLs within it, nothing is said.
    pub(super) fn partitioning(&self) -> Result<Partitioning> {
        let firsts: Vec<u32> = self.parts.iter().skip(1).map(|part| part.groups.start).collect();
        let lasts: Vec<u32> = firsts.iter().map(|first| first - 1).collect();
        let view = &self.question.view;
        let (lasts, firsts) =
            (self.grouped.values(view, &lasts)?, self.grouped.values(view, &firsts)?);
        let groups = self.question.groups.iter().enumerate();
        let tags = groups.filter(|(_, group)| matches!(group, Group::Tags(_)));
        let mut points = vec![Vec::new(); self.parts.len() - 1];
        let mut are_cut = vec![false; points.len()];
        let mut sorts = Vec::new();
        for ((place, _), (before, behind)) in tags.zip(lasts.iter().zip(&firsts)) {
            if are_cut.iter().all(|is_cut| *is_cut) {
                break;
            }
            let column = Column::new(self.arrow.field(place).name(), place);
            sorts.push(PhysicalSortExpr::new(Arc::new(column), ASCENDING));
            for (at, point) in points.iter_mut().enumerate() {
                let value = ScalarValue::try_from_array(behind, at)?;
                are_cut[at] |= value != ScalarValue::try_from_array(before, at)?;
                point.push(value);
            }
        }
        let points = points.into_iter().map(SplitPoint::new).collect();
        let ranges = LexOrdering::new(sorts)
            .and_then(|ordering| RangePartitioning::try_new(ordering, points).ok());
        let unknown = Partitioning::UnknownPartitioning(self.parts.len());
        Ok(ranges.map_or(unknown, Partitioning::Range))
    }

    /// A line for each bin of each group, or one for each row where there are fewer.
    pub(super) fn rows_about(&self, partition: Option<usize>) -> Option<usize> {
        let all = 0..self.grouped.count;
        let groups = partition.map_or(all, |at| self.parts[at].groups.clone());
        let time = self.question.time_with_rows();
        let count = i128::from(groups.end - groups.start);
        let lines = self.bin().map_or(count, |bin| bins(time, bin).saturating_mul(count));
        let sensors = self.grouped.len_of(&groups);
        let rows = self.question.view.snapshot().rows_about(sensors, &time);
        Some(rows.min(usize::try_from(lines).unwrap_or(usize::MAX)))
    }

    /// The bin of time that a column of the answers is.
    pub(super) fn bin_in(&self, column: usize) -> Option<Bin> {
        match self.question.groups.get(column)? {
            Group::Bin(bin) => Some(*bin),
            Group::Tags(_) => None,
        }
    }

    /// The answers of a partition, group after group.
    pub(super) fn batches(self: Arc<Self>, partition: usize, tally: &Tally) -> Result<Batches> {
        let Part { groups, threads } = self.parts[partition].clone();
        let pieces = if groups.is_empty() { Vec::new() } else { self.pieces(groups, tally)? };
        let (mut pieces, tally) = (pieces.into_iter(), tally.clone());
        let mut batches_made = 0;
        let answers = std::iter::from_fn(move || match pieces.next() {
            Some(piece) => {
                let answer = self.answer(threads, &piece, &tally);
                Some(answer.inspect(|batches| batches_made += batches.len()))
            }
            // SQL: without GROUP BY there is one group, even if nothing is in it.
            None if batches_made == 0 && self.question.groups.is_empty() => {
                batches_made = 1;
                Some(self.nothing().map(|batch| vec![batch]))
            }
            None => None,
        });
        Ok(sliced(answers.flat_map(|answer| match answer {
            Ok(batches) => batches.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        })))
    }

    fn bin(&self) -> Option<Bin> {
        self.question.bin()
    }

    fn request(&self, piece: &Piece) -> AggregateRequest {
        let (sensors, groups) = self.grouped.of_groups(&piece.groups);
        AggregateRequest {
            sensors,
            groups,
            group_count: piece.groups.end - piece.groups.start,
            time: piece.time,
            bin: self.bin(),
            fields: fields(&self.question),
            deviations: self.question.measures.iter().any(|one| one.is_deviation()),
            extremes: self.question.measures.iter().any(|one| one.is_extreme()),
            ends: self.question.measures.iter().any(|one| one.is_end()),
        }
    }

    /// The table.
    pub(super) fn view(&self) -> &View {
        &self.question.view
    }

    /// The sensors and the time that a partition is about.
    pub(super) fn asked_for(&self, partition: usize) -> (Sensors, TimeRange) {
        let (groups, time) = (self.parts[partition].groups.clone(), self.question.conditions.time);
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
        let time = self.question.time_with_rows();
        if time.is_empty() {
            return Ok(Vec::new());
        }
        let Some(bin) = self.bin() else {
            return Ok(cut_groups(groups, self.lines_max, time));
        };
        let count = i128::from(groups.end - groups.start);
        if bins(time, bin).saturating_mul(count) <= self.lines_max {
            return Ok(vec![Piece { groups, time }]);
        }
        let Some((time, _)) = self.extent(groups.clone(), time, tally)? else {
            return Ok(Vec::new());
        };
        let bins_per_group = bins(time, bin);
        if bins_per_group <= self.lines_max {
            return Ok(cut_groups(groups, self.lines_max / bins_per_group, time));
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
        if bins(time, bin).min(rows) <= self.lines_max {
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
        request.groups.clear();
        let request =
            AggregateRequest { group_count: 1, bin: None, fields: vec![], ends: true, ..request };
        let result = self.ask(1, &request, tally)?;
        let ends = result.first_time_ns.first().zip(result.last_time_ns.first());
        let rows = result.rows.first().map_or(0, |rows| i128::from(*rows));
        Ok(ends.map(|(first, last)| (TimeRange::new(*first, *last), rows)))
    }

    fn ask(
        &self,
        threads: usize,
        request: &AggregateRequest,
        tally: &Tally,
    ) -> Result<AggregateResult> {
        let snapshot = self.question.view.snapshot();
        snapshot.aggregate_on(threads, request, &tally.start()).map_err(to_datafusion)
    }

    /// The answer to a piece of the question, in batches of the usual size.
    fn answer(&self, threads: usize, piece: &Piece, tally: &Tally) -> Result<Vec<RecordBatch>> {
        let request = self.request(piece);
        let result = self.ask(threads, &request, tally)?;
        let answer = Answer { request: &request, result: &result };
        let groups = self.question.groups.len();
        let measures = self.question.measures.iter().zip(self.arrow.fields().iter().skip(groups));
        let measures: Vec<ArrayRef> = measures
            .map(|(measure, field)| answer.column(*measure, field.data_type()))
            .collect::<Result<_>>()?;
        let lines = result.rows.len();
        let starts = (0..lines).step_by(BATCH_ROWS);
        let batch = |start: usize| {
            self.batch(piece, &result, &measures, start..lines.min(start + BATCH_ROWS))
        };
        starts.map(batch).collect()
    }

    fn batch(
        &self,
        piece: &Piece,
        result: &AggregateResult,
        measures: &[ArrayRef],
        lines: Range<usize>,
    ) -> Result<RecordBatch> {
        let groups: Vec<u32> =
            result.group[lines.clone()].iter().map(|group| group + piece.groups.start).collect();
        let mut values = self.grouped.values(&self.question.view, &groups)?.into_iter();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.arrow.fields().len());
        for group in &self.question.groups {
            match group {
                Group::Bin(_) => columns.push(times(&result.bin_start_ns[lines.clone()])),
                Group::Tags(_) => columns.extend(values.next()),
            }
        }
        columns.extend(measures.iter().map(|column| column.slice(lines.start, lines.len())));
        let options = RecordBatchOptions::new().with_row_count(Some(lines.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.arrow), columns, &options)?)
    }

    fn nothing(&self) -> Result<RecordBatch> {
        let schema = Arc::clone(&self.arrow);
        let columns = self
            .question
            .measures
            .iter()
            .zip(schema.fields())
            .map(|(measure, field)| of_nothing(*measure, field.data_type()))
            .collect::<Result<_>>()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn part(groups: Range<u32>, threads: usize) -> Part {
        Part { groups, threads }
    }

    #[test]
    fn questions_share_threads_and_memory() {
        let threads = |rows: &[usize], threads| -> Vec<usize> {
            shares(rows, threads).iter().map(|share| share.threads).collect()
        };
        assert_eq!(threads(&[7], 4), [4]);
        assert_eq!(threads(&[1000, 10, 0], 4), [4, 1, 1]);
        assert_eq!(threads(&[500, 500], 8), [4, 4]);
        assert_eq!(threads(&[0, 0], 2), [1, 1]);
        assert_eq!(shares(&[5], 8), [Share::whole(8)]);
        for questions in [1, 2, 40, 300] {
            for cores in [1, 2, 8, 64] {
                let shares = shares(&vec![1000; questions], cores);
                let bytes: usize =
                    shares.iter().map(|share| share.threads * share.thread_bytes).sum();
                assert!(bytes <= METRICS_BYTES, "{questions} {cores}");
                assert!(shares.iter().all(|share| (1..=cores).contains(&share.threads)));
            }
        }
    }

    #[test]
    fn groups_stay_whole_and_large_ones_have_more_threads() {
        let one = [0; 200];
        assert_eq!(parts(&one, 4), [part(0..1, 4)]);
        let each: Vec<u32> = (0..200).collect();
        assert_eq!(parts(&each, 2), [part(0..100, 1), part(100..200, 1)]);
        let few: Vec<u32> = (0..10).collect();
        assert_eq!(parts(&few, 2), [part(0..10, 2)]);
        assert_eq!(parts(&[], 2), [part(0..0, 2)]);
        let large = [&[0][..], &[1; 180], &[2; 19]].concat();
        assert_eq!(parts(&large, 4), [part(0..2, 4), part(2..3, 1)]);
        for threads in 1..9 {
            let parts = parts(&large, threads);
            assert_eq!(parts.first().map(|part| part.groups.start), Some(0));
            assert_eq!(parts.last().map(|part| part.groups.end), Some(3));
            assert!(parts.windows(2).all(|pair| pair[0].groups.end == pair[1].groups.start));
        }
    }
}
