//! Rows in memory on their way to objects: those of a drain and those of a load.

use tidefall_types::{Day, FieldId, FieldType, Result, Seq, TimeRange};

use super::boundaries::Boundaries;
use super::pieces::PIECE_ROWS;
use super::rewrite::{Estimate, Output, write_object, write_objects};
use crate::engine::Engine;
use crate::manifest::{Model, ObjectEntry};
use crate::rows::SensorRows;
use crate::segment::encode::Stretch;
use crate::table::Table;

/// Rows of a sensor, ordered by time without repeats, with all fields of the table.
pub(super) type Series = (u32, SensorRows);

/// The first and the last time of all rows.
pub(super) fn extent(series: &[Series]) -> Option<TimeRange> {
    let ends = |(_, rows): &Series| {
        let (first, last) = (rows.times.first()?, rows.times.last()?);
        Some(TimeRange::new(*first, *last))
    };
    series.iter().filter_map(ends).reduce(|one, other| one.union(&other))
}

/// The rows within a stretch of time.
pub(super) fn cut(rows: &SensorRows, time: &TimeRange) -> SensorRows {
    let first = rows.times.partition_point(|&t| t < time.first_ns);
    let end = rows.times.partition_point(|&t| t <= time.last_ns);
    rows.slice(first, end.saturating_sub(first))
}

/// Where rows within `time` go that are too young for long columns: days of short columns, and what stays in
/// the key-value model.
pub(super) fn young_spans(boundaries: &Boundaries, time: &TimeRange) -> Vec<(Model, TimeRange)> {
    let short = boundaries.range(Model::Short).intersect(time);
    let mut spans = vec![(Model::Kv, boundaries.range(Model::Kv).intersect(time))];
    if !short.is_empty() {
        let days = Day::of(short.first_ns).0..=Day::of(short.last_ns).0;
        spans.extend(days.map(|day| (Model::Short, Day(day).range().intersect(&short))));
    }
    spans.retain(|(_, span)| !span.is_empty());
    spans
}

/// Writes an object for each span that holds rows. Series are ordered by their sensors.
pub(super) fn write_series(
    engine: &Engine,
    table: &Table,
    series: &[Series],
    spans: &[(Model, TimeRange)],
    seq: Seq,
) -> Result<Vec<ObjectEntry>> {
    let schema = table.schema();
    let fields: Vec<(FieldId, FieldType)> = schema
        .fields
        .iter()
        .enumerate()
        .map(|(id, field)| (FieldId(id as u16), field.ty))
        .collect();
    let Some(all) = extent(series) else { return Ok(Vec::new()) };
    let (block_ns, threads) = (schema.options.block_ns, engine.threads());
    let write = |(model, span): &(Model, TimeRange), threads| {
        let pieces = pieces(series, span, block_ns);
        let estimate = Estimate {
            rows: pieces.iter().map(|(_, rows)| rows.len() as u64).sum(),
            sensors: series.len() as u64,
            time: span.intersect(&all),
        };
        write_object(
            engine,
            table.id,
            Output { model: *model, fields: &fields, block_ns, threads },
            seq,
            estimate,
            &pieces,
            |(sensor, rows)| Ok((*sensor, vec![vec![Stretch::Rows(rows.clone())]])),
        )
    };
    let (days, others): (Vec<_>, Vec<_>) =
        spans.iter().partition(|(model, _)| *model == Model::Short);
    // Days are of one size: where there are enough, a thread writes one alone.
    let (at_once, each) = if days.len() < threads { (1, threads) } else { (threads, 1) };
    let mut objects = write_objects(at_once, &days, |span| write(span, each))?;
    objects.extend(write_objects(1, &others, |span| write(span, threads))?);
    Ok(objects)
}

/// The rows within a span, in pieces that several threads can encode. They end where a block of metrics does,
/// unless that alone is larger than a piece.
fn pieces(series: &[Series], span: &TimeRange, block_ns: i64) -> Vec<Series> {
    let block_of = |time: i64| time.div_euclid(block_ns);
    let mut pieces = Vec::new();
    for (sensor, rows) in series {
        let mut rest = cut(rows, span);
        while rest.len() > PIECE_ROWS {
            let block = block_of(rest.times[PIECE_ROWS]);
            let whole = rest.times[..PIECE_ROWS].partition_point(|time| block_of(*time) < block);
            let end = if whole == 0 { PIECE_ROWS } else { whole };
            pieces.push((*sensor, rest.slice(0, end)));
            rest = rest.slice(end, rest.len() - end);
        }
        if rest.len() > 0 {
            pieces.push((*sensor, rest));
        }
    }
    pieces
}
