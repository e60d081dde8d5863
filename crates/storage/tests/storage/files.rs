//! A process that may open no more files: what needs one is refused meanwhile, and nothing ends for that.

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use tidefall_storage::store::allow_more_files;
use tidefall_storage::{Ack, Db, DbOptions, MEMORY_BYTES_MIN, Unknown, WriteOptions};
use tidefall_types::{ErrorKind, Result};

use crate::hooks::within_a_minute;
use crate::small;

const MEMORY: WriteOptions = WriteOptions {
    ack: Ack::Memory,
    unknown: Unknown::Create,
    bad_rows: tidefall_storage::BadRows::Reject,
    existing: tidefall_storage::Existing::Replace,
    field_types: tidefall_storage::FieldTypes::Keep,
};
const DURABLE: WriteOptions = WriteOptions { ack: Ack::Durable, ..MEMORY };
/// Rows of a write that fills memory after a few of its kind.
const ROWS: i64 = 100_000;

/// Calls a test of this module again, in a process that may hold few files open.
fn with_few_files(test: &str, act: impl FnOnce()) {
    with_limit("ulimit -n 64", test, act);
}

fn with_limit(limit: &str, test: &str, act: impl FnOnce()) {
    const CHILD: &str = "TIDEFALL_TEST_FEW_FILES";
    if std::env::var_os(CHILD).is_some() {
        return act();
    }
    let mut child = Command::new("sh")
        .args(["-c", &format!(r#"{limit} && exec "$0" "$@""#)])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("files::{test}"), "--nocapture"])
        .env(CHILD, "1")
        .spawn()
        .unwrap();
    let status = within_a_minute("the child", move || child.wait().unwrap());
    assert!(status.success(), "{status}");
}

/// Opens files until there are no more.
fn all_files() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

fn check_refused<T: std::fmt::Debug>(outcome: Result<T>) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(error.message().contains("ulimit -n"), "{error}");
}

/// One failure to open a file, in which nothing was half written, ended all writes until the database was opened again.
#[test]
fn writes_go_on_when_files_can_be_opened_again() {
    with_few_files("writes_go_on_when_files_can_be_opened_again", || {
        let dir = tempfile::tempdir().unwrap();
        let db = small::open(&dir);
        let held = all_files();
        // The first file of the log.
        check_refused(db.write("plant", &small::batch(0..1), &DURABLE));
        drop(held);
        small::write(&db, "plant", &[(0, 0)]);
        let held = all_files();
        for _ in 0..2 {
            check_refused(db.write("yard", &small::batch(0..1), &DURABLE));
            check_refused(db.flush());
            small::write(&db, "plant", &[(1, 1)]);
        }
        drop(held);
        for table in ["plant", "yard"] {
            small::write(&db, table, &[(2, 2)]);
        }
        db.flush().unwrap();
        db.close().unwrap();
        let again = small::open(&dir);
        assert_eq!(small::read(&again, "plant"), [(0, 0), (1, 1), (2, 2)]);
        assert_eq!(small::read(&again, "yard"), [(2, 2)]);
        assert_eq!(again.verify().unwrap().damages, []);
    });
}

/// The last steps of an object had to open its directory, when it was there already.
#[test]
fn files_that_run_out_at_any_time_end_nothing() {
    with_few_files("files_that_run_out_at_any_time_end_nothing", || {
        let dir = tempfile::tempdir().unwrap();
        let db = small::open(&dir);
        small::write(&db, "plant", &[(0, 0)]);
        let mut refused = 0;
        for left in 0..6 {
            let mut held = all_files();
            held.truncate(held.len() - left);
            let table = format!("yard{left}");
            match db.write(&table, &small::batch(0..1), &DURABLE).and_then(|_| db.flush()) {
                Ok(_) => {}
                refusal => {
                    check_refused(refusal);
                    refused += 1;
                }
            }
            drop(held);
            small::write(&db, &table, &[(1, 1)]);
            db.flush().unwrap();
        }
        assert!((1..6).contains(&refused), "{refused} were refused");
    });
}

/// Rows that could not leave memory for want of a file never left it again.
#[test]
fn memory_is_flushed_when_files_can_be_opened_again() {
    with_few_files("memory_is_flushed_when_files_can_be_opened_again", || {
        let dir = tempfile::tempdir().unwrap();
        let options = DbOptions { memory_bytes: MEMORY_BYTES_MIN, ..DbOptions::default() };
        let db = Db::open(dir.path(), options).unwrap();
        small::write(&db, "plant", &[(0, 0)]);
        let held = all_files();
        let mut rows = 1;
        let refusal = loop {
            match db.write("plant", &small::batch(rows..rows + ROWS), &MEMORY) {
                Ok(_) => rows += ROWS,
                refusal => break refusal,
            }
        };
        check_refused(refusal);
        drop(held);
        while let Err(error) = db.write("plant", &small::batch(rows..rows + 1), &DURABLE) {
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(small::read(&db, "plant").len() as i64, rows + 1);
        db.close().unwrap();
    });
}

#[test]
fn a_process_that_serves_may_allow_itself_more_files() {
    with_limit("ulimit -S -n 64", "a_process_that_serves_may_allow_itself_more_files", || {
        let some = all_files().len();
        allow_more_files().unwrap();
        let more = (0..100).map_while(|_| File::open("/dev/null").ok()).collect::<Vec<_>>();
        assert!(some < 64 && more.len() == 100, "{some}, then {}", more.len());
    });
}

/// Objects stayed open for the next reader, as many as there were files to open, and nothing was left for what is written.
#[test]
fn objects_that_are_read_leave_files_for_what_is_written() {
    with_few_files("objects_that_are_read_leave_files_for_what_is_written", || {
        let dir = tempfile::tempdir().unwrap();
        let db = small::open(&dir);
        let tables: Vec<String> = (0..80).map(|number| format!("plant{number}")).collect();
        tables.iter().for_each(|table| small::write(&db, table, &[(0, 0)]));
        db.flush().unwrap();
        for table in &tables {
            assert_eq!(small::read(&db, table), [(0, 0)]);
        }
        small::write(&db, "yard", &[(0, 0)]);
        db.flush().unwrap();
    });
}
