//! The newest reading of each sensor, by which most writes are known to replace nothing.

use tidefall_types::TimeRange;

use super::Run;

/// The times from which on a table has no reading as yet.
#[derive(Debug)]
pub(crate) struct Newest {
    /// Of all sensors: what is in objects is not known sensor by sensor.
    free_ns: i64,
    /// Of sensors with rows that came by way of memory.
    of_sensors: Vec<i64>,
    /// The latest of all of these.
    latest_ns: i64,
}

impl Default for Newest {
    fn default() -> Self {
        Self { free_ns: i64::MIN, of_sensors: Vec::new(), latest_ns: i64::MIN }
    }
}

impl Newest {
    /// Takes note of rows. Returns those that are late, which may replace others: each of the rest is newer than all of its sensor that
    /// came before.
    pub(crate) fn take(&mut self, run: &Run) -> Vec<u32> {
        let sensors = *run.sensors.end() as usize + 1;
        if self.of_sensors.len() < sensors {
            self.of_sensors.resize(sensors, i64::MIN);
        }
        let mut late = Vec::new();
        for (row, (&sensor, &time_ns)) in (0..).zip(run.sensor.iter().zip(&run.time)) {
            let free_ns = &mut self.of_sensors[sensor as usize];
            // Behind the last nanosecond of time there is none that is free.
            if time_ns < self.free_ns.max(*free_ns) || time_ns == i64::MAX {
                late.push(row);
            }
            *free_ns = time_ns.saturating_add(1).max(*free_ns);
        }
        self.latest_ns = run.range.last_ns.saturating_add(1).max(self.latest_ns);
        late
    }

    /// Takes note of rows of whatever sensors. Returns whether all are newer than all that came before.
    pub(crate) fn take_all_within(&mut self, time: &TimeRange) -> bool {
        if time.is_empty() {
            return true;
        }
        let are_new = time.first_ns >= self.latest_ns && time.last_ns < i64::MAX;
        self.free_ns = time.last_ns.saturating_add(1).max(self.free_ns);
        self.latest_ns = self.latest_ns.max(self.free_ns);
        are_new
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use tidefall_types::Seq;

    use super::*;

    #[test]
    fn rows_are_late_that_are_not_newer_than_all_of_their_sensor() {
        for seed in 0..200 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut newest, mut of_sensors, mut free_ns) =
                (Newest::default(), HashMap::<u32, i64>::new(), i64::MIN);
            for _ in 0..20 {
                if rng.random_range(0..8) == 0 {
                    let (one, other) = (rng.random_range(0..100), rng.random_range(0..100));
                    let known = of_sensors.values().map(|at| at + 1).max();
                    let expected = known.is_none_or(|known| known <= one) && free_ns <= one;
                    assert_eq!(
                        newest.take_all_within(&TimeRange::new(one, other)),
                        one > other || expected
                    );
                    if one <= other {
                        free_ns = free_ns.max(other + 1);
                    }
                    continue;
                }
                let rows = rng.random_range(1..30);
                let sensor: Vec<u32> = (0..rows).map(|_| rng.random_range(0..5)).collect();
                let time: Vec<i64> = (0..rows).map(|_| rng.random_range(0..100)).collect();
                let mut expected = Vec::new();
                for (row, (sensor, at)) in (0..).zip(sensor.iter().zip(&time)) {
                    let before = of_sensors.entry(*sensor).or_insert(i64::MIN);
                    if *at < free_ns || at <= before {
                        expected.push(row);
                    }
                    *before = (*before).max(*at);
                }
                let run = Run::new((Seq(1), Seq(1)), sensor.into(), time.into(), Vec::new());
                assert_eq!(newest.take(&run), expected, "seed {seed}");
            }
        }
    }
}
