//! Late rows do not keep others from being counted by their metrics, and what they replace is counted once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::{Fault, FaultDisk, MemDisk, RemoteIo, Times};
use tidefall_storage::{
    Ack, AggregateRequest, Bin, CascadeRequest, Db, DbOptions, Existing, IfExists, Model,
    ReadStats, TableSnapshot, TagFilter, Target, Unknown, WriteOptions,
};
use tidefall_types::{
    Clock, FieldColumn, FieldType, ManualClock, NS_PER_DAY, NS_PER_HOUR, NS_PER_MINUTE,
    NS_PER_SECOND, Series, SeriesBatch, TableId, TableSchema, TimeRange, WriteBatch,
};

use crate::asking::{in_one_group, open, whole_numbers};
use crate::slow::objects_on;
use crate::{checked, rounds, sensor_tag};

const TABLE: &str = "plant";
const NOW_NS: i64 = 19_747 * NS_PER_DAY;
const SENSORS: u32 = 8;
const KEEP_NS: i64 = 30 * NS_PER_DAY;

type Rows = BTreeMap<(u32, i64), i64>;

/// Writes a value of some sensors at some times.
fn write(db: &Db, rows: &mut Rows, keys: &[(u32, i64)], value: i64) {
    let time: Vec<i64> = keys.iter().map(|(_, at)| *at).collect();
    let sensors = keys.iter().map(|(sensor, _)| sensor + 1).max().unwrap_or_default();
    let tag = sensor_tag(sensors, keys.iter().map(|(sensor, _)| *sensor).collect());
    let values = Arc::new(Int64Array::from(vec![value; keys.len()])) as ArrayRef;
    let fields = vec![FieldColumn { name: "value".into(), values }];
    let batch = WriteBatch { time: time.into(), tags: vec![tag], fields };
    // Those that replace others are counted, and looked up for it, or not.
    let existing = if value % 2 == 0 { Existing::Replace } else { Existing::Count };
    let options = WriteOptions { unknown: Unknown::Create, existing, ..WriteOptions::default() };
    db.write(TABLE, &batch, &options).unwrap();
    rows.extend(keys.iter().map(|key| (*key, value)));
}

/// All sensors at some times.
fn of_all(times: impl Iterator<Item = i64>) -> Vec<(u32, i64)> {
    times.flat_map(|at| (0..SENSORS).map(move |sensor| (sensor, at))).collect()
}

/// Checks number, sum and greatest value of some sensors' rows; returns how many rows were read for it.
fn check(snapshot: &TableSnapshot, rows: &Rows, sensors: u32, bin: Option<Bin>) -> u64 {
    let sensors_there = sensors.min(snapshot.sensor_count());
    let request = AggregateRequest { bin, ..in_one_group(sensors_there) };
    let stats = Arc::new(ReadStats::default());
    let found = snapshot.aggregate(&request, &stats).unwrap();
    let of_sensors = rows.iter().filter(|((sensor, _), _)| *sensor < sensors);
    let mut bins: BTreeMap<i64, (u64, i64, i64)> = BTreeMap::new();
    for ((_, at), value) in of_sensors {
        let width_ns = bin.map_or(i64::MAX, |bin| bin.width_ns);
        let (count, sum, greatest) = bins.entry(at.div_euclid(width_ns)).or_insert((0, 0, *value));
        (*count, *sum, *greatest) = (*count + 1, *sum + value, (*greatest).max(*value));
    }
    let values = |array: &ArrayRef| array.as_primitive::<Int64Type>().values().to_vec();
    let (sums, most) = (values(&found.fields[0].sum), values(&found.fields[0].max));
    let found =
        found.rows.iter().zip(sums).zip(most).map(|((count, sum), most)| (*count, sum, most));
    let found: Vec<(u64, i64, i64)> = found.filter(|(count, ..)| *count > 0).collect();
    assert_eq!(found, bins.into_values().collect::<Vec<_>>());
    stats.rows.load(Ordering::Relaxed)
}

/// Checks first and last value, sum and its deviations of each sensor.
fn check_each(snapshot: &TableSnapshot, rows: &Rows) {
    let request = AggregateRequest {
        groups: (0..SENSORS).collect(),
        group_count: SENSORS,
        deviations: true,
        ends: true,
        ..in_one_group(SENSORS)
    };
    let found = snapshot.aggregate(&request, &ReadStats::default().into()).unwrap();
    let values = |array: &ArrayRef| array.as_primitive::<Int64Type>().values().to_vec();
    let field = &found.fields[0];
    let (first, last, sum) = (values(&field.first), values(&field.last), values(&field.sum));
    let mut groups = Vec::new();
    for sensor in 0..SENSORS {
        let of_sensor: Vec<(i64, i64)> = rows
            .range((sensor, i64::MIN)..=(sensor, i64::MAX))
            .map(|((_, at), value)| (*at, *value))
            .collect();
        let (Some(earliest), Some(latest)) = (of_sensor.first(), of_sensor.last()) else {
            continue;
        };
        let line = found.group.iter().position(|group| *group == sensor).unwrap();
        let count = of_sensor.len() as f64;
        let total: i64 = of_sensor.iter().map(|(_, value)| value).sum();
        let mean = total as f64 / count;
        let m2: f64 = of_sensor.iter().map(|(_, value)| (*value as f64 - mean).powi(2)).sum();
        assert_eq!(found.rows[line], of_sensor.len() as u64);
        assert_eq!((found.first_time_ns[line], found.last_time_ns[line]), (earliest.0, latest.0));
        assert_eq!((first[line], last[line], sum[line]), (earliest.1, latest.1, total));
        assert!((field.m2[line] - m2).abs() <= 1e-6 * m2.max(1.0), "{} for {m2}", field.m2[line]);
        groups.push(sensor);
    }
    assert_eq!(found.group, groups);
}

fn hours() -> Option<Bin> {
    Some(Bin { width_ns: NS_PER_HOUR, origin_ns: 0 })
}

/// All that overlapped late rows was read row by row, and everything that was in memory.
#[test]
fn late_rows_leave_others_to_their_metrics() {
    let second = |number: i64| NOW_NS - NS_PER_HOUR + number * NS_PER_SECOND;
    let db = open(MemDisk::new(), &Arc::new(ManualClock::new(NOW_NS))).unwrap();
    let mut rows = Rows::new();
    for minute in 0..30 {
        let mut keys = of_all((60 * minute..60 * (minute + 1)).map(second));
        // Between the others, and up to some days before them.
        keys.extend(of_all([second(60 * minute - 600) + 7].into_iter()));
        keys.extend(of_all([second(30 * minute) - 3 * NS_PER_DAY].into_iter()));
        write(&db, &mut rows, &keys, minute);
        if minute % 5 == 4 && minute < 25 {
            db.flush().unwrap();
        }
        let snapshot = db.snapshot(TABLE).unwrap();
        assert_eq!(check(&snapshot, &rows, SENSORS, None), 0, "minute {minute}");
        // Few sensors are not looked through for it, but right.
        check(&snapshot, &rows, 2, None);
    }
    db.flush().unwrap();
    let snapshot = db.snapshot(TABLE).unwrap();
    check(&snapshot, &rows, SENSORS, hours());
    // In memory and in objects, of one write and of several.
    for value in 100..110 {
        let times = [second(1), second(1_799), second(300 + value), second(300), second(1)];
        write(&db, &mut rows, &of_all(times.into_iter()), value);
        let snapshot = db.snapshot(TABLE).unwrap();
        check(&snapshot, &rows, SENSORS, None);
        check(&snapshot, &rows, SENSORS, hours());
        if value % 3 == 0 {
            db.flush().unwrap();
        }
    }
    db.cascade(&CascadeRequest { table: None, target: Target::Short }).unwrap();
    check(&db.snapshot(TABLE).unwrap(), &rows, SENSORS, None);
    db.close().unwrap();
}

/// Whether a late row replaces another is a question about what was there when it came: later deletes, loads and rows that are too old
/// change nothing for those who look at an earlier snapshot.
#[test]
fn what_late_rows_replace_is_counted_once_in_each_snapshot() {
    for seed in 0..rounds(40) {
        checked(|| snapshots_of(seed), || format!("seed {seed}"));
    }
}

fn snapshots_of(seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let clock = Arc::new(ManualClock::new(NOW_NS));
    let db = open(MemDisk::new(), &clock).unwrap();
    let mut schema = TableSchema::new(TableId::default(), TABLE, "time");
    schema.add_tag("sensor").unwrap();
    schema.add_field("value", FieldType::I64).unwrap();
    schema.options.retention_ns = rng.random_bool(0.5).then_some(KEEP_NS);
    let may_forget = schema.options.retention_ns.is_some();
    // Some times lie before a midnight at which retention begins, or the key-value model ends.
    let start = if rng.random() { 700 } else { 300 };
    if rng.random() {
        schema.options.kv_age_ns = KEEP_NS;
    }
    db.create_table(&schema, IfExists::Fail).unwrap();
    let mut rows = Rows::new();
    // From here on sensors have the numbers that they have here.
    write(&db, &mut rows, &of_all(std::iter::once(NOW_NS - KEEP_NS + 700 * NS_PER_MINUTE)), -2);
    let mut snapshots: Vec<(TableSnapshot, Rows)> = Vec::new();
    let mut now = 0;
    // Few enough times that late rows often hit others, within days that are close to be too old.
    let time = |rng: &mut SmallRng, now: i64| {
        let minute = now
            - if rng.random_bool(0.7) { rng.random_range(0..30) } else { rng.random_range(0..600) };
        NOW_NS - KEEP_NS + (minute + start) * NS_PER_MINUTE
    };
    for step in 0..120 {
        let value = step;
        match rng.random_range(0..20) {
            0..9 => {
                now += rng.random_range(0..4);
                let count = rng.random_range(1..40);
                let key = |_| (rng.random_range(0..SENSORS), time(&mut rng, now));
                let keys: Vec<(u32, i64)> = (0..count).map(key).collect();
                write(&db, &mut rows, &keys, value);
            }
            9..11 => {
                let mut times: Vec<i64> = (0..5).map(|_| time(&mut rng, now)).collect();
                times.sort_unstable();
                times.dedup();
                let values = Arc::new(Int64Array::from(vec![value; times.len()])) as ArrayRef;
                let series = Series { time: times.clone().into(), fields: vec![values] };
                let tags = vec![sensor_tag(SENSORS, (0..SENSORS).collect())];
                let (fields, series) = (vec!["value".into()], vec![series; SENSORS as usize]);
                db.load(TABLE, &SeriesBatch { tags, fields, series }, Unknown::Create).unwrap();
                rows.extend(of_all(times.into_iter()).into_iter().map(|key| (key, value)));
            }
            11..13 => {
                let first_ns = time(&mut rng, now);
                let gone =
                    TimeRange::new(first_ns, first_ns + rng.random_range(0..60) * NS_PER_MINUTE);
                let of = rng.random_bool(0.5).then(|| rng.random_range(0..SENSORS));
                let filter = of.map_or(TagFilter::All, |of| TagFilter::Eq {
                    tag: "sensor".into(),
                    value: format!("s{of}"),
                });
                db.delete(TABLE, &filter, gone).unwrap();
                let is_hidden = |sensor: u32| of.is_none_or(|of| of == sensor);
                rows.retain(|(sensor, at), _| !(gone.contains(*at) && is_hidden(*sensor)));
            }
            13 => drop(db.flush().unwrap()),
            14 => drop(db.free_memory().unwrap()),
            15 => {
                let target = [Target::ByAge, Target::Short, Target::Long][rng.random_range(0..3)];
                db.cascade(&CascadeRequest { table: None, target }).unwrap();
                if may_forget {
                    // Which of those that are too old it has dropped is its choice.
                    let found = whole_numbers(&db.snapshot(TABLE).unwrap());
                    let limit_ns = clock.now_ns() - KEEP_NS;
                    rows.retain(|key, value| key.1 >= limit_ns || found.get(key) == Some(value));
                }
            }
            16 => clock.set(NOW_NS + rng.random_range(0..700) * NS_PER_MINUTE),
            17 if !snapshots.is_empty() => {
                snapshots.swap_remove(rng.random_range(0..snapshots.len()));
            }
            _ => snapshots.push((db.snapshot(TABLE).unwrap(), rows.clone())),
        }
        if rng.random_bool(0.5) {
            snapshots.push((db.snapshot(TABLE).unwrap(), rows.clone()));
        }
        for (snapshot, rows) in &snapshots {
            if rng.random_bool(0.1) {
                check(snapshot, rows, SENSORS, if rng.random_bool(0.5) { hours() } else { None });
                check_each(snapshot, rows);
            }
        }
        snapshots.truncate(20);
    }
    for (snapshot, rows) in &snapshots {
        check(snapshot, rows, SENSORS, None);
        assert_eq!(whole_numbers(snapshot), *rows);
    }
    db.close().unwrap();
}

/// Each copy was held against all others: a second of such writes took minutes to leave memory.
#[test]
fn many_copies_of_a_reading_are_looked_up_once() {
    const COPIES: usize = 300_000;
    let db = open(MemDisk::new(), &Arc::new(ManualClock::new(NOW_NS))).unwrap();
    let mut rows = Rows::new();
    write(&db, &mut rows, &of_all((0..5).map(|minute| NOW_NS + minute * NS_PER_MINUTE)), 1);
    for value in 2..4 {
        write(&db, &mut rows, &vec![(3, NOW_NS); COPIES], value);
    }
    let start = Instant::now();
    check(&db.snapshot(TABLE).unwrap(), &rows, SENSORS, None);
    db.flush().unwrap();
    check(&db.snapshot(TABLE).unwrap(), &rows, SENSORS, None);
    let seconds = start.elapsed().as_secs_f64();
    // It takes some tenths of a second; all pairs took minutes.
    assert!(seconds < 20.0, "{seconds} s");
    db.close().unwrap();
}

/// After an opening it is only known of what the log has which reading of a sensor is the newest.
#[test]
fn late_rows_are_told_apart_behind_an_opening() {
    let (disk, clock) = (MemDisk::new(), Arc::new(ManualClock::new(NOW_NS)));
    let minute = |number: i64| NOW_NS + number * NS_PER_MINUTE;
    let mut rows = Rows::new();
    for round in 0..6 {
        let db = open(disk.clone(), &clock).unwrap();
        // A reading of the future, behind which all others are late.
        if round == 0 {
            write(&db, &mut rows, &of_all(std::iter::once(minute(1_000_000))), 0);
        }
        write(&db, &mut rows, &of_all((100 * round..100 * round + 90).map(minute)), round);
        let read = check(&db.snapshot(TABLE).unwrap(), &rows, SENSORS, None);
        // What replaces others makes all that is written with it be read.
        assert_eq!(read == 0, round < 5, "{read} rows read in round {round}");
        if round % 2 == 0 {
            db.flush().unwrap();
        }
        write(&db, &mut rows, &of_all((100 * round + 90..100 * round + 95).map(minute)), round);
        if round > 3 {
            // Those are there already.
            write(&db, &mut rows, &of_all((100 * round - 50..100 * round - 40).map(minute)), round);
        }
        check(&db.snapshot(TABLE).unwrap(), &rows, SENSORS, None);
        check_each(&db.snapshot(TABLE).unwrap(), &rows);
        db.close().unwrap();
    }
}

/// A store that failed for a moment made late rows of that moment count as replacing others for good.
#[test]
fn late_rows_are_looked_up_again_after_a_failure() {
    let disk = FaultDisk::new(Arc::new(MemDisk::new()), 1);
    let clock = Arc::new(ManualClock::new(NOW_NS));
    let mut rows = Rows::new();
    let second = |number: i64| NOW_NS - NS_PER_HOUR + number * NS_PER_SECOND;
    let db = open(disk.clone(), &clock).unwrap();
    // Without a step, so that their pages are read for it.
    let irregular = |number: i64| second(number) + number * number % 977;
    write(&db, &mut rows, &of_all((0..1_000).map(irregular)), 2);
    db.flush().unwrap();
    write(&db, &mut rows, &of_all((0..100).map(|number| second(number * 7) + 1_000)), 4);
    db.close().unwrap();
    for reads in 0.. {
        let db = open(disk.clone(), &clock).unwrap();
        let snapshot = db.snapshot(TABLE).unwrap();
        disk.arm(Fault::ReadError, reads, Times::Always);
        let asked = snapshot.aggregate(&in_one_group(SENSORS), &Arc::default());
        let has_failed = disk.fired() > 0;
        disk.disarm();
        assert!(has_failed || asked.is_ok());
        assert_eq!(check(&snapshot, &rows, SENSORS, None), 0, "behind {reads} reads");
        db.close().unwrap();
        if !has_failed {
            assert!(reads > 1, "nothing was read");
            break;
        }
    }
}

/// Several readers find the same at the same time.
#[test]
fn readers_wait_for_each_other_to_find_out() {
    let db = open(MemDisk::new(), &Arc::new(ManualClock::new(NOW_NS))).unwrap();
    let mut rows = Rows::new();
    let mut rng = SmallRng::seed_from_u64(1);
    write(&db, &mut rows, &of_all(std::iter::once(NOW_NS)), -1);
    for round in 0..20 {
        let key =
            |_| (rng.random_range(0..SENSORS), NOW_NS + rng.random_range(0..5_000) * NS_PER_SECOND);
        let keys: Vec<(u32, i64)> = (0..2_000).map(key).collect();
        write(&db, &mut rows, &keys, round);
        let snapshot = db.snapshot(TABLE).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| check(&snapshot, &rows, SENSORS, None));
            }
        });
        if round % 7 == 6 {
            db.flush().unwrap();
        }
    }
    db.close().unwrap();
}

/// What a model knows of a table: the latest value of each sensor at each moment of a grid.
struct Grid {
    values: Vec<Option<i64>>,
}

impl Grid {
    const SENSORS: usize = 256;
    const STEP_NS: i64 = NS_PER_MINUTE;
    const DAY_STEPS: usize = (NS_PER_DAY / Self::STEP_NS) as usize;
    const STEPS: usize = 10 * Self::DAY_STEPS;

    fn new() -> Self {
        Self { values: vec![None; Self::SENSORS * Self::STEPS] }
    }

    fn at(step: usize) -> i64 {
        NOW_NS + NS_PER_DAY - (Self::STEPS - step) as i64 * Self::STEP_NS
    }

    fn write(&mut self, db: &Db, keys: &[(u32, usize)], value: i64) {
        let time: Vec<i64> = keys.iter().map(|(_, step)| Self::at(*step)).collect();
        let sensors = keys.iter().map(|(sensor, _)| *sensor).collect();
        let values = Arc::new(Int64Array::from(vec![value; keys.len()])) as ArrayRef;
        let batch = WriteBatch {
            time: time.into(),
            tags: vec![sensor_tag(Self::SENSORS as u32, sensors)],
            fields: vec![FieldColumn { name: "value".into(), values }],
        };
        let (ack, unknown) = (Ack::Memory, Unknown::Create);
        db.write(TABLE, &batch, &WriteOptions { ack, unknown, ..WriteOptions::default() }).unwrap();
        for (sensor, step) in keys {
            self.values[*sensor as usize * Self::STEPS + step] = Some(value);
        }
    }

    /// Holds number, sum and greatest value of all rows against it.
    fn check(&self, db: &Db, when: &str) {
        let snapshot = db.snapshot(TABLE).unwrap();
        let request = in_one_group(snapshot.sensor_count());
        let found = snapshot.aggregate(&request, &ReadStats::default().into()).unwrap();
        let value = |array: &ArrayRef| array.as_primitive::<Int64Type>().value(0);
        let values = || self.values.iter().flatten();
        let expected = (values().count() as u64, values().sum(), *values().max().unwrap());
        let found = (found.rows[0], value(&found.fields[0].sum), value(&found.fields[0].max));
        assert_eq!(found, expected, "{when}");
    }
}

/// All that had come late before was decoded to find out whether late rows replace anything, each time that somebody asked.
#[test]
fn late_rows_lie_apart_and_have_filters() {
    const ROUNDS: i64 = 60;
    const SENSORS: u32 = 64;
    let of_all = |times: Vec<i64>| -> Vec<(u32, i64)> {
        times.iter().flat_map(|at| (0..SENSORS).map(|sensor| (sensor, *at))).collect()
    };
    let store = Arc::new(RemoteIo::new(objects_on(MemDisk::new())));
    let clock = Arc::new(ManualClock::new(NOW_NS));
    // Index and metrics stay in memory.
    let options = DbOptions { memory_bytes: 256 << 20, ..crate::asking::options(&clock) };
    let db = Db::open_apart(Arc::new(MemDisk::new()), store.clone(), options).unwrap();
    let mut rng = SmallRng::seed_from_u64(11);
    let mut rows = Rows::new();
    let mut write_some = |rows: &mut Rows, round: i64| {
        let in_order = (0..30).map(|second| NOW_NS + (30 * round + second) * NS_PER_SECOND);
        write(&db, rows, &of_all(in_order.collect()), round);
        // Of six hours, all apart from each other.
        let late = (0..5).map(|row| (ROUNDS + 3) * (5 * rng.random_range(0..4000) + row) + round);
        let late = late.map(|second| NOW_NS - 2 - second * NS_PER_SECOND / 60);
        write(&db, rows, &of_all(late.collect()), round);
    };
    let run_files = || {
        let tables = db.inspect().unwrap();
        let models = tables.iter().flat_map(|table| &table.models);
        models.filter(|of| of.model == Model::Kv).map(|of| of.objects).sum::<u64>() as usize
    };
    write(&db, &mut rows, &of_all(vec![NOW_NS - 1]), 0);
    for round in 0..ROUNDS {
        write_some(&mut rows, round);
        db.flush().unwrap();
    }
    // Until all is laid together that can be.
    let until = Instant::now() + Duration::from_secs(60);
    while store.take_reads().count > 0 {
        assert!(Instant::now() < until, "{} run files", run_files());
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(run_files() < 2 * 2 * 8, "{} run files", run_files());
    assert_eq!(check(&db.snapshot(TABLE).unwrap(), &rows, SENSORS, None), 0);
    write_some(&mut rows, ROUNDS);
    store.take_reads();
    let files = run_files();
    assert_eq!(check(&db.snapshot(TABLE).unwrap(), &rows, SENSORS, None), 0);
    let reads = store.take_reads().count;
    println!("{reads} reads, {files} run files");
    assert!(reads <= 2 * files + 20, "{reads} reads, {files} run files");
    // Those that are sent again replace what is there.
    let again: Vec<(u32, i64)> = rows.keys().copied().step_by(97).collect();
    write(&db, &mut rows, &again, 1_000);
    check(&db.snapshot(TABLE).unwrap(), &rows, SENSORS, None);
    db.flush().unwrap();
    write_some(&mut rows, ROUNDS + 2);
    check(&db.snapshot(TABLE).unwrap(), &rows, SENSORS, None);
    let found = db.verify().unwrap();
    assert_eq!(found.damages, Vec::new());
    db.cascade(&CascadeRequest { table: None, target: Target::Short }).unwrap();
    check(&db.snapshot(TABLE).unwrap(), &rows, SENSORS, None);
    db.close().unwrap();
}

/// Each day got an object of its own of a few late rows, each time that memory was full of others.
#[test]
fn late_rows_leave_a_full_memory_in_few_objects_that_move_together() {
    const PIECE: usize = 40_000;
    let clock = Arc::new(ManualClock::new(NOW_NS + 23 * NS_PER_HOUR));
    let disk = MemDisk::new();
    // The upkeep's clock has no part in it.
    let options = || DbOptions {
        cascade_pause: Duration::from_secs(3600),
        threads: 2,
        ..crate::asking::options(&clock)
    };
    let db = Db::open_on(Arc::new(disk.clone()), options()).unwrap();
    let mut rng = SmallRng::seed_from_u64(7);
    let mut grid = Grid::new();
    let objects = |db: &Db, model: Model| {
        let tables = db.inspect().unwrap();
        let models = tables.iter().flat_map(|table| &table.models);
        models.filter(|of| of.model == model).map(|of| of.objects).sum::<u64>()
    };
    let first: Vec<(u32, usize)> =
        (0..Grid::SENSORS as u32).map(|sensor| (sensor, Grid::STEPS - 1)).collect();
    grid.write(&db, &first, 0);
    let (mut value, mut run_files) = (0, 0);
    while objects(&db, Model::Short) == 0 {
        value += 1;
        assert!(value < 1_000, "late rows move at some time");
        let keys: Vec<(u32, usize)> = (0..PIECE)
            .map(|_| {
                let late = rng.random_bool(0.5);
                let steps =
                    if late { 0..8 * Grid::DAY_STEPS } else { 9 * Grid::DAY_STEPS..Grid::STEPS };
                (rng.random_range(0..Grid::SENSORS as u32), rng.random_range(steps))
            })
            .collect();
        grid.write(&db, &keys, value);
        run_files = run_files.max(objects(&db, Model::Kv));
        if value % 8 == 0 {
            grid.check(&db, &format!("write {value}"));
        }
    }
    assert!(run_files > 8, "{run_files} run files before any moved");
    assert!(objects(&db, Model::Short) <= 8, "one object of a day");
    grid.check(&db, "behind the move");
    db.close().unwrap();
    let db = Db::open_on(Arc::new(disk), options()).unwrap();
    grid.check(&db, "behind an opening");
    db.cascade(&CascadeRequest { table: None, target: Target::Long }).unwrap();
    grid.check(&db, "behind a cascade");
}

/// Rows that a full memory leaves where they are were looked up by each flush, however many it took.
#[test]
fn what_is_known_of_late_rows_goes_with_them() {
    const SENSORS: u32 = 64;
    const STEPS: i64 = 400;
    let clock = Arc::new(ManualClock::new(NOW_NS + 23 * NS_PER_HOUR));
    let options = DbOptions {
        cascade_pause: Duration::from_secs(3600),
        threads: 2,
        ..crate::asking::options(&clock)
    };
    let db = Db::open_on(Arc::new(MemDisk::new()), options).unwrap();
    let mut rng = SmallRng::seed_from_u64(17);
    let (mut late, mut in_order) = (Rows::new(), 0);
    let run_files = || {
        let tables = db.inspect().unwrap();
        let models = tables.iter().flat_map(|table| &table.models);
        models.filter(|of| of.model == Model::Kv).map(|of| of.objects).sum::<u64>()
    };
    let mut flushed = 0;
    // Late rows leave memory, too: sometimes before somebody has asked, sometimes behind.
    for round in 0..128 {
        let ns = round * NS_PER_SECOND + 2 * NS_PER_HOUR;
        let times = (0..STEPS).map(|step| NOW_NS + ns + step * NS_PER_SECOND / STEPS);
        let keys: Vec<(u32, i64)> =
            times.flat_map(|at| (0..SENSORS).map(move |sensor| (sensor, at))).collect();
        write(&db, &mut Rows::new(), &keys, 1);
        in_order += keys.len() as i64;
        let mut key = || {
            let days = rng.random_range(0..7);
            let sensor = rng.random_range(0..SENSORS);
            (sensor, NOW_NS + ns - 1 - days * NS_PER_DAY - rng.random_range(0..NS_PER_HOUR))
        };
        let mut keys: Vec<(u32, i64)> = (0..3_000).map(|_| key()).collect();
        keys.sort_unstable();
        keys.dedup();
        if round % 64 == 60 {
            // Some that are in memory, in objects, and twice in a write.
            keys.extend(late.keys().copied().step_by(late.len() / 3 + 1));
            keys.push(keys[0]);
        }
        write(&db, &mut late, &keys, round);
        if rng.random_bool(0.3) {
            let count = late.len() as i64 + in_order;
            let sum = late.values().sum::<i64>() + in_order;
            let stats = Arc::new(ReadStats::default());
            let snapshot = db.snapshot(TABLE).unwrap();
            let found = snapshot.aggregate(&in_one_group(SENSORS), &stats).unwrap();
            let found_sum = found.fields[0].sum.as_primitive::<Int64Type>().value(0);
            assert_eq!((found.rows[0] as i64, found_sum), (count, sum), "round {round}");
            if round < 60 {
                assert_eq!(stats.rows.load(Ordering::Relaxed), 0, "round {round}: none replaced");
            }
        }
        flushed = flushed.max(run_files());
    }
    println!("{flushed} run files");
    assert!(flushed > 4, "memory was full {flushed} times");
    db.close().unwrap();
}
