//! Which rows of a leaf lie in a union of boxes, tested column by column without branches.

use std::cmp::Ordering;
use std::ops::Range;

use arrow_array::ArrayRef;
use multiversion::multiversion;
use tidefall_codec::Number;

use crate::leaves::Leaves;
use crate::ordinal::with_values;
use crate::region::{Region, Regions, Side};

/// For each row of a leaf whether it is in a union of boxes: 1 or 0. `column` has a dimension of the cell of the leaf.
pub fn mask<E>(
    (leaves, leaf): (&Leaves, usize),
    regions: &Regions,
    mut column: impl FnMut(usize) -> Result<ArrayRef, E>,
) -> Result<Vec<u8>, E> {
    let rows = leaves.rows_in_cell(leaf);
    let (mut all, mut cuts) = (None, Vec::new());
    for region in regions.boxes() {
        if !find_cuts((leaves, leaf), region, &mut cuts) {
            continue;
        }
        let mut of_one = vec![1; rows.len()];
        for Cut { dimension, side, .. } in &cuts {
            narrow(&mut of_one, &column(*dimension)?, rows.clone(), *side);
            if is_empty(&of_one) {
                break;
            }
        }
        match &mut all {
            None => all = Some(of_one),
            Some(all) => all.iter_mut().zip(of_one).for_each(|(all, one)| *all |= one),
        }
    }
    Ok(all.unwrap_or_else(|| vec![0; rows.len()]))
}

/// Whether a mask has no row.
fn is_empty(mask: &[u8]) -> bool {
    mask.iter().fold(0, |any, is_in| any | is_in) == 0
}

/// A side that leaves out something of a leaf.
struct Cut {
    dimension: usize,
    side: Side,
    /// About which part of the leaf is in it.
    part: f64,
}

/// The sides of a box that cut a leaf, those first that leave out most; whether anything is left at all.
fn find_cuts((leaves, leaf): (&Leaves, usize), region: &Region, cuts: &mut Vec<Cut>) -> bool {
    cuts.clear();
    for (dimension, side) in region.bounds() {
        let span = leaves.side(dimension, leaf);
        let both = side.within(&span);
        if both.is_empty() {
            return false;
        }
        if both != span {
            let length = |side: Side| side.last.abs_diff(side.first) as f64 + 1.0;
            cuts.push(Cut { dimension, side, part: length(both) / length(span) });
        }
    }
    cuts.sort_by(|one, other| one.part.partial_cmp(&other.part).unwrap_or(Ordering::Equal));
    true
}

fn narrow(mask: &mut [u8], column: &ArrayRef, rows: Range<usize>, side: Side) {
    let narrowed = with_values!(&**column, |values| narrow_by(mask, &values[rows.clone()], side));
    debug_assert!(narrowed.is_some(), "a dimension is a column of numbers or times");
}

/// With the vectors that the machine has, if it has any: ten times as fast with those of 512 bits, four times with those of 256.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl+bmi2", "x86_64+avx2+bmi2"))]
fn narrow_by<T: Number>(mask: &mut [u8], values: &[T], side: Side) {
    // One comparison for both ends: what is below the first wraps around to more than any length.
    let length = side.last.wrapping_sub(side.first) as u64;
    for (is_in, value) in mask.iter_mut().zip(values) {
        *is_in &= u8::from(value.to_int().wrapping_sub(side.first) as u64 <= length);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use arrow_array::{Float64Array, Int64Array};
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::order::LEAF_ROWS;

    #[test]
    fn a_mask_has_the_rows_that_are_inside() {
        let mut rng = SmallRng::seed_from_u64(9);
        let odd = [i64::MIN, -1, 0, 1, i64::MAX];
        for _ in 0..300 {
            let rows = rng.random_range(1..3 * LEAF_ROWS);
            let kinds = rng.random_range(1..=odd.len());
            let ints: Vec<i64> = (0..rows).map(|_| odd[rng.random_range(0..kinds)]).collect();
            let floats: Vec<f64> = (0..rows)
                .map(|_| [f64::NAN, f64::INFINITY, -2.5, 0.0, 7.0][rng.random_range(0..5)])
                .collect();
            let mut side = || {
                Side::new(odd[rng.random_range(0..odd.len())], odd[rng.random_range(0..odd.len())])
            };
            let float_side = Side::new((-3.0_f64).to_int(), 1e300_f64.to_int());
            let regions = Regions::of([
                Region::new(vec![side(), float_side]),
                Region::new(vec![side(), Side::ALL]),
            ]);
            let columns: [ArrayRef; 2] = [
                Arc::new(Int64Array::from(ints.clone())),
                Arc::new(Float64Array::from(floats.clone())),
            ];
            let ordinals = floats.iter().map(|float| float.to_int()).collect();
            let leaves = Leaves::of(&[ints.clone(), ordinals]);
            for leaf in 0..leaves.len() {
                let found = mask((&leaves, leaf), &regions, |place| {
                    Ok::<_, Infallible>(Arc::clone(&columns[place]))
                });
                let of_leaf = leaves.rows_in_cell(leaf);
                let expected: Vec<u8> = of_leaf
                    .map(|row| u8::from(regions.contains(&[ints[row], floats[row].to_int()])))
                    .collect();
                assert_eq!(found, Ok(expected));
            }
        }
    }
}
