//! Rows in memory on their way to objects: those of a flush and those of a load.

use std::ops::Range;

use tidefall_ground::manifest::series::{Model, ObjectEntry};
use tidefall_ground::texts::{PIECE_TEXT_BYTES, first_within};
use tidefall_ground::written::Written;
use tidefall_types::{Day, Month, Result, Seq, TableSchema, TimeRange};

use super::pieces::PIECE_ROWS;
use super::rewrite::{
    Estimate, Output, may_have_filters, write_in_turn, write_object, write_side_by_side,
};
use crate::context::Context;
use crate::rows::SeriesSet;
use crate::segment::encode::Stretch;
use crate::table::Table;

/// The first and the last time of all rows.
pub(super) fn extent(series: &impl SeriesSet) -> Option<TimeRange> {
    extent_within(series, &TimeRange::ALL)
}

/// The first and the last time of all rows within a stretch of time.
pub(super) fn extent_within(series: &impl SeriesSet, time: &TimeRange) -> Option<TimeRange> {
    let ends = |place| {
        let rows = within(series, place, time);
        let last = rows.clone().next_back()?;
        Some(TimeRange::new(series.time(place, rows.start), series.time(place, last)))
    };
    (0..series.sensors()).filter_map(ends).reduce(|one, other| one.union(&other))
}

/// The rows of a sensor within a stretch of time.
pub(super) fn within(series: &impl SeriesSet, place: usize, time: &TimeRange) -> Range<usize> {
    let first = partition_point(series, place, |at| at < time.first_ns);
    let end = partition_point(series, place, |at| at <= time.last_ns);
    first..end.max(first)
}

/// The days within a stretch of time that have rows.
pub(super) fn days_of(series: &impl SeriesSet, time: &TimeRange) -> Vec<Day> {
    occupied(series, time, |at| (Day::of(at), Day::of(at).range()))
}

/// The months within a stretch of time that have rows.
pub(super) fn months_of(series: &impl SeriesSet, time: &TimeRange) -> Vec<Month> {
    occupied(series, time, |at| (Month::of(at), Month::of(at).range()))
}

/// Goes from one row to the next behind the day or month in which it lies, as there may be centuries between them.
fn occupied<T>(
    series: &impl SeriesSet,
    time: &TimeRange,
    at: impl Fn(i64) -> (T, TimeRange),
) -> Vec<T> {
    let mut found = Vec::new();
    let mut from_ns = Some(time.first_ns);
    while let Some(from) = from_ns {
        let next = |place| {
            let row = partition_point(series, place, |time| time < from);
            (row < series.rows(place)).then(|| series.time(place, row))
        };
        let first_ns = (0..series.sensors()).filter_map(next).min();
        let Some(first_ns) = first_ns.filter(|first_ns| *first_ns <= time.last_ns) else { break };
        let (stretch, range) = at(first_ns);
        found.push(stretch);
        from_ns = range.last_ns.checked_add(1);
    }
    found
}

/// The first row of a sensor of whose time something does not hold that holds of all earlier ones.
fn partition_point(series: &impl SeriesSet, place: usize, holds: impl Fn(i64) -> bool) -> usize {
    let (mut low, mut high) = (0, series.rows(place));
    while low < high {
        let middle = low + (high - low) / 2;
        match holds(series.time(place, middle)) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

/// What one object is written of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) model: Model,
    pub(super) time: TimeRange,
    /// Whether its rows came late, all of them.
    pub(super) is_late: bool,
}

/// Writes an object for each span that holds rows, which have the fields of `schema`.
pub(super) fn write_series(
    context: &Context,
    table: &Table,
    schema: &TableSchema,
    series: &impl SeriesSet,
    spans: &[Span],
    seq: Seq,
    written: &Written,
) -> Result<Vec<ObjectEntry>> {
    let fields = schema.typed_fields();
    let Some(all) = extent(series) else { return Ok(Vec::new()) };
    let (block_ns, threads) = (schema.options.block_ns, context.ground.threads());
    let write = |span: &Span, threads| {
        let rows: Vec<(usize, Range<usize>)> = (0..series.sensors())
            .map(|place| (place, within(series, place, &span.time)))
            .filter(|(_, rows)| !rows.is_empty())
            .collect();
        let estimate = Estimate {
            rows: rows.iter().map(|(_, rows)| rows.len() as u64).sum(),
            sensors: series.sensors() as u64,
            time: span.time.intersect(&all),
        };
        let pieces = pieces(series, rows, estimate.interval_ns(block_ns));
        let has_filters = span.is_late && may_have_filters(span.model);
        let (table, model, fields) = (table.id, span.model, &fields[..]);
        let output = Output { table, model, fields, seq, block_ns, estimate, has_filters, threads };
        write_object(context, output, &pieces, |(place, rows), each| {
            let rows = Stretch::Rows(series.read(*place, rows.clone())?);
            each(series.sensor(*place), &[rows])
        })
    };
    let (days, others): (Vec<_>, Vec<_>) =
        spans.iter().partition(|span| span.model == Model::Short);
    let mut objects = match has_equal_shares(series, &days, threads) {
        true => write_side_by_side(written, threads, &days, |span| write(span, 1))?,
        false => write_in_turn(written, &days, |span| write(span, threads))?,
    };
    objects.extend(write_in_turn(written, &others, |span| write(span, threads))?);
    Ok(objects)
}

/// Sensors whose rows are counted to tell how they are spread over days.
const SAMPLE_SENSORS: usize = 256;

/// Whether no day has so many of the rows that the threads would wait for the one that writes it.
fn has_equal_shares(series: &impl SeriesSet, days: &[&Span], threads: usize) -> bool {
    let step = series.sensors().div_ceil(SAMPLE_SENSORS).max(1);
    let rows = |day: &&Span| -> usize {
        let places = (0..series.sensors()).step_by(step);
        places.map(|place| within(series, place, &day.time).len()).sum()
    };
    let (largest, all) = days
        .iter()
        .map(rows)
        .fold((0, 0), |(largest, all): (usize, usize), rows| (largest.max(rows), all + rows));
    threads > 1 && largest * threads <= all
}

/// Rows of sensors, in pieces that several threads can encode. They end where a block of metrics does, unless that
/// alone is larger than a piece; rows of one time stay together.
fn pieces(
    series: &impl SeriesSet,
    rows: Vec<(usize, Range<usize>)>,
    interval_ns: i64,
) -> Vec<(usize, Range<usize>)> {
    let fits = |place: usize, rows: &Range<usize>| {
        rows.len() <= PIECE_ROWS && series.text_bytes(place, rows.clone()) <= PIECE_TEXT_BYTES
    };
    if rows.iter().all(|(place, rows)| fits(*place, rows)) {
        return rows;
    }
    let mut pieces = Vec::with_capacity(rows.len());
    for (place, mut rest) in rows {
        while rest.len() > 1 && !fits(place, &rest) {
            let bytes = |count| series.text_bytes(place, rest.start..rest.start + count);
            // The last row is behind: not all of them fit.
            let count = PIECE_ROWS.min(rest.len() - 1);
            let next = rest.start + first_within(count, PIECE_TEXT_BYTES, bytes);
            let block = series.time(place, next).div_euclid(interval_ns);
            let mut end = partition_point(series, place, |at| at.div_euclid(interval_ns) < block);
            if end <= rest.start {
                // Rows of one time stay together.
                let last = series.time(place, next - 1);
                end = partition_point(series, place, |at| at <= last).min(rest.end);
            }
            pieces.push((place, rest.start..end));
            rest.start = end;
        }
        if !rest.is_empty() {
            pieces.push((place, rest));
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use tidefall_types::NS_PER_DAY;

    use super::*;
    use crate::rows::SensorRows;

    fn series(times: Vec<Vec<i64>>) -> Vec<(u32, SensorRows)> {
        let rows = |times: Vec<i64>| SensorRows { times: times.into(), fields: Vec::new() };
        (0..).zip(times.into_iter().map(rows)).collect()
    }

    #[test]
    fn days_and_months_are_those_with_rows() {
        let mut rng = SmallRng::seed_from_u64(6);
        for round in 0..300 {
            let mut time = || match round % 3 {
                0 => rng.random(),
                1 => rng.random_range(-90..90) * NS_PER_DAY,
                _ => [i64::MIN, i64::MAX, 0, -1][rng.random_range(0..4)],
            };
            let (one, other) = (time(), time());
            let range = TimeRange::new(one.min(other), one.max(other));
            let mut times: Vec<Vec<i64>> =
                (0..4).map(|_| (0..6).map(|_| time()).collect()).collect();
            for times in &mut times {
                times.sort_unstable();
                times.dedup();
            }
            let mut within: Vec<i64> = times.concat();
            within.retain(|time| range.contains(*time));
            within.sort_unstable();
            let mut days: Vec<Day> = within.iter().map(|time| Day::of(*time)).collect();
            days.dedup();
            let mut months: Vec<Month> = within.iter().map(|time| Month::of(*time)).collect();
            months.dedup();
            let series = series(times);
            assert_eq!(days_of(&series, &range), days);
            assert_eq!(months_of(&series, &range), months);
        }
    }
}
