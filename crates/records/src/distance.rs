//! How far records are from a point: the rows of a cell, and at least those of a leaf, so that who looks for the nearest begins with the nearest leaves and
//! ends where all others are farther away.

use arrow_array::{Array, ArrayRef};
use tidefall_codec::Number;

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
    pub at: f64,
    /// The length that counts as one; above zero.
    pub scale: f64,
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
                    *square += axis.square((value.to_f64() - axis.at).abs());
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
                let (first, last) = (position(ty, *first), position(ty, *last));
                // An end that is no number leaves all open.
                let outside = if axis.at < first {
                    first - axis.at
                } else if axis.at > last {
                    axis.at - last
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
