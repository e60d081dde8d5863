//! SQL end to end: cases in `../slt`, plans, wrong input, the examples of the documentation, and
//! random questions compared with DataFusion over the same rows in memory.

#![allow(clippy::expect_used, clippy::panic)] // A test that cannot go on should stop.

mod asof;
mod compare;
mod docs;
mod faults;
mod inserts;
mod joins;
mod layers;
mod limits;
mod long;
mod means;
mod parameters;
mod partitions;
mod permutations;
mod plans;
mod records;
mod repeats;
mod sensors;
mod slt;
mod sorts;
mod threads;
mod top;
mod windows;

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use tidefall_sql::Session;
use tidefall_storage::{Db, DbOptions};
use tidefall_types::{ManualClock, Result, parse_time};

/// The time at which all tests run.
const NOW: &str = "2024-03-10T12:00:00Z";

/// A new database in a directory that goes away with it.
struct TestDb {
    db: Db,
    session: Session,
    _directory: tempfile::TempDir,
}

impl TestDb {
    fn new() -> Self {
        Self::with_memory(DbOptions::default().memory_bytes)
    }

    fn with_memory(memory_bytes: usize) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let clock = Arc::new(ManualClock::new(parse_time(NOW).expect("a time")));
        let options = DbOptions { clock, threads: 2, memory_bytes, ..DbOptions::default() };
        let db = Db::open(directory.path(), options.clone()).expect("an empty database");
        let session = Session::with_options(db.clone(), &options);
        Self { db, session, _directory: directory }
    }

    /// Runs statements and collects the answer of the last.
    async fn run(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        self.session.collect(sql).await
    }

    /// The answer as text, a line a row, a space between columns.
    async fn text(&self, sql: &str) -> String {
        match self.run(sql).await {
            Ok(batches) => lines(&batches).join("\n"),
            Err(error) => panic!("{sql}\n{}: {error}", error.kind().name()),
        }
    }

    /// The physical plan.
    async fn plan(&self, sql: &str) -> String {
        self.text(&format!("EXPLAIN {sql}")).await
    }
}

/// Rows as text: columns divided by one space, `NULL` for nulls, `(empty)` for empty texts.
fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let mut lines = Vec::new();
    for batch in batches {
        let columns: Vec<ArrayFormatter<'_>> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).expect("a formatter"))
            .collect();
        for row in 0..batch.num_rows() {
            let values = columns.iter().map(|column| match column.value(row).to_string() {
                text if text.is_empty() => "(empty)".to_owned(),
                text => text,
            });
            lines.push(values.collect::<Vec<_>>().join(" "));
        }
    }
    lines
}
