//! A panic of a thread of the database: whoever waits for it gets an error, and it can be closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidefall_simulation::MemDisk;
use tidefall_storage::{CascadeRequest, Db, DbOptions, MEMORY_BYTES_MIN, Target, WriteOptions};
use tidefall_types::ErrorKind;

use crate::hooks::{Does, HookDisk, panics, within_a_minute};
use crate::small::{batch, read, write};

fn options() -> DbOptions {
    DbOptions { memory_bytes: MEMORY_BYTES_MIN, ..DbOptions::default() }
}

/// A database in which an operation on certain files panics when that is armed.
fn open(disk: &MemDisk, does: Does, directory: &'static str) -> (Db, Arc<AtomicBool>) {
    let is_armed = Arc::new(AtomicBool::new(false));
    let hooked = HookDisk::new(disk.clone(), panics(&is_armed, does, directory));
    (Db::open_on(Arc::new(hooked), options()).unwrap(), is_armed)
}

fn close(db: Db) {
    // How it ends depends on what has panicked, but it does.
    drop(within_a_minute("the close", move || db.close()));
}

fn reopened(disk: &MemDisk) -> Db {
    Db::open_on(Arc::new(disk.clone()), options()).unwrap()
}

#[test]
fn writes_fail_when_the_committer_panics() {
    for does in [Does::Write, Does::Sync, Does::Create] {
        let disk = MemDisk::new();
        let (db, is_armed) = open(&disk, does, "wal/");
        if does != Does::Create {
            write(&db, "plant", &[(0, 0)]);
        } else {
            // There is no file of the log as yet.
            let (yard, schema) = (MemDisk::new(), "plant");
            write(&reopened(&yard), schema, &[(0, 0)]);
            let schema = reopened(&yard).schema(schema).unwrap();
            db.create_table(&schema, tidefall_storage::IfExists::Fail).unwrap();
        }
        is_armed.store(true, Ordering::SeqCst);
        let writers: Vec<_> = (1..9)
            .map(|time| {
                let db = db.clone();
                move || db.write("plant", &batch(time..time + 1), &WriteOptions::default())
            })
            .map(std::thread::spawn)
            .collect();
        for writer in writers {
            let error = within_a_minute("a write", move || writer.join().unwrap()).unwrap_err();
            let kinds = [ErrorKind::Closed, ErrorKind::Internal];
            assert!(kinds.contains(&error.kind()), "{does:?}: {error}");
        }
        is_armed.store(false, Ordering::SeqCst);
        let again = db.write("plant", &batch(9..10), &WriteOptions::default()).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Closed, "{does:?}: {again}");
        close(db);
        let found = read(&reopened(&disk), "plant");
        let acknowledged = if does == Does::Create { &[][..] } else { &[(0, 0)][..] };
        assert!(found.starts_with(acknowledged), "{does:?}: {found:?}");
        assert!(!found.contains(&(9, 9)), "{does:?}: {found:?}");
    }
}

#[test]
fn a_panic_of_who_waits_for_a_write_harms_nobody_else() {
    let disk = MemDisk::new();
    let db = reopened(&disk);
    write(&db, "plant", &[(0, 0)]);
    db.submit("plant", &batch(1..2), &WriteOptions::default(), |_| panic!("a panic for a test"))
        .unwrap();
    let other = db.clone();
    within_a_minute("a write", move || {
        other.write("plant", &batch(2..3), &WriteOptions::default()).unwrap();
    });
    let wanted = [(0, 0), (1, 1), (2, 2)];
    assert_eq!(read(&db, "plant"), wanted);
    within_a_minute("the close", move || db.close()).unwrap();
    assert_eq!(read(&reopened(&disk), "plant"), wanted);
}

#[test]
fn writers_learn_when_what_flushes_the_memory_panics() {
    const ROWS: i64 = 200_000;
    let disk = MemDisk::new();
    let (db, is_armed) = open(&disk, Does::Create, "objects/");
    write(&db, "plant", &[(0, 0)]);
    is_armed.store(true, Ordering::SeqCst);
    let writing = db.clone();
    let (rows, error) = within_a_minute("a write", move || {
        let mut rows = 1;
        loop {
            let batch = batch(rows..rows + ROWS);
            match writing.write("plant", &batch, &WriteOptions::default()) {
                Ok(_) => rows += ROWS,
                Err(error) => return (rows, error),
            }
        }
    });
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert!(error.message().contains("a panic for a test"), "{error}");
    close(db);
    assert_eq!(read(&reopened(&disk), "plant").len() as i64, rows);
}

#[test]
fn a_cascade_that_panics_is_an_error_and_the_next_one_works() {
    let disk = MemDisk::new();
    let (db, is_armed) = open(&disk, Does::Create, "objects/");
    write(&db, "plant", &[(0, 0)]);
    is_armed.store(true, Ordering::SeqCst);
    let cascade = CascadeRequest { table: None, target: Target::Long };
    let error = db.cascade(&cascade).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::Internal);
    is_armed.store(false, Ordering::SeqCst);
    write(&db, "plant", &[(1, 1)]);
    db.cascade(&cascade).unwrap();
    assert_eq!(read(&db, "plant"), [(0, 0), (1, 1)]);
    within_a_minute("the close", move || db.close()).unwrap();
    assert_eq!(read(&reopened(&disk), "plant"), [(0, 0), (1, 1)]);
}
