//! Queries that wait for their turn, and those that never end well.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tidefall_server::ServerOptions;
use tidefall_storage::{Db, DbOptions, MEMORY_BYTES_MIN};
use tidefall_types::{Clock, SystemClock};

use crate::client::{TestServer, connect, read_reply};

/// Takes longer than any test, and keeps all cores busy.
const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000000) b \
                       WHERE a.value + b.value > 7";

/// Sends a query and does not wait for its answer.
fn ask(server: &TestServer, sql: &str) -> TcpStream {
    let mut stream = connect(server.address).unwrap();
    let head = format!(
        "POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        sql.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(sql.as_bytes()).unwrap();
    stream
}

#[test]
fn queries_beyond_the_limit_wait_and_are_told_to_come_back() {
    let wait = Duration::from_secs(1);
    let options = ServerOptions { queries_max: 1, query_wait_max: wait, ..Default::default() };
    let server = TestServer::with(options);
    let endless = ask(&server, ENDLESS);
    std::thread::sleep(Duration::from_millis(300));
    let start = Instant::now();
    let reply = server.send("POST", "/api/v1/sql", "", b"SELECT 1");
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{}", reply.text());
    assert!(reply.text().contains("1 queries are computed already"), "{}", reply.text());
    assert!(start.elapsed() >= wait, "{:?}", start.elapsed());
    // Writes and those who watch do not wait for queries.
    assert_eq!(server.write("m v=1 1").status, 204);
    assert_eq!(server.get("/health").status, 200);
    // Whoever waits when the query ends has its turn.
    let mut waiting = ask(&server, "SELECT 41 + 1 AS answer");
    std::thread::sleep(Duration::from_millis(300));
    drop(endless);
    let reply = read_reply(&mut waiting, "POST").unwrap();
    assert_eq!((reply.status, reply.json()["rows"].clone()), (200, json!([[42]])));
}

#[test]
fn an_answer_that_is_not_read_holds_up_no_query() {
    let options = ServerOptions { queries_max: 1, ..Default::default() };
    let server = TestServer::with(options);
    // Far more rows than fit into the buffers in between.
    let mut slow = ask(&server, "SELECT value, value * 2 FROM generate_series(1, 3000000)");
    for n in 0..5 {
        assert_eq!(server.sql(&format!("SELECT {n}")), json!([[n]]));
    }
    let mut bytes = Vec::new();
    slow.read_to_end(&mut bytes).unwrap();
    let end = String::from_utf8_lossy(&bytes[bytes.len() - 200..]).into_owned();
    assert!(end.contains("[3000000,6000000]"), "{end}");
}

/// Each answer that nobody read kept the rows of its moment, far beyond the budget.
#[test]
fn answers_that_are_not_read_hold_no_more_than_half_of_the_memory() {
    const ROWS: i64 = 150_000;
    const ROUNDS: i64 = 12;
    const HALF: u64 = MEMORY_BYTES_MIN as u64 / 2;
    let (db, server) = TestServer::of_least_memory(ServerOptions::default());
    let most = || db.stats().retained_bytes;
    let mut unread = Vec::new();
    for round in 0..ROUNDS {
        let line = |row: i64| format!("m a=1,b=2,c=3,d=4 {}\n", round * ROWS + row);
        assert_eq!(server.write((0..ROWS).map(line).collect::<String>()).status, 204);
        unread.push(ask(&server, "SELECT * FROM m"));
        // Until it has a snapshot.
        std::thread::sleep(Duration::from_millis(300));
        db.flush().unwrap();
    }
    let start = Instant::now();
    while most() > HALF && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(most() <= HALF, "{} bytes", most());
    assert_eq!(server.sql("SELECT count(*) FROM m"), json!([[ROWS * ROUNDS]]));
}

/// The bytes of answers that are computed or on their way.
const ANSWERS_BYTES: &str = "tidefall_memory_answers_bytes";
const CUT_OFF: &str = "tidefall_answers_cut_off_total";

/// Each that nobody read was there for as long as its client was.
#[test]
fn long_answers_share_half_of_the_memory_and_those_that_are_not_read_go() {
    const CLIENTS: usize = 40;
    const HALF: usize = MEMORY_BYTES_MIN / 2;
    let (_, server) = TestServer::of_least_memory(ServerOptions::default());
    let long = "SELECT value, value * 2 FROM generate_series(1, 300000000)";
    let unread: Vec<TcpStream> = (0..CLIENTS).map(|_| ask(&server, long)).collect();
    let start = Instant::now();
    let mut cut_off = 0;
    // As many as have no share, and were not told to come back, wait for those that do not read.
    while cut_off < CLIENTS / 8 && start.elapsed() < Duration::from_secs(60) {
        assert!(server.metric(ANSWERS_BYTES) <= HALF);
        assert_eq!(server.sql("SELECT 1"), json!([[1]]));
        cut_off = server.metric(CUT_OFF);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(cut_off >= CLIENTS / 8, "{cut_off} were cut off");
    drop(unread);
    while server.metric(ANSWERS_BYTES) > 0 && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(server.metric(ANSWERS_BYTES), 0);
}

/// Whether it needs any or not.
#[test]
fn a_small_question_waits_for_no_memory_of_long_answers() {
    let (_, server) = TestServer::of_least_memory(ServerOptions::default());
    assert_eq!(server.write("m v=1 1").status, 204);
    let long = "SELECT value, value * 2 FROM generate_series(1, 300000000)";
    let _unread: Vec<TcpStream> = (0..8).map(|_| ask(&server, long)).collect();
    let start = Instant::now();
    while server.metric(ANSWERS_BYTES) < MEMORY_BYTES_MIN / 2 {
        assert!(start.elapsed() < Duration::from_secs(60), "{}", server.metric(ANSWERS_BYTES));
        std::thread::sleep(Duration::from_millis(20));
    }
    let latest = br#"{"table": "m", "field": "v", "ask": "latest"}"#;
    assert_eq!(server.send("POST", "/api/v1/frames", "", latest).status, 200);
    // Nobody had to go for that.
    assert_eq!(server.metric(ANSWERS_BYTES), MEMORY_BYTES_MIN / 2);
    assert_eq!(server.metric(CUT_OFF), 0);
}

#[test]
fn a_body_that_drips_gives_its_memory_back() {
    let options = ServerOptions {
        body_bytes_max: 1 << 20,
        bodies_bytes_max: 2 << 20,
        body_pause_max: Duration::from_secs(1),
        ..Default::default()
    };
    let server = TestServer::with(options);
    let head =
        format!("POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", 1 << 20);
    let mut slow: Vec<_> = (0..2).map(|_| connect(server.address).unwrap()).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(head.as_bytes()).unwrap());
    let start = Instant::now();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The server ends them, though none of them ever pauses.
            while !is_done.load(Ordering::SeqCst) && start.elapsed() < Duration::from_secs(20) {
                for stream in &mut slow {
                    // Until it is answered: what comes after that would take the answer away.
                    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
                    if stream.peek(&mut [0]).is_err() {
                        drop(stream.write_all(b"#"));
                    }
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let mut status = 0;
        while status != 204 && start.elapsed() < Duration::from_secs(20) {
            status = server.write("m v=1 1").status;
        }
        is_done.store(true, Ordering::SeqCst);
        assert_eq!(status, 204, "the memory is still held");
    });
    slow[0].set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let reply = read_reply(&mut slow[0], "POST").unwrap();
    assert_eq!(reply.status, 408, "{}", reply.text());
    assert!(reply.text().contains("fewer than 4096 in a second"), "{}", reply.text());
}

/// A clock that panics when it is told to: a fault of the program in the middle of a query.
#[derive(Debug, Default)]
struct BrokenClock(AtomicBool);

impl Clock for BrokenClock {
    fn now_ns(&self) -> i64 {
        assert!(!self.0.load(Ordering::SeqCst), "the clock stands still");
        SystemClock.now_ns()
    }
}

#[test]
fn a_panic_is_a_fault_of_the_server_and_not_its_end() {
    let clock = Arc::new(BrokenClock::default());
    let dir = tempfile::tempdir().unwrap();
    let options = DbOptions { clock: Arc::clone(&clock) as _, threads: 2, ..DbOptions::default() };
    let db = Db::open(dir.path(), options).unwrap();
    let server = TestServer::of(db, dir, ServerOptions::default());
    clock.0.store(true, Ordering::SeqCst);
    let reply = server.send("POST", "/api/v1/sql", "", b"SELECT 1");
    clock.0.store(false, Ordering::SeqCst);
    assert_eq!(reply.status, 500, "{}", reply.text());
    assert_eq!(reply.json()["error"]["kind"], "internal");
    let text = reply.text();
    assert!(text.contains("the clock stands still; this is a bug of Tidefall"), "{text}");
    assert_eq!(server.sql("SELECT 1"), json!([[1]]));
}
