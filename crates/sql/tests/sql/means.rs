//! Means of whole numbers, which must not depend on where the rows are: what is large cancels out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Float64Type;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_storage::Target;

use crate::TestDb;
use crate::compare::cascade;

const TABLE: &str =
    "CREATE TABLE t (time TIMESTAMP, k TEXT, v BIGINT, u BIGINT UNSIGNED, PRIMARY KEY (k, time))";
const KEYS: [&str; 3] = ["a", "b", "c"];

/// The whole numbers of each key.
type Model = BTreeMap<&'static str, Vec<(i128, i128)>>;

async fn write(test_db: &TestDb, rng: &mut SmallRng, model: &mut Model, first_s: i64) {
    let mut sql = "INSERT INTO t VALUES ".to_owned();
    for at in 0..400 {
        let key = KEYS[rng.random_range(0..KEYS.len())];
        let near = 1_i64 << rng.random_range(50..63);
        let v = rng.random_range(-9..9) + if rng.random() { near } else { -near };
        let u = rng.random::<u64>();
        let comma = if at > 0 { ", " } else { "" };
        let time_s = first_s + at * 1_000;
        write!(sql, "{comma}(to_timestamp({time_s}), '{key}', {v}, {u})").expect("a text");
        // The readings that come to next to nothing.
        write!(sql, ", (to_timestamp({}), '{key}', {}, {u})", time_s + 1, -v).expect("a text");
        let rows = model.entry(key).or_default();
        rows.extend([(v.into(), u.into()), (-i128::from(v), u.into())]);
        let rest = rng.random_range(-9..9);
        write!(sql, ", (to_timestamp({}), '{key}', {rest}, 0)", time_s + 2).expect("a text");
        rows.push((rest.into(), 0));
    }
    test_db.text(&sql).await;
}

fn mean(values: impl Iterator<Item = i128>) -> f64 {
    let (count, sum) = values.fold((0, 0), |(count, sum), value| (count + 1, sum + value));
    sum as f64 / f64::from(count)
}

async fn check(test_db: &TestDb, model: &Model, place: &str) {
    let plain = test_db.session.fork();
    plain.collect("SET tidefall.metrics = off").await.expect("a setting");
    let distinct = |rows: &[(i128, i128)]| {
        let values: BTreeSet<i128> = rows.iter().map(|row| row.0).collect();
        mean(values.into_iter())
    };
    let expected: Vec<[f64; 3]> = model
        .values()
        .map(|rows| {
            [mean(rows.iter().map(|row| row.0)), mean(rows.iter().map(|row| row.1)), distinct(rows)]
        })
        .collect();
    let questions = [
        "SELECT avg(v), avg(u) FROM t GROUP BY k ORDER BY k",
        "SELECT avg(v) FILTER (WHERE v IS NOT NULL), avg(u), avg(DISTINCT v) FROM t GROUP BY k ORDER BY k",
        "SELECT DISTINCT ON (k) avg(v) OVER w, avg(u) OVER w FROM t WINDOW w AS (PARTITION BY k ORDER BY time \
         ROWS BETWEEN 1000000 PRECEDING AND 1000000 FOLLOWING) ORDER BY k",
        "SELECT avg(v), avg(u), avg(DISTINCT v) FROM (SELECT * FROM t ORDER BY v) GROUP BY k ORDER BY k",
    ];
    for (session, name) in [(&test_db.session, "metrics"), (&plain, "rows")] {
        for sql in questions {
            let found = session.collect(sql).await.expect(sql);
            let rows: Vec<Vec<f64>> = found
                .iter()
                .flat_map(|batch| {
                    let columns = batch.columns().iter();
                    let columns: Vec<_> =
                        columns.map(|column| column.as_primitive::<Float64Type>()).collect();
                    (0..batch.num_rows())
                        .map(move |row| columns.iter().map(|column| column.value(row)).collect())
                })
                .collect();
            let expected: Vec<Vec<f64>> =
                expected.iter().zip(&rows).map(|(all, row)| all[..row.len()].to_vec()).collect();
            assert_eq!(rows, expected, "{place}, {name}: {sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn means_of_whole_numbers_are_exact_in_every_placement() {
    let mut rng = SmallRng::seed_from_u64(53);
    let (test_db, mut model) = (TestDb::new(), Model::new());
    test_db.text(TABLE).await;
    write(&test_db, &mut rng, &mut model, 1_704_067_200).await;
    check(&test_db, &model, "kv").await;
    cascade(&test_db, Target::Short);
    check(&test_db, &model, "short").await;
    write(&test_db, &mut rng, &mut model, 1_704_067_203).await;
    check(&test_db, &model, "short and kv").await;
    cascade(&test_db, Target::Long);
    check(&test_db, &model, "long").await;
    write(&test_db, &mut rng, &mut model, 1_704_067_206).await;
    check(&test_db, &model, "long and kv").await;
}
