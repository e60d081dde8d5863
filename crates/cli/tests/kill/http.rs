//! HTTP/1.1 over a plain socket that stays open, as far as this test needs it.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server that does not answer for so long hangs.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// Why a client cannot go on.
#[derive(Debug)]
pub enum Stop {
    /// The connection broke, as it must when the process is killed.
    Gone,
    /// Something that must not happen.
    Failed(String),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                Self::Failed(format!("no answer within {ANSWER_TIME_MAX:?}"))
            }
            ErrorKind::InvalidData => Self::Failed(format!("an answer is malformed: {error}")),
            _ => Self::Gone,
        }
    }
}

/// An answer that came to its end.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub body: String,
}

/// A connection to a server.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<TcpStream>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// `Gone` without a server.
    pub fn open(address: SocketAddr) -> Result<Self, Stop> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        stream.set_write_timeout(Some(ANSWER_TIME_MAX))?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Sends a body and waits for all of the answer.
    ///
    /// # Errors
    /// `Gone` when the connection breaks before the answer has ended.
    pub fn post(&mut self, target: &str, body: &str) -> Result<Reply, Stop> {
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.reader.get_mut().write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
        Ok(self.reply()?)
    }

    /// The answer to a statement as lines of CSV, the header among them; none when the table or
    /// a column does not exist.
    ///
    /// # Errors
    /// As [`Connection::post`], and `Failed` for any other error of the statement.
    pub fn sql(&mut self, sql: &str) -> Result<Option<String>, Stop> {
        let reply = self.post("/api/v1/sql?format=csv", sql)?;
        match reply.status {
            200 => Ok(Some(reply.body)),
            404 => Ok(None),
            status => Err(Stop::Failed(format!("{sql}: status {status}: {}", reply.body))),
        }
    }

    fn reply(&mut self) -> io::Result<Reply> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| malformed(&status_line))?;
        let (mut length, mut is_chunked) = (0, false);
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let Some((name, value)) = line.split_once(':') else { return Err(malformed(&line)) };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => {
                    length = value.trim().parse().map_err(|_| malformed(&line))?;
                }
                "transfer-encoding" => is_chunked = value.trim() == "chunked",
                _ => {}
            }
        }
        let mut body = Vec::new();
        match is_chunked {
            true => while self.chunk(&mut body)? {},
            false => self.bytes(length, &mut body)?,
        }
        let body = String::from_utf8(body).map_err(|_| malformed("a body that is not UTF-8"))?;
        Ok(Reply { status, body })
    }

    /// Adds a chunk to the body; false for the last one, which is empty.
    fn chunk(&mut self, body: &mut Vec<u8>) -> io::Result<bool> {
        let line = self.line()?;
        let length = usize::from_str_radix(&line, 16).map_err(|_| malformed(&line))?;
        self.bytes(length, body)?;
        self.line()?;
        Ok(length > 0)
    }

    fn bytes(&mut self, length: usize, out: &mut Vec<u8>) -> io::Result<()> {
        let start = out.len();
        out.resize(start + length, 0);
        self.reader.read_exact(&mut out[start..])
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 || !line.ends_with("\r\n") {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.len() - "\r\n".len());
        Ok(line)
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}
