//! Puts metrics of blocks and of rows together, by group and bin.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, UInt64Array};
use arrow_buffer::NullBuffer;
use arrow_cast::cast;
use hashbrown::HashMap;
use tidefall_types::{FieldId, FieldType, Result, TimeRange};

use super::aggregate::block_time;
use super::bin::Bins;
use super::request::{AggregateRequest, AggregateResult, FieldMetrics};
use crate::rows::{SensorRows, arrow_error};
use crate::segment::metrics::{Blocks, Columns, FieldBlocks, NumberBlocks};
use crate::segment::numbers::{Number, NumberKind, number_kind, reorder};

/// Metrics by group and bin while they grow: columns, with one entry for each group and bin, a *line*.
#[derive(Debug)]
pub(crate) struct Accumulator<'a> {
    request: &'a AggregateRequest,
    fields: &'a [(FieldId, FieldType)],
    bins: Option<Bins>,
    /// Where the line of a key is; not needed as long as keys only grow, which they do where each
    /// sensor is a group of its own.
    lines: Option<HashMap<(u32, i64), usize>>,
    /// The line used last: blocks and rows come in the order of time.
    last: Option<((u32, i64), usize)>,
    groups: Vec<u32>,
    bin_start_ns: Vec<i64>,
    rows: Vec<u64>,
    first_ns: Vec<i64>,
    last_ns: Vec<i64>,
    sums: Vec<FieldSums>,
}

/// The metrics of one field.
#[derive(Debug)]
enum FieldSums {
    Count(Vec<u64>),
    Float(Sums<f64>),
    Int(Sums<i64>),
    UInt(Sums<u64>),
}

/// The metrics of the numbers of one field, one entry a line; where `count` is 0 the others mean nothing.
#[derive(Debug, Default)]
struct Sums<T> {
    count: Vec<u64>,
    columns: Columns<T>,
    first_ns: Vec<i64>,
    last_ns: Vec<i64>,
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
    /// Adds what is known of other rows; means and squared differences are combined as by Chan,
    /// Golub and LeVeque (1979).
    fn add(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        let (mine, theirs) = (self.count as f64, other.count as f64);
        let distance = other.sum_f64 / theirs - self.sum_f64 / mine;
        self.m2 += other.m2 + distance * distance * mine * theirs / (mine + theirs);
        self.count += other.count;
        self.sum = self.sum.plus(other.sum);
        self.sum_f64 += other.sum_f64;
        if other.min.is_below(self.min) {
            self.min = other.min;
        }
        if self.max.is_below(other.max) {
            self.max = other.max;
        }
        if other.first_ns < self.first_ns {
            (self.first, self.first_ns) = (other.first, other.first_ns);
        }
        if other.last_ns >= self.last_ns {
            (self.last, self.last_ns) = (other.last, other.last_ns);
        }
    }

    /// An entry of columns, with its count and the times of its first and last value.
    fn of(columns: &Columns<T>, entry: usize, count: u64, times: (i64, i64)) -> Self {
        Self {
            count,
            min: columns.min[entry],
            max: columns.max[entry],
            sum: columns.sum[entry],
            sum_f64: columns.sum_f64[entry],
            m2: columns.m2[entry],
            first: columns.first[entry],
            first_ns: times.0,
            last: columns.last[entry],
            last_ns: times.1,
        }
    }
}

/// Blocks of a sensor, and the times at which the first and the last of their rows lie.
struct TimedBlocks<'a> {
    blocks: &'a Blocks,
    block_ns: i64,
}

impl TimedBlocks<'_> {
    fn time(&self, block: usize) -> TimeRange {
        block_time(self.blocks, block, self.block_ns)
    }

    /// When the first and the last value of a field came.
    fn value_times(&self, field: &FieldBlocks, block: usize) -> (i64, i64) {
        let rows = self.time(block);
        let first_ns = rows.first_ns.saturating_add(field.first_delay_ns[block]);
        (first_ns, rows.last_ns.saturating_sub(field.last_lead_ns[block]))
    }
}

impl<'a> Accumulator<'a> {
    pub(crate) fn new(
        request: &'a AggregateRequest,
        fields: &'a Arc<[(FieldId, FieldType)]>,
    ) -> Self {
        let sums = fields
            .iter()
            .map(|(_, ty)| match number_kind(*ty) {
                None => FieldSums::Count(Vec::new()),
                Some(NumberKind::Float) => FieldSums::Float(Sums::default()),
                Some(NumberKind::Int) => FieldSums::Int(Sums::default()),
                Some(NumberKind::UInt) => FieldSums::UInt(Sums::default()),
            })
            .collect();
        Self {
            request,
            fields,
            bins: request.bin.map(Bins::new),
            lines: None,
            last: None,
            groups: Vec::new(),
            bin_start_ns: Vec::new(),
            rows: Vec::new(),
            first_ns: Vec::new(),
            last_ns: Vec::new(),
            sums,
        }
    }

    /// Makes room for so many blocks, if each may begin a line.
    pub(crate) fn reserve(&mut self, blocks: usize) {
        if self.request.bin.is_none() || self.lines.is_some() {
            return;
        }
        self.groups.reserve(blocks);
        self.bin_start_ns.reserve(blocks);
        self.rows.reserve(blocks);
        self.first_ns.reserve(blocks);
        self.last_ns.reserve(blocks);
        for sums in &mut self.sums {
            match sums {
                FieldSums::Count(counts) => counts.reserve(blocks),
                FieldSums::Float(sums) => sums.reserve(blocks),
                FieldSums::Int(sums) => sums.reserve(blocks),
                FieldSums::UInt(sums) => sums.reserve(blocks),
            }
        }
    }

    /// Adds blocks of one sensor, each of which lies in one bin. `held` are the fields of `blocks`.
    pub(crate) fn add_blocks(
        &mut self,
        group: u32,
        blocks: &Blocks,
        mut range: Range<usize>,
        held: &[(FieldId, FieldType)],
        block_ns: i64,
    ) {
        let places: Vec<Option<usize>> = self
            .fields
            .iter()
            .map(|(id, _)| held.iter().position(|(other, _)| other == id))
            .collect();
        let blocks = TimedBlocks { blocks, block_ns };
        while !range.is_empty() {
            let new = self.append_keys(group, &blocks, range.clone());
            if new.is_empty() {
                self.add_block(group, &blocks, range.start, &places);
                range.start += 1;
            } else {
                self.append_blocks(&blocks, new.clone(), &places);
                range.start = new.end;
            }
        }
    }

    /// Begins lines for the first of some blocks, as many as each begin a bin behind all that were before.
    fn append_keys(
        &mut self,
        group: u32,
        blocks: &TimedBlocks<'_>,
        range: Range<usize>,
    ) -> Range<usize> {
        if self.lines.is_some() {
            return range.start..range.start;
        }
        let mut last = self.last_key();
        for block in range.clone() {
            let key = (group, self.bin_of(blocks.time(block).first_ns));
            if last.is_some_and(|last| last >= key) {
                return range.start..block;
            }
            self.groups.push(group);
            self.bin_start_ns.push(key.1);
            last = Some(key);
        }
        range
    }

    fn last_key(&self) -> Option<(u32, i64)> {
        self.groups.last().copied().zip(self.bin_start_ns.last().copied())
    }

    /// Adds blocks whose lines [`Self::append_keys`] has just begun.
    fn append_blocks(
        &mut self,
        blocks: &TimedBlocks<'_>,
        range: Range<usize>,
        places: &[Option<usize>],
    ) {
        self.rows.extend(blocks.blocks.rows[range.clone()].iter().map(|rows| *rows as u64));
        self.first_ns.extend(range.clone().map(|block| blocks.time(block).first_ns));
        self.last_ns.extend(range.clone().map(|block| blocks.time(block).last_ns));
        for (sums, place) in self.sums.iter_mut().zip(places) {
            match place {
                Some(place) => sums.append(blocks, &blocks.blocks.fields[*place], range.clone()),
                None => sums.resize(self.rows.len()),
            }
        }
    }

    fn add_block(
        &mut self,
        group: u32,
        blocks: &TimedBlocks<'_>,
        block: usize,
        places: &[Option<usize>],
    ) {
        let time = blocks.time(block);
        let line = self.line(group, time.first_ns);
        self.rows[line] += blocks.blocks.rows[block] as u64;
        self.first_ns[line] = self.first_ns[line].min(time.first_ns);
        self.last_ns[line] = self.last_ns[line].max(time.last_ns);
        for (sums, place) in self.sums.iter_mut().zip(places) {
            if let Some(place) = place {
                sums.add(line, blocks, &blocks.blocks.fields[*place], block);
            }
        }
    }

    fn bin_of(&mut self, time_ns: i64) -> i64 {
        self.bins.as_mut().map_or(i64::MIN, |bins| bins.start_of(time_ns))
    }

    /// Adds rows of one sensor, ordered by time.
    pub(crate) fn add_rows(&mut self, group: u32, sensor: u32, rows: &SensorRows) {
        let held: Vec<(FieldId, FieldType)> = self.fields.to_vec();
        let types: Vec<FieldType> = held.iter().map(|(_, ty)| *ty).collect();
        let mut start = 0;
        // Bins are not aligned with any block interval, so each bin's rows make one block that is
        // as long as time itself.
        while start < rows.len() {
            let behind = match self.request.bin {
                None => rows.len(),
                Some(bin) => {
                    let bin_start = bin.start_of(rows.times[start]);
                    let last_ns = bin_start.saturating_add(bin.width_ns - 1);
                    start + rows.times[start..].partition_point(|&time| time <= last_ns)
                }
            };
            let piece = rows.slice(start, behind - start);
            let mut blocks = Blocks::new(&types);
            blocks.append_rows(sensor, &piece.times, &piece.fields, i64::MAX);
            for block in 0..blocks.len() {
                self.add_blocks(group, &blocks, block..block + 1, &held, i64::MAX);
            }
            start = behind;
        }
    }

    fn line(&mut self, group: u32, time_ns: i64) -> usize {
        let key = (group, self.bin_of(time_ns));
        if let Some((last, line)) = self.last
            && last == key
        {
            return line;
        }
        let (next, last) = (self.groups.len(), self.last_key());
        let line = match &mut self.lines {
            None if last == Some(key) => next - 1,
            None if last.is_none_or(|last| last < key) => next,
            None => {
                let keys = self.groups.iter().copied().zip(self.bin_start_ns.iter().copied());
                let lines = self.lines.insert(keys.zip(0..).collect());
                *lines.entry(key).or_insert(next)
            }
            Some(lines) => *lines.entry(key).or_insert(next),
        };
        if line == next {
            self.groups.push(group);
            self.bin_start_ns.push(key.1);
            self.rows.push(0);
            self.first_ns.push(i64::MAX);
            self.last_ns.push(i64::MIN);
            for sums in &mut self.sums {
                sums.resize(next + 1);
            }
        }
        self.last = Some((key, line));
        line
    }

    pub(crate) fn finish(mut self) -> Result<AggregateResult> {
        if self.lines.is_some() {
            self.sort();
        }
        let fields = self.sums.into_iter().zip(self.fields);
        Ok(AggregateResult {
            group: self.groups,
            bin_start_ns: self.bin_start_ns,
            rows: self.rows,
            first_time_ns: self.first_ns,
            last_time_ns: self.last_ns,
            fields: fields.map(|(sums, (_, ty))| sums.finish(*ty)).collect::<Result<_>>()?,
        })
    }

    /// Puts the lines into the order of their keys.
    fn sort(&mut self) {
        let mut order: Vec<usize> = (0..self.groups.len()).collect();
        order.sort_unstable_by_key(|line| (self.groups[*line], self.bin_start_ns[*line]));
        self.groups = reorder(&self.groups, &order);
        self.bin_start_ns = reorder(&self.bin_start_ns, &order);
        self.rows = reorder(&self.rows, &order);
        self.first_ns = reorder(&self.first_ns, &order);
        self.last_ns = reorder(&self.last_ns, &order);
        for sums in &mut self.sums {
            match sums {
                FieldSums::Count(counts) => *counts = reorder(counts, &order),
                FieldSums::Float(sums) => *sums = sums.reordered(&order),
                FieldSums::Int(sums) => *sums = sums.reordered(&order),
                FieldSums::UInt(sums) => *sums = sums.reordered(&order),
            }
        }
    }
}

impl FieldSums {
    fn resize(&mut self, lines: usize) {
        match self {
            Self::Count(counts) => counts.resize(lines, 0),
            Self::Float(sums) => sums.resize(lines),
            Self::Int(sums) => sums.resize(lines),
            Self::UInt(sums) => sums.resize(lines),
        }
    }

    fn append(&mut self, blocks: &TimedBlocks<'_>, field: &FieldBlocks, range: Range<usize>) {
        match (self, &field.numbers) {
            (Self::Count(counts), _) => {
                counts.extend(field.count[range].iter().map(|count| *count as u64));
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

    fn add(&mut self, line: usize, blocks: &TimedBlocks<'_>, field: &FieldBlocks, block: usize) {
        let count = field.count[block] as u64;
        let times = blocks.value_times(field, block);
        match (self, &field.numbers) {
            (Self::Count(counts), _) => counts[line] += count,
            (Self::Float(sums), NumberBlocks::Float(columns)) => {
                sums.add(line, &Sum::of(columns, block, count, times));
            }
            (Self::Int(sums), NumberBlocks::Int(columns)) => {
                sums.add(line, &Sum::of(columns, block, count, times));
            }
            (Self::UInt(sums), NumberBlocks::UInt(columns)) => {
                sums.add(line, &Sum::of(columns, block, count, times));
            }
            _ => debug_assert!(false, "a field changed its type"),
        }
    }

    fn finish(self, ty: FieldType) -> Result<FieldMetrics> {
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
        self.count.extend(field.count[range.clone()].iter().map(|count| *count as u64));
        self.columns.extend_from(columns, range.clone());
        self.first_ns.extend(range.clone().map(|block| blocks.value_times(field, block).0));
        self.last_ns.extend(range.map(|block| blocks.value_times(field, block).1));
    }

    fn add(&mut self, line: usize, more: &Sum<T>) {
        let times = (self.first_ns[line], self.last_ns[line]);
        let mut sum = Sum::of(&self.columns, line, self.count[line], times);
        sum.add(more);
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

    fn reordered(&self, order: &[usize]) -> Self {
        Self {
            count: reorder(&self.count, order),
            columns: self.columns.reordered(order),
            first_ns: reorder(&self.first_ns, order),
            last_ns: reorder(&self.last_ns, order),
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
    Ok(FieldMetrics {
        min: typed(columns.min)?,
        max: typed(columns.max)?,
        sum: to_array(columns.sum, nulls.clone()),
        first: typed(columns.first)?,
        last: typed(columns.last)?,
        count: sums.count,
        sum_f64: columns.sum_f64,
        m2: columns.m2,
    })
}
