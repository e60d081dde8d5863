//! Late rows do not keep others from being counted by their metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array};
use tidefall_storage::store::MemDisk;
use tidefall_storage::{
    AggregateRequest, CascadeRequest, Db, Model, ReadStats, Target, Unknown, WriteOptions,
};
use tidefall_types::{
    FieldColumn, FieldId, ManualClock, NS_PER_DAY, NS_PER_HOUR, NS_PER_SECOND, TimeRange,
    WriteBatch,
};

use crate::asking::open;
use crate::sensor_tag;

const TABLE: &str = "plant";
const NOW_NS: i64 = 19_747 * NS_PER_DAY;
const SENSORS: u32 = 8;

type Rows = BTreeMap<(u32, i64), i64>;

/// Writes a value of each sensor at some times.
fn write(db: &Db, rows: &mut Rows, times: impl Iterator<Item = i64>, value: i64) {
    let keys: Vec<(u32, i64)> =
        times.flat_map(|at| (0..SENSORS).map(move |sensor| (sensor, at))).collect();
    let time: Vec<i64> = keys.iter().map(|(_, at)| *at).collect();
    let tag = sensor_tag(SENSORS, keys.iter().map(|(sensor, _)| *sensor).collect());
    let values = Arc::new(Int64Array::from(vec![value; keys.len()])) as ArrayRef;
    let fields = vec![FieldColumn { name: "value".into(), values }];
    let batch = WriteBatch { time: time.into(), tags: vec![tag], fields };
    let options = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
    db.write(TABLE, &batch, &options).unwrap();
    rows.extend(keys.into_iter().map(|key| (key, value)));
}

/// Checks number, sum and greatest value of some sensors' rows; returns how many rows were read for it.
fn check(db: &Db, rows: &Rows, sensors: u32) -> u64 {
    let request = AggregateRequest {
        sensors: (0..sensors).into(),
        groups: Vec::new(),
        group_count: 1,
        time: TimeRange::ALL,
        bin: None,
        fields: vec![FieldId(0)],
        deviations: false,
        extremes: true,
        ends: false,
    };
    let stats = Arc::new(ReadStats::default());
    let found = db.snapshot(TABLE).unwrap().aggregate(&request, &stats).unwrap();
    let of_sensors = || rows.iter().filter(|((sensor, _), _)| *sensor < sensors);
    assert_eq!(found.rows.iter().sum::<u64>(), of_sensors().count() as u64);
    let values = |array: &ArrayRef| array.as_primitive::<Int64Type>().values().to_vec();
    let sum: i64 = of_sensors().map(|(_, value)| *value).sum();
    assert_eq!(values(&found.fields[0].sum), [sum]);
    let greatest = of_sensors().map(|(_, value)| *value).max().unwrap();
    assert_eq!(values(&found.fields[0].max), [greatest]);
    stats.rows.load(Ordering::Relaxed)
}

fn objects(db: &Db, model: Model) -> u64 {
    let tables = db.inspect().unwrap();
    tables[0].models.iter().find(|found| found.model == model).map_or(0, |found| found.objects)
}

/// All that overlapped late rows was read row by row, and everything that was in memory.
#[test]
fn late_rows_leave_others_to_their_metrics() {
    let second = |number: i64| NOW_NS - NS_PER_HOUR + number * NS_PER_SECOND;
    let db = open(MemDisk::new(), &Arc::new(ManualClock::new(NOW_NS))).unwrap();
    let mut rows = Rows::new();
    for minute in 0..30 {
        write(&db, &mut rows, (60 * minute..60 * (minute + 1)).map(second), minute);
        // Between the others, and up to some days before them.
        let late = [second(60 * minute - 600) + 7, second(30 * minute) - 3 * NS_PER_DAY];
        write(&db, &mut rows, late.into_iter(), 100 + minute);
        if minute % 5 == 4 && minute < 25 {
            db.flush().unwrap();
        }
    }
    let late = 30 * 2 * u64::from(SENSORS);
    for _ in 0..2 {
        let read = check(&db, &rows, SENSORS);
        assert!(read <= late, "{read} rows were read for {late} that came late");
    }
    // Few sensors are not looked through for it, but right.
    check(&db, &rows, 2);
    // In memory and in objects, of one write and of several.
    write(&db, &mut rows, [second(1), second(1_799), second(300), second(300)].into_iter(), 1_000);
    check(&db, &rows, SENSORS);
    db.flush().unwrap();
    check(&db, &rows, SENSORS);
    write(&db, &mut rows, [second(1), second(300) + 7].into_iter(), 500);
    check(&db, &rows, SENSORS);
    let cascade = CascadeRequest { table: None, target: Target::Short };
    db.cascade(&cascade).unwrap();
    assert_eq!(objects(&db, Model::Kv), 0);
    // What was late is where it belongs, and all is counted from metrics again.
    assert_eq!(check(&db, &rows, SENSORS), 0);
    db.close().unwrap();
}

/// Few late rows of many days are one file, until the day is written that each belongs to.
#[test]
fn late_rows_of_many_days_are_one_file_at_first() {
    let db = open(MemDisk::new(), &Arc::new(ManualClock::new(NOW_NS))).unwrap();
    let mut rows = Rows::new();
    write(&db, &mut rows, std::iter::once(NOW_NS), 1);
    write(&db, &mut rows, (1..90).map(|day| NOW_NS - day * NS_PER_DAY), 2);
    db.flush().unwrap();
    assert_eq!((objects(&db, Model::Kv), objects(&db, Model::Short)), (2, 0));
    check(&db, &rows, SENSORS);
    db.cascade(&CascadeRequest { table: None, target: Target::Short }).unwrap();
    assert_eq!(objects(&db, Model::Kv), 0);
    assert_eq!(check(&db, &rows, SENSORS), 0);
    db.close().unwrap();
}

/// Readings whose fields come one by one, or twice: what leaves memory with what it replaces is one object with it.
#[test]
fn what_is_replaced_before_it_leaves_memory_is_one_with_what_replaces_it() {
    let db = open(MemDisk::new(), &Arc::new(ManualClock::new(NOW_NS))).unwrap();
    let mut rows = Rows::new();
    for minute in 0..10 {
        let times =
            || (60 * minute..60 * (minute + 1)).map(|second| NOW_NS + second * NS_PER_SECOND);
        write(&db, &mut rows, times(), minute);
        write(&db, &mut rows, times(), 50 - minute);
    }
    check(&db, &rows, SENSORS);
    db.flush().unwrap();
    assert_eq!(objects(&db, Model::Kv), 1);
    assert_eq!(check(&db, &rows, SENSORS), 0);
    db.close().unwrap();
}
