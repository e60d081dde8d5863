//! About how many rows a question is, from what is known of runs and objects without reading any.

use tidefall_types::TimeRange;

use super::parts::Sources;

/// The rows of a table within `time`, about: those of each place lie evenly in its time.
pub(super) fn rows_about(sources: &Sources, time: &TimeRange) -> f64 {
    let objects = sources.version.objects.within(time);
    let objects = objects.map(|object| (object.entry.time, object.entry.rows as f64));
    let runs = sources.runs.iter().map(|run| (run.range, run.rows() as f64));
    objects.chain(runs).map(|(span, rows)| rows * share(&span, time)).sum()
}

/// The part of the sensors of a table that so many are, about: those of some are not among these places.
pub(super) fn share_of_sensors(sources: &Sources, sensors: usize) -> f64 {
    let objects = sources.version.objects.iter().map(|object| object.entry.last_sensor);
    let last = objects.chain(sources.runs.iter().map(|run| *run.sensors.end())).max();
    (sensors as f64 / (f64::from(last.unwrap_or(0)) + 1.0)).min(1.0)
}

/// The part of `span` that lies within `time`.
fn share(span: &TimeRange, time: &TimeRange) -> f64 {
    let length = |range: &TimeRange| i128::from(range.last_ns) - i128::from(range.first_ns) + 1;
    match span.overlaps(time) {
        true => length(&span.intersect(time)) as f64 / length(span) as f64,
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_parts_of_time() {
        let share = |span: (i64, i64), time: (i64, i64)| {
            share(&TimeRange::new(span.0, span.1), &TimeRange::new(time.0, time.1))
        };
        assert_eq!(share((0, 9), (0, 9)), 1.0);
        assert_eq!(share((0, 9), (5, 20)), 0.5);
        assert_eq!(share((0, 9), (10, 20)), 0.0);
        assert_eq!(share((3, 3), (i64::MIN, i64::MAX)), 1.0);
        assert_eq!(share((i64::MIN, i64::MAX), (i64::MIN, -1)), 0.5);
        assert_eq!(share((0, 9), (0, -1)), 0.0);
    }
}
