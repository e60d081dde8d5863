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

/// Imports what has a tag `s` and a field `v` into the table `t`.
const INTO: [&str; 4] = ["--db", "db", "--table", "t"];

fn import<'a>(files: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [&["import"], files, &INTO, more].concat()
}

#[test]
fn rows_that_do_not_fit_a_table_are_set_aside_one_by_one() {
    let place = Place::new();
    place.write("r1.csv", "time,s,v\n2024-01-01,a,1\n2024-01-02,a,2\n");
    place.write("r2.csv", "time,s,v\n2024-01-03,a,1\n2024-01-04,a,oops\n2024-01-05,a,3\n");
    place.write("r3.csv", "time,s,v\n2024-01-06,a,1.5\n2024-01-07,a,2.0\n2024-01-08,a,4\n");
    place.done(&import(&["r1.csv"], &["--tags", "s"]));
    let said = place.failed(&import(&["r2.csv"], &[]));
    assert!(said.err.contains("r2.csv, line 3: column \"v\": \"oops\" is not a"), "{said:?}");
    let said = place.done(&import(&["r2.csv", "r3.csv"], &["--bad-rows", "b"]));
    assert!(said.out.starts_with("3 rows imported into t"), "{said:?}");
    assert!(said.out.contains("3 bad rows set aside"), "{said:?}");
    let bad = place.read("b");
    let lines: Vec<&str> = bad.lines().collect();
    assert_eq!(
        [lines[1], lines[3], lines[5]],
        ["2024-01-04,a,oops", "2024-01-06,a,1.5", "2024-01-07,a,2.0"]
    );
    assert!(lines[0].starts_with("# r2.csv, line 3: column \"v\""), "{bad}");
    assert!(lines[2].contains("\"1.5\" is not a whole number, and the column is BIGINT"), "{bad}");
    assert_eq!(place.rows("SELECT s, count(*), sum(v) FROM t GROUP BY s"), "a,5,11\n");
}

#[test]
fn a_file_finds_the_types_that_the_file_before_it_gave() {
    let place = Place::new();
    place.write("a.csv", "time,s,v,note\n2024-01-01,a,1,x\n");
    place.write("b.csv", "time,s,v,note\n2024-01-02,a,2,7\n2024-01-03,a,oops,8\n");
    let said = place.done(&import(&["a.csv", "b.csv"], &["--tags", "s", "--skip-bad-rows"]));
    assert!(said.err.contains("b.csv, line 3"), "{said:?}");
    assert_eq!(place.rows("SELECT v, note FROM t ORDER BY time"), "1,x\n2,7\n");
    place.write("wide.csv", "time,101,102\n2024-01-01,1,2\n");
    place.write("wide2.csv", "time,101,102\n2024-01-02,3,x\n2024-01-03,4,5\n");
    let line = ["--db", "db", "--table", "w", "--wide", "s", "--skip-bad-rows"];
    let said = place.done(&[&["import", "wide.csv", "wide2.csv"], line.as_slice()].concat());
    assert!(said.err.contains("wide2.csv, line 2: column \"102\": \"x\" is not a"), "{said:?}");
    assert_eq!(place.rows("SELECT count(*), sum(value) FROM w"), "4,12\n");
}

#[test]
fn rows_of_parquet_that_do_not_fit_are_named_and_kept_as_text() {
    let place = Place::new();
    place.write("a.csv", "time,sensor,value\n2024-01-01,a,1\n");
    place.done(&import(&["a.csv"], &["--tags", "sensor"]));
    place.done(&["generate", "x.parquet", "--sensors", "1", "--days", "1"]);
    let said = place.done(&import(&["x.parquet"], &["--bad-rows", "b"]));
    assert!(said.out.starts_with("0 rows imported"), "{said:?}");
    assert!(said.out.contains("1,440 bad rows set aside"), "{said:?}");
    let bad = place.read("b");
    let lines: Vec<&str> = bad.lines().take(4).collect();
    assert!(lines[0].starts_with("# x.parquet, row 1: "), "{lines:?}");
    assert!(lines[1].starts_with("2000-01-01T00:00:00Z,sensor="), "{lines:?}");
    assert!(lines[1].contains(",value="), "{lines:?}");
    assert!(lines[2].starts_with("# x.parquet, row 2: "), "{lines:?}");
}

#[test]
fn text_columns_without_tags_get_a_hint() {
    let place = Place::new();
    place.write("a.csv", "time,station,kind,v\n2024-01-01,a,x,1\n2024-01-01,b,x,2\n");
    let said = place.done(&import(&["a.csv"], &[]));
    assert!(said.err.contains("rows of equal time replace each other"), "{said:?}");
    assert!(said.err.contains("--tags station,kind"), "{said:?}");
    let tagged = ["import", "a.csv", "--db", "db", "--table", "u", "--tags", "station,kind"];
    assert!(!place.done(&tagged).err.contains("--tags"));
    place.write("b.csv", "time,v\n2024-01-01,1\n");
    let plain = ["import", "b.csv", "--db", "db", "--table", "w"];
    assert!(!place.done(&plain).err.contains("--tags"));
}

#[test]
fn a_tag_that_comes_as_a_field_is_named() {
    let place = Place::new();
    place.write("a.csv", "time,s,room,v\n2024-01-01,a,r,1\n");
    place.done(&import(&["a.csv"], &["--tags", "s,room"]));
    let said = place.failed(&import(&["a.csv"], &["--tags", "s"]));
    assert!(said.err.contains("\"room\" is a tag there, and a field here"), "{said:?}");
}
