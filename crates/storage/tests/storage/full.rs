//! A full disk: what needs room is refused, everything else goes on, and when there is room again all is taken
//! again, without a restart.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_storage::store::{Fault, FaultDisk, MemDisk, Times};
use tidefall_storage::{
    Ack, CascadeRequest, Db, DbOptions, MEMORY_BYTES_MIN, Target, WriteOptions,
};
use tidefall_types::{Clock, ErrorKind, FieldColumn, ManualClock, WriteBatch};

use crate::asking::{ask, open, read, read_all};
use crate::history::{History, Op, Rows, START_NS, TABLES, When, requests};
use crate::hooks::within_a_minute;
use crate::rounds;
use crate::small;

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
fn a_full_disk_refuses_what_needs_room_until_there_is_some() {
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

fn batch(rows: std::ops::Range<i64>) -> WriteBatch {
    let values = Arc::new(Int64Array::from_iter_values(rows.clone())) as ArrayRef;
    let fields = vec![FieldColumn { name: "value".into(), values }];
    WriteBatch { time: rows.collect(), tags: Vec::new(), fields }
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
