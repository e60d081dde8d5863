//! Objects on a store on which each read takes long, as behind a network: few rounds of reads answer a question.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow_array::Float64Array;
use tidefall_simulation::{MemDisk, Reads, RemoteIo};
use tidefall_storage::store::{Disk, DiskEntry, LocalIo, ObjectIo, ReadAhead};
use tidefall_storage::{
    CascadeRequest, Db, DbOptions, MissingLog, ScanRequest, Target, Unknown, WriteOptions,
};
use tidefall_types::{
    ErrorKind, FieldId, ManualClock, Month, NS_PER_DAY, NS_PER_HOUR, NS_PER_MINUTE, Series,
    SeriesBatch, TimeRange,
};

use crate::hooks::{Does, HookDisk};
use crate::sensor_tag;
use crate::small::{self, batch_of};

/// What a read takes.
const DELAY: Duration = Duration::from_millis(30);
/// Announced reads that go on at once.
const PARALLEL: usize = 16;
const SENSORS: u32 = 100;
const DAYS: i64 = 31;
const FIRST_NS: i64 = 19_700 * NS_PER_DAY;

/// The objects of a database on a disk.
pub fn objects_on(disk: impl Disk + 'static) -> Arc<dyn ObjectIo> {
    Arc::new(LocalIo::open(Arc::new(disk), &["manifest", "objects", "reached"]).unwrap())
}

fn open(log: &MemDisk, store: Arc<dyn ObjectIo>) -> Db {
    let clock = Arc::new(ManualClock::new(FIRST_NS + 400 * NS_PER_DAY));
    let objects = Arc::new(ReadAhead::new(store, PARALLEL, 64 << 20));
    let options = options(clock);
    Db::open_apart(Arc::new(log.clone()), objects, options).unwrap()
}

/// A writer that takes the place of another one, whatever only that one's log holds.
fn options(clock: Arc<ManualClock>) -> DbOptions {
    DbOptions { clock, threads: 1, missing_log: MissingLog::GiveUp, ..DbOptions::default() }
}

/// A month of minutes of each sensor.
fn month() -> SeriesBatch {
    let rows = DAYS * NS_PER_DAY / NS_PER_MINUTE;
    let series = |sensor: u32| {
        let time: Vec<i64> = (0..rows).map(|row| FIRST_NS + row * NS_PER_MINUTE).collect();
        let values = (0..rows).map(|row| ((row * 31 + i64::from(sensor)) % 977) as f64 / 8.0);
        let values = Float64Array::from_iter_values(values);
        Series { time: time.into(), fields: vec![Arc::new(values)] }
    };
    SeriesBatch {
        tags: vec![sensor_tag(SENSORS, (0..SENSORS).collect())],
        fields: vec!["value".into()],
        series: (0..SENSORS).map(series).collect(),
    }
}

/// Asks, and returns how many reads that took, in how many rounds, beside the answer.
fn asked<T>(store: &RemoteIo, what: &str, ask: impl FnOnce() -> T) -> (T, usize, usize) {
    store.take_reads();
    let start = Instant::now();
    let answer = ask();
    let seconds = start.elapsed().as_secs_f64();
    let Reads { count, most, rounds } = store.take_reads();
    println!("{what}: {count} reads in {rounds} rounds, {most} at once, {seconds:.3} s");
    (answer, count, rounds)
}

#[test]
fn few_rounds_of_reads_answer_a_question() {
    let log = MemDisk::new();
    let store = Arc::new(RemoteIo::new(objects_on(MemDisk::new())));
    let db = open(&log, store.clone());
    db.load("plant", &month(), Unknown::Create).unwrap();
    db.close().unwrap();
    let db = open(&log, store.clone());
    store.delay_reads(DELAY);
    let snapshot = db.snapshot("plant").unwrap();
    let (fields, all) = ([FieldId(0)], TimeRange::ALL);
    let sensors: Vec<u32> = (0..SENSORS).collect();
    let day = |number: i64| {
        let first_ns = FIRST_NS + number * NS_PER_DAY;
        TimeRange::new(first_ns, first_ns + NS_PER_DAY - 1)
    };
    let of_one = |sensor, time| snapshot.read_sensor(sensor, &time, &fields).unwrap().time.len();
    let scan = |time: TimeRange| {
        let (sensors, fields) = (sensors.clone(), fields.to_vec());
        let request = ScanRequest { sensors, time, fields, conditions: Vec::new(), limit: None };
        snapshot.scan(&request).unwrap().map(|batch| batch.unwrap().rows()).sum::<usize>()
    };
    // As many as are needed at least, and some for a machine that has other things to do: not all threads read as often then.
    let rounds_max = |reads: usize| reads.div_ceil(PARALLEL) * 3 / 2 + 1;
    // Each sensor's pages lie side by side; in tests frames of the index lie between them.
    let reads_max = sensors.len() * if cfg!(debug_assertions) { 4 } else { 1 };
    let are_few = |reads: usize, rounds: usize| rounds <= rounds_max(reads);

    let (rows, _, rounds) =
        asked(&store, "a day of a sensor of a segment that is closed", || of_one(7, day(3)));
    // The end of the segment, the index, the pages.
    assert!(rows == 24 * 60 && rounds <= 5, "{rounds} rounds");
    scan(all);
    // Now the index is in memory.
    let (rows, reads, _) = asked(&store, "a day of a sensor", || of_one(9, day(5)));
    assert_eq!((rows, reads), (24 * 60, 1));
    for (what, time, days) in [("a month of all sensors", all, DAYS), ("a day of all", day(8), 1)] {
        let (rows, reads, rounds) = asked(&store, what, || scan(time));
        assert_eq!(rows as i64, i64::from(SENSORS) * days * 24 * 60);
        assert!(reads <= reads_max && are_few(reads, rounds), "{reads} reads, {rounds} rounds");
    }
    let (frame, reads, rounds) = asked(&store, "a frame of a month of all sensors", || {
        snapshot.read_frame::<f64>(&sensors, &all, FieldId(0)).unwrap()
    });
    assert_eq!(frame.time.len() as i64, DAYS * 24 * 60);
    assert!(reads <= reads_max && are_few(reads, rounds), "{reads} reads, {rounds} rounds");
}

/// All objects were opened for the latest values, one page after the other was read for them.
#[test]
fn the_latest_values_are_looked_for_from_the_newest_object_back() {
    const MONTHS: i32 = 24;
    let log = MemDisk::new();
    let store = Arc::new(RemoteIo::new(objects_on(MemDisk::new())));
    let db = open(&log, store.clone());
    let first = Month::of(FIRST_NS);
    // Each month has rows of all sensors but one, which has none but in the first.
    for number in 0..MONTHS {
        let month = Month(first.0 - MONTHS + number).range();
        let rows = (month.last_ns - month.first_ns) / NS_PER_HOUR;
        let sensors = if number == 0 { SENSORS } else { SENSORS - 1 };
        let time: Vec<i64> = (0..rows).map(|row| month.first_ns + row * NS_PER_HOUR).collect();
        let series = |sensor: u32| {
            let value = |row: i64| (row * 7 + i64::from(sensor)) as f64;
            let values = Float64Array::from_iter_values((0..rows).map(value));
            Series { time: time.clone().into(), fields: vec![Arc::new(values)] }
        };
        let batch = SeriesBatch {
            tags: vec![sensor_tag(SENSORS, (0..sensors).collect())],
            fields: vec!["value".into()],
            series: (0..sensors).map(series).collect(),
        };
        db.load("plant", &batch, Unknown::Create).unwrap();
    }
    db.close().unwrap();
    let db = open(&log, store.clone());
    store.delay_reads(DELAY);
    let snapshot = db.snapshot("plant").unwrap();
    let others: Vec<u32> = (0..SENSORS - 1).collect();
    let latest = |sensors: &[u32]| snapshot.latest(sensors, FieldId(0)).unwrap();
    let (found, reads, rounds) = asked(&store, "the latest of an object", || latest(&others));
    let last_ns = first.range().first_ns;
    assert!(found.time.iter().all(|at| (last_ns - 2 * NS_PER_HOUR..last_ns).contains(at)));
    assert_eq!(found.sensors, others);
    // Two for its ends, some of the index, and a page of times and values of each sensor at most.
    let few = others.len() + 8;
    assert!(reads <= few && rounds <= few.div_ceil(PARALLEL) * 3 / 2 + 4, "{reads}, {rounds}");
    let (again, reads, rounds) = asked(&store, "and again", || latest(&others));
    assert_eq!(again.time, found.time);
    assert!(reads <= others.len() && rounds <= others.len().div_ceil(PARALLEL) * 3 / 2 + 1);
    let (all, ..) = asked(&store, "one that is long gone", || latest(&[SENSORS - 1, 0]));
    assert_eq!(all.sensors, [SENSORS - 1, 0]);
    assert!(all.time[0] < Month(first.0 - MONTHS + 1).range().first_ns);
    let at_ns = all.time[0];
    let (at, _, rounds) = asked(&store, "one moment of all", || {
        let sensors: Vec<u32> = (0..SENSORS).collect();
        snapshot.at(&sensors, at_ns, FieldId(0)).unwrap()
    });
    assert_eq!(at.sensors.len(), SENSORS as usize);
    assert!(rounds <= (SENSORS as usize).div_ceil(PARALLEL) * 3 / 2 + 4, "{rounds} rounds");
}

/// What is written, moved and read is the same, wherever objects lie.
#[test]
fn a_database_with_its_objects_elsewhere_is_one_like_others() {
    let (log, objects) = (MemDisk::new(), MemDisk::new());
    let clock = Arc::new(ManualClock::new(FIRST_NS));
    let open = || {
        let ahead = Arc::new(ReadAhead::new(objects_on(objects.clone()), 4, 1 << 20));
        let options = DbOptions { clock: clock.clone(), threads: 1, ..DbOptions::default() };
        Db::open_apart(Arc::new(log.clone()), ahead, options).unwrap()
    };
    let mut expected = Vec::new();
    for round in 0..20 {
        let db = open();
        let rows: Vec<(i64, i64)> = (0..50)
            .map(|row| (FIRST_NS - (row * 37 + round) % 400 * NS_PER_DAY / 4, round))
            .collect();
        small::write(&db, "plant", &rows);
        for (time, value) in rows {
            match expected.binary_search_by_key(&time, |(other, _)| *other) {
                Ok(at) => expected[at] = (time, value),
                Err(at) => expected.insert(at, (time, value)),
            }
        }
        match round % 4 {
            0 => drop(db.flush().unwrap()),
            1 => drop(db.cascade(&CascadeRequest { table: None, target: Target::ByAge }).unwrap()),
            2 => drop(db.cascade(&CascadeRequest { table: None, target: Target::Long }).unwrap()),
            _ => {}
        }
        assert_eq!(small::read(&db, "plant"), expected, "round {round}");
        let report = db.verify().unwrap();
        assert!(report.damages.is_empty(), "{:?}", report.damages);
        db.close().unwrap();
    }
    // The log has nothing of the objects, and the other way round.
    assert!(log.list("objects").is_err() || log.list("objects").unwrap().is_empty());
    assert!(objects.list("wal").is_err() || objects.list("wal").unwrap().is_empty());
}

/// Two machines that write to one store: nothing of the earlier one comes between what the later one writes.
#[test]
fn a_new_writer_ends_the_earlier_one() {
    let objects = MemDisk::new();
    let clock = Arc::new(ManualClock::new(FIRST_NS));
    let open = |log: &MemDisk| {
        Db::open_apart(Arc::new(log.clone()), objects_on(objects.clone()), options(clock.clone()))
            .unwrap()
    };
    let names = || {
        let found = objects.list("objects").unwrap().into_iter();
        let name = |entry| match entry {
            DiskEntry::File { name, .. } => name,
            DiskEntry::Dir(name) => panic!("{name}"),
        };
        found.map(name).collect::<BTreeSet<String>>()
    };
    let logs = [MemDisk::new(), MemDisk::new()];
    let first = open(&logs[0]);
    small::write(&first, "plant", &[(1, 1)]);
    first.flush().unwrap();
    let of_first = names();
    small::write(&first, "plant", &[(2, 1)]);
    let second = open(&logs[1]);
    assert_eq!(first.flush().unwrap_err().kind(), ErrorKind::Conflict);
    let late = batch_of(&[(3, 1)]);
    let error = first.write("plant", &late, &WriteOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    small::write(&second, "plant", &[(2, 2), (4, 2)]);
    second.flush().unwrap();
    assert_eq!(small::read(&second, "plant"), [(1, 1), (2, 2), (4, 2)]);
    assert!(second.verify().unwrap().damages.is_empty());
    // Their names have the numbers of who wrote them.
    let of_second: BTreeSet<String> = names().difference(&of_first).cloned().collect();
    let writer = |name: &String| name.split(['-', '.']).nth(1).map(str::to_owned);
    let writers: Vec<BTreeSet<_>> =
        [&of_first, &of_second].map(|names| names.iter().map(writer).collect()).into();
    assert!(writers[0].len() == 1, "{writers:?}");
    assert_eq!(writers[1].difference(&writers[0]).count(), 1, "{writers:?}");
}

/// What an overtaken writer had acknowledged was read behind what the later one had written: under its sensors, and some of it not at all.
#[test]
fn the_log_of_an_overtaken_writer_is_refused() {
    for flushes in [false, true] {
        let objects = MemDisk::new();
        let clock = Arc::new(ManualClock::new(FIRST_NS));
        let open = |log: &MemDisk| {
            Db::open_apart(
                Arc::new(log.clone()),
                objects_on(objects.clone()),
                options(clock.clone()),
            )
        };
        let logs = [MemDisk::new(), MemDisk::new()];
        let first = open(&logs[0]).unwrap();
        small::write(&first, "plant", &[(1, 1)]);
        first.flush().unwrap();
        small::write(&first, "plant", &[(2, 1), (3, 1)]);
        let second = open(&logs[1]).unwrap();
        small::write(&second, "plant", &[(2, 2)]);
        if flushes {
            second.flush().unwrap();
        }
        drop((first, second));
        let error = open(&logs[0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        let again = open(&logs[1]).unwrap();
        assert_eq!(small::read(&again, "plant"), [(1, 1), (2, 2)]);
        again.flush().unwrap();
        drop(again);
        // A log of which nothing is left is one like a new one.
        let fresh = open(&MemDisk::new()).unwrap();
        assert_eq!(small::read(&fresh, "plant"), [(1, 1), (2, 2)]);
    }
}

/// Called once.
type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// The objects of a writer that began while another one was being opened looked like those that a crash leaves.
#[test]
fn a_writer_that_is_overtaken_while_it_opens_harms_nothing() {
    let hook = Hook::default();
    let behind_commit = Arc::clone(&hook);
    // A commit is there once its temporary name goes.
    let disk = HookDisk::new(MemDisk::new(), move |does, name| {
        let is_commit = does == Does::Remove && name.contains(".delta.");
        let act = is_commit.then(|| behind_commit.lock().unwrap().take());
        act.flatten().into_iter().for_each(|act| act());
    });
    let store = objects_on(disk);
    let first = open(&MemDisk::new(), store.clone());
    small::write(&first, "plant", &[(1, 1)]);
    first.flush().unwrap();
    let later = Arc::new(Mutex::new(None));
    let overtake = {
        let (store, later) = (store.clone(), later.clone());
        move || {
            let db = open(&MemDisk::new(), store);
            small::write(&db, "plant", &[(2, 3)]);
            db.flush().unwrap();
            *later.lock().unwrap() = Some(db);
        }
    };
    *hook.lock().unwrap() = Some(Box::new(overtake));
    let overtaken = open(&MemDisk::new(), store.clone());
    assert_eq!(small::read(&overtaken, "plant"), [(1, 1)]);
    small::write(&overtaken, "plant", &[(3, 2)]);
    assert_eq!(overtaken.flush().unwrap_err().kind(), ErrorKind::Conflict);
    drop(overtaken);
    let later = later.lock().unwrap().take().unwrap();
    assert!(later.verify().unwrap().damages.is_empty());
    assert_eq!(small::read(&later, "plant"), [(1, 1), (2, 3)]);
    let last = open(&MemDisk::new(), store);
    assert_eq!(small::read(&last, "plant"), [(1, 1), (2, 3)]);
}
