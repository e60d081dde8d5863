//! `tidefall import`.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::{Place, Said};

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

#[test]
fn an_import_that_finds_a_full_disk_says_that_rows_are_lost() {
    let place = Place::new();
    // Values that cannot be packed.
    let value = |row: u64| {
        let mixed = (row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 34
    };
    let line = |row| format!("{},{}\n", 1_700_000_000 + row, value(row));
    let lines: String = (0..50_000).map(line).collect();
    place.write("a.csv", &format!("time,v\n{lines}"));
    let tidefall = env!("CARGO_BIN_EXE_tidefall");
    // No file may have more than 32 KiB, and the signal for that is not heard.
    let script =
        format!("trap '' 25; ulimit -f 64; exec {tidefall} import a.csv --db db --table t");
    let output =
        Command::new("sh").args(["-c", &script]).current_dir(place.path("")).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(
        err.contains("50,000 rows were read for t") && err.contains("import the files again"),
        "{err}"
    );
}

#[test]
fn files_without_rows_are_named() {
    let place = Place::new();
    place.write("a.csv", "time,v\n2024-01-01,1\n");
    place.write("b.csv", "time,v\n");
    let said = place.done(&import(&["a.csv", "b.csv"], &[]));
    assert!(
        said.err.contains("b.csv: no rows") && !said.err.contains("a.csv: no rows"),
        "{said:?}"
    );
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
    assert!(said.out.starts_with("5 rows imported into t"), "{said:?}");
    assert!(said.out.contains("1 bad rows set aside"), "{said:?}");
    let bad = place.read("b");
    let lines: Vec<&str> = bad.lines().collect();
    assert!(lines[0].starts_with("# r2.csv, line 3: column \"v\""), "{bad}");
    assert_eq!(lines[1..], ["2024-01-04,a,oops"]);
    assert_eq!(place.rows("SELECT s, count(*), sum(v) FROM t GROUP BY s"), "a,7,14.5\n");
    // A number that the wider type does not hold keeps the field what it is.
    place.write("u1.csv", "time,v\n2024-01-01,9007199254740993\n");
    let into =
        |file| ["import", file, "--db", "db", "--table", "u", "--fields", "v", "--bad-rows", "b"];
    place.done(&into("u1.csv"));
    let said = place.done(&into("r3.csv"));
    assert!(said.out.contains("2 bad rows set aside"), "{said:?}");
    let bad = place.read("b");
    let lines: Vec<&str> = bad.lines().collect();
    assert_eq!([lines[1], lines[3]], ["2024-01-06,a,1.5", "2024-01-07,a,2.0"]);
    assert!(lines[0].contains("\"1.5\" is not a whole number, and the column is BIGINT"), "{bad}");
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
    // What a float does not hold keeps the field from becoming one.
    place.write("a.csv", "time,sensor,value\n2024-01-01,a,9007199254740993\n");
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
    let said = place.done(&import(&["a.csv"], &["--replace"]));
    assert!(said.err.contains("rows of equal time replace each other"), "{said:?}");
    assert!(said.err.contains("perhaps some of station,kind"), "{said:?}");
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

#[test]
fn rows_that_replace_others_are_counted_and_come_with_advice() {
    let place = Place::new();
    let rows =
        |id: &str| (10..30).map(|day| format!("2024-01-{day},{id},{day}\n")).collect::<String>();
    place.write("a.csv", &format!("time,id,v\n{}{}", rows("1"), rows("2")));
    let said = place.done(&import(&["a.csv"], &["--replace"]));
    assert!(
        said.out.starts_with("40 rows imported into t, 20 of them replaced earlier ones"),
        "{said:?}"
    );
    assert!(said.err.contains("id would tell them apart"), "{said:?}");
    assert!(said.err.contains("--tags id"), "{said:?}");
    let tagged = ["import", "a.csv", "--db", "db", "--table", "u", "--tags", "id"];
    let said = place.done(&tagged);
    assert!(said.out.starts_with("40 rows imported into u, 0 of them replaced"), "{said:?}");
    assert_eq!(said.err, "", "{said:?}");
    let again = place.done(&tagged);
    assert!(again.out.starts_with("40 rows imported into u, 40 of them replaced"), "{again:?}");
    assert!(
        again.err.contains("40 rows have the tags and time of earlier ones, and replaced what these have in the same fields; the table had"),
        "{again:?}"
    );
}

/// They came in without their tag and replaced each other, and the advice named a tag that the file did not have.
#[test]
fn files_without_a_tag_of_the_table_are_refused() {
    let place = Place::new();
    let rows = |day: u32| -> String {
        let row =
            |hour| format!("2024-01-0{day}T{hour}:00,north,1\n2024-01-0{day}T{hour}:00,south,2\n");
        (10..22).map(row).collect()
    };
    place.write("mon.csv", &format!("time,site,v\n{}", rows(1)));
    place.write("tue.csv", &format!("time,Site,v\n{}", rows(2)));
    place.done(&import(&["mon.csv"], &["--tags", "site"]));
    let said = place.failed(&import(&["tue.csv"], &[]));
    for part in [
        "tue.csv: the table \"t\" has the tag \"site\"",
        "it has \"Site\": rename it",
        "--skip site",
    ] {
        assert!(said.err.contains(part), "{said:?}");
    }
    assert_eq!(place.rows("SELECT count(*), count(DISTINCT site) FROM t"), "24,2\n");
    let said = place.failed(&import(&["tue.csv"], &["--tags", "site"]));
    assert!(said.err.contains("there is no column \"site\""), "{said:?}");
    // Who says so gets it, and no advice to name what is not there.
    let said = place.done(&import(&["tue.csv"], &["--skip", "site"]));
    assert!(said.out.contains("12 of them replaced earlier ones"), "{said:?}");
    assert!(said.err.contains("with --tags Site\n"), "{said:?}");
    let said = place.done(&import(&["tue.csv"], &["--skip", "Site", "--tag-from-file", "site"]));
    assert!(said.out.contains("12 of them replaced earlier ones"), "{said:?}");
    let sites = "SELECT count(*) FROM t WHERE site = 'tue'";
    assert_eq!(place.rows(sites), "12\n");
}

#[test]
fn names_of_files_tell_rows_apart() {
    let place = Place::new();
    let rows: String = (10..30).map(|day| format!("2024-01-{day},{day}\n")).collect();
    for name in ["north_1.csv", "south_1.csv"] {
        place.write(name, &format!("time,v\n{rows}"));
    }
    let files = ["north_1.csv", "south_1.csv"];
    let said = place.done(&import(&files, &["--replace"]));
    assert!(said.out.contains("20 of them replaced earlier ones"), "{said:?}");
    assert!(said.err.contains("--tag-from-file NAME"), "{said:?}");
    let line = [
        "--db",
        "db",
        "--table",
        "u",
        "--tag-from-file",
        "file",
        "--tag-from-file",
        "site=^[a-z]+",
    ];
    let said = place.done(&[&["import"], files.as_slice(), line.as_slice()].concat());
    assert!(said.out.contains("40 rows imported into u, 0 of them"), "{said:?}");
    let sites = "SELECT file, site, count(*) FROM u GROUP BY 1, 2 ORDER BY 1";
    assert_eq!(place.rows(sites), "north_1,north,20\nsouth_1,south,20\n");
    place.done(&["generate", "x.parquet", "--sensors", "1", "--days", "1"]);
    let line = [
        "import",
        "x.parquet",
        "--db",
        "db",
        "--table",
        "p",
        "--tag-from-file",
        "file",
        "--constant-tag",
        "k=c",
    ];
    place.done(&line);
    assert_eq!(place.rows("SELECT DISTINCT file, k FROM p"), "x,c\n");
}

/// Of an ordinary file without tags most rows were lost, and the advice came afterwards.
#[test]
fn an_import_that_would_lose_most_rows_for_want_of_tags_stops() {
    let place = Place::new();
    let day = |minute: u32| format!("2024-01-01 00:{:02}:00", minute % 60);
    let rows = |machines: u32| -> String {
        let row = |n: u32| format!("{},m{},{n}\n", day(n / machines), n % machines);
        (0..60 * machines).map(row).collect()
    };
    place.write("a.csv", &format!("time,machine,v\n{}", rows(3)));
    let import =
        |more: &[&'static str]| [&["import", "a.csv", "--db", "db", "--table", "t"], more].concat();
    let expected = "a.csv, lines 2 to 181: 120 of 180 rows have the time of another one, and would replace it, as no column \
                    is a tag; machine would tell them apart: say --tags machine, or --replace to keep the last row of each time";
    // Whichever rows are looked at again for the advice.
    for _ in 0..10 {
        let said = place.failed(&import(&[]));
        assert!(said.err.contains(expected), "{said:?}");
        assert!(said.err.contains("0 rows were written to t"), "{said:?}");
    }
    // Also where that shows only later, one machine after the other.
    let mut later = String::from("time,machine,v\n");
    for machine in 0..8 {
        (0..40_000).for_each(|n| later += &format!("{},m{machine},{n}\n", 1_700_000_000 + n));
    }
    place.write("later.csv", &later);
    let said = place.failed(&["import", "later.csv", "--db", "db", "--table", "t"]);
    assert!(said.err.contains("say --tags machine, or --replace"), "{said:?}");
    assert!(said.err.contains("0 rows were written to t"), "{said:?}");
    let said = place.done(&import(&["--tags", "machine"]));
    assert!(said.out.contains("180 rows imported into t, 0 of them replaced"), "{said:?}");
    let said = place.done(&["import", "a.csv", "--db", "db", "--table", "u", "--replace"]);
    assert!(said.out.contains("180 rows imported into u, 120 of them replaced"), "{said:?}");
    // Of two sensors half of the rows are lost, and of one with gaps fewer.
    let with_gaps: String = rows(2).lines().take(80).map(|line| format!("{line}\n")).collect();
    let with_gaps =
        with_gaps + &(40..60).map(|n| format!("{},m0,{n}\n", day(n))).collect::<String>();
    for (rows, lost) in [(rows(2), "60 of 120 rows"), (with_gaps, "40 of 100 rows")] {
        place.write("b.csv", &format!("time,machine,v\n{rows}"));
        let said = place.failed(&["import", "b.csv", "--db", "db", "--table", "w"]);
        assert!(said.err.contains(lost), "{said:?}");
    }
    let few = "2024-01-01,a,1\n2024-01-01,b,2\n2024-01-02,a,3\n2024-01-02,b,4\n";
    place.write("few.csv", &format!("time,machine,v\n{few}"));
    let said = place.failed(&["import", "few.csv", "--db", "db", "--table", "w"]);
    assert!(said.err.contains("2 of 4 rows"), "{said:?}");
    // Fewer may be repeated rows.
    place.write(
        "repeated.csv",
        &format!(
            "time,v\n{}",
            "2024-01-01,1\n2024-01-02,1\n2024-01-03,1\n2024-01-04,1\n2024-01-04,1\n"
        ),
    );
    place.done(&["import", "repeated.csv", "--db", "db", "--table", "w"]);
}

/// The advice could not be followed: `--tags sensor id` is two arguments, and no name with a comma could be written.
#[test]
fn advice_on_tags_can_be_followed() {
    let place = Place::new();
    let rows = |place: &str| -> String {
        (10..30).map(|day| format!("2024-01-{day},\"{place}\",{day}\n")).collect()
    };
    place.write("a.csv", &format!("time,\"site, room\",v\n{}{}", rows("a, 1"), rows("b, 2")));
    let said = place.failed(&["import", "a.csv", "--db", "db", "--table", "t"]);
    assert!(said.err.contains(r#"say --tags '"site, room"', or"#), "{said:?}");
    let tags = r#""site, room""#;
    place.done(&["import", "a.csv", "--db", "db", "--table", "t", "--tags", tags]);
    assert_eq!(place.rows(r#"SELECT count(DISTINCT "site, room"), count(*) FROM t"#), "2,40\n");
    place.write("b.csv", &format!("time,sensor id,v\n{}{}", rows("a"), rows("b")));
    let said = place.failed(&["import", "b.csv", "--db", "db", "--table", "u"]);
    assert!(said.err.contains("say --tags 'sensor id', or"), "{said:?}");
}

#[test]
fn an_import_may_refuse_to_replace() {
    let place = Place::new();
    place.write("a.csv", "time,v\n2024-01-01,1\n2024-01-02,2\n");
    place.write("b.csv", "time,v\n2024-01-03,3\n2024-01-02,4\n");
    let said = place.failed(&import(&["a.csv", "b.csv"], &["--no-replace"]));
    assert!(
        said.err.contains("b.csv, lines 2 to 3: table t: 1 of 2 rows would take the place"),
        "{said:?}"
    );
    assert!(said.err.contains("such as that of 2024-01-02T00:00:00Z"), "{said:?}");
    assert!(
        said.err.contains("2 rows were written to t before the import stopped, 0 of them"),
        "{said:?}"
    );
    assert_eq!(place.rows("SELECT v FROM t ORDER BY time"), "1\n2\n");
}

#[test]
fn all_inputs_have_a_say_in_the_types() {
    let place = Place::new();
    place.write("jan.csv", "time,v,n\n2024-01-01,1,1\n");
    place.write("feb.csv", "time,v,n\n2024-02-01,1.5,2\n");
    place.done(&import(&["jan.csv", "feb.csv"], &["--type", "n=smallint"]));
    assert_eq!(place.rows("SELECT sum(v), arrow_typeof(first_value(n)) FROM t"), "2.5,Int16\n");
    let said = place.failed(&import(&["jan.csv"], &["--type", "v=BIGINT"]));
    let why = "field \"v\" cannot become BIGINT: it is DOUBLE, and holds 1.5";
    assert!(said.err.contains(why), "{said:?}");
    let said = place.failed(&import(&["jan.csv"], &["--type", "x=DOUBLE"]));
    assert!(said.err.contains("no file has a field \"x\""), "{said:?}");
}

#[test]
fn fields_of_a_table_become_wider_when_values_call_for_it() {
    let place = Place::new();
    let ty = || place.rows("SELECT arrow_typeof(first_value(v)) FROM t");
    place.write("jan.csv", "time,v\n2024-01-01,1\n");
    place.write("feb.csv", "time,v\n2024-02-01,1.5\n2024-02-02,2\n");
    place.write("whole.csv", "time,v\n2024-03-01,3.0\n");
    place.done(&import(&["jan.csv"], &[]));
    // What fits changes nothing.
    place.done(&import(&["whole.csv"], &[]));
    assert_eq!(ty(), "Int64\n");
    let said = place.done(&import(&["feb.csv"], &[]));
    let what = "\"v\" was BIGINT and is DOUBLE from now on";
    assert!(said.err.contains(what), "{said:?}");
    assert_eq!(place.rows("SELECT v FROM t ORDER BY time"), "1.0\n1.5\n2.0\n3.0\n");
    // Far behind what is looked at first.
    let rows: String = (0..300_000).map(|row| format!("{},{row}\n", 1_500_000_000 + row)).collect();
    place.write("long.csv", &format!("time,w\n{rows}1600000000,0.25\n"));
    place.write("short.csv", "time,w\n2024-01-01,1\n");
    place.done(&import(&["short.csv"], &[]));
    place.done(&import(&["long.csv"], &[]));
    assert_eq!(place.rows("SELECT count(w), min(w), max(w) FROM t"), "300002,0.0,299999.0\n");
    // What is told is made, too, and what does not fit is refused before anything is written.
    place.done(&import(&["jan.csv"], &["--type", "v=REAL"]));
    assert_eq!(ty(), "Float32\n");
    place.write("big.csv", "time,n\n2024-01-01,9007199254740993\n");
    place.write("half.csv", "time,n\n2024-01-02,0.5\n");
    // In a table that is new they are rounded, as told.
    for files in [["big.csv", "half.csv"], ["half.csv", "big.csv"]] {
        let into = ["--db", "db", "--table", &files[0][..3], "--replace"];
        let said = place.done(&[&["import"], &files[..], into.as_slice()].concat());
        let what = "\"n\" has whole numbers beyond 2^53 beside decimals, and DOUBLE rounds them";
        assert!(said.err.contains(what), "{said:?}");
    }
    place.done(&import(&["big.csv"], &[]));
    let said = place.failed(&import(&["half.csv"], &[]));
    assert!(
        said.err.contains("cannot become DOUBLE: it is BIGINT, and holds 9007199254740993"),
        "{said:?}"
    );
    assert_eq!(place.rows("SELECT count(n), max(n) FROM t"), "1,9007199254740993\n");
}

#[test]
fn a_field_without_values_takes_the_type_of_those_that_come() {
    let place = Place::new();
    let create = |sql| place.done(&["query", "--create", "--db", "db", sql]);
    create("CREATE TABLE t (time TIMESTAMP, v BIGINT, w DOUBLE)");
    place.write("a.csv", "time,v,w\n2024-01-01,,1\n");
    place.write("b.csv", "time,v,w\n2024-01-02,high,2\n");
    place.done(&import(&["a.csv"], &[]));
    place.done(&import(&["b.csv"], &[]));
    assert_eq!(place.rows("SELECT v, w FROM t ORDER BY time"), ",1.0\nhigh,2.0\n");
    // Now it holds some.
    create("CREATE TABLE u (time TIMESTAMP, v BIGINT)");
    let into = |file| ["import", file, "--db", "db", "--table", "u", "--fields", "v"];
    place.write("c.csv", "time,v\n2024-01-02,1\n");
    place.done(&into("c.csv"));
    let said = place.failed(&into("b.csv"));
    assert!(said.err.contains("\"high\" is not a whole number"), "{said:?}");
    // A few texts among many numbers are wrong values, also of a field that holds nothing.
    create("CREATE TABLE r (time TIMESTAMP, v DOUBLE)");
    let rows: String =
        (10..40).map(|second| format!("2024-01-01 00:00:{second},{second}\n")).collect();
    place.write("d.csv", &format!("time,v\n{rows}2024-01-02,err\n"));
    let into = ["import", "d.csv", "--db", "db", "--table", "r"];
    let said = place.failed(&into);
    assert!(said.err.contains("\"err\" is not a number"), "{said:?}");
    place.done(&[&into[..], &["--skip-bad-rows"]].concat());
    assert_eq!(place.rows("SELECT count(v), max(v) FROM r"), "30,39.0\n");
}

#[test]
fn the_time_that_an_import_takes_makes_sense() {
    let place = Place::new();
    place.write(
        "a.csv",
        "Date_Time,Time,v\n2024-01-01 05:00,0,1\n2024-01-01 06:00,1,2\n2024-01-01 07:00,0,3\n",
    );
    place.done(&import(&["a.csv"], &[]));
    assert_eq!(place.rows("SELECT count(*) FROM t WHERE time >= '2024-01-01'"), "3\n");
    place.write("b.csv", "Date,Time,v\n2024-01-01,0,1\n2024-01-01,1,2\n");
    let said = place.failed(&["import", "b.csv", "--db", "db", "--table", "u"]);
    assert!(said.err.contains("--time-columns Date,Time"), "{said:?}");
    place.write("c.csv", "day,v\n03/04/2020,1\n");
    let said = place.failed(&["import", "c.csv", "--db", "db", "--table", "u"]);
    assert!(said.err.contains("\"%d/%m/%Y\" or \"%m/%d/%Y\""), "{said:?}");
    assert!(!said.err.contains("Pattern"), "{said:?}");
    place.write("d.csv", "time;v\n# x\n2024-01-01;1.234,5\n");
    let line = [
        "import",
        "d.csv",
        "--db",
        "db",
        "--table",
        "d",
        "--decimal",
        ",",
        "--thousands",
        ".",
        "--comment",
        "#",
    ];
    place.done(&line);
    assert_eq!(place.rows("SELECT v FROM d"), "1234.5\n");
}

/// The advice spoke of all rows and had looked at a part of them.
#[test]
fn advice_says_how_many_rows_it_is_judged_by() {
    let place = Place::new();
    let sites = |row: usize| ["north", "south", "east"][row % 3];
    let rows = |count: usize, day: usize| -> String {
        let line = |row: usize| format!("{},{},{row}\n", 1_700_000_000 + day + row / 3, sites(row));
        (0..count).map(line).collect()
    };
    place.write("few.csv", &format!("time,site,v\n{}", rows(300, 0)));
    let said = place.done(&import(&["few.csv"], &["--replace"]));
    assert!(said.err.contains("site would tell them apart"), "{said:?}");
    assert!(!said.err.contains("judged"), "{said:?}");
    place.write("many.csv", &format!("time,site,v\n{}", rows(300_000, 0)));
    let into = ["--db", "db", "--table", "many", "-q", "--replace"];
    let said = place.done(&[&["import", "many.csv"], into.as_slice()].concat());
    assert!(said.err.contains("site would tell them apart"), "{said:?}");
    assert!(
        said.err.contains("(judged by 1") && said.err.contains(" of 300,000 rows)"),
        "{said:?}"
    );
    // Some differ in nothing but their value.
    let twice: String = rows(300, 0) + &rows(20, 0);
    place.write("twice.csv", &format!("time,site,v\n{twice}"));
    let into = ["--db", "db", "--table", "twice", "--replace"];
    let said = place.done(&[&["import", "twice.csv"], into.as_slice()].concat());
    assert!(said.err.contains("site would tell most of them apart"), "{said:?}");
}

#[test]
fn columnar_files_are_told_by_what_is_in_them() {
    let place = Place::new();
    place.done(&["generate", "x.parquet", "--sensors", "2", "--days", "1"]);
    std::fs::rename(place.path("x.parquet"), place.path("x.csv")).unwrap();
    place.done(&import(&["x.csv"], &["--tags", "sensor"]));
    assert_ne!(place.rows("SELECT count(*) FROM t"), "0\n");
    place.write("a.csv", "time,v\n2024-01-01,1\n");
    for (options, advice) in [
        (["--wide", "sensor"], "as fields"),
        (["--time-columns", "a,b"], "name one column with --time"),
        (["--null", "x"], "leave it out"),
        (["--separator", ";"], "leave it out"),
    ] {
        let said = place.failed(&import(&["x.csv"], &options));
        let expected =
            format!("x.csv: {} is for CSV files, and this is Parquet or Arrow", options[0]);
        assert!(said.err.contains(&expected) && said.err.contains(advice), "{said:?}");
    }
    // It is for the other file.
    let into = ["--db", "db", "--table", "both", "--null", "x", "--replace"];
    place.done(&[&["import", "a.csv", "x.csv"], into.as_slice()].concat());
}

#[test]
fn local_times_are_those_of_the_zone_that_is_told() {
    let place = Place::new();
    place.write("a.csv", "time,v\n2024-07-01 12:00,1\n2024-10-27 02:10,2\n2024-10-27 02:20,3\n");
    let said = place.done(&import(&["a.csv"], &["--timezone", "Europe/Berlin"]));
    assert!(
        said.err.contains("a.csv: 2 times were shown twice by clocks in Europe/Berlin"),
        "{said:?}"
    );
    let expected = "2024-07-01T10:00:00\n2024-10-27T00:10:00\n2024-10-27T00:20:00\n";
    assert_eq!(place.rows("SELECT time FROM t ORDER BY time"), expected);
    place.write("b.csv", "time,v\n2024-03-31 02:30,1\n");
    let said = place.failed(&import(&["b.csv"], &["--timezone", "Europe/Berlin"]));
    assert!(said.err.contains("b.csv, line 2") && said.err.contains("never showed"), "{said:?}");
    let said = place.failed(&import(&["b.csv"], &["--timezone", "Berlin"]));
    assert!(said.err.contains("\"Berlin\" is not a time zone"), "{said:?}");
}

/// Ctrl-C ended the process, and with it all that was in memory.
#[test]
fn an_import_that_is_interrupted_keeps_what_it_has_written() {
    let place = Place::new();
    assert!(Command::new("mkfifo").arg(place.path("pipe.csv")).status().unwrap().success());
    let import = place.command(&["import", "pipe.csv", "--db", "db", "--table", "t"]).spawn();
    let import = import.unwrap();
    let mut pipe = std::fs::OpenOptions::new().write(true).open(place.path("pipe.csv")).unwrap();
    pipe.write_all(b"time,v\n").unwrap();
    let mut row = 0;
    // The pipe is closed when the import stops.
    loop {
        let lines: String =
            (row..row + 10_000).map(|row| format!("{},{row}\n", 1_700_000_000 + row)).collect();
        row += 10_000;
        if pipe.write_all(lines.as_bytes()).is_err() {
            break;
        }
        assert!(row < 100_000_000, "the import goes on");
        if row == 1_000_000 {
            let pid = import.id().to_string();
            assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        }
    }
    let output = import.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = Said::of(&output);
    assert!(said.err.contains("interrupted"), "{said:?}");
    let written = place.rows("SELECT count(*) FROM t");
    let shown: String = said.err.chars().filter(|c| *c != ',').collect();
    assert!(shown.contains(&format!("{} rows were written to t", written.trim())), "{said:?}");
    assert!(written.trim().parse::<u64>().unwrap() > 0);
}

/// Whether most rows are lost is told by all of them, and by values: a batch that came twice, or fields in rows of their own,
/// are no reason to stop.
#[test]
fn an_import_without_tags_goes_on_where_most_rows_stay() {
    let place = Place::new();
    let line = |n: u32| format!("{},{n}\n", 1_700_000_000 + n);
    let twice: String = (0..300_000).chain(0..60_000).map(line).collect();
    place.write("twice.csv", &format!("time,v\n{twice}"));
    let said = place.done(&["import", "twice.csv", "--db", "db", "--table", "twice"]);
    assert!(said.out.contains("60,000 of them replaced"), "{said:?}");
    assert_eq!(place.rows("SELECT count(*) FROM twice"), "300000\n");
    let sparse: String = (0..30_000)
        .map(|n| {
            let time = 1_700_000_000 + n;
            format!("{time},{n},,\n{time},,{n},\n{time},,,{n}\n")
        })
        .collect();
    place.write("sparse.csv", &format!("time,a,b,c\n{sparse}"));
    place.done(&["import", "sparse.csv", "--db", "db", "--table", "sparse"]);
    // What is completed is not lost, and what came through a pipe was not looked at again.
    let mut cat = Command::new("cat");
    let mut cat = cat.arg(place.path("sparse.csv")).stdout(Stdio::piped()).spawn().unwrap();
    let mut import = place.command(&["import", "/dev/stdin", "--db", "db", "--table", "piped"]);
    let said = Said::of(&import.stdin(cat.stdout.take().unwrap()).output().unwrap());
    assert!(cat.wait().unwrap().success());
    let expected = "60,000 rows have the tags and time of earlier ones, and replaced what these have in the same fields; what comes \
                    through a pipe cannot be looked at again for what tells them apart\n";
    assert!(said.err.ends_with(expected), "{said:?}");
    let counts = "SELECT count(*), count(a), count(b), count(c) FROM sparse";
    assert_eq!(place.rows(counts), "30000,30000,30000,30000\n");
    // A file for each sensor is one.
    let file: String = (0..1_000).map(line).collect();
    for name in ["x.csv", "y.csv", "z.csv"] {
        place.write(name, &format!("time,v\n{file}"));
    }
    let files = ["import", "x.csv", "y.csv", "z.csv", "--db", "db", "--table", "files"];
    let said = place.failed(&files);
    assert!(said.err.contains("say --tag-from-file NAME"), "{said:?}");
    assert!(said.err.contains("the table was not kept"), "{said:?}");
    place.done(&[&files[..], &["--tag-from-file", "sensor"]].concat());
    assert_eq!(place.rows("SELECT count(*) FROM files"), "3000\n");
}

#[test]
fn a_nan_with_a_sign_is_the_one_nan() {
    let place = Place::new();
    place.write(
        "a.csv",
        "time,s,v\n2024-01-01,a,-nan\n2024-01-02,a,1\n2024-01-03,a,-NaN\n2024-01-01,b,nan\n2024-01-02,b,7\n",
    );
    place.done(&["import", "a.csv", "--db", "db", "--table", "t", "--tags", "s"]);
    assert_eq!(place.rows("SELECT s, v FROM t WHERE v < 5"), "a,1.0\n");
    assert_eq!(place.rows("SELECT s FROM t GROUP BY s HAVING max(v) > 100 ORDER BY s"), "a\nb\n");
    for metrics in ["on", "off"] {
        let sql = format!(
            "SET tidefall.metrics = {metrics}; SELECT s, min(v), max(v), count(*) FROM t GROUP BY s ORDER BY s"
        );
        assert_eq!(place.rows(&sql), "a,1.0,NaN,3\nb,7.0,NaN,2\n", "metrics {metrics}");
    }
}

#[test]
fn files_are_read_as_records() {
    let place = Place::new();
    let make = "CREATE TABLE trips (lat DOUBLE, seats TINYINT, at TIMESTAMP, done TIMESTAMP, note TEXT) \
                WITH (model = 'records', index = '(lat, seats)')";
    place.done(&["query", make, "--db", "db", "--create"]);
    place.write(
        "a.csv",
        "at,lat,seats,done,note\n2024-01-01 10:00:00,40.7,1,2024-01-01 10:05:00,a\n2024-01-01 10:00:00,40.7,1,2024-01-01 10:05:00,a\n\
         2024-01-01 11:00:00,,2,,b\nnever,40.8,2,,c\n2024-01-01 12:00:00,41,300,,d\n2024-01-01 13:00:00,-1,2,,\n",
    );
    let line = ["import", "a.csv", "--db", "db", "--table", "trips"];
    let first = place.failed(&line);
    assert!(first.err.contains("line 5") && first.err.contains("never"), "{first:?}");
    let said = place.done(&[&line[..], &["--skip-bad-rows"]].concat());
    assert!(said.out.contains("3 rows imported into trips, 0 of them replaced"), "{said:?}");
    for bad in ["\"lat\" is a dimension", "never", "300"] {
        assert!(said.err.contains(bad), "{bad}: {said:?}");
    }
    let asked = "SELECT count(*), count(done), sum(seats), max(at) FROM trips WHERE lat < 40.75";
    assert_eq!(place.rows(asked), "3,2,4,2024-01-01T13:00:00\n");
    // By another column as the time, so that those without it are bad rows.
    let by_done = [&line[..], &["--time", "done", "--skip-bad-rows"]].concat();
    assert!(place.done(&by_done).out.contains("2 rows imported"));
    for (more, why) in [
        (["--tags", "note"], "--tags is for tables of series"),
        (["--time", "note"], "no TIMESTAMP \"note\""),
        (["--cascade", "long"], "--cascade is for tables of series"),
    ] {
        let said = place.failed(&[&line[..], &more[..]].concat());
        assert!(said.err.contains(why), "{said:?}");
    }
    place.write("b.csv", "at,lat,seats,fare,tip\n2024-01-01,40,1,5,0\n");
    let said = place.failed(&["import", "b.csv", "--db", "db", "--table", "trips"]);
    assert!(said.err.contains("leave them out with --skip fare,tip"), "{said:?}");
    let some = ["import", "b.csv", "--db", "db", "--table", "trips", "--fields", "at,lat,seats"];
    assert!(place.done(&some).out.contains("1 rows imported"));
    let none = place.failed(&[&some[..some.len() - 1], &["lat"]].concat());
    assert!(none.err.contains("\"seats\" is a dimension"), "{none:?}");
}

#[test]
fn rows_of_bytes_are_read_by_their_descriptor() {
    let place = Place::new();
    place.write(
        "taxi.xml",
        "<description><struct><field name=\"vendor\" type=\"char\" array_len=4/><field name=\"at\" type=\"epoch_t\"/>\
         <field name=\"lat\" type=\"float\"/></struct><indexing-dimensions><field name=\"lat\"/><field name=\"at\"/></indexing-dimensions></description>",
    );
    let row = |vendor: &str, seconds: i64, lat: f32| {
        let mut text = vendor.as_bytes().to_vec();
        text.resize(4, 0);
        [text, seconds.to_le_bytes().to_vec(), lat.to_le_bytes().to_vec()].concat()
    };
    let rows: Vec<u8> =
        (0..1000).flat_map(|at| row(["VTS", "CMT"][at % 2], at as i64, at as f32 / 4.0)).collect();
    std::fs::write(place.path("rows.bin"), &rows).expect("a file");
    let made =
        place.done(&["create", "--table", "trips", "--descriptor", "taxi.xml", "--db", "db"]);
    assert!(
        made.out.contains("table trips of records, with 3 columns and 2 dimensions"),
        "{made:?}"
    );
    let again =
        place.failed(&["create", "--table", "trips", "--descriptor", "taxi.xml", "--db", "db"]);
    assert!(again.err.contains("trips"), "{again:?}");
    let line = ["import", "rows.bin", "--table", "trips", "--descriptor", "taxi.xml", "--db", "db"];
    assert!(place.done(&line).out.contains("1,000 rows imported into trips"));
    let asked = "SELECT vendor, count(*), max(at), sum(lat) FROM trips WHERE lat < 100 GROUP BY vendor ORDER BY vendor";
    assert_eq!(
        place.rows(asked),
        "CMT,200,1970-01-01T00:06:39,10000.0\nVTS,200,1970-01-01T00:06:38,9950.0\n"
    );
    // The table is made where it is missing; what is no whole row is named, and nothing of its piece is there.
    std::fs::write(place.path("rows.bin"), &rows[..rows.len() - 1]).expect("a file");
    let cut = [&line[..3], &["other"], &line[4..]].concat();
    let said = place.failed(&cut);
    assert!(said.err.contains("rows.bin: the last row has 15 bytes"), "{said:?}");
    assert_eq!(place.rows("SELECT count(*) FROM trips"), "1000\n");
    std::fs::write(place.path("rows.bin"), [&[0x1f, 0x8b][..], &rows[2..]].concat())
        .expect("a file");
    assert!(place.failed(&line).err.contains("rows.bin is compressed"));
    for more in [&["--tags", "vendor"][..], &["--skip-lines", "1"], &["--no-header"]] {
        let output = place.run(&[&line[..], more].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("cannot be used with"), "{said}");
    }
    place.write(
        "taxi.xml",
        "<description><struct><field name=\"a\" type=\"long\"/></struct></description>",
    );
    let said = place.failed(&line);
    assert!(
        said.err.contains("taxi.xml: line 1 of the descriptor: a field of type \"long\""),
        "{said:?}"
    );
}
