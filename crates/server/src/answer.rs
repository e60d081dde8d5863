//! An answer on its way to the client, with a bounded part of it in memory.
//!
//! 1. The query, or the question of a data frame, waits for its turn, then runs as a task on the runtime for queries, and encodes its first rows.
//! 2. When they are all and fit into a part, or when it fails before it has encoded one, the client gets
//!    one plain answer with its length, or an error with its status.
//! 3. Otherwise it follows in parts through a channel of [`PARTS_AHEAD`]; a client that
//!    reads slowly slows the query down, which gives others its turn meanwhile. An error cuts the
//!    chunked answer off without its last chunk, which every client takes for the failure that it is.
//!
//! What is long has a share of the memory for answers: a query from its first part until the network has the last, a piece of a frame from before it
//! is computed until the network has it. Who waits for a share has no turn meanwhile, and `unread.rs` lets nobody wait for ever.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow_array::RecordBatch;
use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt};
use tidefall_questions::{Answer, Asked, Sizes};
use tidefall_sql::{Parameter, QueryStream};
use tidefall_types::{Error, Result, caught};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::admission::{Permit, Share, Turn};
use crate::app::App;
use crate::failure::{Failure, lost};
use crate::format::{Encoder, Format};
use crate::parts::{PART_BYTES, Parts};

/// Of the memory budget for each value of a frame that is computed as a whole: itself, as often again while it is, and twice that for others.
const BYTES_PER_VALUE: usize = 4 * size_of::<f64>();

/// Which part of the memory budget is reserved for a piece of a frame while it is computed, and about what its values take.
const PIECES_IN_BUDGET: usize = 8;

/// Parts that wait until the connection takes them.
const PARTS_AHEAD: usize = 2;

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
    let (pieces_sender, pieces) = mpsc::channel(PARTS_AHEAD);
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

/// Bytes, with the memory that they take if nothing else has it.
struct Held {
    bytes: Vec<u8>,
    _share: Option<Share>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
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
    head: oneshot::Sender<std::result::Result<Head, Failure>>,
    pieces: mpsc::Sender<Piece>,
) {
    let Job { wanted, format, permit } = job;
    let (source, share, of_query) = (None, None, None);
    let mut rows = Rows { app: &app, turn, permit, source, has_pieces: false, share, of_query };
    let (encoder, has_more) = match rows.begin(wanted, format).await {
        Ok(begun) => begun,
        Err(failure) => {
            let _ = head.send(Err(failure));
            return;
        }
    };
    if !has_more && encoder.len() <= PART_BYTES {
        let _ = head.send(Ok(Head::Whole(rows.take(encoder).0.into_whole())));
        return;
    }
    let mut head = Some(head);
    if let Err(error) = rows.send_all((encoder, has_more), &mut head, &pieces).await {
        match head {
            Some(head) => drop(head.send(Err(error.into()))),
            None => {
                app.metrics.answer_cut_off(error.kind());
                tracing::warn!(kind = error.kind().name(), %error, "an answer was cut off");
            }
        }
    }
}

struct Rows<'a> {
    app: &'a App,
    turn: Turn,
    permit: Permit,
    source: Option<Source>,
    /// Whether it is of pieces that may be long.
    has_pieces: bool,
    /// Memory for the piece of a frame that is computed next.
    share: Option<Share>,
    /// Memory of a query.
    of_query: Option<Share>,
}

/// Where batches come from.
enum Source {
    Query(QueryStream),
    Frames(Batches),
}

/// Batches that are computed one after the other.
type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

impl Rows<'_> {
    /// An encoder with the first rows, and whether more follow.
    async fn begin(
        &mut self,
        wanted: Wanted,
        format: Format,
    ) -> std::result::Result<(Encoder, bool), Failure> {
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
                let max = db.options().memory_bytes / BYTES_PER_VALUE;
                let sizes = Sizes { max, piece: max / PIECES_IN_BUDGET };
                self.has_pieces = asked.has_pieces();
                self.reserve_piece().await?;
                let answer = move || caught(|| asked.answer(&db, sizes));
                let Answer { schema, batches } = self.apart(answer).await??;
                (schema, Source::Frames(batches))
            }
        };
        let encoder = Encoder::start(format, &schema)?;
        self.source = Some(source);
        let (encoder, has_more) = self.fill(encoder).await?;
        if has_more && matches!(self.source, Some(Source::Query(_))) {
            let answers = &self.app.admission.answers;
            self.of_query = Some(match answers.try_of_query() {
                Some(share) => share,
                None => self.turn.apart(answers.of_query()).await??,
            });
        }
        Ok((encoder, has_more))
    }

    /// Sends what is encoded, and all that follows.
    async fn send_all(
        &mut self,
        (mut encoder, mut has_more): (Encoder, bool),
        head: &mut Option<oneshot::Sender<std::result::Result<Head, Failure>>>,
        pieces: &mpsc::Sender<Piece>,
    ) -> Result<()> {
        loop {
            let parts;
            (parts, encoder) = self.take(encoder);
            let mut share = match &self.of_query {
                Some(_) if has_more => None,
                // The network has the rest when nobody else knows of it.
                Some(_) => self.of_query.take(),
                None => Some(self.share_of(parts.len()).await?),
            };
            for bytes in parts {
                let share = share.as_mut().map(|share| share.split(bytes.len()));
                let bytes = Bytes::from_owner(Held { bytes, _share: share });
                match head.take() {
                    Some(head) => head.send(Ok(Head::Begin(bytes))).map_err(|_| gone())?,
                    None => self.send(pieces, Piece::Bytes(bytes)).await?,
                }
            }
            if !has_more {
                return self.send(pieces, Piece::End).await;
            }
            (encoder, has_more) = self.fill(encoder).await?;
        }
    }

    /// Encodes rows until there is a part; says whether more follow.
    async fn fill(&mut self, mut encoder: Encoder) -> Result<(Encoder, bool)> {
        while encoder.len() < PART_BYTES {
            let has_more = match self.source.take() {
                Some(Source::Query(mut stream)) => {
                    let next = self.turn.within(stream.next()).await?;
                    self.source = Some(Source::Query(stream));
                    encoder.add(next)?
                }
                Some(Source::Frames(mut batches)) => {
                    if batches.size_hint().1 != Some(0) {
                        self.reserve_piece().await?;
                    }
                    let next = move || {
                        let has_more = caught(|| encoder.add(batches.next()));
                        (has_more, batches, encoder)
                    };
                    let (has_more, batches, filled) = self.apart(next).await?;
                    self.source = Some(Source::Frames(batches));
                    encoder = filled;
                    has_more?
                }
                None => false,
            };
            if !has_more {
                return Ok((encoder, false));
            }
        }
        Ok((encoder, true))
    }

    /// Waits for the memory that a piece of a frame takes while it is computed.
    async fn reserve_piece(&mut self) -> Result<()> {
        if self.has_pieces && self.share.is_none() {
            let bytes = self.app.db.options().memory_bytes / PIECES_IN_BUDGET;
            self.share = Some(self.share(bytes).await?);
        }
        Ok(())
    }

    /// The memory for so many bytes that are there already: what was reserved for them. If they are more, nobody waits for the rest while he has some.
    async fn share_of(&mut self, bytes: usize) -> Result<Share> {
        let Some(mut share) = self.share.take() else { return self.share(bytes).await };
        self.app.admission.answers.top_up(&mut share, bytes);
        Ok(share.split(bytes))
    }

    async fn share(&mut self, bytes: usize) -> Result<Share> {
        let answers = &self.app.admission.answers;
        match answers.try_share(bytes) {
            Some(share) => Ok(share),
            None => self.turn.apart(answers.share(bytes)).await,
        }
    }

    /// Does something on a thread that may block. It has the turn, the permit and the memory until it ends, also when its client is gone.
    async fn apart<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let held = (self.turn.lend(), self.share.take(), self.permit.clone());
        let work = tokio::task::spawn_blocking(move || (work(), held));
        let (done, (turn, share, _)) = self.turn.within(work).await?.map_err(lost)?;
        self.turn.take_back(turn);
        self.share = share;
        Ok(done)
    }

    /// What is encoded, and counted from now on.
    fn take(&self, mut encoder: Encoder) -> (Parts, Encoder) {
        let (rows, parts) = encoder.take();
        self.app.metrics.answered(rows, parts.len());
        (parts, encoder)
    }

    async fn send(&mut self, pieces: &mpsc::Sender<Piece>, piece: Piece) -> Result<()> {
        match pieces.try_send(piece) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(gone()),
            // Others have their turn until the client has read. One that is gone takes this task with it, so that only a slow one is left.
            Err(TrySendError::Full(piece)) => {
                self.turn.apart(pieces.send(piece)).await?.map_err(|_| gone())
            }
        }
    }
}

fn gone() -> Error {
    Error::closed("the client is gone")
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
