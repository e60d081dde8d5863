//! Joins take the smaller side into memory.

use tidefall_sql::Session;
use tidefall_storage::{CascadeRequest, DbOptions, Target};

use crate::top::reads;
use crate::{TestDb, lines};

/// A table with many rows, one with a few, and one that has many of which a question wants few.
async fn tables() -> TestDb {
    let test_db = TestDb::new();
    test_db
        .text(
            "CREATE TABLE big (time TIMESTAMP, host TEXT, v BIGINT, PRIMARY KEY (host, time));
             INSERT INTO big SELECT to_timestamp(1704067200 + n / 40), 'h' || (n % 40), n \
             FROM (SELECT value::BIGINT AS n FROM generate_series(0, 399999));
             CREATE TABLE small (time TIMESTAMP, host TEXT, room BIGINT, PRIMARY KEY (host, time));
             INSERT INTO small SELECT '2024-01-01', 'h' || value, value % 3 FROM generate_series(0, 59)",
        )
        .await;
    test_db
}

/// The table of the side that is taken into memory, which `EXPLAIN` shows first.
fn build_side(plan: &str) -> String {
    let join = plan.split("HashJoinExec").nth(1).unwrap_or_else(|| panic!("no hash join\n{plan}"));
    let table = join.split("table=").nth(1).unwrap_or_else(|| panic!("no table\n{plan}"));
    table.split(',').next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_smaller_side_is_taken_into_memory() {
    let test_db = tables().await;
    for place in ["kv", "long"] {
        for (sql, side) in [
            ("SELECT big.v, room FROM big JOIN small ON big.host = small.host", "small"),
            ("SELECT big.v, room FROM small JOIN big ON big.host = small.host", "small"),
            ("SELECT big.v, room FROM big LEFT JOIN small ON big.host = small.host", "small"),
            (
                "SELECT big.v, room FROM big JOIN small ON big.host = small.host AND big.time = small.time",
                "small",
            ),
            ("SELECT v FROM big WHERE host IN (SELECT host FROM small WHERE room = 1)", "small"),
            (
                "SELECT l.v FROM big l JOIN big r ON l.v = r.v WHERE r.time < '2024-01-01 00:00:10'",
                "big",
            ),
        ] {
            let plan = test_db.plan(sql).await;
            assert_eq!(build_side(&plan), side, "{place}: {sql}\n{plan}");
        }
        // A stretch of a table is smaller than all of it.
        for sql in [
            "SELECT l.v FROM big l JOIN big r ON l.v = r.v WHERE r.time < '2024-01-01 00:00:10'",
            "SELECT l.v FROM big r JOIN big l ON l.v = r.v WHERE r.time < '2024-01-01 00:00:10'",
        ] {
            let plan = test_db.plan(sql).await;
            let join = plan.split("HashJoinExec").nth(1).unwrap_or_default();
            let first = join.split("time=[").nth(1).unwrap_or_default();
            assert!(first.starts_with(".. 2024-01-01T00:00:09"), "{place}: {sql}\n{plan}");
        }
        let cascade = CascadeRequest { table: None, target: Target::Long };
        test_db.db.cascade(&cascade).expect("a cascade");
    }
}

/// What is made of metrics, and layers, are sides, too.
#[tokio::test(flavor = "multi_thread")]
async fn answers_and_layers_are_the_smaller_side() {
    let test_db = tables().await;
    for (sql, side) in [
        (
            "SELECT l.v FROM big l JOIN (SELECT host, max(time) AS last FROM big GROUP BY host) n \
             ON l.host = n.host AND l.time = n.last",
            "TidefallMetrics",
        ),
        (
            "SELECT l.v FROM (SELECT host, max(time) AS last FROM big GROUP BY host) n JOIN big l \
             ON l.host = n.host AND l.time = n.last",
            "TidefallMetrics",
        ),
        (
            "SELECT l.v FROM big l JOIN (SELECT time_bucket(INTERVAL '1 hour', time) AS t, max(v) AS v FROM big \
             GROUP BY t) m ON l.v = m.v",
            "TidefallMetrics",
        ),
        // Bins of a nanosecond are no more than rows.
        (
            "SELECT l.room FROM (SELECT time_bucket(INTERVAL '1 nanosecond', time) AS t, max(v) AS v FROM big \
             GROUP BY t) m JOIN small l ON l.time = m.t",
            "TidefallScan",
        ),
        ("SELECT l.v FROM big l JOIN columns.small c ON l.host = c.host", "TidefallLayer"),
        ("SELECT l.v FROM columns.small c JOIN big l ON l.host = c.host", "TidefallLayer"),
        ("SELECT l.room, c.v FROM columns.big c JOIN small l ON l.host = c.host", "TidefallScan"),
    ] {
        let plan = test_db.plan(sql).await;
        let join =
            plan.split("HashJoinExec").nth(1).unwrap_or_else(|| panic!("no hash join\n{plan}"));
        let first = join.split("Tidefall").nth(1).unwrap_or_default();
        let first = first.split(':').next().unwrap_or_default();
        assert_eq!(format!("Tidefall{first}"), side, "{sql}\n{plan}");
    }
    let options = DbOptions { memory_bytes: 16 << 20, threads: 2, ..DbOptions::default() };
    let session = Session::with_options(test_db.db.clone(), &options);
    let newest = "SELECT count(*), sum(l.v) FROM big l JOIN (SELECT host, max(time) AS last FROM big GROUP BY host) n \
                  ON l.host = n.host AND l.time = n.last";
    let batches = session.collect(newest).await.expect("the newest row of each host");
    assert_eq!(lines(&batches), ["40 15999180"]);
}

/// What has a row for each value of a tag is small, however many rows it is made of.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_grouped_by_a_tag_is_the_smaller_side() {
    let test_db = tables().await;
    for sql in [
        "SELECT l.v FROM big l JOIN (SELECT host, median(v) AS m FROM big GROUP BY host) n ON l.host = n.host AND l.v > n.m",
        "SELECT l.v FROM (SELECT host, median(v) AS m FROM big GROUP BY host) n JOIN big l ON l.host = n.host AND l.v > n.m",
        "SELECT l.room FROM small l JOIN (SELECT host, count(DISTINCT v) AS m FROM big GROUP BY host) n ON l.host = n.host",
        "SELECT l.room FROM (SELECT host, median(v) AS m FROM big WHERE v > 3 GROUP BY host) n JOIN small l ON l.host = n.host",
    ] {
        let plan = test_db.plan(sql).await;
        let join = plan.split("HashJoinExec").nth(1).unwrap_or_else(|| panic!("{sql}\n{plan}"));
        let first = join.split("table=").next().unwrap_or_default();
        assert!(first.contains("AggregateExec"), "{sql}\n{plan}");
    }
}

/// A join that knows its small side wants no other sensors.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_sensors_that_a_join_wants_are_read() {
    let test_db = tables().await;
    let cascade = CascadeRequest { table: None, target: Target::Long };
    test_db.db.cascade(&cascade).expect("a cascade");
    let every = 400_000 / 40;
    for (sql, sensors) in [
        ("SELECT count(*), sum(v) FROM big JOIN small ON big.host = small.host WHERE room = 1", 13),
        (
            "SELECT count(*), sum(v) FROM small JOIN big ON big.host = small.host WHERE small.host < 'h2'",
            12,
        ),
        (
            "SELECT count(*), sum(v) FROM big WHERE host IN (SELECT host FROM small WHERE room = 2)",
            13,
        ),
        (
            "SELECT count(*), sum(v) FROM big JOIN small ON big.host = small.host AND big.v >= small.room \
             WHERE small.host = 'h7'",
            1,
        ),
        // A join with nothing wants nothing.
        ("SELECT count(*), sum(v) FROM big JOIN small ON big.host = small.host WHERE room = 9", 0),
        // All rows of this side are wanted.
        (
            "SELECT count(*), sum(v) FROM big LEFT JOIN (SELECT * FROM small WHERE room = 1) small \
             ON big.host = small.host",
            40,
        ),
    ] {
        // The small table has 60 rows, of which some are read.
        let read = reads(&test_db, sql).await.rows;
        assert_eq!(read / every, sensors, "{sql}: {read}");
    }
    let counted = test_db
        .text("SELECT count(*), sum(v) FROM big JOIN small ON big.host = small.host WHERE room = 1")
        .await;
    assert_eq!(counted, "130000 25999870000");
}

/// With the larger side in memory these would need more than there is.
#[tokio::test(flavor = "multi_thread")]
async fn joins_take_the_memory_of_the_smaller_side() {
    let test_db = tables().await;
    let options = DbOptions { memory_bytes: 16 << 20, threads: 2, ..DbOptions::default() };
    let session = Session::with_options(test_db.db.clone(), &options);
    for (sql, expected) in [
        (
            "SELECT room, count(*), sum(v) FROM big JOIN small ON big.host = small.host GROUP BY room ORDER BY room",
            "0 140000 27999930000\n1 130000 25999870000\n2 130000 26000000000",
        ),
        (
            "SELECT count(*), count(room) FROM big LEFT JOIN small ON big.host = small.host AND room > 0",
            "400000 260000",
        ),
        (
            "SELECT count(*) FROM big WHERE NOT EXISTS (SELECT * FROM small WHERE small.host = big.host AND room = 2)",
            "270000",
        ),
    ] {
        let batches = session.collect(sql).await.unwrap_or_else(|error| panic!("{sql}\n{error}"));
        assert_eq!(lines(&batches).join("\n"), expected, "{sql}");
    }
}

/// What is about right must never be taken for right.
#[tokio::test(flavor = "multi_thread")]
async fn no_answer_comes_from_an_estimate() {
    let test_db = tables().await;
    test_db.text("SET tidefall.metrics = off").await;
    test_db.text("DELETE FROM big WHERE host = 'h3'").await;
    test_db.text("INSERT INTO big VALUES ('2024-01-01', 'h1', 7), ('2024-01-01', 'h1', 8)").await;
    for (sql, expected) in [
        (
            "SELECT count(*), min(v), max(v), min(time), max(time) FROM big",
            "390000 0 399999 2024-01-01T00:00:00 2024-01-01T02:46:39",
        ),
        ("SELECT count(*) FROM big WHERE time > '2030-01-01'", "0"),
        ("SELECT count(*), count(DISTINCT host) FROM big WHERE host < 'h2'", "120000 12"),
        ("SELECT count(*) FROM (SELECT * FROM big LIMIT 1000000)", "390000"),
        (
            "SELECT count(*) FROM big JOIN small ON big.host = small.host WHERE big.time > '2030-01-01'",
            "0",
        ),
    ] {
        assert_eq!(test_db.text(sql).await, expected, "{sql}");
    }
}
