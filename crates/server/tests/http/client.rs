//! Starting servers and talking to them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tidefall_server::{Server, ServerOptions};
use tidefall_storage::{Db, DbOptions, MEMORY_BYTES_MIN};
use tidefall_types::Result;
use tokio::sync::oneshot;

/// A server over an empty database; it stops when it is dropped.
pub struct TestServer {
    pub address: SocketAddr,
    pub dir: TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl TestServer {
    pub fn start() -> Self {
        Self::with(ServerOptions::default())
    }

    pub fn with(options: ServerOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        Self::of(db, dir, options)
    }

    /// A server over an empty database with the least memory budget that one may have.
    pub fn of_least_memory(options: ServerOptions) -> (Db, Self) {
        let dir = tempfile::tempdir().unwrap();
        let least = DbOptions { memory_bytes: MEMORY_BYTES_MIN, ..DbOptions::default() };
        let db = Db::open(dir.path(), least).unwrap();
        (db.clone(), Self::of(db, dir, options))
    }

    /// A server of a database that lies in `dir`, or somewhere else.
    pub fn of(db: Db, dir: TempDir, options: ServerOptions) -> Self {
        let options = ServerOptions { address: ([127, 0, 0, 1], 0).into(), ..options };
        let (stop, stopped) = oneshot::channel();
        let (address_sender, address) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let server = Server::bind(db, options).await?;
                address_sender.send(server.address()?).unwrap();
                server
                    .run(async {
                        let _ = stopped.await;
                    })
                    .await
            })
        });
        let address = address.recv().unwrap();
        Self { address, dir, stop: Some(stop), thread: Some(thread) }
    }

    /// Asks the server to stop.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits until the server has stopped.
    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }

    pub fn send(&self, method: &str, target: &str, headers: &str, body: &[u8]) -> Reply {
        send(self.address, method, target, headers, body).unwrap()
    }

    pub fn get(&self, target: &str) -> Reply {
        self.send("GET", target, "", b"")
    }

    pub fn write(&self, body: impl AsRef<[u8]>) -> Reply {
        self.send("POST", "/write?db=x", "", body.as_ref())
    }

    /// A figure of `/metrics` that has no labels.
    pub fn metric(&self, name: &str) -> usize {
        let page = self.get("/metrics").text();
        let mut lines = page.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(found, _)| *found == name).unwrap().1.parse().unwrap()
    }

    /// The rows of an answer in JSON.
    pub fn sql(&self, sql: &str) -> Value {
        let reply = self.send("POST", "/api/v1/sql", "", sql.as_bytes());
        assert_eq!(reply.status, 200, "{sql}: {}", reply.text());
        reply.json()["rows"].clone()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            if !std::thread::panicking() {
                outcome.unwrap().unwrap();
            }
        }
    }
}

pub fn open(dir: &TempDir) -> Db {
    let options = DbOptions { memory_bytes: 256 << 20, threads: 2, ..DbOptions::default() };
    Db::open(dir.path(), options).unwrap()
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    /// Whether the body came to its end.
    pub is_complete: bool,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Sends one request over a connection of its own; `headers` are whole lines.
pub fn send(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: &str,
    body: &[u8],
) -> std::io::Result<Reply> {
    let mut stream = connect(address)?;
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    // The server may answer and close before it has read all of a body that it refuses.
    let _ = stream.write_all(body);
    read_reply(&mut stream, method)
}

pub fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    Ok(stream)
}

/// Reads to the end of the connection.
pub fn read_reply(stream: &mut TcpStream, method: &str) -> std::io::Result<Reply> {
    let mut bytes = Vec::new();
    let outcome = stream.read_to_end(&mut bytes);
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        outcome?;
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head[9..12].parse().unwrap();
    let mut reply = Reply { status, head, body: bytes.split_off(end + 4), is_complete: true };
    if reply.header("transfer-encoding") == Some("chunked") {
        (reply.body, reply.is_complete) = dechunk(&reply.body);
    } else if let Some(length) = reply.header("content-length")
        && method != "HEAD"
    {
        reply.is_complete = length.parse() == Ok(reply.body.len());
    }
    Ok(reply)
}

fn dechunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
        let length = std::str::from_utf8(&rest[..end]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        rest = &rest[end + 2..];
        if length == 0 {
            return (body, true);
        }
        if rest.len() < length + 2 {
            break;
        }
        body.extend_from_slice(&rest[..length]);
        rest = &rest[length + 2..];
    }
    (body, false)
}
