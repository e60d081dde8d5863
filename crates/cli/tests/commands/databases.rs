//! Which commands make a database, and which refuse.

use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Place;

/// A process that does not have its database for so long never gets it.
const LOCK_TIME_MAX: Duration = Duration::from_secs(60);

#[test]
fn only_what_writes_makes_a_database() {
    let place = Place::new();
    std::fs::create_dir(place.path("foreign")).unwrap();
    place.write("foreign/letter", "dear");
    let reading: [&[&str]; 5] =
        [&["inspect"], &["verify"], &["cascade"], &["shell"], &["query", "SELECT 1"]];
    for line in reading {
        for folder in ["typo", "foreign"] {
            let said = place.failed(&[line, &["--db", folder]].concat());
            let expected = format!("not found: there is no database in {folder}");
            assert!(said.err.contains(&expected), "{line:?}: {said:?}");
        }
    }
    assert!(!place.path("typo").exists());
    assert_eq!(std::fs::read_dir(place.path("foreign")).unwrap().count(), 1);
}

#[test]
fn create_makes_a_database() {
    let place = Place::new();
    let create = "CREATE TABLE IF NOT EXISTS t (time TIMESTAMP, v DOUBLE)";
    let said = place.done(&["query", "--create", "--db", "db", create]);
    assert!(said.out.contains("table t created"), "{said:?}");
    assert_eq!(place.rows(create), "table t exists already\n");
    assert_eq!(place.rows("SELECT count(*) FROM t"), "0\n");
}

#[test]
fn the_demo_leaves_a_database_alone() {
    let place = Place::new();
    place.done(&["query", "--create", "--db", "db", "SELECT 1"]);
    let said = place.failed(&["demo", "--keep", "db"]);
    assert!(said.err.contains("there is a database in db already"), "{said:?}");
}

#[test]
fn the_demo_runs_in_any_folder() {
    let place = Place::new();
    let said = place.done(&["demo"]);
    assert!(said.out.starts_with("Imported 26,115 hourly readings"), "{said:?}");
    assert!(said.out.contains("What were the latest temperatures?"), "{said:?}");
}

#[test]
fn a_damaged_log_is_repaired_when_asked_to() {
    let place = Place::new();
    let create = "CREATE TABLE t (time TIMESTAMP, v DOUBLE)";
    place.done(&["query", "--create", "--db", "db", create]);
    for day in 1..=3 {
        place.rows(&format!("INSERT INTO t VALUES ('2024-01-0{day}', {day})"));
    }
    let mut logs: Vec<_> = std::fs::read_dir(place.path("db/wal"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    logs.sort();
    assert_eq!(logs.len(), 3, "{logs:?}");
    let mut bytes = std::fs::read(&logs[1]).unwrap();
    bytes[60] ^= 1;
    std::fs::write(&logs[1], &bytes).unwrap();

    let query = ["query", "--db", "db", "SELECT v FROM t"];
    let said = place.failed(&query);
    assert!(said.err.contains("corrupt: wal/") && said.err.contains("tidefall repair"), "{said:?}");
    let said = place.failed(&["repair", "--db", "db"]);
    assert!(
        said.out.contains("lost: wal/") && said.out.contains("nothing was changed"),
        "{said:?}"
    );
    assert_eq!(std::fs::read(&logs[1]).unwrap(), bytes);
    assert!(!place.path("db/damaged").exists());
    let said = place.done(&["repair", "--db", "db", "--yes"]);
    assert!(said.out.contains("the damaged files are in db/damaged/1"), "{said:?}");
    assert_eq!(place.rows("SELECT v FROM t ORDER BY v"), "1.0\n3.0\n");
    let kept = place.path("db/damaged/1/wal").join(logs[1].file_name().unwrap());
    assert_eq!(std::fs::read(kept).unwrap(), bytes);
    let said = place.done(&["repair", "--db", "db"]);
    assert!(said.out.contains("nothing keeps the database from opening"), "{said:?}");
    let said = place.failed(&["repair", "--db", "typo"]);
    assert!(said.err.contains("there is no database in typo"), "{said:?}");
    assert!(!place.path("typo").exists());
}

/// A shell that has the database `db` until it is dropped.
struct Holder(Child);

impl Holder {
    fn new(place: &Place) -> Self {
        let mut shell = place.command(&["shell", "--db", "db"]);
        let child = shell.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let holder = Self(child);
        let start = Instant::now();
        // A process before it may have left its number there.
        while place.read("db/LOCK") != holder.0.id().to_string() {
            assert!(start.elapsed() < LOCK_TIME_MAX, "the shell did not open the database");
            sleep(Duration::from_millis(5));
        }
        holder
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[test]
fn who_cannot_write_is_told_who_does() {
    let place = Place::new();
    place.done(&[
        "query",
        "--create",
        "--db",
        "db",
        "CREATE TABLE t (time TIMESTAMP, v DOUBLE); INSERT INTO t VALUES ('2023-01-01', 0)",
    ]);
    place.write("a.csv", "time,v\n2024-01-01,1\n");
    let holder = Holder::new(&place);
    assert_eq!(place.rows("SELECT count(*) FROM t"), "1\n");
    place.done(&["verify", "--db", "db"]);
    place.done(&["inspect", "--db", "db"]);
    let expected = format!("locked: process {} writes the database in db", holder.0.id());
    let writing: [&[&str]; 6] = [
        &["query", "DELETE FROM t"],
        &["query", "INSERT INTO t VALUES ('2024-01-01', 1)"],
        &["import", "a.csv", "--table", "t"],
        &["cascade"],
        &["repair"],
        &["serve", "--listen", "127.0.0.1:0"],
    ];
    for line in writing {
        let said = place.failed(&[line, &["--db", "db"]].concat());
        assert!(said.err.contains(&expected) && said.err.contains("stop it first"), "{said:?}");
        // None of them can do with reading.
        assert!(!said.err.contains("read-only"), "{said:?}");
    }
    drop(holder);
    assert_eq!(place.rows("INSERT INTO t VALUES ('2024-01-01', 1)"), "1,0\n");
}
