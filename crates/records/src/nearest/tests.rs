use arrow_array::Array;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::ordinal::ordinals;
use crate::packed::Packed;
use crate::testing::{both, inside, layout, regions, rows};

#[test]
fn neighbours_are_those_of_a_list_of_rows() {
    let mut rng = SmallRng::seed_from_u64(21);
    for round in 0..60 {
        let count = [1, 40, LEAF_ROWS + 9, CELL_ROWS + 1][round % 4];
        let (layout, columns) = (layout(), rows(&mut rng, count));
        let packed = Packed::new(&layout, &columns).unwrap();
        // The rows as they lie, in which neighbours are numbered.
        let columns = packed.columns().to_vec();
        let places = both(packed);
        let axis = |dimension, at, scale| Axis { dimension, at, scale };
        let center = Center {
            axes: match round % 3 {
                0 => vec![axis(1, rng.random_range(-90.0..90.0), 10.0)],
                1 => vec![axis(1, 20.0, 3.0), axis(0, 5e8, 1e8)],
                _ => vec![axis(3, 1e9, 1e7), axis(2, 0.0, 1.0), axis(1, f64::MAX, 1e300)],
            },
        };
        let asked = match rng.random_bool(0.5) {
            true => Regions::all(layout.dimensions.len()),
            false => regions(&mut rng, &layout, &columns),
        };
        let hidden = regions(&mut rng, &layout, &columns);
        let (is_asked, is_hidden) =
            (inside(&layout, &columns, &asked), inside(&layout, &columns, &hidden));
        let along = |row: usize, Axis { dimension, at, scale }: &Axis| {
            let place = layout.dimensions[*dimension];
            let ordinal = ordinals(&*columns[place].slice(row, 1)).unwrap()[0];
            (position(layout.columns[place].1, ordinal) - at).abs() / scale
        };
        let mut expected: Vec<f64> = (0..count)
            .filter(|row| is_asked[*row] && !is_hidden[*row])
            .map(|row| {
                center
                    .axes
                    .iter()
                    .map(|axis| along(row, axis))
                    .map(|length| length * length)
                    .sum::<f64>()
                    .sqrt()
            })
            .filter(|distance| !distance.is_nan())
            .collect();
        expected.sort_by(f64::total_cmp);
        for wanted in [0, 1, 7, 2000] {
            for place in &places {
                let found = nearest(
                    &center,
                    wanted,
                    std::slice::from_ref(&asked),
                    &[(place.clone(), hidden.clone())],
                )
                .unwrap();
                let distances: Vec<f64> =
                    found.iter().map(|neighbour| neighbour.distance).collect();
                assert_eq!(distances, expected[..wanted.min(expected.len())]);
                let mut rows: Vec<usize> = found.iter().map(|neighbour| neighbour.row).collect();
                rows.sort_unstable();
                rows.dedup();
                assert_eq!(rows.len(), found.len(), "a row is there twice");
                assert!(rows.iter().all(|row| is_asked[*row] && !is_hidden[*row]));
            }
            // Of several places the nearest of all.
            let twice: Vec<_> =
                places.iter().map(|place| (place.clone(), hidden.clone())).collect();
            let found = nearest(&center, wanted, std::slice::from_ref(&asked), &twice).unwrap();
            let of_both = expected.iter().flat_map(|distance| [*distance; 2]);
            assert!(found.iter().map(|neighbour| neighbour.distance).eq(of_both.take(wanted)));
        }
    }
}
