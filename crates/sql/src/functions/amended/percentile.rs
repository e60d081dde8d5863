//! `percentile_cont` and `median` of floats.
//!
//! Of `n` values in order, the answer stands at the place `part * (n - 1)`, counted from 0; between two places it lies
//! on the line between their values. DataFusion cuts the way between the two to six digits. Here `part` is the decimal
//! that was written, so that places between whole numbers are exact: 0.99 of 0, 1000 ... 7000 is 6930.
//!
//! NaN is the greatest value. Between a number and NaN there is NaN, between a number and an infinity there is that
//! infinity, and between both infinities there is NaN.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt;
use std::mem::size_of_val;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, ListArray, PrimitiveArray,
};
use datafusion::arrow::buffer::{OffsetBuffer, ScalarBuffer};
use datafusion::arrow::datatypes::{DataType, Field, Float32Type, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::error::Result;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use datafusion::physical_expr::expressions::Literal;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::accumulate;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::nulls::filtered_null_mask;
use tidefall_types::{Error, OneForm};

use crate::error::to_datafusion;

/// Decimals of a part that count; more change nothing among as many rows as there can be.
const DECIMALS_MAX: usize = 24;

/// A part of 1, as a fraction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    over: u128,
    under: u128,
}

impl Part {
    /// Where the median stands.
    pub(super) const HALF: Self = Self { over: 1, under: 2 };

    /// The second argument of `percentile_cont`.
    pub(super) fn of(args: &AccumulatorArgs<'_>) -> Result<Self> {
        let literal = args.exprs.get(1).and_then(|expr| expr.downcast_ref::<Literal>());
        let part = match literal.map(Literal::value) {
            Some(ScalarValue::Float64(Some(part))) => Some(*part),
            Some(ScalarValue::Float32(Some(part))) => Some(f64::from(*part)),
            _ => None,
        };
        let Some(part) = part.filter(|part| (0.0..=1.0).contains(part)) else {
            return Err(to_datafusion(Error::invalid(
                "a percentile wants a part of 1 as a number from 0 to 1, such as 0.95",
            )));
        };
        let Self { over, under } = Self::of_decimal(part);
        let is_descending = args.order_bys.first().is_some_and(|order| order.options.descending);
        Ok(Self { over: if is_descending { under - over } else { over }, under })
    }

    /// The fraction of the shortest decimal that reads as `part`.
    fn of_decimal(part: f64) -> Self {
        let text = part.to_string();
        let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
        let digits = whole.bytes().chain(decimals.bytes().take(DECIMALS_MAX));
        let over = digits.fold(0, |over, digit| over * 10 + u128::from(digit - b'0'));
        Self { over, under: 10_u128.pow(decimals.len().min(DECIMALS_MAX) as u32) }
    }

    /// The value at this part of `values`, which come into another order.
    fn pick<N: Narrow>(self, values: &mut [N]) -> Option<N> {
        Some(match self.neighbours(values, N::order)? {
            (lower, None) => lower,
            (lower, Some((upper, way))) => N::narrow(way.between(lower.into(), upper.into())),
        })
    }

    /// The value at or below this part of `values`, which come into another order; where it is below, also the next one,
    /// and which part of the way to that lies between.
    pub(super) fn neighbours<N: Copy>(
        self,
        values: &mut [N],
        order: impl Fn(&N, &N) -> Ordering + Copy,
    ) -> Option<(N, Option<(N, Self)>)> {
        let last = values.len().checked_sub(1)?;
        let place = self.over * last as u128;
        let (at, rest) = ((place / self.under) as usize, place % self.under);
        let (_, lower, above) = values.select_nth_unstable_by(at, order);
        let lower = *lower;
        if rest == 0 {
            return Some((lower, None));
        }
        // What lies above one place is not in order.
        let upper = above.iter().copied().min_by(order)?;
        let way = Self { over: rest, under: self.under }.in_lowest_terms();
        Some((lower, Some((upper, way))))
    }

    /// This part of a whole number, cut off.
    pub(super) fn of_whole(self, whole: i128) -> i128 {
        let parts = (i128::try_from(self.over), i128::try_from(self.under));
        let (Ok(over), Ok(under)) = parts else { return whole };
        match whole.checked_mul(over) {
            Some(product) => product / under,
            // Of more digits than there are, as many as floats have.
            None => (whole as f64 * (over as f64 / under as f64)) as i128,
        }
    }

    fn in_lowest_terms(self) -> Self {
        let (mut divisor, mut rest) = (self.under, self.over);
        while rest > 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        Self { over: self.over / divisor, under: self.under / divisor }
    }

    /// The value on the way from one to another.
    fn between(self, lower: f64, upper: f64) -> f64 {
        let (over, under) = (self.over as f64, self.under as f64);
        let distance = upper - lower;
        if lower == upper {
            return lower;
        }
        let found = match distance * over {
            product if product.is_finite() => lower + product / under,
            // Too far from each other for a difference, or for its product.
            _ => lower * (1.0 - over / under) + upper * (over / under),
        };
        found.one_form()
    }
}

/// Floats that percentiles are taken of.
trait Narrow: OneForm + Into<f64> + Default + fmt::Debug + Send + Sync + 'static {
    fn narrow(value: f64) -> Self;
    /// NaN is the greatest.
    fn order(left: &Self, right: &Self) -> Ordering;
}

macro_rules! narrow {
    ($($ty:ty),*) => {$(
        impl Narrow for $ty {
            fn narrow(value: f64) -> Self {
                value as Self
            }

            fn order(left: &Self, right: &Self) -> Ordering {
                left.total_cmp(right)
            }
        }
    )*};
}
narrow!(f32, f64);

/// The rows that an accumulator sees, and whether each value counts once only.
#[derive(Debug, Clone, Copy)]
pub(super) enum Frame {
    /// Rows only come.
    Grows(bool),
    /// Rows leave in the order in which they came.
    Slides(bool),
}

/// An accumulator of one group of values of a float type.
pub(super) fn of_one(part: Part, data_type: &DataType, frame: Frame) -> Box<dyn Accumulator> {
    match data_type {
        DataType::Float32 => Box::new(Values::<Float32Type>::new(part, frame)),
        _ => Box::new(Values::<Float64Type>::new(part, frame)),
    }
}

/// An accumulator of many groups of values of a float type.
pub(super) fn of_groups(part: Part, data_type: &DataType) -> Box<dyn GroupsAccumulator> {
    match data_type {
        DataType::Float32 => Box::new(Groups::<Float32Type> { part, values: Vec::new() }),
        _ => Box::new(Groups::<Float64Type> { part, values: Vec::new() }),
    }
}

/// The values of one group, or in one window.
#[derive(Debug)]
struct Values<T: ArrowPrimitiveType> {
    part: Part,
    frame: Frame,
    values: VecDeque<T::Native>,
}

impl<T: ArrowPrimitiveType> Values<T> {
    const fn new(part: Part, frame: Frame) -> Self {
        Self { part, frame, values: VecDeque::new() }
    }
}

impl<T: ArrowPrimitiveType> Values<T>
where
    T::Native: Narrow,
{
    fn pick_distinct(&self) -> Option<T::Native> {
        let mut values: Vec<T::Native> = self.values.iter().copied().collect();
        values.sort_unstable_by(Narrow::order);
        values.dedup_by(|left, right| Narrow::order(left, right).is_eq());
        self.part.pick(&mut values)
    }
}

impl<T: ArrowPrimitiveType + fmt::Debug> Accumulator for Values<T>
where
    T::Native: Narrow,
{
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.values.extend(columns[0].as_primitive::<T>().iter().flatten());
        Ok(())
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let left = columns[0].len() - columns[0].logical_null_count();
        self.values.drain(..left.min(self.values.len()));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        matches!(self.frame, Frame::Slides(_))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let found = match self.frame {
            Frame::Grows(true) | Frame::Slides(true) => self.pick_distinct(),
            // Rows must stay in the order in which they came.
            Frame::Slides(false) => self.part.pick(self.values.clone().make_contiguous()),
            Frame::Grows(false) => self.part.pick(self.values.make_contiguous()),
        };
        ScalarValue::new_primitive::<T>(found, &T::DATA_TYPE)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: Vec<T::Native> = std::mem::take(&mut self.values).into();
        let values = PrimitiveArray::<T>::new(values.into(), None);
        Ok(vec![SingleRowListArrayBuilder::new(Arc::new(values)).build_list_scalar()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for values in states[0].as_list::<i32>().iter().flatten() {
            self.update_batch(&[values])?;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<T::Native>()
    }
}

/// The values of many groups.
#[derive(Debug)]
struct Groups<T: ArrowPrimitiveType> {
    part: Part,
    values: Vec<Vec<T::Native>>,
}

fn list_of<T: ArrowPrimitiveType>() -> Arc<Field> {
    Arc::new(Field::new_list_field(T::DATA_TYPE, true))
}

impl<T: ArrowPrimitiveType + Send> GroupsAccumulator for Groups<T>
where
    T::Native: Narrow,
{
    fn update_batch(
        &mut self,
        columns: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.values.resize_with(group_count, Vec::new);
        let values = columns[0].as_primitive::<T>();
        accumulate(groups, values, filter, |group, value| self.values[group].push(value));
        Ok(())
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.values.resize_with(group_count, Vec::new);
        for (group, values) in groups.iter().zip(states[0].as_list::<i32>().iter()) {
            if let Some(values) = values {
                self.values[*group].extend_from_slice(values.as_primitive::<T>().values());
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let mut values = emit_to.take_needed(&mut self.values);
        let found = values.iter_mut().map(|values| self.part.pick(values));
        Ok(Arc::new(found.collect::<PrimitiveArray<T>>()))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let values = emit_to.take_needed(&mut self.values);
        let offsets = OffsetBuffer::from_lengths(values.iter().map(Vec::len));
        let values: Vec<T::Native> = values.into_iter().flatten().collect();
        let values = Arc::new(PrimitiveArray::<T>::new(values.into(), None));
        Ok(vec![Arc::new(ListArray::try_new(list_of::<T>(), offsets, values, None)?)])
    }

    fn convert_to_state(
        &self,
        columns: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = columns[0].as_primitive::<T>();
        let nulls = filtered_null_mask(filter, values);
        let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(1, values.len()));
        let buffer: ScalarBuffer<T::Native> = values.values().clone();
        let values = Arc::new(PrimitiveArray::<T>::new(buffer, None));
        Ok(vec![Arc::new(ListArray::try_new(list_of::<T>(), offsets, values, nulls)?)])
    }

    fn size(&self) -> usize {
        let held: usize = self.values.iter().map(Vec::capacity).sum();
        size_of_val(self)
            + held * size_of::<T::Native>()
            + self.values.capacity() * size_of::<Vec<T::Native>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(part: f64, values: &[f64]) -> Option<f64> {
        Part::of_decimal(part).pick(&mut values.to_vec())
    }

    #[test]
    fn places_between_whole_numbers_are_exact() {
        let thousands: Vec<f64> = (0..8).map(|n| f64::from(n) * 1000.0).collect();
        for (part, found) in [
            (0.99, 6930.0),
            (0.0, 0.0),
            (1.0, 7000.0),
            (0.5, 3500.0),
            (0.1, 700.0),
            (0.7, 4900.0),
            (0.123, 861.0),
        ] {
            assert_eq!(pick(part, &thousands), Some(found), "{part}");
        }
        assert_eq!(pick(0.3, &[1.0]), Some(1.0));
        assert_eq!(pick(0.3, &[]), None);
    }

    #[test]
    fn infinities_and_nan_have_their_place() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        assert_eq!(pick(0.5, &[-inf, 5.0]), Some(-inf));
        assert_eq!(pick(0.5, &[inf, 5.0]), Some(inf));
        assert_eq!(pick(0.5, &[inf, inf]), Some(inf));
        assert_eq!(pick(0.0, &[-inf, inf]), Some(-inf));
        assert!(pick(0.5, &[-inf, inf]).is_some_and(f64::is_nan));
        assert_eq!(pick(0.5, &[nan, 1.0, 2.0]), Some(2.0));
        assert!(pick(0.75, &[nan, 1.0, 2.0]).is_some_and(|v| v.is_nan() && v.is_sign_positive()));
        assert_eq!(pick(0.5, &[f64::MIN, f64::MAX]), Some(0.0));
        assert_eq!(pick(0.5, &[1.5e308, 1.7e308]), Some(1.6e308));
    }
}
