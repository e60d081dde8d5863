//! Layers are relations: whatever is asked of one equals the same question about all of its rows, and these are what
//! the readings say, wherever they have moved to.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tidefall_storage::{CascadeRequest, Target};
use tidefall_types::{NS_PER_DAY, NS_PER_HOUR, NS_PER_MINUTE, format_time};

use crate::top::reads;
use crate::{TestDb, lines};

/// Questions for each form of each layer in each placement of the readings.
const QUESTIONS: usize = 40;

/// 2024-01-28, so that the readings cross a month.
const START_NS: i64 = 1_706_400_000 * 1_000_000_000;

const FIELDS: [&str; 4] = ["x", "i", "s", "o"];
const SENSORS: [Option<&str>; 5] = [None, Some("a1"), Some("a2"), Some("a3"), Some("a4")];

fn one<'a>(rng: &mut SmallRng, of: &[&'a str]) -> &'a str {
    of.choose(rng).expect("something to choose from")
}

fn optional(rng: &mut SmallRng, value: String) -> String {
    if rng.random_bool(0.7) { value } else { "NULL".to_owned() }
}

/// Sensors share many of their times, and now and then write one again.
async fn write(test_db: &TestDb, rng: &mut SmallRng, count: usize) {
    let mut sql = "INSERT INTO t (time, a, x, i, s, o) VALUES ".to_owned();
    for at in 0..count {
        let time_ns = START_NS
            + match rng.random_range(0..10) {
                0 => rng.random_range(-600..600) * NS_PER_DAY,
                1 => rng.random_range(0..6 * 24 * 60) * NS_PER_MINUTE + 7,
                _ => rng.random_range(0..6 * 48) * 30 * NS_PER_MINUTE,
            };
        let sensor = SENSORS.choose(rng).copied().flatten();
        let sensor = sensor.map_or_else(|| "NULL".to_owned(), |sensor| format!("'{sensor}'"));
        let (x, i) = (f64::from(rng.random_range(-80..80)) / 8.0, rng.random_range(-9..9));
        let (s, o) = (rng.random_range(0..4), rng.random_bool(0.5));
        let (x, i) = (optional(rng, x.to_string()), optional(rng, i.to_string()));
        let (s, o) = (optional(rng, format!("'s{s}'")), optional(rng, o.to_string()));
        let comma = if at == 0 { "" } else { ", " };
        let time = format_time(time_ns);
        write!(sql, "{comma}('{time}', {sensor}, {x}, {i}, {s}, {o})").expect("a text");
    }
    test_db.text(&sql).await;
}

async fn delete(test_db: &TestDb, rng: &mut SmallRng) {
    let sensor = format!("a{}", rng.random_range(1..5));
    let first = START_NS + rng.random_range(0..5 * 24) * NS_PER_HOUR;
    let (from, to) = (format_time(first), format_time(first + 9 * NS_PER_HOUR));
    let sql = format!("DELETE FROM t WHERE a = '{sensor}' AND time >= '{from}' AND time < '{to}'");
    test_db.text(&sql).await;
}

/// A form of a layer, and what it is, in terms of the readings.
struct Form {
    table: String,
    meaning: String,
}

fn is_sensor(sensor: Option<&str>) -> String {
    sensor.map_or_else(|| "a IS NULL".to_owned(), |sensor| format!("a = '{sensor}'"))
}

fn any_sensor(sensors: &[Option<&str>]) -> String {
    let sensors: Vec<String> = sensors.iter().map(|sensor| is_sensor(*sensor)).collect();
    format!("({})", sensors.join(" OR "))
}

fn names_of(sensors: &[Option<&str>]) -> String {
    let names: Vec<String> =
        sensors.iter().map(|sensor| format!("'{}'", sensor.unwrap_or_default())).collect();
    names.join(", ")
}

/// Columns with the latest value of each field of each sensor.
fn side_by_side(sensors: &[Option<&str>]) -> String {
    let mut columns = Vec::new();
    for sensor in sensors {
        for field in FIELDS {
            let (is_sensor, name) = (is_sensor(*sensor), sensor.unwrap_or_default());
            columns.push(format!(
                "last_value({field} ORDER BY time) FILTER (WHERE {is_sensor} AND {field} IS NOT NULL) \
                 AS \"{name}.{field}\""
            ));
        }
    }
    columns.join(", ")
}

fn lists() -> String {
    let field = |field: &str| format!("array_agg({field} ORDER BY time) AS {field}");
    FIELDS.map(field).join(", ")
}

fn forms(rng: &mut SmallRng) -> Vec<Form> {
    // Those without a name come last, as in an order by tags.
    let all: Vec<Option<&str>> = [&SENSORS[1..], &SENSORS[..1]].concat();
    let some: Vec<Option<&str>> = SENSORS.choose_multiple(rng, 2).copied().collect();
    let (columns, chosen) = (side_by_side(&some), any_sensor(&some));
    let names = names_of(&some);
    let first = START_NS + rng.random_range(0..5 * 24) * NS_PER_HOUR;
    let (from, to) = (format_time(first), format_time(first + 30 * NS_PER_HOUR));
    let lists = lists();
    vec![
        Form {
            table: "rows.t".to_owned(),
            meaning: format!("SELECT time, {} FROM t GROUP BY time", side_by_side(&all)),
        },
        Form {
            table: format!("rows('t', sensors => [{names}])"),
            meaning: format!("SELECT time, {columns} FROM t WHERE {chosen} GROUP BY time"),
        },
        Form {
            table: format!("rows('t', every => '5h', sensors => [{names}])"),
            meaning: format!(
                "SELECT date_bin(INTERVAL '5 hours', time, TIMESTAMP '1970-01-01') AS bin, {columns} \
                 FROM t WHERE {chosen} GROUP BY bin"
            ),
        },
        Form {
            table: "columns.t".to_owned(),
            meaning: format!(
                "SELECT a, array_agg(time ORDER BY time) AS times, {lists} FROM t GROUP BY a"
            ),
        },
        Form {
            table: format!("columns('t', start => '{from}', end => '{to}', sensors => [{names}])"),
            meaning: format!(
                "SELECT a, array_agg(time ORDER BY time) AS times, {lists} FROM t \
                 WHERE time >= '{from}' AND time < '{to}' AND {chosen} GROUP BY a"
            ),
        },
    ]
}

fn on_time(rng: &mut SmallRng) -> String {
    let first = START_NS + rng.random_range(-10..130) * NS_PER_HOUR;
    let (from, to) = (format_time(first), format_time(first + 50 * NS_PER_HOUR));
    match rng.random_range(0..6) {
        0 => format!("time >= '{from}'"),
        1 => format!("time BETWEEN '{from}' AND '{to}'"),
        2 => format!("(time < '{from}' OR time > '{to}')"),
        3 => format!("date_trunc('day', time) = date_trunc('day', TIMESTAMP '{from}')"),
        4 => "extract(minute FROM time) < 30".to_owned(),
        _ => format!("time = '{from}'"),
    }
}

/// A condition on one or two columns of the row layer.
fn on_values(rng: &mut SmallRng, schema: &Schema) -> String {
    let columns: Vec<(String, &DataType)> = schema.fields()[1..]
        .iter()
        .map(|field| (format!("\"{}\"", field.name()), field.data_type()))
        .collect();
    let (name, data_type) = columns.choose(rng).expect("columns");
    let same = columns.iter().filter(|(_, other)| other == data_type);
    let other = &same.collect::<Vec<_>>().choose(rng).expect("a column").0;
    let pattern = match data_type {
        DataType::Utf8 => one(
            rng,
            &[
                "{} = 's1'",
                "{} LIKE '%2'",
                "{} IS NULL",
                "{} <> |",
                "coalesce({}, |) = 's3'",
                "({} IS NOT DISTINCT FROM |)",
                "arrow_typeof({}) = 'Utf8'",
            ],
        ),
        DataType::Boolean => one(rng, &["{}", "NOT {}", "{} IS NULL", "({} OR |)", "{} = |"]),
        _ => one(
            rng,
            &[
                "{} > 3",
                "{} IS NOT NULL",
                "{} IS NULL",
                "({} > 3 OR | < 2)",
                "({} IS NOT NULL OR | IS NOT NULL)",
                "NOT ({} > 1)",
                "coalesce({}, 0) <= 0",
                "{} + | > 0",
                "{} IN (1, 2, 3)",
                "CASE WHEN {} > 0 THEN false ELSE true END",
                "({} IS DISTINCT FROM |)",
                "({} > 2 OR extract(minute FROM time) = 0)",
            ],
        ),
    };
    pattern.replace("{}", name).replace('|', other)
}

fn on_lists(rng: &mut SmallRng) -> String {
    one(
        rng,
        &[
            "a = 'a1'",
            "a IS NULL",
            "a IS NOT NULL",
            "upper(a) = 'A2'",
            "a IN ('a2', 'a4')",
            "array_length(times) > 9",
            "times[1] >= TIMESTAMP '2024-01-28 03:00:00'",
            "x[1] > 0",
            "(a = 'a1' OR array_length(x) < 12)",
            "array_has(i, 7)",
            "(a ~ '[13]' AND s[1] IS NOT NULL)",
        ],
    )
    .to_owned()
}

/// A question about the relation `r`.
fn question(rng: &mut SmallRng, schema: &Schema) -> String {
    let is_rows = schema.field(0).name() == "time";
    let mut condition = || match is_rows {
        false => on_lists(rng),
        true => match rng.random_range(0..3) {
            0 => on_time(rng),
            1 => on_values(rng, schema),
            _ => format!("{} AND {}", on_time(rng), on_values(rng, schema)),
        },
    };
    let (first, second) = (condition(), condition());
    let from = match rng.random_range(0..4) {
        0 => "FROM r".to_owned(),
        1 => format!("FROM r WHERE {first}"),
        2 => format!("FROM r WHERE {first} AND {second}"),
        _ => format!("FROM (SELECT * FROM r WHERE {first}) AS q WHERE {second}"),
    };
    let names: Vec<String> =
        schema.fields().iter().map(|field| format!("\"{}\"", field.name())).collect();
    let count = rng.random_range(1..4);
    let some: Vec<&str> = names.choose_multiple(rng, count).map(String::as_str).collect();
    match rng.random_range(0..5) {
        0 => format!("SELECT count(*) {from}"),
        1 => format!("SELECT count(*), count({}), min({}) {from}", some[0], names[0]),
        2 => format!("SELECT * {from}"),
        _ => format!("SELECT {} {from}", some.join(", ")),
    }
}

fn sorted(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows = lines(batches);
    rows.sort();
    rows
}

async fn stock_with(name: &str, batches: Vec<RecordBatch>) -> SessionContext {
    let stock = SessionContext::new();
    let schema = batches.first().expect("a batch").schema();
    let table = MemTable::try_new(schema, vec![batches]).expect("a table");
    stock.register_table(name, Arc::new(table)).expect("a table");
    stock
}

async fn compare(test_db: &TestDb, rng: &mut SmallRng, place: &str) {
    let readings = test_db.run("SELECT * FROM t").await.expect("readings");
    let readings = stock_with("t", readings).await;
    for Form { table, meaning } in forms(rng) {
        let all = test_db.run(&format!("SELECT * FROM {table}")).await;
        let all = all.unwrap_or_else(|error| panic!("{place}: {table}\n{error}"));
        let expected = readings.sql(&meaning).await.expect(&meaning);
        let expected = expected.collect().await.expect(&meaning);
        assert_eq!(sorted(&all), sorted(&expected), "{place}: {table}");
        if all.is_empty() {
            continue;
        }
        let schema = all[0].schema();
        let stock = stock_with("r", all).await;
        for _ in 0..QUESTIONS {
            let sql = question(rng, &schema);
            let expected = stock.sql(&sql).await.expect(&sql).collect().await.expect(&sql);
            let sql = sql.replace("FROM r", &format!("FROM {table} AS r"));
            let found = test_db.run(&sql).await;
            let found = found.unwrap_or_else(|error| panic!("{place}: {sql}\n{error}"));
            assert_eq!(sorted(&found), sorted(&expected), "{place}: {sql}");
        }
    }
}

fn cascade(test_db: &TestDb, target: Target) {
    test_db.db.cascade(&CascadeRequest { table: None, target }).expect("a cascade");
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_are_relations_in_every_placement() {
    for seed in 0..3 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let test_db = TestDb::new();
        test_db
            .text(
                "CREATE TABLE t (time TIMESTAMP, a TEXT, x DOUBLE, i BIGINT, s TEXT, o BOOLEAN, \
                 PRIMARY KEY (a, time))",
            )
            .await;
        // All sensors have a column from the beginning.
        test_db
            .text(
                "INSERT INTO t (time, a, x) VALUES ('2024-01-28', 'a1', 1), ('2024-01-28', 'a2', 1), \
                 ('2024-01-28', 'a3', 1), ('2024-01-28', 'a4', 1), ('2024-01-28', NULL, 1)",
            )
            .await;
        write(&test_db, &mut rng, 300).await;
        compare(&test_db, &mut rng, "kv").await;
        cascade(&test_db, Target::Short);
        compare(&test_db, &mut rng, "short").await;
        write(&test_db, &mut rng, 100).await;
        delete(&test_db, &mut rng).await;
        compare(&test_db, &mut rng, "short with late rows and deletes").await;
        cascade(&test_db, Target::Long);
        compare(&test_db, &mut rng, "long").await;
        delete(&test_db, &mut rng).await;
        write(&test_db, &mut rng, 100).await;
        compare(&test_db, &mut rng, "long with late rows and deletes").await;
        cascade(&test_db, Target::Short);
        write(&test_db, &mut rng, 30).await;
        compare(&test_db, &mut rng, "all models").await;
    }
}

/// Rows are the same whatever is read of them, also in several windows.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_later_does_not_change_rows() {
    let test_db = TestDb::with_memory(64 << 20);
    test_db
        .text(
            "CREATE TABLE t (time TIMESTAMP, s TEXT, v BIGINT, w BIGINT, PRIMARY KEY (s, time));
             INSERT INTO t SELECT to_timestamp(value * 7), 's' || (value % 3), value, NULL \
             FROM generate_series(0, 119999)",
        )
        .await;
    for sql in [
        "SELECT count(*) FROM rows.t",
        "SELECT count(*) FROM (SELECT \"s0.v\" FROM rows.t)",
        "SELECT count(*) FROM (SELECT \"s0.w\", time FROM rows.t)",
        "SELECT count(*) FROM (SELECT \"s0.v\", \"s1.v\" FROM rows.t)",
        "SELECT count(*) FROM (SELECT * FROM rows.t)",
        "SELECT count(\"s0.v\") + count(\"s1.v\") + count(\"s2.v\") FROM rows.t",
    ] {
        assert_eq!(test_db.text(sql).await, "120000", "{sql}");
    }
    let plan = test_db.plan("SELECT time FROM rows.t WHERE \"s1.v\" > 100").await;
    assert!(plan.contains("sensors=1 of 3"), "{plan}");
    let plan = test_db.plan("SELECT time FROM rows.t WHERE \"s1.v\" IS NULL").await;
    assert!(plan.contains("sensors=3 of 3"), "{plan}");
    let sum = "SELECT sum(\"s2.v\"), count(*) FROM rows.t WHERE \"s1.v\" > 60000";
    assert_eq!(test_db.text(sum).await, "NULL 20000");
}

/// Windows were as long as if readings were as dense everywhere: one of long ago made all others one window.
#[tokio::test(flavor = "multi_thread")]
async fn windows_of_rows_side_by_side_are_cut_where_the_readings_are() {
    const ROWS: u64 = 1_200_000;
    let test_db = TestDb::with_memory(64 << 20);
    test_db
        .text(&format!(
            "CREATE TABLE k (time TIMESTAMP, host TEXT, v DOUBLE, PRIMARY KEY (host, time));
             INSERT INTO k VALUES ('1970-01-01', 'a', -1);
             INSERT INTO k SELECT to_timestamp(1704067200 + value), 'a', value FROM generate_series(1, {ROWS})"
        ))
        .await;
    for place in ["kv", "long"] {
        let first = "SELECT * FROM rows.k LIMIT 5";
        let read = reads(&test_db, first).await.rows;
        assert!(read < ROWS / 2, "{place}: {read} rows for the first five");
        let all = "SELECT count(*), max(time) > min(time), sum(a) FROM rows.k";
        let sum = ROWS * (ROWS + 1) / 2 - 1;
        assert_eq!(
            test_db.text(all).await,
            format!("{} true {:.1}", ROWS + 1, sum as f64),
            "{place}"
        );
        let bins = "SELECT count(*), count(a), sum(a) FROM rows('k', every => '1m') WHERE time >= '2024-01-01'";
        let sum: u64 = (0..=ROWS / 60).map(|bin| (bin * 60 + 59).min(ROWS)).sum();
        assert_eq!(
            test_db.text(bins).await,
            format!("{0} {0} {1:.1}", ROWS / 60 + 1, sum as f64),
            "{place}"
        );
        let cascade = CascadeRequest { table: None, target: Target::Long };
        test_db.db.cascade(&cascade).expect("a cascade");
    }
}
