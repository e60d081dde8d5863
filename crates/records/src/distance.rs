//! How far records are from a point: the rows of a cell, and at least those of a leaf, so that who looks for the nearest begins with the nearest leaves and
//! ends where all others are farther away.

use arrow_array::{Array, ArrayRef};
use tidefall_codec::Number;
use tidefall_types::FieldType;

use crate::leaves::Leaves;
use crate::ordinal::{position, with_values};
use crate::packed::Layout;

/// A point, and how far apart things are.
#[derive(Debug, Clone, PartialEq)]
pub struct Center {
    /// Where the point is, in the dimensions that count.
    pub axes: Vec<Axis>,
}

/// A dimension of a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Axis {
    /// Which of the dimensions.
    pub dimension: usize,
    /// Where the point is.
    pub at: At,
    /// The length that counts as one; above zero.
    pub scale: f64,
}

/// A place along a dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum At {
    /// Among floats.
    Float(f64),
    /// Among whole numbers and times: an ordinal, which may lie beyond those that there are, and what it lies behind that. So lengths between
    /// numbers that no float tells apart are right.
    Whole(i128, f64),
}

/// What no ordinal reaches, so that differences have room.
const WHOLE_MAX: f64 = 1e30;

impl At {
    /// A number among those of a type.
    pub fn of(ty: FieldType, at: f64) -> Self {
        match ty {
            FieldType::F32 | FieldType::F64 => Self::Float(at),
            _ => {
                let at = at.clamp(-WHOLE_MAX, WHOLE_MAX);
                Self::Whole(Self::ordinal(ty, at.floor() as i128), at - at.floor())
            }
        }
    }

    /// A whole number, or a time in nanoseconds since 1970, among those of a type.
    pub fn whole(ty: FieldType, at: i64) -> Self {
        match ty {
            FieldType::F32 | FieldType::F64 => Self::Float(at as f64),
            _ => Self::Whole(Self::ordinal(ty, at.into()), 0.0),
        }
    }

    fn ordinal(ty: FieldType, value: i128) -> i128 {
        match ty {
            FieldType::U64 => value + i128::from(i64::MIN),
            _ => value,
        }
    }

    /// How far behind it a value lies, which has this ordinal; below zero before it.
    fn to(self, ordinal: i64, value: f64) -> f64 {
        match self {
            Self::Float(at) => value - at,
            Self::Whole(whole, behind) => (i128::from(ordinal) - whole) as f64 - behind,
        }
    }
}

impl Axis {
    /// The square of a length. Whatever is farther away along the axis has no lesser one, also where it is rounded.
    fn square(&self, length: f64) -> f64 {
        let scaled = length / self.scale;
        scaled * scaled
    }
}

impl Center {
    /// The distance of each of some rows: of the lengths along all axes, each by its scale, the root of the sum of squares; NaN for one without. Takes the
    /// values along the axes, in their order.
    ///
    /// # Panics
    /// Unless these are as many columns of numbers or times as there are axes, all of one length.
    pub fn distances(&self, columns: &[ArrayRef]) -> Vec<f64> {
        assert_eq!(columns.len(), self.axes.len(), "a column for each axis");
        let mut squares = vec![0.0; columns.first().map_or(0, |column| column.len())];
        for (axis, column) in self.axes.iter().zip(columns) {
            assert_eq!(column.len(), squares.len(), "columns of one length");
            let added = with_values!(&**column, |values| {
                for (square, value) in squares.iter_mut().zip(values) {
                    *square += axis.square(axis.at.to(value.to_int(), value.to_f64()).abs());
                }
            });
            assert!(added.is_some(), "a dimension is a column of numbers or times");
        }
        squares.into_iter().map(f64::sqrt).collect()
    }

    /// For each leaf a distance that none of its rows falls below.
    pub fn to_leaves(&self, layout: &Layout, leaves: &Leaves) -> Vec<f64> {
        let mut squares = vec![0.0; leaves.len()];
        for axis in &self.axes {
            let (_, ty) = layout.columns[layout.dimensions[axis.dimension]];
            let spans = &leaves.spans()[axis.dimension];
            for (square, (first, last)) in
                squares.iter_mut().zip(spans.first.iter().zip(&spans.last))
            {
                let first = axis.at.to(*first, position(ty, *first));
                let last = axis.at.to(*last, position(ty, *last));
                // An end that is no number leaves all open.
                let outside = if first > 0.0 {
                    first
                } else if last < 0.0 {
                    -last
                } else {
                    0.0
                };
                *square += axis.square(outside);
            }
        }
        squares.into_iter().map(f64::sqrt).collect()
    }
}

#[cfg(test)]
mod tests;
