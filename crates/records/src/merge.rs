//! Rows of several places as packed rows, within bounded memory.
//!
//! 1. The leaves of all places say about where rows lie. Space is cut by that into boxes of about as many rows as are packed at once, in
//!    the order of a kd-tree.
//! 2. Box by box the rows that lie there are gathered from all places. A cell that reaches into several boxes is read as often.
//! 3. As soon as enough rows are gathered they are put into order and handed on, but for what does not fill a cell, which waits for
//!    the next box. So what is too much alike to be cut apart takes no more memory than other rows. Where rows have long texts, enough may be less than a
//!    cell.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, new_null_array};
use arrow_select::concat::concat;
use tidefall_ground::kept::arrow_error;
use tidefall_ground::texts::text_bytes;
use tidefall_types::Result;

use crate::order::CELL_ROWS;
use crate::packed::{Layout, Packed, in_order};
use crate::read::{Place, Touched};
use crate::region::{Region, Regions, Side};

/// A place, and the boxes of it that deletes hide.
pub type Visible = (Place, Regions);

/// How much is put into order at once.
#[derive(Debug, Clone, Copy)]
pub struct AtOnce {
    /// Rows, ...
    pub rows: usize,
    /// ... or bytes of texts.
    pub text_bytes: usize,
}

impl AtOnce {
    /// At least a few cells, also where each row takes much.
    const ROWS_MIN: usize = 2 * CELL_ROWS;
}

/// Hands the rows of some places that are not hidden on, packed with these columns; those that a place does not have are null. About as much is
/// packed together as may be at once. All but the last fill their cells, or have so many bytes of texts.
///
/// # Errors
/// Those of storage, and of `take`.
pub fn merge(
    layout: &Arc<Layout>,
    places: &[Visible],
    at_once: AtOnce,
    mut take: impl FnMut(Packed) -> Result<()>,
) -> Result<()> {
    let rows_at_once = at_once.rows.max(AtOnce::ROWS_MIN);
    let mut gathered = Gathered::new(layout);
    for region in cut(layout.dimensions.len(), places, rows_at_once) {
        let region = [Regions::of([region])];
        for (place, hidden) in places {
            let columns = Columns::new(layout, place);
            let touched = Touched::new(place, &region, hidden);
            for cell in touched.cells() {
                gathered.add(columns.of_cell(&touched, cell)?);
                if gathered.text_bytes >= at_once.text_bytes {
                    take(Packed::of_ordered(layout, gathered.in_order()?)?)?;
                    gathered = Gathered::new(layout);
                } else if gathered.rows >= rows_at_once {
                    let all = gathered.in_order()?;
                    let whole = gathered.rows / CELL_ROWS * CELL_ROWS;
                    let first = all.iter().map(|column| column.slice(0, whole)).collect();
                    take(Packed::of_ordered(layout, first)?)?;
                    let left = gathered.rows - whole;
                    gathered = Gathered::new(layout);
                    // Copied: it must not keep the memory of all.
                    let rest = all.iter().map(|column| copied(&column.slice(whole, left)));
                    gathered.add((left, rest.collect::<Result<_>>()?));
                }
            }
        }
    }
    match gathered.rows {
        0 => Ok(()),
        _ => take(Packed::of_ordered(layout, gathered.in_order()?)?),
    }
}

fn copied(column: &ArrayRef) -> Result<ArrayRef> {
    concat(&[&*column.slice(0, 0), &**column]).map_err(arrow_error)
}

/// Columns of a place in a layout that may have others.
struct Columns<'a> {
    layout: &'a Layout,
    /// Where each of the layout is in the place.
    places: Vec<Option<usize>>,
    /// Those that the place has.
    held: Vec<usize>,
}

impl<'a> Columns<'a> {
    fn new(layout: &'a Layout, place: &Place) -> Self {
        let held = place.layout();
        let places: Vec<Option<usize>> =
            layout.columns.iter().map(|(id, _)| held.place(*id)).collect();
        Self { layout, held: places.iter().flatten().copied().collect(), places }
    }

    fn of_cell(&self, touched: &Touched<'_>, cell: usize) -> Result<(usize, Vec<ArrayRef>)> {
        let (rows, held) = touched.columns_of(cell, &self.held)?;
        if rows == 0 {
            return Ok((0, Vec::new()));
        }
        let mut held = held.into_iter();
        let types = self.layout.columns.iter().zip(&self.places);
        let columns = types.map(|((_, ty), place)| {
            let column = place.and_then(|_| held.next());
            column.unwrap_or_else(|| new_null_array(&ty.arrow(), rows))
        });
        Ok((rows, columns.collect()))
    }
}

/// Rows that wait to be packed.
struct Gathered<'a> {
    layout: &'a Layout,
    /// By column.
    parts: Vec<Vec<ArrayRef>>,
    rows: usize,
    text_bytes: usize,
}

impl<'a> Gathered<'a> {
    fn new(layout: &'a Layout) -> Self {
        let parts = vec![Vec::new(); layout.columns.len()];
        Self { layout, parts, rows: 0, text_bytes: 0 }
    }

    fn add(&mut self, (rows, columns): (usize, Vec<ArrayRef>)) {
        self.rows += rows;
        self.text_bytes +=
            columns.iter().map(|column| text_bytes(column, 0..column.len())).sum::<usize>();
        self.parts.iter_mut().zip(columns).for_each(|(parts, column)| parts.push(column));
    }

    fn in_order(&self) -> Result<Vec<ArrayRef>> {
        let together = |parts: &Vec<ArrayRef>| {
            let parts: Vec<&dyn Array> = parts.iter().map(|part| &**part).collect();
            concat(&parts).map_err(arrow_error)
        };
        in_order(self.layout, &self.parts.iter().map(together).collect::<Result<Vec<_>>>()?)
    }
}

/// A leaf as a point with so many rows.
struct Point {
    center: Vec<i64>,
    rows: usize,
}

/// Boxes that do not overlap and have all that there is, each about so many rows, in the order of a kd-tree.
fn cut(dimensions: usize, places: &[Visible], rows_at_once: usize) -> Vec<Region> {
    let mut points = Vec::new();
    for (place, _) in places {
        let leaves = place.leaves();
        for leaf in 0..leaves.len() {
            let region = leaves.region(leaf);
            let center = region.sides().iter().map(|side| side.first.midpoint(side.last));
            points.push(Point { center: center.collect(), rows: leaves.leaf_rows(leaf) });
        }
    }
    let ranks = (0..dimensions).map(|dimension| {
        let mut all: Vec<i64> = points.iter().map(|point| point.center[dimension]).collect();
        all.sort_unstable();
        all
    });
    let ranks: Vec<Vec<i64>> = ranks.collect();
    let mut boxes = Vec::new();
    split(&mut points, Region::all(dimensions), &ranks, rows_at_once, &mut boxes);
    boxes
}

fn split(
    points: &mut [Point],
    region: Region,
    ranks: &[Vec<i64>],
    rows_at_once: usize,
    boxes: &mut Vec<Region>,
) {
    let rows: usize = points.iter().map(|point| point.rows).sum();
    let cut = if rows > rows_at_once { place_to_cut(points, ranks) } else { None };
    let Some((dimension, first)) = cut else { return boxes.push(region) };
    points.sort_unstable_by_key(|point| point.center[dimension]);
    let middle = points.partition_point(|point| point.center[dimension] < first);
    let (left, right) = points.split_at_mut(middle);
    let side = region.sides()[dimension];
    let with = |side: Side| {
        let mut sides = region.sides().to_vec();
        sides[dimension] = side;
        Region::new(sides)
    };
    split(left, with(Side::new(side.first, first - 1)), ranks, rows_at_once, boxes);
    split(right, with(Side::new(first, side.last)), ranks, rows_at_once, boxes);
}

/// The dimension in which points reach over the largest share of all, and where the second half of them begins there; nothing where all
/// are alike.
fn place_to_cut(points: &[Point], ranks: &[Vec<i64>]) -> Option<(usize, i64)> {
    let share = |dimension: &usize| {
        let along = points.iter().map(|point| point.center[*dimension]);
        let below = |ordinal: i64| ranks[*dimension].partition_point(|other| *other < ordinal);
        along.clone().max().map_or(0, below) - along.min().map_or(0, below)
    };
    let dimension = (0..ranks.len()).max_by_key(share).filter(|dimension| share(dimension) > 0)?;
    let mut along: Vec<i64> = points.iter().map(|point| point.center[dimension]).collect();
    along.sort_unstable();
    let middle = along[along.len() / 2];
    // Both halves must have some of them.
    let first = if middle > along[0] {
        Some(&middle)
    } else {
        along.iter().find(|ordinal| **ordinal > middle)
    };
    first.map(|first| (dimension, *first))
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use tidefall_types::{FieldId, FieldType};

    use super::*;
    use crate::order::LEAF_ROWS;
    use crate::ordinal::ordinals;
    use crate::testing::{both, inside, layout, one_dimension, regions, rows, shown};

    #[test]
    fn boxes_have_each_place_once() {
        let mut rng = SmallRng::seed_from_u64(41);
        let (layout, _) = one_dimension(Vec::new());
        let values: Vec<i64> = (0..9 * CELL_ROWS).map(|_| rng.random_range(-500..500)).collect();
        let places = both(Packed::new(&layout, &one_dimension(values).1).unwrap())
            .map(|place| (place, Regions::default()));
        let boxes = cut(1, &places, 2 * CELL_ROWS);
        assert!(boxes.len() > 4, "{boxes:?}");
        for ordinal in [i64::MIN, i64::MAX].into_iter().chain(-600..600) {
            assert_eq!(
                boxes.iter().filter(|region| region.contains(&[ordinal])).count(),
                1,
                "{ordinal}"
            );
        }
        // Nothing can be cut where all is alike.
        let same = both(Packed::new(&layout, &one_dimension(vec![7; 5 * CELL_ROWS]).1).unwrap());
        let same = same.map(|place| (place, Regions::default()));
        assert_eq!(cut(1, &same, CELL_ROWS), [Region::all(1)]);
    }

    #[test]
    fn merged_rows_are_those_that_are_not_hidden() {
        let mut rng = SmallRng::seed_from_u64(42);
        for round in 0..12 {
            let mut expected = Vec::new();
            let mut places = Vec::new();
            // One without the last column.
            let narrow = Layout { columns: layout().columns[..6].to_vec(), ..(*layout()).clone() };
            for layout in [layout(), Arc::new(narrow)] {
                let count = [100, LEAF_ROWS * 3, 3 * CELL_ROWS + 11][rng.random_range(0..3)];
                let mut columns = rows(&mut rng, count);
                columns.truncate(layout.columns.len());
                let hidden = regions(&mut rng, &layout, &columns);
                let is_hidden = inside(&layout, &columns, &hidden);
                let kept = (0..count).filter(|row| !is_hidden[*row]);
                let texts = shown(&*columns[4]);
                let times = ordinals(&*columns[1]).unwrap();
                expected.extend(kept.map(|row| (times[row], texts[row].clone())));
                let place = both(Packed::new(&layout, &columns).unwrap())[round % 2].clone();
                places.push((place, hidden));
            }
            let (mut found, mut sizes) = (Vec::new(), Vec::new());
            let rows = [0, usize::MAX][round % 2];
            let text_bytes = [usize::MAX, 5_000][usize::from(round % 5 == 1)];
            merge(&layout(), &places, AtOnce { rows, text_bytes }, |packed| {
                let times = ordinals(&*packed.columns()[1]).unwrap();
                found.extend(times.into_iter().zip(shown(&*packed.columns()[4])));
                assert_eq!(packed.columns().len(), 7);
                sizes.push(packed.rows());
                Ok(())
            })
            .unwrap();
            expected.sort();
            found.sort();
            assert!(found == expected, "{} rows, not {}", found.len(), expected.len());
            if let Some((_, full)) = sizes.split_last().filter(|_| text_bytes == usize::MAX) {
                assert!(
                    full.iter().all(|rows| rows.is_multiple_of(CELL_ROWS)
                        && *rows <= AtOnce::ROWS_MIN + CELL_ROWS),
                    "{sizes:?}"
                );
            }
            if rows == usize::MAX && text_bytes == usize::MAX {
                assert!(sizes.len() <= 1);
            }
        }
    }

    #[test]
    fn a_column_that_came_later_is_null_before() {
        let (old, columns) = one_dimension((0..10).collect());
        let place = Place::Memory(Arc::new(Packed::new(&old, &columns).unwrap()));
        let mut wide = (*old).clone();
        wide.columns.push((FieldId(5), FieldType::Text));
        let at_once = AtOnce { rows: 0, text_bytes: 1 << 20 };
        merge(&Arc::new(wide), &[(place, Regions::default())], at_once, |packed| {
            assert_eq!(packed.columns()[1].null_count(), 10);
            Ok(())
        })
        .unwrap();
    }
}
