//! All orders of columns with conditions and orders of rows, compared with an answer that is worked out here.

use std::cmp::Ordering;

use tidefall_storage::{CascadeRequest, Target};

use crate::TestDb;

/// A row: seconds, a tag or text, and two numbers.
#[derive(Debug, Clone, Copy)]
struct Row {
    time: i64,
    s: &'static str,
    a: i64,
    b: i64,
}

/// Numbers that never repeat, so that each of them orders the rows.
fn rows() -> Vec<Row> {
    let row = |n: i64| Row {
        time: n,
        s: ["x", "y", "z"][n as usize % 3],
        a: (n * 17) % 41 - 20,
        b: (n * 29) % 43 - 20,
    };
    (0..40).map(row).collect()
}

const COLUMNS: [&str; 4] = ["time", "s", "a", "b"];

fn column(row: &Row, name: &str) -> String {
    match name {
        "time" => format!("2024-01-01T00:00:{:02}", row.time),
        "s" => row.s.to_owned(),
        "a" => row.a.to_string(),
        _ => row.b.to_string(),
    }
}

/// Every order of every choice of the columns.
fn projections() -> Vec<Vec<&'static str>> {
    let mut all: Vec<Vec<&str>> = vec![Vec::new()];
    let mut longest = 0;
    while longest < all.len() {
        let more = COLUMNS.iter().filter(|name| !all[longest].contains(name));
        let more: Vec<Vec<&str>> =
            more.map(|name| [&all[longest][..], &[*name]].concat()).collect();
        all.extend(more);
        longest += 1;
    }
    all.split_off(1)
}

type Condition = (&'static str, fn(&Row) -> bool);
type Order = (&'static str, fn(&Row, &Row) -> Ordering);

const CONDITIONS: [Condition; 7] = [
    ("true", |_| true),
    ("a > 0", |row| row.a > 0),
    ("b < 3 AND a > -5", |row| row.b < 3 && row.a > -5),
    ("a > b", |row| row.a > row.b),
    ("s = 'y' AND b > 0", |row| row.s == "y" && row.b > 0),
    ("a > 0 AND time >= '2024-01-01 00:00:10'", |row| row.a > 0 && row.time >= 10),
    ("a % 2 = 0 AND s <> 'x'", |row| row.a % 2 == 0 && row.s != "x"),
];

const ORDERS: [Order; 7] = [
    ("time", |l, r| l.time.cmp(&r.time)),
    ("time DESC", |l, r| r.time.cmp(&l.time)),
    ("s, time", |l, r| (l.s, l.time).cmp(&(r.s, r.time))),
    ("s DESC, time", |l, r| r.s.cmp(l.s).then(l.time.cmp(&r.time))),
    ("a", |l, r| l.a.cmp(&r.a)),
    ("b DESC", |l, r| r.b.cmp(&l.b)),
    ("a + b, time", |l, r| (l.a + l.b, l.time).cmp(&(r.a + r.b, r.time))),
];

/// One of the ways in which a query may ask for the same.
fn ways(columns: &str, table: &str, condition: &str, order: &str) -> [String; 3] {
    [
        format!("SELECT {columns} FROM {table} WHERE {condition} ORDER BY {order}"),
        format!("SELECT {columns} FROM {table} WHERE {condition} ORDER BY {order} LIMIT 7"),
        format!(
            "SELECT {columns} FROM (SELECT b, s, a, time FROM {table} WHERE {condition}) WHERE b < 15 ORDER BY {order}"
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_in_any_order_under_conditions_and_orders() {
    let test = TestDb::new();
    test.text(
        "CREATE TABLE tagged (time TIMESTAMP, s TEXT, a BIGINT, b BIGINT, PRIMARY KEY (s, time));
         CREATE TABLE plain (time TIMESTAMP, s TEXT, a BIGINT, b BIGINT)",
    )
    .await;
    for table in ["tagged", "plain"] {
        let value =
            |row: Row| format!("('{}', '{}', {}, {})", column(&row, "time"), row.s, row.a, row.b);
        let values: Vec<String> = rows().into_iter().map(value).collect();
        test.text(&format!("INSERT INTO {table} VALUES {}", values.join(", "))).await;
    }
    test.db.cascade(&CascadeRequest { table: None, target: Target::Long }).expect("a cascade");
    for columns in projections() {
        for (at, (condition, is_wanted)) in CONDITIONS.iter().enumerate() {
            // Each order meets each condition and each choice of columns, if not all at once.
            for (order, compare) in ORDERS.iter().skip(at % 2).step_by(2) {
                for table in ["tagged", "plain"] {
                    check(&test, &columns, table, (condition, *is_wanted), (order, *compare)).await;
                }
            }
        }
    }
}

async fn check(test: &TestDb, columns: &[&str], table: &str, condition: Condition, order: Order) {
    let mut wanted = rows();
    wanted.retain(condition.1);
    wanted.sort_by(order.1);
    let text = |rows: &[Row]| {
        let line =
            |row: &Row| columns.iter().map(|name| column(row, name)).collect::<Vec<_>>().join(" ");
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    let few = &wanted[..wanted.len().min(7)];
    let below: Vec<Row> = wanted.iter().copied().filter(|row| row.b < 15).collect();
    let expected = [text(&wanted), text(few), text(&below)];
    for (sql, expected) in
        ways(&columns.join(", "), table, condition.0, order.0).iter().zip(&expected)
    {
        assert_eq!(&test.text(sql).await, expected, "{sql}");
    }
}

/// Columns of the same name that trade places would be wrong without an error.
#[tokio::test(flavor = "multi_thread")]
async fn columns_of_the_same_name_keep_apart() {
    let test = TestDb::new();
    test.text(
        "CREATE TABLE n (time TIMESTAMP, a BIGINT, b BIGINT);
         INSERT INTO n SELECT to_timestamp(value), value, 100 - value FROM generate_series(1, 9)",
    )
    .await;
    for (sql, expected) in [
        (
            "SELECT r.a, l.a FROM n l JOIN n r ON l.time = r.time AND l.a + r.b > 99 WHERE l.b > 97 \
             ORDER BY l.time",
            "1 1\n2 2",
        ),
        (
            "SELECT y.v, x.v FROM (SELECT time, a AS v FROM n WHERE a > 3) x \
             JOIN (SELECT time, b AS v FROM n WHERE b > 90) y ON x.time = y.time \
             WHERE x.v + y.v > 0 ORDER BY x.time LIMIT 3",
            "96 4\n95 5\n94 6",
        ),
    ] {
        assert_eq!(test.text(sql).await, expected, "{sql}");
    }
}
