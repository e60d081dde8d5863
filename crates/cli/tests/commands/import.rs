//! `tidefall import`.

use crate::Place;

#[test]
fn bad_rows_are_never_written_over_an_input() {
    let place = Place::new();
    place.write("same.csv", "time,v\n2024-01-01,1\n");
    let into = |bad: &str| {
        place.failed(&["import", "same.csv", "--db", "db", "--table", "t", "--bad-rows", bad])
    };
    assert!(into("same.csv").err.contains("same.csv is an input"));
    std::os::unix::fs::symlink(place.path("same.csv"), place.path("link")).unwrap();
    assert!(into("link").err.contains("link is an input"));
    assert!(!place.path("db").exists());
    assert_eq!(place.read("same.csv"), "time,v\n2024-01-01,1\n");
    place.write("old", "from before\n");
    place.done(&["import", "same.csv", "--db", "db", "--table", "t", "--bad-rows", "old"]);
    assert_eq!(place.read("old"), "");
}

#[test]
fn nothing_is_made_when_an_input_is_missing() {
    let place = Place::new();
    place.write("a.csv", "time,v\n2024-01-01,1\n");
    let line = ["import", "a.csv", "b.csv", "--db", "db", "--table", "t", "--bad-rows", "bad"];
    assert!(place.failed(&line).err.contains("opening b.csv"));
    std::fs::create_dir(place.path("b.csv")).unwrap();
    assert!(place.failed(&line).err.contains("b.csv is a directory"));
    assert!(!place.path("db").exists() && !place.path("bad").exists());
}

#[test]
fn an_import_that_stops_says_what_it_wrote() {
    let place = Place::new();
    place.write("a.csv", "time,v\n2024-01-01,1\n2024-01-02,2\n");
    place.write("b.csv", "time,v\n2024-01-03,3\nnever,4\n");
    let said = place.failed(&["import", "a.csv", "b.csv", "--db", "db", "--table", "t"]);
    assert!(said.err.contains("2 rows were written to t before the import stopped"), "{said:?}");
    assert!(said.err.contains("b.csv, line 3"), "{said:?}");
    assert!(!said.out.contains("set aside"), "{said:?}");
    assert_eq!(place.rows("SELECT count(*) FROM t"), "2\n");
}
