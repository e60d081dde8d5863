//! What is printed, and what happens when it cannot be.

use std::fs::File;
use std::process::Output;

use crate::Place;

const ASK: [&str; 5] = ["query", "--db", "db", "--format", "csv"];

fn place() -> Place {
    let place = Place::new();
    place.write("a.csv", "time,s,v\n2024-01-01,a,1.5\n2024-01-01,b,2\nnever,c,3\n");
    place.done(&[
        "import",
        "a.csv",
        "--db",
        "db",
        "--table",
        "t",
        "--tags",
        "s",
        "--skip-bad-rows",
    ]);
    place
}

/// A pipe that nobody reads.
fn unread() -> std::io::PipeWriter {
    std::io::pipe().unwrap().1
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    let place = place();
    let printing: [&[&str]; 8] = [
        &["inspect", "--db", "db"],
        &["verify", "--db", "db"],
        &["cascade", "--db", "db"],
        &["query", "--db", "db", "SELECT * FROM t"],
        &["query", "--db", "db", "--format", "csv", "SELECT * FROM t"],
        &["query", "--db", "db", "--format", "json", "SELECT * FROM t"],
        &["import", "a.csv", "--db", "db", "--table", "t", "--skip-bad-rows"],
        &["demo"],
    ];
    for line in printing {
        let output = place.command(line).stdout(unread()).output().unwrap();
        assert!(output.status.success(), "{line:?}: {output:?}");
        assert!(!err(&output).contains("tidefall:"), "{line:?}: {output:?}");
        assert!(!err(&output).contains("panicked"), "{line:?}: {output:?}");
    }
    let import = ["import", "a.csv", "--db", "db", "--table", "t", "--skip-bad-rows", "-q"];
    let output = place.command(&import).stderr(unread()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_full_disk_is_an_error() {
    let place = place();
    let printing: [&[&str]; 3] = [
        &["inspect", "--db", "db"],
        &["query", "--db", "db", "SELECT 1"],
        &[&ASK[..], &["SELECT 1"]].concat(),
    ];
    for line in printing {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = place.command(line).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{line:?}: {output:?}");
        assert!(err(&output).contains("io: writing to standard output"), "{line:?}: {output:?}");
    }
}

#[test]
fn csv_has_lists_as_text() {
    let place = place();
    assert_eq!(place.rows("SELECT make_array(1.5, 2.0) AS l, 7 AS n"), "\"[1.5, 2.0]\",7\n");
    assert!(place.rows("SELECT * FROM columns.t").contains('['));
}

#[test]
fn an_insert_tells_what_it_replaced() {
    let place = place();
    let insert = "INSERT INTO t VALUES ('2024-01-01', 'a', 1), ('2024-01-01', 'c', 2), ('2024-01-02', 'a', 3)";
    let said = place.done(&[&ASK[..], &[insert]].concat());
    assert_eq!(said.out, "count,replaced\n3,1\n");
    assert_eq!(said.err, "3 rows inserted, 1 of them replaced earlier ones\n");
    let said = place.done(&["query", "--db", "db", insert]);
    assert!(said.out.contains("| count | replaced |\n"), "{said:?}");
    assert!(said.out.contains("| 3     | 3        |\n"), "{said:?}");
    assert_eq!(said.err, "3 rows inserted, 3 of them replaced earlier ones\n");
    // What replaces nothing, and what only looks like it.
    let new = "INSERT INTO t VALUES ('2024-01-03', 'a', 1)";
    for (sql, expected) in [(new, "1,0\n"), ("SELECT 3 AS count, 1 AS replaced", "3,1\n")] {
        let said = place.done(&[&ASK[..], &[sql]].concat());
        assert_eq!(
            (said.out.as_str(), said.err.as_str()),
            (format!("count,replaced\n{expected}").as_str(), "")
        );
    }
    let mut shell = place.command(&["shell", "--db", "db"]);
    let mut shell = shell.stdin(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut shell.stdin.take().unwrap(), format!("{new};\n").as_bytes())
        .unwrap();
    let output = shell.wait_with_output().unwrap();
    assert!(err(&output).contains("1 row inserted, 1 of them replaced earlier ones"), "{output:?}");
}

#[test]
fn an_answer_without_rows_has_its_columns() {
    let place = place();
    let none = "SELECT s, v AS \"a,b\", make_array(v) AS l FROM t WHERE v > 9";
    for (format, expected) in [("csv", "s,\"a,b\",l\n"), ("json", "[]\n")] {
        for sql in [none, "SELECT 1 AS s, 2 AS \"a,b\", 3 AS l WHERE false"] {
            let said = place.done(&["query", "--db", "db", "--format", format, sql]);
            assert_eq!(said.out, expected, "{sql}");
        }
    }
    let said = place.done(&["query", "--db", "db", none]);
    assert!(said.out.contains("| s | a,b | l |"), "{said:?}");
    // One that fails prints no header.
    let said = place.failed(&[&ASK[..], &["SELECT 1 AS a, CAST(s AS INT) FROM t"]].concat());
    assert_eq!(said.out, "", "{said:?}");
}
