//! `tidefall shell` with its statements from a file or a pipe, and as a person uses it at a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

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

/// Editors on Windows write a mark in front of UTF-8, which was no statement.
#[test]
fn a_file_may_begin_with_a_byte_order_mark() {
    let output = shell(&Place::new(), "\u{feff}SELECT 5 AS a;\r\nSELECT 6;\r\n".as_bytes());
    assert!(output.status.success(), "{output:?}");
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.contains("| 5 ") && out.contains("| 6 "), "{out}");
}

#[test]
fn a_word_of_the_shell_within_a_remark_or_a_text_ends_nothing() {
    let output = shell(
        &Place::new(),
        b"/*\nquit\n*/ SELECT 1 AS a; SELECT ';\nquit\n' AS b;\n-- end\nquit\nSELECT 3;",
    );
    assert!(output.status.success(), "{output:?}");
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.contains("| 1 ") && out.contains("quit") && !out.contains("| 3 "), "{out}");
}

#[test]
fn words_of_shells_are_understood_between_statements() {
    let place = Place::new();
    let sql = b".tables\nCREATE TABLE cpu (time TIMESTAMP, load DOUBLE);\n\\d\n.schema cpu\nhelp\nSELECT 1;\nquit\n5;";
    let output = shell(&place, sql);
    assert!(output.status.success(), "{output:?}");
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(
        out.contains("| cpu ") && out.contains("| load ") && out.contains(".schema [TABLE]"),
        "{out}"
    );
}

/// How long an answer may take to appear.
const PATIENCE: Duration = Duration::from_secs(60);

/// The shell at a terminal, which `script` gives it.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<String>>,
}

impl Terminal {
    fn open(place: &Place) -> Self {
        // `exec`, or the shell between them may end by the same Ctrl-C afterwards.
        let line = format!("exec {} shell --create --db db", env!("CARGO_BIN_EXE_tidefall"));
        let mut command = Command::new("script");
        command.args(["-qefc", &line, "/dev/null"]).current_dir(place.path("."));
        command.env("TERM", "xterm").env("HOME", place.path(".")).env_remove("TIDEFALL_DB");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let (keys, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&screen);
        thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(count @ 1..) = out.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        let mut terminal = Self { child, keys, screen };
        terminal.wait_for("tidefall>");
        terminal
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits until the screen shows a text, and forgets what it showed until there.
    fn wait_for(&mut self, text: &str) {
        let start = Instant::now();
        loop {
            let mut screen = self.screen.lock().unwrap();
            if let Some(at) = screen.find(text) {
                *screen = screen.split_off(at + text.len());
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{text:?} is not in {screen:?}");
            drop(screen);
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the end of the shell; its status.
    fn status(mut self) -> Option<i32> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("the shell does not end: {:?}", self.screen.lock().unwrap());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const CTRL_C: &str = "\x03";

#[test]
fn ctrl_c_stops_the_statement_and_not_the_shell() {
    let place = Place::new();
    let mut terminal = Terminal::open(&place);
    for endless in [
        "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000000) b WHERE a.value + b.value > 7;",
        // These find nothing that they could give on.
        "SELECT count(*) FROM generate_series(1, 2000000) a, generate_series(1, 1000000000) b WHERE a.value + b.value < 0;",
        "SELECT count(*) FROM generate_series(1, 2000000) a JOIN generate_series(1, 1000000000) b ON a.value % 3 = b.value % 3 AND a.value + b.value < 0;",
        "SELECT sum(value % 7) FROM generate_series(1, 1000000000000);",
        "SELECT value FROM generate_series(1, 1000000000000) ORDER BY value % 7 LIMIT 5;",
    ] {
        terminal.press(&format!("{endless}\r"));
        thread::sleep(Duration::from_millis(700));
        terminal.press(CTRL_C);
        terminal.wait_for("cancelled");
        terminal.wait_for("tidefall>");
        terminal.press("SELECT 40 + 2 AS answer;\r");
        terminal.wait_for("| 42 ");
        terminal.wait_for("tidefall>");
    }
    // At the prompt it drops the line.
    terminal.press("SELECT nonsense");
    terminal.press(CTRL_C);
    terminal.wait_for("tidefall>");
    terminal.press(CTRL_C);
    terminal.wait_for("tidefall>");
    terminal.press("SELECT 40 + 3 AS answer;\r");
    terminal.wait_for("| 43 ");
    terminal.press("quit\r");
    assert_eq!(terminal.status(), Some(0));
}

#[test]
fn words_that_are_no_sql_get_an_answer() {
    let place = Place::new();
    let mut terminal = Terminal::open(&place);
    terminal.press("CREATE TABLE cpu (time TIMESTAMP, load DOUBLE);\r");
    terminal.wait_for("table cpu created");
    for (typed, shown) in [
        ("help", ".schema [TABLE]"),
        (".help", "ends the shell"),
        ("\\?", "ends the shell"),
        (".tables", "| cpu "),
        ("\\d", "| cpu "),
        (".schema cpu", "| load "),
        ("\\d cpu", "| load "),
        (".mode csv", "there is no .mode; .help tells"),
    ] {
        terminal.wait_for("tidefall>");
        terminal.press(&format!("{typed}\r"));
        terminal.wait_for(shown);
    }
    terminal.press("\\q\r");
    assert_eq!(terminal.status(), Some(0));
}
