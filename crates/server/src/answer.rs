//! An answer on its way to the client, with a bounded part of it in memory.
//!
//! 1. The query, or the question of a data frame, waits for its turn, then runs as a task on the runtime for queries, and encodes its first rows.
//! 2. When they are all, or when it fails before it has encoded [`WHOLE_BYTES`], the client gets
//!    one plain answer with its length, or an error with its status.
//! 3. Otherwise the rest follows in pieces through a channel of [`PIECES_AHEAD`]; a client that
//!    reads slowly slows the query down, which gives others its turn meanwhile. An error cuts the
//!    chunked answer off without its last chunk, which every client takes for the failure that it is.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arrow_array::RecordBatch;
use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};
use tidefall_questions::{Answer, Asked};
use tidefall_sql::{Parameter, QueryStream};
use tidefall_types::{Error, Result, caught};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::admission::{Permit, Turn};
use crate::app::App;
use crate::failure::{Failure, lost};
use crate::format::{Encoder, Format};

/// An answer up to this length is sent whole; also about the size of the pieces of a longer one.
const WHOLE_BYTES: usize = 128 << 10;

/// Of the memory budget for each value of a frame that is computed as a whole: itself, as often again while it is, and twice that for others.
const BYTES_PER_VALUE: usize = 4 * size_of::<f64>();

/// A client that has not read for so long goes when memory is short.
const UNREAD_PAUSE: Duration = Duration::from_secs(1);

/// Pieces that wait for the client to read them.
const PIECES_AHEAD: usize = 2;

/// What a client asks for.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// A statement with values for its parameters.
    Sql(String, Vec<Parameter>),
    /// What data frames are made of.
    Frames(Asked),
}

/// What is to be answered.
#[derive(Debug)]
pub(crate) struct Job {
    pub wanted: Wanted,
    pub format: Format,
    /// Held until the answer is sent, not read.
    pub permit: Permit,
}

/// Begins an answer.
///
/// # Errors
/// Those of [`tidefall_sql::Session::query`] and [`Asked::answer`], `Limit` when it takes too long, and status 503 when its turn does not come
/// for long.
pub(crate) async fn answer(app: &Arc<App>, job: Job) -> std::result::Result<Response, Failure> {
    let turn = app.admission.turn().await?;
    let (head_sender, head) = oneshot::channel();
    let (pieces_sender, pieces) = mpsc::channel(PIECES_AHEAD);
    let content_type = [(CONTENT_TYPE, job.format.content_type())];
    let work = work(Arc::clone(app), job, turn, head_sender, pieces_sender);
    let queries = app.queries().ok_or_else(|| Error::closed("the server stops"))?;
    let mut task = Task(queries.spawn(work));
    let Ok(head) = head.await else { return Err(task.why_lost().await.into()) };
    Ok(match head? {
        Head::Whole(bytes) => (content_type, bytes).into_response(),
        Head::Begin(first) => {
            let pieces = Pieces { first: Some(first), pieces, end: End::Ahead, _task: task };
            (content_type, Body::from_stream(pieces)).into_response()
        }
    })
}

enum Head {
    Whole(Vec<u8>),
    Begin(Bytes),
}

enum Piece {
    Bytes(Bytes),
    End,
}

/// A task that is stopped when nobody waits for it any more.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Task {
    /// Why it ended without an answer.
    async fn why_lost(&mut self) -> Error {
        match (&mut self.0).await {
            Ok(()) => Error::internal(
                "internal error: a query ended without an answer; this is a bug of Tidefall",
            ),
            Err(error) => lost(error),
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn work(
    app: Arc<App>,
    job: Job,
    turn: Turn,
    head: oneshot::Sender<Result<Head>>,
    pieces: mpsc::Sender<Piece>,
) {
    let Job { wanted, format, permit } = job;
    let mut rows = Rows { app: &app, turn, permit, source: None, held_bytes: 0 };
    let begun = rows.begin(wanted, format).await;
    let (bytes, mut encoder) = match begun {
        Ok((bytes, Some(encoder))) => (bytes, encoder),
        Ok((bytes, None)) => {
            let _ = head.send(Ok(Head::Whole(bytes)));
            return;
        }
        Err(error) => {
            let _ = head.send(Err(error));
            return;
        }
    };
    // What is long goes piece by piece, so that it is here, and not on its way, while its client does not read.
    let mut rest = Bytes::from(bytes);
    let first = rest.split_to(rest.len().min(WHOLE_BYTES));
    if head.send(Ok(Head::Begin(first))).is_err() {
        return;
    }
    if let Err(error) = rows.send_rest(rest, &mut encoder, &pieces).await {
        app.metrics.answer_cut_off(error.kind());
        tracing::warn!(kind = error.kind().name(), %error, "an answer was cut off");
    }
}

struct Rows<'a> {
    app: &'a App,
    turn: Turn,
    permit: Permit,
    source: Option<Source>,
    /// What it has of [`App::answers_bytes`].
    held_bytes: usize,
}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        self.app.answers_bytes.fetch_sub(self.held_bytes, Ordering::Relaxed);
    }
}

/// Where batches come from.
enum Source {
    Query(QueryStream),
    Frames(Batches),
}

/// Batches that are computed one after the other.
type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

impl Rows<'_> {
    /// The first bytes, and the encoder for the others if there are any.
    async fn begin(
        &mut self,
        wanted: Wanted,
        format: Format,
    ) -> Result<(Vec<u8>, Option<Encoder>)> {
        let (schema, source) = match wanted {
            Wanted::Sql(sql, parameters) => {
                // Settings of one request are none of the next one's.
                let session = self.app.session.fork();
                let query = session.query_with(&sql, &parameters);
                let stream = self.turn.within(query).await??;
                (stream.schema(), Source::Query(stream))
            }
            Wanted::Frames(asked) => {
                let db = self.app.db.clone();
                let values_max = db.options().memory_bytes / BYTES_PER_VALUE;
                let answer = move || caught(|| asked.answer(&db, values_max));
                let Answer { schema, batches } = self.apart(answer).await??;
                (schema, Source::Frames(batches))
            }
        };
        let mut encoder = Encoder::start(format, &schema)?;
        self.source = Some(source);
        let has_more = self.fill(&mut encoder).await?;
        let bytes = self.take(&mut encoder, 0);
        Ok((bytes, has_more.then_some(encoder)))
    }

    async fn send_rest(
        &mut self,
        rest: Bytes,
        encoder: &mut Encoder,
        pieces: &mpsc::Sender<Piece>,
    ) -> Result<()> {
        self.send_bytes(pieces, rest).await?;
        loop {
            let rows_before = encoder.rows();
            let has_more = self.fill(encoder).await?;
            let bytes = self.take(encoder, rows_before);
            self.send_bytes(pieces, bytes.into()).await?;
            if !has_more {
                return self.send(pieces, Piece::End).await;
            }
        }
    }

    /// Encodes rows until there is a piece; says whether more follow.
    async fn fill(&mut self, encoder: &mut Encoder) -> Result<bool> {
        while encoder.len() < WHOLE_BYTES {
            let next = match self.source.take() {
                Some(Source::Query(mut stream)) => {
                    let next = self.turn.within(stream.next()).await?;
                    self.source = Some(Source::Query(stream));
                    next
                }
                Some(Source::Frames(mut batches)) => {
                    let next = move || (caught(|| batches.next().transpose()), batches);
                    let (next, batches) = self.apart(next).await?;
                    self.source = Some(Source::Frames(batches));
                    next.transpose()
                }
                None => None,
            };
            match next {
                Some(batch) => encoder.write(&batch?)?,
                None => {
                    encoder.finish()?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Does something on a thread that may block. It has the turn and the permit until it ends, also when its client is gone.
    async fn apart<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let held = (self.turn.lend(), self.permit.clone());
        let work = tokio::task::spawn_blocking(move || (work(), held));
        let (done, (turn, _)) = self.turn.within(work).await?.map_err(lost)?;
        self.turn.take_back(turn);
        Ok(done)
    }

    fn take(&mut self, encoder: &mut Encoder, rows_before: usize) -> Vec<u8> {
        let bytes = encoder.take();
        let held_bytes = self.held_bytes.max(bytes.len() + PIECES_AHEAD * WHOLE_BYTES);
        self.app.answers_bytes.fetch_add(held_bytes - self.held_bytes, Ordering::Relaxed);
        self.held_bytes = held_bytes;
        self.app.metrics.answered(encoder.rows() - rows_before, bytes.len());
        bytes
    }

    async fn send_bytes(&mut self, pieces: &mpsc::Sender<Piece>, mut bytes: Bytes) -> Result<()> {
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(WHOLE_BYTES));
            self.send(pieces, Piece::Bytes(piece)).await?;
        }
        Ok(())
    }

    async fn send(&mut self, pieces: &mpsc::Sender<Piece>, piece: Piece) -> Result<()> {
        let piece = match pieces.try_send(piece) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Closed(_)) => return Err(Error::closed("the client is gone")),
            Err(TrySendError::Full(piece)) => piece,
        };
        // Others have their turn until the client has read. One that is gone takes this task with it, so that only a slow one is left.
        let app = self.app;
        let send = async move {
            loop {
                match timeout(UNREAD_PAUSE, pieces.reserve()).await {
                    Ok(Ok(permit)) => {
                        permit.send(piece);
                        return Ok(());
                    }
                    Ok(Err(_)) => return Err(Error::closed("the client is gone")),
                    Err(_) if holds_too_much(app) => return Err(unread()),
                    Err(_) => {}
                }
            }
        };
        self.turn.apart(send).await?
    }
}

/// Whether answers hold more than half of the memory budget: in what waits for clients, and in rows that have left memory for objects, as each answer
/// holds those of its snapshot, and no writer waits for them.
fn holds_too_much(app: &App) -> bool {
    let stats = app.db.stats();
    let answers_bytes = app.answers_bytes.load(Ordering::Relaxed) as u64;
    stats.retained_bytes + answers_bytes > stats.memory_bytes / 2
}

fn unread() -> Error {
    Error::limit(
        "the client does not read, and readings that its answer holds take too much memory; ask again",
    )
}

/// The pieces of an answer as its body.
struct Pieces {
    first: Option<Bytes>,
    pieces: mpsc::Receiver<Piece>,
    end: End,
    _task: Task,
}

enum End {
    Ahead,
    Reached,
    /// The answer is cut off as soon as what stands before that is on its way.
    CutOff,
}

impl Stream for Pieces {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        match self.end {
            End::Ahead => {}
            End::Reached => return Poll::Ready(None),
            End::CutOff => {
                return Poll::Ready(Some(Err(io::Error::other("the answer was cut off"))));
            }
        }
        match ready!(self.pieces.poll_recv(cx)) {
            Some(Piece::Bytes(bytes)) => Poll::Ready(Some(Ok(bytes))),
            Some(Piece::End) => {
                self.end = End::Reached;
                Poll::Ready(None)
            }
            None => {
                // While a body has nothing for it, the connection sends what it has gathered, at
                // least the head of the answer; an error at once would drop that.
                self.end = End::CutOff;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}
