//! Sensors lie whole in one partition, in order, and plans make use of it: medians, windows and distinct counts by
//! tags run sensor by sensor. They are asked wherever the rows have moved to, and held against stock DataFusion
//! over the same rows in memory, which knows nothing of any order.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use tidefall_sql::Session;
use tidefall_storage::{DbOptions, Target};
use tidefall_types::ErrorKind;

use crate::compare::{Model, TABLE, cascade, normal};
use crate::plans::check;
use crate::{TestDb, lines};

/// Sensors of three regions, of which two are as large as the third; hosts of one region never have the name of
/// one of another.
async fn plant() -> TestDb {
    let test_db = TestDb::new();
    test_db
        .text(
            "CREATE TABLE m (time TIMESTAMP, region TEXT, host TEXT, half TEXT, v DOUBLE, k BIGINT, \
               PRIMARY KEY (half, region, host, time));
             INSERT INTO m SELECT to_timestamp(1704067200 + n), 'r' || (n % 12 / 4), 'h' || (n % 12), \
               CASE WHEN n % 12 < 6 THEN 'low' ELSE 'upper' END, n % 7, n % 5 \
             FROM (SELECT value::BIGINT AS n FROM generate_series(0, 1199))",
        )
        .await;
    test_db
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_of_tags_run_one_by_one() {
    let test_db = plant().await;
    for sql in [
        "SELECT half, region, host, median(v) FROM m GROUP BY half, region, host",
        // Tags that nobody wants stand before it.
        "SELECT host, median(v) FROM m GROUP BY host",
        "SELECT half, median(v) FROM m GROUP BY half",
        "SELECT host AS h, median(w) FROM (SELECT host, v + 1 AS w FROM m WHERE k > 2) GROUP BY h",
        "SELECT host, date_bin(INTERVAL '1 hour', time) AS hour, median(v) FROM m GROUP BY host, hour",
        "SELECT host, half, array_agg(v) FROM m GROUP BY host, half",
    ] {
        check(&test_db, sql, &["mode=SinglePartitioned", "ordering_mode=Sorted"], &["Repartition"])
            .await;
    }
    for sql in [
        "SELECT host, count(DISTINCT k) FROM m GROUP BY host",
        "SELECT host, k, median(v) FROM m GROUP BY host, k",
        "SELECT host, count(DISTINCT k), count(DISTINCT v), sum(v) FROM m WHERE v > 0 GROUP BY host",
        "SELECT host, lag(v) OVER (PARTITION BY host ORDER BY time) FROM m",
        "SELECT time, row_number() OVER (PARTITION BY region, host, half ORDER BY time) FROM m",
        "SELECT sum(v) OVER (PARTITION BY half, host ORDER BY time) FROM m",
        "SELECT host, v FROM m QUALIFY row_number() OVER (PARTITION BY host ORDER BY time) <= 2",
    ] {
        check(&test_db, sql, &["partitions=2"], &["RepartitionExec", "SortExec"]).await;
    }
}

/// A sort of all rows has no room, and would not be asked for the largest sensor's rows; windows over whole partitions
/// hold them outside of what queries may take, if nobody looks.
#[tokio::test(flavor = "multi_thread")]
async fn sorts_and_windows_need_memory_for_some_sensors() {
    let test_db = TestDb::new();
    test_db
        .text(
            "CREATE TABLE m (time TIMESTAMP, host TEXT, v DOUBLE, PRIMARY KEY (host, time));
             INSERT INTO m SELECT to_timestamp(value / 40), 'h' || (value % 40), (value * 7919) % 1000 \
             FROM generate_series(0, 799999)",
        )
        .await;
    cascade(&test_db, Target::Long);
    let options = DbOptions { memory_bytes: 32 << 20, threads: 2, ..DbOptions::default() };
    let session = Session::with_options(test_db.db.clone(), &options);
    for (sql, answer) in [
        (
            "SELECT max(r) FROM (SELECT rank() OVER (PARTITION BY host ORDER BY v) AS r FROM m)",
            "19201",
        ),
        ("SELECT max(r) FROM (SELECT v - avg(v) OVER (PARTITION BY host) AS r FROM m)", "480.0"),
        ("SELECT count(*) FROM (SELECT host, v FROM m ORDER BY host, v OFFSET 1)", "799999"),
    ] {
        check(&test_db, sql, &["Groupwise: by=[host@"], &[]).await;
        let found = session.collect(sql).await.unwrap_or_else(|error| panic!("{sql}\n{error}"));
        assert_eq!(lines(&found), [answer], "{sql}");
    }
    let all = "SELECT max(r) FROM (SELECT v - avg(v) OVER () AS r FROM m)";
    let error = session.collect(all).await.expect_err(all);
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    assert!(error.message().contains("--memory"), "{error}");
}

/// What is not so must not be said.
#[tokio::test(flavor = "multi_thread")]
async fn groups_across_partitions_are_put_together() {
    let test_db = plant().await;
    for sql in [
        // Three regions are no two parts of about the same size.
        "SELECT region, median(v) FROM m GROUP BY region",
        "SELECT k, median(v) FROM m GROUP BY k",
        "SELECT upper(host), median(v) FROM m GROUP BY 1",
        "SELECT region, lag(v) OVER (PARTITION BY region ORDER BY time) FROM m",
    ] {
        check(&test_db, sql, &["RepartitionExec", "partitions=2"], &[]).await;
    }
    // Rows of several sensors follow each other: time begins anew in the middle of a group.
    let sql = "SELECT half, lag(v) OVER (PARTITION BY half ORDER BY time) FROM m";
    check(&test_db, sql, &["SortExec"], &[]).await;
}

/// Times are never the same twice, and sums of eighths are exact: every answer is one alone.
const QUESTIONS: [&str; 26] = [
    "SELECT a, b, median(x), count(DISTINCT s), count(x) FROM t GROUP BY a, b",
    "SELECT a, median(x) FROM t GROUP BY a",
    "SELECT b, median(x), count(DISTINCT s), count(DISTINCT i) FROM t WHERE x > -30 GROUP BY b",
    "SELECT b, count(DISTINCT a) FROM t GROUP BY b",
    "SELECT s, count(DISTINCT a), count(DISTINCT b), count(*) FROM t GROUP BY s",
    "SELECT i, count(DISTINCT time), count(DISTINCT x) FILTER (WHERE i > 0), sum(x) FROM t GROUP BY i",
    "SELECT a, count(DISTINCT time) FROM t WHERE x > -30 GROUP BY a",
    "SELECT s, count(DISTINCT x), max(i) FROM t GROUP BY s",
    "SELECT date_trunc('hour', time) AS h, count(DISTINCT i) FROM t GROUP BY h HAVING count(DISTINCT i) > 1",
    "SELECT b, s, median(x), sum(i) FROM t GROUP BY b, s",
    "SELECT a, count(DISTINCT s) FILTER (WHERE i > 0), count(DISTINCT b), max(x) FROM t GROUP BY a",
    "SELECT count(DISTINCT a), count(DISTINCT b), count(DISTINCT s) FROM t",
    "SELECT a, b, date_trunc('day', time) AS d, median(x) FROM t GROUP BY a, b, d",
    "SELECT b, first_value(x ORDER BY time), last_value(s ORDER BY time), nth_value(i, 2 ORDER BY time) \
     FROM t GROUP BY b",
    "SELECT time, x, lag(x) OVER (PARTITION BY a, b ORDER BY time) FROM t",
    "SELECT time, a, row_number() OVER (PARTITION BY a ORDER BY time DESC) FROM t WHERE b IS NOT NULL",
    "SELECT time, b, sum(i) OVER (PARTITION BY b ORDER BY time) FROM t",
    "SELECT time, avg(x) OVER (PARTITION BY b, a ORDER BY time ROWS 3 PRECEDING) FROM t",
    "SELECT time, last_value(i) OVER (PARTITION BY a, b ORDER BY time ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) \
     FROM t WHERE a IS NULL OR b <> 'b2'",
    "SELECT time, x, rank() OVER (PARTITION BY a, b ORDER BY x, time) FROM t",
    "SELECT time, avg(i) OVER (PARTITION BY a, b), max(s) OVER (PARTITION BY b) FROM t",
    "SELECT time, count(*) OVER (PARTITION BY a), count(*) OVER (PARTITION BY i), count(*) OVER () FROM t",
    "SELECT a, b, x, time FROM t ORDER BY b, a, x DESC, time",
    "SELECT count(*), sum(l.i), sum(r.i) FROM t l JOIN t r ON l.a = r.a AND l.b = r.b WHERE l.x > 20 AND r.x < -20",
    "SELECT a, count(*) FROM (SELECT a, b, median(x) AS m FROM t GROUP BY a, b) GROUP BY a",
    "SELECT b, median(x) FROM (SELECT * FROM t WHERE i > 0 UNION ALL SELECT * FROM t WHERE i <= 0) GROUP BY b",
];

async fn compare_all(test_db: &TestDb, model: &Model, place: &str) {
    let stock = model.stock();
    let options = |threads| DbOptions { threads, ..DbOptions::default() };
    let sessions =
        [1, 2, 3, 8].map(|threads| Session::with_options(test_db.db.clone(), &options(threads)));
    for sql in QUESTIONS {
        let expected = stock.sql(sql).await.expect(sql).collect().await.expect(sql);
        for (at, session) in sessions.iter().enumerate() {
            let found = match session.collect(sql).await {
                Ok(found) => found,
                Err(error) => panic!("{place}, {at}: {sql}\n{error}"),
            };
            assert_eq!(normal(&found), normal(&expected), "{place}, {at}: {sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_equal_datafusion_in_every_placement() {
    for seed in 20..22 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let test_db = TestDb::new();
        test_db.text(TABLE).await;
        let mut model = Model::default();
        model.write(&test_db, &mut rng, 600).await;
        compare_all(&test_db, &model, "kv").await;
        cascade(&test_db, Target::Short);
        model.write(&test_db, &mut rng, 200).await;
        model.delete(&test_db, &mut rng).await;
        compare_all(&test_db, &model, "short with late rows and deletes").await;
        cascade(&test_db, Target::Long);
        model.delete(&test_db, &mut rng).await;
        model.write(&test_db, &mut rng, 200).await;
        cascade(&test_db, Target::Short);
        model.write(&test_db, &mut rng, 50).await;
        compare_all(&test_db, &model, "all models").await;
    }
}

/// A session whose queries have a quarter of `mebibytes`.
fn with_little(test_db: &TestDb, mebibytes: usize) -> Session {
    let options = DbOptions { memory_bytes: mebibytes << 20, threads: 2, ..DbOptions::default() };
    Session::with_options(test_db.db.clone(), &options)
}

#[tokio::test(flavor = "multi_thread")]
async fn medians_take_the_memory_of_one_sensor() {
    let test_db = TestDb::new();
    test_db
        .text(
            "CREATE TABLE m (time TIMESTAMP, host TEXT, v DOUBLE, PRIMARY KEY (host, time));
             INSERT INTO m SELECT to_timestamp(1704067200 + n), 'h' || (n % 100), n / 100 \
             FROM (SELECT value::BIGINT AS n FROM generate_series(0, 599999))",
        )
        .await;
    let session = with_little(&test_db, 16);
    // All values at once are more than there is.
    let all = session.collect("SELECT median(v) FROM m").await;
    let error = all.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("--memory") && error.contains("memory_mib"), "{error}");
    for (sql, expected) in [
        (
            "SELECT count(*), min(mid), max(mid) FROM (SELECT median(v) AS mid FROM m GROUP BY host)",
            "100 2999.5 2999.5",
        ),
        (
            "SELECT count(*), sum(step) FROM \
             (SELECT v - lag(v) OVER (PARTITION BY host ORDER BY time) AS step FROM m)",
            "600000 599900.0",
        ),
    ] {
        let batches = session.collect(sql).await.unwrap_or_else(|error| panic!("{sql}\n{error}"));
        assert_eq!(lines(&batches), [expected], "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn distinct_texts_of_many_groups_take_little_memory() {
    let test_db = TestDb::new();
    test_db
        .text(
            "CREATE TABLE m (time TIMESTAMP, host TEXT, s TEXT, PRIMARY KEY (host, time));
             INSERT INTO m SELECT to_timestamp(1704067200 + n), 'h' || (n % 10), 's' || (n % 9) \
             FROM (SELECT value::BIGINT AS n FROM generate_series(0, 49999))",
        )
        .await;
    let session = with_little(&test_db, 64);
    for (sql, expected) in [
        (
            "SELECT count(*), sum(hosts), sum(n) FROM (SELECT date_bin(INTERVAL '5 seconds', time), \
             count(DISTINCT host) AS hosts, count(*) AS n FROM m GROUP BY 1)",
            "10000 50000 50000",
        ),
        (
            "SELECT count(*), sum(texts), sum(hosts) FROM (SELECT date_bin(INTERVAL '10 seconds', time), \
             count(DISTINCT s) AS texts, count(DISTINCT host) AS hosts FROM m GROUP BY 1)",
            "5000 45000 50000",
        ),
    ] {
        let batches = session.collect(sql).await.unwrap_or_else(|error| panic!("{sql}\n{error}"));
        assert_eq!(lines(&batches), [expected], "{sql}");
    }
}

/// Distinct values are counted by their groups alone where there is room for all rows; otherwise with their groups, as
/// these rows may go to the disk. What metrics know is left to them.
#[tokio::test(flavor = "multi_thread")]
async fn distinct_values_are_counted_in_one_grouping_where_memory_suffices() {
    let test_db = TestDb::new();
    test_db
        .text(
            "CREATE TABLE m (time TIMESTAMP, host TEXT, v BIGINT, k BIGINT, PRIMARY KEY (host, time));
             INSERT INTO m SELECT to_timestamp(1704067200 + n / 50), 'h' || (n % 50), n % 1000, n % 7 \
             FROM (SELECT value::BIGINT AS n FROM generate_series(0, 99999))",
        )
        .await;
    cascade(&test_db, Target::Long);
    let (ample, little) = (with_little(&test_db, 256), with_little(&test_db, 64));
    for (sql, expected) in [
        ("SELECT k, count(DISTINCT time) AS n FROM m GROUP BY k", "7 14000"),
        ("SELECT k, count(DISTINCT v) AS n, sum(v) FROM m WHERE v < 500 GROUP BY k", "7 3500"),
        ("SELECT time, count(DISTINCT k) AS n FROM m GROUP BY time", "2000 14000"),
        (
            "SELECT h, t, count(DISTINCT w) AS n FROM (SELECT host AS h, v > 99 AS t, v + 1 AS w FROM m) \
             GROUP BY h, t",
            "100 1000",
        ),
    ] {
        let sum = format!("SELECT count(*), sum(n) FROM ({sql})");
        for (session, groupings) in [(&ample, 1), (&little, 2)] {
            let found =
                session.collect(&sum).await.unwrap_or_else(|error| panic!("{sql}\n{error}"));
            assert_eq!(lines(&found), [expected], "{sql}");
            let plan = session.collect(&format!("EXPLAIN {sql}")).await.expect(sql);
            let plan = lines(&plan).join("\n");
            assert_eq!(plan.contains("alias1"), groupings == 2, "{sql}\n{plan}");
        }
    }
    // By tags alone the rows come in order, and the values are those of one group at a time.
    for (sql, part) in [
        ("SELECT host, count(DISTINCT v) FROM m GROUP BY host", "alias1"),
        (
            "SELECT host, count(DISTINCT time_bucket(INTERVAL '1 hour', time)) FROM m GROUP BY host",
            "TidefallMetrics",
        ),
    ] {
        let plan = lines(&ample.collect(&format!("EXPLAIN {sql}")).await.expect(sql)).join("\n");
        assert!(plan.contains(part), "{sql}\n{plan}");
    }
}

/// Groups of tags that metrics answer lie whole in one partition, and what is above them makes use of it.
#[tokio::test(flavor = "multi_thread")]
async fn groups_from_metrics_say_in_which_partition_they_are() {
    let test_db = plant().await;
    test_db
        .text(
            "INSERT INTO m SELECT to_timestamp(1704067200 + n), 'r' || (n % 90 / 30), 'k' || (n % 90), 'low', 1.0, 1 \
             FROM (SELECT value::BIGINT AS n FROM generate_series(2000, 3799))",
        )
        .await;
    let bins = "SELECT host, date_bin(INTERVAL '1 hour', time) AS hour, avg(v) AS v FROM m GROUP BY host, hour";
    for sql in [
        format!("SELECT host, max(v) FROM ({bins}) GROUP BY host"),
        format!(
            "SELECT host, hour, v - lag(v) OVER (PARTITION BY host ORDER BY hour) FROM ({bins})"
        ),
    ] {
        check(&test_db, &sql, &["TidefallMetrics: table=m", "partitions=2"], &["RepartitionExec"])
            .await;
    }
    let cut = "SELECT region, sum(v) FROM (SELECT region, host, sum(v) AS v FROM m GROUP BY region, host) GROUP BY region";
    let plain = test_db.session.fork();
    plain.collect("SET tidefall.metrics = off").await.expect("a setting");
    let expected = normal(&plain.collect(cut).await.expect("an answer")).join("\n");
    let found = normal(&test_db.run(cut).await.expect("an answer")).join("\n");
    assert_eq!(found, expected);
}

/// DataFusion compares neither lists nor what has NULLs within it, and is told nothing of such groups.
#[tokio::test(flavor = "multi_thread")]
async fn groups_that_cannot_be_compared_are_in_any_partition() {
    let test_db = TestDb::new();
    test_db
        .text(
            "CREATE TABLE m (time TIMESTAMP, region TEXT, host TEXT, v DOUBLE, PRIMARY KEY (region, host, time));
             INSERT INTO m SELECT to_timestamp(1704067200 + n), CASE WHEN n % 3 > 0 THEN 'r' || (n % 3) END, \
               'h' || (n % 200), n % 7 FROM (SELECT value::BIGINT AS n FROM generate_series(0, 1199))",
        )
        .await;
    let plain = test_db.session.fork();
    plain.collect("SET tidefall.metrics = off").await.expect("a setting");
    for key in [
        "[host]",
        "[[host]]",
        "[[region]]",
        "named_struct('r', region, 'h', host)",
        "[named_struct('h', host)]",
        "CASE WHEN host < 'h15' THEN named_struct('r', region, 'h', host) END",
        "[region, host]",
    ] {
        for above in ["", "SELECT k, count(*), max(s) FROM ("] {
            let mut sql =
                format!("{above}SELECT {key} AS k, host AS h, sum(v) AS s FROM m GROUP BY 1, 2");
            if !above.is_empty() {
                sql += ") GROUP BY k";
            }
            let expected = normal(&plain.collect(&sql).await.expect("an answer"));
            for threads in [3, 4, 8] {
                let options = DbOptions { threads, ..DbOptions::default() };
                let session = Session::with_options(test_db.db.clone(), &options);
                let found = session.collect(&sql).await;
                let found = found.unwrap_or_else(|error| panic!("{threads}: {sql}\n{error}"));
                assert_eq!(normal(&found), expected, "{threads}: {sql}");
            }
        }
    }
}
