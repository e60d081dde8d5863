//! What `EXPLAIN` shows: where conditions go, that no sort is planned, and what metrics answer.

use std::time::Instant;

use futures::StreamExt;
use tidefall_storage::{CascadeRequest, Target};

use crate::TestDb;

async fn plant() -> TestDb {
    let test_db = TestDb::new();
    test_db
        .text(
            "CREATE TABLE plant (time TIMESTAMP, site TEXT, sensor TEXT, value DOUBLE, \
             state INTEGER, PRIMARY KEY (site, sensor, time));
             INSERT INTO plant SELECT to_timestamp(1704067200 + n * 60), \
               's' || (n % 3), 'x' || (n % 7), n / 10.0, n % 5 \
             FROM (SELECT value::BIGINT AS n FROM generate_series(0, 999))",
        )
        .await;
    test_db
}

/// Checks that the plan of `sql` has each of `parts` and none of `without`.
pub(crate) async fn check(test_db: &TestDb, sql: &str, parts: &[&str], without: &[&str]) {
    let plan = test_db.plan(sql).await;
    for part in parts {
        assert!(plan.contains(part), "{sql}\n{plan}\nlacks {part}");
    }
    let physical = plan.split("physical_plan").nth(1).unwrap_or(&plan);
    for part in without {
        assert!(!physical.contains(part), "{sql}\n{plan}\nhas {part}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_reach_the_scan() {
    let test_db = plant().await;
    check(
        &test_db,
        "SELECT time, value FROM plant WHERE site = 's1' AND sensor IN ('x1', 'x2') \
         AND time >= '2024-01-01 01:00' AND time < TIMESTAMP '2024-01-01 02:00:00' AND value > 5",
        &[
            "TidefallScan: table=plant, sensors=2 of 21",
            "time=[2024-01-01T01:00:00Z .. 2024-01-01T01:59:59.999999999Z]",
            "fields=[value]",
            "conditions=[value > 5]",
            "FilterExec: value@1 > 5",
        ],
        &["site@"],
    )
    .await;
    // What the index cannot answer is evaluated per sensor; no filter is left.
    check(
        &test_db,
        "SELECT value FROM plant WHERE upper(site) = 'S1' AND sensor > 'x4'",
        &["sensors=2 of 21"],
        &["FilterExec"],
    )
    .await;
    // Rows of a sorted subquery that are numbered for their order are fewer, too.
    for made in ["lag(value) OVER (PARTITION BY site, sensor ORDER BY time)", "unnest([value])"] {
        let sql = format!(
            "SELECT sensor, array_agg(made) FROM (SELECT *, {made} AS made FROM (SELECT * FROM plant ORDER BY time)) \
             WHERE site = 's1' AND sensor IN ('x1', 'x2') GROUP BY sensor"
        );
        check(&test_db, &sql, &["sensors=2 of 21", "__number_"], &["FilterExec"]).await;
    }
    check(
        &test_db,
        "SELECT value FROM plant WHERE time BETWEEN '2024-01-01' AND '2024-01-02' LIMIT 3",
        &["limit=3", "partitions=1", "time=[2024-01-01T00:00:00Z .. 2024-01-02T00:00:00Z]"],
        &["FilterExec", "LimitExec"],
    )
    .await;
    check(
        &test_db,
        "SELECT value FROM plant WHERE time > now() - INTERVAL '1 day'",
        &["time=[2024-03-09T12:00:00.000000001Z ..]"],
        &["FilterExec"],
    )
    .await;
    check(
        &test_db,
        "SELECT value FROM plant WHERE date_trunc('day', time) = '2024-01-01'",
        &["time=[2024-01-01T00:00:00Z .. 2024-01-01T23:59:59.999999999Z]"],
        &["FilterExec"],
    )
    .await;
    check(
        &test_db,
        "SELECT value FROM plant WHERE time >= to_timestamp_millis(1704067200500)",
        &["time=[2024-01-01T00:00:00.500Z ..]"],
        &["FilterExec"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_needs_no_sort() {
    let test_db = plant().await;
    for sql in [
        "SELECT time, value FROM plant WHERE site = 's1' AND sensor = 'x1' ORDER BY time",
        "SELECT * FROM plant WHERE site = 's1' AND sensor = 'x1' ORDER BY site, time",
        "SELECT * FROM plant ORDER BY site, sensor, time",
        "SELECT sensor, time FROM plant WHERE site = 's1' ORDER BY sensor, time",
        "SELECT date_bin(INTERVAL '1 hour', time) AS hour, avg(value) FROM plant \
         GROUP BY hour ORDER BY hour",
        "SELECT site, date_bin(INTERVAL '1 hour', time) AS hour, avg(value) FROM plant \
         GROUP BY site, hour ORDER BY site, hour",
    ] {
        check(&test_db, sql, &["Tidefall"], &["SortExec"]).await;
    }
    // Rows of several sensors are not ordered by time alone.
    check(&test_db, "SELECT time FROM plant WHERE site = 's1' ORDER BY time", &["SortExec"], &[])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_answer_aggregates() {
    let test_db = plant().await;
    for sql in [
        "SELECT count(*) FROM plant",
        "SELECT count(1), count(value), count(time), min(time), max(time) FROM plant",
        "SELECT site, sum(value) / count(*) FROM plant GROUP BY site HAVING count(*) > 3",
        "SELECT p.site, avg(p.value) FROM plant AS p WHERE p.sensor LIKE 'x%' GROUP BY p.site",
        "SELECT date_trunc('day', time), stddev(value), var_pop(value) FROM plant GROUP BY 1",
        "SELECT date_bin(INTERVAL '1 hour', time, TIMESTAMP '2024-01-01 00:30:00') AS hour, \
         first_value(value ORDER BY time), last_value(state ORDER BY time) FROM plant GROUP BY hour",
        "SELECT upper(site), min(state), max(value) FROM plant GROUP BY upper(site)",
        "SELECT DISTINCT site FROM plant",
        "SELECT hour, max(mean) FROM (SELECT date_bin(INTERVAL '1 hour', time) AS hour, sensor, \
         avg(value) AS mean FROM plant GROUP BY hour, sensor) GROUP BY hour",
        "WITH recent AS (SELECT * FROM plant WHERE time > '2024-01-01 03:00') \
         SELECT sensor, count(*) FROM recent GROUP BY sensor",
    ] {
        check(&test_db, sql, &["TidefallMetrics: table=plant"], &["TidefallScan"]).await;
    }
    for sql in [
        "SELECT count(DISTINCT sensor) FROM plant",
        "SELECT upper(site), count(DISTINCT sensor) FROM plant WHERE sensor > 'x' GROUP BY 1",
    ] {
        check(&test_db, sql, &["TidefallDistinct: table=plant"], &["AggregateExec"]).await;
    }
    for sql in [
        "SELECT site, count(DISTINCT upper(sensor)) FROM plant GROUP BY site",
        "SELECT count(DISTINCT sensor), count(DISTINCT site) FROM plant",
        "SELECT date_trunc('day', time), count(DISTINCT sensor) FROM plant GROUP BY 1",
    ] {
        check(&test_db, sql, &["AggregateExec"], &["TidefallDistinct"]).await;
    }
    for sql in [
        "SELECT count(*) FROM plant WHERE value > 3",
        "SELECT median(value) FROM plant",
        "SELECT sum(value + 1) FROM plant",
        "SELECT count(DISTINCT value) FROM plant",
        "SELECT date_trunc('month', time), count(*) FROM plant GROUP BY 1",
        "SELECT first_value(value ORDER BY value) FROM plant",
        "SELECT count(*) FILTER (WHERE value > 3) FROM plant",
        "SELECT avg(value) FROM (SELECT value FROM plant LIMIT 3)",
        "SELECT sum(CAST(value AS BIGINT)) FROM plant",
    ] {
        check(&test_db, sql, &["TidefallScan"], &["TidefallMetrics"]).await;
    }
    test_db.text("SET tidefall.metrics = off").await;
    check(&test_db, "SELECT count(*) FROM plant", &["TidefallScan"], &["TidefallMetrics"]).await;
    let fork = test_db.session.fork();
    fork.collect("SET tidefall.metrics = on").await.expect("a setting");
    check(&test_db, "SELECT count(*) FROM plant", &["TidefallScan"], &["TidefallMetrics"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_analyze_shows_what_was_read() {
    let test_db = plant().await;
    let plan = test_db.text("EXPLAIN ANALYZE SELECT * FROM plant WHERE site = 's1'").await;
    for part in ["TidefallScan", "pages=", "objects=", "bytes=", "rows=333", "rows_from_memory="] {
        assert!(plan.contains(part), "{plan}\nlacks {part}");
    }
    let stream = test_db.session.query("SELECT * FROM plant WHERE site = 's1'").await;
    let mut stream = stream.expect("a query");
    while let Some(batch) = StreamExt::next(&mut stream).await {
        batch.expect("a batch");
    }
    assert_eq!(stream.reads().rows, 333);
}

/// The figure behind `name=` in a plan.
fn figure(plan: &str, name: &str) -> u64 {
    let behind = plan.split(&format!(" {name}=")).nth(1).unwrap_or_else(|| panic!("{plan}"));
    let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_hourly_average_over_a_year_reads_no_page() {
    let test_db = TestDb::new();
    test_db
        .text(
            "CREATE TABLE plant (time TIMESTAMP, sensor TEXT, value DOUBLE, \
             PRIMARY KEY (sensor, time));
             INSERT INTO plant SELECT to_timestamp(1672531200 + 60 * value), 'x', value % 1000 \
             FROM generate_series(0, 525599)",
        )
        .await;
    let cascade = CascadeRequest { table: None, target: Target::Long };
    test_db.db.cascade(&cascade).expect("a cascade");
    let hourly = "SELECT date_bin(INTERVAL '1 hour', time) AS hour, avg(value) AS mean \
                  FROM plant WHERE time >= '2023-01-01' AND time < '2024-01-01' GROUP BY hour";
    let plan = test_db.plan(hourly).await;
    assert_eq!(figure(&plan, "pages"), 0, "{plan}");
    assert_eq!(figure(&plan, "blocks_from_metrics"), 365 * 24, "{plan}");
    let mut stream = test_db.session.query(hourly).await.expect("a query");
    while let Some(batch) = StreamExt::next(&mut stream).await {
        batch.expect("a batch");
    }
    let reads = stream.reads();
    assert_eq!((reads.pages, reads.rows), (0, 0), "{reads:?}");
    // A late reading inside the year: its hour is counted anew, the others are not touched.
    let hour = format!("SELECT mean FROM ({hourly}) WHERE hour = '2023-06-01 05:00'");
    let before: f64 = test_db.text(&hour).await.parse().expect("a number");
    test_db.text("INSERT INTO plant VALUES ('2023-06-01 05:05:30', 'x', 7000)").await;
    let after: f64 = test_db.text(&hour).await.parse().expect("a number");
    assert!((after - (before * 60.0 + 7000.0) / 61.0).abs() < 1e-9, "{before} became {after}");
    let plan = test_db.plan(hourly).await;
    assert_eq!(figure(&plan, "blocks_from_metrics"), 365 * 24 - 1, "{plan}");
    assert!(figure(&plan, "pages") <= 2, "{plan}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_of_ten_thousand_sensors_plans_fast() {
    let test_db = TestDb::new();
    test_db
        .text(
            "CREATE TABLE plant (time TIMESTAMP, sensor TEXT, value DOUBLE, \
             PRIMARY KEY (sensor, time));
             INSERT INTO plant SELECT to_timestamp(1704067200 + value % 7), 'x' || value, value \
             FROM generate_series(0, 9999)",
        )
        .await;
    for sql in [
        "SELECT time, x77, x9998 FROM rows.plant WHERE time >= '2024-01-01' \
         AND (x77 IS NOT NULL OR x9998 IS NOT NULL) ORDER BY time",
        "SELECT * FROM rows('plant', sensors => ['x77', 'x9998']) ORDER BY time",
    ] {
        let mut millis = Vec::new();
        for _ in 0..5 {
            let start = Instant::now();
            let answer = test_db.text(sql).await;
            millis.push(start.elapsed().as_millis());
            assert_eq!(answer, "2024-01-01T00:00:00 77.0 NULL\n2024-01-01T00:00:02 NULL 9998.0");
        }
        // Tens of milliseconds with assertions on a busy machine; seconds if each column were touched often.
        let best = *millis.iter().min().expect("runs");
        assert!(best < 500, "{sql}: {millis:?} ms");
        let plan = test_db.plan(sql).await;
        assert!(plan.contains("sensors=2 of 10000"), "{plan}");
    }
    // Where nothing is said about values there is a row for each time of all sensors.
    let all = "SELECT count(*), count(x77), max(x9998) FROM rows.plant";
    assert_eq!(test_db.text(all).await, "7 1 9998.0");
}

/// Columns without a name are called what is written, and casts are so in one form.
#[tokio::test(flavor = "multi_thread")]
async fn casts_are_called_what_they_are() {
    let test_db = TestDb::new();
    test_db.text("CREATE TABLE f (time TIMESTAMP, v DOUBLE, s TEXT, PRIMARY KEY (s, time))").await;
    test_db.text("INSERT INTO f VALUES ('2024-01-01', 1.5, 'x')").await;
    let sql = "SELECT v, (f.v), v::INT, CAST(f.v AS INT), TRY_CAST(s AS INT), f.time::DATE, v::REAL::INT + 1, [v::INT], \
               f.time AT TIME ZONE 'UTC', sum(v::INT) OVER (), v::INT FROM f";
    let batches = test_db.run(sql).await.expect(sql);
    let schema = batches[0].schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(
        names,
        [
            "v",
            "(f.v):1",
            "CAST(v AS INT)",
            "CAST(f.v AS INT)",
            "TRY_CAST(s AS INT)",
            "CAST(f.time AS DATE)",
            "CAST(CAST(v AS REAL) AS INT) + 1",
            "[CAST(v AS INT)]",
            "f.time AT TIME ZONE 'UTC'",
            "sum(CAST(v AS INT)) OVER ()",
            "CAST(v AS INT):1",
        ]
    );
}

/// Projections stood between the conditions and the join wherever not all columns of the right side are shown.
#[tokio::test(flavor = "multi_thread")]
async fn conditions_reach_both_sides_of_an_asof_join() {
    let test_db = plant().await;
    for shown in ["a.time, a.value, b.value", "*", "count(*)"] {
        let sql = format!(
            "SELECT {shown} FROM plant a ASOF JOIN plant b MATCH_CONDITION (a.time >= b.time) \
             ON a.site = b.site AND a.sensor = b.sensor \
             WHERE a.site = 's1' AND a.sensor IN ('x1', 'x2') AND a.time < '2024-01-01 02:00'"
        );
        let plan = test_db.plan(&sql).await;
        for part in ["sensors=2 of 21", "01:59:59.999999999Z]"] {
            assert_eq!(plan.matches(part).count(), 2, "{part}: {plan}");
        }
        assert!(!plan.contains("FilterExec"), "{plan}");
    }
}

/// Tuples were compared whole, for which all values of the tags in them were written out with every batch.
#[tokio::test(flavor = "multi_thread")]
async fn tuples_are_grouped_by_their_parts() {
    let test_db = plant().await;
    for sql in [
        "SELECT count(DISTINCT (time, site, sensor)) FROM plant",
        "SELECT (time, site, sensor) AS t, count(*) FROM plant GROUP BY t",
    ] {
        check(&test_db, sql, &["gby=[time@"], &["gby=[struct("]).await;
    }
}

/// Of each table in a union comes what metrics have of it; rows are read only where they have no answer.
#[tokio::test(flavor = "multi_thread")]
async fn aggregates_over_a_union_come_from_metrics() {
    let test_db = plant().await;
    test_db
        .text(
            "CREATE TABLE other (time TIMESTAMP, site TEXT, value DOUBLE, note TEXT, PRIMARY KEY (site, time));
             INSERT INTO other VALUES ('2024-01-01', 's1', 7.5, 'x'), ('2024-01-02', 's9', -1.0, 'y')",
        )
        .await;
    let both =
        "(SELECT site, time, value FROM plant UNION ALL SELECT site, time, value FROM other)";
    let sql = format!(
        "SELECT site, count(*), avg(value), stddev(value), last_value(value ORDER BY time) FROM {both} GROUP BY site"
    );
    check(
        &test_db,
        &sql,
        &[
            "TidefallMerge: metrics=[plant, other]",
            "TidefallMetrics: table=plant",
            "TidefallMetrics: table=other",
        ],
        &["TidefallScan"],
    )
    .await;
    let some = format!("SELECT count(*) FROM {both} WHERE value > 5");
    check(&test_db, &some, &[], &["TidefallMetrics"]).await;
    let part = "SELECT which, max(value) FROM (SELECT 'all' AS which, value FROM plant \
                UNION ALL SELECT 'noted', value FROM other WHERE note = 'x') GROUP BY which";
    check(
        &test_db,
        part,
        &[
            "TidefallMerge: metrics=[plant]",
            "TidefallMetrics: table=plant",
            "TidefallScan: table=other",
        ],
        &[],
    )
    .await;
    let mut lines: Vec<String> = test_db.text(part).await.lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["all 99.9", "noted 7.5"]);
}
