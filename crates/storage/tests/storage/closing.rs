//! A database that closes writes nothing once it is closed: another process may have it then.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array};
use tidefall_simulation::{Fault, FaultDisk, MemDisk, Times};
use tidefall_storage::{
    Ack, CascadeRequest, Db, DbOptions, IfExists, MEMORY_BYTES_MIN, TagFilter, Target, Unknown,
    WriteOptions,
};
use tidefall_types::{
    Error, ErrorKind, Result, Series, SeriesBatch, TableId, TableSchema, TimeRange,
};

use crate::hooks::{Does, Gate, HookDisk, within_a_minute};
use crate::small::{batch, read, write};

/// Long enough for the other threads to get where they wait.
const PAUSE: Duration = Duration::from_millis(100);

fn options() -> DbOptions {
    DbOptions { memory_bytes: MEMORY_BYTES_MIN, ..DbOptions::default() }
}

/// A database in which whoever begins an object waits at a gate.
fn gated(disk: &MemDisk) -> (Db, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let at_gate = Arc::clone(&gate);
    let hooked = HookDisk::new(disk.clone(), move |does, name| {
        if does == Does::Create && name.starts_with("objects/") {
            at_gate.pass();
        }
    });
    (Db::open_on(Arc::new(hooked), options()).unwrap(), gate)
}

fn reopened(disk: &MemDisk) -> Db {
    Db::open_on(Arc::new(disk.clone()), options()).unwrap()
}

fn series(rows: std::ops::Range<i64>) -> SeriesBatch {
    let values = Arc::new(Int64Array::from_iter_values(rows.clone())) as ArrayRef;
    let series = vec![Series { time: rows.collect(), fields: vec![values] }];
    SeriesBatch { tags: Vec::new(), fields: vec!["value".into()], series }
}

fn cascade(db: &Db, table: &str) -> Result<()> {
    let request = CascadeRequest { table: Some(table.into()), target: Target::Long };
    db.cascade(&request).map(drop)
}

fn assert_closed(outcome: &Result<()>, what: &str) {
    assert_eq!(outcome.as_ref().unwrap_err().kind(), ErrorKind::Closed, "{what}: {outcome:?}");
}

#[test]
fn nothing_begins_after_the_close() {
    let disk = MemDisk::new();
    let db = Db::open_on(Arc::new(disk.clone()), options()).unwrap();
    write(&db, "plant", &[(1, 1)]);
    db.close().unwrap();
    let steps = disk.steps();
    let schema = TableSchema::new(TableId::default(), "yard", "time");
    let create = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
    assert_closed(&db.create_table(&schema, IfExists::Fail), "create_table");
    assert_closed(&db.write("yard", &batch(0..1), &create).map(drop), "write with a new table");
    assert_closed(&db.write("plant", &batch(0..1), &create).map(drop), "write");
    assert_closed(&db.load("plant", &series(0..1), Unknown::Create).map(drop), "load");
    assert_closed(&db.delete("plant", &TagFilter::All, TimeRange::ALL), "delete");
    assert_closed(&db.flush().map(drop), "flush");
    assert_closed(&cascade(&db, "plant"), "cascade");
    assert_closed(&db.drop_table("plant"), "drop_table");
    db.close().unwrap();
    assert_eq!(disk.steps(), steps, "something was written");
    assert_eq!(read(&reopened(&disk), "plant"), [(1, 1)]);
}

#[test]
fn who_waits_for_the_cascade_while_the_database_closes_writes_nothing_after_it() {
    const TABLES: usize = 8;
    let disk = MemDisk::new();
    let (db, gate) = gated(&disk);
    let name = |table: usize| format!("plant{table}");
    for table in 0..TABLES {
        write(&db, &name(table), &[(1, 1)]);
    }
    gate.shut();
    std::thread::scope(|scope| {
        let cascades: Vec<_> = (0..TABLES)
            .map(|table| {
                let db = &db;
                scope.spawn(move || cascade(db, &name(table)))
            })
            .collect();
        // One of them moves readings, the others wait for it.
        gate.wait_for_one();
        std::thread::sleep(PAUSE);
        let (other, on_disk) = (db.clone(), disk.clone());
        let close = scope.spawn(move || {
            other.close().unwrap();
            on_disk.steps()
        });
        std::thread::sleep(PAUSE);
        gate.open();
        let steps = close.join().unwrap();
        let outcomes: Vec<_> = cascades.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(disk.steps(), steps, "something was written after the close: {outcomes:?}");
        for outcome in outcomes.iter().filter(|outcome| outcome.is_err()) {
            assert_closed(outcome, "cascade");
        }
        assert!(outcomes.iter().any(Result::is_err), "none was stopped");
    });
    let db = reopened(&disk);
    (0..TABLES).for_each(|table| assert_eq!(read(&db, &name(table)), [(1, 1)]));
}

#[test]
fn the_close_waits_for_a_load() {
    let disk = MemDisk::new();
    let (db, gate) = gated(&disk);
    write(&db, "plant", &[(0, 0)]);
    gate.shut();
    let (loading, closing) = (db.clone(), db.clone());
    let load = std::thread::spawn(move || loading.load("plant", &series(0..3), Unknown::Refuse));
    gate.wait_for_one();
    let close = std::thread::spawn(move || closing.close());
    std::thread::sleep(PAUSE);
    assert!(!close.is_finished(), "closed while columns are loaded");
    gate.open();
    close.join().unwrap().unwrap();
    let steps = disk.steps();
    let loaded = load.join().unwrap();
    assert_eq!(disk.steps(), steps, "something was written after the close");
    let rows = [(0, 0), (1, 1), (2, 2)];
    let wanted = if loaded.is_ok() { &rows[..] } else { &rows[..1] };
    assert_eq!(read(&reopened(&disk), "plant"), wanted);
}

#[test]
fn who_closes_second_waits_for_the_first() {
    let disk = MemDisk::new();
    let (db, gate) = gated(&disk);
    let from_memory =
        WriteOptions { unknown: Unknown::Create, ack: Ack::Memory, ..WriteOptions::default() };
    db.write("plant", &batch(0..2), &from_memory).unwrap();
    gate.shut();
    let (first, second) = (db.clone(), db.clone());
    let first = std::thread::spawn(move || first.close());
    // It makes the rows durable.
    gate.wait_for_one();
    let second = std::thread::spawn(move || second.close());
    std::thread::sleep(PAUSE);
    assert!(!second.is_finished(), "it is not closed yet");
    gate.open();
    second.join().unwrap().unwrap();
    first.join().unwrap().unwrap();
    assert_eq!(read(&reopened(&disk), "plant"), [(0, 0), (1, 1)]);
}

#[test]
fn who_waits_for_memory_learns_of_the_close() {
    const ROWS: i64 = 200_000;
    let disk = MemDisk::new();
    let (db, gate) = gated(&disk);
    write(&db, "plant", &[(0, 0)]);
    gate.shut();
    let (writing, closing) = (db.clone(), db.clone());
    let writer = std::thread::spawn(move || {
        let mut rows = 1;
        loop {
            let written =
                writing.write("plant", &batch(rows..rows + ROWS), &WriteOptions::default());
            match written {
                Ok(_) => rows += ROWS,
                Err(error) => return (rows, error),
            }
        }
    });
    // What flushes the memory stands there, and in front of it the writer fills the rest.
    gate.wait_for_one();
    while db.is_ready_for("plant", &batch(0..1)) {
        std::thread::sleep(PAUSE / 10);
    }
    let close = std::thread::spawn(move || closing.close());
    let (rows, error) = within_a_minute("the writer", move || writer.join().unwrap());
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    gate.open();
    within_a_minute("the close", move || close.join().unwrap()).unwrap();
    assert_eq!(read(&reopened(&disk), "plant").len() as i64, rows);
}

/// Work that was acknowledged from memory and fails in the middle: what it did before stays, also when the process ends.
#[test]
fn what_was_written_before_a_failure_is_flushed_and_a_flush_that_fails_is_told() {
    let disk = MemDisk::new();
    let faulty = FaultDisk::new(Arc::new(disk.clone()), 1);
    let db = Db::open_on(Arc::new(faulty.clone()), options()).unwrap();
    let in_memory =
        WriteOptions { ack: Ack::Memory, unknown: Unknown::Create, ..Default::default() };
    let failed = || Err::<(), _>(Error::conflict("row 7 is there"));
    db.write("plant", &batch(0..10), &in_memory).unwrap();
    assert_eq!(db.flush_after(failed()), failed());
    assert_eq!(rows_after_a_crash(&disk), 10);
    db.write("plant", &batch(10..20), &in_memory).unwrap();
    db.flush_after(Ok(())).unwrap();
    assert_eq!(rows_after_a_crash(&disk), 20);
    db.write("plant", &batch(20..30), &in_memory).unwrap();
    faulty.arm(Fault::DiskFull, 0, Times::Always);
    let error = db.flush_after(failed()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let begin = "row 7 is there; what is in memory could not be written to disk: ";
    assert!(error.message().starts_with(begin), "{error}");
    assert_eq!(db.flush_after(Ok(())).unwrap_err().kind(), ErrorKind::Full);
    faulty.disarm();
    assert_eq!(db.flush_after(failed()), failed());
    assert_eq!(rows_after_a_crash(&disk), 30);
}

fn rows_after_a_crash(disk: &MemDisk) -> usize {
    let db = Db::open_on(Arc::new(disk.crash(0)), options()).unwrap();
    read(&db, "plant").len()
}

/// What is called when a write is done, on a thread of the database, with the last handle of it.
#[test]
fn the_last_handle_may_be_dropped_by_what_the_database_calls() {
    for number in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path(), options()).unwrap();
        write(&db, "plant", &[(0, 0)]);
        let ack = if number % 2 == 0 { Ack::Memory } else { Ack::Durable };
        let write_options = WriteOptions { ack, ..WriteOptions::default() };
        let last = db.clone();
        let (send, told) = std::sync::mpsc::channel();
        let (go, goes) = std::sync::mpsc::channel::<()>();
        let done = move |outcome: Result<_>| {
            goes.recv().unwrap();
            drop(last);
            send.send(outcome.map(drop)).unwrap();
        };
        db.submit("plant", &batch(1..2), &write_options, done).unwrap();
        drop(db);
        go.send(()).unwrap();
        within_a_minute("the callback", move || told.recv().unwrap()).unwrap();
        let reopened = within_a_minute("the close", move || {
            loop {
                match Db::open(dir.path(), options()) {
                    Err(error) if error.kind() == ErrorKind::Locked => std::thread::yield_now(),
                    opened => break opened.map(|db| read(&db, "plant")),
                }
            }
        });
        assert_eq!(reopened.unwrap(), [(0, 0), (1, 1)]);
    }
}

#[test]
fn what_waits_for_writes_is_refused_where_they_are_committed() {
    let db = Db::open_on(Arc::new(MemDisk::new()), options()).unwrap();
    write(&db, "plant", &[(0, 0)]);
    let inner = db.clone();
    let (send, told) = std::sync::mpsc::channel();
    let (acknowledge, acknowledged) = std::sync::mpsc::channel();
    let done = move |outcome: Result<_>| {
        let create = WriteOptions::default();
        send.send(vec![
            outcome.map(drop),
            inner.write("plant", &batch(2..3), &create).map(drop),
            inner.load("plant", &series(3..4), Unknown::Create).map(drop),
            inner.delete("plant", &TagFilter::All, TimeRange::ALL),
            inner.flush().map(drop),
            cascade(&inner, "plant"),
            inner.drop_table("plant"),
            inner.close(),
            // This one does not wait.
            inner.submit("plant", &batch(4..5), &create, move |outcome| {
                acknowledge.send(outcome.map(drop)).unwrap();
            }),
        ])
        .unwrap();
    };
    db.submit("plant", &batch(1..2), &WriteOptions::default(), done).unwrap();
    let outcomes = within_a_minute("the callback", move || told.recv().unwrap());
    for (place, outcome) in outcomes.iter().enumerate() {
        match place {
            0 | 8 => assert_eq!(*outcome, Ok(()), "{place}"),
            _ => {
                let error = outcome.as_ref().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{place}: {error}");
                assert!(error.message().contains("on another thread"), "{place}: {error}");
            }
        }
    }
    within_a_minute("the write", move || acknowledged.recv().unwrap()).unwrap();
    db.flush().unwrap();
    assert_eq!(read(&db, "plant"), [(0, 0), (1, 1), (4, 4)]);
}
