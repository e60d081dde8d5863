//! Which rows lie in a union of boxes, tested column by column without branches.

use std::ops::Range;

use arrow_array::ArrayRef;
use tidefall_codec::Number;

use crate::ordinal::with_values;
use crate::region::{Region, Regions, Side};

/// For each of some rows whether it is in a union of boxes: 1 or 0. `dimension` has the column of one that is bound.
pub fn mask<E>(
    rows: Range<usize>,
    regions: &Regions,
    mut dimension: impl FnMut(usize) -> Result<ArrayRef, E>,
) -> Result<Vec<u8>, E> {
    let mut all = vec![0; rows.len()];
    let mut of_one = vec![0; rows.len()];
    for region in regions.boxes() {
        of_one.fill(1);
        narrow(&mut of_one, rows.clone(), region, &mut dimension)?;
        for (all, one) in all.iter_mut().zip(&of_one) {
            *all |= one;
        }
    }
    Ok(all)
}

fn narrow<E>(
    mask: &mut [u8],
    rows: Range<usize>,
    region: &Region,
    dimension: &mut impl FnMut(usize) -> Result<ArrayRef, E>,
) -> Result<(), E> {
    for (place, side) in region.bounds() {
        let column = dimension(place)?;
        let narrowed =
            with_values!(&*column, |values| narrow_by(mask, &values[rows.clone()], side));
        debug_assert!(narrowed.is_some(), "a dimension is a column of numbers or times");
    }
    Ok(())
}

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

    #[test]
    fn a_mask_has_the_rows_that_are_inside() {
        let mut rng = SmallRng::seed_from_u64(9);
        let odd = [i64::MIN, -1, 0, 1, i64::MAX];
        for _ in 0..500 {
            let rows = rng.random_range(1..200);
            let ints: Vec<i64> = (0..rows).map(|_| odd[rng.random_range(0..odd.len())]).collect();
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
            let some = rows / 3..rows;
            let found = mask(some.clone(), &regions, |place| {
                Ok::<_, Infallible>(Arc::clone(&columns[place]))
            });
            let expected: Vec<u8> = some
                .map(|row| u8::from(regions.contains(&[ints[row], floats[row].to_int()])))
                .collect();
            assert_eq!(found, Ok(expected));
        }
    }
}
