//! Tables of records against the same rows in a table of DataFusion's.

use std::sync::Arc;

use datafusion::arrow::array::{Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_storage::WriteOptions;
use tidefall_types::FieldColumn;

use crate::{TestDb, lines};

const BOXES: usize = 300;

fn any_rows(rng: &mut SmallRng, rows: usize) -> RecordBatch {
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0];
    let x = (0..rows).map(|_| match rng.random_range(0..50) {
        0 => odd[rng.random_range(0..odd.len())],
        _ => rng.random_range(-10..10) as f64 / 2.0,
    });
    let x = Float64Array::from_iter_values(x.collect::<Vec<_>>());
    let n = Int64Array::from_iter_values((0..rows).map(|_| match rng.random_range(0..50) {
        0 => i64::MIN,
        1 => i64::MAX,
        _ => rng.random_range(-20..20),
    }));
    let v = Int64Array::from_iter((0..rows).map(|_| {
        let value = rng.random_range(0..1000);
        (value > 99).then_some(value)
    }));
    let s = StringArray::from_iter((0..rows).map(|_| {
        let letter = rng.random_range(0..4);
        (letter > 0).then(|| ["", "a", "b", "c"][letter])
    }));
    let field = |name: &str, ty, nullable| Field::new(name, ty, nullable);
    let schema = Schema::new(vec![
        field("x", DataType::Float64, false),
        field("n", DataType::Int64, false),
        field("v", DataType::Int64, true),
        field("s", DataType::Utf8, true),
    ]);
    let columns = vec![Arc::new(x) as _, Arc::new(n) as _, Arc::new(v) as _, Arc::new(s) as _];
    RecordBatch::try_new(Arc::new(schema), columns).expect("a batch")
}

/// A condition with sides that are open or closed, in any mix.
fn any_condition(rng: &mut SmallRng) -> String {
    let one = |rng: &mut SmallRng| {
        let op = ["<", "<=", ">", ">=", "=", "<>"][rng.random_range(0..6)];
        match rng.random_range(0..10) {
            0..3 => format!("x {op} {}", rng.random_range(-12..12) as f64 / 2.0),
            3..5 => format!("n {op} {}", rng.random_range(-22..22)),
            5 => format!("n BETWEEN {} AND {}", rng.random_range(-22..5), rng.random_range(-5..22)),
            6 => format!("n IN ({}, {}, 7)", rng.random_range(-22..22), rng.random_range(-22..22)),
            // Beside values of other types the column is cast.
            7 => format!("n {op} {}", rng.random_range(-44..44) as f64 / 2.0),
            8 => {
                let values = (0..5).map(|_| rng.random_range(-22..22).to_string());
                format!("n NOT IN ({})", values.collect::<Vec<_>>().join(", "))
            }
            _ => format!("v {op} {}", rng.random_range(0..1000)),
        }
    };
    let all = |rng: &mut SmallRng| {
        let parts: Vec<String> = (0..rng.random_range(1..4)).map(|_| one(rng)).collect();
        parts.join(" AND ")
    };
    let any: Vec<String> = (0..rng.random_range(1..3)).map(|_| format!("({})", all(rng))).collect();
    any.join(" OR ")
}

#[tokio::test(flavor = "multi_thread")]
async fn boxes_are_answered_as_datafusion_answers_them() {
    let mut rng = SmallRng::seed_from_u64(7);
    let test_db = TestDb::new();
    let create = "CREATE TABLE t (x DOUBLE, n BIGINT, v BIGINT, s TEXT) WITH (model = 'records', index = '(x, n)')";
    test_db.text(create).await;
    let mut batches = Vec::new();
    for rows in [3, 20_000, 700, 1] {
        let batch = any_rows(&mut rng, rows);
        let schema = batch.schema();
        let columns = schema.fields().iter().zip(batch.columns()).map(|(field, values)| {
            FieldColumn { name: field.name().clone(), values: Arc::clone(values) }
        });
        let columns: Vec<FieldColumn> = columns.collect();
        test_db.db.write_records("t", &columns, &WriteOptions::default()).expect("rows");
        batches.push(batch);
        if rows == 700 {
            test_db.db.flush().expect("segments");
        }
    }
    let plain = SessionContext::new();
    let table = MemTable::try_new(batches[0].schema(), vec![batches]).expect("a table");
    plain.register_table("t", Arc::new(table)).expect("a table");
    for _ in 0..BOXES {
        let condition = any_condition(&mut rng);
        for sql in [
            format!(
                "SELECT count(*), count(v), sum(v), min(x), max(n), min(v) FROM t WHERE {condition}"
            ),
            format!(
                "SELECT avg(v), max(x), min(n), count(*) FROM t WHERE {}",
                condition.replace('v', "n")
            ),
            format!("SELECT s, count(*), max(v) FROM t WHERE {condition} GROUP BY s ORDER BY s"),
            format!("SELECT x, n, v, s FROM t WHERE {condition} ORDER BY x, n, v, s LIMIT 20"),
        ] {
            let found = test_db.text(&sql).await;
            let expected = plain.sql(&sql).await.expect("a plan").collect().await.expect("rows");
            assert_eq!(found, lines(&expected).join("\n"), "{sql}");
        }
        let (x, n) = (rng.random_range(-12..12), rng.random_range(-22..22));
        let knn = format!("knn('t', n => {n}, x => ({x}, 2.5))");
        let computed = format!(
            "(SELECT *, CASE WHEN NOT isnan(x) THEN sqrt((n::DOUBLE - {n}) * (n::DOUBLE - {n}) + (x - {x}) / 2.5 * ((x - {x}) / 2.5)) END AS distance FROM t)"
        );
        for question in [
            format!("WHERE {condition} ORDER BY distance, x, n, v, s LIMIT 20"),
            format!("WHERE distance < 1.5 AND ({condition}) ORDER BY x, n, v, s"),
            "ORDER BY distance DESC NULLS LAST, x, n, v, s LIMIT 20".to_owned(),
        ] {
            let ask =
                |from: &str| format!("SELECT x, n, v, s, distance FROM {from} AS k {question}");
            let found = test_db.text(&ask(&knn)).await;
            let expected = plain.sql(&ask(&computed)).await.expect("a plan").collect().await;
            let expected = lines(&expected.expect("rows")).join("\n");
            assert_eq!(found, expected, "{knn} {question}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nearest_are_read_from_the_nearest_leaf_on() {
    let test_db = TestDb::new();
    let create =
        "CREATE TABLE t (x BIGINT, y BIGINT, v BIGINT) WITH (model = 'records', index = '(x, y)')";
    test_db.text(create).await;
    let insert =
        "INSERT INTO t SELECT value % 512, value / 512, value FROM generate_series(0, 262143)";
    test_db.text(insert).await;
    test_db.db.flush().expect("segments");
    let sql = "SELECT v, distance FROM knn('t', x => 100, y => 300) WHERE v <> 7 ORDER BY distance LIMIT 3";
    let plan = test_db.plan(sql).await;
    assert!(plan.contains("nearest first"), "{plan}");
    // A cell for each partition, of 32.
    let analysed = test_db.text(&format!("EXPLAIN ANALYZE {sql}")).await;
    let of_scan = analysed.split_once("TidefallRecords").expect("a scan").1;
    // Such as `16.38 K`.
    let rows = of_scan.split("rows=").nth(1).expect("rows read");
    let (number, unit) =
        rows.split([',', ']']).next().and_then(|text| text.split_once(' ')).expect("a unit");
    let number: f64 = number.parse().expect("a number");
    assert!(unit == "K" && (1.0..50.0).contains(&number), "{analysed}");
    let within =
        test_db.plan("SELECT v FROM knn('t', x => 100, y => 300) WHERE distance < 2").await;
    let all = test_db.plan("SELECT v FROM knn('t', x => 100, y => 300)").await;
    let leaves = |plan: &str| {
        plan.split_once("leaves=").map(|(_, rest)| rest.split(',').next().unwrap_or("").to_owned())
    };
    assert_eq!(leaves(&all).as_deref(), Some("256"));
    assert!(leaves(&within).is_some_and(|leaves| leaves.len() == 1), "{within}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_box_looks_at_few_leaves() {
    let test_db = TestDb::new();
    test_db
        .text("CREATE TABLE t (x BIGINT, y BIGINT) WITH (model = 'records', index = '(x, y)')")
        .await;
    test_db
        .text("INSERT INTO t SELECT value % 512, value / 512 FROM generate_series(0, 262143)")
        .await;
    test_db.db.flush().expect("segments");
    let plan = test_db.plan("SELECT count(*) FROM t WHERE x BETWEEN 100 AND 110 AND y < 20").await;
    assert!(plan.contains("TidefallTotals: table=t, boxes=1"), "{plan}");
    assert!(!plan.contains("FilterExec") && !plan.contains("AggregateExec"), "{plan}");
    let rows = test_db.plan("SELECT x FROM t WHERE x BETWEEN 100 AND 110 AND y < 20").await;
    assert!(rows.contains("TidefallRecords: table=t, boxes=1"), "{rows}");
    assert!(!rows.contains("FilterExec"), "{rows}");
    for of_other_types in ["x < 10.5 AND y <> 1e-3", "x NOT IN (1, 2, 3, 4)", "y > 3"] {
        let plan = test_db.plan(&format!("SELECT count(*) FROM t WHERE {of_other_types}")).await;
        assert!(plan.contains("TidefallTotals") && !plan.contains("FilterExec"), "{plan}");
    }
    let leaves: usize = plan
        .split_once("leaves=")
        .and_then(|(_, rest)| rest.split_once(','))
        .and_then(|(leaves, _)| leaves.parse().ok())
        .expect("a number of leaves");
    assert!((1..=12).contains(&leaves), "{plan}");
    assert_eq!(
        test_db.text("SELECT count(*) FROM t WHERE x BETWEEN 100 AND 110 AND y < 20").await,
        "220"
    );
}
