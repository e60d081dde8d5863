//! The newest reading of each sensor, by which most writes are known to replace nothing.

use tidefall_types::TimeRange;

use super::late::{Group, NO_TIMES};
use super::{Late, Run};

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
    /// Takes note of rows. Returns those that are not newer than all of their sensor that came before: no other replaces one. Those with times
    /// before `apart_ns` are a group of their own.
    pub(crate) fn take(&mut self, run: &Run, apart_ns: i64) -> Late {
        let sensors = *run.sensors.end() as usize + 1;
        if self.of_sensors.len() < sensors {
            self.of_sensors.resize(sensors, i64::MIN);
        }
        let (mut others, mut are_behind_memory) = (NO_TIMES, true);
        let mut late = [const { (Vec::new(), NO_TIMES) }; 2];
        for (row, (&sensor, &time_ns)) in (0..).zip(run.sensor.iter().zip(&run.time)) {
            let free_ns = &mut self.of_sensors[sensor as usize];
            // Nothing is newer than the last time that there is.
            let is_in_memory = time_ns < *free_ns || time_ns == i64::MAX;
            if is_in_memory || time_ns < self.free_ns {
                let (rows, times) = &mut late[usize::from(time_ns >= apart_ns)];
                rows.push(row);
                times.first_ns = times.first_ns.min(time_ns);
                times.last_ns = times.last_ns.max(time_ns);
                are_behind_memory &= !is_in_memory;
            } else {
                others.first_ns = others.first_ns.min(time_ns);
                others.last_ns = others.last_ns.max(time_ns);
            }
            *free_ns = time_ns.saturating_add(1).max(*free_ns);
        }
        self.latest_ns = run.range.last_ns.saturating_add(1).max(self.latest_ns);
        let groups = late.into_iter().filter(|(rows, _)| !rows.is_empty());
        let groups = groups.map(|(rows, times)| Group::new(rows, times)).collect();
        Late::new(groups, others, are_behind_memory)
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
