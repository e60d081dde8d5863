use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::*;

/// What values come to before it is rounded once: Shewchuk's partial sums (1997), of which no two overlap.
fn exact_sum(values: &[f64]) -> f64 {
    let mut parts: Vec<f64> = Vec::new();
    for &value in values {
        let mut carried = value;
        let mut left = Vec::new();
        for &part in &parts {
            let (large, small) =
                if carried.abs() < part.abs() { (part, carried) } else { (carried, part) };
            let sum = large + small;
            let lost = small - (sum - large);
            if lost != 0.0 {
                left.push(lost);
            }
            carried = sum;
        }
        left.push(carried);
        parts = left;
    }
    parts.iter().sum()
}

/// How many steps from one float to the next lie between two.
fn steps_between(one: f64, other: f64) -> f64 {
    (one - other).abs() / (one.abs().max(other.abs()) * f64::EPSILON / 2.0).max(f64::MIN_POSITIVE)
}

/// Sums were rounded within what a sum of so many values might lose, and so to whole numbers where large values cancel out.
#[test]
fn sums_are_what_the_values_come_to() {
    let mut rng = SmallRng::seed_from_u64(8);
    for round in 0..300 {
        let count = rng.random_range(1..4_000);
        let digits = [1.0, 10.0, 1_000.0, 1e9][round % 4];
        let mut values: Vec<f64> = (0..count)
            .map(|_| (rng.random_range(-1e3..3e3_f64) * digits).round() / digits)
            .collect();
        let exponent = rng.random_range(0..16);
        for _ in 0..[0, 1, 50][round % 3] {
            let large = rng.random::<f64>() * 10_f64.powi(exponent);
            values.extend([large, -large]);
        }
        values.shuffle(&mut rng);
        let exact = exact_sum(&values);
        let totals: Totals<f64> = Totals::of(&values);
        // The rest is right to about 2^-106 of all that was added.
        let all: f64 = values.iter().map(|value| value.abs()).sum();
        let unknown = all * f64::EPSILON * f64::EPSILON * values.len() as f64;
        let distance = (totals.sum - exact).abs() - unknown;
        assert!(distance <= exact.abs() * f64::EPSILON, "{} is not {exact}", totals.sum);
        assert_eq!(totals.sum_f64, totals.sum);
        let settled = totals.sum.settle_sum();
        assert!(steps_between(settled, totals.sum) <= 4.0, "{settled} is not {}", totals.sum);
    }
    let mut values = vec![0.1; 10_000];
    values.extend([1e16, 3.7, -1e16]);
    let totals: Totals<f64> = Totals::of(&values);
    assert_eq!(totals.sum, 1003.7);
    assert_eq!(totals.sum.settle_sum(), 1003.7);
}

#[test]
fn decimals_come_to_decimals() {
    let mut rng = SmallRng::seed_from_u64(9);
    for _ in 0..1_000 {
        let count = rng.random_range(1..100);
        let hundredths: Vec<i64> = (0..count).map(|_| rng.random_range(1_000..3_000)).collect();
        let values: Vec<f64> = hundredths.iter().map(|value| *value as f64 / 100.0).collect();
        let sum = Totals::<f64>::of(&values).sum.settle_sum();
        assert_eq!(sum, hundredths.iter().sum::<i64>() as f64 / 100.0);
    }
}

#[test]
fn sums_of_what_is_not_finite_are_as_ever() {
    const INF: f64 = f64::INFINITY;
    let sum = |values: &[f64]| Totals::<f64>::of(values).sum;
    for more in [0, 40] {
        let with = |values: &[f64]| {
            let mut values = values.to_vec();
            values.resize(values.len() + more, 1.5);
            sum(&values)
        };
        assert_eq!(with(&[INF, 1.0]), INF);
        assert_eq!(with(&[1.0, -INF, -INF]), -INF);
        assert_eq!(with(&[f64::MAX, f64::MAX]), INF);
        assert!(with(&[INF, -INF]).is_nan());
        assert!(with(&[1.0, f64::NAN]).is_nan());
    }
}

/// The mean of whole numbers that cancel out was what their floats leave.
#[test]
fn sums_that_wrap_around_are_found_again() {
    let mut rng = SmallRng::seed_from_u64(10);
    for _ in 0..300 {
        let count = rng.random_range(1..2_000);
        let bits = rng.random_range(1..64);
        let ints: Vec<i64> = (0..count).map(|_| rng.random::<i64>() >> (63 - bits)).collect();
        let totals: Totals<i64> = Totals::of(&ints);
        let exact: i128 = ints.iter().map(|int| i128::from(*int)).sum();
        assert_eq!(totals.sum.unwrapped(totals.sum_f64), exact as f64);
        let uints: Vec<u64> = (0..count).map(|_| rng.random::<u64>() >> (63 - bits)).collect();
        let totals: Totals<u64> = Totals::of(&uints);
        let exact: i128 = uints.iter().map(|uint| i128::from(*uint)).sum();
        assert_eq!(totals.sum.unwrapped(totals.sum_f64), exact as f64);
    }
    for ends in [vec![i64::MAX; 1_000], vec![i64::MIN; 1_000], vec![i64::MIN, i64::MAX]] {
        let totals: Totals<i64> = Totals::of(&ends);
        let exact: i128 = ends.iter().map(|int| i128::from(*int)).sum();
        assert_eq!(totals.sum.unwrapped(totals.sum_f64), exact as f64);
    }
}
