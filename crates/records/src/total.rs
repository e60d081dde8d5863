//! What rows of a column come to: how many values, the least and the greatest, the sum.

use std::ops::Range;

use arrow_array::Array;
use tidefall_codec::Number;
use tidefall_types::FieldType;

use crate::ordinal::with_values;

/// A sum. Those of whole numbers are exact.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sum {
    /// Of what has none: texts, truth values, times.
    None,
    /// Of whole numbers; 2^64 of the largest have room.
    Whole(i128),
    /// Of floats, with what was lost by rounding (Knuth's `TwoSum`).
    Float {
        /// The sum ...
        sum: f64,
        /// ... and what it lacks.
        lost: f64,
    },
}

impl Sum {
    /// The sum of nothing, for values of a type.
    pub const fn of_type(ty: FieldType) -> Self {
        match ty {
            FieldType::Text | FieldType::Bool | FieldType::Timestamp => Self::None,
            FieldType::F32 | FieldType::F64 => Self::Float { sum: 0.0, lost: 0.0 },
            _ => Self::Whole(0),
        }
    }

    /// The sum as a float.
    pub fn to_f64(self) -> f64 {
        match self {
            Self::None => f64::NAN,
            Self::Whole(sum) => sum as f64,
            // Beyond what a float can hold, what was lost is no number.
            Self::Float { sum, lost } if sum.is_finite() && lost.is_finite() => sum + lost,
            Self::Float { sum, .. } => sum,
        }
    }

    fn add(&mut self, other: Self) {
        match (self, other) {
            (Self::Whole(sum), Self::Whole(more)) => *sum += more,
            (Self::Float { sum, lost }, Self::Float { sum: more, lost: more_lost }) => {
                add_float(sum, lost, more);
                *lost += more_lost;
            }
            (_, other) => debug_assert!(other == Self::None, "sums of two types"),
        }
    }
}

#[inline]
fn add_float(sum: &mut f64, lost: &mut f64, more: f64) {
    let next = *sum + more;
    let added = next - *sum;
    *lost += (*sum - (next - added)) + (more - added);
    *sum = next;
}

/// What some rows of a column come to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Total {
    /// How many have a value.
    pub count: u64,
    /// The ordinal of the least value; above the greatest where there is none.
    pub least: i64,
    /// The ordinal of the greatest.
    pub greatest: i64,
    /// The sum.
    pub sum: Sum,
}

impl Total {
    /// That of no row.
    pub const fn of_type(ty: FieldType) -> Self {
        Self { count: 0, least: i64::MAX, greatest: i64::MIN, sum: Sum::of_type(ty) }
    }

    /// Adds what other rows come to.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.least = self.least.min(other.least);
        self.greatest = self.greatest.max(other.greatest);
        self.sum.add(other.sum);
    }

    /// Adds some rows of a column that follow each other.
    ///
    /// # Panics
    /// When the column does not have them.
    pub fn add_rows(&mut self, column: &dyn Array, rows: Range<usize>) {
        let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
        let added = with_values!(column, |values| match nulls {
            None => self.add_values(values[rows.clone()].iter().copied()),
            Some(nulls) => {
                let valid = rows.clone().filter(|row| nulls.is_valid(*row));
                self.add_values(valid.map(|row| values[row]));
            }
        });
        if added.is_none() {
            let is_there = |row: &usize| nulls.is_none_or(|nulls| nulls.is_valid(*row));
            self.count += rows.filter(is_there).count() as u64;
        }
    }

    /// Adds some rows of a column.
    ///
    /// # Panics
    /// As [`Total::add_rows`].
    pub fn add_some(&mut self, column: &dyn Array, rows: &[u32]) {
        let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
        let is_there = |row: &&u32| nulls.is_none_or(|nulls| nulls.is_valid(**row as usize));
        let added = with_values!(column, |values| match nulls {
            None => self.add_values(rows.iter().map(|row| values[*row as usize])),
            Some(_) =>
                self.add_values(rows.iter().filter(is_there).map(|row| values[*row as usize])),
        });
        if added.is_none() {
            self.count += rows.iter().filter(is_there).count() as u64;
        }
    }

    fn add_values<T: Number>(&mut self, values: impl Iterator<Item = T>) {
        let (mut count, mut least, mut greatest) = (0, self.least, self.greatest);
        match &mut self.sum {
            Sum::None => values.for_each(|value| {
                count += 1;
                least = least.min(value.to_int());
                greatest = greatest.max(value.to_int());
            }),
            Sum::Whole(sum) => values.for_each(|value| {
                count += 1;
                least = least.min(value.to_int());
                greatest = greatest.max(value.to_int());
                *sum += whole(value);
            }),
            Sum::Float { sum, lost } => values.for_each(|value| {
                count += 1;
                least = least.min(value.to_int());
                greatest = greatest.max(value.to_int());
                add_float(sum, lost, value.to_f64());
            }),
        }
        self.count += count;
        (self.least, self.greatest) = (least, greatest);
    }
}

fn whole<T: Number>(value: T) -> i128 {
    match T::TYPE {
        FieldType::U64 => i128::from((value.to_int() ^ i64::MIN) as u64),
        _ => i128::from(value.to_int()),
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Float64Array, Int64Array, StringArray, UInt64Array};

    use super::*;

    fn total(ty: FieldType, column: &dyn Array, rows: Option<&[u32]>) -> Total {
        let mut total = Total::of_type(ty);
        match rows {
            None => total.add_rows(column, 0..column.len()),
            Some(rows) => total.add_some(column, rows),
        }
        total
    }

    #[test]
    fn sums_are_exact_where_they_can_be() {
        let ends = Int64Array::from(vec![Some(i64::MIN), None, Some(i64::MIN), Some(i64::MAX)]);
        let found = total(FieldType::I64, &ends, None);
        assert_eq!((found.count, found.least, found.greatest), (3, i64::MIN, i64::MAX));
        assert_eq!(found.sum, Sum::Whole(i128::from(i64::MIN) * 2 + i128::from(i64::MAX)));
        let large = UInt64Array::from(vec![u64::MAX, 1, u64::MAX]);
        let found = total(FieldType::U64, &large, Some(&[0, 2]));
        assert_eq!((found.count, found.sum), (2, Sum::Whole(2 * i128::from(u64::MAX))));
        let cancelling = Float64Array::from(vec![1e100, 1.0, -1e100, 2.0]);
        let found = total(FieldType::F64, &cancelling, None);
        assert_eq!(found.sum.to_f64(), 3.0);
        let mut twice = found;
        twice.add(&found);
        assert_eq!((twice.count, twice.sum.to_f64()), (8, 6.0));
    }

    #[test]
    fn what_is_no_number_stays_none() {
        let odd = Float64Array::from(vec![f64::INFINITY, 1.0]);
        let found = total(FieldType::F64, &odd, None);
        assert_eq!(found.sum.to_f64(), f64::INFINITY);
        assert_eq!(found.greatest, f64::INFINITY.to_int());
        let found = total(FieldType::F64, &Float64Array::from(vec![f64::MAX, f64::MAX]), None);
        assert_eq!(found.sum.to_f64(), f64::INFINITY);
        let found = total(FieldType::F64, &Float64Array::from(vec![f64::NAN, -1.0]), None);
        assert!(found.sum.to_f64().is_nan());
        assert_eq!((found.least, found.greatest), ((-1.0_f64).to_int(), f64::NAN.to_int()));
        let texts = StringArray::from(vec![Some("a"), None, Some("")]);
        let found = total(FieldType::Text, &texts, Some(&[0, 1]));
        assert_eq!(found, Total { count: 1, ..Total::of_type(FieldType::Text) });
    }
}
