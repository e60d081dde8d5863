//! What is too large is refused, before it takes the stack, the memory or the time of others. All of it runs on threads
//! with the stack that those of the server have.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use tidefall_types::{ErrorKind, Result};

use crate::TestDb;

/// Within this time everything here is answered, one way or the other, also where many tests run beside each other.
const TIME_MAX: Duration = Duration::from_secs(60);

pub(crate) async fn table() -> TestDb {
    let test_db = TestDb::new();
    test_db
        .text(
            "CREATE TABLE t (time TIMESTAMP, a TEXT, v DOUBLE, x TEXT, PRIMARY KEY (a, time)); \
             INSERT INTO t VALUES ('2024-01-01', 'x', 1.5, 'aaaa'), ('2024-01-01', 'y', 2.5, 'bbbb')",
        )
        .await;
    test_db
}

/// Runs a statement, which must end in time; the first part is how it begins.
async fn in_time(test_db: &TestDb, sql: &str) -> (String, Result<Vec<RecordBatch>>) {
    let start: String = sql.chars().take(120).collect();
    let begin = Instant::now();
    let outcome = tokio::time::timeout(TIME_MAX, test_db.run(sql)).await;
    let outcome = outcome.unwrap_or_else(|_| panic!("{start} did not end"));
    assert!(begin.elapsed() < TIME_MAX, "{start}: {:?}", begin.elapsed());
    (start, outcome)
}

/// Runs a statement; it must fail in time with the kind of error.
pub(crate) async fn refused(test_db: &TestDb, sql: &str, kind: ErrorKind) -> String {
    let (start, outcome) = in_time(test_db, sql).await;
    let error = match outcome {
        Ok(_) => panic!("{start} was taken"),
        Err(error) => error,
    };
    assert_eq!(error.kind(), kind, "{start}: {error}");
    error.message().to_owned()
}

/// Runs a statement; it must be answered, or refused as too large, in time.
async fn survived(test_db: &TestDb, sql: &str) -> bool {
    let (start, outcome) = in_time(test_db, sql).await;
    if let Err(error) = &outcome {
        assert_ne!(error.kind(), ErrorKind::Internal, "{start}: {error}");
    }
    outcome.is_ok()
}

fn repeated(one: &str, count: usize, between: &str) -> String {
    vec![one; count].join(between)
}

/// Expressions of `WITH`, each of which says `query` of the one before.
fn chain(count: usize, query: &str, end: &str) -> String {
    let mut sql = "WITH c0 AS (SELECT v, x FROM t)".to_owned();
    for n in 1..=count {
        sql += &format!(", c{n} AS ({})", query.replace('@', &format!("c{}", n - 1)));
    }
    format!("{sql} {}", end.replace('@', &format!("c{count}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn chained_queries_do_not_overflow_the_stack() {
    let test_db = table().await;
    for (between, taken) in
        [(" UNION ", 400), (" UNION ALL ", 400), (" EXCEPT ", 140), (" INTERSECT ", 140)]
    {
        for query in ["SELECT 1, 2", "SELECT v, x FROM t"] {
            for count in [402, 1_000, 50_000] {
                let sql = repeated(query, count, between);
                refused(&test_db, &sql, ErrorKind::Limit).await;
            }
            assert!(survived(&test_db, &repeated(query, taken, between)).await, "{between}");
            survived(&test_db, &repeated(query, 390, between)).await;
        }
    }
    let joins = |count| format!("SELECT 1 FROM t{}", " JOIN t ON 1 = 1, t".repeat(count));
    refused(&test_db, &joins(50_000), ErrorKind::Limit).await;
    refused(&test_db, &format!("SELECT 1 FROM {}", repeated("t", 50_000, ", ")), ErrorKind::Limit)
        .await;
    let tables = |count: usize| {
        let tables: Vec<_> = (0..count).map(|n| format!("t AS t{n}")).collect();
        tables
    };
    refused(&test_db, &format!("SELECT 1 FROM {}", tables(1_000).join(", ")), ErrorKind::Limit)
        .await;
    let joined = tables(1_000).join(" NATURAL JOIN ");
    refused(&test_db, &format!("SELECT 1 FROM {joined}"), ErrorKind::Limit).await;
    survived(&test_db, &format!("SELECT 1 FROM {} LIMIT 1", tables(300).join(", "))).await;
    let joined = tables(100).join(" NATURAL JOIN ");
    survived(&test_db, &format!("SELECT 1 FROM {joined} LIMIT 1")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_statements_do_not_overflow_the_stack() {
    let test_db = table().await;
    let many = 100_000;
    for (start, again, end) in [
        ("SELECT 1", " + 1", ""),
        ("SELECT ", "NOT ", "true"),
        ("SELECT 1", " = 1", ""),
        ("SELECT 1", " IS NULL", ""),
        ("SELECT 1", " IN (1)", ""),
        ("SELECT 'a'", " LIKE 'a'", ""),
        ("SELECT now()", " AT TIME ZONE 'UTC'", ""),
        ("SELECT 1", "::BIGINT", ""),
        ("SELECT 1::BIGINT", "[]", ""),
        ("SELECT x", "[1]", " FROM t"),
        ("SELECT t", ".x", " FROM t"),
        ("SELECT ", "INTERVAL ", "'1 day'"),
        ("", "EXPLAIN ", "SELECT 1"),
        ("SELECT CAST(1 AS ", "ARRAY<", "INT"),
        ("SELECT CAST(1 AS ", "STRUCT<a INT, b ", "INT"),
        ("SELECT 'a'", " || 'a'", ""),
        ("SELECT 1 WHERE true", " AND true", ""),
        ("SELECT * FROM t", " |> WHERE true", ""),
        ("SELECT 1", " BETWEEN 1 AND 2", ""),
        ("SELECT 'a'", " COLLATE c", ""),
    ] {
        let sql = format!("{start}{}{end}", again.repeat(many));
        refused(&test_db, &sql, ErrorKind::Limit).await;
        survived(&test_db, &format!("{start}{}{end}", again.repeat(190))).await;
    }
    for (open, close) in [
        ("(", ")"),
        ("abs(", ")"),
        ("CASE WHEN true THEN ", " END"),
        ("CASE ", " WHEN 1 THEN 2 END"),
        ("[", "]"),
        ("(SELECT ", ")"),
        ("EXISTS (SELECT ", ")"),
        ("struct(", ")"),
        ("ROW(", ")"),
        ("pow(2, ", ")"),
        ("NOT (", ")"),
        ("ARRAY(SELECT ", ")"),
        ("CAST(", " AS BIGINT)"),
        ("1 + (2 * ", ")"),
        ("{'a': ", "}"),
    ] {
        for count in [45, 49, 1_000, 20_000] {
            let sql = format!("SELECT {}1{}", open.repeat(count), close.repeat(count));
            let is_taken = survived(&test_db, &sql).await;
            assert!(!is_taken || count < 1_000, "{open}: {count} levels were taken");
            let wrong = format!("SELECT {}1 1 1{}", open.repeat(count), close.repeat(count));
            assert!(!survived(&test_db, &wrong).await, "{open}: {wrong}");
        }
    }
    for (open, close) in [("(", ")"), ("(SELECT * FROM ", ") AS q"), ("((SELECT 1) UNION ", ")")] {
        for count in [10, 20, 40, 20_000] {
            let sql = format!("SELECT * FROM {}t{}", open.repeat(count), close.repeat(count));
            survived(&test_db, &sql).await;
        }
    }
    // What is looked up for each row is joined, one below the other.
    let looked_up = |k: usize| format!("(SELECT max(s.v) FROM t s WHERE s.x = t.x AND s.v > {k})");
    let columns = |count: usize| (0..count).map(looked_up).collect::<Vec<_>>().join(", ");
    for count in [400, 700] {
        let (among, columns) = (vec!["t.x IN (SELECT 1)"; count].join(", "), columns(count));
        refused(&test_db, &format!("SELECT {columns} FROM t"), ErrorKind::Limit).await;
        refused(&test_db, &format!("SELECT {among} FROM t"), ErrorKind::Limit).await;
    }
    assert!(survived(&test_db, &format!("SELECT {} FROM t", columns(60))).await);
    // What is looked up among the rows of a subquery, and is unknown beside NULL, takes more; tuples take most.
    let pairs = (0..65).map(|k| format!("('{k}', {k})")).collect::<Vec<_>>().join(", ");
    for (one, most, between) in [
        ("t.x || $ NOT IN (SELECT s.x FROM t s WHERE s.a = t.a)", 250, ", "),
        ("t.x || $ <> ALL (SELECT s.x FROM t s WHERE s.a = t.a)", 250, ", "),
        ("(x, v) NOT IN (SELECT x || $, v FROM t)", 95, " AND "),
        ("(x, v) IN (SELECT x || $, v FROM t)", 200, ", "),
        (&format!("(x || $, v) IN ({pairs})"), 200, ", "),
        (&format!("((x || $, v)) IN ({pairs})"), 200, ", "),
        ("t.v + $ > ALL (SELECT s.v FROM t s WHERE s.x = t.x)", 30, " AND "),
        ("t.v + $ = ALL (SELECT s.v FROM t s WHERE s.x = t.x)", 30, ", "),
        ("t.v + $ <= ANY (SELECT s.v FROM t s WHERE s.x = t.x)", 30, ", "),
    ] {
        let many = |count: usize| {
            (0..count).map(|k| one.replace('$', &k.to_string())).collect::<Vec<_>>().join(between)
        };
        refused(&test_db, &format!("SELECT {} FROM t", many(most)), ErrorKind::Limit).await;
        let few = if one.starts_with("t.v") { 5 } else { 20 };
        assert!(survived(&test_db, &format!("SELECT {} FROM t", many(few))).await, "{one}");
    }
    // A tuple is written as often as there are others in a list.
    let pairs = (0..32).map(|k| format!("({k}, {k})")).collect::<Vec<_>>().join(", ");
    let among = |count| {
        let one = |k: usize| format!("({}, v) IN ({pairs})", looked_up(k));
        format!("SELECT 1 FROM t WHERE {}", (0..count).map(one).collect::<Vec<_>>().join(" AND "))
    };
    refused(&test_db, &among(5), ErrorKind::Limit).await;
    assert!(survived(&test_db, &among(2)).await);
    let sums = (0..40).fold("1".to_owned(), |inner, _| format!("({inner}{})", " + 1".repeat(390)));
    refused(&test_db, &format!("SELECT {sums}"), ErrorKind::Limit).await;
}

/// Each name of WITH was compared with all others, and again with those between them.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_names_are_looked_at_in_time() {
    let test_db = table().await;
    for query in ["SELECT 1 AS r", "SELECT random() AS r", "SELECT * FROM a$"] {
        let named = |n: usize| {
            let before = n.saturating_sub(1).to_string();
            format!("a{n} AS ({})", query.replace('$', &before))
        };
        for (count, may_be_taken) in [(999, true), (1_000, false), (20_000, false)] {
            let names: Vec<String> = (1..=count).map(named).collect();
            let sql = format!("WITH a0 AS (SELECT random() AS r), {} SELECT 1", names.join(", "));
            let start = Instant::now();
            assert!(!survived(&test_db, &sql).await || may_be_taken, "{query} {count}");
            assert!(start.elapsed() < TIME_MAX / 4, "{query} {count}: {:?}", start.elapsed());
        }
    }
}

/// Each row of the left side was a batch, and what there was so far was counted for each of them: 42 s for a fifth of this.
#[tokio::test(flavor = "multi_thread")]
async fn all_with_all_is_collected_in_time() {
    let test_db = table().await;
    let start = Instant::now();
    let sql = "SELECT sum(cardinality(l)) FROM (SELECT k, array_agg(value + k) AS l FROM generate_series(1, 80000), (VALUES (1), (2)) t(k) \
               GROUP BY GROUPING SETS ((), (k)))";
    assert_eq!(test_db.text(sql).await, "320000");
    assert!(start.elapsed() < TIME_MAX / 4, "{:?}", start.elapsed());
}

/// What keys determine is looked for in all that lies below a place.
#[tokio::test(flavor = "multi_thread")]
async fn chains_over_groups_do_not_overflow_the_stack() {
    let test_db = table().await;
    let groups = "SELECT v, max(x) AS x FROM t GROUP BY v";
    for base in [groups.to_owned(), format!("SELECT v, x, unnest([1, 2]) AS u FROM ({groups})")] {
        for (query, count) in [
            ("SELECT v, x FROM @ WHERE v > 0 ORDER BY v LIMIT 9", 117),
            ("SELECT v, x FROM @ GROUP BY v, x", 117),
            (&format!("FROM @{}", " |> WHERE v > 0".repeat(100)), 5),
            (&format!("FROM @{}", " |> WHERE v > 0".repeat(390)), 5),
        ] {
            let sql = chain(count, query, "SELECT count(*) FROM @");
            survived(&test_db, &sql.replacen("SELECT v, x FROM t", &base, 1)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_double_are_not_planned() {
    let test_db = table().await;
    for query in [
        "SELECT a.v, a.x FROM @ a, @ b",
        "SELECT v, x FROM @ UNION ALL SELECT v, x FROM @",
        "SELECT v, x FROM @ WHERE v IN (SELECT v FROM @)",
    ] {
        refused(&test_db, &chain(30, query, "SELECT count(*) FROM @"), ErrorKind::Limit).await;
        assert!(survived(&test_db, &chain(4, query, "SELECT count(*) FROM @")).await, "{query}");
    }
    let cube = |count: usize| {
        let of: Vec<_> = (0..count).map(|n| format!("v + {n}")).collect();
        format!("SELECT count(*) FROM (SELECT 1 FROM t GROUP BY CUBE ({}))", of.join(", "))
    };
    refused(&test_db, &cube(25), ErrorKind::Limit).await;
    assert_eq!(test_db.text(&cube(6)).await, "127");
    // One table, and an expression that doubles.
    for query in ["SELECT v + v AS v, x FROM @", "SELECT v, x || x AS x FROM @"] {
        for end in
            ["SELECT count(*) FROM @ WHERE v > 0 AND x > 'a'", "SELECT v, x FROM @ ORDER BY v"]
        {
            refused(&test_db, &chain(40, query, end), ErrorKind::Limit).await;
            assert!(survived(&test_db, &chain(6, query, end)).await, "{query}");
        }
    }
    assert!(
        survived(&test_db, &chain(100, "SELECT v + 1 AS v, x FROM @", "SELECT sum(v) FROM @"))
            .await
    );
    refused(
        &test_db,
        &chain(2_000, "SELECT v, x FROM @", "SELECT sum(v) FROM @"),
        ErrorKind::Limit,
    )
    .await;
}

/// What is long is as large as it is written, and not refused.
#[tokio::test(flavor = "multi_thread")]
async fn long_lists_are_taken() {
    let test_db = table().await;
    let numbers: Vec<_> = (0..50_000).map(|n| n.to_string()).collect();
    let list = numbers.join(", ");
    for (condition, expected) in [
        (format!("v * 2 IN ({list})"), "2"),
        (format!("v NOT IN ({list})"), "2"),
        (format!("v::TEXT IN ('{}')", numbers.join("', '")), "0"),
        (format!("CAST(v AS BIGINT) IN ({list}) AND CAST(v + 1 AS BIGINT) IN ({list})"), "2"),
    ] {
        let sql = format!("SELECT count(*) FROM t WHERE {condition}");
        assert_eq!(test_db.text(&sql).await, expected);
    }
    let inner = format!("SELECT v * 2 IN ({list}) AS is_in FROM t");
    let twice = format!("SELECT count(*) FROM ({inner}) WHERE is_in AND is_in IS NOT NULL");
    assert_eq!(test_db.text(&twice).await, "2");
    let sql = format!("WITH q AS ({inner}) SELECT count(*) FROM q a JOIN q b ON a.is_in = b.is_in");
    assert_eq!(test_db.text(&sql).await, "4");
    let columns: Vec<_> = (1..10).map(|n| format!("f{n} DOUBLE")).collect();
    test_db.text(&format!("CREATE TABLE w (time TIMESTAMP, {})", columns.join(", "))).await;
    let row = |n| format!("(to_timestamp({n}), 1, 2.5, -3, 4 + 1, 5, 6, NULL, 8, 9)");
    let rows: Vec<_> = (0..50_000).map(row).collect();
    let insert = format!("INSERT INTO w VALUES {}", rows.join(", "));
    assert_eq!(test_db.text(&insert).await, "50000 0");
}

/// Nor are lists of tuples, in which a NULL is unknown as in short ones.
#[tokio::test(flavor = "multi_thread")]
async fn long_lists_of_tuples_are_taken() {
    let test_db = table().await;
    let many = |count: usize, tuple: &dyn Fn(usize) -> String| {
        (0..count).map(tuple).collect::<Vec<_>>().join(", ")
    };
    let pairs = many(10_000, &|n| format!("('{n}', {n}.5)"));
    let triples = many(10_000, &|n| format!("('{n}', {n}.5, 'aaaa')"));
    let columns = many(2_000, &|n| format!("(x, v + {n})"));
    for (condition, expected) in [
        (format!("(a, v) IN ({pairs}, ('x', 1.5))"), "1"),
        (format!("(a, v) IN ({pairs}, ('x', NULL), (NULL, 2.5))"), "0"),
        (format!("(a, v) NOT IN ({pairs}, ('x', 1.5))"), "1"),
        (format!("(a, v) NOT IN ({pairs}, ('x', NULL))"), "1"),
        (format!("((a, v) IN ({pairs}, ('x', NULL))) IS NULL"), "1"),
        (format!("(a, v) IN ({pairs}) IS NOT NULL AND v > 2"), "1"),
        (format!("(nullif(a, 'x'), v) NOT IN ({pairs}, ('z', 1.5))"), "1"),
        (format!("(a, v, x) IN ({triples}, ('x', 1.5, 'aaaa'))"), "1"),
        (format!("(a, v, x) NOT IN ({triples}, ('x', NULL, 'aaaa'))"), "1"),
        (format!("(a, v) IN ({columns})"), "0"),
        (format!("(x, v) NOT IN ({columns})"), "0"),
    ] {
        let sql = format!("SELECT count(*) FROM t WHERE {condition}");
        let (start, outcome) = in_time(&test_db, &sql).await;
        match outcome {
            Ok(batches) => assert_eq!(crate::lines(&batches), [expected], "{}", &condition[..40]),
            Err(error) => panic!("{start}: {error}"),
        }
    }
    let counted = format!("SELECT a FROM t GROUP BY a HAVING (a, max(v)) IN ({pairs}, ('x', 1.5))");
    assert_eq!(test_db.text(&counted).await, "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_make_no_more_than_fits() {
    let test_db = table().await;
    for expr in [
        "array_length(range(0, 1000000000))",
        "array_length(generate_series(0, 1000000000))",
        "array_length(range(1000000000))",
        "array_length(range(0, 9000000000000000000, 3))",
        "array_length(range(9000000000000000000, -9000000000000000000, -1))",
        "array_length(range(TIMESTAMP '2000-01-01', TIMESTAMP '2100-01-01', INTERVAL '1 millisecond'))",
        "array_length(array_repeat(1, 1000000000))",
        "array_length(array_repeat(NULL, 1000000000))",
        "array_length(list_repeat('abc', 1000000000))",
        "array_length(array_resize([1], 1000000000))",
        "array_length(list_resize([1], 1000000000, 5))",
        "length(repeat('abc', 1000000000))",
        "length(lpad('abc', 1000000000, 'x'))",
        "length(rpad('abc', 1000000000))",
        "length(replace(repeat('a', 1000000), 'a', repeat('b', 1000)))",
        "length(replace(repeat('a', 1000000), '', repeat('b', 1000)))",
        "length(regexp_replace(repeat('a', 1000000), 'a', repeat('b', 1000), 'g'))",
        "length(regexp_replace(repeat('a', 1000000), '(a*)', repeat('\\1', 1000)))",
        "length(array_to_string(array_repeat('a', 1000000), repeat('b', 1000)))",
        "array_length(array_replace_all(array_repeat('a', 1000000), 'a', repeat('b', 1000)))",
        "length(concat(repeat('a', 40000000), repeat('b', 40000000)))",
        "length(concat_ws(repeat(',', 10000000), 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'))",
        "array_length([repeat('a', 60000000), repeat('b', 60000000)])",
        "array_length(array_repeat(1, 6000000) || array_repeat(1, 6000000))",
        "levenshtein(repeat('a', 1000000), repeat('b', 1000000))",
        "strpos(repeat('a', 60000000), repeat('a', 30000000) || 'b')",
        "btrim(repeat('a', 600000), repeat('b', 600000) || 'a')",
        "array_has_all(range(0, 400000), range(0, 400000))",
        "array_has_any(range(0, 400000), range(400000, 800000))",
        "to_char(now(), repeat('%c', 10000000))",
        "arrow_cast(NULL, 'FixedSizeBinary(1000000000)')",
        "CAST(NULL AS BIGINT[1000000000])",
    ] {
        let message = refused(&test_db, &format!("SELECT {expr}"), ErrorKind::Limit).await;
        assert!(message.contains(|c: char| c.is_ascii_digit()), "{expr}: {message}");
        refused(&test_db, &format!("SELECT {expr} FROM t WHERE v > 0"), ErrorKind::Limit).await;
    }
    for expr in [
        "array_length(range(0, CAST(v * 1e9 AS BIGINT)))",
        "length(repeat(x, CAST(v * 1e9 AS BIGINT)))",
        "length(replace(repeat(x, 200000), substr(x, 1, 1), repeat(x, 1000)))",
        "array_length(array_repeat(x, CAST(v * 1e9 AS BIGINT)))",
        "array_length(array_resize([v], CAST(v * 1e9 AS BIGINT)))",
    ] {
        refused(&test_db, &format!("SELECT {expr} FROM t"), ErrorKind::Limit).await;
    }
    // One row that is long among many that are short.
    let long = "CASE WHEN value = 1 THEN repeat('x', 1000000 * value) ELSE 'a' END AS x";
    let times = "CASE WHEN value = 1 THEN 1500 ELSE 1 END AS n";
    let rows = format!("(SELECT {long}, {times} FROM generate_series(1, 8000))");
    for expr in [
        "array_repeat([x], n)",
        "array_repeat([[x]], n)",
        "array_repeat(named_struct('a', x), n)",
        "array_resize([named_struct('a', 'q')], n, named_struct('a', x))",
        "array_replace_all(array_repeat(['q'], n), ['q'], [x])",
        "array_repeat(array_repeat('', n), n * 1000)",
        "array_resize([named_struct('a', 1, 'b', 2, 'c', 3)], n * 10000)",
    ] {
        let sql = format!("SELECT sum(cardinality({expr})) FROM {rows}");
        let message = refused(&test_db, &sql, ErrorKind::Limit).await;
        assert!(message.contains("would make up to"), "{expr}: {message}");
    }
    let zipped = format!("SELECT sum(cardinality(arrays_zip(range(0, n), [x, 'b']))) FROM {rows}");
    assert_eq!(test_db.text(&zipped).await, "17498");
    // A constant in each of many rows.
    for expr in [
        "repeat('a', 1000000)",
        "value || repeat('a', 1000000)",
        "[repeat('a', 1000000), value::TEXT]",
    ] {
        let sql = format!("SELECT {expr} AS c FROM generate_series(1, 100000)");
        refused(&test_db, &format!("SELECT max(c) FROM ({sql})"), ErrorKind::Limit).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn series_that_never_arrive_are_refused() {
    let test_db = table().await;
    for call in ["range", "generate_series"] {
        for of in [
            "DATE '2024-01-31', DATE '2025-01-31'",
            "TIMESTAMP '2024-01-31', TIMESTAMP '2025-01-31'",
        ] {
            for step in ["1 month -31 days", "-1 month 31 days", "1 day -24 hours"] {
                let call = format!("{call}({of}, INTERVAL '{step}')");
                refused(&test_db, &format!("SELECT array_length({call})"), ErrorKind::Invalid)
                    .await;
                let counted = format!("SELECT count(*) FROM {call}");
                refused(&test_db, &counted, ErrorKind::Invalid).await;
            }
        }
    }
    let counts = "SELECT array_length(range(DATE '2024-01-31', DATE '2025-01-31', INTERVAL '1 month')), \
                  array_length(generate_series(TIMESTAMP '2024-01-01', TIMESTAMP '2024-01-02', INTERVAL '1 second')), \
                  array_length(range(10, 0, -3))";
    assert_eq!(test_db.text(counts).await, "12 86401 4");
}

/// What was refused must still work when it is small, and when only its bound is large.
#[tokio::test(flavor = "multi_thread")]
async fn functions_that_fit_answer_as_ever() {
    let test_db = table().await;
    for (expr, expected) in [
        ("replace('aaa', 'a', 'bc')", "bcbcbc"),
        ("regexp_replace('abc', '(b)', '<\\1\\1>')", "a<bb>c"),
        ("concat('a', 1, NULL, 'b')", "a1b"),
        ("concat_ws('-', 'a', NULL, 'b')", "a-b"),
        ("array_to_string([1, 2, 3], ', ')", "1, 2, 3"),
        ("overlay('abcdef' PLACING 'x' FROM 2 FOR 3)", "axef"),
        ("[1, 2] || [3]", "[1, 2, 3]"),
        ("array_resize([1], 3, 7)", "[1, 7, 7]"),
        ("array_length(arrays_zip([1, 2], ['a']))", "2"),
        ("lpad('7', 3, '0')", "007"),
        ("to_char(DATE '2024-03-10', '%d.%m.%Y')", "10.03.2024"),
        ("levenshtein('kitten', 'sitting')", "3"),
        ("strpos(repeat('a', 1000000) || 'bc', 'bc')", "1000001"),
        ("trim(repeat(' ', 1000000) || 'bc')", "bc"),
        ("array_has_all(range(0, 10000), [7, 9999])", "true"),
        ("array_length(range(0, 1000000))", "1000000"),
        ("length(repeat('a', 10000000))", "10000000"),
        ("length(regexp_replace(repeat('ab', 10000000), 'a', '', 'g'))", "10000000"),
    ] {
        assert_eq!(test_db.text(&format!("SELECT {expr}")).await, expected, "{expr}");
    }
    // The bounds of all rows together are above the limit, what is made is not.
    let sql = "SELECT count(*), sum(length(regexp_replace(repeat('ab', 5000), 'b+', '12345678', 'g'))) \
               FROM (SELECT repeat('ab', value % 2 + 1) FROM generate_series(1, 300))";
    assert_eq!(test_db.text(sql).await, "300 13500000");
    let sql = "SELECT sum(length(regexp_replace(x, 'a', repeat('b', 100), 'g'))), count(DISTINCT x) \
               FROM (SELECT repeat('a', 20) || repeat('c', 6000) || value AS x FROM generate_series(1, 1000))";
    assert_eq!(test_db.text(sql).await, "8002893 1000");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recursion_without_an_end_can_be_stopped() {
    let test_db = table().await;
    for query in [
        "SELECT n + 1 FROM r",
        "SELECT a.n FROM r a, r b",
        "SELECT n FROM r UNION ALL SELECT n FROM r",
    ] {
        let sql =
            format!("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL {query}) SELECT count(*) FROM r");
        let begin = Instant::now();
        let outcome = tokio::time::timeout(Duration::from_millis(500), test_db.run(&sql)).await;
        assert!(!matches!(outcome, Ok(Ok(_))), "{query}: it has no end");
        assert!(begin.elapsed() < Duration::from_secs(10), "{query}: {:?}", begin.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recursion_without_an_end_is_refused() {
    let test_db = table().await;
    for end in ["SELECT count(*) FROM r", "SELECT sum(a.n) FROM r a JOIN r b ON a.n = b.n"] {
        let sql =
            format!("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) {end}");
        let message = refused(&test_db, &sql, ErrorKind::Limit).await;
        assert!(message.contains("more than 100000 steps"), "{message}");
    }
    let sql = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 10000) SELECT count(*) FROM r";
    assert_eq!(test_db.text(sql).await, "10000");
}

/// A task may take 128 steps at a time, and each of these joins asks for one.
#[tokio::test(flavor = "multi_thread")]
async fn joins_within_each_other_go_on() {
    let test_db = table().await;
    let left = " LEFT JOIN (SELECT v AS w FROM t) AS q@ ON q@.w = t.v";
    let joins: String = (0..200).map(|n| left.replace('@', &n.to_string())).collect();
    let sql = format!("SELECT count(*), sum(v) FROM t{joins}");
    assert!(survived(&test_db, &sql).await, "200 joins");
}

/// More of them than there are threads, and none ever has a row for whoever asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_that_find_nothing_give_others_a_turn() {
    let test_db = Arc::new(table().await);
    let many = "generate_series(1, 1000000000) b";
    let joins = [
        format!("generate_series(1, 2000000) a, {many} WHERE a.value + b.value < 0"),
        format!("generate_series(1, 2000000) a LEFT JOIN {many} ON a.value + b.value < 0"),
        format!("generate_series(1, 2000000) a FULL JOIN {many} ON a.value + b.value < 0"),
        // It finds many at first, which says nothing of what comes then.
        format!(
            "generate_series(1, 100000) a JOIN {many} ON CASE WHEN b.value <= 500 THEN (a.value + b.value) % 20 = 0 \
             ELSE CAST(a.value * b.value AS TEXT) LIKE '%x%x%y%' END"
        ),
        format!(
            "generate_series(1, 500000) a JOIN {many} ON a.value % 3 = b.value % 3 AND a.value + b.value < 0"
        ),
    ];
    let tasks: Vec<_> = joins
        .map(|join| {
            let test_db = Arc::clone(&test_db);
            let sql = format!("SELECT count(*) FROM {join}");
            tokio::spawn(async move { test_db.run(&sql).await.is_ok() })
        })
        .into();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = tokio::spawn({
        let test_db = Arc::clone(&test_db);
        async move { test_db.run("SELECT count(*) FROM t").await.is_ok() }
    });
    let answered = tokio::time::timeout(Duration::from_secs(20), asked).await;
    assert!(answered.is_ok_and(|outcome| outcome.is_ok_and(|is_ok| is_ok)), "no turn for others");
    for task in tasks {
        assert!(!task.is_finished(), "a join that should still run has ended");
        task.abort();
        let ended = tokio::time::timeout(Duration::from_secs(20), task).await;
        assert!(ended.is_ok_and(|outcome| outcome.is_err()), "it was not to be stopped");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregates_that_collect_stay_within_the_memory_of_queries() {
    let test_db = table().await;
    let series = "FROM generate_series(1, 300000)";
    for expr in [
        "array_agg(value) OVER (ORDER BY value)",
        "string_agg(value::TEXT, ',') OVER (ORDER BY value)",
        "array_agg(repeat('a', 10000) || value)",
        "string_agg(repeat('a', 10000) || value, ',')",
        "array_agg(DISTINCT repeat('a', 10000) || value)",
        "array_agg(value) OVER ()",
        "array_agg(value) OVER (PARTITION BY value % 10)",
        "array_agg(value) OVER (PARTITION BY value % 300)",
        "string_agg(value::TEXT, ',') OVER (ORDER BY value ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
    ] {
        refused(&test_db, &format!("SELECT {expr} {series}"), ErrorKind::Limit).await;
    }
    let long = "FROM (SELECT value, repeat('a', CASE WHEN value = 60000 THEN 20000 ELSE 1 END) AS x FROM generate_series(1, 60000)) AS t";
    for expr in [
        "max(x) OVER ()",
        "max([x, x]) OVER ()",
        "array_agg(x) FILTER (WHERE value = 60000) OVER ()",
        "last_value(x) OVER (ORDER BY value ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
        "first_value(x) OVER (ORDER BY value DESC)",
        "nth_value([x, x], 1) OVER (ORDER BY value DESC)",
    ] {
        let sql = format!("SELECT count(a) FROM (SELECT {expr} AS a {long})");
        refused(&test_db, &sql, ErrorKind::Limit).await;
    }
    // What is short is not counted, however many rows there are.
    for expr in [
        "array_agg(value) OVER (PARTITION BY value / 100)",
        "array_agg(value) OVER (ORDER BY value ROWS 20 PRECEDING)",
        "min(value::TEXT) OVER ()",
        "first_value(value::TEXT) OVER (ORDER BY value)",
        "nth_value(value, 2) OVER ()",
        "first_value([value, value]) OVER (ORDER BY value DESC)",
    ] {
        let sql = format!("SELECT count(a) FROM (SELECT {expr} AS a {series})");
        assert!(test_db.text(&sql).await.parse::<u64>().expect("a count") >= 299_999, "{expr}");
    }
}
