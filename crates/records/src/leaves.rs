//! The leaves of rows in kd order: what each of them spans, dimension by dimension, so that one pass over columns tests a box
//! against all of them.

use std::ops::Range;

use multiversion::multiversion;

use crate::order::{CELL_ROWS, LEAF_ROWS};
use crate::region::{Region, Regions, Side};

/// How a leaf lies to a union of boxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relation {
    /// None of its rows is in it.
    Outside,
    /// Some of its rows may be in it.
    Cut,
    /// All of its rows are in it.
    Inside,
}

/// The leaves of some rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaves {
    rows: usize,
    /// Of each dimension what each leaf spans.
    spans: Vec<Spans>,
}

/// What the leaves span in a dimension.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Spans {
    pub(crate) first: Vec<i64>,
    pub(crate) last: Vec<i64>,
}

impl Spans {
    /// Those of the leaves of some rows.
    fn of(ordinals: &[i64]) -> Self {
        let mut spans = Self::default();
        for leaf in ordinals.chunks(LEAF_ROWS) {
            let wider = |(first, last): (i64, i64), ordinal: &i64| {
                (first.min(*ordinal), last.max(*ordinal))
            };
            let (first, last) = leaf.iter().fold((i64::MAX, i64::MIN), wider);
            spans.first.push(first);
            spans.last.push(last);
        }
        spans
    }

    /// What all of them span together.
    fn side(&self) -> Side {
        let first = self.first.iter().copied().min().unwrap_or(i64::MAX);
        Side::new(first, self.last.iter().copied().max().unwrap_or(i64::MIN))
    }
}

impl Leaves {
    /// The leaves of some rows, by their ordinals in each dimension.
    pub fn of(dimensions: &[Vec<i64>]) -> Self {
        let rows = dimensions.first().map_or(0, Vec::len);
        Self { rows, spans: dimensions.iter().map(|ordinals| Spans::of(ordinals)).collect() }
    }

    /// Those of so many rows that span so much; nothing when that does not fit together.
    pub(crate) fn from_spans(rows: usize, spans: Vec<Spans>) -> Option<Self> {
        let leaves = Self { rows, spans };
        let fits = |spans: &Spans| {
            spans.first.len() == leaves.len()
                && spans.last.len() == leaves.len()
                && spans.first.iter().zip(&spans.last).all(|(first, last)| first <= last)
        };
        let is_whole = leaves.spans.iter().all(fits);
        is_whole.then_some(leaves)
    }

    /// Adds those of other rows behind its own, which fill their last cell.
    pub(crate) fn extend(&mut self, other: &Self) {
        assert!(self.rows.is_multiple_of(CELL_ROWS), "{} rows do not fill their cells", self.rows);
        self.rows += other.rows;
        for (spans, more) in self.spans.iter_mut().zip(&other.spans) {
            spans.first.extend(&more.first);
            spans.last.extend(&more.last);
        }
    }

    pub(crate) fn spans(&self) -> &[Spans] {
        &self.spans
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows.div_ceil(LEAF_ROWS)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The rows of all.
    pub fn all_rows(&self) -> usize {
        self.rows
    }

    /// How many cells they make.
    pub fn cells(&self) -> usize {
        self.rows.div_ceil(CELL_ROWS)
    }

    /// The leaves of a cell.
    pub fn of_cell(&self, cell: usize) -> Range<usize> {
        const EACH: usize = CELL_ROWS / LEAF_ROWS;
        cell * EACH..self.len().min((cell + 1) * EACH)
    }

    /// The rows of a leaf, counted from the first of its cell.
    pub fn rows_in_cell(&self, leaf: usize) -> Range<usize> {
        let first = leaf * LEAF_ROWS % CELL_ROWS;
        first..first + self.leaf_rows(leaf)
    }

    /// The rows of a leaf.
    pub fn leaf_rows(&self, leaf: usize) -> usize {
        LEAF_ROWS.min(self.rows - leaf * LEAF_ROWS)
    }

    /// The rows of a cell.
    pub fn cell_rows(&self, cell: usize) -> usize {
        CELL_ROWS.min(self.rows - cell * CELL_ROWS)
    }

    /// What a leaf spans in a dimension.
    pub fn side(&self, dimension: usize, leaf: usize) -> Side {
        let spans = &self.spans[dimension];
        Side::new(spans.first[leaf], spans.last[leaf])
    }

    /// The box of a leaf.
    pub fn region(&self, leaf: usize) -> Region {
        let sides = (0..self.spans.len()).map(|dimension| self.side(dimension, leaf));
        Region::new(sides.collect::<Vec<_>>())
    }

    /// The box of all of them.
    pub fn bounds(&self) -> Region {
        Region::new(self.spans.iter().map(Spans::side).collect::<Vec<_>>())
    }

    /// How each leaf lies to a union of boxes.
    pub fn relations(&self, regions: &Regions) -> Vec<Relation> {
        let mut relations = vec![Relation::Outside; self.len()];
        let mut outside = vec![false; self.len()];
        let mut cut = vec![false; self.len()];
        for region in regions.boxes() {
            outside.fill(false);
            cut.fill(false);
            for (dimension, side) in region.bounds() {
                let Spans { first, last } = &self.spans[dimension];
                compare((first, last), side, &mut outside, &mut cut);
            }
            for (relation, (is_outside, is_cut)) in
                relations.iter_mut().zip(outside.iter().zip(&cut))
            {
                *relation = (*relation).max(match (is_outside, is_cut) {
                    (true, _) => Relation::Outside,
                    (false, true) => Relation::Cut,
                    (false, false) => Relation::Inside,
                });
            }
        }
        relations
    }
}

/// Which leaves lie outside of a side, and which are not inside as a whole.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl+bmi2", "x86_64+avx2+bmi2"))]
fn compare((first, last): (&[i64], &[i64]), side: Side, outside: &mut [bool], cut: &mut [bool]) {
    for (is_outside, (first, last)) in outside.iter_mut().zip(first.iter().zip(last)) {
        *is_outside |= (*last < side.first) | (side.last < *first);
    }
    for (is_cut, (first, last)) in cut.iter_mut().zip(first.iter().zip(last)) {
        *is_cut |= (*first < side.first) | (side.last < *last);
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn leaves_lie_to_boxes_as_their_rows_do() {
        let mut rng = SmallRng::seed_from_u64(5);
        for rows in [1, LEAF_ROWS, 3 * LEAF_ROWS + 5, CELL_ROWS + 1] {
            let dimensions: Vec<Vec<i64>> = (0..2)
                .map(|_| {
                    (0..rows)
                        .map(|row| (row / LEAF_ROWS * 2) as i64 + rng.random_range(0..3))
                        .collect()
                })
                .collect();
            let leaves = Leaves::of(&dimensions);
            assert_eq!(leaves.len(), rows.div_ceil(LEAF_ROWS));
            for _ in 0..200 {
                let side = |rng: &mut SmallRng| match rng.random_range(0..4) {
                    0 => Side::ALL,
                    _ => Side::new(rng.random_range(-1..20), rng.random_range(-1..20)),
                };
                let boxes = (0..rng.random_range(0..3))
                    .map(|_| Region::new(vec![side(&mut rng), side(&mut rng)]));
                let regions = Regions::of(boxes.collect::<Vec<_>>());
                for (leaf, relation) in leaves.relations(&regions).into_iter().enumerate() {
                    let all = leaf * LEAF_ROWS..rows.min((leaf + 1) * LEAF_ROWS);
                    let inside = all
                        .clone()
                        .filter(|row| regions.contains(&[dimensions[0][*row], dimensions[1][*row]]))
                        .count();
                    match relation {
                        Relation::Outside => assert_eq!(inside, 0),
                        Relation::Inside => assert_eq!(inside, all.len()),
                        Relation::Cut => {}
                    }
                    let region = leaves.region(leaf);
                    let is_apart = !regions.reaches(&region);
                    assert_eq!(relation == Relation::Outside, is_apart, "{regions:?} {region:?}");
                }
            }
            let (bounds, cells) = (leaves.bounds(), leaves.cells());
            assert!((0..leaves.len()).all(|leaf| bounds.covers(&leaves.region(leaf))));
            let of_cells: usize = (0..cells).map(|cell| leaves.cell_rows(cell)).sum();
            assert_eq!(of_cells, rows);
            let of_leaves: usize = (0..cells)
                .flat_map(|cell| leaves.of_cell(cell))
                .map(|leaf| leaves.rows_in_cell(leaf).len())
                .sum();
            assert_eq!(of_leaves, rows);
        }
    }
}
