//! The rows that are nearest to a point, found from the nearest leaf on.
//!
//! 1. Each leaf has a distance that none of its rows falls below: that of its box.
//! 2. Leaves are taken by that distance. What they have is kept, the nearest so many of all.
//! 3. The first leaf that is farther away than the last of those that are kept ends it.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use tidefall_codec::Number;
use tidefall_types::Result;

use crate::leaves::Relation;
use crate::order::{CELL_ROWS, LEAF_ROWS};
use crate::ordinal::{position, with_values};
use crate::read::{Place, Touched};
use crate::region::Regions;

/// A point, and how far apart things are.
#[derive(Debug, Clone)]
pub struct Center {
    /// For each dimension that counts its number, where the point is, and the length that counts as one there.
    pub axes: Vec<Axis>,
}

/// A dimension of a point.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    /// Which dimension.
    pub dimension: usize,
    /// Where the point is.
    pub at: f64,
    /// The length that counts as one; above zero.
    pub scale: f64,
}

/// A row that is near.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Neighbour {
    /// Its distance: of the lengths along all axes, each by its scale, the root of the sum of squares.
    pub distance: f64,
    /// Which of the places it is in, ...
    pub place: usize,
    /// ... and its number there.
    pub row: usize,
}

impl Eq for Neighbour {}

impl PartialOrd for Neighbour {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The nearest first; of equal ones the earlier.
impl Ord for Neighbour {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_place = || (self.place, self.row).cmp(&(other.place, other.row));
        self.distance.total_cmp(&other.distance).then_with(by_place)
    }
}

/// The rows nearest to a point, at most so many, of those that are in all of some unions of boxes and not hidden, for each place by other boxes.
/// They come in the order of their distance. A row without a distance (NaN) is near to nothing.
///
/// # Errors
/// Those of storage.
pub fn nearest(
    center: &Center,
    count: usize,
    asked: &[Regions],
    places: &[(Place, Regions)],
) -> Result<Vec<Neighbour>> {
    let touched: Vec<Touched<'_>> =
        places.iter().map(|(place, hidden)| Touched::new(place, asked, hidden)).collect();
    let mut leaves = BinaryHeap::new();
    for (number, touched) in touched.iter().enumerate() {
        let is_asked = |(_, relation): &(usize, &Relation)| **relation != Relation::Outside;
        for (leaf, _) in touched.relations().iter().enumerate().filter(is_asked) {
            let distance = to_leaf(center, &places[number].0, leaf);
            leaves.push(Reverse(Neighbour { distance, place: number, row: leaf }));
        }
    }
    let mut found: BinaryHeap<Neighbour> = BinaryHeap::new();
    while let Some(Reverse(leaf)) = leaves.pop() {
        let farthest =
            found.peek().filter(|_| found.len() >= count).map(|farthest| farthest.distance);
        if count == 0 || farthest.is_some_and(|farthest| leaf.distance > farthest) {
            break;
        }
        let (place, number) = (&places[leaf.place].0, leaf.place);
        for (row, distance) in distances(center, place, &touched[number], leaf.row)? {
            let neighbour = Neighbour { distance, place: number, row };
            if found.len() < count {
                found.push(neighbour);
            } else if found.peek().is_some_and(|farthest| neighbour < *farthest) {
                found.pop();
                found.push(neighbour);
            }
        }
    }
    Ok(found.into_sorted_vec())
}

/// The least distance that a row of a leaf can have.
fn to_leaf(center: &Center, place: &Place, leaf: usize) -> f64 {
    let (layout, region) = (place.layout(), place.leaves().region(leaf));
    let along = |Axis { dimension, at, scale }: &Axis| {
        let (_, ty) = layout.columns[layout.dimensions[*dimension]];
        let side = region.sides()[*dimension];
        let (first, last) = (position(ty, side.first), position(ty, side.last));
        // An end that is no number leaves all open.
        let outside = if *at < first {
            first - at
        } else if *at > last {
            at - last
        } else {
            0.0
        };
        outside / scale
    };
    // Rounding must not put it above that of a row, which is added up in the same way.
    center.axes.iter().map(along).map(|length| length * length).sum::<f64>().sqrt()
}

/// The rows of a leaf that are asked for, with their distances, but for those that have none.
fn distances(
    center: &Center,
    place: &Place,
    touched: &Touched<'_>,
    leaf: usize,
) -> Result<Vec<(usize, f64)>> {
    let (cell, rows) = (leaf * LEAF_ROWS / CELL_ROWS, place.leaves().rows_in_cell(leaf));
    let mut squares = vec![0.0; rows.len()];
    for Axis { dimension, at, scale } in &center.axes {
        let column = place.column(cell, place.layout().dimensions[*dimension])?;
        let added = with_values!(&*column, |values| {
            for (square, value) in squares.iter_mut().zip(&values[rows.clone()]) {
                let length = (value.to_f64() - at).abs() / scale;
                *square += length * length;
            }
        });
        debug_assert!(added.is_some(), "a dimension is a column of numbers or times");
    }
    let mask = touched.leaf_rows(leaf)?;
    let first = leaf * LEAF_ROWS;
    let all = squares
        .into_iter()
        .enumerate()
        .filter(|(row, _)| mask.as_ref().is_none_or(|mask| mask[*row] != 0));
    let near = all.map(|(row, square)| (first + row, square.sqrt()));
    Ok(near.filter(|(_, distance)| !distance.is_nan()).collect())
}

#[cfg(test)]
mod tests;
