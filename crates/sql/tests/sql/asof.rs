//! Random as-of joins, compared with a join of everything.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::TestDb;

#[tokio::test(flavor = "multi_thread")]
async fn nearest_rows_are_those_of_a_join_of_everything() {
    for seed in 0..40 {
        let mut rng = StdRng::seed_from_u64(seed);
        let test = TestDb::new();
        for table in ["a", "b"] {
            test.run(&format!(
                "CREATE TABLE {table} (time TIMESTAMP, sensor TEXT, site TEXT, x BIGINT, PRIMARY KEY (sensor, site, time))"
            ))
            .await
            .expect("a table");
            insert(&test, table, &mut rng).await;
        }
        let op = [">=", ">", "<=", "<"][rng.random_range(0..4)];
        let best = if op.starts_with('>') { "max" } else { "min" };
        let keys =
            ["a.sensor = b.sensor", "a.sensor = b.sensor AND b.site = a.site", "a.x % 3 = b.x % 3"];
        let keys = keys[rng.random_range(0..keys.len())];
        let conditions = [
            "true",
            "a.sensor = 's1'",
            "a.time < '2024-01-01 00:01:00'",
            "a.time >= '2024-01-01 00:00:40' AND a.x > 0",
        ];
        let condition = conditions[rng.random_range(0..conditions.len())];
        let found = test
            .text(&format!(
                "SELECT a.sensor, a.site, a.time, b.time FROM a ASOF JOIN b MATCH_CONDITION (a.time {op} b.time) ON {keys} \
                 WHERE {condition} ORDER BY 1, 2, 3"
            ))
            .await;
        let expected = test
            .text(&format!(
                "SELECT a.sensor, a.site, a.time, {best}(b.time) FROM a LEFT JOIN b ON a.time {op} b.time AND {keys} \
                 WHERE {condition} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
            ))
            .await;
        assert_eq!(found, expected, "seed {seed}: {op} {keys} {condition}");
    }
}

/// Some rows, a part of them without a site.
async fn insert(test: &TestDb, table: &str, rng: &mut StdRng) {
    let rows = rng.random_range(0..400);
    let row = |rng: &mut StdRng| {
        let site = if rng.random_bool(0.2) {
            "NULL".to_owned()
        } else {
            format!("'p{}'", rng.random_range(0..2))
        };
        let (seconds, sensor) = (rng.random_range(0..100), rng.random_range(0..4));
        let x = rng.random_range(-9..9);
        format!("('2024-01-01 00:0{}:{:02}', 's{sensor}', {site}, {x})", seconds / 60, seconds % 60)
    };
    let values: Vec<String> = (0..rows).map(|_| row(rng)).collect();
    if !values.is_empty() {
        test.run(&format!("INSERT INTO {table} VALUES {}", values.join(", "))).await.expect("rows");
    }
}

#[tokio::test]
async fn conditions_reach_both_sides() {
    let test = TestDb::new();
    for table in ["a", "b"] {
        let columns = "(time TIMESTAMP, sensor TEXT, x BIGINT, PRIMARY KEY (sensor, time))";
        test.run(&format!("CREATE TABLE {table} {columns}")).await.expect("a table");
    }
    let plan = test
        .plan(
            "SELECT a.x, b.x FROM a ASOF JOIN b MATCH_CONDITION (a.time >= b.time) ON a.sensor = b.sensor \
             WHERE a.sensor = 's1' AND a.time >= '2024-01-02' AND a.time < '2024-01-03'",
        )
        .await;
    let scans: Vec<&str> = plan.lines().filter(|line| line.contains("TidefallScan")).collect();
    assert_eq!(scans.len(), 2, "{plan}");
    assert!(scans.iter().all(|scan| scan.contains("s1") || scan.contains("sensors")), "{plan}");
    assert!(!plan.contains("SortExec"), "both sides are in order already:\n{plan}");
}
