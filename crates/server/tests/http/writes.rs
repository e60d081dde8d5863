//! Line protocol over HTTP: what is stored, and what a client is told.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::client::TestServer;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn good_lines_are_stored_beside_bad_ones() {
    let server = TestServer::start();
    let reply = server.write("cpu,host=a v=1 1\ncpu,host=a v=bad 2\ncpu\ncpu,host=a v=4 4\n");
    assert_eq!(reply.status, 400);
    assert_eq!(
        reply.json(),
        json!({ "error": "partial write: unable to parse 'cpu,host=a v=bad 2': invalid boolean \
            (line 2)\nunable to parse 'cpu': missing fields (line 3) dropped=2" })
    );
    let header = reply.header("x-influxdb-error").unwrap();
    assert!(header.starts_with("partial write: unable to parse"), "{header}");
    assert_eq!(server.sql("SELECT v FROM cpu ORDER BY time"), json!([[1.0], [4.0]]));

    let reply = server.send("POST", "/api/v2/write?bucket=b", "", b"cpu v=bad\n");
    assert_eq!(reply.status, 400);
    assert_eq!(
        reply.json(),
        json!({ "code": "invalid",
            "message": "unable to parse 'cpu v=bad': invalid boolean (line 1)" })
    );
}

#[test]
fn a_type_conflict_costs_its_rows_only() {
    let server = TestServer::start();
    assert_eq!(server.write("cpu,host=a v=1,n=1i 1").status, 204);
    let body = "cpu,host=a v=2,n=2i 2\ncpu,host=a v=\"text\" 3\ncpu,host=a v=4 4\n";
    let reply = server.write(body);
    assert_eq!(reply.status, 400);
    let text = reply.json()["error"].as_str().unwrap().to_owned();
    assert!(text.starts_with("partial write: field type conflict: "), "{text}");
    assert!(text.ends_with("(line 2) dropped=1"), "{text}");
    assert_eq!(server.sql("SELECT v FROM cpu ORDER BY time"), json!([[1.0], [2.0], [4.0]]));
    let reply = server.send("POST", "/api/v2/write", "", body.as_bytes());
    assert_eq!((reply.status, &reply.json()["code"]), (422, &json!("unprocessable entity")));
}

#[test]
fn precision_and_acknowledgement_are_obeyed() {
    let server = TestServer::start();
    for (target, line) in [
        ("/write?precision=s", "m,t=a v=1 1700000000"),
        ("/write?precision=ms&db=x&rp=y&u=z&p=w", "m,t=b v=1 1700000000000"),
        ("/api/v2/write?precision=us&ack=memory", "m,t=c v=1 1700000000000000"),
        ("/write?precision=h&ack=durable", "m,t=d v=1 472222"),
    ] {
        assert_eq!(server.send("POST", target, "", line.as_bytes()).status, 204, "{target}");
    }
    assert_eq!(
        server.sql("SELECT time, count(*) FROM m GROUP BY time ORDER BY time"),
        json!([["2023-11-14T22:00:00Z", 1], ["2023-11-14T22:13:20Z", 3]])
    );
    for target in ["/write?precision=fortnight", "/write?ack=never"] {
        let reply = server.send("POST", target, "", b"m v=1 1");
        assert_eq!(reply.status, 400, "{target}");
    }
    let reply = server.send("POST", "/write", "X-Tidefall-Ack: never\r\n", b"m v=1 1");
    assert_eq!(reply.status, 400);
}

/// Line protocol told nothing of them.
#[test]
fn lines_that_replace_others_are_counted() {
    let server = TestServer::start();
    let many = |value: u32| -> String {
        (0..5_000).map(|at| format!("many,t=s{} v={value} {}\n", at % 50, at / 50)).collect()
    };
    let writes = [
        ("/write", "m,t=a v=1 10\nm,t=b v=1 10\n", 0),
        ("/write", "m,t=a v=2 20\nm,t=c v=2 5\n", 0),
        // Late, but the only ones of their times.
        ("/write", "m,t=a v=3 15\nm,t=b v=3 5\n", 0),
        ("/write", "m,t=a v=4 15\nm,t=b v=4 10\nm,t=b v=4 11\n", 2),
        // A line that repeats one of its own request, also with another field.
        ("/api/v2/write", "m,t=d v=1 10\nm,t=d v=2 10\nm,t=d w=2 10\n", 2),
        ("/api/v2/write?ack=memory", "m,t=d v=1 10\nn v=1 1\nn v=1 1\no v=1 1\n", 2),
        ("/write", "", 0),
        ("/write", &many(1), 0),
        ("/write", &many(2), 5_000),
    ];
    for (target, body, replaced) in writes {
        let reply = server.send("POST", target, "", body.as_bytes());
        assert_eq!((reply.status, reply.body.len()), (204, 0), "{target} {body}");
        let replaced = replaced.to_string();
        assert_eq!(reply.header("x-tidefall-replaced"), Some(&*replaced), "{target} {body}");
    }
    // Lines that are stored beside wrong ones count, too.
    let reply = server.write("m,t=a v=5 20\nm,t=a v=bad 21\nm,t=a v=5 22\n");
    assert_eq!((reply.status, reply.header("x-tidefall-replaced")), (400, Some("1")));
    let reply = server.send("POST", "/write?precision=fortnight", "", b"m,t=a v=5 20");
    assert_eq!((reply.status, reply.header("x-tidefall-replaced")), (400, None));
    assert_eq!(server.sql("SELECT sum(v) FROM many"), json!([[10_000.0]]));
    let metrics = server.get("/metrics").text();
    let line = "tidefall_rows_replaced_total 5007";
    assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
}

#[test]
fn a_line_without_time_gets_the_servers() {
    let server = TestServer::start();
    assert_eq!(server.write("m v=1").status, 204);
    let recent = "SELECT count(*) FROM m WHERE time > now() - INTERVAL '1 minute'";
    assert_eq!(server.sql(recent), json!([[1]]));
}

#[test]
fn gzip_is_unpacked_within_bounds() {
    let options = tidefall_server::ServerOptions { body_bytes_max: 1 << 20, ..Default::default() };
    let server = TestServer::with(options);
    let send = |body: &[u8]| server.send("POST", "/write", "Content-Encoding: gzip\r\n", body);
    assert_eq!(send(&gzip(b"m,t=a v=1 1\nm,t=b v=2 2\n")).status, 204);
    assert_eq!(server.sql("SELECT sum(v) FROM m"), json!([[3.0]]));
    let packed = gzip(b"m,t=a v=1 1\n");
    let reply = server.send("POST", "/write", "Content-Encoding: GZIP\r\n", &packed);
    assert_eq!(reply.status, 204);
    assert_eq!(send(&packed[..packed.len() - 4]).status, 400);
    assert_eq!(send(b"m,t=a v=1 1").status, 400);
    assert_eq!(send(&gzip(&vec![b'\n'; 100 << 20])).status, 413);
    let reply = server.send("POST", "/write", "Content-Encoding: br\r\n", b"x");
    assert_eq!(reply.status, 415);
    assert_eq!(server.write(vec![b'\n'; (1 << 20) + 1]).status, 413);
    assert_eq!(server.write(vec![b'\n'; 1 << 20]).status, 204);
}

#[test]
fn strange_bodies_get_clear_answers() {
    let server = TestServer::start();
    for empty in ["", "\n\n", "# nothing\n"] {
        assert_eq!(server.write(empty).status, 204);
    }
    for wrong in
        [&b"\xff\xfe\x00"[..], b"m v=\"\xff\" 1", b"{\"json\": 1}", b"m v=1 99999999999999999999"]
    {
        let reply = server.write(wrong);
        assert_eq!(reply.status, 400, "{}", String::from_utf8_lossy(wrong));
        assert!(reply.json()["error"].is_string());
    }
    let rubbish: String = (0..5_000).map(|i| format!("rubbish{i}\n")).collect();
    let reply = server.write(&rubbish);
    assert_eq!(reply.status, 400);
    assert!(reply.body.len() < 20_000, "{} bytes", reply.body.len());
    assert_eq!(server.sql("SHOW TABLES"), json!([]));
}

#[test]
fn what_stands_in_quotes_of_a_wrong_line_is_not_stored() {
    let server = TestServer::start();
    let reply = server.write("m a=x,s=\"multi\ninjected v=666 1\n\" 5\ngood v=1 1\n");
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("dropped=1"), "{}", reply.text());
    assert_eq!(server.sql("SHOW TABLES").to_string().matches("injected").count(), 0);
    assert_eq!(server.sql("SELECT v FROM good"), json!([[1.0]]));
}

#[test]
fn no_tag_and_no_field_is_called_time() {
    let server = TestServer::start();
    let reply = server.write("e,time=1 v=2 1\ne2 time=2 1\ngood v=1 1\n");
    assert_eq!(reply.status, 400);
    let text = reply.text();
    assert!(text.contains("give the tag another name") && text.contains("dropped=2"), "{text}");
    assert_eq!(
        server.sql("SELECT time, v FROM good"),
        json!([["1970-01-01T00:00:00.000000001Z", 1.0]])
    );
    for table in ["e", "e2"] {
        let reply =
            server.send("POST", "/api/v1/sql", "", format!("SELECT * FROM {table}").as_bytes());
        assert_eq!(reply.status, 404, "{table}");
    }
}

#[test]
fn a_big_body_of_many_tables_is_written_whole() {
    let server = TestServer::start();
    let body: String = (0..200_000_i64)
        .map(|i| format!("t{},host=h{} v={i},w={i}i {}\n", i % 20, i % 1000, i * 1_000_000))
        .collect();
    assert_eq!(server.write(&body).status, 204);
    for table in [0, 7, 19] {
        let sum: i64 = (0..200_000).filter(|i| i % 20 == table).sum();
        assert_eq!(
            server.sql(&format!("SELECT count(*), sum(w) FROM t{table}")),
            json!([[10_000, sum]])
        );
    }
}

#[test]
fn endpoints_for_clients_of_influxdb_answer() {
    let server = TestServer::start();
    for method in ["GET", "HEAD"] {
        let reply = server.send(method, "/ping", "", b"");
        assert_eq!(reply.status, 204);
        assert!(reply.header("x-influxdb-version").unwrap().starts_with("1.8"));
    }
    assert_eq!(server.get("/ping?verbose=true").status, 200);
    let form = b"q=CREATE+DATABASE+telegraf&db=";
    assert_eq!(server.send("POST", "/query", "", form).status, 200);
    let plain = b"q=CREATE DATABASE \"telegraf\"";
    assert_eq!(server.send("POST", "/query", "", plain).status, 200);
    for query in ["/query?q=SELECT+1", "/query", "/query?q=DROP+DATABASE+x"] {
        let reply = server.get(query);
        assert_eq!(reply.status, 400, "{query}");
        assert!(reply.json()["error"].is_string());
    }
    assert_eq!(server.get("/write").status, 405);
    assert_eq!(server.get("/nothing/here").status, 404);
}

#[test]
fn a_tag_that_is_too_long_is_a_bad_line() {
    let server = TestServer::start();
    let long = "x".repeat(16_385);
    let body = format!("m,site=a v=1 1\nm,site={long} v=2 2\nm,site=b v=3 3\n");
    let reply = server.write(&body);
    assert_eq!(reply.status, 400, "{}", reply.text());
    for part in
        ["partial write", "tag \\\"site\\\"", "16385 bytes", "up to 16384", "(line 2)", "dropped=1"]
    {
        assert!(reply.text().contains(part), "{part}: {}", reply.text());
    }
    assert_eq!(server.sql("SELECT v FROM m ORDER BY v"), json!([[1.0], [3.0]]));
    let insert = format!("INSERT INTO m (time, site, v) VALUES ('2024-01-01', '{long}', 3)");
    let reply = server.send("POST", "/api/v1/sql", "", insert.as_bytes());
    assert_eq!((reply.status, &reply.json()["error"]["kind"]), (400, &json!("invalid")));
    assert!(reply.text().contains("16384"), "{}", reply.text());
}

#[test]
fn the_new_tables_of_a_body_are_made_at_once() {
    let server = TestServer::start();
    let commits = || std::fs::read_dir(server.dir.path().join("manifest")).unwrap().count();
    let before = commits();
    let body: String = (0..200).map(|table| format!("m{table},host=a v={table} 1\n")).collect();
    assert_eq!(server.write(body).status, 204);
    assert_eq!(commits(), before + 1);
    let body: String = (0..200).map(|table| format!("m{table},host=a v=1,w=2 2\n")).collect();
    assert_eq!(server.write(body).status, 204);
    assert_eq!(commits(), before + 2);
    assert_eq!(
        server.sql("SELECT v, w FROM m199 ORDER BY time"),
        json!([[199.0, null], [1.0, 2.0]])
    );
}

#[test]
fn descriptors_make_tables_of_records() {
    let server = TestServer::start();
    let descriptor = "<description><struct><field name=\"a\" type=\"double\"/><field name=\"b\" type=\"char\" array_len=9/></struct>\
                      <indexing-dimensions><field name=\"a\"/></indexing-dimensions></description>";
    let send = |target: &str, body: &str| server.send("POST", target, "", body.as_bytes());
    let made = send("/api/v1/tables?table=t", descriptor);
    assert_eq!(
        made.json(),
        json!({"table": "t", "columns": 2, "dimensions": 1}),
        "{}",
        made.text()
    );
    server.sql("INSERT INTO t VALUES (1.5, 'x')");
    assert_eq!(server.sql("SELECT b FROM t WHERE a > 1"), json!([["x"]]));
    for (target, body, status, why) in [
        ("/api/v1/tables?table=t", descriptor, 409, "t"),
        ("/api/v1/tables", descriptor, 400, "the parameter table is missing"),
        ("/api/v1/tables?table=u", "{}", 400, "no <field>"),
        ("/api/v1/tables?table=u", &descriptor.replace("double", "dble"), 400, "type \\\"dble"),
    ] {
        let reply = send(target, body);
        assert!(reply.status == status && reply.text().contains(why), "{}", reply.text());
    }
}
