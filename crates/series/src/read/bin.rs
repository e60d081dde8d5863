//! Equal stretches of time.

use tidefall_ground::search::leading;

/// Equal stretches of time that an aggregate is cut into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bin {
    /// The width of a bin in nanoseconds, above 0.
    pub width_ns: i64,
    /// A time at which a bin begins.
    pub origin_ns: i64,
}

impl Bin {
    /// The start of the bin that holds `time_ns`; the first nanosecond of time when the bin began
    /// before it.
    pub const fn start_of(&self, time_ns: i64) -> i64 {
        // Nearly all times are far from the ends of what 64 bits hold, where this is faster.
        if let Some(offset) = time_ns.checked_sub(self.origin_ns)
            && let Some(start) = time_ns.checked_sub(offset.rem_euclid(self.width_ns))
        {
            return start;
        }
        let offset = time_ns as i128 - self.origin_ns as i128;
        let start = time_ns as i128 - offset.rem_euclid(self.width_ns as i128);
        if start < i64::MIN as i128 { i64::MIN } else { start as i64 }
    }
}

/// Finds the bins of times that mostly ascend, without a division for each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bins {
    bin: Bin,
    /// The first and the last time of the bin found last, if it lies within time.
    known: (i64, i64),
}

/// Holds no time that comes behind another.
const NOTHING: (i64, i64) = (i64::MAX, i64::MIN);

impl Bins {
    pub(super) fn new(bin: Bin) -> Self {
        Self { bin, known: NOTHING }
    }

    /// As [`Bin::start_of`].
    #[inline]
    pub(super) fn start_of(&mut self, time_ns: i64) -> i64 {
        if self.known.0 <= time_ns && time_ns <= self.known.1 {
            return self.known.0;
        }
        self.find(time_ns)
    }

    fn find(&mut self, time_ns: i64) -> i64 {
        let (first_ns, last_ns) = self.known;
        let is_next = first_ns <= last_ns
            && last_ns < time_ns
            && last_ns.abs_diff(time_ns) <= self.bin.width_ns as u64;
        let start_ns = if is_next { last_ns + 1 } else { self.bin.start_of(time_ns) };
        self.known = match start_ns.checked_add(self.bin.width_ns - 1) {
            Some(last_ns) if start_ns > i64::MIN => (start_ns, last_ns),
            // A bin that began before time or ends behind it.
            _ => NOTHING,
        };
        start_ns
    }

    /// The start of the bin that holds the first of some times, which ascend, and how many of them it holds.
    /// There must be one.
    pub(super) fn leading(&mut self, times: &[i64]) -> (i64, usize) {
        let start_ns = self.start_of(times[0]);
        let (first_ns, last_ns) = self.known;
        let rows = match first_ns <= last_ns {
            true => leading(times, |time_ns| time_ns <= last_ns),
            false => leading(times, |time_ns| self.bin.start_of(time_ns) == start_ns),
        };
        (start_ns, rows)
    }

    /// Whether one bin holds both times, the second of which is not before the first.
    #[inline]
    pub(super) fn are_together(&mut self, first_ns: i64, last_ns: i64) -> bool {
        let start_ns = self.start_of(first_ns);
        last_ns <= self.known.1 || self.bin.start_of(last_ns) == start_ns
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn bins_found_one_after_the_other_are_those_found_alone() {
        let mut rng = StdRng::seed_from_u64(5);
        for round in 0..2000 {
            let width_ns = match round % 4 {
                0 => 1,
                1 => rng.random_range(1..100),
                2 => 3_600_000_000_000,
                _ => rng.random_range(1..=i64::MAX),
            };
            let origin_ns = if round % 3 == 0 { rng.random() } else { rng.random_range(-50..50) };
            let bin = Bin { width_ns, origin_ns };
            let mut bins = Bins::new(bin);
            let mut time_ns = match round % 5 {
                0 => i64::MIN,
                1 => i64::MAX - rng.random_range(0..1000),
                _ => rng.random_range(-100_000..100_000),
            };
            for _ in 0..200 {
                let step_ns = match rng.random_range(0..6) {
                    0 => rng.random_range(-300..300),
                    1 => width_ns,
                    2 => rng.random(),
                    _ => rng.random_range(0..30),
                };
                time_ns = time_ns.saturating_add(step_ns);
                assert_eq!(bins.start_of(time_ns), bin.start_of(time_ns), "{bin:?} {time_ns}");
                let later_ns = time_ns.saturating_add(rng.random_range(0..200));
                let is_same = bin.start_of(time_ns) == bin.start_of(later_ns);
                assert_eq!(bins.are_together(time_ns, later_ns), is_same, "{bin:?} {time_ns}");
            }
        }
    }

    #[test]
    fn the_times_of_a_bin_lie_side_by_side() {
        let mut rng = StdRng::seed_from_u64(6);
        for round in 0..2000 {
            let width_ns = [1, 7, 100, i64::MAX][round % 4];
            let bin = Bin { width_ns, origin_ns: rng.random_range(-50..50) };
            let first_ns = [i64::MIN, -200, i64::MAX - 300][round % 3];
            let mut times: Vec<i64> = (0..rng.random_range(1..60))
                .map(|_| first_ns.saturating_add(rng.random_range(0..300)))
                .collect();
            times.sort_unstable();
            let (mut bins, mut rest) = (Bins::new(bin), &times[..]);
            while !rest.is_empty() {
                let (start_ns, rows) = bins.leading(rest);
                let expected = rest.iter().take_while(|time| bin.start_of(**time) == start_ns);
                assert_eq!(start_ns, bin.start_of(rest[0]), "{bin:?} {rest:?}");
                assert_eq!(rows, expected.count(), "{bin:?} {rest:?}");
                rest = &rest[rows..];
            }
        }
    }
}
