//! Windows: right over many batches, in time, stopped when nobody waits, and within the memory of queries.

use std::time::{Duration, Instant};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_types::ErrorKind;

use crate::TestDb;
use crate::limits::{refused, table};

/// Rows of some batches; of `k` there are five, and of `x` some are missing.
const ROWS: &str = "(SELECT value AS i, value * 7919 % 5 AS k, \
                    CASE WHEN value * 7907 % 11 < 5 OR value BETWEEN 9000 AND 12000 THEN NULL ELSE value * 3 END AS x \
                    FROM generate_series(1, 30000))";

async fn numbers(test_db: &TestDb, sql: &str) -> Vec<Option<i64>> {
    let batches = test_db.run(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let mut numbers = Vec::new();
    for batch in &batches {
        numbers.extend(batch.column(0).as_primitive::<Int64Type>().iter());
    }
    numbers
}

/// The rows of [`ROWS`], each part by itself.
fn parts() -> Vec<Vec<(i64, Option<i64>)>> {
    let mut parts = vec![Vec::new(); 5];
    for i in 1..=30_000_i64 {
        let is_missing = i * 7907 % 11 < 5 || (9000..=12000).contains(&i);
        parts[(i * 7919 % 5) as usize].push((i, (!is_missing).then_some(i * 3)));
    }
    parts
}

/// What `lag` answers.
fn shifted(
    part: &[(i64, Option<i64>)],
    back: i64,
    ignore_nulls: bool,
    default: Option<i64>,
) -> Vec<(i64, Option<i64>)> {
    let found = |at: usize| {
        if back == 0 {
            return part[at].1;
        }
        let is_counted = |row: &&(i64, Option<i64>)| !ignore_nulls || row.1.is_some();
        let nth = back.unsigned_abs() as usize - 1;
        let found = match back > 0 {
            true => part[..at].iter().rev().filter(is_counted).nth(nth),
            false => part[at + 1..].iter().filter(is_counted).nth(nth),
        };
        found.map_or(default, |row| row.1)
    };
    (0..part.len()).map(|at| (part[at].0, found(at))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_before_and_behind_are_found_over_many_batches() {
    let test_db = table().await;
    let mut random = SmallRng::seed_from_u64(11);
    for round in 0..40 {
        let name = ["lag", "lead"][round % 2];
        let offset = [0, 1, -1, 2, 3, -4, 100, -900, 40_000][random.random_range(0..9_usize)];
        let ignore_nulls = random.random_range(0..3_u8) > 0;
        let default = [None, Some(-7)][random.random_range(0..2_usize)];
        let of = default.map_or(String::new(), |default: i64| format!(", {default}"));
        let nulls = if ignore_nulls { "IGNORE NULLS" } else { "" };
        let by = [("PARTITION BY k ORDER BY i", 5), ("ORDER BY i", 1), ("ORDER BY i DESC", 1)];
        let (by, count) = by[random.random_range(0..3_usize)];
        let sql = format!(
            "SELECT {name}(x, {offset}{of}) {nulls} OVER ({by}) AS y FROM {ROWS} ORDER BY i"
        );
        let mut parts = parts();
        if count == 1 {
            parts = vec![parts.concat()];
            parts[0].sort();
        }
        let is_back = (name == "lag") != by.ends_with("DESC");
        let back = if is_back { offset } else { -offset };
        let mut expected: Vec<_> =
            parts.iter().flat_map(|part| shifted(part, back, ignore_nulls, default)).collect();
        expected.sort();
        let expected: Vec<_> = expected.into_iter().map(|row| row.1).collect();
        assert!(numbers(&test_db, &sql).await == expected, "{sql}");
    }
    // Rows that come behind the last one that is asked for.
    for call in ["lag(i, -5)", "lead(i, 5)"] {
        let sql = format!("SELECT {call} OVER (ORDER BY i) FROM {ROWS} ORDER BY i LIMIT 3");
        assert_eq!(numbers(&test_db, &sql).await, [Some(6), Some(7), Some(8)], "{call}");
    }
    let sql =
        format!("SELECT count(y) FROM (SELECT lag(i, NULL, 4) OVER (ORDER BY i) AS y FROM {ROWS})");
    assert_eq!(test_db.text(&sql).await, "0");
    let sql = format!("SELECT lag(x, i) OVER (ORDER BY i) FROM {ROWS}");
    let message = refused(&test_db, &sql, ErrorKind::Invalid).await;
    assert!(message.contains("constant"), "{message}");
}

/// The bounds of windows as they are written, and the rows that they mean.
type Frame = (&'static str, fn(usize) -> (usize, usize));

#[tokio::test(flavor = "multi_thread")]
async fn values_that_are_there_are_found_over_many_batches() {
    let test_db = table().await;
    let mut all = parts().concat();
    all.sort();
    let frames: [Frame; 4] = [
        ("ROWS UNBOUNDED PRECEDING", |row| (0, row + 1)),
        ("ROWS BETWEEN UNBOUNDED PRECEDING AND 3 PRECEDING", |row| {
            (0, (row + 1).saturating_sub(3))
        }),
        ("ROWS BETWEEN 1000 PRECEDING AND 5 FOLLOWING", |row| (row.saturating_sub(1000), row + 6)),
        ("ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", |row| (row, usize::MAX)),
    ];
    for (frame, bounds) in frames {
        for (call, nth) in [
            ("first_value(x)", 1),
            ("last_value(x)", -1),
            ("nth_value(x, 7)", 7),
            ("nth_value(x, -3)", -3),
        ] {
            let sql = format!(
                "SELECT {call} IGNORE NULLS OVER (ORDER BY i {frame}) AS y FROM {ROWS} ORDER BY i"
            );
            let expected: Vec<_> = (0..all.len())
                .map(|row| {
                    let (start, end) = bounds(row);
                    let window = &all[start..end.min(all.len())];
                    let mut values = window.iter().filter_map(|row| row.1);
                    if nth > 0 {
                        values.nth(nth as usize - 1)
                    } else {
                        values.nth_back((-nth) as usize - 1)
                    }
                })
                .collect();
            assert!(numbers(&test_db, &sql).await == expected, "{sql}");
            // Beside another function that keeps rows.
            let beside =
                sql.replace(" AS y", &format!(" AS y, max(i) OVER (ORDER BY i {frame}) AS z"));
            assert!(numbers(&test_db, &beside).await == expected, "{beside}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_grows_takes_the_time_of_its_rows() {
    let test_db = table().await;
    let rows = "(SELECT value AS i, to_timestamp(value) AS t, CASE WHEN value < 990000 THEN NULL ELSE value END AS x, \
                value % 1000 AS c FROM generate_series(1, 1000000))";
    for (call, expected) in [
        ("max(locf(x) OVER (ORDER BY t))", "1000000"),
        (
            "max(last_value(x) IGNORE NULLS OVER (ORDER BY t ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING))",
            "1000000",
        ),
        ("max(first_value(x) IGNORE NULLS OVER (ORDER BY t))", "990000"),
        ("max(nth_value(x, 2) IGNORE NULLS OVER (ORDER BY t))", "990001"),
        ("max(interpolate(x, t) OVER (ORDER BY t))", "1000000.0"),
        ("max(increase(c, t) OVER (ORDER BY t))", "998999.0"),
        ("max(increase(c, t) OVER (ORDER BY t DESC))", "998999.0"),
        ("max(increase(c, t) OVER (ORDER BY t ROWS 100000 PRECEDING))", "99900.0"),
        ("max(rate(c::DOUBLE, t) OVER (ORDER BY t))", "1.0"),
    ] {
        let (function, of) = call.split_once('(').expect("a call");
        let of = &of[..of.len() - 1];
        let begin = Instant::now();
        let sql = format!("SELECT {function}(y) FROM (SELECT {of} AS y FROM {rows})");
        assert_eq!(test_db.text(&sql).await, expected, "{call}");
        assert!(begin.elapsed() < Duration::from_secs(40), "{call}: {:?}", begin.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_keep_whole_numbers() {
    let test_db = table().await;
    for (values, expected) in [
        ("(1, 9007199254740993), (2, 9007199254740996)", "3.0 3.0"),
        ("(1, 9223372036854775800), (2, 9223372036854775807), (3, 5)", "12.0 6.0"),
    ] {
        let rows = format!("(SELECT to_timestamp(a) AS t, b FROM (VALUES {values}) v(a, b))");
        let sql = format!("SELECT increase(b, t), rate(b, t) FROM {rows}");
        assert_eq!(test_db.text(&sql).await, expected);
        let sql = format!(
            "SELECT increase(b, t) OVER (ORDER BY t), rate(b, t) OVER (ORDER BY t) FROM {rows} ORDER BY t DESC LIMIT 1"
        );
        assert_eq!(test_db.text(&sql).await, expected);
    }
}

/// Each of these would take minutes; a count of what is different, the fastest of them, two.
#[test]
fn windows_end_when_nobody_waits() {
    for call in [
        "median(x) OVER (ORDER BY i)",
        "percentile(x, 0.9) OVER (ORDER BY i)",
        "percentile(x, 0.9) OVER (ORDER BY i ROWS 200000 PRECEDING)",
        "bit_and(i) OVER (ORDER BY i ROWS 200000 PRECEDING)",
        "count(DISTINCT x) OVER (ORDER BY i ROWS 200000 PRECEDING)",
        "approx_distinct(i) OVER (ORDER BY i ROWS 300000 PRECEDING)",
        "histogram(x, 0, 1, 20000) OVER (ORDER BY i)",
    ] {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
        let begin = Instant::now();
        runtime.block_on(async {
            let test_db = table().await;
            let rows = "(SELECT value AS i, (value * 7919 % 1000003)::DOUBLE AS x FROM generate_series(1, 200000000))";
            let sql = format!("SELECT count(y) FROM (SELECT {call} AS y FROM {rows})");
            let outcome = tokio::time::timeout(Duration::from_millis(1500), test_db.run(&sql)).await;
            match outcome {
                Ok(Ok(_)) => panic!("{call} is too fast for this test"),
                Ok(Err(error)) => assert_eq!(error.kind(), ErrorKind::Limit, "{call}: {error}"),
                Err(_) => {}
            }
        });
        // It waits for whatever still computes.
        drop(runtime);
        assert!(begin.elapsed() < Duration::from_secs(15), "{call}: {:?}", begin.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_stay_within_the_memory_of_queries() {
    let test_db = TestDb::with_memory(64 << 20);
    let rows = "(SELECT value AS i, value % 3 AS k, 'text of some length ' || value AS s FROM generate_series(1, 1000000))";
    for call in [
        // Rows of a whole partition.
        "lead(s) IGNORE NULLS OVER (ORDER BY i)",
        "count(*) OVER (PARTITION BY k)",
        "sum(i) OVER (ORDER BY i ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
        // Rows that wait for others.
        "lead(s, 900000) OVER (ORDER BY i)",
        "min(s) OVER (ORDER BY i ROWS 900000 PRECEDING)",
        "max(i) OVER (ORDER BY i RANGE BETWEEN 900000 PRECEDING AND CURRENT ROW)",
        // What is gathered, and what is answered.
        "array_agg(s) OVER (ORDER BY i)",
        "string_agg(s, ',') OVER (ORDER BY i)",
        "array_agg(i) OVER (ORDER BY i ROWS 1000 PRECEDING)",
        "median(i::DOUBLE) OVER ()",
        "histogram(i, 0, 10, 100000) OVER (ORDER BY i)",
        "count(DISTINCT s) OVER (ORDER BY i)",
    ] {
        let sql = format!(
            "SELECT count(y), max(length(z)) FROM (SELECT {call} AS y, s AS z FROM {rows})"
        );
        let message = refused(&test_db, &sql, ErrorKind::Limit).await;
        let is_named =
            message.contains("--memory") || message.contains("bytes for the rows of one window");
        assert!(is_named, "{call}: {message}");
    }
    // What needs little has it, however many rows there are.
    for (call, expected) in [
        ("lag(s) OVER (ORDER BY i)", "999999 27"),
        ("row_number() OVER (ORDER BY i)", "1000000 27"),
        ("sum(i) OVER (ORDER BY i ROWS 1000 PRECEDING)", "1000000 27"),
        ("locf(s) OVER (ORDER BY i)", "1000000 27"),
        ("max(s) OVER (ORDER BY i)", "1000000 27"),
        ("increase(i, to_timestamp(i)) OVER (ORDER BY i ROWS 1000 PRECEDING)", "999999 27"),
    ] {
        let sql = format!(
            "SELECT count(y), max(length(z)) FROM (SELECT {call} AS y, s AS z FROM {rows})"
        );
        assert_eq!(test_db.text(&sql).await, expected, "{call}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_may_be_larger_than_any_partition() {
    let test_db = table().await;
    for rows in ["9223372036854775807", "9223372036854775808", "18446744073709551615"] {
        for units in ["ROWS", "GROUPS"] {
            for (frame, expected) in [
                (format!("{rows} PRECEDING AND {rows} FOLLOWING"), "6 6 6"),
                (format!("{rows} PRECEDING AND CURRENT ROW"), "1 3 6"),
                (format!("CURRENT ROW AND {rows} FOLLOWING"), "6 5 3"),
                (format!("{rows} PRECEDING AND {rows} PRECEDING"), "NULL NULL NULL"),
                (format!("{rows} FOLLOWING AND {rows} FOLLOWING"), "NULL NULL NULL"),
            ] {
                let sql = format!(
                    "SELECT sum(value) OVER (ORDER BY value {units} BETWEEN {frame}) FROM generate_series(1, 3) ORDER BY value"
                );
                assert_eq!(test_db.text(&sql).await.replace('\n', " "), expected, "{sql}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_in_arguments_are_bounded() {
    let test_db = table().await;
    for count in ["10001", "1000000000000000", "1152921504606846976", "9223372036854775807"] {
        for call in [
            format!("approx_percentile_cont(v, 0.5, {count})"),
            format!("approx_percentile_cont(0.5, {count}) WITHIN GROUP (ORDER BY v)"),
            format!("approx_percentile_cont_with_weight(v, v, 0.5, {count})"),
            format!(
                "approx_percentile_cont_with_weight(v, 0.5, {count}) WITHIN GROUP (ORDER BY v)"
            ),
        ] {
            for sql in
                [format!("SELECT {call} FROM t"), format!("SELECT a, {call} FROM t GROUP BY a")]
            {
                if let Err(error) = test_db.run(&sql).await {
                    let kind = error.kind();
                    assert!(
                        matches!(kind, ErrorKind::Limit | ErrorKind::Invalid),
                        "{sql}: {error}"
                    );
                    assert!(
                        kind == ErrorKind::Invalid || error.message().contains("10000"),
                        "{error}"
                    );
                } else {
                    panic!("{sql} was taken");
                }
            }
        }
    }
    assert_eq!(test_db.text("SELECT approx_percentile_cont(v, 0.5, 10000) FROM t").await, "2.0");
    for (call, expected) in [
        ("ntile(1000000000000000000)", "1 2"),
        ("ntile(9223372036854775807)", "1 2"),
        ("nth_value(v, 9223372036854775807)", "NULL NULL"),
        ("nth_value(v, -9223372036854775807)", "NULL NULL"),
        ("nth_value(v, 9223372036854775807) IGNORE NULLS", "NULL NULL"),
        ("lag(v, 9223372036854775807)", "NULL NULL"),
        ("lead(v, 9223372036854775807)", "NULL NULL"),
        ("lead(v, -9223372036854775808)", "NULL NULL"),
        ("lag(v, -9223372036854775808) IGNORE NULLS", "NULL NULL"),
    ] {
        let sql = format!("SELECT {call} OVER (ORDER BY v) FROM t ORDER BY v");
        assert_eq!(test_db.text(&sql).await.replace('\n', " "), expected, "{call}");
        let sql = format!(
            "SELECT {call} OVER (ORDER BY v), {call} OVER (ORDER BY v, x) FROM t ORDER BY v LIMIT 1"
        );
        test_db.text(&sql).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn histograms_have_constant_bounds_and_no_more_than_fits() {
    let test_db = table().await;
    for call in [
        "histogram(v, v, 10, 5)",
        "histogram(v, 0, v + 10, 5)",
        "histogram(v, 0, 10, v::BIGINT)",
        "histogram(v, 0, 10, 1048577)",
        "histogram(v, 0, 10, 9223372036854775807)",
        "histogram(v, 0, 10, 0)",
        "histogram(v, 0, 10, -1)",
        "histogram(v, NULL, 10, 5)",
        "histogram(v, 0, 10, NULL)",
        "histogram(v, 'NaN'::DOUBLE, 10, 5)",
    ] {
        for sql in [
            format!("SELECT {call} FROM t"),
            format!("SELECT a, {call} FROM t GROUP BY a"),
            format!("SELECT {call} OVER (ORDER BY v) FROM t"),
        ] {
            refused(&test_db, &sql, ErrorKind::Invalid).await;
        }
    }
    let rows =
        "(SELECT value % 1000 AS k, (value % 7)::DOUBLE AS v FROM generate_series(1, 100000))";
    let sql = format!("SELECT k, histogram(v, 0, 7, 1048576) FROM {rows} GROUP BY k");
    refused(&test_db, &sql, ErrorKind::Limit).await;
    let sql = format!(
        "SELECT count(*), min(array_to_string(h, ' ')), max(array_to_string(h, ' ')) FROM (SELECT k, histogram(v, 1, 6, 5) AS h FROM {rows} GROUP BY k)"
    );
    assert_eq!(test_db.text(&sql).await, "1000 14 14 14 14 14 15 15 15 15 14 14 14 14 14");
    let sql = format!(
        "SELECT histogram(v, 1, 6, 5) OVER (ORDER BY k ROWS 2 PRECEDING) FROM {rows} ORDER BY k LIMIT 1"
    );
    assert!(test_db.text(&sql).await.contains('1'));
    assert_eq!(
        test_db
            .text(
                "SELECT a, histogram(v, 0, 2, 1) FILTER (WHERE v > 2) FROM t GROUP BY a ORDER BY a"
            )
            .await,
        "x NULL\ny [0, 0, 1]"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn joined_texts_are_bounded() {
    let test_db = table().await;
    let long = "(SELECT repeat(x, 4000000) AS a, x FROM t)";
    let sql = format!("SELECT length(a || a || a || a || a) FROM {long}");
    let message = refused(&test_db, &sql, ErrorKind::Limit).await;
    assert!(message.contains("||") || message.contains("--memory"), "{message}");
    let sql = format!("SELECT max(length(a || a || a || a || a || a)) FROM {long}");
    refused(&test_db, &sql, ErrorKind::Limit).await;
    for (expr, expected) in [
        ("'a' || 'b'", "ab"),
        ("'a' || NULL", "NULL"),
        ("a || x || 1", "xaaaa1"),
        ("x || NULL::TEXT", "NULL"),
        ("x || v", "aaaa1.5"),
        ("length(a || repeat(x, 1000000))", "4000001"),
        ("[1] || [2]", "[1, 2]"),
        ("arrow_typeof(x || a)", "Utf8"),
    ] {
        let sql = format!("SELECT {expr} FROM t WHERE a || 'z' = 'xz'");
        assert_eq!(test_db.text(&sql).await, expected, "{expr}");
    }
}

/// Each row of the left side meets one that is far from the others.
#[tokio::test(flavor = "multi_thread")]
async fn nearest_rows_may_be_far_from_each_other() {
    let test_db = TestDb::with_memory(256 << 20);
    let right = "(SELECT to_timestamp(value) AS time, 1 AS k, value AS n, repeat('x', 600) || value AS long FROM generate_series(1, 100000))";
    let left = "(SELECT to_timestamp(value * 97) AS time, 1 AS k, value AS m FROM generate_series(1, 1000))";
    let sql = format!(
        "SELECT count(*), sum(n), max(length(long)), sum(m) FROM {left} l ASOF JOIN {right} r MATCH_CONDITION (l.time >= r.time) ON l.k = r.k"
    );
    assert_eq!(test_db.text(&sql).await, "1000 48548500 605 500500");
}
