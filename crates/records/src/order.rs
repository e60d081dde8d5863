//! The order of a kd-tree: each half of the rows lies on one side of the other half in one dimension, and so on in each half.
//!
//! 1. Of the whole a sample is sorted in each dimension, so that a stretch of values has a share of all rows.
//! 2. The dimension to halve in is that in which the rows reach over the largest share, as far as a few of them tell. That needs no
//!    scale, and units, outliers and skew do not matter; where dimensions go together, one of them is enough. Those that are declared first count more, as
//!    they are asked by most.
//! 3. The half is found by selection. It ends where a leaf ends, or a cell where there are more rows than one holds, so that leaves
//!    and cells are full but for the last one, and their places need not be stored.

use tidefall_codec::MAX_PAGE_ROWS;

/// Rows of a leaf: a box that cuts it looks at so many. Fewer have larger indexes, more have more to look at.
pub const LEAF_ROWS: usize = 1024;
/// Rows of a cell, which is what is encoded and read as one: a page of each column.
pub const CELL_ROWS: usize = 8 * LEAF_ROWS;
const _: () = assert!(CELL_ROWS <= MAX_PAGE_ROWS, "a page holds the rows of a cell");

/// Rows of the sample by which shares are told.
const SAMPLE_ROWS: usize = 2048;
/// Rows that are looked at to tell how far all of a half reach.
const PROBES: usize = 48;
/// A dimension counts as much less than the one before it, ...
const NEXT_COUNTS: f64 = 0.6;
/// ... but no less than this.
const COUNTS_MIN: f64 = 0.2;

/// The rows of some dimensions, of equal length, in the order of a kd-tree.
pub fn kd_order(dimensions: &[Vec<i64>]) -> Vec<u32> {
    let rows = dimensions.first().map_or(0, Vec::len);
    debug_assert!(dimensions.iter().all(|ordinals| ordinals.len() == rows));
    let mut order: Vec<u32> = (0..rows as u32).collect();
    let mut splitter = Splitter::new(dimensions, rows);
    splitter.split(&mut order, 0);
    order
}

struct Splitter<'a> {
    dimensions: &'a [Vec<i64>],
    samples: Vec<Vec<i64>>,
    keys: Vec<(i64, u32)>,
}

impl<'a> Splitter<'a> {
    fn new(dimensions: &'a [Vec<i64>], rows: usize) -> Self {
        let step = rows.div_ceil(SAMPLE_ROWS).max(1);
        let sample = |ordinals: &Vec<i64>| {
            let mut sample: Vec<i64> = ordinals.iter().step_by(step).copied().collect();
            sample.sort_unstable();
            sample
        };
        Self { dimensions, samples: dimensions.iter().map(sample).collect(), keys: Vec::new() }
    }

    fn split(&mut self, order: &mut [u32], depth: usize) {
        if order.len() <= LEAF_ROWS {
            return;
        }
        let middle = middle_of(order.len());
        let ordinals = &self.dimensions[self.widest(order, depth)];
        self.keys.clear();
        self.keys.extend(order.iter().map(|row| (ordinals[*row as usize], *row)));
        self.keys.select_nth_unstable_by_key(middle, |(ordinal, _)| *ordinal);
        for (place, (_, row)) in order.iter_mut().zip(&self.keys) {
            *place = *row;
        }
        let (left, right) = order.split_at_mut(middle);
        self.split(left, depth + 1);
        self.split(right, depth + 1);
    }

    /// The dimension in which some rows reach over the largest share of all, as much as it counts; where they seem to be alike, each in turn.
    fn widest(&self, order: &[u32], depth: usize) -> usize {
        let step = (order.len() / PROBES).max(1);
        let (mut widest, mut largest) = (depth % self.dimensions.len(), 0.0);
        let mut counts: f64 = 1.0;
        for (dimension, (ordinals, sample)) in self.dimensions.iter().zip(&self.samples).enumerate()
        {
            let (mut first, mut last) = (i64::MAX, i64::MIN);
            for row in order.iter().step_by(step) {
                let ordinal = ordinals[*row as usize];
                first = first.min(ordinal);
                last = last.max(ordinal);
            }
            let below = |ordinal: i64| sample.partition_point(|other| *other < ordinal);
            let share = (below(last) - below(first)) as f64 * counts.max(COUNTS_MIN);
            if share > largest {
                (widest, largest) = (dimension, share);
            }
            counts *= NEXT_COUNTS;
        }
        widest
    }
}

/// How many of some rows are in the first half of them.
fn middle_of(rows: usize) -> usize {
    let unit = if rows > CELL_ROWS { CELL_ROWS } else { LEAF_ROWS };
    rows.div_ceil(unit).div_ceil(2) * unit
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// How much all leaves span of the values of a dimension, as a mean part of the whole.
    fn mean_part(ordinals: &[i64], order: &[u32]) -> f64 {
        let reach = |rows: &[u32]| {
            let values = rows.iter().map(|row| ordinals[*row as usize]);
            (values.clone().max().unwrap() - values.min().unwrap()) as f64
        };
        let parts: Vec<f64> = order.chunks(LEAF_ROWS).map(reach).collect();
        parts.iter().sum::<f64>() / parts.len() as f64 / reach(order).max(1.0)
    }

    #[test]
    fn all_rows_are_there_once() {
        let mut rng = SmallRng::seed_from_u64(2);
        for rows in [0, 1, 2, LEAF_ROWS, LEAF_ROWS + 1, CELL_ROWS, CELL_ROWS + 1, 5 * CELL_ROWS - 3]
        {
            for kinds in [1, 3, i64::MAX] {
                let dimensions: Vec<Vec<i64>> = (0..3)
                    .map(|_| (0..rows).map(|_| rng.random_range(0..kinds)).collect())
                    .collect();
                let mut order = kd_order(&dimensions);
                order.sort_unstable();
                assert!(order.iter().copied().eq(0..rows as u32), "{rows} rows of {kinds} kinds");
            }
        }
    }

    #[test]
    fn leaves_are_narrow_in_all_dimensions_and_in_the_first_ones_most() {
        let mut rng = SmallRng::seed_from_u64(3);
        let rows = 64 * LEAF_ROWS;
        let near: Vec<i64> = (0..rows).map(|_| rng.random_range(0..1000)).collect();
        let far: Vec<i64> = (0..rows).map(|_| rng.random_range(0..i64::MAX / 2)).collect();
        let same = vec![7; rows];
        let order = kd_order(&[near.clone(), same, far.clone()]);
        // 64 leaves: an eighth of each of two dimensions were they alike; the second of them counts a third, so that the first is halved once or twice more.
        let parts = (mean_part(&near, &order), mean_part(&far, &order));
        assert!((0.03..0.1).contains(&parts.0) && (0.2..0.35).contains(&parts.1), "{parts:?}");
        let order = kd_order(&[far.clone(), near.clone()]);
        let other = (mean_part(&near, &order), mean_part(&far, &order));
        assert!(other.0 > parts.0 && other.1 < parts.1, "{other:?}, {parts:?}");
    }

    #[test]
    fn halves_end_where_leaves_do() {
        for rows in LEAF_ROWS + 1..20 * CELL_ROWS {
            let middle = middle_of(rows);
            assert!(middle < rows && middle.is_multiple_of(LEAF_ROWS));
            assert!(rows <= CELL_ROWS || middle.is_multiple_of(CELL_ROWS), "{rows}");
        }
    }
}
