//! A full disk: what needs room is refused, everything else goes on, and when there is room again all is taken
//! again, without a restart.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Array, StringArray};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::{Fault, FaultDisk, MemDisk, Times};
use tidefall_storage::{
    Ack, CascadeRequest, Db, DbOptions, MEMORY_BYTES_MIN, ScanRequest, TagFilter, Target, Unknown,
    WriteOptions,
};
use tidefall_types::{
    Clock, ErrorKind, FieldColumn, FieldId, ManualClock, NS_PER_DAY, Result, TimeRange, WriteBatch,
};

use crate::asking::{ask, open, read, read_all};
use crate::history::{History, Op, Rows, START_NS, TABLES, When, requests};
use crate::hooks::{Does, Gate, HookDisk, within_a_minute};
use crate::rounds;
use crate::small::{self, batch};

/// Fills the disk up and empties it again while requests come. Returns how many were refused.
fn fill_up_and_empty(seed: u64, ops: &[Op]) -> u64 {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mem = MemDisk::new();
    let disk = FaultDisk::new(Arc::new(mem.clone()), seed);
    let clock = Arc::new(ManualClock::new(START_NS));
    let mut history = History::default();
    let db = open(disk.clone(), &clock).unwrap();
    let (mut is_full, mut refused) = (false, 0);
    let check = |history: &History, db: &Db, when: When, what: &str| {
        for table in TABLES.into_iter().filter(|table| db.schema(table).is_ok()) {
            let checked = history.check(table, &read(db, table).unwrap(), when);
            checked.unwrap_or_else(|why| panic!("seed {seed}, {what}: {why}"));
        }
    };
    for (number, op) in ops.iter().enumerate() {
        if rng.random_ratio(1, 3) {
            is_full = !is_full;
            match is_full {
                true => disk.arm(Fault::DiskFull, rng.random_range(0..4), Times::Always),
                false => disk.disarm(),
            }
        }
        if let Op::Wait(pause_ns) = op {
            clock.set(clock.now_ns() + pause_ns);
        }
        history.may_forget(clock.now_ns());
        let what = format!("{number}: {op:?}");
        match ask(&db, op) {
            None => {}
            Some(Ok(())) => history.done(op),
            Some(Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::Full, "seed {seed}, {what}: {error}");
                assert!(is_full, "seed {seed}, {what}: there is room: {error}");
                assert!(error.message().contains("free some space"), "{error}");
                history.failed(op);
                refused += 1;
            }
        }
        check(&history, &db, When::Now, &what);
        let killed = open(mem.crash(number as u64), &clock).unwrap();
        check(&history, &killed, When::Reopened, &format!("killed after {what}"));
    }
    disk.disarm();
    let rows = Rows::from([((0, START_NS), (Some(1.5), None)), ((9, START_NS), (None, Some(2)))]);
    for op in [Op::Write(TABLES[0], rows, Ack::Durable), Op::Flush, Op::Cascade(Target::Long)] {
        history.may_forget(clock.now_ns());
        ask(&db, &op).unwrap().unwrap_or_else(|error| panic!("seed {seed}, {op:?}: {error}"));
        history.done(&op);
    }
    check(&history, &db, When::Now, "room for all");
    db.close().unwrap();
    history.done(&Op::Reopen);
    let again = open(mem, &clock).unwrap();
    check(&history, &again, When::Reopened, "opened again");
    read_all(&again, &TABLES).unwrap();
    assert_eq!(again.verify().unwrap().damages, []);
    refused
}

#[test]
fn a_full_disk_refuses_what_needs_space_until_there_is_some() {
    let refused: u64 = (0..rounds(25))
        .map(|seed| {
            let ops = requests(seed, 40);
            let ops: Vec<Op> = ops.into_iter().filter(|op| !matches!(op, Op::Reopen)).collect();
            fill_up_and_empty(seed, &ops)
        })
        .sum();
    println!("{refused} requests refused");
    assert!(refused > 50, "only {refused} requests were refused");
}

fn small_open(disk: FaultDisk) -> Db {
    let options = DbOptions { memory_bytes: MEMORY_BYTES_MIN, ..DbOptions::default() };
    Db::open_on(Arc::new(disk), options).unwrap()
}

#[test]
fn writers_with_a_full_memory_learn_of_a_full_disk_and_are_let_in_again() {
    const ROWS: i64 = 200_000;
    let disk = FaultDisk::new(Arc::new(MemDisk::new()), 1);
    let db = small_open(disk.clone());
    small::write(&db, "plant", &[(0, 0)]);
    disk.arm(Fault::DiskFull, 0, Times::Always);
    let writing = db.clone();
    let (rows, error) = within_a_minute("a write", move || {
        let memory = WriteOptions { ack: Ack::Memory, ..WriteOptions::default() };
        let mut rows = 1;
        loop {
            match writing.write("plant", &batch(rows..rows + ROWS), &memory) {
                Ok(_) => rows += ROWS,
                Err(error) => return (rows, error),
            }
        }
    });
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert_eq!(small::read(&db, "plant").len() as i64, rows);
    disk.disarm();
    let writing = db.clone();
    within_a_minute("a write when there is room", move || {
        while let Err(error) =
            writing.write("plant", &batch(rows..rows + 1), &WriteOptions::default())
        {
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    db.flush().unwrap();
    db.close().unwrap();
    assert_eq!(small::read(&small_open(disk), "plant").len() as i64, rows + 1);
}

/// Late rows stayed in memory, and with them the log, which took what room there was.
#[test]
fn where_the_disk_was_full_late_rows_leave_memory_with_all_others() {
    const ROWS: i64 = 200_000;
    let disk = FaultDisk::new(Arc::new(MemDisk::new()), 1);
    let options = DbOptions {
        memory_bytes: MEMORY_BYTES_MIN,
        clock: Arc::new(ManualClock::new(NS_PER_DAY)),
        cascade_pause: Duration::from_secs(3600),
        ..DbOptions::default()
    };
    let db = Db::open_on(Arc::new(disk.clone()), options).unwrap();
    small::write(&db, "plant", &[(-10 * NS_PER_DAY, 0)]);
    disk.arm(Fault::DiskFull, 0, Times::Always);
    let writing = db.clone();
    within_a_minute("a write", move || {
        let memory = WriteOptions { ack: Ack::Memory, ..WriteOptions::default() };
        let write = |first: i64| writing.write("plant", &batch(first..first + ROWS), &memory);
        let error = (0..).find_map(|piece| write(piece * ROWS).err()).unwrap();
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    });
    assert!(db.stats().kv_bytes > 0);
    disk.disarm();
    let flushing = db.clone();
    within_a_minute("a flush when there is room", move || {
        while flushing.stats().kv_bytes > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    db.close().unwrap();
}

#[test]
fn an_fsync_that_finds_the_disk_full_ends_all_writes() {
    let disk = FaultDisk::new(Arc::new(MemDisk::new()), 1);
    let db = small_open(disk.clone());
    small::write(&db, "plant", &[(0, 0)]);
    disk.arm(Fault::SyncFull, 0, Times::Once);
    let durable = WriteOptions::default();
    assert_eq!(db.write("plant", &batch(1..2), &durable).unwrap_err().kind(), ErrorKind::Io);
    for _ in 0..2 {
        let error = db.write("plant", &batch(2..3), &durable).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
    let cascade = CascadeRequest { table: None, target: Target::Long };
    assert_eq!(db.cascade(&cascade).unwrap_err().kind(), ErrorKind::Closed);
    drop(db);
    let found = small::read(&small_open(disk), "plant");
    assert!(found == [(0, 0)] || found == [(0, 0), (1, 1)], "{found:?}");
}

const MEMORY: WriteOptions = WriteOptions {
    ack: Ack::Memory,
    unknown: Unknown::Create,
    bad_rows: tidefall_storage::BadRows::Reject,
    existing: tidefall_storage::Existing::Replace,
    field_types: tidefall_storage::FieldTypes::Keep,
};

/// Rows of long texts, which come into memory in many parts.
const TEXTS: i64 = 8_000;

fn texts() -> WriteBatch {
    let text = "x".repeat(10_000);
    let values = StringArray::from_iter_values((0..TEXTS).map(|_| &text));
    let fields = vec![FieldColumn { name: "text".into(), values: Arc::new(values) }];
    WriteBatch { time: (0..TEXTS).collect(), tags: Vec::new(), fields }
}

/// The rows with texts.
fn texts_in(db: &Db) -> i64 {
    let snapshot = db.snapshot("notes").unwrap();
    let sensors = snapshot.sort_sensors(&snapshot.resolve(&TagFilter::All).unwrap());
    let (time, fields) = (TimeRange::ALL, vec![FieldId(0)]);
    let request = ScanRequest { sensors, time, fields, conditions: Vec::new(), limit: None };
    let batches = snapshot.scan(&request).unwrap().map(Result::unwrap);
    batches.map(|batch| (batch.fields[0].len() - batch.fields[0].null_count()) as i64).sum()
}

/// An error means that nothing was written, and the other way round.
fn check_texts(written: &Result<()>, db: &Db) {
    assert_eq!(texts_in(db), if written.is_ok() { TEXTS } else { 0 }, "{written:?}");
}

/// A database with a table for texts, and a gate before each operation of a kind on some files.
fn gated(disk: FaultDisk, memory_bytes: usize, does: Does, dir: &'static str) -> (Db, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let at_gate = Arc::clone(&gate);
    let hooked = HookDisk::new(disk, move |what, name| {
        if what == does && name.starts_with(dir) {
            at_gate.pass();
        }
    });
    let options = DbOptions { memory_bytes, ..DbOptions::default() };
    let db = Db::open_on(Arc::new(hooked), options).unwrap();
    let mut none = texts();
    none.time = none.time.slice(0, 1);
    none.fields[0].values = Arc::new(StringArray::from(vec![None::<&str>]));
    db.write("notes", &none, &MEMORY).unwrap();
    small::write(&db, "plant", &[(0, 0)]);
    (db, gate)
}

/// Parts of a write that needs no log were refused with a group of those that do, and nobody heard of it.
#[test]
fn a_write_from_memory_in_parts_is_whole_when_the_log_finds_the_disk_full() {
    let disk = FaultDisk::new(Arc::new(MemDisk::new()), 1);
    let (db, gate) = gated(disk.clone(), 512 << 20, Does::Sync, "wal/");
    gate.shut();
    let durable = |time: i64| {
        let db = db.clone();
        move || db.write("plant", &batch(time..time + 1), &WriteOptions::default())
    };
    let held = std::thread::spawn(durable(1));
    gate.wait_for_one();
    let (send, receive) = std::sync::mpsc::channel();
    db.submit("plant", &batch(2..3), &WriteOptions::default(), move |outcome| {
        send.send(outcome.map(drop)).unwrap();
    })
    .unwrap();
    let writing = db.clone();
    let written = std::thread::spawn(move || writing.write("notes", &texts(), &MEMORY).map(drop));
    // So many of its parts wait that the others do not fit behind them.
    while db.is_ready_for("plant", &batch(0..1)) {
        std::thread::sleep(Duration::from_millis(1));
    }
    disk.arm(Fault::DiskFull, 0, Times::Always);
    gate.open();
    held.join().unwrap().unwrap();
    assert_eq!(receive.recv().unwrap().unwrap_err().kind(), ErrorKind::Full);
    let written = within_a_minute("the write", move || written.join().unwrap());
    check_texts(&written, &db);
    disk.disarm();
    assert_eq!(small::read(&db, "plant"), [(0, 0), (1, 1)]);
}

/// A write in parts was refused when some of them were in memory already.
#[test]
fn a_write_from_memory_in_parts_is_whole_when_memory_cannot_be_flushed() {
    let disk = FaultDisk::new(Arc::new(MemDisk::new()), 1);
    let (db, _) = gated(disk.clone(), MEMORY_BYTES_MIN, Does::Sync, "nothing");
    disk.arm(Fault::DiskFull, 0, Times::Always);
    let writing = db.clone();
    let written =
        within_a_minute("the write", move || writing.write("notes", &texts(), &MEMORY).map(drop));
    check_texts(&written, &db);
    let writing = db.clone();
    let error = within_a_minute("the next write", move || {
        writing.write("notes", &texts(), &MEMORY).unwrap_err()
    });
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    disk.disarm();
    db.flush().unwrap();
    check_texts(&written, &db);
}

#[test]
fn a_write_from_memory_in_parts_is_whole_when_the_database_closes() {
    let mem = MemDisk::new();
    let disk = FaultDisk::new(Arc::new(mem.clone()), 1);
    let (db, gate) = gated(disk.clone(), MEMORY_BYTES_MIN, Does::Create, "objects/");
    gate.shut();
    let writing = db.clone();
    let written = std::thread::spawn(move || writing.write("notes", &texts(), &MEMORY).map(drop));
    // What flushes the memory stands there; the rest of the write waits for it.
    gate.wait_for_one();
    let closing = db.clone();
    let close = std::thread::spawn(move || closing.close());
    let written = within_a_minute("the write", move || written.join().unwrap());
    gate.open();
    within_a_minute("the close", move || close.join().unwrap()).unwrap();
    check_texts(&written, &small_open(disk));
}

/// The seal of the last log file needs some bytes, without which nothing could be opened.
#[test]
fn a_database_opens_on_a_full_disk_and_takes_writes_when_there_is_space() {
    for seed in 0..8 {
        let mem = MemDisk::new();
        let db = small_open(FaultDisk::new(Arc::new(mem.clone()), 1));
        small::write(&db, "plant", &[(0, 0), (1, 1)]);
        let flushed = seed % 2 == 1;
        if flushed {
            db.flush().unwrap();
            small::write(&db, "plant", &[(2, 2)]);
        }
        let rows = |upto: i64| (0..upto).map(|row| (row, row)).collect::<Vec<_>>();
        let known = if flushed { 3 } else { 2 };
        let killed = mem.crash(seed);
        let disk = FaultDisk::new(Arc::new(killed.clone()), seed);
        disk.arm(Fault::DiskFull, 0, Times::Always);
        // Whoever only reads may close it as it was found.
        for _ in 0..2 {
            let found = small_open(disk.clone());
            assert_eq!(small::read(&found, "plant"), rows(known));
            found.close().unwrap();
        }
        let found = small_open(disk.clone());
        for _ in 0..2 {
            let row = batch(known..known + 1);
            let error = found.write("plant", &row, &WriteOptions::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        }
        // As it would be found after another kill.
        let still_full = FaultDisk::new(Arc::new(killed.crash(seed)), seed);
        still_full.arm(Fault::DiskFull, 0, Times::Always);
        for again in [small_open(still_full), open_plain(&killed.crash(seed))] {
            assert_eq!(small::read(&again, "plant"), rows(known));
        }
        disk.disarm();
        small::write(&found, "plant", &[(known, known)]);
        assert_eq!(small::read(&open_plain(&killed.crash(seed)), "plant"), rows(known + 1));
        small::write(&found, "plant", &[(known + 1, known + 1)]);
        found.close().unwrap();
        let again = open_plain(&killed);
        assert_eq!(small::read(&again, "plant"), rows(known + 2));
        assert_eq!(again.verify().unwrap().damages, []);
    }
}

fn open_plain(disk: &MemDisk) -> Db {
    small_open(FaultDisk::new(Arc::new(disk.clone()), 1))
}
