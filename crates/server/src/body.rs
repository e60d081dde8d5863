//! Bodies of requests: read within bounds, and unpacked.

use std::io::Read;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use axum::http::{HeaderMap, StatusCode};
use flate2::bufread::MultiGzDecoder;
use futures::StreamExt;
use tidefall_types::Error;
use tokio::time::{Instant, timeout_at};

use crate::admission::Memory;
use crate::app::App;
use crate::failure::Failure;

/// Memory that is set aside for the first bytes of a packed body; twice as much each time that it is full.
const UNPACKED_FIRST_BYTES: usize = 256 << 10;

/// Memory that is set aside for a body that does not announce its length, as those of Telegraf do
/// not; more is asked for when it turns out longer.
const UNANNOUNCED_BYTES: usize = 256 << 10;

/// Bytes of a body that must come in a second, on average, beyond the time that it may pause: a body holds memory until
/// it is whole. Slower than any network over which people send readings.
const BYTES_PER_SECOND_MIN: f64 = 4096.0;

/// The body of a request.
#[derive(Debug)]
pub(crate) struct Received {
    bytes: Bytes,
    is_gzip: bool,
    bytes_max: usize,
    memory: Memory,
}

impl Received {
    /// Whether the body is not packed, and not longer than `bytes`.
    pub(crate) fn is_plain_up_to(&self, bytes: usize) -> bool {
        !self.is_gzip && self.bytes.len() <= bytes
    }

    /// The body without its packing. Takes long for a long one: not for a connection's thread.
    ///
    /// # Errors
    /// `Invalid` when it is not what its header says, `Limit` when it unpacks to too much, and status 503 when
    /// other bodies fill the memory.
    pub(crate) fn unpack(&mut self) -> Result<Bytes, Failure> {
        if !self.is_gzip {
            return Ok(self.bytes.clone());
        }
        let bytes = self.bytes.clone();
        let mut unpacked = MultiGzDecoder::new(&*bytes);
        let mut out = Vec::new();
        let mut capacity = UNPACKED_FIRST_BYTES;
        loop {
            capacity = capacity.min(self.bytes_max + 1);
            self.grow_by(capacity)?;
            out.reserve_exact(capacity - out.len());
            let more = (capacity - out.len()) as u64;
            let read = unpacked
                .by_ref()
                .take(more)
                .read_to_end(&mut out)
                .map_err(|error| Error::invalid(format!("the body is not gzip: {error}")))?;
            if out.len() > self.bytes_max {
                return Err(too_long(self.bytes_max).into());
            }
            if (read as u64) < more {
                return Ok(out.into());
            }
            capacity *= 2;
        }
    }

    /// Holds memory for `unpacked` bytes beside those that came.
    ///
    /// # Errors
    /// `Limit` when that is more than a body may have, and status 503 when other bodies fill the memory.
    pub(crate) fn grow_by(&mut self, unpacked: usize) -> Result<(), Failure> {
        if unpacked > self.bytes_max + 1 {
            return Err(too_long(self.bytes_max).into());
        }
        self.memory.grow_to(self.bytes.len() + unpacked)?;
        Ok(())
    }
}

/// Reads the body of a request.
///
/// # Errors
/// `Limit` when it is too long, `Invalid` for an unknown encoding or a body that breaks off; status 408 when no
/// byte comes for too long, or too few of them, 503 when there is no memory for that long.
pub(crate) async fn receive(
    app: &App,
    headers: &HeaderMap,
    body: Body,
) -> Result<Received, Failure> {
    let encoding = headers.get(CONTENT_ENCODING).map(|value| value.as_bytes().trim_ascii());
    let is_gzip = match encoding.map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"identity" | b"") => false,
        Some(b"gzip" | b"x-gzip") => true,
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            let error = Error::invalid(format!(
                "a body in the encoding {other:?} cannot be read: use gzip or none"
            ));
            return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, &error));
        }
    };
    let bytes_max = app.options.body_bytes_max;
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok())
        .unwrap_or(UNANNOUNCED_BYTES.min(bytes_max));
    if announced > bytes_max {
        return Err(too_long(bytes_max).into());
    }
    let mut memory = app.admission.memory(announced).await?;
    let bytes = collect(app, body, &mut memory).await?;
    app.metrics.received(bytes.len());
    Ok(Received { bytes, is_gzip, bytes_max, memory })
}

async fn collect(app: &App, body: Body, memory: &mut Memory) -> Result<Bytes, Failure> {
    let (bytes_max, pause_max) = (app.options.body_bytes_max, app.options.body_pause_max);
    let mut stream = body.into_data_stream();
    // Most bodies come in one piece, which is then not copied.
    let mut first = Bytes::new();
    let mut all: Vec<u8> = Vec::new();
    let mut pace = Pace::begin(pause_max);
    while let Some(piece) = pace.keep(stream.next()).await? {
        let piece =
            piece.map_err(|error| Error::invalid(format!("the body broke off: {error}")))?;
        let length = first.len() + all.len() + piece.len();
        pace.bytes = length;
        if length > bytes_max {
            return Err(too_long(bytes_max).into());
        }
        if first.is_empty() && all.is_empty() {
            first = piece;
            continue;
        }
        // Twice as much as there is, so that growing takes few steps.
        memory.grow_to(length.next_power_of_two().min(bytes_max))?;
        all.extend_from_slice(&std::mem::take(&mut first));
        all.extend_from_slice(&piece);
    }
    Ok(if all.is_empty() { first } else { all.into() })
}

/// How fast a body comes.
struct Pace {
    start: Instant,
    pause_max: Duration,
    /// Bytes that have come.
    bytes: usize,
}

impl Pace {
    fn begin(pause_max: Duration) -> Self {
        Self { start: Instant::now(), pause_max, bytes: 0 }
    }

    /// Waits for the next piece. A client that pauses for long, or lets its body drip, has to send it again: its memory is
    /// for others.
    async fn keep<T>(&self, piece: impl Future<Output = T>) -> Result<T, Failure> {
        let granted = Duration::from_secs_f64(self.bytes as f64 / BYTES_PER_SECOND_MIN);
        let slow_at = self.start + self.pause_max + granted;
        let paused_at = Instant::now() + self.pause_max;
        let is_slow = self.bytes > 0 && slow_at < paused_at;
        timeout_at(slow_at.min(paused_at), piece).await.map_err(|_| match is_slow {
            true => self.too_slow(),
            false => self.paused(),
        })
    }

    fn paused(&self) -> Failure {
        let seconds = self.pause_max.as_secs_f64();
        let error =
            Error::limit(format!("no byte of the body came for {seconds} s; send it again"));
        Failure::new(StatusCode::REQUEST_TIMEOUT, &error)
    }

    fn too_slow(&self) -> Failure {
        let seconds = self.start.elapsed().as_secs_f64();
        let error = Error::limit(format!(
            "{} bytes of the body came in {seconds:.1} s, fewer than {BYTES_PER_SECOND_MIN} in a second; send it \
             faster, or in pieces",
            self.bytes
        ));
        Failure::new(StatusCode::REQUEST_TIMEOUT, &error)
    }
}

fn too_long(bytes_max: usize) -> Error {
    Error::limit(format!("the body is longer than {bytes_max} bytes: send it in pieces"))
}
