//! Random questions to Tidefall and to DataFusion over the same rows in memory, wherever the rows
//! have moved to: with metrics, without metrics and stock DataFusion must agree.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, DictionaryArray, Float32Array, Float64Array, Int32Array, RecordBatch,
    StringArray, TimestampNanosecondArray, UInt64Array,
};
use datafusion::arrow::datatypes::UInt32Type;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_storage::{CascadeRequest, Target};
use tidefall_types::{NS_PER_DAY, NS_PER_HOUR, NS_PER_MINUTE, format_time};

use crate::{TestDb, lines};

/// Questions for each placement of the rows.
const QUESTIONS: usize = 75;

/// 2024-01-28, so that the rows cross a month.
const START_NS: i64 = 1_706_400_000 * 1_000_000_000;

#[derive(Debug, Clone, Default, PartialEq)]
struct Row {
    x: Option<f64>,
    f: Option<f32>,
    i: Option<i32>,
    u: Option<u64>,
    s: Option<String>,
    o: Option<bool>,
    w: Option<i64>,
}

type Key = (Option<String>, Option<String>, i64);

/// The table in which a [`Model`] is written.
pub(crate) const TABLE: &str = "CREATE TABLE t (time TIMESTAMP, a TEXT, b TEXT, x DOUBLE, f REAL, i INTEGER, \
     u BIGINT UNSIGNED, s TEXT, o BOOLEAN, w TIMESTAMP, PRIMARY KEY (a, b, time))";

/// The rows as they should be.
#[derive(Default)]
pub(crate) struct Model {
    rows: BTreeMap<Key, Row>,
    /// Times that are taken, so that first and last values are never a matter of taste.
    times: std::collections::BTreeSet<i64>,
}

fn optional<T>(rng: &mut SmallRng, value: T) -> Option<T> {
    rng.random_bool(0.85).then_some(value)
}

fn random_tag(rng: &mut SmallRng, letter: char) -> Option<String> {
    let number = rng.random_range(0..4);
    (number > 0).then(|| format!("{letter}{number}"))
}

fn random_row(rng: &mut SmallRng) -> Row {
    let x = f64::from(rng.random_range(-500..500)) / 8.0;
    let x = optional(rng, x);
    let f = rng.random_range(-4.0_f32..4.0);
    let f = optional(rng, f);
    let i = rng.random_range(-100..100);
    let i = optional(rng, i);
    let u = rng.random_range(0..1_000_000);
    let u = optional(rng, u);
    let s = format!("s{}", rng.random_range(0..5));
    let s = optional(rng, s);
    let o = rng.random_bool(0.5);
    let o = optional(rng, o);
    let w = START_NS + rng.random_range(-400..400) * NS_PER_HOUR + rng.random_range(0..5);
    Row { x, f, i, u, s, o, w: optional(rng, w) }
}

fn text(value: Option<impl std::fmt::Display>, quote: &str) -> String {
    value.map_or_else(|| "NULL".to_owned(), |value| format!("{quote}{value}{quote}"))
}

impl Model {
    fn random_time(&mut self, rng: &mut SmallRng) -> i64 {
        loop {
            let time_ns = START_NS
                + if rng.random_bool(0.1) {
                    rng.random_range(-20_000..20_000) * NS_PER_DAY / 7
                } else {
                    rng.random_range(0..6 * 24 * 60) * NS_PER_MINUTE + rng.random_range(0..9)
                };
            if self.times.insert(time_ns) {
                return time_ns;
            }
        }
    }

    /// Writes random rows, some of them corrections of rows that are there, to both.
    pub(crate) async fn write(&mut self, test_db: &TestDb, rng: &mut SmallRng, count: usize) {
        let mut sql = "INSERT INTO t (time, a, b, x, f, i, u, s, o, w) VALUES ".to_owned();
        for at in 0..count {
            let known: Vec<Key> = if rng.random_bool(0.1) {
                let skip = rng.random_range(0..self.rows.len().max(1));
                self.rows.keys().skip(skip).take(1).cloned().collect()
            } else {
                Vec::new()
            };
            let key = match known.into_iter().next() {
                Some(key) => key,
                None => (random_tag(rng, 'a'), random_tag(rng, 'b'), self.random_time(rng)),
            };
            let row = random_row(rng);
            let (a, b) = (text(key.0.as_ref(), "'"), text(key.1.as_ref(), "'"));
            let (x, f, i) = (text(row.x, ""), text(row.f, ""), text(row.i, ""));
            let (u, s, o) = (text(row.u, ""), text(row.s.as_ref(), "'"), text(row.o, ""));
            let w = text(row.w.map(format_time), "'");
            let comma = if at == 0 { "" } else { ", " };
            let time = format_time(key.2);
            write!(sql, "{comma}('{time}', {a}, {b}, {x}, {f}, {i}, {u}, {s}, {o}, {w})")
                .expect("a text");
            let old = self.rows.entry(key).or_default();
            *old = Row {
                x: row.x.or(old.x),
                f: row.f.or(old.f),
                i: row.i.or(old.i),
                u: row.u.or(old.u),
                s: row.s.or(old.s.take()),
                o: row.o.or(old.o),
                w: row.w.or(old.w),
            };
        }
        test_db.text(&sql).await;
    }

    pub(crate) async fn delete(&mut self, test_db: &TestDb, rng: &mut SmallRng) {
        let tag = format!("a{}", rng.random_range(1..4));
        let first = START_NS + rng.random_range(0..5 * 24) * NS_PER_HOUR;
        let behind = first + rng.random_range(1..12) * NS_PER_HOUR;
        let (from, to) = (format_time(first), format_time(behind));
        let sql = format!("DELETE FROM t WHERE a = '{tag}' AND time >= '{from}' AND time < '{to}'");
        let before = self.rows.len();
        self.rows.retain(|(a, _, time_ns), _| {
            a.as_ref() != Some(&tag) || *time_ns < first || *time_ns >= behind
        });
        assert_eq!(test_db.text(&sql).await, (before - self.rows.len()).to_string());
    }

    /// Stock DataFusion over the rows.
    pub(crate) fn stock(&self) -> SessionContext {
        let stock = SessionContext::new();
        let batch = self.batch();
        let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).expect("a table");
        stock.register_table("t", Arc::new(table)).expect("a table");
        stock
    }

    fn batch(&self) -> RecordBatch {
        let tag = |of: fn(&Key) -> Option<&str>| -> ArrayRef {
            Arc::new(self.rows.keys().map(of).collect::<DictionaryArray<UInt32Type>>())
        };
        let time: Vec<i64> = self.rows.keys().map(|key| key.2).collect();
        let rows = || self.rows.values();
        let columns: Vec<(&str, ArrayRef, bool)> = vec![
            ("time", Arc::new(TimestampNanosecondArray::from(time)), false),
            ("a", tag(|key| key.0.as_deref()), true),
            ("b", tag(|key| key.1.as_deref()), true),
            ("x", Arc::new(rows().map(|row| row.x).collect::<Float64Array>()), true),
            ("f", Arc::new(rows().map(|row| row.f).collect::<Float32Array>()), true),
            ("i", Arc::new(rows().map(|row| row.i).collect::<Int32Array>()), true),
            ("u", Arc::new(rows().map(|row| row.u).collect::<UInt64Array>()), true),
            ("s", Arc::new(rows().map(|row| row.s.clone()).collect::<StringArray>()), true),
            ("o", Arc::new(rows().map(|row| row.o).collect::<BooleanArray>()), true),
            ("w", Arc::new(rows().map(|row| row.w).collect::<TimestampNanosecondArray>()), true),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).expect("a batch")
    }
}

fn pick<'a>(rng: &mut SmallRng, of: &[&'a str]) -> &'a str {
    of[rng.random_range(0..of.len())]
}

fn random_condition(rng: &mut SmallRng) -> String {
    let first = START_NS + rng.random_range(-10..130) * NS_PER_HOUR + rng.random_range(0..9);
    let (from, to) =
        (format_time(first), format_time(first + rng.random_range(0..90) * NS_PER_HOUR));
    let time = match rng.random_range(0..8) {
        0 => format!("time >= '{from}'"),
        1 => format!("time BETWEEN '{from}' AND '{to}'"),
        2 => format!("time > TIMESTAMP '{from}' AND time <= TIMESTAMP '{to}'"),
        3 => format!("date_trunc('day', time) = date_trunc('day', TIMESTAMP '{from}')"),
        4 => format!("date_bin(INTERVAL '5 hours', time) < '{to}'"),
        5 => format!("(time < '{from}' OR time > '{to}')"),
        6 => "time::date >= DATE '2024-01-30'".to_owned(),
        _ => "true".to_owned(),
    };
    let tags = pick(
        rng,
        &[
            "true",
            "a = 'a1'",
            "a <> 'a1'",
            "a IN ('a1', 'a3', 'nothing')",
            "a NOT IN ('a1', 'a2')",
            "a NOT IN ('a1', NULL)",
            "a IS NULL",
            "a IS NOT NULL AND b LIKE '%2'",
            "b ~ '[12]'",
            "b !~ '1$'",
            "b ILIKE 'B%' AND NOT (a = 'a2')",
            "(a = 'a1' OR b = 'b2')",
            "NOT (a = 'a1' AND b = 'b1')",
            "upper(a) = 'A2'",
            "a > 'a1'",
            "coalesce(a, b) = 'b1'",
            "a = 'nothing'",
            "'a1' = a",
        ],
    );
    let values = pick(
        rng,
        &[
            "true",
            "true",
            "true",
            "x > 10",
            "i <= 3",
            "x = 1.5",
            "s = 's1'",
            "o",
            "u < 1000",
            "w > TIMESTAMP '2024-01-28 12:00:00'",
            "w < time - INTERVAL '1 day'",
            "w BETWEEN TIMESTAMP '2024-01-20 00:00:00' AND TIMESTAMP '2024-01-30 00:00:00'",
            "w IS NULL",
            "f > 0",
        ],
    );
    format!("{tags} AND {time} AND {values}")
}

const MEASURES: [&str; 34] = [
    "count(*)",
    "count(x)",
    "count(s)",
    "sum(x)",
    "sum(f)",
    "sum(i)",
    "sum(u)",
    "avg(x)",
    "avg(i)",
    "avg(f)",
    "min(x)",
    "max(x)",
    "min(i)",
    "max(u)",
    "min(f)",
    "min(s)",
    "max(o)",
    "min(time)",
    "max(time)",
    "stddev(x)",
    "stddev_pop(i)",
    "var_samp(f)",
    "var_pop(u)",
    "first_value(x ORDER BY time)",
    "last_value(i ORDER BY time)",
    "first_value(u ORDER BY time DESC)",
    "last_value(x IGNORE NULLS ORDER BY time)",
    "sum(x) / count(*)",
    "count(w)",
    "min(w)",
    "max(w)",
    "first_value(w ORDER BY time)",
    "last_value(w ORDER BY time)",
    "last_value(w IGNORE NULLS ORDER BY time)",
];

const GROUPS: [&str; 13] = [
    "a",
    "b",
    "a, b",
    "date_bin(INTERVAL '1 hour', time)",
    "date_bin(INTERVAL '1 minute', time)",
    "a, date_bin(INTERVAL '90 seconds', time, TIMESTAMP '2001-01-01 00:00:07')",
    "date_bin(INTERVAL '7 hours', time, TIMESTAMP '2001-01-01 00:11:00')",
    "date_trunc('week', time)",
    "date_trunc('month', time)",
    "b, date_trunc('day', time)",
    "date_bin(INTERVAL '1 day', time), a, b",
    "upper(a)",
    "date_trunc('day', w)",
];

/// The table, or what some questions to it have together. (None asks for `a = 'a1'`: beside `'a1' = a` around it stock DataFusion takes
/// that for two values of `a`.)
fn random_table(rng: &mut SmallRng) -> String {
    if rng.random_bool(0.7) {
        return "t".to_owned();
    }
    let parts = (0..rng.random_range(2..4)).map(|_| {
        // Only rows tell which text they have, and metrics have no answer for a cast like that.
        let columns = pick(
            rng,
            &[
                "*",
                "*",
                "*",
                "time, a, b, x * 1.0 AS x, f, i, u, s, o, w",
                "time, upper(a) AS a, 'same' AS b, x, f, i, u, s, o, w",
                "time, coalesce(a, 'none') AS a, 'same' AS b, x, f, i, u, s, o, w",
            ],
        );
        let kept = pick(
            rng,
            &[
                "a < 'a2'",
                "a > 'a1'",
                "b IS NULL",
                "time < '2024-01-30'",
                "s = 's1'",
                "true",
                "false",
            ],
        );
        format!("SELECT {columns} FROM t WHERE {kept}")
    });
    format!("({}) AS t", parts.collect::<Vec<_>>().join(" UNION ALL "))
}

/// Columns that have names of others, the one by which rows are grouped, and what that is in terms of the table.
const RENAMED: [(&str, &str, &str); 5] = [
    (
        "date_bin(INTERVAL '1 hour', time) AS time, a, b",
        "time",
        "date_bin(INTERVAL '1 hour', time)",
    ),
    ("time, b AS a, a AS b", "a", "b"),
    ("time, upper(a) AS a, b", "a", "upper(a)"),
    ("time, 'same' AS a, a AS b", "b", "a"),
    ("time, a || coalesce(b, '-') AS b, a", "b", "a || coalesce(b, '-')"),
];

/// Joins and sorts that tell, while they run, which groups they want: by names, which are those of other columns below.
fn random_wish(rng: &mut SmallRng) -> String {
    let (condition, table) = (random_condition(rng), random_table(rng));
    let (columns, group, key) = RENAMED[rng.random_range(0..RENAMED.len())];
    let measures = pick(
        rng,
        &[
            "count(*)",
            "count(*), sum(x)",
            "max(u), avg(i)",
            "stddev(x), min(w)",
            "count(s), min(f)",
        ],
    );
    let groups = format!(
        "(SELECT {group}, {measures} FROM (SELECT {columns}, x, f, i, u, s, o, w FROM {table} WHERE {condition}) GROUP BY {group}) AS q"
    );
    let wanted = format!(
        "SELECT {key} AS k FROM t WHERE {} GROUP BY 1",
        pick(
            rng,
            &["a = 'a1'", "b = 'b2' AND x > 0", "time < '2024-01-29'", "s = 's1' AND i > 50"]
        )
    );
    match rng.random_range(0..4) {
        0 => format!("SELECT q.* FROM {groups} JOIN ({wanted}) AS o ON q.{group} = o.k"),
        1 => format!("SELECT o.k, q.* FROM ({wanted}) AS o LEFT JOIN {groups} ON q.{group} = o.k"),
        2 => format!("SELECT * FROM {groups} WHERE {group} IN ({wanted})"),
        _ => {
            let (order, count) = (pick(rng, &["", " DESC"]), rng.random_range(1..4));
            format!("SELECT * FROM {groups} ORDER BY {group}{order} LIMIT {count}")
        }
    }
}

fn random_question(rng: &mut SmallRng) -> String {
    if rng.random_bool(0.2) {
        return random_wish(rng);
    }
    let (condition, table) = (random_condition(rng), random_table(rng));
    if rng.random_bool(0.2) {
        let columns = pick(rng, &["*", "time, x", "a, b, s", "b, i, o, time"]);
        return format!("SELECT {columns} FROM {table} WHERE {condition}");
    }
    let count = rng.random_range(1..6);
    let measures: Vec<String> =
        (0..count).map(|at| format!("{} AS m{at}", pick(rng, &MEASURES))).collect();
    let measures = measures.join(", ");
    if rng.random_bool(0.2) {
        return format!("SELECT {measures} FROM {table} WHERE {condition}");
    }
    let group = pick(rng, &GROUPS);
    format!("SELECT {group}, {measures} FROM {table} WHERE {condition} GROUP BY {group}")
}

/// Sorted rows, with floats cut to the digits that do not depend on the order of a sum.
pub(crate) fn normal(batches: &[RecordBatch]) -> Vec<String> {
    let round = |word: &str| match word.parse::<f64>() {
        Ok(value) if word.contains(['.', 'e']) => {
            let value = if value.abs() < 1e-9 { 0.0 } else { value };
            format!("{value:.8e}")
        }
        _ => word.to_owned(),
    };
    let mut rows: Vec<String> = lines(batches)
        .iter()
        .map(|line| line.split(' ').map(round).collect::<Vec<_>>().join(" "))
        .collect();
    rows.sort();
    rows
}

async fn compare(test_db: &TestDb, model: &Model, rng: &mut SmallRng, place: &str) {
    let stock = model.stock();
    let plain = test_db.session.fork();
    plain.collect("SET tidefall.metrics = off").await.expect("a setting");
    for _ in 0..QUESTIONS {
        let sql = random_question(rng);
        let expected = stock.sql(&sql).await.expect(&sql).collect().await.expect(&sql);
        for (session, name) in [(&test_db.session, "metrics"), (&plain, "rows")] {
            let found = match session.collect(&sql).await {
                Ok(found) => found,
                Err(error) => panic!("{place}, {name}: {sql}\n{error}"),
            };
            assert_eq!(normal(&found), normal(&expected), "{place}, {name}: {sql}");
            if let (Some(found), Some(expected)) = (found.first(), expected.first()) {
                let types = |batch: &RecordBatch| {
                    let schema = batch.schema();
                    schema
                        .fields()
                        .iter()
                        .map(|field| field.data_type().clone())
                        .collect::<Vec<_>>()
                };
                assert_eq!(types(found), types(expected), "{place}, {name}: {sql}");
            }
        }
    }
}

pub(crate) fn cascade(test_db: &TestDb, target: Target) {
    test_db.db.cascade(&CascadeRequest { table: None, target }).expect("a cascade");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_equal_datafusion_in_every_placement() {
    for seed in 0..3 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let test_db = TestDb::new();
        test_db.text(TABLE).await;
        let mut model = Model::default();
        compare(&test_db, &model, &mut rng, "empty").await;
        model.write(&test_db, &mut rng, 800).await;
        compare(&test_db, &model, &mut rng, "kv").await;
        cascade(&test_db, Target::Short);
        compare(&test_db, &model, &mut rng, "short").await;
        model.write(&test_db, &mut rng, 200).await;
        model.delete(&test_db, &mut rng).await;
        compare(&test_db, &model, &mut rng, "short with late rows and deletes").await;
        cascade(&test_db, Target::Long);
        compare(&test_db, &model, &mut rng, "long").await;
        model.delete(&test_db, &mut rng).await;
        model.write(&test_db, &mut rng, 200).await;
        compare(&test_db, &model, &mut rng, "long with late rows and deletes").await;
        cascade(&test_db, Target::Short);
        model.write(&test_db, &mut rng, 50).await;
        compare(&test_db, &model, &mut rng, "all models").await;
    }
}
