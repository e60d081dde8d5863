//! Too much at once, too slow, and many at a time.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tidefall_server::ServerOptions;
use tidefall_simulation::{Fault, FaultDisk, Times};
use tidefall_storage::store::LocalDisk;
use tidefall_storage::{Db, DbOptions, MEMORY_BYTES_MIN};

use crate::client::{TestServer, connect, read_reply, send};

/// A request whose body does not come: it keeps its permit until the server gives up on it.
fn hang(server: &TestServer) -> std::net::TcpStream {
    let mut stream = connect(server.address).unwrap();
    let head = "POST /write HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 10\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    stream
}

#[test]
fn requests_beyond_the_limit_are_told_to_come_back() {
    let server = TestServer::with(ServerOptions { requests_max: 2, ..Default::default() });
    let _first = hang(&server);
    let mut second = hang(&server);
    let reply = server.write("m v=1 1");
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.get("/metrics").status, 200);
    second.write_all(b"m v=1 1234").unwrap();
    assert_eq!(read_reply(&mut second, "POST").unwrap().status, 204);
    assert_eq!(server.write("m v=1 1").status, 204);
}

#[test]
fn what_is_too_much_at_once_is_not_asked_for_again_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultDisk::new(Arc::new(LocalDisk::new(dir.path())), 1);
    let options = DbOptions { memory_bytes: MEMORY_BYTES_MIN, ..DbOptions::default() };
    let db = Db::open_on(Arc::new(disk.clone()), options).unwrap();
    let server = TestServer::of(db, dir, ServerOptions::default());
    // More texts than a write may have with this budget.
    let body = format!("m s=\"{}\" 1\nn v=1 1", "x".repeat(25 << 20));
    let reply = server.write(&body);
    assert_eq!((reply.status, reply.header("retry-after")), (413, None), "{}", reply.text());
    assert!(reply.text().contains("send it in parts"), "{}", reply.text());
    assert!(reply.text().contains("dropped=1"), "{}", reply.text());
    assert_eq!(server.sql("SELECT v FROM n"), json!([[1.0]]));
    // What may go well another time goes first.
    disk.arm(Fault::DiskFull, 0, Times::Always);
    assert_eq!(server.write(&body).status, 507);
    disk.disarm();
    // Lines that differ more than those of a body may: those that fit to the last of them are taken.
    let lines =
        (0..20_000).map(|at| format!("m v={} {at}\n", if at % 2 == 0 { "1" } else { "1i" }));
    let reply = server.write(lines.collect::<String>());
    assert_eq!(reply.status, 413, "{}", reply.text());
    assert_eq!(server.sql("SELECT count(v) FROM m"), json!([[18_192]]));
}

#[test]
fn a_full_disk_is_told_and_writes_are_taken_when_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultDisk::new(Arc::new(LocalDisk::new(dir.path())), 1);
    let db = Db::open_on(Arc::new(disk.clone()), DbOptions::default()).unwrap();
    let server = TestServer::of(db, dir, ServerOptions::default());
    assert_eq!(server.write("m v=1 1").status, 204);
    disk.arm(Fault::DiskFull, 0, Times::Always);
    let reply = server.write("m v=2 2");
    assert_eq!(reply.status, 507, "{}", reply.text());
    assert!(reply.text().contains("free some space and try again"), "{}", reply.text());
    // A new table is of the manifest rather than the log.
    let reply = server.send("POST", "/api/v2/write?bucket=x", "", b"n v=2 2");
    assert_eq!((reply.status, &reply.json()["code"]), (507, &json!("insufficient storage")));
    let insert = b"INSERT INTO m (time, v) VALUES ('2024-01-01', 3)";
    let reply = server.send("POST", "/api/v1/sql", "", insert);
    assert_eq!((reply.status, &reply.json()["error"]["kind"]), (507, &json!("full")));
    assert_eq!(server.sql("SELECT v FROM m"), json!([[1.0]]));
    assert_eq!(server.get("/health").status, 200);
    disk.disarm();
    for body in ["m v=4 4", "n v=4 4"] {
        let reply = server.write(body);
        assert_eq!(reply.status, 204, "{}", reply.text());
    }
    assert_eq!(server.sql("SELECT v FROM m ORDER BY v"), json!([[1.0], [4.0]]));
}

#[test]
fn a_request_that_takes_too_long_ends() {
    let time = Duration::from_millis(500);
    let server = TestServer::with(ServerOptions { request_time_max: time, ..Default::default() });
    let mut stream = hang(&server);
    let reply = read_reply(&mut stream, "POST").unwrap();
    assert_eq!(reply.status, 503);
    assert!(reply.text().contains("longer than 0.5 s"), "{}", reply.text());
}

#[test]
fn bodies_that_do_not_come_give_their_memory_back() {
    let pause = Duration::from_secs(1);
    let server = TestServer::with(ServerOptions { body_pause_max: pause, ..Default::default() });
    let announced = format!("Content-Length: {}", 64 << 20);
    let mut streams: Vec<_> = [&announced, &announced, "Transfer-Encoding: chunked"]
        .iter()
        .map(|length| {
            let mut stream = connect(server.address).unwrap();
            let head = format!("POST /write HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    // The third waits for memory and a body, the others for a body alone.
    for stream in &mut streams {
        let reply = read_reply(stream, "POST").unwrap();
        assert!([408, 503].contains(&reply.status), "{}", reply.text());
    }
    assert_eq!(server.write("m v=1 1").status, 204);
}

#[test]
fn a_request_does_not_wait_for_memory_for_long() {
    let options = ServerOptions {
        body_bytes_max: 1 << 20,
        bodies_bytes_max: 2 << 20,
        body_pause_max: Duration::from_secs(2),
        ..Default::default()
    };
    let server = TestServer::with(options);
    let head =
        format!("POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", 1 << 20);
    let mut slow: Vec<_> = (0..2).map(|_| connect(server.address).unwrap()).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(head.as_bytes()).unwrap());
    std::thread::scope(|scope| {
        // Bodies that go on, slowly, keep their memory.
        scope.spawn(|| {
            for _ in 0..8 {
                std::thread::sleep(Duration::from_millis(500));
                slow.iter_mut().for_each(|stream| stream.write_all(&[b'#'; 4_096]).unwrap());
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        let reply = server.write("m v=1 1");
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    });
}

#[test]
fn what_unpacks_to_much_waits_for_no_memory() {
    const BODY_BYTES: usize = 4 << 20;
    let options = ServerOptions {
        body_bytes_max: BODY_BYTES,
        bodies_bytes_max: 2 * BODY_BYTES,
        ..Default::default()
    };
    let server = TestServer::with(options);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&vec![b'\n'; BODY_BYTES]).unwrap();
    let packed = encoder.finish().unwrap();
    let headers = "Content-Encoding: gzip\r\n";
    assert_eq!(server.send("POST", "/write", headers, &packed).status, 204);
    // One body that is announced leaves room for one that is packed, but not for two.
    let mut held = connect(server.address).unwrap();
    let head =
        format!("POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    held.write_all(head.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let reply = server.send("POST", "/write", headers, &packed);
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    drop(held);
}

#[test]
fn a_client_that_goes_away_frees_its_query() {
    let server = TestServer::with(ServerOptions { requests_max: 1, ..Default::default() });
    let body: String = (0..100_000).map(|i| format!("m,t=a v={i} {i}\n")).collect();
    assert_eq!(server.write(body).status, 204);
    // Far more rows than fit into the buffers in between, never read.
    let sql = "SELECT a.v, b.v FROM m a CROSS JOIN m b";
    let mut stream = connect(server.address).unwrap();
    let head = format!(
        "POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        sql.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(sql.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(server.write("m v=1 1").status, 503);
    drop(stream);
    let start = Instant::now();
    while server.write("m v=1 1").status == 503 {
        assert!(start.elapsed() < Duration::from_secs(10), "the query holds on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn many_clients_write_single_readings() {
    const CLIENTS: usize = 20;
    const WRITES: usize = 50;
    let server = TestServer::start();
    let address = server.address;
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || {
                for i in 0..WRITES {
                    let line = format!("m,client=c{client} v={i} {i}");
                    let reply = send(address, "POST", "/write", "", line.as_bytes()).unwrap();
                    assert_eq!(reply.status, 204, "{}", reply.text());
                }
            });
        }
    });
    assert_eq!(
        server.sql("SELECT count(*), count(DISTINCT client), sum(v) FROM m"),
        json!([[CLIENTS * WRITES, CLIENTS, (CLIENTS * WRITES * (WRITES - 1) / 2) as f64]])
    );
}
