//! Block metrics: what is known of the readings of one sensor in one block interval without
//! reading them (as in Peregreen; the cumulative ones combine upwards).
//!
//! A block whose metrics cannot speak for its values exactly (it holds NaN or an infinity, or
//! integers whose sum leaves 2^53) is stored with NaN as its `m2`; it is never answered from and
//! never pruned. Of timestamps there is no sum: it is stored as 0, and so is `m2`.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampNanosecondType, UInt64Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, UInt64Array};
use tidefall_codec::Profile;
use tidefall_ground::frames::Column;
use tidefall_ground::frames::{FrameReader, FrameWriter};
use tidefall_types::{Error, FieldType, Result, TimeRange};

use super::numbers::{Columns, NumberKind, number_kind, with_numbers};
use super::wanted::Wanted;

/// The blocks of some sensors, ordered by sensor and time, column-wise.
#[derive(Debug, Clone, Default)]
pub(crate) struct Blocks {
    /// The sensor of each block.
    pub(crate) sensor: Vec<u32>,
    /// Which block: its start divided by the block interval.
    pub(crate) block: Column<i64>,
    /// Rows in the block.
    pub(crate) rows: Column<i64>,
    /// The time of the first row, from the start of the block.
    pub(crate) first_offset_ns: Column<i64>,
    /// The time of the last row, from the start of the block.
    pub(crate) last_offset_ns: Column<i64>,
    /// The fields, in the order of the segment's fields.
    pub(crate) fields: Vec<FieldBlocks>,
}

/// What is known of one field in each block.
#[derive(Debug, Clone)]
pub(crate) struct FieldBlocks {
    /// What was read of it. Columns of all else are empty.
    pub(crate) read: Wanted,
    /// Values that are not null.
    pub(crate) count: Column<i64>,
    /// The time of the first value that is not null, from the first row of the block.
    pub(crate) first_delay_ns: Column<i64>,
    /// The time of the last value that is not null, back from the last row of the block.
    pub(crate) last_lead_ns: Column<i64>,
    /// Whether the block may be answered from its numbers; stored as a NaN in `m2`. Nothing for a field without
    /// numbers.
    is_exact: Column<bool>,
    /// Its numbers, if it has some.
    pub(crate) numbers: NumberBlocks,
}

/// The numeric metrics of a field, in the domain in which its sums are made.
#[derive(Debug, Clone)]
pub(crate) enum NumberBlocks {
    None,
    Float(Columns<f64>),
    Int(Columns<i64>),
    UInt(Columns<u64>),
}

impl Blocks {
    pub(crate) fn new(fields: &[FieldType]) -> Self {
        let empty = |ty: &FieldType| FieldBlocks {
            read: Wanted::ALL,
            count: Column::default(),
            first_delay_ns: Column::default(),
            last_lead_ns: Column::default(),
            is_exact: Column::default(),
            numbers: match number_kind(*ty) {
                None => NumberBlocks::None,
                Some(NumberKind::Float) => NumberBlocks::Float(Columns::default()),
                Some(NumberKind::Int) => NumberBlocks::Int(Columns::default()),
                Some(NumberKind::UInt) => NumberBlocks::UInt(Columns::default()),
            },
        };
        Self { fields: fields.iter().map(empty).collect(), ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.sensor.len()
    }

    /// The first and the last time of a block's rows.
    pub(crate) fn time(&self, block: usize, block_ns: i64) -> TimeRange {
        // The start may lie before the first nanosecond of time; where the rows lie is right all the same, as
        // all is counted modulo 2^64.
        let start = self.block[block].wrapping_mul(block_ns);
        let at = |offset: i64| start.wrapping_add(offset);
        TimeRange::new(at(self.first_offset_ns[block]), at(self.last_offset_ns[block]))
    }

    /// Adds the blocks of rows of one sensor. The rows are ordered by time and begin behind the
    /// last block that was added for this sensor.
    pub(crate) fn append_rows(
        &mut self,
        sensor: u32,
        times: &[i64],
        fields: &[Option<ArrayRef>],
        block_ns: i64,
    ) {
        let ranges = block_ranges(times, block_ns);
        for range in &ranges {
            let block = times[range.start].div_euclid(block_ns);
            let start_ns = i128::from(block) * i128::from(block_ns);
            self.sensor.push(sensor);
            self.block.push(block);
            self.rows.push(range.len() as i64);
            self.first_offset_ns.push((i128::from(times[range.start]) - start_ns) as i64);
            self.last_offset_ns.push((i128::from(times[range.end - 1]) - start_ns) as i64);
        }
        for (blocks, values) in self.fields.iter_mut().zip(fields) {
            match values {
                Some(values) => blocks.append_values(times, values, &ranges),
                None => blocks.append_nulls(ranges.len()),
            }
        }
    }

    /// Bytes of memory that a block takes at most.
    pub(super) fn bytes_per_block(&self) -> usize {
        let of_field = |field: &FieldBlocks| match field.numbers {
            NumberBlocks::None => 3 * size_of::<i64>(),
            _ => 10 * size_of::<i64>() + size_of::<bool>(),
        };
        let fields: usize = self.fields.iter().map(of_field).sum();
        size_of::<u32>() + 4 * size_of::<i64>() + fields
    }

    /// Adds some of other blocks, which are behind all of these.
    pub(crate) fn extend_from(&mut self, other: &Self, range: Range<usize>) {
        self.sensor.extend_from_slice(&other.sensor[range.clone()]);
        self.block.extend_from(&other.block, range.clone());
        self.rows.extend_from(&other.rows, range.clone());
        self.first_offset_ns.extend_from(&other.first_offset_ns, range.clone());
        self.last_offset_ns.extend_from(&other.last_offset_ns, range.clone());
        for (mine, theirs) in self.fields.iter_mut().zip(&other.fields) {
            let range = range.clone();
            mine.count.extend_from(&theirs.count, range.clone());
            mine.first_delay_ns.extend_from(&theirs.first_delay_ns, range.clone());
            mine.last_lead_ns.extend_from(&theirs.last_lead_ns, range.clone());
            match (&mut mine.numbers, &theirs.numbers) {
                (NumberBlocks::None, NumberBlocks::None) => continue,
                (NumberBlocks::Float(mine), NumberBlocks::Float(theirs)) => {
                    mine.extend_from(theirs, range.clone());
                }
                (NumberBlocks::Int(mine), NumberBlocks::Int(theirs)) => {
                    mine.extend_from(theirs, range.clone());
                }
                (NumberBlocks::UInt(mine), NumberBlocks::UInt(theirs)) => {
                    mine.extend_from(theirs, range.clone());
                }
                _ => debug_assert!(false, "blocks of different schemas are joined"),
            }
            mine.is_exact.extend_from(&theirs.is_exact, range);
        }
    }

    pub(crate) fn encode(self, profile: Profile) -> Result<Vec<u8>> {
        let mut frame = FrameWriter::new(profile);
        frame.put_i64s(self.sensor.into_iter().map(i64::from).collect())?;
        for column in [self.block, self.rows, self.first_offset_ns, self.last_offset_ns] {
            frame.put_i64s(column.into_vec())?;
        }
        for field in self.fields {
            frame.put_i64s(field.count.into_vec())?;
            frame.put_i64s(field.first_delay_ns.into_vec())?;
            frame.put_i64s(field.last_lead_ns.into_vec())?;
            let exact = &field.is_exact;
            match field.numbers {
                NumberBlocks::None => {}
                NumberBlocks::Float(columns) => {
                    columns
                        .encode(&mut frame, exact, |values| Box::new(Float64Array::from(values)))?;
                }
                NumberBlocks::Int(columns) => {
                    columns
                        .encode(&mut frame, exact, |values| Box::new(Int64Array::from(values)))?;
                }
                NumberBlocks::UInt(columns) => {
                    columns
                        .encode(&mut frame, exact, |values| Box::new(UInt64Array::from(values)))?;
                }
            }
        }
        frame.finish()
    }

    /// Reads what is wanted of each of the fields.
    pub(crate) fn decode(
        frame: &[u8],
        fields: &[FieldType],
        wanted: &[Wanted],
        block_ns: i64,
    ) -> Result<Self> {
        let mut frame = FrameReader::new(frame)?;
        let mut blocks = Self::new(fields);
        let sensor = |number: i64| {
            let sensor = u32::try_from(number);
            sensor.map_err(|_| Error::corrupt("a frame of metrics has an impossible sensor"))
        };
        blocks.sensor = frame.take_i64s()?.into_iter().map(sensor).collect::<Result<_>>()?;
        blocks.block = frame.take_i64_column()?;
        blocks.rows = frame.take_i64_column()?;
        blocks.first_offset_ns = frame.take_i64_column()?;
        blocks.last_offset_ns = frame.take_i64_column()?;
        for (field, wanted) in blocks.fields.iter_mut().zip(wanted) {
            field.decode(&mut frame, *wanted)?;
        }
        blocks.check_lengths()?;
        if !blocks.are_possible(block_ns) {
            return Err(Error::corrupt("the metrics of a block contradict each other"));
        }
        Ok(blocks)
    }

    /// Whether so much was read of all fields.
    pub(crate) fn have(&self, wanted: &[Wanted]) -> bool {
        self.fields.iter().zip(wanted).all(|(field, wanted)| field.read.or(*wanted) == field.read)
    }

    /// Bytes of memory.
    pub(crate) fn size_bytes(&self) -> usize {
        let times = [&self.block, &self.rows, &self.first_offset_ns, &self.last_offset_ns];
        let values: usize = times.iter().map(|column| column.kept()).sum();
        let fields: usize = self.fields.iter().map(FieldBlocks::size_bytes).sum();
        size_of::<Self>() + self.len() * size_of::<u32>() + values * size_of::<i64>() + fields
    }

    /// Whether rows, times and counts of each block can be those of one block.
    fn are_possible(&self, block_ns: i64) -> bool {
        let read = self.fields.iter().filter(|field| field.read.sums);
        let mut columns: Vec<&Column<i64>> =
            vec![&self.block, &self.rows, &self.first_offset_ns, &self.last_offset_ns];
        columns.extend(
            read.flat_map(|field| [&field.count, &field.first_delay_ns, &field.last_lead_ns]),
        );
        // Where all columns have one value, all blocks are alike.
        let differ = columns.iter().any(|column| column.kept() > 1);
        let blocks = if differ { self.len() } else { self.len().min(1) };
        (0..blocks).all(|block| self.is_possible(block, block_ns))
    }

    /// Whether rows, times and counts of a block can be those of one block, so that readers may
    /// calculate with them.
    fn is_possible(&self, block: usize, block_ns: i64) -> bool {
        let (first_ns, last_ns) = (self.first_offset_ns[block], self.last_offset_ns[block]);
        let start_ns = i128::from(self.block[block]) * i128::from(block_ns);
        let in_time = |offset_ns: i64| i64::try_from(start_ns + i128::from(offset_ns)).is_ok();
        let rows = self.rows[block];
        let is_field_possible = |field: &FieldBlocks| {
            (0..=rows).contains(&field.count[block])
                && field.first_delay_ns[block] >= 0
                && field.last_lead_ns[block] >= 0
                && field.first_delay_ns[block] <= last_ns - first_ns
                && field.last_lead_ns[block] <= last_ns - first_ns
        };
        (0..=last_ns).contains(&first_ns)
            && last_ns < block_ns
            && in_time(first_ns)
            && in_time(last_ns)
            && (1..=i64::from(u32::MAX)).contains(&rows)
            && self.fields.iter().filter(|field| field.read.sums).all(is_field_possible)
    }

    fn check_lengths(&self) -> Result<()> {
        let len = self.len();
        let mut same = [&self.block, &self.rows, &self.first_offset_ns, &self.last_offset_ns]
            .iter()
            .all(|column| column.len() == len);
        for field in self.fields.iter().filter(|field| field.read.sums) {
            same &= [&field.count, &field.first_delay_ns, &field.last_lead_ns]
                .iter()
                .all(|column| column.len() == len);
            same &= matches!(field.numbers, NumberBlocks::None) || field.is_exact.len() == len;
            same &= match &field.numbers {
                NumberBlocks::None => true,
                NumberBlocks::Float(columns) => columns.has_len(len, field.read),
                NumberBlocks::Int(columns) => columns.has_len(len, field.read),
                NumberBlocks::UInt(columns) => columns.has_len(len, field.read),
            };
        }
        if same { Ok(()) } else { Err(Error::corrupt("metric columns differ in length")) }
    }
}

/// The row ranges of each block; `times` is ordered.
fn block_ranges(times: &[i64], block_ns: i64) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    while start < times.len() {
        let block = i128::from(times[start].div_euclid(block_ns));
        let behind_ns = (block + 1) * i128::from(block_ns);
        let length = times[start..].partition_point(|&time| i128::from(time) < behind_ns);
        ranges.push(start..start + length);
        start += length;
    }
    ranges
}

impl FieldBlocks {
    /// What is known of one block. `delays_ns` are those of the first and the last value.
    pub(crate) fn of_one(
        count: i64,
        delays_ns: (i64, i64),
        is_exact: bool,
        numbers: NumberBlocks,
    ) -> Self {
        Self {
            read: Wanted::ALL,
            count: Column::constant(count, 1),
            first_delay_ns: Column::constant(delays_ns.0, 1),
            last_lead_ns: Column::constant(delays_ns.1, 1),
            is_exact: Column::constant(is_exact, 1),
            numbers,
        }
    }

    /// Reads what is wanted, and passes over the rest.
    fn decode(&mut self, frame: &mut FrameReader<'_>, wanted: Wanted) -> Result<()> {
        self.read = wanted;
        if !wanted.sums {
            let of_numbers = if matches!(self.numbers, NumberBlocks::None) { 0 } else { 6 };
            return frame.pass_over(3 + of_numbers);
        }
        self.count = frame.take_i64_column()?;
        self.first_delay_ns = frame.take_i64_column()?;
        self.last_lead_ns = frame.take_i64_column()?;
        self.is_exact = match &mut self.numbers {
            NumberBlocks::None => Column::default(),
            NumberBlocks::Float(columns) => columns.decode(frame, FieldType::F64, wanted, |a| {
                a.as_primitive::<Float64Type>().values().to_vec()
            })?,
            NumberBlocks::Int(columns) => columns.decode(frame, FieldType::I64, wanted, |a| {
                a.as_primitive::<Int64Type>().values().to_vec()
            })?,
            NumberBlocks::UInt(columns) => columns.decode(frame, FieldType::U64, wanted, |a| {
                a.as_primitive::<UInt64Type>().values().to_vec()
            })?,
        };
        Ok(())
    }

    fn size_bytes(&self) -> usize {
        let times = [&self.count, &self.first_delay_ns, &self.last_lead_ns];
        let values: usize = times.iter().map(|column| column.kept()).sum();
        let numbers = match &self.numbers {
            NumberBlocks::None => 0,
            NumberBlocks::Float(columns) => columns.kept(),
            NumberBlocks::Int(columns) => columns.kept(),
            NumberBlocks::UInt(columns) => columns.kept(),
        };
        size_of::<Self>() + (values + numbers) * size_of::<i64>() + self.is_exact.kept()
    }

    /// Whether a block may be answered from its metrics. Others hold NaN, infinities or sums too large for that.
    pub(crate) fn is_exact(&self, block: usize) -> bool {
        self.is_exact.is_empty() || self.is_exact[block]
    }

    /// Whether all blocks may be answered from their metrics.
    pub(crate) fn are_exact(&self) -> bool {
        self.is_exact.distinct().iter().all(|is_exact| *is_exact)
    }

    fn append_nulls(&mut self, blocks: usize) {
        let len = self.count.len() + blocks;
        self.count.push_times(0, blocks);
        self.first_delay_ns.push_times(0, blocks);
        self.last_lead_ns.push_times(0, blocks);
        match &mut self.numbers {
            NumberBlocks::None => return,
            NumberBlocks::Float(columns) => columns.resize(len),
            NumberBlocks::Int(columns) => columns.resize(len),
            NumberBlocks::UInt(columns) => columns.resize(len),
        }
        self.is_exact.push_times(true, blocks);
    }

    fn append_values(&mut self, times: &[i64], values: &ArrayRef, ranges: &[Range<usize>]) {
        for range in ranges {
            let (count, first, last) = match values.nulls() {
                None => (range.len(), range.start, range.end - 1),
                Some(nulls) => {
                    let valid = || range.clone().filter(|&row| nulls.is_valid(row));
                    let first = valid().next().unwrap_or(range.start);
                    let last = range.clone().rev().find(|&row| nulls.is_valid(row));
                    (valid().count(), first, last.unwrap_or(range.end - 1))
                }
            };
            self.count.push(count as i64);
            self.first_delay_ns.push(times[first] - times[range.start]);
            self.last_lead_ns.push(times[range.end - 1] - times[last]);
        }
        let exact = &mut self.is_exact;
        match &mut self.numbers {
            NumberBlocks::None => {}
            NumberBlocks::Float(columns) => {
                with_numbers!(values, Float, |slice| columns.append(slice, values, ranges, exact))
            }
            NumberBlocks::Int(columns) if *values.data_type() == FieldType::Timestamp.arrow() => {
                let times = values.as_primitive::<TimestampNanosecondType>();
                columns.append_ordered(times.values(), times.nulls(), ranges, exact);
            }
            NumberBlocks::Int(columns) => {
                with_numbers!(values, Int, |slice| columns.append(slice, values, ranges, exact))
            }
            NumberBlocks::UInt(columns) => {
                with_numbers!(values, UInt, |slice| columns.append(slice, values, ranges, exact))
            }
        }
    }
}
