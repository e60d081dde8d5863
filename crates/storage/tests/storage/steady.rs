//! Writes, loads, deletes and flushes while what they have left is laid together, moves and is read: nothing is lost, no value goes
//! back, and few objects are left.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::MemDisk;
use tidefall_storage::{
    AggregateRequest, BACKLOG_FREE, BACKLOG_MAX, CascadeRequest, Db, DbOptions, IfExists,
    MEMORY_BYTES_MIN, Model, TagFilter, Target, Unknown, WriteOptions,
};
use tidefall_types::{
    Clock, FieldColumn, FieldType, ManualClock, NS_PER_DAY, NS_PER_MINUTE, Series, SeriesBatch,
    TableId, TableSchema, TimeRange, WriteBatch,
};

use crate::asking::{in_one_group, whole_numbers};
use crate::hooks::{Does, Gate, HookDisk, within_a_minute};
use crate::{checked, rounds, sensor_tag, small};

const TABLE: &str = "plant";
/// 2024-01-25.
const NOW_NS: i64 = 19_747 * NS_PER_DAY;
const WRITES: usize = 400;
const SENSORS: u32 = 5;

/// The latest value of each sensor at each time.
type Rows = BTreeMap<(u32, i64), i64>;

/// Writes a value of each sensor at each time.
fn write(db: &Db, times: &[i64], value: i64) {
    let time: Vec<i64> =
        times.iter().flat_map(|at| std::iter::repeat_n(*at, SENSORS as usize)).collect();
    let keys = times.iter().flat_map(|_| 0..SENSORS).collect();
    let values = Arc::new(Int64Array::from(vec![value; time.len()])) as ArrayRef;
    let fields = vec![FieldColumn { name: "value".into(), values }];
    let batch = WriteBatch { time: time.into(), tags: vec![sensor_tag(SENSORS, keys)], fields };
    let options = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
    db.write(TABLE, &batch, &options).unwrap();
}

/// As [`write`], straight to objects.
fn load(db: &Db, times: &[i64], value: i64) {
    let values = Arc::new(Int64Array::from(vec![value; times.len()])) as ArrayRef;
    let series = Series { time: times.to_vec().into(), fields: vec![values] };
    let tags = vec![sensor_tag(SENSORS, (0..SENSORS).collect())];
    let (fields, series) = (vec!["value".into()], vec![series; SENSORS as usize]);
    db.load(TABLE, &SeriesBatch { tags, fields, series }, Unknown::Create).unwrap();
}

/// All rows; they are as many, and as large, as metrics say.
fn read(db: &Db) -> Rows {
    let snapshot = db.snapshot(TABLE).unwrap();
    let rows = whole_numbers(&snapshot);
    let times: Vec<i64> = rows.keys().map(|(_, at)| *at).collect();
    let middle_ns = times.get(times.len() / 2).copied().unwrap_or(0);
    for time in [TimeRange::ALL, TimeRange::new(middle_ns, i64::MAX)] {
        let request = AggregateRequest { time, ..in_one_group(SENSORS) };
        let found = snapshot.aggregate(&request, &Default::default()).unwrap();
        let within = || rows.iter().filter(|((_, at), _)| time.contains(*at));
        assert_eq!(found.rows.iter().sum::<u64>(), within().count() as u64);
        let sum = found.fields[0].sum.as_primitive::<Int64Type>().values().iter().sum::<i64>();
        assert_eq!(sum, within().map(|(_, value)| value).sum::<i64>());
        let greatest = found.fields[0].max.as_primitive::<Int64Type>().values();
        assert_eq!(greatest.iter().max(), within().map(|(_, value)| value).max());
    }
    rows
}

/// What is known to be there.
#[derive(Debug, Clone, Default)]
struct Known {
    /// Their values only grow between two deletes.
    rows: Rows,
    /// How many deletes have begun.
    deletes: usize,
}

struct World {
    clock: Arc<ManualClock>,
    db: Db,
    known: Mutex<Known>,
    /// Whether readings come late, or twice.
    is_late: bool,
    is_over: AtomicBool,
}

impl World {
    fn open(disk: &MemDisk, clock: &Arc<ManualClock>, pause: Duration) -> Db {
        let clock: Arc<ManualClock> = Arc::clone(clock);
        let (memory_bytes, cascade_pause) = (MEMORY_BYTES_MIN, pause);
        let options = DbOptions { clock, memory_bytes, cascade_pause, ..DbOptions::default() };
        Db::open_on(Arc::new(disk.clone()), options).unwrap()
    }

    /// Writes rows of the last minutes, and some that are late, while the clock goes on.
    fn write(&self, rng: &mut SmallRng) {
        let mut next_ns = NOW_NS;
        for number in 0..WRITES {
            let minutes = rng.random_range(30..90);
            self.clock.set(self.clock.now_ns() + minutes * NS_PER_MINUTE);
            let late_minutes = match rng.random_range(0..10) {
                _ if !self.is_late => 0,
                0..5 => 0,
                5..8 => rng.random_range(0..60),
                8 => rng.random_range(0..5 * 24 * 60),
                _ => rng.random_range(0..60 * 24 * 60),
            };
            let first_ns = next_ns - late_minutes * NS_PER_MINUTE;
            let times = (0..rng.random_range(1..30)).map(|row| first_ns + row * NS_PER_MINUTE);
            let times: Vec<i64> = times.collect();
            next_ns = next_ns.max(first_ns + times.len() as i64 * NS_PER_MINUTE);
            if rng.random_range(0..40) == 0 {
                let time = TimeRange::new(first_ns - NS_PER_DAY, first_ns - NS_PER_DAY / 2);
                {
                    // Readers may miss them from now on.
                    let mut known = self.known.lock().unwrap();
                    known.rows.retain(|(_, at), _| !time.contains(*at));
                    known.deletes += 1;
                }
                self.db.delete(TABLE, &TagFilter::All, time).unwrap();
                continue;
            }
            let value = number as i64;
            match rng.random_range(0..8) {
                0 => load(&self.db, &times, value),
                _ => write(&self.db, &times, value),
            }
            let keys = times.iter().flat_map(|at| (0..SENSORS).map(|sensor| (sensor, *at)));
            self.known.lock().unwrap().rows.extend(keys.map(|key| (key, value)));
        }
    }

    /// Does something again and again until it is over.
    fn until_over(&self, act: impl Fn()) {
        while !self.is_over.load(Ordering::SeqCst) {
            act();
        }
    }

    fn check(&self) {
        let known = self.known.lock().unwrap().clone();
        let found = read(&self.db);
        let later = self.known.lock().unwrap().clone();
        // Those that were deleted meanwhile may be gone, also if they have been written again since.
        let may_be_gone = |key, value: i64| match later.rows.get(key) {
            Some(now) => known.deletes != later.deletes && *now != value,
            None => true,
        };
        for (key, value) in known.rows.iter().filter(|(key, value)| !may_be_gone(key, **value)) {
            let found = found.get(key);
            assert!(found.is_some_and(|found| found >= value), "{key:?}: {found:?} for {value}");
        }
    }
}

fn run(seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let (disk, clock) = (MemDisk::new(), Arc::new(ManualClock::new(NOW_NS)));
    let pause = Duration::from_millis(rng.random_range(1..20));
    let world = World {
        db: World::open(&disk, &clock, pause),
        clock: Arc::clone(&clock),
        known: Mutex::default(),
        is_late: rng.random(),
        is_over: AtomicBool::new(false),
    };
    write(&world.db, &[0], -1);
    let first = (0..SENSORS).map(|sensor| ((sensor, 0), -1));
    world.known.lock().unwrap().rows.extend(first);
    let target = [Target::ByAge, Target::Short, Target::Long][rng.random_range(0..3)];
    std::thread::scope(|scope| {
        let world = &world;
        scope.spawn(move || {
            world.until_over(|| {
                world.db.flush().unwrap();
            });
        });
        scope.spawn(move || {
            world.until_over(|| {
                std::thread::sleep(Duration::from_millis(30));
                world.db.cascade(&CascadeRequest { table: None, target }).unwrap();
            });
        });
        scope.spawn(move || world.until_over(|| world.check()));
        // The others end, too, when this one panics.
        let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            world.write(&mut rng);
        }));
        world.is_over.store(true, Ordering::SeqCst);
        written.unwrap();
    });
    let expected = world.known.into_inner().unwrap().rows;
    assert_eq!(read(&world.db), expected);
    assert_eq!(world.db.verify().unwrap().damages, []);
    world.db.close().unwrap();
    let db = World::open(&disk, &clock, Duration::from_secs(600));
    assert_eq!(read(&db), expected);
    db.close().unwrap();
}

#[test]
fn everything_at_once_loses_nothing() {
    for seed in 0..rounds(40) {
        checked(|| run(seed), || format!("seed {seed}"));
    }
}

/// Every flush left one more run file until a minute was over, and of more than eight all became one.
#[test]
fn run_files_become_few_without_being_asked() {
    const FLUSHES: i64 = 200;
    let (disk, clock) = (MemDisk::new(), Arc::new(ManualClock::new(NOW_NS)));
    let db = World::open(&disk, &clock, Duration::from_secs(600));
    let count = || {
        let tables = db.inspect().unwrap();
        tables[0].models.iter().find(|found| found.model == Model::Kv).unwrap().objects
    };
    let mut rows = Vec::new();
    for number in 0..FLUSHES {
        let new: Vec<(i64, i64)> =
            (0..30).map(|row| (NOW_NS + (number * 30 + row) * 1_000, row)).collect();
        small::write(&db, TABLE, &new);
        db.flush().unwrap();
        rows.extend(new);
    }
    // Fewer than eight of each size, of which three are there.
    let tries = (0..2_000).take_while(|_| count() > 24);
    let tries = tries.map(|_| std::thread::sleep(Duration::from_millis(5))).count();
    println!("{} run files after {tries} looks", count());
    assert!(count() <= 24, "{} run files", count());
    assert_eq!(small::read(&db, TABLE), rows);
    db.close().unwrap();
}

/// A disk on which compaction makes an object only when a gate is open.
fn gate_before_compaction(disk: MemDisk) -> (Arc<Gate>, HookDisk) {
    let gate = Arc::new(Gate::default());
    let at_gate = Arc::clone(&gate);
    let hooked = HookDisk::new(disk, move |does, _| {
        if does == Does::Create && std::thread::current().name() == Some("tidefall-compact") {
            at_gate.pass();
        }
    });
    (gate, hooked)
}

/// Parts of a day were being laid together when the day became too old: the part with later values went before them.
#[test]
fn what_is_dropped_uncovers_nothing_that_is_being_laid_together() {
    const AT_NS: i64 = NOW_NS - 20 * NS_PER_DAY;
    let (disk, clock) = (MemDisk::new(), Arc::new(ManualClock::new(NOW_NS)));
    let (gate, hooked) = gate_before_compaction(disk);
    let (cascade_pause, now) = (Duration::from_secs(2), Arc::clone(&clock));
    let options = DbOptions {
        clock: now,
        memory_bytes: MEMORY_BYTES_MIN,
        threads: 1,
        cascade_pause: Duration::from_secs(600),
        ..DbOptions::default()
    };
    let mut schema = TableSchema::new(TableId::default(), TABLE, "time");
    schema.add_field("value", FieldType::I64).unwrap();
    schema.options.retention_ns = Some(30 * NS_PER_DAY);
    // Nobody looks at what is due before all is in place: the upkeep would lay the parts of the day together itself.
    let db = Db::open_on(Arc::new(hooked.clone()), options.clone()).unwrap();
    db.create_table(&schema, IfExists::Fail).unwrap();
    for value in 0..7 {
        small::write(&db, TABLE, &[(AT_NS, value)]);
        db.flush().unwrap();
    }
    small::write(&db, TABLE, &[(NOW_NS, 0)]);
    db.close().unwrap();
    let db = Db::open_on(Arc::new(hooked), DbOptions { cascade_pause, ..options }).unwrap();
    gate.shut();
    small::write(&db, TABLE, &[(AT_NS, 7)]);
    db.flush().unwrap();
    gate.wait_for_one();
    small::write(&db, TABLE, &[(AT_NS, 8)]);
    db.flush().unwrap();
    clock.set(NOW_NS + 45 * NS_PER_DAY);
    std::thread::sleep(2 * cascade_pause);
    let found = small::read(&db, TABLE);
    gate.open();
    assert!(found.iter().all(|(at, value)| *at != AT_NS || *value == 8), "{found:?}");
    let waiting = db.clone();
    within_a_minute("retention", move || {
        while !small::read(&waiting, TABLE).is_empty() {
            std::thread::sleep(cascade_pause);
        }
    });
    db.close().unwrap();
}

/// Run files came as fast as memory was emptied, however far compaction was behind.
#[test]
fn writers_are_slowed_and_not_stopped_while_compaction_is_behind() {
    let (disk, clock) = (MemDisk::new(), Arc::new(ManualClock::new(NOW_NS)));
    let (gate, hooked) = gate_before_compaction(disk);
    let cascade_pause = Duration::from_secs(600);
    let options = DbOptions { clock, cascade_pause, threads: 1, ..DbOptions::default() };
    let db = Db::open_on(Arc::new(hooked), options).unwrap();
    gate.shut();
    let write = |number: i64| {
        small::write(&db, TABLE, &[(NOW_NS + number, number)]);
        db.flush().unwrap();
    };
    let few = (BACKLOG_FREE - 8) as i64;
    (0..few).for_each(write);
    assert_eq!(db.work().delayed_writes, 0, "while it keeps up");
    let many = (BACKLOG_MAX + 100) as i64;
    (few..many).for_each(write);
    let work = db.work();
    assert!(work.objects_to_compact >= BACKLOG_MAX as u64, "{work:?}");
    // A small write at a part of the speed of flushes takes less than sleeping does, and adds up.
    let rows: Vec<(i64, i64)> = (0..200_000).map(|row| (NOW_NS + many + row, row)).collect();
    small::write(&db, TABLE, &rows);
    small::write(&db, TABLE, &rows);
    assert!(db.work().delayed_writes > 0, "{:?}", db.work());
    gate.open();
    let waiting = db.clone();
    within_a_minute("compaction", move || {
        while waiting.work().objects_to_compact > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let before = db.work().delayed_writes;
    small::write(&db, TABLE, &rows);
    small::write(&db, TABLE, &rows);
    assert_eq!(db.work().delayed_writes, before, "it has caught up");
    db.close().unwrap();
}
