//! Values for the parameters of statements mean what is written in their place, and never more.

use datafusion::arrow::datatypes::{DataType, Schema};
use futures::TryStreamExt;
use tidefall_sql::Parameter::{self, Bool, Date, Float, Int, Interval, Null, Text, Time, UInt};
use tidefall_types::{ErrorKind, NS_PER_SECOND, sql_type_name};

use crate::TestDb;

/// The lines of an answer.
async fn lines(db: &TestDb, sql: &str, values: &[Parameter]) -> Vec<String> {
    let answer = async { db.session.query_with(sql, values).await?.try_collect::<Vec<_>>().await };
    crate::lines(&answer.await.unwrap_or_else(|error| panic!("{sql}: {error}")))
}

fn text(text: &str) -> Parameter {
    Text(text.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_what_is_written_in_their_place() {
    let db = TestDb::new();
    let cases: [(Parameter, &str); 26] = [
        (Null, "NULL"),
        (Bool(true), "TRUE"),
        (Bool(false), "FALSE"),
        (Int(0), "0"),
        (Int(-7), "-7"),
        (Int(i64::MAX), "9223372036854775807"),
        (Int(i64::MIN), "CAST('-9223372036854775808' AS BIGINT)"),
        (UInt(u64::MAX), "18446744073709551615"),
        (UInt(5), "5"),
        (Float(1.5), "CAST('1.5' AS DOUBLE)"),
        (Float(-0.1), "CAST('-0.1' AS DOUBLE)"),
        (Float(1e300), "CAST('1e300' AS DOUBLE)"),
        (Float(5e-324), "CAST('5e-324' AS DOUBLE)"),
        (Float(f64::NAN), "CAST('NaN' AS DOUBLE)"),
        (Float(f64::INFINITY), "CAST('Infinity' AS DOUBLE)"),
        (Float(f64::NEG_INFINITY), "CAST('-Infinity' AS DOUBLE)"),
        (text(""), "''"),
        (text("it's; DROP TABLE plant --"), "'it''s; DROP TABLE plant --'"),
        (text("naïve \\ $1 ? \" \n"), "'naïve \\ $1 ? \" \n'"),
        (Time(0), "TIMESTAMP '1970-01-01'"),
        (Time(-1), "TIMESTAMP '1969-12-31 23:59:59.999999999'"),
        (Time(i64::MAX), "TIMESTAMP '2262-04-11 23:47:16.854775807'"),
        (Date("0001-01-01".to_owned()), "DATE '0001-01-01'"),
        (Date("9999-12-31".to_owned()), "DATE '9999-12-31'"),
        (Interval("9223372036854775807 ns".to_owned()), "INTERVAL '9223372036854775807 ns'"),
        (Interval("-1 month 5 days".to_owned()), "INTERVAL '-1 month 5 days'"),
    ];
    for (value, written) in cases {
        let form = |what: &str| format!("SELECT {what} AS v, arrow_typeof({what}) AS t");
        let expected = lines(&db, &form(written), &[]).await;
        assert_eq!(
            lines(&db, &form("$1"), std::slice::from_ref(&value)).await,
            expected,
            "{value:?}"
        );
        let twice = [value.clone(), value.clone()];
        assert_eq!(lines(&db, &form("?"), &twice).await, expected, "{value:?}");
    }
    // A sign is the value's own.
    assert_eq!(lines(&db, "SELECT 1 -$1, - $1, 2 * $1 + $1", &[Int(-5)]).await, ["6 5 -15"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_stand_wherever_a_value_may() {
    let db = TestDb::new();
    let create = "CREATE TABLE plant (time TIMESTAMP, sensor TEXT, v DOUBLE, n BIGINT, PRIMARY KEY (sensor, time))";
    lines(&db, create, &[]).await;
    let insert = "INSERT INTO plant VALUES ($1, $2, $3, $4), ($5, 'it''s', $3 * 2, -$4)";
    let at = |second: i64| Time(second * NS_PER_SECOND);
    let inserted = lines(&db, insert, &[at(1), text("a; --"), Float(0.5), Int(7), at(2)]).await;
    assert_eq!(inserted, ["2 0"]);
    let cases: [(&str, &[Parameter], &[&str]); 25] = [
        ("SELECT v FROM plant WHERE sensor = $1", &[text("a; --")], &["0.5"]),
        ("SELECT v FROM plant WHERE sensor = ?", &[text("it's")], &["1.0"]),
        ("SELECT n FROM plant WHERE time >= $1", &[at(2)], &["-7"]),
        ("SELECT n FROM plant WHERE time < $1", &[text("1970-01-01T00:00:02Z")], &["7"]),
        (
            "SELECT n FROM plant WHERE v IN ($2, $1) ORDER BY n",
            &[Float(0.5), Float(1.0)],
            &["-7", "7"],
        ),
        ("SELECT n FROM plant WHERE n BETWEEN ? AND ?", &[Int(0), Int(9)], &["7"]),
        ("SELECT n FROM plant ORDER BY n LIMIT $1 OFFSET $2", &[Int(1), Int(1)], &["7"]),
        (
            "SELECT date_bin($1, time) AS b, count(*) FROM plant GROUP BY b",
            &[text("1 minute")],
            &["1970-01-01T00:00:00 2"],
        ),
        ("SELECT CASE WHEN $1 IS NULL THEN $2 END", &[Null, text("x")], &["x"]),
        // Whatever the order in which a statement is read: LIMIT is behind ORDER BY, and a subquery within.
        (
            "WITH w AS (SELECT ? AS a) SELECT a, ?, (SELECT ?) FROM w WHERE a < ? GROUP BY a HAVING count(*) < ? ORDER BY a + ? LIMIT ?",
            &[Int(1), Int(2), Int(3), Int(4), Int(5), Int(6), Int(7)],
            &["1 2 3"],
        ),
        ("SELECT 1; SELECT ?", &[Int(2)], &["2"]),
        (
            "SELECT DATE $1, TIMESTAMP $1",
            &[text("2024-01-31")],
            &["2024-01-31 2024-01-31T00:00:00"],
        ),
        (
            "SELECT DATE ? + INTERVAL ?",
            &[text("2024-01-31"), text("1 day")],
            &["2024-02-01T00:00:00"],
        ),
        ("SELECT n FROM plant WHERE time < TIMESTAMP $1", &[text("1970-01-01 00:00:02")], &["7"]),
        (
            "SELECT n FROM plant WHERE time < $1 ORDER BY 1",
            &[Date("1970-01-02".to_owned())],
            &["-7", "7"],
        ),
        (
            "SELECT n FROM plant WHERE time - $1 = TIMESTAMP '1970-01-01' AND n > $2",
            &[Interval("1 second".to_owned()), Int(0)],
            &["7"],
        ),
        (
            "SELECT DATE '2024-01-01' + INTERVAL $1, -INTERVAL $1",
            &[Interval("90 seconds".to_owned())],
            &["2024-01-01T00:01:30 -1 mins -30.000000000 secs"],
        ),
        (
            "SELECT INTERVAL ? = INTERVAL ?",
            &[text("1 day"), Interval("1 day".to_owned())],
            &["true"],
        ),
        (
            "SELECT sum(n) OVER (ORDER BY time RANGE BETWEEN INTERVAL $1 PRECEDING AND CURRENT ROW) FROM plant ORDER BY time",
            &[Interval("1 second".to_owned())],
            &["7", "0"],
        ),
        (
            "SELECT sensor LIKE $1 ESCAPE $2, sensor NOT ILIKE $1 ESCAPE $2 FROM plant ORDER BY n",
            &[text("a; --"), text("\\")],
            &["false true", "true false"],
        ),
        ("SELECT '5%' LIKE ? ESCAPE ?, ?", &[text("5\\%"), text("\\"), Int(1)], &["true 1"]),
        ("SELECT INTERVAL $1 IS NULL", &[Null], &["true"]),
        // A number is a value, not the place of a column.
        ("SELECT count(*), max(n) FROM plant GROUP BY $1", &[Int(2)], &["2 7"]),
        ("SELECT $1 AS k, count(*) FROM plant GROUP BY $1", &[text("x")], &["x 2"]),
        (
            "DELETE FROM plant WHERE sensor = $1; SELECT count(*) FROM plant",
            &[text("it's")],
            &["1"],
        ),
    ];
    for (sql, values, expected) in cases {
        assert_eq!(lines(&db, sql, values).await, expected, "{sql}");
    }
    // They are pushed down as what is written.
    let explained = |condition: &str| format!("EXPLAIN SELECT v FROM plant WHERE {condition}");
    let written = lines(&db, &explained("sensor = 'a' AND v > CAST('1.5' AS DOUBLE)"), &[]).await;
    let values = [text("a"), Float(1.5)];
    assert_eq!(lines(&db, &explained("sensor = $1 AND v > $2"), &values).await, written);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_and_parameters_must_fit() {
    let db = TestDb::new();
    let cases: [(&str, &[Parameter], &str); 17] = [
        ("SET datafusion.execution.batch_size = $1", &[Int(1)], "SET takes no parameters"),
        ("SELECT 1; SET tidefall.metrics = ?", &[text("on")], "SET takes no parameters"),
        ("SELECT $1", &[], "the parameter $1, number 1 of 1, but 0 values are given"),
        ("SELECT $1 + $3", &[Int(1), Int(2)], "the parameter $3, number 3 of 3, but 2 values"),
        ("SELECT ?, ?", &[Int(1)], "the parameter ?, number 2 of 2, but 1 values are given"),
        ("SELECT 1", &[Int(1)], "1 values are given, but the statement has 0 parameters"),
        ("SELECT $1", &[Int(1), Int(2)], "2 values are given, but the statement has 1 parameters"),
        ("SELECT $1, ?", &[Int(1), Int(2)], "either have numbers ($1) or have none (?), not both"),
        ("SELECT 1 AS a ORDER BY $1", &[Int(1)], "ORDER BY $1: a parameter is a value"),
        ("SELECT (SELECT 1 AS a ORDER BY a, ? DESC)", &[text("a")], "ORDER BY ?: a parameter is"),
        ("SELECT 'a' LIKE 'b' ESCAPE $1", &[], "the parameter $1, number 1 of 1, but 0 values"),
        ("SELECT 'a' LIKE 'b' ESCAPE $1", &[Int(7)], "Expected a single character"),
        ("SELECT 'a' LIKE 'b' ESCAPE $1", &[Time(0)], "got 'TIMESTAMP ''1970"),
        ("SELECT DATE $1", &[], "the parameter $1, number 1 of 1, but 0 values are given"),
        ("SELECT $0", &[Int(1)], "$0: parameters are called $1, $2 and so on"),
        ("SELECT $name", &[Int(1)], "$name: parameters are called $1, $2 and so on"),
        ("SELECT $99999999999", &[Int(1)], "$99999999999: parameters are called $1"),
    ];
    for (sql, values, expected) in cases {
        let Err(error) = db.session.query_with(sql, values).await else { panic!("{sql}") };
        assert_eq!(error.kind(), ErrorKind::Invalid, "{sql}");
        assert!(error.message().contains(expected), "{sql}: {error}");
    }
    // A text that stands in many places.
    let sql = format!("SELECT {}", vec!["$1"; 1000].join(", "));
    let values = [Text("x".repeat(1 << 20))];
    let Err(error) = db.session.query_with(&sql, &values).await else { panic!("a gigabyte") };
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    assert!(error.message().contains("1048576000 bytes in all places"), "{error}");
    // A name is no value.
    for sql in ["SELECT * FROM $1", "SELECT count(*) AS $1", "CREATE TABLE $1 (time TIMESTAMP)"] {
        assert!(db.session.query_with(sql, &[text("plant")]).await.is_err(), "{sql}");
    }
}

/// Numbers are values wherever rows are ordered or grouped by them, never places of columns.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_no_places_of_columns() {
    let db = plant().await;
    db.text("INSERT INTO plant VALUES ('2024-01-01', 'x', 2.0), ('2024-01-02', 'x', 1.0), ('2024-01-01', 'y', 3.0)").await;
    let mut wrong = Vec::new();
    for sql in [
        "SELECT array_agg(v ORDER BY $1) FROM plant",
        "SELECT array_agg(v ORDER BY host, -$1 DESC) FROM plant",
        "SELECT first_value(v ORDER BY ($1)) FROM plant",
        "SELECT host FROM plant ORDER BY ($1)",
        "SELECT host FROM plant ORDER BY +$1",
        "SELECT host FROM plant UNION ALL SELECT 'a' ORDER BY -(-$1)",
    ] {
        match db.session.query_with(sql, &[Int(1)]).await {
            Err(error) if error.message().contains("$1: a parameter is a value") => {}
            Err(error) => wrong.push(format!("{sql}: {error}")),
            Ok(_) => wrong.push(format!("{sql}: no error")),
        }
    }
    let by_host = "x {} 2, y {} 1";
    for (sql, expected) in [
        ("SELECT host, $1 AS g, count(*) FROM plant GROUP BY host, g ORDER BY host", by_host),
        ("SELECT host, ($1) AS g, count(*) FROM plant GROUP BY host, (g) ORDER BY host", by_host),
        ("SELECT host, $1, count(*) FROM plant GROUP BY host, \"$1\" ORDER BY host", by_host),
        ("SELECT host, $1 AS g, count(*) FROM plant GROUP BY ($1), host ORDER BY host", by_host),
        ("SELECT host, $1 AS g, count(*) FROM plant GROUP BY +$1, host ORDER BY host", by_host),
        ("SELECT host, $1 AS g, count(*) FROM plant GROUP BY -$1, host ORDER BY host", by_host),
        ("SELECT $1 AS g, count(*) FROM plant GROUP BY ALL", "{} 3"),
        ("SELECT $1 AS g, count(*) FROM plant GROUP BY g HAVING g = $1", "{} 3"),
        ("SELECT $1 AS v, sum(v) FROM plant GROUP BY plant.v ORDER BY 2", "{} 1.0, {} 2.0, {} 3.0"),
        (
            "SELECT host, array_agg(v ORDER BY v) FROM plant WHERE $1 < 9 GROUP BY 1 ORDER BY 1",
            "x [1.0, 2.0], y [3.0]",
        ),
        ("SELECT sum(v) OVER (ORDER BY $1) FROM plant", "6.0, 6.0, 6.0"),
    ] {
        for value in [7, 1, -1, 3] {
            let answer = async {
                db.session.query_with(sql, &[Int(value)]).await?.try_collect::<Vec<_>>().await
            };
            let found = match answer.await {
                Ok(batches) => crate::lines(&batches).join(", "),
                Err(error) => error.to_string(),
            };
            if found != expected.replace("{}", &value.to_string()) {
                wrong.push(format!("{sql} [{value}]: {found}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn plant() -> TestDb {
    let db = TestDb::new();
    db.text("CREATE TABLE plant (time TIMESTAMP, host TEXT, v DOUBLE, PRIMARY KEY (host, time))")
        .await;
    db
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_tell_what_they_take_and_answer() {
    let db = plant().await;
    let described = async |sql: &str| {
        let prepared = db.session.prepare(sql).expect("a statement");
        let described =
            db.session.describe(&prepared).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
        let name = |of: &DataType| sql_type_name(of);
        let parameters: Vec<String> = described
            .parameters
            .iter()
            .map(|of| of.as_ref().map_or_else(|| "any".to_owned(), name))
            .collect();
        let columns = described.columns.map_or_else(
            || "unknown".to_owned(),
            |columns| {
                let fields = columns.fields().iter();
                let shown =
                    fields.map(|field| format!("{} {}", field.name(), name(field.data_type())));
                shown.collect::<Vec<_>>().join(", ")
            },
        );
        (parameters.join(", "), columns)
    };
    for (sql, parameters, columns) in [
        ("SELECT 1 AS one", "", "one BIGINT"),
        (
            "SELECT host, v FROM plant WHERE v > $1 AND time < $2",
            "DOUBLE, TIMESTAMP",
            "host TEXT, v DOUBLE",
        ),
        ("SELECT v FROM plant WHERE host = ? OR host IN (?, ?)", "TEXT, TEXT, TEXT", "v DOUBLE"),
        ("SELECT count(*) AS n FROM plant WHERE v BETWEEN $2 AND $1", "DOUBLE, DOUBLE", "n BIGINT"),
        ("SELECT $1 AS what", "any", "what TEXT"),
        (
            "INSERT INTO plant VALUES ($1, $2, $3)",
            "TIMESTAMP, TEXT, DOUBLE",
            "count BIGINT UNSIGNED, replaced BIGINT UNSIGNED",
        ),
        ("SHOW TABLES", "", "unknown"),
        ("SELECT 1; SELECT v FROM plant WHERE v = $1", "DOUBLE", "v DOUBLE"),
        // Places that tell different types of one parameter say nothing of others, and those that tell nothing take nothing back.
        ("SELECT v FROM plant WHERE (v > $1 OR $1 = 5) AND host = $2", "any, TEXT", "v DOUBLE"),
        ("SELECT v > $1 AS more FROM plant WHERE $1 IS NOT NULL", "DOUBLE", "more BOOLEAN"),
        ("SELECT v FROM plant WHERE time > DATE $1", "any", "v DOUBLE"),
        ("SELECT v FROM plant WHERE time - INTERVAL $1 > $2", "any, TIMESTAMP", "v DOUBLE"),
        // Columns are called by what is written.
        ("SELECT v + $1, $1, $1 FROM plant", "DOUBLE", "v + $1 DOUBLE, $1 DOUBLE, $1:1 DOUBLE"),
        ("SELECT v * ? FROM plant", "DOUBLE", "v * ? DOUBLE"),
        // Some need a value before they are planned.
        (
            "SELECT moving_average(v, $1) OVER (PARTITION BY host ORDER BY time) FROM plant WHERE host = $2",
            "any, any",
            "unknown",
        ),
        ("CREATE TABLE made (time TIMESTAMP) WITH (block = $1)", "any", "unknown"),
        // So do tables that are there by then.
        (
            "CREATE TABLE made (time TIMESTAMP, v DOUBLE); INSERT INTO made VALUES ($1, $2)",
            "any, any",
            "unknown",
        ),
        (
            "DROP TABLE plant; CREATE TABLE plant (time TIMESTAMP, w DOUBLE); SELECT w FROM plant",
            "",
            "unknown",
        ),
    ] {
        assert_eq!(described(sql).await, (parameters.to_owned(), columns.to_owned()), "{sql}");
    }
    let prepared =
        db.session.prepare("SELECT missing FROM nowhere WHERE v = $1").expect("a statement");
    let error = db.session.describe(&prepared).await.expect_err("there is no such table");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(db.session.prepare("SELECT 1 FROM (").is_err());
}

/// What no value could mend is said before there is one.
#[tokio::test(flavor = "multi_thread")]
async fn errors_that_no_value_mends_come_with_the_description() {
    let db = plant().await;
    let mut wrong = Vec::new();
    for (sql, expected) in [
        ("SELECT nocolumn FROM plant", "nocolumn"),
        ("SELECT sum(host) FROM plant", "sum(host)"),
        ("SELECT 1; SELECT nocolumn FROM plant; SELECT $1", "nocolumn"),
        ("CREATE TABLE made (time TIMESTAMP) WITH (block = 'x')", "block"),
        ("SELECT host FROM plant WHERE nocolumn = $1", "nocolumn"),
        (
            "SELECT plant.host FROM plant, plant AS p WHERE v > $1",
            "column v is in more than one table",
        ),
        ("SELECT nofunction(v) FROM plant", "nofunction"),
    ] {
        let prepared = db.session.prepare(sql).expect("a statement");
        match db.session.describe(&prepared).await {
            Err(error) if error.message().contains(expected) => {}
            Err(error) => wrong.push(format!("{sql}: {error}")),
            Ok(described) => wrong.push(format!("{sql}: {described:?}")),
        }
    }
    // Those of tables and settings that are others by then are not.
    for sql in [
        "CREATE TABLE made (time TIMESTAMP, v DOUBLE); SELECT nocolumn FROM made",
        "SET datafusion.sql_parser.enable_ident_normalization = false; SELECT V FROM plant",
    ] {
        let prepared = db.session.prepare(sql).expect("a statement");
        if let Err(error) = db.session.describe(&prepared).await {
            wrong.push(format!("{sql}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A plan is made when a statement is run, so that what was written meanwhile is seen.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_prepared_is_run_often() {
    let db = plant().await;
    let prepared =
        db.session.prepare("SELECT count(*) FROM plant WHERE host = $1").expect("a statement");
    let run = async |value: &str| {
        let answer = db.session.execute(prepared.clone(), &[text(value)]).await.expect("an answer");
        crate::lines(&answer.try_collect::<Vec<_>>().await.expect("rows"))
    };
    assert_eq!(run("new").await, ["0"]);
    db.text("INSERT INTO plant VALUES ('2024-01-01', 'new', 1.0)").await;
    assert_eq!(run("new").await, ["1"]);
    assert_eq!(run("old").await, ["0"]);
}

/// What is described is what comes: columns have the names of what is written, whatever the values.
#[tokio::test(flavor = "multi_thread")]
async fn columns_are_called_by_what_is_written() {
    let db = plant().await;
    db.text("INSERT INTO plant VALUES ('2024-01-01', 'x', 1.0)").await;
    let sql = "SELECT v + $1, $1, v::TEXT || $2, (SELECT $1), v FROM plant";
    let prepared = db.session.prepare(sql).expect("a statement");
    let described = db.session.describe(&prepared).await.expect("a description");
    let values = [Float(1.5), text("a")];
    let answer = db.session.execute(prepared, &values).await.expect("an answer");
    let batches = answer.try_collect::<Vec<_>>().await.expect("rows");
    let names = |schema: &Schema| -> Vec<String> {
        schema.fields().iter().map(|field| field.name().clone()).collect()
    };
    let expected = ["v + $1", "$1", "CAST(v AS TEXT) || $2", "(SELECT $1)", "v"];
    assert_eq!(names(&batches[0].schema()), expected);
    assert_eq!(names(&described.columns.expect("columns")), expected);
}
