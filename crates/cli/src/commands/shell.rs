//! `tidefall shell`

mod words;

use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;
use std::time::Instant;

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Editor, Helper, Highlighter, Hinter};
use tidefall_sql::Session;
use tidefall_storage::Db;
use tidefall_types::Error;

use self::words::{HELP, Part, Word, parts};
use super::runtime;
use crate::args::{Format, ShellArgs};
use crate::output::{Outcome, Stop, note, print, say, show_reads};

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

/// Whether it is said how long a statement took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timing {
    Shown,
    Hidden,
}

pub(crate) fn run(args: ShellArgs) -> Outcome {
    let db = args.db.open_shared(args.create.missing())?;
    let session = Session::new(db.clone());
    let outcome = match io::stdin().is_terminal() {
        true => run_lines(&db, &session),
        false => run_input(&db, &session),
    };
    drop(session);
    db.close()?;
    outcome
}

/// Runs what comes through a pipe or from a file.
fn run_input(db: &Db, session: &Session) -> Outcome {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| Error::io("reading standard input", &error))?;
    let sql = str::from_utf8(&bytes).map_err(|error| {
        let byte = error.valid_up_to() + 1;
        Error::invalid(format!("standard input is not UTF-8 from its byte {byte} on"))
    })?;
    let runtime = runtime()?;
    // Editors on Windows write it in front.
    for part in parts(sql.strip_prefix('\u{feff}').unwrap_or(sql)) {
        let asked = match part {
            Part::Sql(sql) => sql.to_owned(),
            Part::Line(line) => match word(db, line) {
                Some(Word::Quit) => break,
                Some(Word::Ask(sql)) => sql,
                Some(Word::Help) => {
                    say!("{HELP}")?;
                    continue;
                }
                Some(Word::Unknown(_)) | None => line.to_owned(),
            },
        };
        runtime.block_on(run_statements(session, &asked, Timing::Hidden))?;
    }
    Ok(())
}

/// What a line asks of the shell itself.
fn word(db: &Db, line: &str) -> Option<Word> {
    let tables = || db.tables().iter().map(|table| table.name.clone()).collect();
    Word::of(line, tables)
}

/// Runs what a person types.
fn run_lines(db: &Db, session: &Session) -> Outcome {
    let runtime = runtime()?;
    let mut editor: Editor<SqlHelper, DefaultHistory> =
        Editor::new().map_err(|error| failed(&error))?;
    editor.set_helper(Some(SqlHelper { db: db.clone() }));
    let history = history_file();
    if let Some(history) = &history {
        // There is none before the first session.
        let _ = editor.load_history(history);
    }
    say!(
        "Statements end with a semicolon and may span lines. .help tells more; Ctrl-D ends the shell."
    )?;
    loop {
        let statements = match editor.readline("tidefall> ") {
            Ok(statements) => statements,
            // What was typed is dropped, as in other shells.
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(&error).into()),
        };
        if statements.trim().is_empty() {
            continue;
        }
        editor.add_history_entry(&statements).map_err(|error| failed(&error))?;
        match Word::of(&statements, Vec::new) {
            Some(Word::Quit) => break,
            Some(Word::Help) => {
                say!("{HELP}")?;
                continue;
            }
            Some(Word::Unknown(word)) => {
                say!("there is no {word}; .help tells what there is")?;
                continue;
            }
            Some(Word::Ask(_)) | None => {}
        }
        match runtime.block_on(run_until_stopped(db, session, &statements)) {
            Err(Stop::Failed(error)) => say!("{}: {error}", error.kind().name())?,
            outcome => outcome?,
        }
    }
    if let Some(history) = &history
        && let Err(error) = editor.save_history(history)
    {
        note!("the history was not saved to {}: {error}", history.display());
    }
    // A refresh that was cancelled may go on.
    runtime.shutdown_background();
    Ok(())
}

/// Runs statements in order, or what a word stands for, until they are done, or until Ctrl-C.
async fn run_until_stopped(db: &Db, session: &Session, line: &str) -> Outcome {
    let run = async {
        refresh(db).await;
        match word(db, line) {
            Some(Word::Ask(sql)) => run_statements(session, &sql, Timing::Shown).await,
            _ => run_statements(session, line, Timing::Shown).await,
        }
    };
    tokio::select! {
        biased;
        Ok(()) = tokio::signal::ctrl_c() => match Session::is_read_only(line) {
            Ok(true) => say!("cancelled"),
            _ => say!("cancelled; what was written before stays"),
        },
        outcome = run => outcome,
    }
}

/// Another process may write the database meanwhile.
async fn refresh(db: &Db) {
    let db = db.clone();
    let refreshed = tokio::task::spawn_blocking(move || db.refresh()).await;
    if let Err(error) = refreshed.map_err(|error| Error::invalid(error.to_string())).flatten() {
        note!("what was written since is not shown: {error}");
    }
}

/// Runs statements in order, prints the answer of each, and stops at the first error.
async fn run_statements(session: &Session, sql: &str, timing: Timing) -> Outcome {
    let mut script = session.script(sql)?;
    loop {
        let start = Instant::now();
        let Some(answer) = script.next().await else { return Ok(()) };
        let mut answer = answer?;
        let rows = print(&mut answer, Format::Table).await?;
        if timing == Timing::Shown {
            let millis = start.elapsed().as_secs_f64() * 1e3;
            say!("{rows} rows in {millis:.1} ms; {}", show_reads(&answer.reads()))?;
        }
    }
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
        let is_whole = Session::is_between_statements(input) || Word::of(input, Vec::new).is_some();
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
