//! More sensors than a dictionary of a batch should have: tags must be what they are as plain text, in all placements.

use tidefall_storage::{CascadeRequest, Target};

use crate::TestDb;
use crate::compare::cascade;
use crate::plans::check;

const QUESTIONS: [&str; 22] = [
    "SELECT count(DISTINCT sensor), count(DISTINCT site), count(*) FROM t",
    "SELECT site, count(*), avg(value), min(value), max(value) FROM t GROUP BY site ORDER BY site",
    "SELECT site, count(DISTINCT sensor) FROM t GROUP BY site ORDER BY site",
    "SELECT sensor, sum(value) FROM t GROUP BY sensor ORDER BY sensor LIMIT 20 OFFSET 9990",
    "SELECT sensor, site, max(time) FROM t GROUP BY sensor, site ORDER BY site DESC, sensor LIMIT 9",
    "SELECT upper(site), right(sensor, 1), sum(value) FROM t GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT sum(n), max(n) FROM (SELECT sensor, count(*) AS n FROM t GROUP BY sensor)",
    "SELECT sensor, value FROM t WHERE value % 1999 = 0 ORDER BY sensor, value",
    "SELECT count(*), sum(value) FROM t WHERE sensor LIKE 'x99%' OR sensor IN ('x1', 'x7')",
    "SELECT count(*), sum(value) FROM t WHERE site IS NULL AND sensor > 'x5'",
    "SELECT max(sensor), min(sensor), max(site) FROM t WHERE value > 100",
    "SELECT a.sensor, b.value FROM t a JOIN t b ON a.sensor = b.sensor AND a.site = b.site \
     WHERE a.value < 3 ORDER BY a.sensor, b.value",
    "SELECT site, sensor, value FROM t ORDER BY value DESC, sensor LIMIT 11",
    "SELECT date_bin(INTERVAL '1 hour', time) AS h, count(DISTINCT sensor) FROM t GROUP BY h \
     ORDER BY h",
    "SELECT count(DISTINCT sensor) FROM t",
    "SELECT count(DISTINCT site), count(DISTINCT site) + 1 FROM t",
    "SELECT count(DISTINCT sensor) FROM t WHERE time < '2024-01-01 01:10'",
    "SELECT count(DISTINCT sensor), count(DISTINCT sensor) FROM t WHERE sensor = 'nowhere'",
    "SELECT upper(site) AS u, site, count(DISTINCT sensor) FROM t GROUP BY u, site ORDER BY site",
    "SELECT sensor, count(DISTINCT site) AS n FROM t GROUP BY sensor ORDER BY n DESC, sensor LIMIT 9",
    "SELECT site, date_bin(INTERVAL '1 day', time) AS d, count(*), sum(value) FROM t \
     GROUP BY site, d ORDER BY site, d",
    "SELECT site, count(*), min(time), max(value) FROM t WHERE time > '2024-01-01 01:10' \
     GROUP BY site ORDER BY site",
];

#[tokio::test(flavor = "multi_thread")]
async fn tags_of_ten_thousand_sensors_are_what_they_are_as_text() {
    let test = TestDb::new();
    let rows = |first: usize, last: usize| {
        format!(
            "SELECT to_timestamp(1704067200 + value % 9000) AS time, \
             'x' || (value * 7 % 10007) AS sensor, \
             CASE WHEN value % 10 = 0 THEN NULL ELSE 's' || (value % 7) END AS site, value \
             FROM generate_series({first}, {last})"
        )
    };
    let columns = "time TIMESTAMP, sensor TEXT, site TEXT, value BIGINT";
    let key = "PRIMARY KEY (site, sensor, time)";
    test.text(&format!("CREATE TABLE tagged ({columns}, {key})")).await;
    let insert = |rows: String| format!("INSERT INTO tagged (time, sensor, site, value) {rows}");
    test.text(&insert(rows(0, 14_999))).await;
    let asked_of = |sql: &str, table: &str| {
        sql.replace("FROM t", &format!("FROM {table}")).replace("JOIN t", &format!("JOIN {table}"))
    };
    let cascade = |target| {
        test.db.cascade(&CascadeRequest { table: None, target }).expect("a cascade");
    };
    cascade(Target::Long);
    test.text(&insert(rows(15_000, 17_999))).await;
    let as_text = format!("({})", rows(0, 17_999));
    let plain = test.session.fork();
    plain.collect("SET tidefall.metrics = off").await.expect("a setting");
    let deleted = "sensor IN ('x7', 'x9990', 'x12')";
    let kept = format!("(SELECT * FROM {as_text} AS written WHERE NOT {deleted})");
    for (step, as_text) in
        [("late rows in memory", &as_text), ("all in objects", &as_text), ("some deleted", &kept)]
    {
        if step == "some deleted" {
            test.text(&format!("DELETE FROM tagged WHERE {deleted}")).await;
        }
        for sql in QUESTIONS {
            let expected = test.text(&asked_of(sql, as_text)).await;
            assert_eq!(test.text(&asked_of(sql, "tagged")).await, expected, "{step}: {sql}");
            let rows = plain.collect(&asked_of(sql, "tagged")).await.expect(sql);
            assert_eq!(crate::lines(&rows).join("\n"), expected, "{step}, rows: {sql}");
        }
        if step == "late rows in memory" {
            cascade(Target::Long);
        }
    }
}

/// Sensors that follow each other by their tags, and are stored all over the place.
#[tokio::test(flavor = "multi_thread")]
async fn scattered_sensors_are_read_as_they_are_stored() {
    let test_db = TestDb::new();
    let insert = "INSERT INTO m SELECT to_timestamp(value / 6000), 'h' || (value * 7919 % 6000), 'r' || (value % 3), value";
    test_db
        .text(&format!(
            "CREATE TABLE m (time TIMESTAMP, host TEXT, region TEXT, v DOUBLE, PRIMARY KEY (host, region, time)); \
             {insert} FROM generate_series(0, 11999)"
        ))
        .await;
    for place in ["memory", "long"] {
        if place == "long" {
            cascade(&test_db, Target::Long);
        }
        let ordered = "SELECT host, v FROM m WHERE v % 2 = 0 ORDER BY host, time LIMIT 3";
        check(&test_db, ordered, &["SortExec: TopK", "partitions=2"], &[]).await;
        assert_eq!(test_db.text(ordered).await, "h0 0.0\nh0 6000.0\nh10 4790.0", "{place}");
        for (sql, answer) in [
            ("SELECT count(*), sum(v) FROM m WHERE v > 100.5", "11899 71988950.0"),
            ("SELECT max(m) FROM (SELECT host, median(v) AS m FROM m GROUP BY host)", "8999.0"),
            ("SELECT region, count(v * 2) FROM m WHERE region = 'r1' GROUP BY region", "r1 4000"),
            (
                "SELECT max(n) FROM (SELECT row_number() OVER (PARTITION BY host ORDER BY time) AS n FROM m)",
                "2",
            ),
        ] {
            assert_eq!(test_db.text(sql).await, answer, "{place}: {sql}");
        }
    }
}
