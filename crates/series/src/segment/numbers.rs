//! The three domains in which numbers are summed: floats, integers and unsigned 64-bit integers.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use tidefall_ground::frames::Column;
use tidefall_ground::frames::{FrameReader, FrameWriter};
use tidefall_types::{FieldType, Result};

use super::wanted::Wanted;

/// Integers up to here are exact as `f64`.
pub(super) const EXACT_SUM_MAX: f64 = (1_u64 << 53) as f64;

/// The domain of a field's sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberKind {
    Float,
    Int,
    UInt,
}

/// The domain of a field; none for what is no number.
pub(crate) const fn number_kind(ty: FieldType) -> Option<NumberKind> {
    match ty {
        FieldType::F32 | FieldType::F64 => Some(NumberKind::Float),
        FieldType::U64 => Some(NumberKind::UInt),
        FieldType::Bool | FieldType::Text => None,
        // Timestamps have no sum, but all else.
        _ => Some(NumberKind::Int),
    }
}

/// Calls a closure with the native slice of a numeric array of the given domain.
macro_rules! with_numbers {
    ($array:expr, Float, |$slice:ident| $body:expr) => {
        with_numbers!(@ $array, $slice, $body, Float64 => Float64Type, Float32 => Float32Type)
    };
    ($array:expr, Int, |$slice:ident| $body:expr) => {
        // Timestamps are integers, too.
        if let arrow_schema::DataType::Timestamp(..) = $array.data_type() {
            let $slice: &[_] = arrow_array::cast::AsArray::as_primitive::<
                arrow_array::types::TimestampNanosecondType,
            >($array)
            .values();
            $body
        } else {
            with_numbers!(@ $array, $slice, $body, Int64 => Int64Type, Int32 => Int32Type,
                Int16 => Int16Type, Int8 => Int8Type, UInt32 => UInt32Type,
                UInt16 => UInt16Type, UInt8 => UInt8Type)
        }
    };
    ($array:expr, UInt, |$slice:ident| $body:expr) => {
        with_numbers!(@ $array, $slice, $body, UInt64 => UInt64Type)
    };
    (@ $array:expr, $slice:ident, $body:expr, $($data:ident => $arrow:ident),*) => {
        match $array.data_type() {
            $(arrow_schema::DataType::$data => {
                let $slice: &[_] = arrow_array::cast::AsArray::as_primitive::<
                    arrow_array::types::$arrow,
                >($array).values();
                $body
            })*
            other => unreachable!("a numeric field holds {other}"),
        }
    };
}
pub(crate) use with_numbers;

/// A number of one of the domains.
pub(crate) trait Number: Copy + Default + PartialOrd {
    /// Whether sums are rounded.
    const IS_FLOAT: bool;
    fn to_f64(self) -> f64;
    fn plus(self, other: Self) -> Self;
    /// As [`Number::plus`]; what is lost by rounding is added to `lost`.
    fn plus_exactly(self, other: Self, lost: &mut f64) -> Self;
    /// A sum as a float: of integers, whose sums wrap around, that which is next to what the floats of the same numbers come
    /// to. Those are right to within 2^63 for ten thousand million numbers as large as there are.
    fn unwrapped(self, sum_f64: f64) -> f64;
    /// With a float added, which only floats are.
    fn plus_float(self, other: f64) -> Self;
    /// The order of numbers, with NaN behind all others as in SQL.
    fn is_below(self, other: Self) -> bool;
    /// The sum as it shall be stored: floats are rounded to a shorter decimal beside them, if there is one, because short
    /// decimals pack well and are no less right.
    fn settle_sum(self) -> Self;
    /// Whether sums of `count` numbers up to `magnitude` are exact enough to answer from.
    fn is_exact(count: usize, magnitude: f64) -> bool;
}

impl Number for f64 {
    const IS_FLOAT: bool = true;

    fn to_f64(self) -> f64 {
        self
    }

    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn unwrapped(self, _sum_f64: f64) -> f64 {
        self
    }

    #[inline]
    fn plus_float(self, other: f64) -> Self {
        self + other
    }

    /// Knuth's `TwoSum`: without branches, so that the lanes of [`Totals`] stay side by side.
    #[inline]
    fn plus_exactly(self, other: Self, lost: &mut f64) -> Self {
        let sum = self + other;
        let added = sum - self;
        *lost += (self - (sum - added)) + (other - added);
        sum
    }

    fn is_below(self, other: Self) -> bool {
        self < other || (other.is_nan() && !self.is_nan())
    }

    fn settle_sum(self) -> Self {
        shortest_decimal(self, self.abs() * SUM_PRECISION)
    }

    fn is_exact(_count: usize, magnitude: f64) -> bool {
        magnitude.is_finite()
    }
}

/// The decimal with the fewest digits within `error` of a value; the value itself where that takes
/// many.
fn shortest_decimal(value: f64, error: f64) -> f64 {
    for scale in POWERS_OF_TEN {
        let scaled = (value * scale).round();
        if scaled.abs() >= EXACT_SUM_MAX {
            break;
        }
        let short = scaled / scale;
        if (short - value).abs() <= error {
            return short;
        }
    }
    value
}

/// The share of itself by which a sum may be rounded, two to four times the distance to the next float. Sums are right up to
/// half of that, and the decimals that were added were rounded, too, when they became floats.
const SUM_PRECISION: f64 = 2.0 * f64::EPSILON;

/// The share of itself by which a sum of squared differences may be rounded: deviations keep 12
/// digits and take five bytes instead of eight.
const M2_PRECISION: f64 = 1e-12;

const POWERS_OF_TEN: [f64; 7] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6];

/// A sum of integers of which 64 bits are known, whatever wrapped around, and to within 2^63 how much it is.
pub fn whole_sum(wrapped: i64, about: f64) -> i128 {
    let near = about as i128;
    near + i128::from(wrapped.wrapping_sub(near as i64))
}

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            const IS_FLOAT: bool = false;

            fn to_f64(self) -> f64 {
                self as f64
            }

            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn unwrapped(self, sum_f64: f64) -> f64 {
                whole_sum(self as i64, sum_f64) as f64
            }

            fn plus_float(self, _other: f64) -> Self {
                self
            }

            fn plus_exactly(self, other: Self, _lost: &mut f64) -> Self {
                self.plus(other)
            }

            fn is_below(self, other: Self) -> bool {
                self < other
            }

            fn settle_sum(self) -> Self {
                self
            }

            fn is_exact(count: usize, magnitude: f64) -> bool {
                magnitude * count as f64 <= EXACT_SUM_MAX
            }
        }
    )*};
}
integers!(i64, u64);

/// Running totals side by side, so that an addition need not wait for the one before it.
const LANES: usize = 8;

/// What some numbers come to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Totals<T> {
    pub(crate) min: T,
    pub(crate) max: T,
    /// Of floats the float next to what they come to, or one beside that, however much of it cancels out.
    pub(crate) sum: T,
    pub(crate) sum_f64: f64,
    /// What the additions have lost by rounding, until it is added to the sum (Kahan's sum in the form of Ogita, Rump and
    /// Oishi, 2005).
    lost: f64,
    /// The sum of the squared differences from the mean.
    pub(crate) m2: f64,
}

impl<T: Number> Totals<T> {
    /// The totals of `values`, of which there must be one.
    pub(crate) fn of<N: Copy + Into<T>>(values: &[N]) -> Self {
        let mut totals = Self::without_deviations(values);
        let mean = totals.sum_f64 / values.len() as f64;
        totals.m2 = sum_in_lanes(values, |value: T| {
            let distance = value.to_f64() - mean;
            distance * distance
        });
        totals
    }

    /// The same with an `m2` of 0.
    #[inline]
    pub(crate) fn without_deviations<N: Copy + Into<T>>(values: &[N]) -> Self {
        // To lay the lanes together takes longer than to go through so few values one by one.
        let mut totals =
            if values.len() < 2 * LANES { Self::of_few(values) } else { Self::of_many(values) };
        totals.add_lost();
        if totals.sum_f64.is_nan() {
            // Comparisons pass over NaN, which has its own place in the order.
            let first: T = values[0].into();
            (totals.min, totals.max) = (first, first);
            for value in values.iter().map(|value| (*value).into()) {
                totals.min = if value.is_below(totals.min) { value } else { totals.min };
                totals.max = if totals.max.is_below(value) { value } else { totals.max };
            }
        }
        totals
    }

    #[inline]
    fn of_few<N: Copy + Into<T>>(values: &[N]) -> Self {
        let first: T = values[0].into();
        let mut totals = Self::none(first);
        for value in values {
            totals.take((*value).into());
        }
        totals
    }

    fn of_many<N: Copy + Into<T>>(values: &[N]) -> Self {
        let first: T = values[0].into();
        let mut lanes = [Self::none(first); LANES];
        let (groups, rest) = values.as_chunks::<LANES>();
        for group in groups {
            lanes.iter_mut().zip(group).for_each(|(lane, value)| lane.take((*value).into()));
        }
        lanes.iter_mut().zip(rest).for_each(|(lane, value)| lane.take((*value).into()));
        let [mut all, others @ ..] = lanes;
        for lane in others {
            all.min = if lane.min < all.min { lane.min } else { all.min };
            all.max = if lane.max > all.max { lane.max } else { all.max };
            all.sum = all.sum.plus_exactly(lane.sum, &mut all.lost);
            all.sum_f64 += lane.sum_f64;
            all.lost += lane.lost;
        }
        all
    }

    #[inline]
    fn none(first: T) -> Self {
        Self { min: first, max: first, sum: T::default(), sum_f64: 0.0, lost: 0.0, m2: 0.0 }
    }

    /// Adds what was lost by rounding; nothing is known of that where a sum is not finite.
    #[inline]
    fn add_lost(&mut self) {
        if T::IS_FLOAT {
            let lost = if self.lost.is_finite() { self.lost } else { 0.0 };
            self.sum = self.sum.plus_float(lost);
            self.sum_f64 = self.sum.to_f64();
        }
    }

    #[inline]
    fn take(&mut self, value: T) {
        self.min = if value < self.min { value } else { self.min };
        self.max = if value > self.max { value } else { self.max };
        self.sum = self.sum.plus_exactly(value, &mut self.lost);
        if !T::IS_FLOAT {
            self.sum_f64 += value.to_f64();
        }
    }

    /// How far the values are from 0 at most.
    fn magnitude(&self) -> f64 {
        self.min.to_f64().abs().max(self.max.to_f64().abs())
    }

    /// Whether the sums of these `count` numbers are exact enough to answer from.
    pub(crate) fn is_exact(&self, count: usize) -> bool {
        // A NaN among the floats makes the mean and with it m2 NaN; an infinity does, too.
        T::is_exact(count, self.magnitude()) && self.m2.is_finite()
    }
}

fn sum_in_lanes<T, N: Copy + Into<T>>(values: &[N], term: impl Fn(T) -> f64) -> f64 {
    if values.len() < 2 * LANES {
        return values.iter().map(|value| term((*value).into())).sum();
    }
    let mut lanes = [0.0; LANES];
    let (groups, rest) = values.as_chunks::<LANES>();
    for group in groups {
        lanes.iter_mut().zip(group).for_each(|(lane, value)| *lane += term((*value).into()));
    }
    lanes.iter_mut().zip(rest).for_each(|(lane, value)| *lane += term((*value).into()));
    lanes.iter().sum()
}

/// Values in another order.
pub(crate) fn reorder<T: Copy>(values: &[T], order: &[usize]) -> Vec<T> {
    order.iter().map(|&place| values[place]).collect()
}

/// One value a block; zero where the count is 0.
#[derive(Debug, Clone, Default)]
pub(crate) struct Columns<T> {
    pub(crate) min: Vec<T>,
    pub(crate) max: Vec<T>,
    pub(crate) sum: Vec<T>,
    pub(crate) first: Vec<T>,
    pub(crate) last: Vec<T>,
    /// The sum as a float, where it does not follow from `sum`; else nothing. See [`Columns::sum_f64_at`].
    pub(crate) sum_f64: Vec<f64>,
    /// The sum of the squared differences from the mean.
    pub(crate) m2: Vec<f64>,
}

impl<T: Number> Columns<T> {
    pub(super) fn append<N: Copy + Into<T>>(
        &mut self,
        slice: &[N],
        array: &ArrayRef,
        ranges: &[Range<usize>],
        exact: &mut Column<bool>,
    ) {
        let mut valid: Vec<N> = Vec::new();
        for range in ranges {
            let values = match array.nulls() {
                None => &slice[range.clone()],
                Some(nulls) => {
                    valid.clear();
                    let rows = range.clone().filter(|&row| nulls.is_valid(row));
                    valid.extend(rows.map(|row| slice[row]));
                    &valid[..]
                }
            };
            exact.push(self.push(values));
        }
    }

    /// Adds a block and returns whether its metrics are exact.
    fn push<N: Copy + Into<T>>(&mut self, values: &[N]) -> bool {
        let (Some(&first), Some(&last)) = (values.first(), values.last()) else {
            self.resize(self.min.len() + 1);
            return true;
        };
        let totals = Totals::of(values);
        let exact = totals.is_exact(values.len());
        self.min.push(totals.min);
        self.max.push(totals.max);
        let sum = totals.sum;
        let sum = if exact { sum.settle_sum() } else { sum };
        self.sum.push(sum);
        self.sum_f64.push(if exact { sum.to_f64() } else { totals.sum_f64 });
        self.first.push(first.into());
        self.last.push(last.into());
        let m2 = totals.m2;
        self.m2.push(if exact { shortest_decimal(m2, m2 * M2_PRECISION) } else { m2 });
        exact
    }

    /// Adds a block of each range of values that have an order but no sum: of none of them is it too large.
    pub(super) fn append_ordered(
        &mut self,
        slice: &[T],
        nulls: Option<&NullBuffer>,
        ranges: &[Range<usize>],
        exact: &mut Column<bool>,
    ) {
        for range in ranges {
            let is_valid = |row: &usize| nulls.is_none_or(|nulls| nulls.is_valid(*row));
            let mut values = range.clone().filter(is_valid).map(|row| slice[row]);
            let Some(first) = values.next() else {
                self.resize(self.min.len() + 1);
                exact.push(true);
                continue;
            };
            let (mut min, mut max, mut last) = (first, first, first);
            for value in values {
                min = if value.is_below(min) { value } else { min };
                max = if max.is_below(value) { value } else { max };
                last = value;
            }
            self.min.push(min);
            self.max.push(max);
            self.sum.push(T::default());
            self.sum_f64.push(0.0);
            self.first.push(first);
            self.last.push(last);
            self.m2.push(0.0);
            exact.push(true);
        }
    }

    pub(crate) fn reserve(&mut self, more: usize) {
        self.numbers().into_iter().for_each(|column| column.reserve(more));
        self.sum_f64.reserve(more);
        self.m2.reserve(more);
    }

    pub(crate) fn resize(&mut self, len: usize) {
        self.numbers().into_iter().for_each(|column| column.resize(len, T::default()));
        self.sum_f64.resize(len, 0.0);
        self.m2.resize(len, 0.0);
    }

    /// Appends some entries of others.
    pub(crate) fn extend_from(&mut self, other: &Self, range: Range<usize>) {
        self.min.extend_from_slice(&other.min[range.clone()]);
        self.max.extend_from_slice(&other.max[range.clone()]);
        self.sum.extend_from_slice(&other.sum[range.clone()]);
        self.first.extend_from_slice(&other.first[range.clone()]);
        self.last.extend_from_slice(&other.last[range.clone()]);
        self.sum_f64.extend(range.clone().map(|entry| other.sum_f64_at(entry)));
        self.m2.extend_from_slice(&other.m2[range]);
    }

    /// The entries in another order.
    pub(crate) fn reordered(&self, order: &[usize]) -> Self {
        Self {
            min: reorder(&self.min, order),
            max: reorder(&self.max, order),
            sum: reorder(&self.sum, order),
            first: reorder(&self.first, order),
            last: reorder(&self.last, order),
            sum_f64: reorder(&self.sum_f64, order),
            m2: reorder(&self.m2, order),
        }
    }

    /// The columns that are stored as numbers of the field's domain.
    fn numbers(&mut self) -> [&mut Vec<T>; 5] {
        [&mut self.min, &mut self.max, &mut self.sum, &mut self.first, &mut self.last]
    }

    /// The sum of an entry as a float.
    pub(crate) fn sum_f64_at(&self, entry: usize) -> f64 {
        self.sum_f64.get(entry).copied().unwrap_or_else(|| self.sum[entry].to_f64())
    }

    /// Whether the columns that were read have so many entries.
    pub(super) fn has_len(&self, len: usize, read: Wanted) -> bool {
        let is_whole = |column: &Vec<T>, is_read: bool| !is_read || column.len() == len;
        [&self.min, &self.max].iter().all(|column| is_whole(column, read.extremes))
            && [&self.first, &self.last].iter().all(|column| is_whole(column, read.ends))
            && is_whole(&self.sum, read.sums)
            && (!read.deviations || self.m2.len() == len)
    }

    /// How many numbers are kept.
    pub(super) fn kept(&self) -> usize {
        let numbers = [&self.min, &self.max, &self.sum, &self.first, &self.last];
        let numbers: usize = numbers.iter().map(|column| column.len()).sum();
        numbers + self.sum_f64.len() + self.m2.len()
    }

    pub(super) fn encode(
        self,
        frame: &mut FrameWriter,
        exact: &Column<bool>,
        to_array: impl Fn(Vec<T>) -> Box<dyn Array>,
    ) -> Result<()> {
        for column in [self.min, self.max, self.sum, self.first, self.last] {
            frame.put_column(&*to_array(column))?;
        }
        let m2 = self.m2.iter().zip(exact.iter());
        let m2: Vec<f64> = m2.map(|(m2, exact)| if exact { *m2 } else { f64::NAN }).collect();
        frame.put_column(&arrow_array::Float64Array::from(m2))
    }

    /// Reads the columns that are wanted and returns which of the blocks are exact.
    pub(super) fn decode(
        &mut self,
        frame: &mut FrameReader<'_>,
        ty: FieldType,
        wanted: Wanted,
        from_array: impl Fn(&ArrayRef) -> Vec<T>,
    ) -> Result<Column<bool>> {
        let Wanted { sums, extremes, ends, deviations } = wanted;
        let columns = self.numbers().into_iter().zip([extremes, extremes, sums, ends, ends]);
        for (column, is_wanted) in columns {
            if is_wanted {
                *column = from_array(&frame.take_column(ty)?);
            } else {
                frame.pass_over(1)?;
            }
        }
        let m2 = frame.take_column(FieldType::F64)?;
        let m2 = m2.as_primitive::<Float64Type>().values();
        if deviations {
            self.m2 = m2.to_vec();
        }
        Ok(match m2.iter().any(|m2| m2.is_nan()) {
            false => Column::constant(true, m2.len()),
            true => m2.iter().map(|m2| !m2.is_nan()).collect::<Vec<bool>>().into(),
        })
    }
}

#[cfg(test)]
mod tests;
