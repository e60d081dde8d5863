//! Sorts of more rows than queries have memory for.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use tidefall_storage::Target;

use crate::TestDb;
use crate::compare::cascade;

/// Rows that take about three times the memory of queries at a budget of 64 MiB.
const ROWS: i64 = 800_000;

const KEYS: [&str; 6] = ["v", "k, v", "v DESC, k", "s, v", "-v", "k DESC, s DESC, v DESC"];

async fn check(test_db: &TestDb, keys: &str) {
    let rows = format!(
        "(SELECT value * 7919 % {ROWS} AS v, value * 31 % 1000 AS k, 'text ' || (value % 77) AS s \
         FROM generate_series(1, {ROWS}))"
    );
    let batches = test_db.run(&format!("SELECT v, k, s FROM {rows} ORDER BY {keys}")).await;
    let batches = batches.unwrap_or_else(|error| panic!("ORDER BY {keys}: {error}"));
    let mut values: Vec<i64> = Vec::with_capacity(ROWS as usize);
    for batch in &batches {
        values.extend(batch.column(0).as_primitive::<Int64Type>().values());
    }
    match keys {
        "v" => assert!(values.iter().copied().eq(0..ROWS)),
        "-v" => assert!(values.iter().copied().eq((0..ROWS).rev())),
        _ => {
            values.sort_unstable();
            assert!(values.iter().copied().eq(0..ROWS), "{keys}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sorts_of_more_than_the_memory_do_not_fail() {
    let test_db = TestDb::with_memory(64 << 20);
    for keys in KEYS {
        check(&test_db, keys).await;
    }
    futures::future::join_all(KEYS.map(|keys| check(&test_db, keys))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_of_many_rows_is_a_sort() {
    let test_db = TestDb::with_memory(64 << 20);
    let sql =
        "SELECT value AS v FROM generate_series(1, 400000) ORDER BY v DESC LIMIT 3 OFFSET 300000";
    assert_eq!(test_db.text(sql).await, "100000\n99999\n99998");
    let plan = test_db.plan(sql).await;
    assert!(
        plan.contains("SortExec: by=[value@0 DESC]") && plan.contains("fetch=300003"),
        "{plan}"
    );
}

/// What a join looks for is not looked for below a sort that keeps some rows: others would be kept.
#[tokio::test(flavor = "multi_thread")]
async fn filters_of_joins_stay_above_sorts_that_keep_some_rows() {
    let test_db = TestDb::with_memory(64 << 20);
    test_db.text("CREATE TABLE t (time TIMESTAMP, v BIGINT, PRIMARY KEY (time))").await;
    test_db
        .text("INSERT INTO t SELECT to_timestamp(value), value FROM generate_series(1, 60000)")
        .await;
    // Blocks with metrics, by which rows are left out.
    cascade(&test_db, Target::Long);
    for kept in [100, 40_000] {
        let first = format!("SELECT v FROM t ORDER BY -v DESC LIMIT {kept}");
        let sql =
            format!("SELECT s.v FROM ({first}) s JOIN (VALUES (49999), (50000)) w(x) ON s.v = w.x");
        assert_eq!(test_db.text(&sql).await, "", "{kept}: {}", test_db.plan(&sql).await);
    }
}

/// Each value of a list was kept with all its keys, and none of them could go to the disk: 60,000 rows were refused.
#[tokio::test(flavor = "multi_thread")]
async fn lists_of_groups_in_an_order_need_no_more_memory_than_they_have() {
    let test_db = TestDb::with_memory(64 << 20);
    let rows = "SELECT value AS v, value % 10 AS g FROM generate_series(1, 600000)";
    let lists = [
        format!("SELECT g, array_agg(v) AS l FROM ({rows} ORDER BY v % 7, v) GROUP BY g"),
        format!("SELECT g, array_agg(v ORDER BY v % 7, v) AS l FROM ({rows}) GROUP BY g"),
    ];
    for lists in lists {
        let ends = format!(
            "SELECT count(*), sum(cardinality(l)), sum(l[1]), sum(l[60000]) FROM ({lists})"
        );
        // Of each group the first is the least multiple of 7, and the last the greatest number with 6 left over.
        assert_eq!(test_db.text(&ends).await, "10 600000 385 5999655");
    }
}

/// Groups that go to the disk come back in any order, and with them the rows of a sorted subquery.
#[tokio::test(flavor = "multi_thread")]
async fn groups_beyond_the_memory_collect_rows_in_the_order_of_the_subquery() {
    let test_db = TestDb::with_memory(64 << 20);
    let rows = "(SELECT value * 7919 % 100000 AS k, value * 2654435761 % 1099511627776 AS r \
                FROM generate_series(1, 600000) ORDER BY r)";
    let ends = format!("SELECT k, first_value(r) AS s, last_value(r) AS l FROM {rows} GROUP BY k");
    let wrong = format!("SELECT count(*), count(*) FILTER (WHERE s >= l) FROM ({ends})");
    assert_eq!(test_db.text(&wrong).await, "100000 0");
    let first = format!("SELECT sum(r) FROM (SELECT DISTINCT ON (k) k, r FROM {rows})");
    let least = format!("SELECT sum(r) FROM (SELECT min(r) AS r FROM {rows} GROUP BY k)");
    assert_eq!(test_db.text(&first).await, test_db.text(&least).await);
}

/// Some hundred rows were kept in memory, each taken for a short one: 60 MB of texts were refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_few_rows_of_long_texts_are_a_sort() {
    let test_db = TestDb::with_memory(64 << 20);
    test_db.text("CREATE TABLE l (time TIMESTAMP, v BIGINT, t TEXT, PRIMARY KEY (time))").await;
    for rows in ["1, 200", "201, 400", "401, 600"] {
        let texts = format!(
            "INSERT INTO l SELECT to_timestamp(value), value * 7 % 601, repeat(chr((97 + value % 26)::INT), 100000) \
             FROM generate_series({rows})"
        );
        test_db.text(&texts).await;
    }
    for (keys, first) in [("v DESC, time", "600 100000"), ("time DESC", "594 100000")] {
        let sql = format!(
            "SELECT first_value(v), min(length(t)), count(*) FROM (SELECT * FROM l ORDER BY {keys} LIMIT 300)"
        );
        assert_eq!(test_db.text(&sql).await, format!("{first} 300"), "{keys}");
    }
}
