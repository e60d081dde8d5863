//! Held against DataFusion's own join and aggregate.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Date32Array, Float64Array, Int16Array, Int64Array, RecordBatch, StringArray,
    TimestampNanosecondArray, UInt64Array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::MemTable;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{SessionConfig, SessionContext};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::testing::{self, shown};

/// All tables have these columns: keys of all types, and values.
fn schema() -> Arc<Schema> {
    let tag = DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8));
    let time = DataType::Timestamp(datafusion::arrow::datatypes::TimeUnit::Nanosecond, None);
    let columns = [
        ("i", DataType::Int64),
        ("far", DataType::Int64),
        ("s", DataType::Int16),
        ("u", DataType::UInt64),
        ("t", time),
        ("d", DataType::Date32),
        ("text", DataType::Utf8),
        ("tag", tag),
        ("v", DataType::Float64),
        ("n", DataType::Int64),
    ];
    let fields = columns.map(|(name, data_type)| Field::new(name, data_type, true));
    Arc::new(Schema::new(fields.to_vec()))
}

fn batch(random: &mut SmallRng, rows: usize, range: i64) -> RecordBatch {
    let nulls = random.random_range(0..3) * 10;
    let mut numbers = |range: i64| -> Vec<Option<i64>> {
        let number = |_| {
            let number = random.random_range(0..range);
            (random.random_range(0..100) >= nulls).then_some(number)
        };
        (0..rows).map(number).collect()
    };
    let mut of = |range| numbers(range).into_iter();
    let text = |number: Option<i64>| number.map(|number| format!("t{number}"));
    let texts: StringArray = of(range).map(text).collect();
    let tags: ArrayRef = Arc::new(of(range).map(text).collect::<StringArray>());
    let schema = schema();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter(of(range).map(|n| n.map(|n| n - 2)))),
        Arc::new(Int64Array::from_iter(of(range).map(|n| n.map(|n| (n - 2) << 40)))),
        Arc::new(Int16Array::from_iter(of(range).map(|n| n.map(|n| n as i16)))),
        Arc::new(UInt64Array::from_iter(
            of(range).map(|n| n.map(|n| u64::MAX / 3 * (n % 4) as u64)),
        )),
        Arc::new(TimestampNanosecondArray::from_iter(of(range))),
        Arc::new(Date32Array::from_iter(of(range).map(|n| n.map(|n| 3 - n as i32)))),
        Arc::new(texts),
        cast(&tags, schema.field(7).data_type()).unwrap(),
        Arc::new(Float64Array::from_iter(of(20).map(|n| n.map(|n| n as f64 / 4.0 - 1.0)))),
        Arc::new(Int64Array::from_iter(of(5))),
    ];
    RecordBatch::try_new(schema, columns).unwrap()
}

fn table(random: &mut SmallRng, partitions: usize, rows: usize, range: i64) -> Arc<MemTable> {
    let mut batches = || -> Vec<RecordBatch> {
        let count = random.random_range(0..4);
        (0..count)
            .map(|_| {
                let rows = random.random_range(0..=rows);
                batch(random, rows, range)
            })
            .collect()
    };
    let partitions = (0..partitions).map(|_| batches()).collect();
    Arc::new(MemTable::try_new(schema(), partitions).unwrap())
}

fn context(has_rule: bool, partitions: usize, memory: usize) -> SessionContext {
    let mut rules = PhysicalOptimizer::new().rules;
    if has_rule {
        rules.insert(rules.len() - 2, Arc::new(GroupedJoins));
    }
    let mut config = SessionConfig::new().with_target_partitions(partitions).with_batch_size(16);
    config.options_mut().optimizer.hash_join_single_partition_threshold = usize::MAX;
    config.options_mut().optimizer.hash_join_single_partition_threshold_rows = usize::MAX;
    testing::context(config, Arc::new(GreedyMemoryPool::new(memory)), rules)
}

const AGGREGATES: [&str; 6] = [
    "count(*)",
    "count(*), sum(b.v), count(b.n)",
    "avg(b.v), min(b.n), max(b.v)",
    "sum(b.n * 2) FILTER (WHERE b.v > 1), count(b.tag)",
    "min(b.t), max(b.d), avg(b.n)",
    "sum(b.v) FILTER (WHERE b.n = 99), max(b.v) FILTER (WHERE b.n > 3)",
];

const GROUPS: [&str; 12] = [
    "s.n",
    "s.text",
    "s.tag, s.n",
    "s.n % 2, s.d",
    "coalesce(s.n, 77)",
    "s.i",
    "b.n",
    "b.tag, s.n",
    "s.text, b.text, b.u",
    "b.t, b.d, s.d, s.tag",
    "b.s, b.far, s.n",
    "s.v, b.v",
];

const KEYS: [&str; 11] = [
    "b.i = s.i",
    "b.far = s.far",
    "b.s = s.s",
    "b.u = s.u",
    "b.t = s.t",
    "b.d = s.d",
    "b.text = s.text",
    "b.tag = s.tag",
    "b.i + 1 = s.i",
    "b.i = s.i AND b.tag = s.text",
    "b.s = s.s AND b.u = s.u AND b.n = s.n",
];

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_those_of_a_join_and_an_aggregate() {
    let mut random = SmallRng::seed_from_u64(11);
    let mut grouped = 0;
    for round in 0..60 {
        let range = [3, 12, 200][round % 3];
        let partitions = random.random_range(1..4);
        let (plain, ruled) =
            (context(false, partitions, 1 << 30), context(true, partitions, 1 << 30));
        let big = table(&mut random, partitions, 300, range);
        let rows = [0, 8, 60][random.random_range(0..3)];
        let small = table(&mut random, 1, rows, range);
        for context in [&plain, &ruled] {
            context.register_table("big", Arc::clone(&big) as _).unwrap();
            context.register_table("small", Arc::clone(&small) as _).unwrap();
        }
        for _ in 0..12 {
            let aggregates = AGGREGATES[random.random_range(0..AGGREGATES.len())];
            let keys = KEYS[random.random_range(0..KEYS.len())];
            let join = ["JOIN", "JOIN", "LEFT JOIN"][random.random_range(0..3)];
            let sides = format!("big b {join} small s ON {keys}");
            let group = GROUPS[random.random_range(0..GROUPS.len())];
            let sql = match random.random_range(0..5) {
                0 => format!("SELECT {aggregates} FROM {sides}"),
                1 => format!(
                    "SELECT {group}, {aggregates} FROM {sides} WHERE b.v > 0 GROUP BY {group} ORDER BY {group}"
                ),
                _ => format!(
                    "SELECT {group}, {aggregates} FROM {sides} GROUP BY {group} ORDER BY {group}"
                ),
            };
            assert_eq!(
                shown(&ruled, &sql).await.unwrap(),
                shown(&plain, &sql).await.unwrap(),
                "{round}: {sql}"
            );
            let plan = shown(&ruled, &format!("EXPLAIN {sql}")).await.unwrap();
            grouped += usize::from(plan.contains("GroupedJoin"));
        }
    }
    assert!(grouped > 300, "{grouped}");
}

/// What is not certain stays as it is.
#[tokio::test]
async fn other_plans_stay_as_they_are() {
    let mut random = SmallRng::seed_from_u64(3);
    let context = context(true, 2, 1 << 30);
    context.register_table("big", table(&mut random, 2, 300, 9)).unwrap();
    context.register_table("small", table(&mut random, 1, 9, 9)).unwrap();
    for (sql, is_grouped) in [
        ("SELECT s.n, count(*) FROM big b JOIN small s ON b.i = s.i GROUP BY s.n", true),
        (
            "SELECT s.n, count(DISTINCT b.v) FROM big b JOIN small s ON b.i = s.i GROUP BY s.n",
            false,
        ),
        ("SELECT s.n, median(b.v) FROM big b JOIN small s ON b.i = s.i GROUP BY s.n", false),
        ("SELECT s.n, max(b.text) FROM big b JOIN small s ON b.i = s.i GROUP BY s.n", false),
        ("SELECT s.n, array_agg(b.v) FROM big b JOIN small s ON b.i = s.i GROUP BY s.n", false),
        (
            "SELECT s.n, count(*) FROM big b JOIN small s ON b.i = s.i AND b.v > s.v GROUP BY s.n",
            false,
        ),
        ("SELECT s.n, count(*) FROM big b JOIN small s ON b.v = s.v GROUP BY s.n", false),
        ("SELECT s.n, sum(b.v + s.v) FROM big b JOIN small s ON b.i = s.i GROUP BY s.n", false),
        (
            "SELECT s.n + b.n, count(*) FROM big b JOIN small s ON b.i = s.i GROUP BY s.n + b.n",
            false,
        ),
        ("SELECT s.n, sum(random()) FROM big b JOIN small s ON b.i = s.i GROUP BY s.n", false),
        ("SELECT s.n, count(*) FROM big b FULL JOIN small s ON b.i = s.i GROUP BY s.n", false),
        ("SELECT s.n, count(*) FROM big b JOIN small s ON b.i = s.i GROUP BY ROLLUP(s.n)", false),
    ] {
        let plan = shown(&context, &format!("EXPLAIN {sql}")).await.unwrap();
        assert_eq!(plan.contains("GroupedJoin"), is_grouped, "{sql}\n{plan}");
    }
}

/// A big side of 100,000 keys, and a small one of half as many.
fn register_sides(context: &SessionContext, key: fn(i64) -> i64) {
    let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
    for (name, rows) in [("big", 100_000), ("small", 50_000)] {
        let keys = Int64Array::from_iter_values((0..rows).map(key));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(keys)]).unwrap();
        let table = MemTable::try_new(Arc::clone(&schema), vec![vec![batch]]).unwrap();
        context.register_table(name, Arc::new(table)).unwrap();
    }
}

/// The small side is charged, and so are groups.
#[tokio::test]
async fn memory_is_charged() {
    let sql = "SELECT s.k, count(*) FROM big b JOIN small s ON b.k = s.k GROUP BY s.k";
    for (memory, is_enough) in [(1 << 20, false), (1 << 28, true)] {
        let context = context(true, 1, memory);
        register_sides(&context, |row| row);
        let answer = context.sql(sql).await.unwrap().collect().await;
        let pool = &context.runtime_env().memory_pool;
        match (is_enough, answer) {
            (true, Ok(batches)) => {
                assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 50_000);
            }
            (false, Err(error)) => assert!(error.to_string().contains("GroupedJoin"), "{error}"),
            (_, other) => panic!("{memory}: {other:?}"),
        }
        assert_eq!(pool.reserved(), 0);
    }
}

/// Rows that many rows of the small side equal are added in turns.
#[tokio::test(flavor = "multi_thread")]
async fn many_rows_of_one_key_can_be_stopped() {
    let context = context(true, 1, 1 << 30);
    register_sides(&context, |_| 7);
    let sql = "SELECT s.k, count(*) FROM big b JOIN small s ON b.k = s.k GROUP BY s.k";
    let query = context.sql(sql).await.unwrap();
    let query = tokio::spawn(query.collect());
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    query.abort();
    let begin = std::time::Instant::now();
    assert!(query.await.unwrap_err().is_cancelled());
    assert!(begin.elapsed() < std::time::Duration::from_secs(5));
}
