use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::order::LEAF_ROWS;
use crate::region::{Region, Side};
use crate::testing::{both, inside, layout, one_dimension, regions, rows, shown};

/// Each row as a text of all its columns.
fn whole_rows(columns: &[ArrayRef]) -> Vec<String> {
    let columns: Vec<Vec<String>> = columns.iter().map(|column| shown(&**column)).collect();
    let rows = columns.first().map_or(0, Vec::len);
    (0..rows)
        .map(|row| columns.iter().map(|column| format!("{} ", column[row])).collect())
        .collect()
}

#[test]
fn answers_are_those_of_a_list_of_rows() {
    let mut rng = SmallRng::seed_from_u64(11);
    let rounds = if cfg!(debug_assertions) { 60 } else { 200 };
    for round in 0..rounds {
        let count = [1, 5, LEAF_ROWS, LEAF_ROWS + 3, CELL_ROWS + 1, 2 * CELL_ROWS + 777][round % 6];
        let (layout, columns) = (layout(), rows(&mut rng, count));
        let packed = Packed::new(&layout, &columns).unwrap();
        let all_places: Vec<usize> = (0..layout.columns.len()).collect();
        let listed = whole_rows(&columns);
        let places = both(packed);
        for _ in 0..4 {
            let asked = match rng.random_bool(0.2) {
                true => Regions::all(layout.dimensions.len()),
                false => regions(&mut rng, &layout, &columns),
            };
            let hidden = match rng.random_bool(0.5) {
                true => Regions::default(),
                false => regions(&mut rng, &layout, &columns),
            };
            let is_asked = inside(&layout, &columns, &asked);
            let is_hidden = inside(&layout, &columns, &hidden);
            let kept: Vec<usize> =
                (0..count).filter(|row| is_asked[*row] && !is_hidden[*row]).collect();
            let mut expected: Vec<&String> = kept.iter().map(|row| &listed[*row]).collect();
            expected.sort();
            for place in &places {
                let touched = Touched::new(place, std::slice::from_ref(&asked), &hidden);
                let mut found = Vec::new();
                for cell in touched.cells() {
                    let (rows, columns) = touched.columns_of(cell, &all_places).unwrap();
                    let whole = whole_rows(&columns);
                    assert_eq!(whole.len(), rows);
                    found.extend(whole);
                }
                found.sort();
                assert!(
                    found.iter().eq(expected.iter().copied()),
                    "{} rows, not {}",
                    found.len(),
                    expected.len()
                );
                let (rows, totals) = touched.totals(&all_places).unwrap();
                assert_eq!(rows, kept.len() as u64);
                check_totals(&layout, &columns, &is_asked, &is_hidden, &totals);
                let effort = touched.effort();
                assert!(
                    effort.cut <= effort.leaves && effort.leaves <= place.leaves().len() as u64
                );
            }
        }
    }
}

fn check_totals(
    layout: &Layout,
    columns: &[ArrayRef],
    is_asked: &[bool],
    is_hidden: &[bool],
    totals: &[Total],
) {
    let is_kept = |row: &u32| is_asked[*row as usize] && !is_hidden[*row as usize];
    let kept: Vec<u32> = (0..is_asked.len() as u32).filter(is_kept).collect();
    for (((_, ty), column), found) in layout.columns.iter().zip(columns).zip(totals) {
        let mut expected = Total::of_type(*ty);
        expected.add_some(&**column, &kept);
        assert_eq!(
            (found.count, found.least, found.greatest),
            (expected.count, expected.least, expected.greatest),
            "{ty:?}"
        );
        let (sum, exact) = (found.sum.to_f64(), expected.sum.to_f64());
        let is_near = (sum - exact).abs() <= 1e-9 * exact.abs().max(1.0);
        assert!(
            sum.to_bits() == exact.to_bits()
                || is_near
                || sum.is_nan() && exact.is_nan()
                || sum.is_infinite(),
            "{ty:?}: {sum}, not {exact}"
        );
    }
}

#[test]
fn leaves_inside_are_answered_without_their_rows() {
    let (layout, columns) = one_dimension((0..20 * LEAF_ROWS as i64).collect());
    let places = both(Packed::new(&layout, &columns).unwrap());
    let region = Region::new(vec![Side::new(100, 20 * LEAF_ROWS as i64 - 100)]);
    let (asked, hidden) = (Regions::of([region]), Regions::default());
    for place in &places {
        let touched = Touched::new(place, std::slice::from_ref(&asked), &hidden);
        assert_eq!(touched.effort(), Effort { leaves: 20, cut: 2, rows: 2 * LEAF_ROWS as u64 });
        let (rows, totals) = touched.totals(&[0]).unwrap();
        assert_eq!(rows, 20 * LEAF_ROWS as u64 - 199);
        assert_eq!((totals[0].least, totals[0].greatest), (100, 20 * LEAF_ROWS as i64 - 100));
    }
}

#[test]
fn a_row_without_a_place_is_refused() {
    let (layout, _) = one_dimension(Vec::new());
    let column: ArrayRef = Arc::new(arrow_array::Int64Array::from(vec![Some(1), None]));
    let error = Packed::new(&layout, &[column]).unwrap_err();
    assert!(error.message().contains("lacks the value of a dimension"), "{error}");
}
