//! Too much at once, too slow, and many at a time.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::json;
use tidefall_server::ServerOptions;

use crate::client::{TestServer, connect, read_reply, send};

/// A request whose body does not come: it keeps its place until the server gives up on it.
fn hang(server: &TestServer) -> std::net::TcpStream {
    let mut stream = connect(server.address).unwrap();
    let head = "POST /write HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 10\r\n\r\n";
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
fn a_request_that_takes_too_long_ends() {
    let time = Duration::from_millis(500);
    let server = TestServer::with(ServerOptions { request_time_max: time, ..Default::default() });
    let mut stream = hang(&server);
    let reply = read_reply(&mut stream, "POST").unwrap();
    assert_eq!(reply.status, 503);
    assert!(reply.text().contains("longer than 0.5 s"), "{}", reply.text());
}

#[test]
fn a_client_that_goes_away_frees_its_query() {
    let server = TestServer::with(ServerOptions { requests_max: 1, ..Default::default() });
    let body: String = (0..100_000).map(|i| format!("m,t=a v={i} {i}\n")).collect();
    assert_eq!(server.write(body).status, 204);
    // Far more rows than fit into the buffers in between, never read.
    let sql = "SELECT a.v, b.v FROM m a CROSS JOIN m b";
    let mut stream = connect(server.address).unwrap();
    let head =
        format!("POST /api/v1/sql HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", sql.len());
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
