//! Connections of clients that do not read what they asked for.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tidefall_types::ErrorKind;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::app::App;

/// A client that has not read for so long goes when memory is short.
const UNREAD_PAUSE: Duration = Duration::from_secs(1);

/// A connection that breaks when its client has not read for a while and memory is short, or not for as long as a request may take: whatever waits for
/// the client, in whose hands it may be, goes with it.
#[derive(Debug)]
pub(crate) struct Watched {
    stream: TcpStream,
    app: Arc<App>,
    unread: Option<Unread>,
}

/// What waits for the client.
#[derive(Debug)]
struct Unread {
    since: Instant,
    /// When to see whether it may wait longer.
    look: Pin<Box<Sleep>>,
}

impl Watched {
    pub(crate) fn new(stream: TcpStream, app: Arc<App>) -> Self {
        Self { stream, app, unread: None }
    }

    /// What a write came to; one that cannot go on waits until it can, or for too long.
    fn written(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.unread = None;
            return written;
        }
        let unread = self.unread.get_or_insert_with(|| {
            let since = Instant::now();
            Unread { since, look: Box::pin(sleep_until(since + UNREAD_PAUSE)) }
        });
        loop {
            ready!(unread.look.as_mut().poll(cx));
            let is_late = unread.since.elapsed() >= self.app.options.request_time_max;
            if is_late || self.app.needs_memory_of_answers() {
                self.app.metrics.answer_cut_off(ErrorKind::Limit);
                let unread_ms = unread.since.elapsed().as_millis() as u64;
                tracing::warn!(unread_ms, "a client that does not read was cut off");
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            unread.look.as_mut().reset(Instant::now() + UNREAD_PAUSE);
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
