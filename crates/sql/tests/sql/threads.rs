//! Readers that wait hold no thread.

use std::time::{Duration, Instant};

use futures::StreamExt;
use tidefall_sql::QueryStream;

use crate::TestDb;

/// Fewer threads for work that blocks than the tests have streams.
const THREADS: usize = 4;
const BRANCHES: usize = 3 * THREADS;

/// A table with more batches for each of two partitions than any stream makes ahead.
const FILLED: &str = "CREATE TABLE t (time TIMESTAMP, a TEXT, v DOUBLE, PRIMARY KEY (a, time));
     INSERT INTO t SELECT to_timestamp(value), 'a' || (value % 2), value % 10 \
     FROM generate_series(0, 199999)";

/// Runs a test with few threads and within a bounded time.
fn with_few_threads(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder
        .worker_threads(2)
        .max_blocking_threads(THREADS)
        .enable_all()
        .build()
        .expect("a runtime");
    let ended =
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await });
    runtime.shutdown_background();
    ended.expect("it waits for itself");
}

async fn filled() -> TestDb {
    let test_db = TestDb::new();
    test_db.text(FILLED).await;
    test_db
}

async fn rows(mut stream: QueryStream) -> usize {
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        rows += batch.expect("a batch").num_rows();
    }
    rows
}

#[test]
fn an_ordered_union_has_more_branches_than_threads() {
    with_few_threads(async {
        let test_db = filled().await;
        for one in [
            "SELECT time FROM t WHERE a = 'a0'",
            "SELECT time FROM rows('t', sensors => ['a0'])",
            "SELECT date_bin(INTERVAL '1 second', time) AS time FROM t WHERE a = 'a0' GROUP BY 1",
        ] {
            let sql = format!("{} ORDER BY time", [one; BRANCHES].join(" UNION ALL "));
            let plan = test_db.plan(&sql).await;
            assert!(plan.contains("SortPreservingMerge") && !plan.contains("SortExec"), "{plan}");
            let stream = test_db.session.query(&sql).await.expect("a query");
            assert_eq!(rows(stream).await, 100_000 * BRANCHES, "{one}");
        }
    });
}

#[test]
fn readers_that_pause_hold_up_nobody() {
    with_few_threads(async {
        let test_db = filled().await;
        let mut paused = Vec::new();
        for _ in 0..BRANCHES {
            let stream = test_db.session.query("SELECT * FROM t").await;
            let mut stream = stream.expect("a query");
            stream.next().await.expect("a batch").expect("a batch");
            paused.push(stream);
        }
        assert_eq!(test_db.text("SELECT count(*) FROM t WHERE v >= 0").await, "200000");
        for stream in paused {
            assert!(rows(stream).await >= 150_000);
        }
    });
}

/// Two tasks that took long for each batch, or made many batches of one, kept both threads for a minute, also after whoever waited had left.
#[test]
fn what_takes_long_for_each_batch_gives_others_a_turn() {
    with_few_threads(async {
        let test_db = filled().await;
        for sql in [
            "SELECT sum(x) FROM (SELECT unnest(range(0, 2000)) AS x FROM t)",
            "SELECT sum(x) FROM (SELECT unnest(range(0, 2000)) AS x FROM generate_series(1, 200000))",
            "SELECT sum(levenshtein(a, repeat('evt 12', 2000))) FROM t",
            "SELECT sum(levenshtein(value::TEXT, repeat('evt 12', 2000))) FROM generate_series(1, 200000)",
            // What holds its rows gives out all batches in one go.
            "SELECT sum(levenshtein(k, repeat('evt 12', 500))) FROM (SELECT a || time::TEXT AS k FROM t GROUP BY 1)",
            "SELECT sum(levenshtein(k, repeat('evt 12', 500)))
             FROM (SELECT a || time::TEXT AS k FROM t ORDER BY v, time LIMIT 190000)",
        ] {
            let heavy: Vec<_> = (0..2)
                .map(|_| {
                    let (session, sql) = (test_db.session.fork(), sql.to_owned());
                    tokio::spawn(async move { session.collect(&sql).await.map(drop) })
                })
                .collect();
            // The thread of the test is none of those that compute.
            std::thread::sleep(Duration::from_millis(500));
            let session = test_db.session.fork();
            let start = Instant::now();
            let small = tokio::spawn(async move { session.collect("SELECT 1").await.map(drop) });
            small.await.expect("a task").expect("an answer");
            let waited = start.elapsed();
            assert!(heavy.iter().all(|task| !task.is_finished()), "{sql}: it is too quick to tell");
            assert!(waited < Duration::from_secs(3), "{sql}: {waited:?}");
            heavy.iter().for_each(tokio::task::JoinHandle::abort);
            let start = Instant::now();
            for task in heavy {
                assert!(task.await.is_err(), "{sql}: it has ended");
            }
            let ended = start.elapsed();
            assert!(ended < Duration::from_secs(3), "{sql}: it went on for {ended:?}");
        }
    });
}
