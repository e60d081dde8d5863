//! The first few rows in some order: read from one end of time, or by what the sort says it still wants.

use std::cmp::Ordering;
use std::fmt::Write;

use futures::StreamExt;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_sql::Reads;
use tidefall_storage::{CascadeRequest, Target};

use crate::TestDb;
use crate::plans::check;

#[derive(Debug, Clone, PartialEq)]
struct Row {
    host: Option<String>,
    time: i64,
    v: Option<i64>,
    w: Option<f64>,
}

const TABLE: &str =
    "CREATE TABLE t (time TIMESTAMP, host TEXT, v BIGINT, w DOUBLE, PRIMARY KEY (host, time))";

/// Seconds of 2024-01-01.
const START: i64 = 1_704_067_200;

fn sql_of(value: Option<impl std::fmt::Display>, quote: &str) -> String {
    value.map_or_else(|| "NULL".to_owned(), |value| format!("{quote}{value}{quote}"))
}

/// Adds rows, some of them at times of others, late, or far in the future.
async fn write(test_db: &TestDb, rng: &mut SmallRng, rows: &mut Vec<Row>, count: usize) {
    let mut sql = "INSERT INTO t (host, time, v, w) VALUES ".to_owned();
    let mut comma = "";
    for _ in 0..count {
        let host = match rng.random_range(0..12) {
            0 => None,
            // One has as many as all others.
            1..6 => Some("hot".to_owned()),
            other => Some(format!("h{other}")),
        };
        let time = START
            + match rng.random_range(0..200) {
                0 => rng.random_range(-100_000_000..1_000_000_000),
                _ => rng.random_range(0..40_000),
            };
        let v = rng.random_bool(0.95).then(|| rng.random_range(-40..40));
        let w = rng.random_bool(0.9).then(|| f64::from(rng.random_range(-9..9)) / 4.0);
        if rows.iter().any(|row| row.host == host && row.time == time) {
            continue;
        }
        let (name, v_text, w_text) = (sql_of(host.as_ref(), "'"), sql_of(v, ""), sql_of(w, ""));
        write!(sql, "{comma}({name}, to_timestamp({time}), {v_text}, {w_text})").expect("a text");
        comma = ", ";
        rows.push(Row { host, time, v, w });
    }
    test_db.text(&sql).await;
}

/// Nulls are greater than all values.
fn nulls_last<T: PartialOrd>(left: Option<&T>, right: Option<&T>) -> Ordering {
    match (left, right) {
        (None, None) => Ordering::Equal,
        (None, _) => Ordering::Greater,
        (_, None) => Ordering::Less,
        (Some(left), Some(right)) => left.partial_cmp(right).expect("an order"),
    }
}

type Order = (&'static str, fn(&Row, &Row) -> Ordering);

fn by_host(left: &Row, right: &Row) -> Ordering {
    nulls_last(left.host.as_ref(), right.host.as_ref())
}

fn by_v(left: &Row, right: &Row) -> Ordering {
    nulls_last(left.v.as_ref(), right.v.as_ref())
}

/// Each of them orders all rows.
const ORDERS: [Order; 9] = [
    ("time DESC, host", |l, r| r.time.cmp(&l.time).then_with(|| by_host(l, r))),
    ("time, host DESC", |l, r| l.time.cmp(&r.time).then_with(|| by_host(r, l))),
    ("time, host", |l, r| l.time.cmp(&r.time).then_with(|| by_host(l, r))),
    ("v DESC, time, host", |l, r| {
        by_v(r, l).then_with(|| l.time.cmp(&r.time)).then_with(|| by_host(l, r))
    }),
    ("v, host, time DESC", |l, r| {
        by_v(l, r).then_with(|| by_host(l, r)).then_with(|| r.time.cmp(&l.time))
    }),
    ("w DESC NULLS LAST, v, time, host", |l, r| {
        let by_w = match (l.w, r.w) {
            (None, None) => Ordering::Equal,
            (None, _) => Ordering::Greater,
            (_, None) => Ordering::Less,
            (Some(left), Some(right)) => right.partial_cmp(&left).expect("an order"),
        };
        by_w.then_with(|| by_v(l, r)).then_with(|| l.time.cmp(&r.time)).then_with(|| by_host(l, r))
    }),
    ("w NULLS FIRST, time DESC, host", |l, r| {
        let by_w = match (l.w, r.w) {
            (None, None) => Ordering::Equal,
            (None, _) => Ordering::Less,
            (_, None) => Ordering::Greater,
            (Some(left), Some(right)) => left.partial_cmp(&right).expect("an order"),
        };
        by_w.then_with(|| r.time.cmp(&l.time)).then_with(|| by_host(l, r))
    }),
    ("host DESC, time DESC", |l, r| by_host(r, l).then_with(|| r.time.cmp(&l.time))),
    ("v + 1 DESC, time DESC, host", |l, r| {
        by_v(r, l).then_with(|| r.time.cmp(&l.time)).then_with(|| by_host(l, r))
    }),
];

type Condition = (&'static str, fn(&Row) -> bool);

const CONDITIONS: [Condition; 7] = [
    ("true", |_| true),
    ("host = 'h7'", |row| row.host.as_deref() == Some("h7")),
    ("host <> 'hot'", |row| row.host.as_deref().is_some_and(|host| host != "hot")),
    ("v = 13", |row| row.v == Some(13)),
    ("w > 1 AND v < 0", |row| row.w.is_some_and(|w| w > 1.0) && row.v.is_some_and(|v| v < 0)),
    ("time < '2024-01-01 05:00'", |row| row.time < START + 5 * 3600),
    ("v IS NULL", |row| row.v.is_none()),
];

async fn compare(test_db: &TestDb, rows: &[Row], place: &str) {
    for (condition, is_wanted) in CONDITIONS {
        for (order, compare) in ORDERS {
            let mut wanted: Vec<&Row> = rows.iter().filter(|row| is_wanted(row)).collect();
            wanted.sort_by(|left, right| compare(left, right));
            for (limit, offset) in [(1, 0), (10, 0), (7, 5), (300, 0), (100_000, 0)] {
                let sql = format!(
                    "SELECT host, to_unixtime(time), v, w FROM \
                     (SELECT w, host, time, v FROM t WHERE {condition}) \
                     ORDER BY {order} LIMIT {limit} OFFSET {offset}"
                );
                let line = |row: &&Row| {
                    let w = row.w.map(|w| format!("{w:?}"));
                    let texts = [sql_of(row.host.as_ref(), ""), row.time.to_string()];
                    format!("{} {} {} {}", texts[0], texts[1], sql_of(row.v, ""), sql_of(w, ""))
                };
                let expected: Vec<String> =
                    wanted.iter().skip(offset).take(limit).map(line).collect();
                assert_eq!(test_db.text(&sql).await, expected.join("\n"), "{place}: {sql}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_rows_are_right_in_every_placement() {
    let mut rng = SmallRng::seed_from_u64(17);
    let test_db = TestDb::new();
    test_db.text(TABLE).await;
    let mut rows = Vec::new();
    compare(&test_db, &rows, "empty").await;
    let cascade = |target| {
        test_db.db.cascade(&CascadeRequest { table: None, target }).expect("a cascade");
    };
    write(&test_db, &mut rng, &mut rows, 3000).await;
    cascade(Target::Long);
    compare(&test_db, &rows, "long").await;
    write(&test_db, &mut rng, &mut rows, 300).await;
    cascade(Target::Short);
    let (from, to) = (START + 9_000, START + 12_000);
    let delete = "DELETE FROM t WHERE host = 'hot' AND time >= to_timestamp";
    test_db.text(&format!("{delete}({from}) AND time < to_timestamp({to})")).await;
    rows.retain(|row| row.host.as_deref() != Some("hot") || !(from..to).contains(&row.time));
    write(&test_db, &mut rng, &mut rows, 100).await;
    compare(&test_db, &rows, "all models").await;
}

/// Many rows of some sensors in long columns.
async fn filled() -> TestDb {
    let test_db = TestDb::new();
    test_db
        .text(
            "CREATE TABLE m (time TIMESTAMP, host TEXT, v BIGINT, w DOUBLE, PRIMARY KEY (host, time));
             INSERT INTO m SELECT to_timestamp(1704067200 + n / 8), 'h' || (n % 8), n / 8, n % 1000 \
             FROM (SELECT value::BIGINT AS n FROM generate_series(0, 799999))",
        )
        .await;
    let cascade = CascadeRequest { table: None, target: Target::Long };
    test_db.db.cascade(&cascade).expect("a cascade");
    test_db
}

pub(crate) async fn reads(test_db: &TestDb, sql: &str) -> Reads {
    let mut stream = test_db.session.query(sql).await.expect("a query");
    while let Some(batch) = stream.next().await {
        batch.expect("a batch");
    }
    stream.reads()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_rows_spare_the_others() {
    let test_db = filled().await;
    for (sql, rows_max) in [
        ("SELECT * FROM m ORDER BY time DESC LIMIT 10", 20_000),
        ("SELECT * FROM m ORDER BY time LIMIT 10", 20_000),
        ("SELECT host, v FROM m ORDER BY time DESC, host LIMIT 1000 OFFSET 50", 20_000),
        ("SELECT v FROM m WHERE w > 10 ORDER BY time DESC LIMIT 10", 20_000),
        (
            "SELECT v + 1 AS u FROM m WHERE w > 10 AND host <> 'h3' ORDER BY time DESC LIMIT 10",
            20_000,
        ),
        ("SELECT * FROM m WHERE host = 'h1' ORDER BY time DESC LIMIT 10", 20_000),
        // What is greatest lies at one end of time, what is least at the other.
        ("SELECT * FROM m ORDER BY v DESC LIMIT 10", 300_000),
        ("SELECT * FROM m ORDER BY v LIMIT 10", 300_000),
    ] {
        let read = reads(&test_db, sql).await;
        assert!(read.rows <= rows_max, "{sql}: {read:?}");
    }
    // A reading far in the future does not make all others one stretch.
    test_db.text("INSERT INTO m VALUES ('2099-01-01', 'h5', 1, 1)").await;
    let read = reads(&test_db, "SELECT * FROM m ORDER BY time DESC LIMIT 10").await;
    assert!(read.rows <= 20_000, "{read:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sources_begin_where_sorts_begin() {
    let test_db = filled().await;
    for (sql, part) in [
        ("SELECT * FROM m ORDER BY time DESC LIMIT 10", ", newest first"),
        ("SELECT v FROM m WHERE w > 3 ORDER BY time LIMIT 10", ", oldest first"),
        ("SELECT * FROM m WHERE host = 'h1' ORDER BY time DESC LIMIT 10", ", newest first"),
        ("SELECT * FROM m ORDER BY v DESC LIMIT 10", "filters=[DynamicFilter"),
    ] {
        check(&test_db, sql, &[part, "filters=[DynamicFilter"], &[]).await;
    }
    for sql in [
        "SELECT * FROM m ORDER BY time DESC",
        "SELECT * FROM (SELECT * FROM m LIMIT 100) ORDER BY time DESC LIMIT 10",
        "SELECT * FROM m WHERE host = 'h1' ORDER BY time LIMIT 10",
        "SELECT * FROM m ORDER BY host, time DESC LIMIT 10",
    ] {
        check(&test_db, sql, &["TidefallScan"], &["newest first", "oldest first"]).await;
    }
    // The rows of a limit are counted before a filter.
    let sql = "SELECT count(*) FROM (SELECT * FROM (SELECT * FROM m WHERE host = 'h2' LIMIT 100) ORDER BY v DESC LIMIT 50)";
    check(&test_db, sql, &["limit=100"], &["filters=["]).await;
    assert_eq!(test_db.text(sql).await, "50");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_bins_spare_the_others() {
    let test_db = filled().await;
    for (sql, expected) in [
        (
            "SELECT date_trunc('minute', time) AS m, max(v), count(*) FROM m GROUP BY m ORDER BY m DESC LIMIT 3",
            "2024-01-02T03:46:00 99999 320\n2024-01-02T03:45:00 99959 480\n2024-01-02T03:44:00 99899 480",
        ),
        (
            "SELECT date_bin(INTERVAL '7 seconds', time) AS b, min(v) FROM m WHERE time < '2024-01-01 10:00:01' \
             GROUP BY b ORDER BY b DESC LIMIT 2 OFFSET 1",
            "2024-01-01T09:59:51 35991\n2024-01-01T09:59:44 35984",
        ),
        (
            "SELECT m, host, n FROM (SELECT date_trunc('hour', time) AS m, host, count(v) AS n FROM m GROUP BY m, host) \
             ORDER BY m DESC, host LIMIT 9",
            "2024-01-02T03:00:00 h0 2800\n2024-01-02T03:00:00 h1 2800\n2024-01-02T03:00:00 h2 2800\n\
             2024-01-02T03:00:00 h3 2800\n2024-01-02T03:00:00 h4 2800\n2024-01-02T03:00:00 h5 2800\n\
             2024-01-02T03:00:00 h6 2800\n2024-01-02T03:00:00 h7 2800\n2024-01-02T02:00:00 h0 3600",
        ),
    ] {
        check(&test_db, sql, &["TidefallMetrics", ", newest first"], &[]).await;
        assert_eq!(test_db.text(sql).await, expected, "{sql}");
    }
    let sql =
        "SELECT date_trunc('minute', time) AS m, max(w) FROM m GROUP BY m ORDER BY m DESC LIMIT 3";
    let read = reads(&test_db, sql).await;
    assert!(read.rows + read.blocks_from_metrics <= 100_000, "{read:?}");
}

/// The first rows of a join are chosen above it: one side of it sorted below would be a sort of more rows.
#[tokio::test]
async fn the_first_rows_are_chosen_where_they_are_fewest() {
    let test_db = TestDb::new();
    test_db
        .text(&format!(
            "{TABLE}; INSERT INTO t (time, host, v) SELECT to_timestamp(value), 'h' || (value % 4), value * 7 % 1000 \
             FROM generate_series(1, 4000)"
        ))
        .await;
    for sql in [
        "SELECT a.v FROM t a JOIN t b ON a.time = b.time ORDER BY a.v LIMIT 4",
        "SELECT b.v + 1 AS x FROM t a JOIN t b ON a.time = b.time ORDER BY x DESC LIMIT 4",
        "SELECT v FROM (SELECT v FROM t UNION ALL SELECT v FROM t) ORDER BY v LIMIT 4",
        "SELECT v FROM (SELECT v FROM t WHERE v % 3 = 1 ORDER BY time) ORDER BY v LIMIT 4",
        "SELECT v, count(*) AS n FROM t GROUP BY v ORDER BY n, v LIMIT 4",
    ] {
        let plan = test_db.plan(sql).await;
        assert!(plan.contains("SortExec: TopK(fetch=4)"), "{sql}\n{plan}");
        assert!(!plan.contains("SortExec: by="), "{sql}\n{plan}");
        let top = plan.find("SortExec").unwrap_or_default();
        let below = ["HashJoinExec", "UnionExec", "FilterExec", "AggregateExec", "TidefallMetrics"];
        assert!(below.iter().any(|node| plan[top..].contains(node)), "{sql}\n{plan}");
        let next = plan[top..].lines().nth(1).unwrap_or_default();
        assert!(!next.contains("Unknown") && !plan.contains("InOrder"), "{plan}");
    }
}
