//! The commands, as people run them: the real program in a folder of its own.

#![allow(clippy::unwrap_used, clippy::panic)] // A test that cannot go on should stop.

mod databases;
mod generate;
mod import;
mod output;
mod shell;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A folder in which commands run.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A path in the folder.
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidefall"));
        command.args(line).current_dir(self.0.path()).env_remove("TIDEFALL_DB");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, line: &[&str]) -> Output {
        self.command(line).output().unwrap()
    }

    /// What a command prints that must succeed.
    fn done(&self, line: &[&str]) -> Said {
        let output = self.run(line);
        assert!(output.status.success(), "{line:?}: {output:?}");
        Said::of(&output)
    }

    /// What a command prints that must fail.
    fn failed(&self, line: &[&str]) -> Said {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(1), "{line:?}: {output:?}");
        Said::of(&output)
    }

    /// The answer to a query of the database `db`, as CSV without its header.
    fn rows(&self, sql: &str) -> String {
        let said = self.done(&["query", "--db", "db", "--format", "csv", sql]);
        said.out.split_once('\n').map_or_else(String::new, |(_, rows)| rows.to_owned())
    }
}

/// What a command printed.
#[derive(Debug)]
struct Said {
    out: String,
    err: String,
}

impl Said {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Self { out: text(&output.stdout), err: text(&output.stderr) }
    }
}
