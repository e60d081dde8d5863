//! The metrics of fields while they grow, a line for each group and bin.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, UInt64Array};
use arrow_buffer::NullBuffer;
use arrow_cast::cast;
use tidefall_ground::kept::arrow_error;
use tidefall_types::{FieldType, Result, TimeRange};

use super::request::FieldMetrics;
use crate::segment::metrics::{Blocks, FieldBlocks, NumberBlocks};
use crate::segment::numbers::{
    Columns, Number, NumberKind, Totals, number_kind, reorder, with_numbers,
};
use crate::segment::wanted::Wanted;

/// The metrics of one field.
#[derive(Debug)]
pub(super) enum FieldSums {
    Count(Vec<u64>),
    Float(Sums<f64>),
    Int(Sums<i64>),
    UInt(Sums<u64>),
}

/// The metrics of the numbers of one field, one entry a line; where `count` is 0 the others mean nothing.
#[derive(Debug, Default)]
pub(super) struct Sums<T> {
    count: Vec<u64>,
    columns: Columns<T>,
    first_ns: Vec<i64>,
    last_ns: Vec<i64>,
    wanted: Wanted,
}

/// The metrics of one field of one line.
#[derive(Debug, Clone, Copy, Default)]
struct Sum<T> {
    count: u64,
    min: T,
    max: T,
    sum: T,
    sum_f64: f64,
    m2: f64,
    first: T,
    first_ns: i64,
    last: T,
    last_ns: i64,
}

impl<T: Number> Sum<T> {
    /// The sum of values, of which there must be one, with the times of the first and the last.
    fn of_values<N: Copy + Into<T>>(values: &[N], times: (i64, i64), deviations: bool) -> Self {
        let totals = match deviations {
            true => Totals::of(values),
            false => Totals::without_deviations(values),
        };
        let is_exact = totals.is_exact(values.len());
        Self {
            count: values.len() as u64,
            min: totals.min,
            max: totals.max,
            sum: totals.sum,
            sum_f64: if is_exact { totals.sum.to_f64() } else { totals.sum_f64 },
            m2: totals.m2,
            first: values[0].into(),
            first_ns: times.0,
            last: values[values.len() - 1].into(),
            last_ns: times.1,
        }
    }

    /// What is wanted of an entry of columns, with its count and the times of its first and last value.
    #[inline]
    fn of(
        columns: &Columns<T>,
        entry: usize,
        count: u64,
        times: (i64, i64),
        wanted: Wanted,
    ) -> Self {
        let number = |column: &[T], is_wanted| if is_wanted { column[entry] } else { T::default() };
        Self {
            count,
            min: number(&columns.min, wanted.extremes),
            max: number(&columns.max, wanted.extremes),
            sum: columns.sum[entry],
            sum_f64: columns.sum_f64_at(entry),
            m2: if wanted.deviations { columns.m2[entry] } else { 0.0 },
            first: number(&columns.first, wanted.ends),
            first_ns: times.0,
            last: number(&columns.last, wanted.ends),
            last_ns: times.1,
        }
    }
}

/// Rows of a batch that count into one line.
#[derive(Debug)]
pub(super) struct Dealt {
    pub(super) line: usize,
    /// Never empty.
    pub(super) rows: Range<usize>,
}

/// A block that counts into a line.
#[derive(Debug, Clone, Copy)]
pub(super) struct DealtBlock {
    pub(super) line: u32,
    pub(super) block: u32,
}

/// An end of a block, a row, that counts into a line.
#[derive(Debug, Clone, Copy)]
pub(super) struct DealtEnd {
    pub(super) line: usize,
    pub(super) block: usize,
    pub(super) is_last: bool,
    pub(super) time_ns: i64,
}

/// Blocks, and the times at which the first and the last of their rows lie.
pub(super) struct TimedBlocks<'a> {
    pub(super) blocks: &'a Blocks,
    pub(super) block_ns: i64,
}

impl TimedBlocks<'_> {
    pub(super) fn time(&self, block: usize) -> TimeRange {
        self.blocks.time(block, self.block_ns)
    }

    /// When the first or the last row of a block came.
    pub(super) fn time_of(&self, block: usize, is_last: bool) -> i64 {
        let TimeRange { first_ns, last_ns } = self.time(block);
        if is_last { last_ns } else { first_ns }
    }

    /// When the first and the last value of a field came.
    fn value_times(&self, field: &FieldBlocks, block: usize) -> (i64, i64) {
        let rows = self.time(block);
        let first_ns = rows.first_ns.saturating_add(field.first_delay_ns[block]);
        (first_ns, rows.last_ns.saturating_sub(field.last_lead_ns[block]))
    }
}

impl FieldSums {
    /// The metrics of a field of a type, without a line.
    pub(super) fn new(ty: FieldType, wanted: Wanted) -> Self {
        match number_kind(ty) {
            None => Self::Count(Vec::new()),
            Some(NumberKind::Float) => Self::Float(Sums { wanted, ..Sums::default() }),
            Some(NumberKind::Int) => Self::Int(Sums { wanted, ..Sums::default() }),
            Some(NumberKind::UInt) => Self::UInt(Sums { wanted, ..Sums::default() }),
        }
    }

    /// Makes room for so many more lines.
    pub(super) fn reserve(&mut self, lines: usize) {
        match self {
            Self::Count(counts) => counts.reserve(lines),
            Self::Float(sums) => sums.reserve(lines),
            Self::Int(sums) => sums.reserve(lines),
            Self::UInt(sums) => sums.reserve(lines),
        }
    }

    pub(super) fn resize(&mut self, lines: usize) {
        match self {
            Self::Count(counts) => counts.resize(lines, 0),
            Self::Float(sums) => sums.resize(lines),
            Self::Int(sums) => sums.resize(lines),
            Self::UInt(sums) => sums.resize(lines),
        }
    }

    pub(super) fn append(
        &mut self,
        blocks: &TimedBlocks<'_>,
        field: &FieldBlocks,
        range: Range<usize>,
    ) {
        match (self, &field.numbers) {
            (Self::Count(counts), _) => {
                counts.extend(range.map(|block| field.count[block] as u64));
            }
            (Self::Float(sums), NumberBlocks::Float(columns)) => {
                sums.append(blocks, field, columns, range);
            }
            (Self::Int(sums), NumberBlocks::Int(columns)) => {
                sums.append(blocks, field, columns, range);
            }
            (Self::UInt(sums), NumberBlocks::UInt(columns)) => {
                sums.append(blocks, field, columns, range);
            }
            _ => debug_assert!(false, "a field changed its type"),
        }
    }

    pub(super) fn add(
        &mut self,
        line: usize,
        blocks: &TimedBlocks<'_>,
        field: &FieldBlocks,
        block: usize,
    ) {
        let count = field.count[block] as u64;
        let times = blocks.value_times(field, block);
        match (self, &field.numbers) {
            (Self::Count(counts), _) => counts[line] += count,
            (Self::Float(sums), NumberBlocks::Float(columns)) => {
                sums.add(line, &Sum::of(columns, block, count, times, sums.wanted));
            }
            (Self::Int(sums), NumberBlocks::Int(columns)) => {
                sums.add(line, &Sum::of(columns, block, count, times, sums.wanted));
            }
            (Self::UInt(sums), NumberBlocks::UInt(columns)) => {
                sums.add(line, &Sum::of(columns, block, count, times, sums.wanted));
            }
            _ => debug_assert!(false, "a field changed its type"),
        }
    }

    /// Adds blocks, each to its line.
    pub(super) fn add_dealt(
        &mut self,
        dealt: &[DealtBlock],
        blocks: &TimedBlocks<'_>,
        field: &FieldBlocks,
    ) {
        match (self, &field.numbers) {
            (Self::Count(counts), _) => {
                for DealtBlock { line, block } in dealt {
                    counts[*line as usize] += field.count[*block as usize] as u64;
                }
            }
            (Self::Float(sums), NumberBlocks::Float(columns)) => {
                sums.add_dealt(dealt, blocks, field, columns);
            }
            (Self::Int(sums), NumberBlocks::Int(columns)) => {
                sums.add_dealt(dealt, blocks, field, columns);
            }
            (Self::UInt(sums), NumberBlocks::UInt(columns)) => {
                sums.add_dealt(dealt, blocks, field, columns);
            }
            _ => debug_assert!(false, "a field changed its type"),
        }
    }

    /// Adds ends of blocks that have a value for each of their rows or for none.
    pub(super) fn add_ends(&mut self, ends: &[DealtEnd], field: &FieldBlocks) {
        let with_value = ends.iter().filter(|end| field.count[end.block] > 0);
        match (self, &field.numbers) {
            (Self::Count(counts), _) => with_value.for_each(|end| counts[end.line] += 1),
            (Self::Float(sums), NumberBlocks::Float(columns)) => {
                with_value.for_each(|end| sums.add_end(end, columns));
            }
            (Self::Int(sums), NumberBlocks::Int(columns)) => {
                with_value.for_each(|end| sums.add_end(end, columns));
            }
            (Self::UInt(sums), NumberBlocks::UInt(columns)) => {
                with_value.for_each(|end| sums.add_end(end, columns));
            }
            _ => debug_assert!(false, "a field changed its type"),
        }
    }

    /// Adds rows, of which `values` is the column of this field.
    pub(super) fn add_rows(&mut self, times: &[i64], values: &ArrayRef, dealt: &[Dealt]) {
        match self {
            Self::Count(counts) => {
                for Dealt { line, rows } in dealt {
                    let nulls = values.nulls().map(|nulls| nulls.slice(rows.start, rows.len()));
                    let nulls = nulls.map_or(0, |nulls| nulls.null_count());
                    counts[*line] += (rows.len() - nulls) as u64;
                }
            }
            Self::Float(sums) => {
                with_numbers!(values, Float, |slice| sums.add_rows(times, slice, values, dealt))
            }
            Self::Int(sums) => {
                with_numbers!(values, Int, |slice| sums.add_rows(times, slice, values, dealt))
            }
            Self::UInt(sums) => {
                with_numbers!(values, UInt, |slice| sums.add_rows(times, slice, values, dealt))
            }
        }
    }

    /// Adds the lines of `other`, each to the one of `lines` in its place.
    pub(super) fn absorb(&mut self, lines: &[usize], other: &Self) {
        match (self, other) {
            (Self::Count(counts), Self::Count(others)) => {
                lines.iter().zip(others).for_each(|(line, other)| counts[*line] += other);
            }
            (Self::Float(sums), Self::Float(others)) => sums.absorb(lines, others),
            (Self::Int(sums), Self::Int(others)) => sums.absorb(lines, others),
            (Self::UInt(sums), Self::UInt(others)) => sums.absorb(lines, others),
            _ => debug_assert!(false, "a field changed its type"),
        }
    }

    /// Puts the lines into another order.
    pub(super) fn reorder(&mut self, order: &[usize]) {
        match self {
            Self::Count(counts) => *counts = reorder(counts, order),
            Self::Float(sums) => *sums = sums.reordered(order),
            Self::Int(sums) => *sums = sums.reordered(order),
            Self::UInt(sums) => *sums = sums.reordered(order),
        }
    }

    /// The only line as that of a block with rows from one time to another; nothing where its times do not fit.
    pub(super) fn into_block(self, rows: &TimeRange, is_exact: bool) -> Option<FieldBlocks> {
        match self {
            Self::Count(count) => {
                Some(FieldBlocks::of_one(count[0] as i64, (0, 0), is_exact, NumberBlocks::None))
            }
            Self::Float(sums) => sums.into_block(rows, is_exact, NumberBlocks::Float),
            Self::Int(sums) => sums.into_block(rows, is_exact, NumberBlocks::Int),
            Self::UInt(sums) => sums.into_block(rows, is_exact, NumberBlocks::UInt),
        }
    }

    pub(super) fn finish(self, ty: FieldType) -> Result<FieldMetrics> {
        match self {
            Self::Count(count) => {
                let lines = count.len();
                let nothing = arrow_array::new_null_array(&ty.arrow(), lines);
                Ok(FieldMetrics {
                    count,
                    min: Arc::clone(&nothing),
                    max: Arc::clone(&nothing),
                    sum: arrow_array::new_null_array(&FieldType::F64.arrow(), lines),
                    sum_f64: vec![0.0; lines],
                    m2: vec![0.0; lines],
                    first: Arc::clone(&nothing),
                    last: nothing,
                    first_time_ns: vec![0; lines],
                    last_time_ns: vec![0; lines],
                })
            }
            Self::Float(sums) => finish(sums, ty, |v, n| Arc::new(Float64Array::new(v.into(), n))),
            Self::Int(sums) => finish(sums, ty, |v, n| Arc::new(Int64Array::new(v.into(), n))),
            Self::UInt(sums) => finish(sums, ty, |v, n| Arc::new(UInt64Array::new(v.into(), n))),
        }
    }
}

impl<T: Number> Sums<T> {
    fn reserve(&mut self, lines: usize) {
        self.count.reserve(lines);
        self.columns.reserve(lines);
        self.first_ns.reserve(lines);
        self.last_ns.reserve(lines);
    }

    fn resize(&mut self, lines: usize) {
        self.count.resize(lines, 0);
        self.columns.resize(lines);
        self.first_ns.resize(lines, 0);
        self.last_ns.resize(lines, 0);
    }

    fn append(
        &mut self,
        blocks: &TimedBlocks<'_>,
        field: &FieldBlocks,
        columns: &Columns<T>,
        range: Range<usize>,
    ) {
        self.count.extend(range.clone().map(|block| field.count[block] as u64));
        self.columns.extend_from(columns, range.clone());
        self.first_ns.extend(range.clone().map(|block| blocks.value_times(field, block).0));
        self.last_ns.extend(range.map(|block| blocks.value_times(field, block).1));
    }

    fn add_end(&mut self, end: &DealtEnd, columns: &Columns<T>) {
        let values = if end.is_last { &columns.last } else { &columns.first };
        let times = (end.time_ns, end.time_ns);
        let sum = Sum::of_values(&[values[end.block]], times, self.wanted.deviations);
        self.add(end.line, &sum);
    }

    fn add_dealt(
        &mut self,
        dealt: &[DealtBlock],
        blocks: &TimedBlocks<'_>,
        field: &FieldBlocks,
        columns: &Columns<T>,
    ) {
        let wanted = self.wanted;
        if wanted.deviations || wanted.ends || wanted.extremes {
            for DealtBlock { line, block } in dealt {
                let block = *block as usize;
                let (count, times) = (field.count[block] as u64, blocks.value_times(field, block));
                self.add(*line as usize, &Sum::of(columns, block, count, times, wanted));
            }
            return;
        }
        // Where the count is 0, so are the sums.
        for DealtBlock { line, block } in dealt {
            let (line, block) = (*line as usize, *block as usize);
            self.count[line] += field.count[block] as u64;
            self.columns.sum[line] = self.columns.sum[line].plus(columns.sum[block]);
            self.columns.sum_f64[line] += columns.sum_f64_at(block);
        }
    }

    /// Adds what is known of other rows; means and squared differences are combined as by Chan,
    /// Golub and LeVeque (1979).
    #[inline]
    fn add(&mut self, line: usize, more: &Sum<T>) {
        if more.count == 0 {
            return;
        }
        let (count, columns) = (self.count[line], &mut self.columns);
        if count == 0 {
            self.set(line, more);
            return;
        }
        let sum_f64 = columns.sum_f64[line];
        if self.wanted.deviations {
            let (mine, theirs) = (count as f64, more.count as f64);
            let distance = more.sum_f64 / theirs - sum_f64 / mine;
            columns.m2[line] += more.m2 + distance * distance * mine * theirs / (mine + theirs);
        }
        self.count[line] = count + more.count;
        columns.sum[line] = columns.sum[line].plus(more.sum);
        columns.sum_f64[line] = sum_f64 + more.sum_f64;
        if more.min.is_below(columns.min[line]) {
            columns.min[line] = more.min;
        }
        if columns.max[line].is_below(more.max) {
            columns.max[line] = more.max;
        }
        if more.first_ns < self.first_ns[line] {
            (columns.first[line], self.first_ns[line]) = (more.first, more.first_ns);
        }
        if more.last_ns >= self.last_ns[line] {
            (columns.last[line], self.last_ns[line]) = (more.last, more.last_ns);
        }
    }

    fn set(&mut self, line: usize, sum: &Sum<T>) {
        let columns = &mut self.columns;
        self.count[line] = sum.count;
        columns.min[line] = sum.min;
        columns.max[line] = sum.max;
        columns.sum[line] = sum.sum;
        columns.sum_f64[line] = sum.sum_f64;
        columns.m2[line] = sum.m2;
        columns.first[line] = sum.first;
        columns.last[line] = sum.last;
        self.first_ns[line] = sum.first_ns;
        self.last_ns[line] = sum.last_ns;
    }

    fn add_rows<N: Copy + Into<T>>(
        &mut self,
        times: &[i64],
        slice: &[N],
        array: &ArrayRef,
        dealt: &[Dealt],
    ) {
        let (mut valid, nulls): (Vec<N>, _) = (Vec::new(), array.nulls());
        for Dealt { line, rows } in dealt {
            let (values, first, last) = match nulls {
                None => (&slice[rows.clone()], rows.start, rows.end - 1),
                Some(nulls) => {
                    valid.clear();
                    let mut ends = (rows.start, rows.start);
                    for row in rows.clone().filter(|row| nulls.is_valid(*row)) {
                        ends = (if valid.is_empty() { row } else { ends.0 }, row);
                        valid.push(slice[row]);
                    }
                    (&valid[..], ends.0, ends.1)
                }
            };
            if !values.is_empty() {
                let times = (times[first], times[last]);
                self.add(*line, &Sum::of_values(values, times, self.wanted.deviations));
            }
        }
    }

    fn absorb(&mut self, lines: &[usize], other: &Self) {
        for (entry, line) in lines.iter().enumerate() {
            let times = (other.first_ns[entry], other.last_ns[entry]);
            let sum = Sum::of(&other.columns, entry, other.count[entry], times, Wanted::ALL);
            self.add(*line, &sum);
        }
    }

    fn into_block(
        self,
        rows: &TimeRange,
        is_exact: bool,
        to_numbers: impl Fn(Columns<T>) -> NumberBlocks,
    ) -> Option<FieldBlocks> {
        let count = self.count[0] as i64;
        let delays = match count {
            0 => (0, 0),
            _ => (
                self.first_ns[0].checked_sub(rows.first_ns)?,
                rows.last_ns.checked_sub(self.last_ns[0])?,
            ),
        };
        Some(FieldBlocks::of_one(count, delays, is_exact, to_numbers(self.columns)))
    }

    fn reordered(&self, order: &[usize]) -> Self {
        Self {
            count: reorder(&self.count, order),
            columns: self.columns.reordered(order),
            first_ns: reorder(&self.first_ns, order),
            last_ns: reorder(&self.last_ns, order),
            wanted: self.wanted,
        }
    }
}

fn finish<T: Number>(
    sums: Sums<T>,
    ty: FieldType,
    to_array: impl Fn(Vec<T>, Option<NullBuffer>) -> ArrayRef,
) -> Result<FieldMetrics> {
    let has_value = |count: &u64| *count > 0;
    let nulls: Option<NullBuffer> = match sums.count.iter().all(has_value) {
        true => None,
        false => Some(sums.count.iter().map(has_value).collect::<Vec<_>>().into()),
    };
    let typed = |values: Vec<T>| -> Result<ArrayRef> {
        let column = to_array(values, nulls.clone());
        if *column.data_type() == ty.arrow() {
            return Ok(column);
        }
        cast(&column, &ty.arrow()).map_err(arrow_error)
    };
    let columns = sums.columns;
    let both = columns.sum.iter().zip(&columns.sum_f64);
    let sum_f64 = both.map(|(sum, sum_f64)| sum.unwrapped(*sum_f64)).collect();
    Ok(FieldMetrics {
        min: typed(columns.min)?,
        max: typed(columns.max)?,
        sum: to_array(columns.sum, nulls.clone()),
        first: typed(columns.first)?,
        last: typed(columns.last)?,
        first_time_ns: sums.first_ns,
        last_time_ns: sums.last_ns,
        count: sums.count,
        sum_f64,
        m2: columns.m2,
    })
}
