//! Rows that came late, in an order in which those of some sensors and times are found.

use std::ops::{Range, RangeInclusive};

use tidefall_types::{Day, TimeRange};

/// A row that came late. Those of a day are ordered by sensor and time: most objects have rows of one day, of all sensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LateRow {
    day: i32,
    pub(super) sensor: u32,
    pub(super) time_ns: i64,
    /// The place of its run among the sources.
    pub(super) run: u32,
    /// Where it is in its run.
    pub(super) row: u32,
}

impl LateRow {
    pub(super) fn new(sensor: u32, time_ns: i64, run: u32, row: u32) -> Self {
        Self { day: Day::of(time_ns).0, sensor, time_ns, run, row }
    }

    /// A number for its place in the order of days, sensors and times: one comparison, which is no branch, takes half the time of three.
    fn place(&self) -> u128 {
        let unsigned_day = u128::from((self.day ^ i32::MIN).cast_unsigned());
        let unsigned_time = u128::from((self.time_ns ^ i64::MIN).cast_unsigned());
        unsigned_day << 96 | u128::from(self.sensor) << 64 | unsigned_time
    }

    /// What it is a reading of.
    pub(super) fn key(&self) -> (u32, i64) {
        (self.sensor, self.time_ns)
    }
}

/// Late rows in their order.
#[derive(Debug, Default)]
pub(super) struct LateRows {
    rows: Vec<LateRow>,
    /// Where those of each day are.
    days: Vec<Range<usize>>,
}

impl LateRows {
    /// One of each reading, the first of them; `repeat` is called with the others.
    pub(super) fn new(mut rows: Vec<LateRow>, mut repeat: impl FnMut(&LateRow)) -> Self {
        rows.sort_unstable_by(|one, other| {
            let places = one.place().cmp(&other.place());
            places.then_with(|| (one.run, one.row).cmp(&(other.run, other.row)))
        });
        rows.dedup_by(|next, first| {
            let is_repeat = next.key() == first.key();
            if is_repeat {
                repeat(next);
            }
            is_repeat
        });
        let mut start = 0;
        let days = rows.chunk_by(|one, next| one.day == next.day).map(|day| {
            start += day.len();
            start - day.len()..start
        });
        let days = days.collect();
        Self { rows, days }
    }

    /// All of them.
    pub(super) fn iter(&self) -> std::slice::Iter<'_, LateRow> {
        self.rows.iter()
    }

    /// All of their times, or more; nothing when there are none.
    pub(super) fn time(&self) -> Option<TimeRange> {
        let times = self.rows.iter().map(|row| (row.time_ns, row.time_ns));
        let ends = times.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)));
        ends.map(|(first_ns, last_ns)| TimeRange::new(first_ns, last_ns))
    }

    /// The row of a reading.
    pub(super) fn find(&self, sensor: u32, time_ns: i64) -> Option<&LateRow> {
        let key = (Day::of(time_ns).0, sensor, time_ns);
        let at = self.rows.partition_point(|row| (row.day, row.sensor, row.time_ns) < key);
        self.rows.get(at).filter(|row| row.key() == (sensor, time_ns))
    }

    /// Those of some sensors within a stretch of time, which is not empty.
    pub(super) fn within(
        &self,
        sensors: RangeInclusive<u32>,
        time: TimeRange,
    ) -> impl Iterator<Item = &LateRow> + use<'_> {
        let (first, last) = sensors.into_inner();
        let (from, upto) = (Day::of(time.first_ns).0, Day::of(time.last_ns).0);
        let start = self.days.partition_point(|day| self.rows[day.start].day < from);
        let end = self.days.partition_point(|day| self.rows[day.start].day <= upto);
        let days = self.days[start..end.max(start)].iter().map(|day| &self.rows[day.clone()]);
        let of_sensors = days.flat_map(move |day| {
            let behind = &day[day.partition_point(|row| row.sensor < first)..];
            &behind[..behind.partition_point(|row| row.sensor <= last)]
        });
        of_sensors.filter(move |row| time.contains(row.time_ns))
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use tidefall_types::NS_PER_DAY;

    use super::*;

    #[test]
    fn rows_are_found_by_sensors_and_times() {
        let mut rng = SmallRng::seed_from_u64(14);
        for round in 0..200 {
            let days = [1, 3, 1_000][round % 3];
            let mut time = || match rng.random_range(0..30) {
                0 => [i64::MIN, i64::MAX][rng.random_range(0..2)],
                _ => rng.random_range(-days..days) * NS_PER_DAY + rng.random_range(-3..3),
            };
            let times: Vec<i64> = (0..300).map(|_| time()).collect();
            let (one, other) = (time(), time());
            let range = TimeRange::new(one.min(other), one.max(other));
            let mut rows: Vec<LateRow> = (0..)
                .zip(&times)
                .map(|(row, time)| LateRow::new(rng.random_range(0..20), *time, row / 100, row))
                .collect();
            let (mut repeats, mut all) = (Vec::new(), rows.clone());
            all.sort_by_key(|row| (row.key(), row.run, row.row));
            let late = LateRows::new(std::mem::take(&mut rows), |row| repeats.push(*row));
            for same in all.chunk_by(|one, next| one.key() == next.key()) {
                assert!(same[1..].iter().all(|row| repeats.contains(row)));
                assert_eq!(late.find(same[0].sensor, same[0].time_ns), Some(&same[0]));
            }
            assert_eq!(late.iter().count() + repeats.len(), all.len());
            assert_eq!(late.find(20, times[0]), None);
            all.dedup_by_key(|row| row.key());
            let ends = |ends: fn(&TimeRange) -> i64| late.time().map(|time| ends(&time));
            assert_eq!(ends(|time| time.first_ns), times.iter().min().copied());
            assert_eq!(ends(|time| time.last_ns), times.iter().max().copied());
            let sensors = rng.random_range(0..12)..=rng.random_range(0..25);
            let is_within =
                |row: &&LateRow| sensors.contains(&row.sensor) && range.contains(row.time_ns);
            let mut found: Vec<&LateRow> = late.within(sensors.clone(), range).collect();
            found.sort_by_key(|row| row.key());
            let expected: Vec<&LateRow> = all.iter().filter(is_within).collect();
            assert_eq!(found, expected, "round {round}");
        }
    }
}
