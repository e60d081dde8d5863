//! Which commands make a database, and which refuse.

use crate::Place;

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
