//! Wrong statements get an error of the right kind, and nothing overflows.

use std::time::{Duration, Instant};

use tidefall_types::ErrorKind;

use crate::TestDb;

async fn check(test_db: &TestDb, sql: &str, kind: ErrorKind) {
    match test_db.run(sql).await {
        Ok(_) => panic!("{sql} was taken"),
        Err(error) => assert_eq!(error.kind(), kind, "{sql}: {error}"),
    }
}

async fn one_row() -> TestDb {
    let test_db = TestDb::new();
    test_db
        .text(
            "CREATE TABLE t (time TIMESTAMP, a TEXT, v DOUBLE, n TINYINT, PRIMARY KEY (a, time)); \
             INSERT INTO t VALUES ('2024-01-01', 'x', 1.5, 3)",
        )
        .await;
    test_db
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_statements_are_invalid() {
    let test_db = one_row().await;
    for sql in [
        "",
        ";;",
        "SELEKT 1",
        "SELECT nothing FROM t",
        "SELECT sum(a) FROM t",
        "SELECT 'unfinished",
        "SELECT 1/0",
        "SELECT CAST('x' AS BIGINT)",
        "SELECT arrow_cast(1, 'Nonsense')",
        "INSERT INTO t (a, v) VALUES ('x', 1)",
        "INSERT INTO t VALUES ('2024-13-01', 'x', 1, 1)",
        "INSERT INTO t VALUES ('2024-01-01', 'x', 1, 300)",
        "INSERT INTO t VALUES ('2024-01-01', 'x')",
        "CREATE TABLE u (a TEXT, v DOUBLE)",
        "CREATE TABLE u (t1 TIMESTAMP, t2 TIMESTAMP, PRIMARY KEY (t1, t2))",
        "CREATE TABLE u (time TIMESTAMP, v DOUBLE, PRIMARY KEY (v, time))",
        "CREATE TABLE u (time TIMESTAMP, v DOUBLE, PRIMARY KEY (w, time))",
        "CREATE TABLE u (time TIMESTAMP, v DOUBLE, v DOUBLE)",
        "CREATE TABLE u (time TIMESTAMP) WITH (cascade = 'long, kv 1d')",
        "CREATE TABLE u (time TIMESTAMP) WITH (block = '7h')",
        "CREATE TABLE u (time TIMESTAMP) WITH (colour = 'blue')",
        "CREATE TABLE u (time TIMESTAMP) WITH (retention = 'soon')",
        "DELETE FROM t WHERE time > 'soon'",
    ] {
        check(&test_db, sql, ErrorKind::Invalid).await;
    }
    assert_eq!(test_db.text("SELECT a, v, n FROM t").await, "x 1.5 3");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_and_existing_tables_are_told_apart() {
    let test_db = one_row().await;
    for sql in [
        "SELECT * FROM missing",
        "INSERT INTO missing VALUES (1)",
        "DELETE FROM missing",
        "DROP TABLE missing",
        "DESCRIBE missing",
    ] {
        check(&test_db, sql, ErrorKind::NotFound).await;
    }
    check(&test_db, "CREATE TABLE t (time TIMESTAMP)", ErrorKind::Conflict).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_supported_says_so() {
    let test_db = one_row().await;
    for sql in [
        "CREATE TABLE u (time TIMESTAMP) WITH (model = 'slots')",
        "CREATE TABLE u (time TIMESTAMP, v DECIMAL(10, 2))",
        "CREATE TABLE u (time TIMESTAMP, v DOUBLE DEFAULT 3)",
        "CREATE TABLE u AS SELECT 1",
        "CREATE VIEW w AS SELECT 1",
        "CREATE EXTERNAL TABLE f STORED AS CSV LOCATION '/etc/passwd'",
        "COPY (SELECT 1) TO '/tmp/out.csv'",
        "EXPLAIN CREATE VIEW w AS SELECT 1",
        "UPDATE t SET v = 1",
        "DELETE FROM t WHERE v > 1",
        "DELETE FROM t WHERE a = 'x' OR time > now()",
        "DELETE FROM t LIMIT 1",
        "SET datafusion.runtime.memory_limit = '100G'",
        "SET datafusion.execution.target_partitions = 100",
        "PREPARE p AS SELECT 1",
        "BEGIN",
    ] {
        check(&test_db, sql, ErrorKind::Unsupported).await;
    }
    assert_eq!(test_db.text("SELECT a, v, n FROM t").await, "x 1.5 3");
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_nesting_does_not_overflow_the_stack() {
    let test_db = TestDb::new();
    let nested = format!("SELECT {}1{}", "(".repeat(20_000), ")".repeat(20_000));
    check(&test_db, &nested, ErrorKind::Invalid).await;
    let calls = format!("SELECT {}1{}", "abs(".repeat(20_000), ")".repeat(20_000));
    check(&test_db, &calls, ErrorKind::Invalid).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_signs_do_not_overflow_the_stack() {
    let test_db = TestDb::new();
    let signs = format!("SELECT {}1", "- ".repeat(20_000));
    check(&test_db, &signs, ErrorKind::Limit).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_conditions_do_not_overflow_the_stack() {
    let test_db = TestDb::new();
    test_db
        .text(
            "CREATE TABLE t (time TIMESTAMP, a TEXT, v DOUBLE, PRIMARY KEY (a, time)); \
             INSERT INTO t VALUES ('2024-01-01', 'x', 1.5), ('2024-01-01', 'y', 2.5)",
        )
        .await;
    let chains = |count: usize| {
        let join = |separator: &str, of: fn(usize) -> String| {
            (0..count).map(of).collect::<Vec<_>>().join(separator)
        };
        [
            join(" OR ", |n| format!("v = -{n}.5")),
            join(" OR ", |n| format!("a = 'n{n}'")),
            join(" OR ", |n| format!("v > 1{n}")),
            join(" AND ", |n| format!("v < 1{n}")),
            join(" OR ", |n| format!("time = '2023-01-01T00:00:00.{n:09}Z'")),
            format!("'x' = a {}", join(" ", |n| format!("|| '{n}'"))),
        ]
    };
    for condition in chains(190) {
        test_db.text(&format!("SELECT count(*), sum(v) FROM t WHERE {condition}")).await;
    }
    for condition in chains(50_000) {
        let sql = format!("SELECT count(*) FROM t WHERE {condition}");
        check(&test_db, &sql, ErrorKind::Limit).await;
    }
    let many = (0..50_000).map(|n| n.to_string()).collect::<Vec<_>>();
    check(&test_db, &format!("SELECT {}", many.join(" UNION SELECT ")), ErrorKind::Limit).await;
    // Long is not deep.
    let list = many.join(", ");
    assert_eq!(
        test_db.text(&format!("SELECT a FROM t WHERE v * 2 IN ({list}) ORDER BY a")).await,
        "x\ny"
    );
    let rows = (0..20_000).map(|n| format!("('2024-01-01', 'n', -{n} + 1)")).collect::<Vec<_>>();
    let sql = format!("INSERT INTO t VALUES {}", rows.join(", "));
    assert_eq!(test_db.text(&sql).await, "20000 19999");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_query_ends() {
    let test_db = TestDb::new();
    test_db
        .text(
            "CREATE TABLE t (time TIMESTAMP, a TEXT, v DOUBLE, PRIMARY KEY (a, time)); \
             INSERT INTO t SELECT to_timestamp(value), 'x', 1.5 \
             FROM generate_series(0, 49999)",
        )
        .await;
    let mut stream = test_db.session.query("SELECT * FROM t").await.expect("a query");
    let first = futures::StreamExt::next(&mut stream).await.expect("a batch").expect("a batch");
    assert!(first.num_rows() > 0);
    drop(stream);
    assert_eq!(test_db.text("SELECT count(*) FROM t").await, "50000");
}

/// A join makes far more of what its leaves give; it must not wait for them to be done.
#[tokio::test(flavor = "multi_thread")]
async fn a_join_that_takes_long_can_be_stopped() {
    let test_db = TestDb::new();
    let series = "(SELECT value AS n FROM generate_series(0, 100000))";
    for condition in ["a.n + b.n > 5", "a.n % 2 = b.n % 2"] {
        let sql = format!("SELECT count(*) FROM {series} a JOIN {series} b ON {condition}");
        let start = Instant::now();
        let outcome = tokio::time::timeout(Duration::from_millis(200), test_db.run(&sql)).await;
        assert!(outcome.is_err(), "{condition}: it ended before it was stopped");
        assert!(start.elapsed() < Duration::from_secs(5), "{condition}: {:?}", start.elapsed());
    }
}
