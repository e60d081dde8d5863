//! Time, cut into stretches that hold ever more rows, so that a reader who wants a few rows from one end of time reads
//! little, and one who wants all of them reads not much more often than in one go.

use tidefall_types::{Result, TimeRange};

use super::parts::{Part, Sources};
use super::request::{BATCH_ROWS, TimeOrder};

/// How many times as many rows the stretches up to the next one hold. Each stretch costs a look at each sensor.
const GROWTH: f64 = 8.0;

/// Rows of each sensor in the first stretch, on average, so that what a sensor costs by itself does not count.
const ROWS_PER_SENSOR: usize = 4;

/// Parts that are looked at to find the stretches at most; with more, all of time is one stretch: finding the parts
/// would take longer than reading many of them.
const PARTS_MAX: usize = 64 * 1024;

/// Rows that lie evenly in a stretch of time.
#[derive(Debug, Clone, Copy)]
struct Weight {
    time: TimeRange,
    rows: f64,
    /// Rows of a nanosecond.
    density: f64,
}

impl Weight {
    fn new(time: TimeRange, rows: f64) -> Self {
        Self { time, rows, density: rows / (time.last_ns.abs_diff(time.first_ns) as f64 + 1.0) }
    }

    /// The rows at `from_ns` and later.
    #[inline]
    fn rows_from(&self, from_ns: i64) -> f64 {
        if from_ns <= self.time.first_ns {
            self.rows
        } else if from_ns > self.time.last_ns {
            0.0
        } else {
            (self.time.last_ns.abs_diff(from_ns) as f64 + 1.0) * self.density
        }
    }
}

/// Stretches that together are `time` and overlap nowhere, in the given order.
pub(super) fn stretches(
    sources: &Sources,
    sensors: &[u32],
    time: &TimeRange,
    order: TimeOrder,
) -> Result<Vec<TimeRange>> {
    let mut weights = Vec::new();
    if sensors.len() > PARTS_MAX {
        return Ok(vec![*time]);
    }
    for sensor in sensors {
        let parts = sources.parts(*sensor, time)?;
        let weight = |part: &Part| Weight::new(part.time, part.rows_within(time) as f64);
        weights.extend(parts.iter().map(weight));
        if weights.len() > PARTS_MAX {
            return Ok(vec![*time]);
        }
    }
    let first = BATCH_ROWS.max(sensors.len() * ROWS_PER_SENSOR) as f64;
    Ok(cut(&weights, time, first, order))
}

fn cut(weights: &[Weight], time: &TimeRange, first: f64, order: TimeOrder) -> Vec<TimeRange> {
    let all: f64 = weights.iter().map(|weight| weight.rows).sum();
    let (mut stretches, mut left, mut wanted) = (Vec::new(), *time, first);
    // A last stretch that is small beside the one before it is not worth a look at all sensors.
    while wanted * 2.0 < all && !left.is_empty() {
        let (near, rest) = match order {
            TimeOrder::NewestFirst => {
                let from = last_with(&left, |ns| rows_from(weights, ns) >= wanted);
                (
                    TimeRange::new(from, left.last_ns),
                    from.checked_sub(1).map(|last| TimeRange::new(left.first_ns, last)),
                )
            }
            TimeOrder::OldestFirst => {
                let before = last_with(&left, |ns| all - rows_from(weights, ns) <= wanted);
                let last = before.saturating_sub(1).max(left.first_ns);
                (
                    TimeRange::new(left.first_ns, last),
                    last.checked_add(1).map(|first| TimeRange::new(first, left.last_ns)),
                )
            }
        };
        stretches.push(near);
        left = rest.unwrap_or(TimeRange::new(0, -1));
        wanted *= GROWTH;
    }
    if !left.is_empty() {
        stretches.push(left);
    }
    stretches
}

/// The last time of a range for which a condition holds that holds up to some time and never behind it; the first
/// time if it never does.
fn last_with(range: &TimeRange, holds: impl Fn(i64) -> bool) -> i64 {
    let (mut low, mut high) = (i128::from(range.first_ns), i128::from(range.last_ns));
    while low < high {
        let middle = low + (high - low + 1) / 2;
        match holds(middle as i64) {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    low as i64
}

/// The rows at `from_ns` and later.
fn rows_from(weights: &[Weight], from_ns: i64) -> f64 {
    weights.iter().map(|weight| weight.rows_from(from_ns)).sum()
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// They are all of time, once, in order, and the first ones hold few rows.
    #[test]
    fn stretches_are_all_of_time_in_order() {
        let mut rng = SmallRng::seed_from_u64(5);
        for round in 0..300 {
            let time = match round % 4 {
                0 => TimeRange::ALL,
                1 => TimeRange::new(i64::MIN, 40),
                2 => TimeRange::new(-7, i64::MAX),
                _ => TimeRange::new(-50, 90),
            };
            let weights: Vec<Weight> = (0..rng.random_range(0..20))
                .map(|_| {
                    let first = rng.random_range(-50..60);
                    let last = first + rng.random_range(0..[1, 30][round % 2]);
                    let rows = f64::from(rng.random_range(1..900));
                    Weight::new(TimeRange::new(first, last), rows)
                })
                .collect();
            for order in [TimeOrder::NewestFirst, TimeOrder::OldestFirst] {
                let mut found = cut(&weights, &time, 10.0, order);
                if order == TimeOrder::NewestFirst {
                    found.reverse();
                }
                assert_eq!(found.first().map(|one| one.first_ns), Some(time.first_ns), "{round}");
                assert_eq!(found.last().map(|one| one.last_ns), Some(time.last_ns), "{round}");
                for pair in found.windows(2) {
                    assert!(pair.iter().all(|one| !one.is_empty()), "{round}: {found:?}");
                    assert_eq!(pair[0].last_ns + 1, pair[1].first_ns, "{round}: {found:?}");
                }
            }
        }
    }

    #[test]
    fn a_lone_row_far_off_does_not_count_as_time() {
        let weights = [
            Weight::new(TimeRange::new(0, 999_999), 100_000.0),
            Weight::new(TimeRange::new(1 << 60, 1 << 60), 1.0),
        ];
        let found = cut(&weights, &TimeRange::ALL, 1000.0, TimeOrder::NewestFirst);
        let firsts: Vec<i64> = found.iter().map(|one| one.first_ns).collect();
        assert!((989_000..=991_000).contains(&firsts[0]), "{found:?}");
        assert!((919_000..=921_000).contains(&firsts[1]), "{found:?}");
        let found = cut(&weights, &TimeRange::ALL, 1000.0, TimeOrder::OldestFirst);
        assert!((9_000..=11_000).contains(&found[0].last_ns), "{found:?}");
        assert_eq!(cut(&[], &TimeRange::ALL, 1000.0, TimeOrder::NewestFirst), [TimeRange::ALL]);
    }
}
