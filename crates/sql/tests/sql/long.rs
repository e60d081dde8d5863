//! Long texts: no batch on the way to an answer has very many of them.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use tidefall_storage::{Ack, CascadeRequest, Target, Unknown, WriteOptions};
use tidefall_types::{FieldColumn, NS_PER_SECOND, TagColumn, WriteBatch, parse_time, text_bytes};

use crate::TestDb;

const ROWS: usize = 1_000;
const TEXT_BYTES: usize = 20_000;
/// A mebibyte is what a batch should have; the row that passes it may be long itself.
const BATCH_BYTES_MAX: usize = (1 << 20) + 2 * TEXT_BYTES;

fn write(db: &TestDb) {
    let start_ns = parse_time("2024-03-08T00:00:00Z").expect("a time");
    let note = |row: usize| format!("{row:06}").repeat(TEXT_BYTES / 6);
    let notes: ArrayRef = Arc::new(StringArray::from_iter_values((0..ROWS).map(note)));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
    let batch = WriteBatch {
        time: (0..ROWS as i64).map(|row| start_ns + row * NS_PER_SECOND).collect(),
        tags: vec![TagColumn {
            name: "host".into(),
            values: StringArray::from(vec!["a", "b"]),
            keys: (0..ROWS as u32).map(|row| row % 2).collect(),
        }],
        fields: vec![
            FieldColumn { name: "note".into(), values: notes },
            FieldColumn { name: "n".into(), values: numbers },
        ],
    };
    let options =
        WriteOptions { ack: Ack::Memory, unknown: Unknown::Create, ..WriteOptions::default() };
    db.db.write("notes", &batch, &options).expect("a write");
}

fn largest(batches: &[RecordBatch]) -> usize {
    let bytes = |batch: &RecordBatch| {
        batch.columns().iter().map(|column| text_bytes(column, 0..column.len())).sum()
    };
    batches.iter().map(bytes).max().unwrap_or(0)
}

/// A filter, a sort and a grouping gathered 8,192 rows, of whatever length.
#[tokio::test]
async fn batches_of_long_texts_have_few_rows() {
    let db = TestDb::new();
    write(&db);
    for placement in ["memory", "objects"] {
        if placement == "objects" {
            let request = CascadeRequest { table: None, target: Target::Long };
            db.db.cascade(&request).expect("a cascade");
        }
        for sql in [
            "SELECT note FROM notes",
            "SELECT note, n FROM notes WHERE n % 2 < 5",
            "SELECT note FROM notes WHERE n % 2 < 5 AND host = 'a' ORDER BY n DESC",
            "SELECT note, count(*) FROM notes GROUP BY note",
            "SELECT one.note, other.n FROM notes one JOIN notes other ON one.n = other.n",
            "SELECT one.n, other.note FROM (SELECT time, host, n FROM notes) one \
             ASOF JOIN (SELECT time, host, note FROM notes) other \
             MATCH_CONDITION (one.time >= other.time) ON one.host = other.host",
            "SELECT * FROM rows.notes",
        ] {
            let batches = db.run(sql).await.expect(sql);
            let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
            let half = if sql.contains("host = 'a'") { 2 } else { 1 };
            assert_eq!(rows, ROWS / half, "{placement}: {sql}");
            let bytes = largest(&batches);
            assert!(bytes <= BATCH_BYTES_MAX, "{placement}: a batch of {bytes} bytes: {sql}");
        }
        // Nothing long is read, nothing is cut.
        let batches = db.run("SELECT n FROM notes WHERE n % 2 < 5").await.expect("numbers");
        assert!(batches.len() <= 4, "{placement}: {} batches of numbers", batches.len());
    }
}

/// More than one write takes, and more than the log does at once.
#[tokio::test]
async fn long_texts_are_inserted_in_parts() {
    let db = TestDb::new();
    write(&db);
    db.run("CREATE TABLE copy (time TIMESTAMP, host TEXT, note TEXT, n BIGINT, PRIMARY KEY (host, time))")
        .await
        .expect("a table");
    let count = db.text("INSERT INTO copy SELECT time, host, note, n FROM notes").await;
    assert_eq!(count, format!("{ROWS} 0"));
    let same = db.text(
        "SELECT count(*), sum(length(a.note)) FROM notes a JOIN copy b ON a.time = b.time AND a.note = b.note",
    );
    assert_eq!(same.await, format!("{ROWS} {}", ROWS * (TEXT_BYTES / 6) * 6));
}
