//! A store behind a network that fails now and then: nothing of that ends writes, and what nobody knows is found out.

use std::sync::Arc;
use std::time::Duration;

use tidefall_simulation::{Leaves, MemDisk, RemoteIo};
use tidefall_storage::store::{LocalIo, ObjectIo, ReadAhead};
use tidefall_storage::{Ack, Db, DbOptions, MEMORY_BYTES_MIN, MissingLog, WriteOptions};
use tidefall_types::ErrorKind;

use crate::hooks::within_a_minute;
use crate::small::{self, batch};

const TABLE: &str = "plant";

/// A database whose objects lie in a store.
struct World {
    log: MemDisk,
    store: Arc<RemoteIo>,
}

impl World {
    fn new() -> Self {
        let dirs = ["manifest", "objects", "reached"];
        let objects = LocalIo::open(Arc::new(MemDisk::new()), &dirs).unwrap();
        Self { log: MemDisk::new(), store: Arc::new(RemoteIo::new(Arc::new(objects))) }
    }

    fn open_with(&self, log: &MemDisk) -> Db {
        let objects = Arc::clone(&self.store) as Arc<dyn ObjectIo>;
        let ahead = Arc::new(ReadAhead::new(objects, 2, 1 << 20));
        let missing_log = MissingLog::GiveUp;
        let options =
            DbOptions { memory_bytes: MEMORY_BYTES_MIN, missing_log, ..DbOptions::default() };
        Db::open_apart(Arc::new(log.clone()), ahead, options).unwrap()
    }

    fn open(&self) -> Db {
        self.open_with(&self.log)
    }
}

/// The commit might be there or not, and all writes ended.
#[test]
fn a_commit_that_fails_for_a_while_is_found_or_made_again() {
    for leaves in [Leaves::Nothing, Leaves::Object] {
        let world = World::new();
        let db = world.open();
        small::write(&db, TABLE, &[(1, 1)]);
        for row in 2..5 {
            world.store.fail_puts("manifest/", row as usize, leaves);
            small::write(&db, TABLE, &[(row, row)]);
            db.flush().unwrap_or_else(|error| panic!("{leaves:?}, row {row}: {error}"));
        }
        let rows = [(1, 1), (2, 2), (3, 3), (4, 4)];
        assert_eq!(small::read(&db, TABLE), rows);
        world.store.fail_puts("manifest/", 1, leaves);
        db.close().unwrap();
        world.store.fail_puts("manifest/", 1, leaves);
        let db = world.open();
        assert_eq!(small::read(&db, TABLE), rows);
        assert_eq!(db.verify().unwrap().damages, []);
    }
}

#[test]
fn a_commit_that_fails_for_long_ends_writes() {
    let world = World::new();
    let db = world.open();
    small::write(&db, TABLE, &[(1, 1)]);
    world.store.fail_puts("manifest/", usize::MAX, Leaves::Nothing);
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Io);
    let durable = WriteOptions::default();
    let error = db.write(TABLE, &batch(2..3), &durable).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    drop(db);
    world.store.fail_puts("", 0, Leaves::Nothing);
    assert_eq!(small::read(&world.open(), TABLE), [(1, 1)]);
}

#[test]
fn the_commit_of_another_writer_is_none_that_was_made() {
    let world = World::new();
    let first = world.open();
    small::write(&first, TABLE, &[(1, 1)]);
    first.flush().unwrap();
    small::write(&first, TABLE, &[(2, 1)]);
    let other = MemDisk::new();
    let second = world.open_with(&other);
    world.store.fail_puts("manifest/", 1, Leaves::Nothing);
    let error = first.flush().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    small::write(&second, TABLE, &[(3, 2)]);
    second.flush().unwrap();
    assert_eq!(small::read(&second, TABLE), [(1, 1), (3, 2)]);
}

/// Rows that were acknowledged from memory were lost with the close, which cannot be tried again.
#[test]
fn a_close_loses_nothing_in_a_store_that_fails_for_a_while() {
    for leaves in [Leaves::Nothing, Leaves::Object] {
        let world = World::new();
        let db = world.open();
        small::write(&db, TABLE, &[(0, 0)]);
        let memory = WriteOptions { ack: Ack::Memory, ..WriteOptions::default() };
        db.write(TABLE, &batch(1..4), &memory).unwrap();
        world.store.fail_puts("objects/", 2, leaves);
        db.close().unwrap();
        let db = world.open();
        assert_eq!(small::read(&db, TABLE).len(), 4, "{leaves:?}");
        assert_eq!(db.verify().unwrap().damages, []);
    }
}

/// It only makes the next open faster.
#[test]
fn a_close_needs_no_checkpoint() {
    let world = World::new();
    let db = world.open();
    small::write(&db, TABLE, &[(1, 1)]);
    db.flush().unwrap();
    world.store.fail_puts(".checkpoint", usize::MAX, Leaves::Nothing);
    db.close().unwrap();
    assert_eq!(small::read(&world.open(), TABLE), [(1, 1)]);
}

/// The first object that could not be written ended all writes until the database was opened again.
#[test]
fn writers_wait_for_a_store_that_takes_no_objects() {
    const ROWS: i64 = 200_000;
    let world = World::new();
    let db = world.open();
    small::write(&db, TABLE, &[(0, 0)]);
    world.store.fail_puts("objects/", usize::MAX, Leaves::Object);
    let writing = db.clone();
    let (rows, error) = within_a_minute("a write", move || {
        let memory = WriteOptions { ack: Ack::Memory, ..WriteOptions::default() };
        let mut rows = 1;
        loop {
            match writing.write(TABLE, &batch(rows..rows + ROWS), &memory) {
                Ok(_) => rows += ROWS,
                Err(error) => return (rows, error),
            }
        }
    });
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(error.message().contains("the store is away"), "{error}");
    world.store.fail_puts("", 0, Leaves::Nothing);
    let writing = db.clone();
    within_a_minute("a write when the store is back", move || {
        while let Err(error) =
            writing.write(TABLE, &batch(rows..rows + 1), &WriteOptions::default())
        {
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    db.close().unwrap();
    let db = world.open();
    assert_eq!(small::read(&db, TABLE).len() as i64, rows + 1);
    assert_eq!(db.verify().unwrap().damages, []);
}
