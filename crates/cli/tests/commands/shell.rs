//! `tidefall shell` with its statements from a file or a pipe.

use std::fs::File;
use std::process::Output;

use crate::Place;

fn shell(place: &Place, statements: &[u8]) -> Output {
    std::fs::write(place.path("statements"), statements).unwrap();
    let mut command = place.command(&["shell", "--create", "--db", "db"]);
    command.stdin(File::open(place.path("statements")).unwrap()).output().unwrap()
}

#[test]
fn every_statement_shows_its_answer() {
    let place = Place::new();
    let output = shell(&place, b"SELECT 1 AS a; SELECT\n2 AS b; -- nothing\n;SELECT 'x;y' AS c");
    assert!(output.status.success(), "{output:?}");
    let out = String::from_utf8(output.stdout).unwrap();
    let cells: Vec<&str> = out.split_whitespace().filter(|cell| !cell.starts_with('+')).collect();
    assert_eq!(cells.concat(), "|a||1||b||2||c||x;y|");
}

#[test]
fn the_first_error_ends_it() {
    let place = Place::new();
    for (statements, error) in [
        (b"SELECT 1; SELEC 2; SELECT 3;".as_slice(), "SELEC"),
        (b"SELECT 1; SELECT * FROM nothing; SELECT 3;", "nothing"),
        (b"SELECT 1; SELECT 3 3", "expected a semicolon"),
    ] {
        let output = shell(&place, statements);
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(out.contains("| 1 ") && !out.contains("| 2 "), "{output:?}");
        assert!(err.contains(error), "{err}");
    }
}

#[test]
fn bytes_that_are_no_text_are_named() {
    let output = shell(&Place::new(), b"SELECT '\xff'");
    assert_eq!(output.status.code(), Some(1));
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("standard input is not UTF-8 from its byte 9 on"), "{err}");
}
