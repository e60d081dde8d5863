//! Metrics in bins of all widths, also far narrower than blocks, held against the rows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, StringArray};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_storage::{
    AggregateRequest, AggregateResult, Bin, CascadeRequest, Db, ReadStats, ScanRequest, TagFilter,
    Target, Unknown, WriteOptions,
};
use tidefall_types::{
    FieldColumn, FieldId, NS_PER_DAY, NS_PER_HOUR, NS_PER_MINUTE, NS_PER_SECOND, TagColumn,
    TimeRange, WriteBatch,
};

use crate::small::open;

const TABLE: &str = "plant";
/// 2024-01-10.
const FIRST_NS: i64 = 19_732 * NS_PER_DAY;
const STEP_NS: i64 = 10 * NS_PER_SECOND;

/// By sensor and time.
type Rows = BTreeMap<(u32, i64), Option<i64>>;
/// Times and values by group and bin.
type Lines = BTreeMap<(u32, i64), Vec<(i64, Option<i64>)>>;

fn bins() -> Vec<Option<Bin>> {
    let widths = [
        NS_PER_SECOND,
        STEP_NS,
        NS_PER_MINUTE,
        7 * NS_PER_MINUTE,
        NS_PER_HOUR,
        90 * NS_PER_MINUTE,
        7 * NS_PER_HOUR,
        NS_PER_DAY,
    ];
    let bin = |(place, width_ns): (usize, i64)| {
        // Every other one begins at an odd time.
        let origin_ns = (place % 2) as i64 * (11 * NS_PER_MINUTE + 3);
        Some(Bin { width_ns, origin_ns })
    };
    [None].into_iter().chain(widths.into_iter().enumerate().map(bin)).collect()
}

/// Sensors have the number that is their name, as the first write has them in order.
fn write(db: &Db, rows: &Rows) {
    let sensors = rows.keys().map(|(sensor, _)| *sensor).max().map_or(0, |last| last + 1);
    let values = StringArray::from_iter_values((0..sensors).map(|sensor| format!("s{sensor}")));
    let keys = rows.keys().map(|(sensor, _)| *sensor).collect();
    let column: Int64Array = rows.values().copied().collect();
    let batch = WriteBatch {
        time: rows.keys().map(|(_, time)| *time).collect(),
        tags: vec![TagColumn { name: "sensor".into(), values, keys }],
        fields: vec![FieldColumn { name: "value".into(), values: Arc::new(column) }],
    };
    let options = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
    db.write(TABLE, &batch, &options).unwrap();
}

fn cascade(db: &Db, target: Target) {
    db.cascade(&CascadeRequest { table: None, target }).unwrap();
}

/// `count` rows of each sensor, some of them late or without a value.
fn some_rows(rng: &mut SmallRng, sensors: u32, count: i64, jitter_ns: i64) -> Rows {
    let mut rows = Rows::new();
    for sensor in 0..sensors {
        let start = rng.random_range(0..5) * NS_PER_MINUTE;
        for row in 0..count {
            let time = FIRST_NS + start + row * STEP_NS + rng.random_range(0..=jitter_ns);
            let value = rng.random_bool(0.9).then(|| rng.random_range(-1000..1000));
            rows.insert((sensor, time), value);
        }
    }
    rows
}

/// A later write leaves what it has no value for.
fn lay_over(rows: &mut Rows, later: Rows) {
    for (key, value) in later {
        let old = rows.entry(key).or_default();
        *old = value.or(*old);
    }
}

fn ask(db: &Db, bin: Option<Bin>, groups: u32, time: TimeRange, threads: usize) -> AggregateResult {
    let snapshot = db.snapshot(TABLE).unwrap();
    // Any order will do.
    let mut sensors: Vec<u32> = (0..snapshot.sensor_count()).collect();
    sensors.sort_by_key(|sensor| sensor % 5);
    let request = AggregateRequest {
        groups: sensors.iter().map(|sensor| sensor % groups).collect(),
        group_count: groups,
        sensors: sensors.into(),
        time,
        bin,
        fields: vec![FieldId(0)],
        deviations: true,
        extremes: true,
        ends: true,
    };
    snapshot.aggregate_on(threads, &request, &Arc::new(ReadStats::default())).unwrap()
}

fn check(found: &AggregateResult, rows: &Rows, bin: Option<Bin>, groups: u32, time: TimeRange) {
    let mut lines = Lines::new();
    for ((sensor, time_ns), value) in rows.iter().filter(|((_, at), _)| time.contains(*at)) {
        let start_ns = bin.map_or(i64::MIN, |bin| bin.start_of(*time_ns));
        lines.entry((sensor % groups, start_ns)).or_default().push((*time_ns, *value));
    }
    let keys: Vec<(u32, i64)> =
        found.group.iter().copied().zip(found.bin_start_ns.iter().copied()).collect();
    assert_eq!(keys, lines.keys().copied().collect::<Vec<_>>(), "groups and bins");
    let field = &found.fields[0];
    let number = |array: &ArrayRef, line: usize| {
        let array = array.as_primitive::<Int64Type>();
        array.is_valid(line).then(|| array.value(line))
    };
    for (line, (key, rows)) in lines.into_iter().enumerate() {
        let values: Vec<i64> = rows.iter().filter_map(|row| row.1).collect();
        let ends = (rows.iter().map(|row| row.0).min(), rows.iter().map(|row| row.0).max());
        assert_eq!(found.rows[line], rows.len() as u64, "{key:?}");
        assert_eq!((Some(found.first_time_ns[line]), Some(found.last_time_ns[line])), ends);
        assert_eq!(field.count[line], values.len() as u64, "{key:?}");
        assert_eq!(number(&field.min, line), values.iter().copied().min(), "{key:?}");
        assert_eq!(number(&field.max, line), values.iter().copied().max(), "{key:?}");
        let sum = values.iter().copied().reduce(|one, other| one + other);
        assert_eq!(number(&field.sum, line), sum, "{key:?}");
        let mean = sum.unwrap_or(0) as f64 / values.len().max(1) as f64;
        let m2: f64 = values.iter().map(|value| (*value as f64 - mean).powi(2)).sum();
        assert!((field.m2[line] - m2).abs() <= 1e-9 * (1.0 + m2), "{key:?}");
        // Where several sensors have a value at the first time, any of them is the first.
        let earliest = rows.iter().filter(|row| row.1.is_some()).map(|row| row.0).min();
        let latest = rows.iter().filter(|row| row.1.is_some()).map(|row| row.0).max();
        let is_at = |at: Option<i64>, value: Option<i64>| {
            rows.iter().any(|row| Some(row.0) == at && row.1 == value) || value == at
        };
        assert!(is_at(earliest, number(&field.first, line)), "{key:?}: {rows:?}");
        assert!(is_at(latest, number(&field.last, line)), "{key:?}: {rows:?}");
    }
}

fn check_all(db: &Db, rows: &Rows, rng: &mut SmallRng, groups: &[u32]) {
    for bin in bins() {
        for groups in groups {
            let first_ns = FIRST_NS + rng.random_range(-10..100) * NS_PER_MINUTE;
            let part = TimeRange::new(first_ns, first_ns + rng.random_range(0..NS_PER_DAY / 3));
            for time in [TimeRange::ALL, part] {
                let threads = rng.random_range(1..4);
                let found = ask(db, bin, *groups, time, threads);
                check(&found, rows, bin, *groups, time);
            }
        }
    }
}

#[test]
fn bins_of_all_widths_hold_what_the_rows_say() {
    const SENSORS: u32 = 60;
    let mut rng = SmallRng::seed_from_u64(41);
    for jitter_ns in [0, STEP_NS / 2] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let mut rows = some_rows(&mut rng, SENSORS, 1500, jitter_ns);
        write(&db, &rows);
        check_all(&db, &rows, &mut rng, &[1, SENSORS]);
        cascade(&db, Target::Long);
        check_all(&db, &rows, &mut rng, &[1, 7, SENSORS]);
        // Late rows, first in objects of their own, then in memory.
        for in_memory in [false, true] {
            let late = some_rows(&mut rng, SENSORS / 3, 90, STEP_NS * 8);
            write(&db, &late);
            lay_over(&mut rows, late);
            if !in_memory {
                cascade(&db, Target::Short);
            }
            check_all(&db, &rows, &mut rng, &[1, SENSORS]);
        }
        let gone = TimeRange::new(FIRST_NS + 20 * NS_PER_MINUTE, FIRST_NS + 45 * NS_PER_MINUTE);
        let filter = TagFilter::In {
            tag: "sensor".into(),
            values: (0..SENSORS / 2).map(|sensor| format!("s{sensor}")).collect(),
        };
        db.delete(TABLE, &filter, gone).unwrap();
        rows.retain(|(sensor, time), _| *sensor >= SENSORS / 2 || !gone.contains(*time));
        check_all(&db, &rows, &mut rng, &[1, 3, SENSORS]);
    }
}

#[test]
fn threads_share_the_time_of_few_sensors() {
    let mut rng = SmallRng::seed_from_u64(42);
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let rows = some_rows(&mut rng, 2, 100_000, 0);
    write(&db, &rows);
    cascade(&db, Target::Long);
    for bin in bins().into_iter().skip(2) {
        for groups in [1, 2] {
            let found = ask(&db, bin, groups, TimeRange::ALL, 2);
            check(&found, &rows, bin, groups, TimeRange::ALL);
        }
    }
}

#[test]
fn pages_are_decoded_once_however_narrow_the_bins() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let rows: Rows = (0..40_000).map(|row| ((0, FIRST_NS + row * STEP_NS), Some(row))).collect();
    write(&db, &rows);
    cascade(&db, Target::Long);
    let snapshot = db.snapshot(TABLE).unwrap();
    let fields = vec![FieldId(0)];
    let request = ScanRequest {
        sensors: vec![0],
        time: TimeRange::ALL,
        fields: fields.clone(),
        conditions: Vec::new(),
        limit: None,
    };
    let scan = snapshot.scan(&request).unwrap();
    let scanned = Arc::clone(scan.stats());
    assert_eq!(scan.map(|batch| batch.unwrap().rows()).sum::<usize>(), rows.len());
    let pages = scanned.pages.load(Ordering::Relaxed);
    assert!(pages >= 4, "{pages} pages");
    for bin in bins() {
        let request = AggregateRequest {
            sensors: vec![0].into(),
            groups: vec![0],
            group_count: 1,
            time: TimeRange::ALL,
            bin,
            fields: fields.clone(),
            deviations: true,
            extremes: true,
            ends: true,
        };
        let stats = Arc::new(ReadStats::default());
        snapshot.aggregate(&request, &stats).unwrap();
        let decoded = stats.pages.load(Ordering::Relaxed);
        assert!(decoded <= pages, "{decoded} of {pages} pages in {bin:?}");
    }
}

/// The rows that a scan finds, and the latest values, must be those that are expected.
fn check_rows(db: &Db, rows: &Rows) {
    let snapshot = db.snapshot(TABLE).unwrap();
    let sensors: Vec<u32> = (0..snapshot.sensor_count()).collect();
    let request = ScanRequest {
        sensors: sensors.clone(),
        time: TimeRange::ALL,
        fields: vec![FieldId(0)],
        conditions: Vec::new(),
        limit: None,
    };
    let mut found = Rows::new();
    for batch in snapshot.scan(&request).unwrap() {
        let batch = batch.unwrap();
        let values = batch.fields[0].as_primitive::<Int64Type>();
        for row in 0..batch.rows() {
            let value = values.is_valid(row).then(|| values.value(row));
            found.insert((batch.sensors[row], batch.time[row]), value);
        }
    }
    assert!(found == *rows, "a scan finds {} of {} rows, or others", found.len(), rows.len());
    let mut latest = BTreeMap::new();
    for ((sensor, time), value) in rows.iter().filter(|(_, value)| value.is_some()) {
        latest.insert(*sensor, (*time, *value));
    }
    let found = snapshot.latest(&sensors, FieldId(0)).unwrap();
    let values = found.values.as_primitive::<Int64Type>();
    let found = found.sensors.iter().zip(&found.time).zip(values.iter());
    let found: Vec<_> = found.map(|((sensor, time), value)| (*sensor, (*time, value))).collect();
    assert!(found == latest.into_iter().collect::<Vec<_>>(), "latest values");
}

#[test]
fn many_sensors_with_few_readings() {
    const SENSORS: u32 = 9000;
    let mut rng = SmallRng::seed_from_u64(43);
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let mut rows = some_rows(&mut rng, SENSORS, 2, STEP_NS);
    write(&db, &rows);
    let check_all = |rows: &Rows| {
        check_rows(&db, rows);
        let part = TimeRange::new(FIRST_NS, FIRST_NS + 2 * NS_PER_MINUTE);
        for bin in [None, Some(Bin { width_ns: NS_PER_MINUTE, origin_ns: 7 })] {
            for groups in [1, 10, SENSORS] {
                for (time, threads) in [(TimeRange::ALL, 2), (part, 1)] {
                    check(&ask(&db, bin, groups, time, threads), rows, bin, groups, time);
                }
            }
        }
    };
    check_all(&rows);
    cascade(&db, Target::Long);
    check_all(&rows);
    // Some sensors have later rows in another object, some in memory, and some of all are deleted.
    let mut later = some_rows(&mut rng, SENSORS, 1, 8 * STEP_NS);
    later.retain(|(sensor, _), _| sensor % 3 == 0);
    write(&db, &later);
    lay_over(&mut rows, later);
    cascade(&db, Target::Short);
    check_all(&rows);
    let mut later = some_rows(&mut rng, SENSORS, 1, 8 * STEP_NS);
    later.retain(|(sensor, _), _| sensor % 7 == 0);
    write(&db, &later);
    lay_over(&mut rows, later);
    let gone = TimeRange::new(FIRST_NS, FIRST_NS + NS_PER_MINUTE);
    let values = (0..SENSORS).filter(|sensor| sensor % 11 == 0);
    let values = values.map(|sensor| format!("s{sensor}")).collect();
    db.delete(TABLE, &TagFilter::In { tag: "sensor".into(), values }, gone).unwrap();
    rows.retain(|(sensor, time), _| sensor % 11 != 0 || !gone.contains(*time));
    check_all(&rows);
}
