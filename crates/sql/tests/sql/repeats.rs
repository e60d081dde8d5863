//! Long values that joins, `unnest` and scalar subqueries repeat: never in so many rows at once that memory does not suffice.

use datafusion::arrow::array::{Array, RecordBatch};
use futures::TryStreamExt;
use tidefall_types::ErrorKind;

use crate::TestDb;
use crate::limits::{refused, table};

/// A list and a text of some hundred kilobytes, beside a key.
const LONG: &str = "(SELECT value % 3 AS k, array_agg(value) AS l, string_agg(repeat('abc', 10), ',') AS x \
                    FROM generate_series(1, 60000) GROUP BY 1)";

/// The rows of an answer, none of whose batches is large.
async fn in_small_batches(test_db: &TestDb, sql: &str) -> usize {
    let bytes = |batch: &RecordBatch| {
        let of = |array: &dyn Array| array.to_data().get_slice_memory_size().unwrap_or(0);
        batch.columns().iter().map(|column| of(&**column)).sum::<usize>()
    };
    let mut answer = test_db.session.query(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let mut rows = 0;
    while let Some(batch) = answer.try_next().await.unwrap_or_else(|e| panic!("{sql}: {e}")) {
        rows += batch.num_rows();
        assert!(bytes(&batch) <= 40 << 20, "{sql}: a batch of {} bytes", bytes(&batch));
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn long_values_are_repeated_in_few_rows_at_a_time() {
    let test_db = table().await;
    let series = "generate_series(1, 1500) a";
    for (sql, rows) in [
        (format!("SELECT a.value, y.l, y.x FROM {series} JOIN {LONG} y ON a.value % 3 = y.k"), 1_500),
        (format!("SELECT a.value, y.l FROM {series} LEFT JOIN {LONG} y ON a.value % 4 = y.k"), 1_500),
        (format!("SELECT a.value, y.x FROM {LONG} y FULL JOIN {series} ON a.value % 4 = y.k"), 1_500),
        (format!("SELECT y.l FROM {series} CROSS JOIN {LONG} y WHERE y.k < 1"), 1_500),
        (format!("SELECT a.value, y.x FROM {series} JOIN {LONG} y ON a.value % 3 < y.k"), 1_500),
        (format!("SELECT a.value, y.l FROM {series} LEFT JOIN {LONG} y ON a.value % 3 < y.k"), 2_000),
        // What gathers rows above them.
        (
            format!(
                "SELECT * FROM (SELECT a.value, y.l FROM {series} LEFT JOIN {LONG} y ON a.value % 3 = y.k) \
                 WHERE coalesce(array_length(l), 0) + value > 3"
            ),
            1_500,
        ),
        (
            format!("SELECT b.value, q.x FROM (SELECT a.value, y.x FROM {series} JOIN {LONG} y ON a.value % 3 = y.k) q \
                     JOIN (VALUES (1), (2)) b(value) ON b.value = q.value % 3"),
            1_000,
        ),
        (format!("SELECT a.value, (SELECT l FROM {LONG} WHERE k = 1) AS l FROM {series}"), 1_500),
        (format!("SELECT a.value, coalesce((SELECT x FROM {LONG} WHERE k = 1), '') AS x FROM {series}"), 1_500),
        (
            "SELECT unnest(l) AS u, x FROM (SELECT range(0, 100) AS l, repeat('x', 20000 + CAST(value AS INT) % 7) AS x \
             FROM generate_series(1, 300))"
                .to_owned(),
            30_000,
        ),
        (
            format!(
                "SELECT q.value, y.l FROM (SELECT value, to_timestamp(value) AS time FROM {series}) q \
                 ASOF JOIN (SELECT to_timestamp(k) AS time, l FROM {LONG}) y MATCH_CONDITION (q.time >= y.time)"
            ),
            1_500,
        ),
    ] {
        assert_eq!(in_small_batches(&test_db, &sql).await, rows, "{sql}");
    }
    // More than a column of texts can hold.
    let sql = "SELECT count(*), sum(length(x)) FROM \
               (SELECT repeat('x', 400000 + CAST(v AS INT) * 0) AS x FROM t LIMIT 1) q CROSS JOIN generate_series(1, 7000)";
    assert_eq!(test_db.text(sql).await, "7000 2800000000");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_too_long_to_be_unnested_is_refused() {
    let test_db = table().await;
    let both = "SELECT array_agg(value) AS l, string_agg(value::TEXT, ',') AS x FROM generate_series(1, 20000)";
    let sql = format!("SELECT max(length(x)) FROM (SELECT unnest(l) AS u, x FROM ({both}))");
    let message = refused(&test_db, &sql, ErrorKind::Limit).await;
    assert!(message.contains("20000 elements") && message.contains("(long: x)"), "{message}");
    let sql = format!("SELECT max(u), count(*) FROM (SELECT unnest(l) AS u FROM ({both}))");
    assert_eq!(test_db.text(&sql).await, "20000 20000");
}

/// Each of them comes once: a batch of them all would be no more than they are.
#[tokio::test(flavor = "multi_thread")]
async fn long_lists_that_are_not_repeated_are_joined() {
    let test_db = TestDb::with_memory(256 << 20);
    test_db
        .text(
            "CREATE TABLE s (time TIMESTAMP, host TEXT, v BIGINT, PRIMARY KEY (host, time)); \
             INSERT INTO s SELECT to_timestamp(value), 'h' || (value % 4), value FROM generate_series(1, 400000)",
        )
        .await;
    let places = "(VALUES ('h0', 'north'), ('h1', 'south'), ('h3', 'south')) p(host, place)";
    for lists in ["columns.s", "(SELECT host, array_agg(v) AS v FROM s GROUP BY host)"] {
        for join in [
            format!("{lists} c JOIN {places} ON c.host = p.host"),
            format!("{places} LEFT JOIN {lists} c ON c.host = p.host"),
            format!("{lists} c JOIN {places} ON c.host <= p.host AND c.host >= p.host"),
        ] {
            let sql = format!("SELECT p.place, c.host, array_length(c.v) FROM {join} ORDER BY 2");
            let expected = "north h0 100000\nsouth h1 100000\nsouth h3 100000";
            assert_eq!(test_db.text(&sql).await, expected, "{sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn joins_of_lists_answer_as_ever() {
    let test_db = table().await;
    let lists = "(SELECT value % 7 AS k, array_agg(value) AS l, min(value::TEXT) AS x FROM generate_series(1, 700) GROUP BY 1)";
    for (join, expected) in [
        ("JOIN", "700 349600 70000"),
        ("LEFT JOIN", "1000 500500 70000"),
        ("RIGHT JOIN", "700 349600 70000"),
        ("FULL JOIN", "1000 500500 70000"),
    ] {
        for condition in ["a.value % 10 = y.k", "a.value % 10 <= y.k AND a.value % 10 + 0 >= y.k"] {
            let sql = format!(
                "SELECT count(*), sum(a.value), sum(array_length(y.l)) \
                 FROM generate_series(1, 1000) a {join} {lists} y ON {condition}"
            );
            assert_eq!(test_db.text(&sql).await, expected, "{sql}");
        }
    }
    for (condition, expected) in [("IN", "700"), ("NOT IN", "300")] {
        let sql = format!(
            "SELECT count(*) FROM generate_series(1, 1000) a WHERE a.value % 10 {condition} (SELECT k FROM {lists})"
        );
        assert_eq!(test_db.text(&sql).await, expected, "{sql}");
    }
    let both = format!(
        "SELECT count(*), sum(array_length(a.l || b.l)) FROM {lists} a JOIN {lists} b ON a.l = b.l"
    );
    assert_eq!(test_db.text(&both).await, "7 1400");
    let recursion = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT r.n + 1 FROM r \
                     JOIN (SELECT array_agg(value) AS l FROM generate_series(1, 10)) y ON r.n < array_length(y.l)) \
                     SELECT count(*), max(n) FROM r";
    assert_eq!(test_db.text(recursion).await, "10 10");
}

/// Each row of a list had a batch of its own, as lists are long.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_lists_come_in_batches_of_the_usual_size() {
    let test_db = TestDb::new();
    test_db
        .text(
            "CREATE TABLE t (time TIMESTAMP, host TEXT, v DOUBLE, PRIMARY KEY (host, time)); \
             INSERT INTO t SELECT to_timestamp(value), 'a', value FROM generate_series(1, 50000)",
        )
        .await;
    for (sql, rows) in [
        ("SELECT host, unnest(v) AS u FROM columns.t", 50_000),
        (
            "SELECT host, u FROM (SELECT host, unnest(v) AS u FROM columns.t) WHERE u > 10000",
            40_000,
        ),
        ("SELECT host, unnest(times) AS time, unnest(v) AS u FROM columns.t ORDER BY u", 50_000),
    ] {
        let batches = test_db.run(sql).await.unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), rows, "{sql}");
        assert!(batches.len() < 20, "{sql}: {} batches", batches.len());
    }
}
