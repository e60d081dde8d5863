//! Puts metrics of blocks and of rows together, by group and bin.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, UInt64Array};
use arrow_buffer::NullBuffer;
use arrow_cast::cast;
use hashbrown::HashMap;
use tidefall_types::{FieldId, FieldType, Result};

use super::aggregate::block_time;
use super::request::{AggregateRequest, AggregateResult, FieldMetrics};
use crate::rows::{SensorRows, arrow_error};
use crate::segment::metrics::{Blocks, Columns, NumberBlocks};
use crate::segment::numbers::{Number, NumberKind, number_kind};

/// Metrics by group and bin while they grow.
#[derive(Debug)]
pub(crate) struct Accumulator<'a> {
    request: &'a AggregateRequest,
    fields: &'a [(FieldId, FieldType)],
    /// Where the line of a key is; not needed as long as keys only grow, which they do where each
    /// sensor is a group of its own.
    lines: Option<HashMap<(u32, i64), usize>>,
    /// The line used last: blocks and rows come in the order of time.
    last: Option<((u32, i64), usize)>,
    keys: Vec<(u32, i64)>,
    rows: Vec<u64>,
    first_ns: Vec<i64>,
    last_ns: Vec<i64>,
    sums: Vec<Sums>,
}

/// The metrics of one field, one entry a line.
#[derive(Debug)]
enum Sums {
    Count(Vec<u64>),
    Float(Vec<Sum<f64>>),
    Int(Vec<Sum<i64>>),
    UInt(Vec<Sum<u64>>),
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

    fn of_block(columns: &Columns<T>, block: usize, count: u64, times: (i64, i64)) -> Self {
        Self {
            count,
            min: columns.min[block],
            max: columns.max[block],
            sum: columns.sum[block],
            sum_f64: columns.sum_f64[block],
            m2: columns.m2[block],
            first: columns.first[block],
            first_ns: times.0,
            last: columns.last[block],
            last_ns: times.1,
        }
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
                None => Sums::Count(Vec::new()),
                Some(NumberKind::Float) => Sums::Float(Vec::new()),
                Some(NumberKind::Int) => Sums::Int(Vec::new()),
                Some(NumberKind::UInt) => Sums::UInt(Vec::new()),
            })
            .collect();
        Self {
            request,
            fields,
            lines: None,
            last: None,
            keys: Vec::new(),
            rows: Vec::new(),
            first_ns: Vec::new(),
            last_ns: Vec::new(),
            sums,
        }
    }

    /// Adds blocks of one sensor, each of which lies in one bin. `held` are the fields of `blocks`.
    pub(crate) fn add_blocks(
        &mut self,
        group: u32,
        blocks: &Blocks,
        range: Range<usize>,
        held: &[(FieldId, FieldType)],
        block_ns: i64,
    ) {
        let places: Vec<Option<usize>> = self
            .fields
            .iter()
            .map(|(id, _)| held.iter().position(|(other, _)| other == id))
            .collect();
        for block in range {
            let time = block_time(blocks, block, block_ns);
            let line = self.line(group, time.first_ns);
            self.rows[line] += blocks.rows[block] as u64;
            self.first_ns[line] = self.first_ns[line].min(time.first_ns);
            self.last_ns[line] = self.last_ns[line].max(time.last_ns);
            for (sums, place) in self.sums.iter_mut().zip(&places) {
                if let Some(place) = place {
                    sums.add_block(line, blocks, *place, block, (time.first_ns, time.last_ns));
                }
            }
        }
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
        let bin = self.request.bin.map_or(i64::MIN, |bin| bin.start_of(time_ns));
        let key = (group, bin);
        if let Some((last, line)) = self.last
            && last == key
        {
            return line;
        }
        let next = self.keys.len();
        let line = match &mut self.lines {
            None if self.keys.last().is_none_or(|last| *last < key) => next,
            None => {
                let lines = self.keys.iter().copied().zip(0..);
                let lines = self.lines.insert(lines.collect());
                *lines.entry(key).or_insert(next)
            }
            Some(lines) => *lines.entry(key).or_insert(next),
        };
        if line == next {
            self.keys.push(key);
            self.rows.push(0);
            self.first_ns.push(i64::MAX);
            self.last_ns.push(i64::MIN);
            for sums in &mut self.sums {
                sums.push();
            }
        }
        self.last = Some((key, line));
        line
    }

    pub(crate) fn finish(self) -> Result<AggregateResult> {
        let mut order: Vec<usize> = (0..self.keys.len()).collect();
        if self.lines.is_some() {
            order.sort_unstable_by_key(|line| self.keys[*line]);
        }
        let fields = self
            .sums
            .iter()
            .zip(self.fields)
            .map(|(sums, (_, ty))| sums.finish(&order, *ty))
            .collect::<Result<_>>()?;
        Ok(AggregateResult {
            group: order.iter().map(|line| self.keys[*line].0).collect(),
            bin_start_ns: order.iter().map(|line| self.keys[*line].1).collect(),
            rows: order.iter().map(|line| self.rows[*line]).collect(),
            first_time_ns: order.iter().map(|line| self.first_ns[*line]).collect(),
            last_time_ns: order.iter().map(|line| self.last_ns[*line]).collect(),
            fields,
        })
    }
}

impl Sums {
    fn push(&mut self) {
        match self {
            Self::Count(counts) => counts.push(0),
            Self::Float(sums) => sums.push(Sum::default()),
            Self::Int(sums) => sums.push(Sum::default()),
            Self::UInt(sums) => sums.push(Sum::default()),
        }
    }

    fn add_block(
        &mut self,
        line: usize,
        blocks: &Blocks,
        place: usize,
        block: usize,
        row_times: (i64, i64),
    ) {
        let field = &blocks.fields[place];
        let count = field.count[block] as u64;
        let times = (
            row_times.0.saturating_add(field.first_delay_ns[block]),
            row_times.1.saturating_sub(field.last_lead_ns[block]),
        );
        match (self, &field.numbers) {
            (Self::Count(counts), _) => counts[line] += count,
            (Self::Float(sums), NumberBlocks::Float(columns)) => {
                sums[line].add(&Sum::of_block(columns, block, count, times));
            }
            (Self::Int(sums), NumberBlocks::Int(columns)) => {
                sums[line].add(&Sum::of_block(columns, block, count, times));
            }
            (Self::UInt(sums), NumberBlocks::UInt(columns)) => {
                sums[line].add(&Sum::of_block(columns, block, count, times));
            }
            _ => debug_assert!(false, "a field changed its type"),
        }
    }

    fn finish(&self, order: &[usize], ty: FieldType) -> Result<FieldMetrics> {
        match self {
            Self::Count(counts) => {
                let nothing = arrow_array::new_null_array(&ty.arrow(), order.len());
                Ok(FieldMetrics {
                    count: order.iter().map(|line| counts[*line]).collect(),
                    min: Arc::clone(&nothing),
                    max: Arc::clone(&nothing),
                    sum: arrow_array::new_null_array(&FieldType::F64.arrow(), order.len()),
                    sum_f64: vec![0.0; order.len()],
                    m2: vec![0.0; order.len()],
                    first: Arc::clone(&nothing),
                    last: nothing,
                })
            }
            Self::Float(sums) => {
                finish(sums, order, ty, |v, n| Arc::new(Float64Array::new(v.into(), Some(n))))
            }
            Self::Int(sums) => {
                finish(sums, order, ty, |v, n| Arc::new(Int64Array::new(v.into(), Some(n))))
            }
            Self::UInt(sums) => {
                finish(sums, order, ty, |v, n| Arc::new(UInt64Array::new(v.into(), Some(n))))
            }
        }
    }
}

fn finish<T: Number>(
    sums: &[Sum<T>],
    order: &[usize],
    ty: FieldType,
    to_array: impl Fn(Vec<T>, NullBuffer) -> ArrayRef,
) -> Result<FieldMetrics> {
    let nulls: NullBuffer =
        order.iter().map(|line| sums[*line].count > 0).collect::<Vec<_>>().into();
    let column = |get: fn(&Sum<T>) -> T| {
        to_array(order.iter().map(|line| get(&sums[*line])).collect(), nulls.clone())
    };
    let typed = |get: fn(&Sum<T>) -> T| -> Result<ArrayRef> {
        let column = column(get);
        if *column.data_type() == ty.arrow() {
            return Ok(column);
        }
        cast(&column, &ty.arrow()).map_err(arrow_error)
    };
    Ok(FieldMetrics {
        count: order.iter().map(|line| sums[*line].count).collect(),
        min: typed(|sum| sum.min)?,
        max: typed(|sum| sum.max)?,
        sum: column(|sum| sum.sum),
        sum_f64: order.iter().map(|line| sums[*line].sum_f64).collect(),
        m2: order.iter().map(|line| sums[*line].m2).collect(),
        first: typed(|sum| sum.first)?,
        last: typed(|sum| sum.last)?,
    })
}
