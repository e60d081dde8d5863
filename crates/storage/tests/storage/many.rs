//! Metrics of many sensors with few readings each, held against the rows: objects that lie apart and such that overlap, rows in
//! memory, late ones, deletes, odd floats, large unsigned integers, nulls.

use std::collections::BTreeMap;
use std::iter::repeat;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Float64Array, StringArray, UInt64Array};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_storage::{
    AggregateRequest, AggregateResult, Bin, CascadeRequest, Db, FieldMetrics, ReadStats, Sensors,
    TagFilter, Target, Unknown, WriteOptions,
};
use tidefall_types::{
    FieldColumn, FieldId, NS_PER_DAY, NS_PER_HOUR, NS_PER_MINUTE, Series, SeriesBatch, TimeRange,
    WriteBatch,
};

use crate::small::open;
use crate::{checked, rounds, sensor_tag};

const TABLE: &str = "many";
const SENSORS: u32 = 150;
/// 2024-01-10.
const FIRST_NS: i64 = 19_732 * NS_PER_DAY;
const DAYS: i64 = 4;

#[derive(Debug, Clone, Copy, Default)]
struct Row {
    float: Option<f64>,
    number: Option<u64>,
    text: bool,
}

/// By sensor and time.
type Rows = BTreeMap<(u32, i64), Row>;

fn some_row(rng: &mut SmallRng) -> Row {
    let float = match rng.random_range(0..60) {
        0 => f64::NAN,
        1 => f64::NEG_INFINITY,
        2..5 => -0.0,
        _ => f64::from(rng.random_range(-4000..4000)) / 8.0,
    };
    let number = if rng.random_bool(0.1) {
        u64::MAX - rng.random_range(0..9)
    } else {
        rng.random_range(0..99)
    };
    Row {
        float: rng.random_bool(0.85).then_some(float),
        number: rng.random_bool(0.85).then_some(number),
        text: rng.random_bool(0.5),
    }
}

/// A few rows of each of some sensors, within some hours or at any time.
fn some_rows(rng: &mut SmallRng) -> Rows {
    let is_wide = rng.random_bool(0.15);
    let start = rng.random_range(0..DAYS * 24) * NS_PER_HOUR;
    let first = if rng.random_bool(0.6) { 0 } else { rng.random_range(0..SENSORS) };
    let last = if rng.random_bool(0.6) { SENSORS } else { rng.random_range(first..SENSORS) + 1 };
    let share = if rng.random_bool(0.7) { 1.0 } else { 0.1 };
    let mut rows = Rows::new();
    for sensor in first..last {
        if !rng.random_bool(share) {
            continue;
        }
        for _ in 0..rng.random_range(1..4) {
            let minutes = if is_wide { DAYS * 24 * 60 } else { 100 };
            let offset = if is_wide { 0 } else { start };
            let time = FIRST_NS + offset + rng.random_range(0..minutes) * NS_PER_MINUTE;
            rows.insert((sensor, time), some_row(rng));
        }
    }
    rows
}

fn fields_of(rows: &[&Row]) -> Vec<(&'static str, ArrayRef)> {
    let floats: Float64Array = rows.iter().map(|row| row.float).collect();
    let numbers: UInt64Array = rows.iter().map(|row| row.number).collect();
    let texts: StringArray = rows.iter().map(|row| row.text.then_some("text")).collect();
    vec![("float", Arc::new(floats)), ("number", Arc::new(numbers)), ("text", Arc::new(texts))]
}

fn write(db: &Db, rows: &Rows) {
    let fields = fields_of(&rows.values().collect::<Vec<_>>()).into_iter();
    let batch = WriteBatch {
        time: rows.keys().map(|(_, time)| *time).collect(),
        tags: vec![sensor_tag(SENSORS, rows.keys().map(|(sensor, _)| *sensor).collect())],
        fields: fields.map(|(name, values)| FieldColumn { name: name.into(), values }).collect(),
    };
    let options = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
    db.write(TABLE, &batch, &options).unwrap();
}

fn load(db: &Db, rows: &Rows) {
    let mut sensors: Vec<u32> = rows.keys().map(|(sensor, _)| *sensor).collect();
    sensors.dedup();
    let series = sensors.iter().map(|sensor| {
        let of_sensor: Vec<_> = rows.range((*sensor, i64::MIN)..=(*sensor, i64::MAX)).collect();
        let of_rows: Vec<&Row> = of_sensor.iter().map(|(_, row)| *row).collect();
        Series {
            time: of_sensor.iter().map(|((_, time), _)| *time).collect(),
            fields: fields_of(&of_rows).into_iter().map(|(_, values)| values).collect(),
        }
    });
    let batch = SeriesBatch {
        fields: vec!["float".into(), "number".into(), "text".into()],
        series: series.collect(),
        tags: vec![sensor_tag(SENSORS, sensors)],
    };
    db.load(TABLE, &batch, Unknown::Create).unwrap();
}

/// A later write leaves what it has no value for.
fn lay_over(rows: &mut Rows, later: Rows) {
    for (key, row) in later {
        let old = rows.entry(key).or_default();
        old.float = row.float.or(old.float);
        old.number = row.number.or(old.number);
        old.text |= row.text;
    }
}

fn some_time(rng: &mut SmallRng) -> TimeRange {
    let mut time = || FIRST_NS + rng.random_range(0..DAYS * 24 * 6) * 10 * NS_PER_MINUTE;
    let (one, other) = (time(), time());
    TimeRange::new(one.min(other), one.max(other))
}

fn some_request(rng: &mut SmallRng) -> AggregateRequest {
    let groups = [1, 3, 40, SENSORS][rng.random_range(0..4)];
    let share = [1.0, 0.5, 0.05][rng.random_range(0..3)];
    let mut listed: Vec<u32> = (0..SENSORS).filter(|_| rng.random_bool(share)).collect();
    if rng.random_bool(0.3) {
        listed.sort_by_key(|sensor| sensor % groups);
    }
    let sensors: Sensors = match rng.random_range(0..4) {
        0 => (0..SENSORS).into(),
        1 => (rng.random_range(0..SENSORS)..SENSORS).into(),
        _ => listed.into(),
    };
    let are_grouped = groups > 1 || rng.random_bool(0.5);
    let width_ns = [None, None, Some(NS_PER_DAY), Some(NS_PER_HOUR), Some(7 * NS_PER_MINUTE)];
    let width_ns = width_ns[rng.random_range(0..5)];
    AggregateRequest {
        groups: sensors.iter().filter(|_| are_grouped).map(|sensor| sensor % groups).collect(),
        group_count: groups,
        sensors,
        time: if rng.random_bool(0.4) { TimeRange::ALL } else { some_time(rng) },
        bin: width_ns.map(|width_ns| Bin { width_ns, origin_ns: rng.random_range(0..2) * 77 }),
        fields: [vec![0, 1, 2], vec![1, 0], vec![2], vec![]][rng.random_range(0..4)]
            .iter()
            .map(|field| FieldId(*field))
            .collect(),
        deviations: rng.random_bool(0.3),
        extremes: rng.random_bool(0.6),
        ends: rng.random_bool(0.6),
    }
}

/// NaN is greater than every number.
fn extremes(values: &[f64]) -> (Option<f64>, Option<f64>) {
    let order = |one: &&f64, other: &&f64| {
        one.partial_cmp(other).unwrap_or_else(|| one.is_nan().cmp(&other.is_nan()))
    };
    (values.iter().min_by(order).copied(), values.iter().max_by(order).copied())
}

fn is_about(one: f64, other: f64) -> bool {
    one == other
        || (one.is_nan() && other.is_nan())
        || (one - other).abs() <= 1e-9 * other.abs().max(1.0)
}

/// What a line says of a field of numbers; `values` has its values with their times.
fn check_numbers(
    found: &FieldMetrics,
    line: usize,
    values: &[(i64, f64)],
    request: &AggregateRequest,
) {
    let number = |array: &ArrayRef| -> Option<f64> {
        let value = match array.as_primitive_opt::<UInt64Type>() {
            Some(array) => array.value(line) as f64,
            None => array.as_primitive::<Float64Type>().value(line),
        };
        array.is_valid(line).then_some(value)
    };
    let only: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
    assert_eq!(found.count[line], only.len() as u64);
    assert_eq!(found.sum.is_valid(line), !only.is_empty());
    if only.is_empty() {
        return;
    }
    let sum: f64 = only.iter().sum();
    assert!(is_about(found.sum_f64[line], sum), "{} is not {sum}", found.sum_f64[line]);
    if request.deviations && sum.is_finite() {
        let mean = sum / only.len() as f64;
        let m2: f64 = only.iter().map(|value| (value - mean) * (value - mean)).sum();
        let scale = only.iter().fold(1.0_f64, |most, value| most.max(value * value));
        assert!((found.m2[line] - m2).abs() <= 1e-9 * scale * only.len() as f64);
    }
    let same = |found: Option<f64>, one: Option<f64>| {
        found.zip(one).is_some_and(|(found, one)| found == one || found.is_nan() && one.is_nan())
    };
    if request.extremes {
        let (min, max) = extremes(&only);
        assert!(same(number(&found.min), min) && same(number(&found.max), max), "{found:?}");
    }
    if request.ends {
        // Several sensors may have a value at that time.
        for (found, time) in [
            (number(&found.first), values.iter().map(|value| value.0).min()),
            (number(&found.last), values.iter().map(|value| value.0).max()),
        ] {
            let mut candidates = values.iter().filter(|value| Some(value.0) == time);
            assert!(candidates.any(|value| same(found, Some(value.1))), "{found:?}");
        }
    }
}

fn check(found: &AggregateResult, rows: &Rows, request: &AggregateRequest) {
    let groups: BTreeMap<u32, u32> =
        request.sensors.iter().zip(request.groups.iter().copied().chain(repeat(0))).collect();
    let mut lines: BTreeMap<(u32, i64), Vec<(i64, Row)>> = BTreeMap::new();
    for ((sensor, time_ns), row) in rows {
        let Some(group) = groups.get(sensor).filter(|_| request.time.contains(*time_ns)) else {
            continue;
        };
        let start_ns = request.bin.map_or(i64::MIN, |bin| bin.start_of(*time_ns));
        lines.entry((*group, start_ns)).or_default().push((*time_ns, *row));
    }
    let keys = found.group.iter().copied().zip(found.bin_start_ns.iter().copied());
    assert_eq!(keys.collect::<Vec<_>>(), lines.keys().copied().collect::<Vec<_>>());
    for (line, rows) in lines.values().enumerate() {
        assert_eq!(found.rows[line], rows.len() as u64);
        if request.ends {
            let ends = (rows.iter().map(|row| row.0).min(), rows.iter().map(|row| row.0).max());
            assert_eq!((Some(found.first_time_ns[line]), Some(found.last_time_ns[line])), ends);
        }
        for (field, metrics) in request.fields.iter().zip(&found.fields) {
            let values = rows.iter().map(|(time, row)| (*time, *row));
            match field.0 {
                0 => {
                    let values = values.filter_map(|(time, row)| Some((time, row.float? + 0.0)));
                    check_numbers(metrics, line, &values.collect::<Vec<_>>(), request);
                }
                1 => {
                    let numbers: Vec<(i64, u64)> =
                        values.filter_map(|(time, row)| Some((time, row.number?))).collect();
                    let sum = numbers.iter().fold(0_u64, |sum, number| sum.wrapping_add(number.1));
                    if !numbers.is_empty() {
                        assert_eq!(metrics.sum.as_primitive::<UInt64Type>().value(line), sum);
                    }
                    let values = numbers.iter().map(|(time, number)| (*time, *number as f64));
                    check_numbers(metrics, line, &values.collect::<Vec<_>>(), request);
                }
                _ => {
                    let texts = values.filter(|(_, row)| row.text).count();
                    assert_eq!(metrics.count[line], texts as u64);
                }
            }
        }
    }
}

fn step(db: &Db, rows: &mut Rows, rng: &mut SmallRng) -> String {
    match rng.random_range(0..12) {
        0..3 => {
            let new = some_rows(rng);
            write(db, &new);
            let count = new.len();
            lay_over(rows, new);
            format!("write of {count} rows")
        }
        3..7 => {
            let new = some_rows(rng);
            if new.is_empty() {
                return "nothing to load".into();
            }
            load(db, &new);
            let count = new.len();
            lay_over(rows, new);
            format!("load of {count} rows")
        }
        7..9 => {
            let time = some_time(rng);
            let sensor = rng.random_bool(0.7).then(|| rng.random_range(0..SENSORS));
            let filter = match sensor {
                Some(sensor) => TagFilter::Eq { tag: "sensor".into(), value: format!("s{sensor}") },
                None => TagFilter::All,
            };
            let time = TimeRange::new(time.first_ns, time.last_ns.min(time.first_ns + NS_PER_HOUR));
            db.delete(TABLE, &filter, time).unwrap();
            rows.retain(|(of, at), _| !(time.contains(*at) && sensor.is_none_or(|one| one == *of)));
            format!("delete of {sensor:?} in {time}")
        }
        _ => {
            let target = if rng.random_bool(0.5) { Target::Short } else { Target::Long };
            db.cascade(&CascadeRequest { table: None, target }).unwrap();
            format!("cascade to {target:?}")
        }
    }
}

#[test]
fn metrics_of_many_sensors_are_those_of_their_rows() {
    for seed in 0..rounds(12) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let mut rows = Rows::new();
        // Sensors have the number that is their name, as the first write has them in order.
        let all = (0..SENSORS).map(|sensor| ((sensor, FIRST_NS), some_row(&mut rng))).collect();
        write(&db, &all);
        lay_over(&mut rows, all);
        for number in 0..25 {
            let what = step(&db, &mut rows, &mut rng);
            let snapshot = db.snapshot(TABLE).unwrap();
            for _ in 0..8 {
                let (request, threads) = (some_request(&mut rng), rng.random_range(1..4));
                let stats = Arc::new(ReadStats::default());
                let found = snapshot.aggregate_on(threads, &request, &stats).unwrap();
                checked(
                    || check(&found, &rows, &request),
                    || {
                        format!(
                            "seed {seed}, step {number}: {what}, on {threads} threads: {request:?}"
                        )
                    },
                );
            }
        }
    }
}
