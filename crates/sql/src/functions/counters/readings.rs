//! The readings of a counter, and by how much it has grown: computed as they come and go.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Add;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use datafusion::arrow::datatypes::{Float64Type, Int64Type, TimestampNanosecondType, UInt64Type};
use datafusion::common::ScalarValue;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;
use tidefall_types::OneForm;

/// What counters count.
pub(super) trait Count: ArrowPrimitiveType + fmt::Debug {
    /// Holds sums without losing any of the whole numbers.
    type Sum: Copy + Default + Add<Output = Self::Sum> + fmt::Debug + Send + Sync;

    /// By how much a counter has grown from one reading to the next; one that falls was reset.
    fn grown(before: Self::Native, now: Self::Native) -> Self::Sum;

    /// A sum as a number.
    fn number(sum: Self::Sum) -> f64;
}

macro_rules! whole_numbers {
    ($($ty:ty),*) => {$(
        impl Count for $ty {
            type Sum = i128;

            fn grown(before: Self::Native, now: Self::Native) -> i128 {
                match now < before {
                    true => i128::from(now),
                    false => i128::from(now) - i128::from(before),
                }
            }

            fn number(sum: i128) -> f64 {
                sum as f64
            }
        }
    )*};
}
whole_numbers!(Int64Type, UInt64Type);

impl Count for Float64Type {
    type Sum = f64;

    fn grown(before: f64, now: f64) -> f64 {
        if now < before { now } else { now - before }
    }

    fn number(sum: f64) -> f64 {
        sum
    }
}

/// The sum of what comes behind and leaves in front: nothing is subtracted, as that would leave rounding errors. The
/// older steps have running sums from the one that leaves last to the one that leaves next.
#[derive(Debug, Default)]
struct Queue<S> {
    older: Vec<S>,
    newer: VecDeque<S>,
    newer_sum: S,
}

impl<S: Copy + Default + Add<Output = S>> Queue<S> {
    fn push(&mut self, step: S) {
        self.newer.push_back(step);
        self.newer_sum = self.newer_sum + step;
    }

    fn pop(&mut self) {
        if self.older.is_empty() {
            let mut sum = S::default();
            self.older.extend(self.newer.drain(..).rev().map(|step| {
                sum = sum + step;
                sum
            }));
            self.newer_sum = S::default();
        }
        self.older.pop();
    }

    fn sum(&self) -> S {
        self.older.last().copied().unwrap_or_default() + self.newer_sum
    }

    fn clear(&mut self) {
        self.older.clear();
        self.newer.clear();
        self.newer_sum = S::default();
    }
}

/// In which order of time readings came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Forward,
    Backward,
    /// In none: they must be sorted.
    None,
}

/// The readings of a group, in the order in which they came.
#[derive(Debug)]
pub(super) struct Readings<T: Count> {
    per_second: bool,
    rows: VecDeque<(i64, T::Native)>,
    order: Order,
    /// By how much the counter has grown between them; nothing if they are in no order.
    steps: Queue<T::Sum>,
}

impl<T: Count> Readings<T> {
    pub(super) fn new(per_second: bool) -> Self {
        let steps =
            Queue { older: Vec::new(), newer: VecDeque::new(), newer_sum: Default::default() };
        Self { per_second, rows: VecDeque::new(), order: Order::Forward, steps }
    }

    fn push(&mut self, time: i64, value: T::Native) {
        if let Some((before, last)) = self.rows.back().copied() {
            self.order = match self.order {
                // Of several readings at one time the last stays the last.
                Order::Forward if time >= before => Order::Forward,
                Order::Forward | Order::Backward if time < before && self.is_backward() => {
                    Order::Backward
                }
                _ => Order::None,
            };
            match self.order {
                Order::Forward => self.steps.push(T::grown(last, value)),
                Order::Backward => self.steps.push(T::grown(value, last)),
                Order::None => self.steps.clear(),
            }
        }
        self.rows.push_back((time, value));
    }

    /// Whether one that is earlier than all others fits to them.
    fn is_backward(&self) -> bool {
        self.order == Order::Backward || self.rows.len() == 1
    }

    fn pop(&mut self) {
        self.rows.pop_front();
        match self.order {
            _ if self.rows.len() < 2 => {
                self.steps.clear();
                self.order = Order::Forward;
            }
            Order::None => {}
            Order::Forward | Order::Backward => self.steps.pop(),
        }
    }

    fn extend(&mut self, times: impl Iterator<Item = Option<i64>>, values: &ArrayRef) {
        for (time, value) in times.zip(values.as_primitive::<T>()) {
            if let (Some(time), Some(value)) = (time, value) {
                self.push(time, value);
            }
        }
    }

    /// The times of the first and the last reading, and by how much the counter has grown between them.
    fn grown(&self) -> Option<(i64, i64, T::Sum)> {
        let ((first, _), (last, _)) = (self.rows.front()?, self.rows.back()?);
        Some(match self.order {
            Order::Forward => (*first, *last, self.steps.sum()),
            Order::Backward => (*last, *first, self.steps.sum()),
            Order::None => {
                let mut rows: Vec<_> = self.rows.iter().copied().collect();
                rows.sort_by_key(|(time, _)| *time);
                let steps = rows.windows(2).map(|pair| T::grown(pair[0].1, pair[1].1));
                let grown = steps.fold(T::Sum::default(), |sum, step| sum + step);
                (rows.first()?.0, rows.last()?.0, grown)
            }
        })
    }
}

/// How many rows have both a value and its time.
fn known(columns: &[ArrayRef]) -> usize {
    let rows = 0..columns[0].len();
    rows.filter(|row| columns.iter().all(|column| column.is_valid(*row))).count()
}

impl<T: Count> Accumulator for Readings<T> {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let times = columns[1].as_primitive::<TimestampNanosecondType>();
        self.extend(times.iter(), &columns[0]);
        Ok(())
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        (0..known(columns)).for_each(|_| self.pop());
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (times, values) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        for group in (0..times.len()).filter(|group| times.is_valid(*group)) {
            let times = times.value(group);
            self.extend(times.as_primitive::<Int64Type>().iter(), &values.value(group));
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let (times, values): (Vec<i64>, Vec<T::Native>) = self.rows.iter().copied().unzip();
        let list = |values: ArrayRef| SingleRowListArrayBuilder::new(values).build_list_scalar();
        let times = PrimitiveArray::<Int64Type>::new(times.into(), None);
        let values = PrimitiveArray::<T>::new(values.into(), None);
        Ok(vec![list(Arc::new(times)), list(Arc::new(values))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let Some((first, last, grown)) = self.grown() else {
            return Ok(ScalarValue::Float64(None));
        };
        let seconds = (i128::from(last) - i128::from(first)) as f64 / 1e9;
        let grown = T::number(grown);
        Ok(ScalarValue::Float64(match self.per_second {
            _ if seconds <= 0.0 => None,
            true => Some((grown / seconds).one_form()),
            false => Some(grown.one_form()),
        }))
    }

    fn size(&self) -> usize {
        let steps = self.steps.older.capacity() + self.steps.newer.capacity();
        size_of_val(self)
            + self.rows.capacity() * size_of::<(i64, T::Native)>()
            + steps * size_of::<T::Sum>()
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// As it is defined, over all readings.
    fn naive(rows: &[(i64, i64)]) -> Option<f64> {
        let mut rows = rows.to_vec();
        rows.sort_by_key(|(time, _)| *time);
        let grown = rows.windows(2).map(|pair| match pair[1].1 < pair[0].1 {
            true => pair[1].1,
            false => pair[1].1 - pair[0].1,
        });
        (rows.first()?.0 < rows.last()?.0).then(|| grown.sum::<i64>() as f64)
    }

    #[test]
    fn readings_that_come_and_go_are_as_if_they_came_together() {
        let mut random = SmallRng::seed_from_u64(7);
        for order in 0..300 {
            let mut readings = Readings::<Int64Type>::new(false);
            let (mut there, mut time) = (Vec::new(), 0);
            for _ in 0..60 {
                if random.random_range(0..3_u8) > 0 {
                    time += match order % 3 {
                        0 => random.random_range(0..3),
                        1 => -random.random_range(0..3),
                        _ => random.random_range(-2..3),
                    };
                    let row = (time, random.random_range(0..9));
                    there.push(row);
                    readings.push(row.0, row.1);
                } else if !there.is_empty() {
                    there.remove(0);
                    readings.pop();
                }
                let found = readings.evaluate().unwrap();
                assert_eq!(found, ScalarValue::Float64(naive(&there)), "{there:?}");
            }
        }
    }

    #[test]
    fn whole_numbers_are_not_rounded_before_they_are_subtracted() {
        let mut readings = Readings::<Int64Type>::new(false);
        readings.push(0, (1 << 53) + 1);
        readings.push(1, (1 << 53) + 4);
        assert_eq!(readings.evaluate().unwrap(), ScalarValue::Float64(Some(3.0)));
        let mut readings = Readings::<UInt64Type>::new(false);
        readings.push(0, u64::MAX - 7);
        readings.push(1, u64::MAX);
        assert_eq!(readings.evaluate().unwrap(), ScalarValue::Float64(Some(7.0)));
    }
}
