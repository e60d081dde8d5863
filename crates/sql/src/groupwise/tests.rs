//! Held against the same plans without the rule.

use datafusion::arrow::array::{Float64Array, Int64Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::MemTable;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{SessionConfig, SessionContext, col};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::sort::BoundedSorts;
use crate::testing::{self, shown};

/// Rows ordered by `k` and `s`, in batches of any size, of which some are empty.
fn batches(random: &mut SmallRng, schema: &SchemaRef) -> Vec<RecordBatch> {
    let (groups, texts) = (random.random_range(1..40), random.random_range(1..4));
    let mut keys: Vec<(Option<i64>, String)> = (0..random.random_range(0..600))
        .map(|_| {
            let key = random.random_range(0..groups);
            ((key > 0).then_some(key), format!("s{}", random.random_range(0..texts)))
        })
        .collect();
    keys.sort_by_key(|(key, text)| (key.is_none(), *key, text.clone()));
    let mut batches = Vec::new();
    let mut rest = keys.as_slice();
    while !rest.is_empty() {
        let (part, left) = rest.split_at(random.random_range(0..=rest.len().min(90)));
        rest = left;
        let values = part.iter().map(|_| match random.random_range(0..9_u8) {
            0 => None,
            1 => Some(f64::NAN),
            other => Some(f64::from(other) - 4.0),
        });
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter(part.iter().map(|(key, _)| *key))),
            Arc::new(StringArray::from_iter_values(part.iter().map(|(_, text)| text))),
            Arc::new(Float64Array::from_iter(values)),
        ];
        batches.push(RecordBatch::try_new(Arc::clone(schema), columns).unwrap());
    }
    batches
}

fn context(rule: Option<Groupwise>, memory: usize) -> SessionContext {
    let mut rules = PhysicalOptimizer::new().rules;
    if let Some(rule) = rule {
        rules.push(Arc::new(BoundedSorts { query_bytes: memory }));
        rules.push(Arc::new(rule));
    }
    // Partitions stay as they are, and with them the order.
    let config = SessionConfig::new()
        .with_target_partitions(1)
        .with_batch_size(64)
        .with_round_robin_repartition(false)
        .with_sort_spill_reservation_bytes(1 << 16);
    testing::context(config, Arc::new(GreedyMemoryPool::new(memory)), rules)
}

fn table(schema: &SchemaRef, partitions: Vec<Vec<RecordBatch>>) -> Arc<MemTable> {
    let order = vec![col("k").sort(true, false), col("s").sort(true, false)];
    let table = MemTable::try_new(Arc::clone(schema), partitions).unwrap();
    Arc::new(table.with_sort_order(vec![order]))
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("s", DataType::Utf8, false),
        Field::new("v", DataType::Float64, true),
    ]))
}

#[tokio::test]
async fn answers_are_those_of_one_run_over_all_rows() {
    let mut random = SmallRng::seed_from_u64(7);
    let schema = schema();
    for round in 0..40 {
        let partitions: Vec<_> =
            (0..random.random_range(1..3)).map(|_| batches(&mut random, &schema)).collect();
        let rows = [1, 7, 50, 1_000][round % 4];
        let plain = context(None, 1 << 30);
        let groupwise = context(Some(Groupwise { rows, bytes: usize::MAX }), 1 << 30);
        for context in [&plain, &groupwise] {
            context.register_table("t", table(&schema, partitions.clone())).unwrap();
        }
        for (sql, is_groupwise) in [
            ("SELECT k, v, s FROM t ORDER BY k, v, s", true),
            ("SELECT k, v, s FROM t ORDER BY k, s DESC, v DESC", true),
            ("SELECT k, s, v FROM t ORDER BY k, s, v NULLS FIRST", true),
            ("SELECT v, k FROM t ORDER BY v, k", false),
            ("SELECT k, v FROM t ORDER BY k, v LIMIT 9", false),
            (
                "SELECT k, v, s, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM t ORDER BY k, v, s",
                true,
            ),
            (
                "SELECT k, s, v, sum(v) OVER (PARTITION BY k, s) AS x, count(*) OVER (PARTITION BY k, s) AS n, \
                 max(v) OVER (PARTITION BY k) AS m FROM t ORDER BY k, s, v",
                true,
            ),
            ("SELECT v, count(*) OVER () AS n FROM t ORDER BY v, n", true),
        ] {
            assert_eq!(
                shown(&groupwise, sql).await.unwrap(),
                shown(&plain, sql).await.unwrap(),
                "{round}: {sql}"
            );
            let plan = shown(&groupwise, &format!("EXPLAIN {sql}")).await.unwrap();
            assert_eq!(plan.contains("Groupwise"), is_groupwise, "{sql}: {plan}");
        }
    }
}

/// A table of which no more than a few groups have room, and a window over all of it, which has none.
#[tokio::test]
async fn the_memory_of_some_groups_is_enough() {
    let schema = schema();
    let batch = |key: i64| {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![key; 1_000])),
            Arc::new(StringArray::from(vec!["a"; 1_000])),
            Arc::new(Float64Array::from_iter_values((0..1_000).map(|v| f64::from(v % 77)))),
        ];
        RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()
    };
    let batches: Vec<_> = (0..500).map(batch).collect();
    let context = context(Some(Groupwise { rows: 4_000, bytes: usize::MAX }), 1 << 20);
    let table = table(&schema, vec![batches]);
    context.register_table("t", Arc::clone(&table) as _).unwrap();
    let sql = "SELECT count(*), max(d) FROM (SELECT v - avg(v) OVER (PARTITION BY k) AS d FROM t)";
    assert!(shown(&context, sql).await.unwrap().contains("500000"));
    let all = "SELECT count(*), max(d) FROM (SELECT v - avg(v) OVER () AS d FROM t)";
    let error = context.sql(all).await.unwrap().collect().await.unwrap_err();
    assert!(error.to_string().contains("Window[0]"), "{error}");
    // Nor more than a few groups of a sort that keeps more rows than have room.
    let plain = self::context(None, 1 << 30);
    plain.register_table("t", table).unwrap();
    for limit in ["LIMIT 3 OFFSET 400500", "LIMIT 9000", "LIMIT 5 OFFSET 600000", "LIMIT 499999"] {
        let sql = format!("SELECT k, v FROM t ORDER BY k, v DESC {limit}");
        let plan = shown(&context, &format!("EXPLAIN {sql}")).await.unwrap();
        assert!(plan.contains("Groupwise"), "{plan}");
        let (found, expected) = (shown(&context, &sql).await, shown(&plain, &sql).await);
        assert!(found.unwrap() == expected.unwrap(), "{sql}");
    }
}

#[tokio::test]
async fn long_rows_make_short_stretches() {
    let schema = schema();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(0..400)),
        Arc::new(StringArray::from_iter_values((0..400).map(|n| format!("{n:010000}")))),
        Arc::new(Float64Array::from(vec![0.5; 400])),
    ];
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    let parts = (0..40).map(|part| batch.slice(part * 10, 10)).collect();
    let context = context(Some(Groupwise { rows: usize::MAX, bytes: 100_000 }), 1 << 20);
    context.register_table("t", table(&schema, vec![parts])).unwrap();
    let sql =
        "SELECT max(length(s)), max(x) FROM (SELECT s, sum(v) OVER (PARTITION BY k) AS x FROM t)";
    assert!(shown(&context, sql).await.unwrap().contains("| 10000 "));
}
