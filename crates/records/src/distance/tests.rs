use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::order::{CELL_ROWS, LEAF_ROWS};
use crate::ordinal::ordinals;
use crate::packed::Packed;
use crate::testing::{layout, rows};

#[test]
fn no_row_of_a_leaf_is_nearer_than_the_leaf() {
    let mut rng = SmallRng::seed_from_u64(21);
    for round in 0..60 {
        let count = [1, 40, LEAF_ROWS + 9, CELL_ROWS + 1][round % 4];
        let layout = layout();
        let packed = Packed::new(&layout, &rows(&mut rng, count)).unwrap();
        let axis = |dimension: usize, at: f64, scale| {
            let (_, ty) = layout.columns[layout.dimensions[dimension]];
            Axis { dimension, at: At::of(ty, at), scale }
        };
        let center = Center {
            axes: match round % 3 {
                0 => vec![axis(1, rng.random_range(-90.0..90.0), 10.0)],
                1 => vec![axis(1, 20.0, 3.0), axis(0, 5e8, 1e8)],
                _ => vec![axis(3, 1e9, 1e7), axis(2, 0.0, 1.0), axis(1, f64::MAX, 1e300)],
            },
        };
        let places = center.axes.iter().map(|axis| layout.dimensions[axis.dimension]);
        let columns: Vec<ArrayRef> =
            places.clone().map(|place| packed.columns()[place].clone()).collect();
        let distances = center.distances(&columns);
        let along = |row: usize| {
            center.axes.iter().zip(places.clone()).map(move |(axis, place)| (axis, place, row))
        };
        let square = |(axis, place, row): (&Axis, usize, usize)| {
            let ordinal = ordinals(&*packed.columns()[place].slice(row, 1)).unwrap()[0];
            let value = position(layout.columns[place].1, ordinal);
            let length = axis.at.to(ordinal, value).abs() / axis.scale;
            length * length
        };
        let expected: Vec<f64> =
            (0..count).map(|row| along(row).map(square).sum::<f64>().sqrt()).collect();
        assert_eq!(distances.len(), count);
        let is_same = |(one, other): (&f64, &f64)| {
            one.to_bits() == other.to_bits() || one.is_nan() && other.is_nan()
        };
        assert!(distances.iter().zip(&expected).all(is_same), "{distances:?} {expected:?}");
        let to_leaves = center.to_leaves(&layout, packed.leaves());
        for (leaf, least) in to_leaves.iter().enumerate() {
            let first = leaf * LEAF_ROWS;
            for distance in &distances[first..first + packed.leaves().leaf_rows(leaf)] {
                assert!(
                    distance.is_nan() || least <= distance,
                    "{least} of leaf {leaf}: {distance}"
                );
            }
        }
        // A bound that says nothing would hold, too.
        if round % 4 == 3 && round % 3 == 0 {
            assert!(to_leaves.iter().any(|least| *least > 0.0), "{to_leaves:?}");
        }
    }
}

#[test]
fn numbers_that_no_float_tells_apart_are_apart() {
    use FieldType::{F64, I64, Timestamp, U64};
    let large = 1_i64 << 53;
    for ty in [I64, Timestamp] {
        let at = At::whole(ty, large + 1);
        assert_eq!(
            [large, large + 1, large + 3].map(|ordinal| at.to(ordinal, f64::NAN)),
            [-1.0, 0.0, 2.0]
        );
    }
    assert_eq!(At::of(I64, -2.25).to(3, f64::NAN), 5.25);
    // The ordinal of 0 is the least.
    assert_eq!(At::of(U64, 7.5).to(i64::MIN, f64::NAN), -7.5);
    assert_eq!(At::of(U64, -1.0).to(i64::MIN, f64::NAN), 1.0);
    assert_eq!(At::whole(F64, 2).to(0, 2.5), 0.5);
    assert!(At::of(I64, f64::MAX).to(i64::MIN, f64::NAN) < -1e29);
}
