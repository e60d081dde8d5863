//! What the rows of each leaf come to, column by column.

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, Float64Array};
use tidefall_ground::frames::{Column, FrameReader, FrameWriter};
use tidefall_types::{Error, FieldType, Result};

use crate::leaves::Leaves;
use crate::order::LEAF_ROWS;
use crate::total::{Sum, Total};

/// The totals of the leaves of a column.
#[derive(Debug, Clone)]
pub struct Metrics {
    counts: Column<i64>,
    /// Of what has an order alone.
    ends: Option<Ends>,
    sums: Sums,
}

#[derive(Debug, Clone, Default)]
struct Ends {
    least: Column<i64>,
    greatest: Column<i64>,
}

#[derive(Debug, Clone)]
enum Sums {
    None,
    /// Halves of 128 bits: the upper ones are mostly all alike.
    Whole(Column<i64>, Column<i64>),
    Float(Column<f64>),
}

const fn has_ends(ty: FieldType) -> bool {
    !matches!(ty, FieldType::Text | FieldType::Bool)
}

impl Metrics {
    /// Those of no leaf.
    fn empty(ty: FieldType) -> Self {
        Self {
            counts: Column::default(),
            ends: has_ends(ty).then(Ends::default),
            sums: match Sum::of_type(ty) {
                Sum::None => Sums::None,
                Sum::Whole(_) => Sums::Whole(Column::default(), Column::default()),
                Sum::Float { .. } => Sums::Float(Column::default()),
            },
        }
    }

    /// Those of the leaves of a column.
    pub fn of(ty: FieldType, column: &dyn Array) -> Self {
        let mut metrics = Self::empty(ty);
        for first in (0..column.len()).step_by(LEAF_ROWS) {
            let mut total = Total::of_type(ty);
            total.add_rows(column, first..column.len().min(first + LEAF_ROWS));
            metrics.push(&total);
        }
        metrics
    }

    fn push(&mut self, total: &Total) {
        self.counts.push(total.count as i64);
        if let Some(Ends { least, greatest }) = &mut self.ends {
            least.push(total.least);
            greatest.push(total.greatest);
        }
        match (&mut self.sums, total.sum) {
            (Sums::Whole(upper, lower), Sum::Whole(sum)) => {
                upper.push((sum >> 64) as i64);
                lower.push(sum as i64);
            }
            (Sums::Float(sums), sum) => sums.push(sum.to_f64()),
            _ => {}
        }
    }

    /// What a leaf comes to.
    pub fn total(&self, leaf: usize) -> Total {
        let (least, greatest) = match &self.ends {
            Some(Ends { least, greatest }) => (least[leaf], greatest[leaf]),
            None => (i64::MAX, i64::MIN),
        };
        let sum = match &self.sums {
            Sums::None => Sum::None,
            Sums::Whole(upper, lower) => {
                Sum::Whole((i128::from(upper[leaf]) << 64) | i128::from(lower[leaf] as u64))
            }
            Sums::Float(sums) => Sum::Float { sum: sums[leaf], lost: 0.0 },
        };
        Total { count: self.counts[leaf] as u64, least, greatest, sum }
    }

    /// Adds those of the leaves of other rows of the column behind its own.
    pub fn extend(&mut self, other: &Self) {
        let all = 0..other.counts.len();
        self.counts.extend_from(&other.counts, all.clone());
        if let (Some(ends), Some(of_other)) = (&mut self.ends, &other.ends) {
            ends.least.extend_from(&of_other.least, all.clone());
            ends.greatest.extend_from(&of_other.greatest, all.clone());
        }
        match (&mut self.sums, &other.sums) {
            (Sums::Whole(upper, lower), Sums::Whole(other_upper, other_lower)) => {
                upper.extend_from(other_upper, all.clone());
                lower.extend_from(other_lower, all);
            }
            (Sums::Float(sums), Sums::Float(of_other)) => sums.extend_from(of_other, all),
            _ => {}
        }
    }

    /// Bytes of memory.
    pub fn size_bytes(&self) -> usize {
        let ends = self.ends.as_ref().map_or(0, |ends| ends.least.kept() + ends.greatest.kept());
        let sums = match &self.sums {
            Sums::None => 0,
            Sums::Whole(upper, lower) => upper.kept() + lower.kept(),
            Sums::Float(sums) => sums.kept(),
        };
        (self.counts.kept() + ends + sums) * size_of::<i64>()
    }

    /// Puts them into a frame.
    ///
    /// # Errors
    /// `Limit` when they are too long.
    pub fn encode(&self, frame: &mut FrameWriter) -> Result<()> {
        frame.put_i64s(self.counts.iter().collect())?;
        if let Some(Ends { least, greatest }) = &self.ends {
            frame.put_i64s(least.iter().collect())?;
            frame.put_i64s(greatest.iter().collect())?;
        }
        match &self.sums {
            Sums::None => Ok(()),
            Sums::Whole(upper, lower) => {
                frame.put_i64s(upper.iter().collect())?;
                frame.put_i64s(lower.iter().collect())
            }
            Sums::Float(sums) => {
                frame.put_column(&Float64Array::from(sums.iter().collect::<Vec<_>>()))
            }
        }
    }

    /// Takes those of some leaves out of a frame.
    ///
    /// # Errors
    /// `Corrupt` when they are damaged, or are not those of so many leaves.
    pub fn decode(ty: FieldType, leaves: &Leaves, frame: &mut FrameReader<'_>) -> Result<Self> {
        let mut metrics = Self::empty(ty);
        metrics.counts = of_leaves(leaves, frame.take_i64_column()?)?;
        let too_many = |leaf: usize| metrics.counts[leaf] as u64 > leaves.leaf_rows(leaf) as u64;
        if (0..leaves.len()).any(too_many) {
            return Err(Error::corrupt("a leaf has more values than rows"));
        }
        if let Some(ends) = &mut metrics.ends {
            ends.least = of_leaves(leaves, frame.take_i64_column()?)?;
            ends.greatest = of_leaves(leaves, frame.take_i64_column()?)?;
        }
        match &mut metrics.sums {
            Sums::None => {}
            Sums::Whole(upper, lower) => {
                *upper = of_leaves(leaves, frame.take_i64_column()?)?;
                *lower = of_leaves(leaves, frame.take_i64_column()?)?;
            }
            Sums::Float(sums) => {
                let column = frame.take_column(FieldType::F64)?;
                if column.null_count() > 0 {
                    return Err(Error::corrupt("a sum of a leaf is missing"));
                }
                let values = column.as_primitive::<Float64Type>().values().to_vec();
                *sums = of_leaves(leaves, values.into())?;
            }
        }
        Ok(metrics)
    }
}

fn of_leaves<T: Copy + PartialEq>(leaves: &Leaves, column: Column<T>) -> Result<Column<T>> {
    match column.len() == leaves.len() {
        true => Ok(column),
        false => Err(Error::corrupt(format!(
            "metrics of {} leaves, where there are {}",
            column.len(),
            leaves.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, BooleanArray, Float32Array, Int64Array, StringArray, UInt64Array};
    use tidefall_codec::Profile;

    use super::*;

    #[test]
    fn metrics_come_back_from_frames() {
        let rows = 2 * LEAF_ROWS + 7;
        let columns: Vec<(FieldType, ArrayRef)> = vec![
            (
                FieldType::I64,
                Arc::new(Int64Array::from_iter(
                    (0..rows as i64).map(|row| (row % 3 > 0).then_some(row - 900)),
                )),
            ),
            (
                FieldType::U64,
                Arc::new(UInt64Array::from_iter_values((0..rows as u64).map(|row| u64::MAX - row))),
            ),
            (
                FieldType::F32,
                Arc::new(Float32Array::from_iter_values((0..rows).map(|row| row as f32 / 7.0))),
            ),
            (
                FieldType::Text,
                Arc::new(StringArray::from_iter(
                    (0..rows).map(|row| (row % 2 == 0).then_some("x")),
                )),
            ),
            (
                FieldType::Bool,
                Arc::new(BooleanArray::from_iter((0..rows).map(|row| Some(row % 5 == 0)))),
            ),
            (FieldType::F64, Arc::new(Float64Array::new_null(rows))),
        ];
        let leaves = Leaves::of(&[vec![0; rows]]);
        for (ty, column) in columns {
            let metrics = Metrics::of(ty, &*column);
            let mut frame = FrameWriter::new(Profile::Medium);
            metrics.encode(&mut frame).unwrap();
            let bytes = frame.finish().unwrap();
            let mut reader = FrameReader::new(&bytes).unwrap();
            let mut read = Metrics::decode(ty, &leaves, &mut reader).unwrap();
            assert_eq!(reader.parts_left(), 0);
            for leaf in 0..leaves.len() {
                let first = leaf * LEAF_ROWS;
                let mut expected = Total::of_type(ty);
                expected.add_rows(&*column, first..rows.min(first + LEAF_ROWS));
                let found = read.total(leaf);
                assert_eq!(
                    (found.count, found.least, found.greatest),
                    (expected.count, expected.least, expected.greatest)
                );
                let sums = (found.sum.to_f64(), expected.sum.to_f64());
                assert!(sums.0 == sums.1 || sums.0.is_nan() && sums.1.is_nan(), "{ty:?} {sums:?}");
            }
            read.extend(&metrics);
            assert_eq!(read.total(leaves.len() + 1).count, metrics.total(1).count);
            assert!(
                Metrics::decode(
                    ty,
                    &Leaves::of(&[vec![0; LEAF_ROWS]]),
                    &mut FrameReader::new(&bytes).unwrap()
                )
                .is_err()
            );
        }
    }
}
