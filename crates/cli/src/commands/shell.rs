//! `tidefall shell`

use std::path::PathBuf;
use std::time::Instant;

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Editor, Helper, Highlighter, Hinter};
use tidefall_sql::Session;
use tidefall_storage::Db;
use tidefall_types::{Error, Result};

use super::runtime;
use crate::args::{Format, ShellArgs};
use crate::output::{print, show_reads};

/// Words that are completed beside tables and columns.
const KEYWORDS: [&str; 34] = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "LIMIT",
    "HAVING",
    "JOIN",
    "ON",
    "AS",
    "AND",
    "OR",
    "NOT",
    "IN",
    "LIKE",
    "BETWEEN",
    "IS NULL",
    "DISTINCT",
    "INSERT INTO",
    "VALUES",
    "DELETE FROM",
    "CREATE TABLE",
    "DROP TABLE",
    "PRIMARY KEY",
    "SHOW TABLES",
    "DESCRIBE",
    "EXPLAIN",
    "EXPLAIN ANALYZE",
    "date_bin",
    "first_value",
    "last_value",
    "avg",
    "count",
    "stddev",
];

pub(crate) fn run(args: ShellArgs) -> Result<()> {
    let db = args.db.open_shared()?;
    let runtime = runtime()?;
    let session = Session::new(db.clone());
    let mut editor: Editor<SqlHelper, DefaultHistory> =
        Editor::new().map_err(|error| failed(&error))?;
    editor.set_helper(Some(SqlHelper { db: db.clone() }));
    let history = history_file();
    if let Some(history) = &history {
        // There is none before the first session.
        let _ = editor.load_history(history);
    }
    println!("Statements end with a semicolon and may span lines. Ctrl-D ends the shell.");
    loop {
        let statement = match editor.readline("tidefall> ") {
            Ok(statement) => statement,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(&error)),
        };
        if statement.trim().is_empty() {
            continue;
        }
        if matches!(statement.trim().trim_end_matches(';'), "exit" | "quit" | "\\q") {
            break;
        }
        editor.add_history_entry(&statement).map_err(|error| failed(&error))?;
        let start = Instant::now();
        let outcome = runtime.block_on(async {
            let mut answer = session.query(&statement).await?;
            let rows = print(&mut answer, Format::Table).await?;
            Ok::<_, Error>((rows, answer.reads()))
        });
        match outcome {
            Ok((rows, reads)) => {
                let millis = start.elapsed().as_secs_f64() * 1e3;
                println!("{rows} rows in {millis:.1} ms; {}", show_reads(&reads));
            }
            Err(error) => println!("{}: {error}", error.kind().name()),
        }
    }
    if let Some(history) = &history
        && let Err(error) = editor.save_history(history)
    {
        eprintln!("the history was not saved to {}: {error}", history.display());
    }
    drop(session);
    db.close()
}

fn history_file() -> Option<PathBuf> {
    std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".tidefall_history"))
}

fn failed(error: &ReadlineError) -> Error {
    Error::invalid(format!("the terminal: {error}"))
}

/// Completes names and keeps asking for lines until a semicolon.
#[derive(Helper, Highlighter, Hinter)]
struct SqlHelper {
    db: Db,
}

impl Validator for SqlHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let input = context.input().trim();
        let is_whole = input.is_empty()
            || input.ends_with(';')
            || input.starts_with('\\')
            || matches!(input, "exit" | "quit");
        Ok(if is_whole { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Completer for SqlHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let before = &line[..position];
        let start = before
            .rfind(|c| !is_word(c))
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let word = before[start..].to_lowercase();
        let mut candidates: Vec<String> = KEYWORDS.iter().map(|&word| word.to_owned()).collect();
        for schema in self.db.tables() {
            candidates.push(schema.name.clone());
            candidates.extend(schema.columns.iter().map(|column| column.name.clone()));
        }
        candidates
            .retain(|candidate| !word.is_empty() && candidate.to_lowercase().starts_with(&word));
        candidates.sort();
        candidates.dedup();
        let pair = |text: String| Pair { display: text.clone(), replacement: text };
        Ok((start, candidates.into_iter().map(pair).collect()))
    }
}
