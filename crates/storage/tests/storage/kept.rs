//! What a database keeps: memory of rows is charged as what it is and given back, and a step that
//! fails leaves no objects behind.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Float64Array, Int64Array, StringArray};
use tidefall_simulation::{Fault, FaultDisk, MemDisk, Times};
use tidefall_storage::store::{Disk, DiskEntry};
use tidefall_storage::{
    Ack, CascadeRequest, Db, DbOptions, MEMORY_BYTES_MIN, Target, Unknown, WriteOptions,
};
use tidefall_types::{
    ErrorKind, FieldColumn, ManualClock, NS_PER_DAY, Result, Series, SeriesBatch, WriteBatch,
};

use crate::asking::{open, options};
use crate::history::START_NS;
use crate::hooks::{Does, Gate, HookDisk, within_a_minute};
use crate::small::{read, write};

const TABLE: &str = "plant";

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(START_NS))
}

fn in_memory() -> WriteOptions {
    WriteOptions { ack: Ack::Memory, unknown: Unknown::Create, ..WriteOptions::default() }
}

/// Each slice was charged with the whole column, so that memory seemed full after a few of them.
#[test]
fn slices_are_charged_with_what_they_show() {
    const ROWS: usize = 100_000;
    const SLICE: usize = 1_000;
    let db = open(MemDisk::new(), &clock()).unwrap();
    let times: Int64Array = (0..ROWS as i64).map(|row| START_NS + row).collect();
    let floats: ArrayRef =
        Arc::new(Float64Array::from_iter_values((0..ROWS).map(|row| row as f64)));
    let texts: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| format!("{row:08}"))));
    for first in (0..ROWS).step_by(SLICE) {
        let fields = [("value", &floats), ("note", &texts)].map(|(name, column)| FieldColumn {
            name: name.into(),
            values: column.slice(first, SLICE),
        });
        let time = times.slice(first, SLICE).values().clone();
        let batch = WriteBatch { time, tags: Vec::new(), fields: fields.into() };
        db.write(TABLE, &batch, &in_memory()).unwrap();
    }
    // Sensor, time, the number, and a text with its offset.
    let shown = (ROWS * (4 + 8 + 8 + 8 + 4)) as u64;
    let charged = db.stats().kv_bytes;
    assert!((shown..shown * 3 / 2).contains(&charged), "{charged} bytes for {shown}");
    let models = &db.inspect().unwrap()[0].models;
    assert!(models.iter().all(|model| model.objects == 0), "it was flushed: {models:?}");
    db.flush().unwrap();
    assert_eq!(db.stats().kv_bytes, 0);
}

/// Small writes are laid together to a run that takes less than they do; the difference was never given back.
#[test]
fn small_writes_give_all_their_memory_back() {
    let db = open(MemDisk::new(), &clock()).unwrap();
    for round in 0..3 {
        for row in 0..1_000 {
            write(&db, TABLE, &[(START_NS + row, row)]);
            if row % 100 == 0 {
                assert!(read(&db, TABLE).len() as i64 > row);
            }
        }
        assert!(db.stats().kv_bytes > 0);
        db.flush().unwrap();
        assert_eq!(db.stats().kv_bytes, 0, "round {round}");
    }
}

/// Rows that had left memory were in no account, however many slow readers held them.
#[test]
fn rows_that_readers_hold_are_counted_until_they_end() {
    let db = open(MemDisk::new(), &clock()).unwrap();
    let (mut snapshots, mut held, mut sizes) = (Vec::new(), 0, Vec::new());
    for round in 0..3 {
        let rows: Vec<(i64, i64)> = (0..5_000).map(|row| (START_NS + row, round)).collect();
        write(&db, TABLE, &rows);
        write(&db, TABLE, &rows[..10]);
        snapshots.push(db.snapshot(TABLE).unwrap());
        let stats = db.stats();
        assert_eq!(stats.retained_bytes, held, "round {round}: those in memory are counted there");
        held += stats.kv_bytes;
        sizes.push(stats.kv_bytes);
        db.flush().unwrap();
        let stats = db.stats();
        assert_eq!((stats.kv_bytes, stats.retained_bytes), (0, held), "round {round}");
    }
    snapshots.remove(1);
    held -= sizes[1];
    assert_eq!(db.stats().retained_bytes, held);
    write(&db, TABLE, &[(START_NS, 1)]);
    snapshots.push(db.snapshot(TABLE).unwrap());
    let bytes = db.stats().kv_bytes;
    db.drop_table(TABLE).unwrap();
    assert_eq!((db.stats().kv_bytes, db.stats().retained_bytes), (0, held + bytes));
    drop(snapshots);
    assert_eq!(db.stats().retained_bytes, 0);
}

/// Rows of a table that is dropped were counted for ever: those in its tail, and those that were on their way.
#[test]
fn a_dropped_table_gives_all_its_memory_back() {
    let gate = Arc::new(Gate::default());
    let waiting = Arc::clone(&gate);
    let disk = HookDisk::new(MemDisk::new(), move |does, name| {
        if does == Does::Sync && name.starts_with("wal/") {
            waiting.pass();
        }
    });
    let db = open(disk, &clock()).unwrap();
    let rows: Vec<(i64, i64)> = (0..5_000).map(|row| (START_NS + row, row)).collect();
    write(&db, TABLE, &rows);
    write(&db, TABLE, &rows[..10]);
    gate.shut();
    let late = {
        let db = db.clone();
        std::thread::spawn(move || write(&db, TABLE, &[(START_NS, 1), (START_NS + 7, 2)]))
    };
    gate.wait_for_one();
    db.drop_table(TABLE).unwrap();
    assert_eq!(db.stats().kv_bytes, 0, "of what was there");
    gate.open();
    late.join().unwrap();
    assert_eq!(db.stats().kv_bytes, 0, "of what came late");
    write(&db, TABLE, &rows);
    assert_eq!(read(&db, TABLE), rows);
}

/// Rows of small writes with different fields take several times as much when a reader has them laid together: more
/// than lets a writer in, without a write that would call for a flush.
#[test]
fn writers_go_on_after_a_read_has_made_memory_full() {
    const FIELDS: usize = 110;
    const ROWS: i64 = 2_000;
    let db = open(MemDisk::new(), &clock()).unwrap();
    let wide = |number: i64| {
        let values: ArrayRef = Arc::new(Float64Array::from(vec![1.5; ROWS as usize]));
        let first = number as usize * FIELDS;
        let field = |field| FieldColumn { name: format!("f{field}"), values: Arc::clone(&values) };
        let time = (START_NS + number * ROWS..).take(ROWS as usize).collect();
        let fields = (first..first + FIELDS).map(field).collect();
        WriteBatch { time, tags: Vec::new(), fields }
    };
    (0..4).for_each(|number| drop(db.write(TABLE, &wide(number), &in_memory()).unwrap()));
    let before = db.stats().kv_bytes;
    let share = MEMORY_BYTES_MIN as u64 * 36 / 100;
    assert!(before < share / 2, "{before} bytes: they are flushed at once");
    drop(db.snapshot(TABLE).unwrap());
    let after = db.stats().kv_bytes;
    assert!(after > share, "{after} bytes: a writer need not wait");
    let (writing, one) = (db.clone(), wide(0));
    within_a_minute("a write", move || writing.write(TABLE, &one, &in_memory()).unwrap());
    assert!(db.stats().kv_bytes < share / 2);
}

fn files(disk: &MemDisk, dir: &str) -> BTreeSet<String> {
    let name = |entry| match entry {
        DiskEntry::File { name, .. } => Some(name),
        DiskEntry::Dir(_) => None,
    };
    disk.list(dir).unwrap().into_iter().filter_map(name).collect()
}

/// The objects that nothing names: those that an open deletes. A copy is opened.
fn strays(disk: &MemDisk, clock: &Arc<ManualClock>) -> Vec<String> {
    let copy = MemDisk::new();
    for dir in ["wal", "manifest", "objects"] {
        for name in files(disk, dir) {
            copy.place(&name, &disk.contents(&name).unwrap());
        }
    }
    let before = files(&copy, "objects");
    let opened = open(copy.clone(), clock).unwrap();
    let after = files(&copy, "objects");
    drop(opened);
    before.difference(&after).cloned().collect()
}

/// Rows of some days, nine days apart, the last of them so many days ago: of short columns and of long ones.
fn days(last: i64, count: i64) -> Vec<(i64, i64)> {
    let day = |at: i64| START_NS - (last + 9 * at) * NS_PER_DAY;
    (0..count).rev().flat_map(|at| (0..20).map(move |row| (day(at) + row, row))).collect()
}

type Deed = (&'static str, fn(&Db) -> Result<()>);

const DEEDS: [Deed; 3] = [
    ("flush", |db| db.flush().map(drop)),
    ("load", |db| {
        let (times, values): (Vec<i64>, Vec<i64>) = days(2, 6).into_iter().unzip();
        let values: ArrayRef = Arc::new(Int64Array::from(values));
        let series = vec![Series { time: times.into(), fields: vec![values] }];
        let batch = SeriesBatch { tags: Vec::new(), fields: vec!["value".into()], series };
        db.load(TABLE, &batch, Unknown::Create).map(drop)
    }),
    ("cascade", |db| db.cascade(&CascadeRequest { table: None, target: Target::Long }).map(drop)),
];

/// The objects that a failed step had finished stayed until the next open, and each retry added as many.
#[test]
fn a_step_that_fails_leaves_no_objects() {
    let faults =
        [Fault::WriteError, Fault::ShortWrite, Fault::DiskFull, Fault::NameError, Fault::ReadError];
    for (what, deed) in DEEDS {
        let mut failures = 0;
        for fault in faults {
            for skip in 0.. {
                let clock = clock();
                let disk = MemDisk::new();
                let faulty = FaultDisk::new(Arc::new(disk.clone()), skip);
                let db = open(faulty.clone(), &clock).unwrap();
                // Some in objects, late ones over them, and some in memory.
                write(&db, TABLE, &days(4, 3));
                db.flush().unwrap();
                write(&db, TABLE, &days(4, 5));
                if what == "cascade" {
                    db.flush().unwrap();
                }
                let mut has_struck = false;
                for attempt in 0..2 {
                    faulty.arm(fault, skip, Times::Once);
                    let outcome = deed(&db);
                    has_struck |= faulty.fired() > 0;
                    faulty.disarm();
                    let Err(error) = outcome else { break };
                    // After a commit that failed nobody knows what the manifest names.
                    let probe = db.delete(TABLE, &tidefall_storage::TagFilter::All, nothing());
                    let is_closed = [&error, &probe.err().unwrap_or(error.clone())]
                        .iter()
                        .any(|error| error.kind() == ErrorKind::Closed);
                    if is_closed {
                        break;
                    }
                    failures += 1;
                    let found = strays(&disk, &clock);
                    assert!(found.is_empty(), "{what}, {fault:?} {skip}, {attempt}: {found:?}");
                }
                if !has_struck {
                    break;
                }
            }
        }
        assert!(failures > 20, "{what} failed {failures} times only");
    }
}

/// A time at which there is nothing to delete.
fn nothing() -> tidefall_types::TimeRange {
    tidefall_types::TimeRange::new(0, 1)
}

/// After a failed commit of the manifest each look for what is due wrote the same rows to objects once more.
#[test]
fn a_failed_commit_of_the_manifest_leaves_no_more_objects() {
    let (disk, clock) = (MemDisk::new(), clock());
    let faulty = FaultDisk::new(Arc::new(disk.clone()), 1);
    let is_armed = Arc::new(AtomicBool::new(false));
    let (strikes, armed) = (faulty.clone(), Arc::clone(&is_armed));
    let hooked = HookDisk::new(faulty, move |does, name| {
        if does == Does::Write
            && name.starts_with("manifest/")
            && armed.swap(false, Ordering::SeqCst)
        {
            strikes.arm(Fault::WriteError, 0, Times::Once);
        }
    });
    let options = DbOptions { cascade_pause: Duration::from_millis(10), ..options(&clock) };
    let db = Db::open_on(Arc::new(hooked), options).unwrap();
    write(&db, TABLE, &[(START_NS, 0)]);
    is_armed.store(true, Ordering::SeqCst);
    // They are due at once.
    write(&db, TABLE, &[(0, 0), (1, 1)]);
    let values = Arc::new(Int64Array::from(vec![0])) as ArrayRef;
    let fields = vec![FieldColumn { name: "value".into(), values }];
    let row = WriteBatch { time: vec![START_NS].into(), tags: Vec::new(), fields };
    let writing = db.clone();
    let error = within_a_minute("the failure", move || {
        loop {
            match writing.write(TABLE, &row, &in_memory()) {
                Ok(_) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => return error,
            }
        }
    });
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    let left = readings(&disk);
    for attempt in 0..3 {
        let cascade = CascadeRequest { table: None, target: Target::Long };
        assert_eq!(db.cascade(&cascade).unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(readings(&disk), left, "cascade {attempt}");
        assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(readings(&disk), left, "flush {attempt}");
    }
    let end = Instant::now() + Duration::from_millis(500);
    while Instant::now() < end {
        let found = readings(&disk);
        assert!(found <= left, "{found} objects, {left} before");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(db);
    assert_eq!(read(&open(disk, &clock).unwrap(), TABLE).len(), 3);
}

/// How many objects with readings there are.
fn readings(disk: &MemDisk) -> usize {
    let is_one = |name: &&String| !name.ends_with(".sensors") && !name.ends_with(".tmp");
    files(disk, "objects").iter().filter(is_one).count()
}

/// It left objects that nothing named, and said that all was well.
#[test]
fn a_load_into_a_table_that_is_dropped_meanwhile_fails_and_leaves_nothing() {
    for comes_again in [false, true] {
        let disk = MemDisk::new();
        let other = Arc::new(std::sync::Mutex::new(None::<Db>));
        let dropping = Arc::clone(&other);
        let hooked = HookDisk::new(disk.clone(), move |does, name| {
            if does == Does::Create && name.starts_with("objects/") {
                let Some(db) = dropping.lock().unwrap().take() else { return };
                db.drop_table(TABLE).unwrap();
                if comes_again {
                    write(&db, TABLE, &[(START_NS, 7)]);
                }
            }
        });
        let db = open(hooked, &clock()).unwrap();
        write(&db, TABLE, &[(START_NS, 1)]);
        *other.lock().unwrap() = Some(db.clone());
        let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let series = vec![Series { time: vec![1, 2].into(), fields: vec![values] }];
        let batch = SeriesBatch { tags: Vec::new(), fields: vec!["value".into()], series };
        let error = db.load(TABLE, &batch, Unknown::Refuse).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.message().contains("table plant was dropped"), "{error}");
        assert_eq!(disk.list("objects").unwrap(), Vec::new());
        match comes_again {
            true => assert_eq!(read(&db, TABLE), [(START_NS, 7)]),
            false => assert!(db.tables().is_empty()),
        }
    }
}
