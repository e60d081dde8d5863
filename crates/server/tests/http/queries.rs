//! SQL over HTTP.

use std::io::Write;

use arrow_ipc::reader::StreamReader;
use serde_json::{Value, json};

use crate::client::{Reply, TestServer, connect, read_reply};

/// A server with `rows` rows of 10 sensors, in which `v` counts up.
fn filled(rows: usize) -> TestServer {
    let server = TestServer::start();
    let body: String =
        (0..rows).map(|i| format!("m,host=h{} v={i}i,f={i}.5 {i}000000\n", i % 10)).collect();
    assert_eq!(server.write(body).status, 204);
    server
}

fn ask(server: &TestServer, accept: &str, sql: &str) -> Reply {
    server.send("POST", "/api/v1/sql", &format!("Accept: {accept}\r\n"), sql.as_bytes())
}

#[test]
fn every_format_holds_the_same_rows() {
    let server = filled(20);
    let sql = "SELECT host, v FROM m WHERE v < 3 ORDER BY v";
    let json = ask(&server, "application/json", sql);
    assert_eq!(json.header("content-type"), Some("application/json"));
    assert_eq!(
        json.json(),
        json!({ "columns": ["host", "v"], "types": ["TEXT", "BIGINT"],
            "rows": [["h0", 0], ["h1", 1], ["h2", 2]] })
    );
    let csv = ask(&server, "text/csv", sql);
    assert_eq!(csv.text(), "host,v\nh0,0\nh1,1\nh2,2\n");
    let lines = ask(&server, "application/x-ndjson", sql);
    assert_eq!(lines.text().lines().next(), Some(r#"{"host":"h0","v":0}"#));
    let arrow = ask(&server, "application/vnd.apache.arrow.stream", sql);
    let rows: usize =
        StreamReader::try_new(&*arrow.body, None).unwrap().map(|b| b.unwrap().num_rows()).sum();
    assert_eq!(rows, 3);
    let target = "/api/v1/sql?format=csv&q=SELECT%20max(v)%20AS%20top%20FROM%20m";
    assert_eq!(server.get(target).text(), "top\n19\n");
    let body = br#"{"sql": "SELECT 1 AS one"}"#;
    let reply = server.send("POST", "/api/v1/sql", "Content-Type: application/json\r\n", body);
    assert_eq!(reply.json()["rows"], json!([[1]]));
}

#[test]
fn statements_that_change_something_work() {
    let server = TestServer::start();
    server.sql("CREATE TABLE p (time TIMESTAMP, site TEXT, v DOUBLE, PRIMARY KEY (site, time))");
    server.sql("INSERT INTO p VALUES ('2024-01-01', 'a', 1), ('2024-01-02', 'a', 2); SELECT 1");
    assert_eq!(server.sql("SELECT sum(v) FROM p"), json!([[3.0]]));
    server.sql("DELETE FROM p WHERE time >= '2024-01-02'");
    assert_eq!(server.sql("SELECT sum(v) FROM p"), json!([[1.0]]));
    server.sql("DROP TABLE p");
    assert_eq!(server.sql("SHOW TABLES"), json!([]));
}

#[test]
fn errors_have_a_kind_and_a_status() {
    let server = filled(1);
    for (sql, status, kind) in [
        ("SELEKT 1", 400, "invalid"),
        ("", 400, "invalid"),
        ("SELECT nothing FROM m", 400, "invalid"),
        ("SELECT * FROM nowhere", 404, "not found"),
        ("CREATE TABLE m (time TIMESTAMP, v DOUBLE)", 409, "conflict"),
        ("SELECT 1 / 0", 400, "invalid"),
    ] {
        let reply = ask(&server, "text/csv", sql);
        assert_eq!(reply.status, status, "{sql}: {}", reply.text());
        assert_eq!(reply.json()["error"]["kind"], kind, "{sql}");
    }
    assert_eq!(server.send("POST", "/api/v1/sql", "", b"\xff\xfe").status, 400);
    let json = "Content-Type: application/json\r\n";
    assert_eq!(server.send("POST", "/api/v1/sql", json, b"SELECT 1").status, 400);
    assert_eq!(server.get("/api/v1/sql").status, 400);
    assert_eq!(server.get("/api/v1/sql?q=SELECT+1&format=xml").status, 400);
    assert_eq!(server.send("POST", "/api/v1/sql", "", &vec![b' '; 9 << 20]).status, 413);
}

#[test]
fn a_long_answer_comes_in_chunks_and_whole() {
    let server = filled(100_000);
    let reply = ask(&server, "text/csv", "SELECT time, host, v, f FROM m");
    assert_eq!(reply.header("transfer-encoding"), Some("chunked"));
    assert!(reply.is_complete);
    let text = reply.text();
    assert_eq!(text.lines().count(), 100_001);
    let sum: usize = text
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(2).unwrap().parse::<usize>().unwrap())
        .sum();
    assert_eq!(sum, 99_999 * 100_000 / 2);
    let reply = ask(&server, "application/json", "SELECT v FROM m");
    let json: Value = reply.json();
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(100_000));
}

#[test]
fn an_error_midway_is_noticed() {
    let server = filled(100_000);
    // One sensor is read in order; its last row divides by zero, a batch after the answer began.
    let sql = "SELECT host, time, 10 / (99999 - v) AS x FROM m WHERE host = 'h9'";
    for accept in ["text/csv", "application/json", "application/x-ndjson"] {
        let reply = ask(&server, accept, sql);
        assert_eq!(reply.status, 200, "{accept}");
        assert!(!reply.is_complete && reply.body.len() > 100_000, "{accept}: {}", reply.head);
    }
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("tidefall_errors_total{kind=\"invalid\"} 3"), "{metrics}");
    assert!(metrics.contains("tidefall_answers_cut_off_total 3"), "{metrics}");
}

#[test]
fn settings_last_for_one_request() {
    let server = filled(10);
    let explain = "EXPLAIN SELECT count(v) FROM m";
    let is_answered_from_metrics =
        |sql: &str| server.sql(sql).to_string().contains("TidefallMetrics");
    assert!(is_answered_from_metrics(explain));
    assert!(!is_answered_from_metrics(&format!("SET tidefall.metrics = off; {explain}")));
    assert!(is_answered_from_metrics(explain));
}

#[test]
fn health_and_metrics_tell_how_it_is() {
    let server = filled(10);
    server.write("m v=bad");
    let health = server.get("/health");
    assert_eq!((health.status, &health.json()["status"]), (200, &json!("pass")));
    let metrics = server.get("/metrics");
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    let text = metrics.text();
    for line in [
        "tidefall_rows_written_total 10",
        "tidefall_rows_dropped_total 1",
        "tidefall_http_requests_total{route=\"write\",status=\"2xx\"} 1",
        "tidefall_http_requests_total{route=\"write\",status=\"4xx\"} 1",
        "tidefall_http_request_seconds_count{route=\"write\"} 2",
        "tidefall_accepts_writes 1",
        "tidefall_flushed_bytes_total 0",
        "tidefall_objects_to_compact 0",
        "tidefall_tables 1",
        "tidefall_sensors 10",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
fn pages_of_other_origins_are_refused() {
    let server = filled(1);
    let send = |headers: &str| server.send("POST", "/api/v1/sql", headers, b"SELECT 1").status;
    assert_eq!(send("Origin: http://evil.example\r\n"), 403);
    assert_eq!(send("Origin: null\r\n"), 403);
    assert_eq!(send("Sec-Fetch-Site: cross-site\r\n"), 403);
    assert_eq!(send("Sec-Fetch-Site: same-origin\r\n"), 200);
    assert_eq!(send(&format!("Origin: http://{}\r\n", server.address)), 200);
}

#[test]
fn get_and_head_only_read() {
    let server = filled(3);
    for statement in [
        "DROP+TABLE+m",
        "DELETE+FROM+m",
        "INSERT+INTO+m+VALUES+(now(),%27a%27,1,1)",
        "CREATE+TABLE+n+(time+TIMESTAMP,+v+DOUBLE)",
        "SELECT+1;+DROP+TABLE+m;+SELECT+1",
        "EXPLAIN+ANALYZE+INSERT+INTO+m+SELECT+*+FROM+m",
        "EXPLAIN+EXPLAIN+DELETE+FROM+m",
    ] {
        for method in ["GET", "HEAD"] {
            let target = format!("/api/v1/sql?q={statement}");
            let reply = server.send(method, &target, "", b"");
            assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")), "{target}");
        }
    }
    for statement in ["SELECT+count(*)+FROM+m", "SHOW+TABLES", "EXPLAIN+SELECT+1", "DESCRIBE+m"] {
        assert_eq!(server.get(&format!("/api/v1/sql?q={statement}")).status, 200, "{statement}");
    }
    let target = "/api/v1/sql?format=csv&q=SET+tidefall.metrics=off;+SELECT+count(*)+AS+n+FROM+m";
    assert_eq!(server.get(target).text(), "n\n3\n");
}

#[test]
fn names_that_are_not_of_this_machine_are_refused() {
    let server = filled(1);
    let port = server.address.port();
    let status = |host: &str| {
        let mut stream = connect(server.address).unwrap();
        let head = format!("GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        read_reply(&mut stream, "GET").unwrap().status
    };
    let listen = format!("127.0.0.1:{port}");
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8527", &listen] {
        assert_eq!(status(host), 200, "{host}");
    }
    let evil = format!("evil.example:{port}");
    for host in ["evil.example", &evil, "127.0.0.1.evil.example", "192.168.1.1", ""] {
        assert_eq!(status(host), 403, "{host}");
    }
}

#[test]
fn the_format_that_is_liked_best_is_sent() {
    let server = filled(1);
    for (accept, sent) in [
        ("text/csv;q=0, application/json", "application/json"),
        ("text/csv;q=0.2, application/x-ndjson; Q=0.8", "application/x-ndjson"),
        ("text/csv, application/json", "text/csv; charset=utf-8"),
        ("text/html, */*;q=0.1", "application/json"),
        ("text/csv;q=0", "application/json"),
    ] {
        let reply = ask(&server, accept, "SELECT 1");
        assert_eq!(reply.header("content-type"), Some(sent), "{accept}");
    }
}

#[test]
fn kinds_of_errors_are_labels_of_one_word() {
    let server = filled(1);
    ask(&server, "text/csv", "SELECT * FROM nowhere");
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("tidefall_errors_total{kind=\"not_found\"} 1"), "{metrics}");
}

#[test]
fn an_insert_says_how_many_rows_it_replaced() {
    let server = TestServer::start();
    server.sql("CREATE TABLE t (time TIMESTAMP, v BIGINT)");
    let insert = b"INSERT INTO t VALUES ('2024-01-01', 1), ('2024-01-02', 2), ('2024-01-02', 3)";
    let send =
        |format: &str| server.send("POST", &format!("/api/v1/sql?format={format}"), "", insert);
    let expected = json!({
        "columns": ["count", "replaced"],
        "types": ["BIGINT UNSIGNED", "BIGINT UNSIGNED"],
        "rows": [[3, 1]],
    });
    assert_eq!(send("json").json(), expected);
    assert_eq!(send("csv").text(), "count,replaced\n3,3\n");
    assert_eq!(send("ndjson").text(), "{\"count\":3,\"replaced\":3}\n");
}
