//! Who is let in, and how much of the machine each gets: what a protocol asks before it does something for a client. It knows no protocol.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidefall_types::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use crate::options::ServerOptions;

/// What is shared out among clients.
#[derive(Debug)]
pub(crate) struct Admission {
    requests_max: usize,
    queries_max: usize,
    query_wait_max: Duration,
    body_pause_max: Duration,
    request_time_max: Duration,
    /// One permit a request.
    requests: Arc<Semaphore>,
    /// One permit for each KiB of a body in memory.
    bodies: Arc<Semaphore>,
    /// One permit a query that is computed; who waits gets one in turn.
    queries: Arc<Semaphore>,
    pub(crate) answers: Answers,
}

/// What a query holds, about, from its first part until the last one is sent: batches that are ready, columns that they are cut of, parts on their way.
const QUERY_BYTES: usize = 4 << 20;

/// Who waits for less is only behind others that compute.
const WAIT_UNSEEN: Duration = Duration::from_secs(1);

/// Memory for answers that are longer than a part.
#[derive(Debug)]
pub(crate) struct Answers {
    /// One permit for each KiB.
    free: Arc<Semaphore>,
    kib_max: u32,
    /// Those who have waited for some for [`WAIT_UNSEEN`].
    waiting: AtomicUsize,
    /// One permit a query that has begun and waits for some: it holds rows meanwhile.
    begun: Semaphore,
    wait_max: Duration,
}

/// A share of the memory for answers.
#[derive(Debug)]
pub(crate) struct Share(Option<OwnedSemaphorePermit>);

/// There is no permit, no memory or no turn: try again later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Busy(pub String);

/// What lets a request be worked on, until the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Permit {
    _permit: Arc<OwnedSemaphorePermit>,
}

/// A share of the memory for bodies.
#[derive(Debug)]
pub(crate) struct Memory {
    permit: Option<OwnedSemaphorePermit>,
    bodies: Arc<Semaphore>,
}

/// Held while a query is computed, and given back while it waits for its reader.
#[derive(Debug)]
pub(crate) struct Turn {
    permit: Option<OwnedSemaphorePermit>,
    queries: Arc<Semaphore>,
    deadline: Instant,
    time_max: Duration,
}

impl Admission {
    /// As the options have it, with so much memory for answers.
    pub(crate) fn new(options: &ServerOptions, answers_bytes: usize) -> Self {
        let bodies_bytes = options.bodies_bytes_max.max(options.body_bytes_max.saturating_mul(2));
        let permits = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Self {
            requests_max: options.requests_max,
            queries_max: options.queries_max,
            query_wait_max: options.query_wait_max,
            body_pause_max: options.body_pause_max,
            request_time_max: options.request_time_max,
            requests: permits(options.requests_max),
            bodies: permits(kib(bodies_bytes) as usize),
            queries: permits(options.queries_max.max(1)),
            answers: Answers::new(options, answers_bytes),
        }
    }

    /// A permit for a request, if there is one.
    ///
    /// # Errors
    /// When as many are worked on already as may be.
    pub(crate) fn permit(&self) -> Result<Permit, Busy> {
        match Arc::clone(&self.requests).try_acquire_owned() {
            Ok(permit) => Ok(Permit { _permit: Arc::new(permit) }),
            Err(_) => Err(Busy(format!(
                "{} requests are worked on already; try again later",
                self.requests_max
            ))),
        }
    }

    /// Waits for memory for a body, as long as one may pause.
    ///
    /// # Errors
    /// When others have it.
    pub(crate) async fn memory(&self, bytes: usize) -> Result<Memory, Busy> {
        let permit = Arc::clone(&self.bodies).acquire_many_owned(kib(bytes));
        match timeout(self.body_pause_max, permit).await {
            Ok(permit) => Ok(Memory { permit: permit.ok(), bodies: Arc::clone(&self.bodies) }),
            Err(_) => Err(full()),
        }
    }

    /// Waits until a query may be computed.
    ///
    /// # Errors
    /// When none of the others ends for long.
    pub(crate) async fn turn(&self) -> Result<Turn, Busy> {
        match timeout(self.query_wait_max, Arc::clone(&self.queries).acquire_owned()).await {
            Ok(permit) => Ok(Turn {
                permit: permit.ok(),
                queries: Arc::clone(&self.queries),
                deadline: Instant::now() + self.request_time_max,
                time_max: self.request_time_max,
            }),
            Err(_) => Err(Busy(format!(
                "{} queries are computed already, and none of them ended within {} s; try again later",
                self.queries_max,
                self.query_wait_max.as_secs_f64()
            ))),
        }
    }
}

impl Answers {
    fn new(options: &ServerOptions, bytes: usize) -> Self {
        let kib_max = kib(bytes).max(1);
        Self {
            free: Arc::new(Semaphore::new(kib_max as usize)),
            kib_max,
            waiting: AtomicUsize::new(0),
            begun: Semaphore::new(options.queries_max.clamp(1, Semaphore::MAX_PERMITS)),
            wait_max: options.query_wait_max,
        }
    }

    /// A share of so many bytes, or all of the memory if that is less, if that is free and nobody waits.
    pub(crate) fn try_share(&self, bytes: usize) -> Option<Share> {
        let kib = kib(bytes).min(self.kib_max);
        Arc::clone(&self.free).try_acquire_many_owned(kib).ok().map(|permit| Share(Some(permit)))
    }

    /// Waits for a share of so many bytes, or for all of the memory if that is less. Who waits must hold neither a turn nor another share: those who
    /// have one may wait for a turn.
    pub(crate) async fn share(&self, bytes: usize) -> Share {
        let kib = kib(bytes).min(self.kib_max);
        let mut permit = pin!(Arc::clone(&self.free).acquire_many_owned(kib));
        if let Ok(permit) = timeout(WAIT_UNSEEN, &mut permit).await {
            return Share(permit.ok());
        }
        let _waiting = Waiting::new(&self.waiting);
        Share(permit.await.ok())
    }

    /// Makes a share enough for so many bytes, if what is missing is free and nobody waits.
    pub(crate) fn top_up(&self, share: &mut Share, bytes: usize) {
        let missing = (kib(bytes) as usize).saturating_sub(share.kib()) << 10;
        if missing > 0
            && let (Some(Share(Some(more))), Some(permit)) = (self.try_share(missing), &mut share.0)
        {
            permit.merge(more);
        }
    }

    /// What a query holds that has begun, if that is free and nobody waits.
    pub(crate) fn try_of_query(&self) -> Option<Share> {
        self.try_share(QUERY_BYTES)
    }

    /// Waits for what a query holds that has begun. As [`Answers::share`].
    ///
    /// # Errors
    /// When many wait already, or none of the others ends for long.
    pub(crate) async fn of_query(&self) -> Result<Share, Busy> {
        let busy = || {
            Busy("long answers that others read fill the memory for them; try again later".into())
        };
        let _begun = self.begun.try_acquire().map_err(|_| busy())?;
        timeout(self.wait_max, self.share(QUERY_BYTES)).await.map_err(|_| busy())
    }

    /// Whether somebody has waited for a share for a while.
    pub(crate) fn are_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Bytes in shares.
    pub(crate) fn held_bytes(&self) -> u64 {
        (u64::from(self.kib_max) - self.free.available_permits() as u64) << 10
    }
}

/// One who waits, as long as it is there.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Share {
    fn kib(&self) -> usize {
        self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Takes what so many bytes need, or what is there.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        let Some(permit) = &mut self.0 else { return Self(None) };
        let count = permit.num_permits().min(kib(bytes) as usize);
        Self(permit.split(count))
    }
}

impl Memory {
    /// Makes the share larger, or fails: requests that wait while they hold something could wait
    /// for each other.
    ///
    /// # Errors
    /// When others have it.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), Busy> {
        let held = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = kib(bytes).saturating_sub(held as u32);
        if missing == 0 {
            return Ok(());
        }
        let more = Arc::clone(&self.bodies).try_acquire_many_owned(missing).map_err(|_| full())?;
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }
}

impl Turn {
    /// Waits for something that belongs to the query or its answer.
    ///
    /// # Errors
    /// `Limit` when both take too long.
    pub(crate) async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        timeout_at(self.deadline, work).await.map_err(|_| self.late())
    }

    /// Waits for somebody else, such as a client who reads; other queries have their turn meanwhile.
    ///
    /// # Errors
    /// As [`Turn::within`].
    pub(crate) async fn apart<T>(&mut self, wait: impl Future<Output = T>) -> Result<T> {
        self.permit = None;
        let done = self.within(wait).await?;
        let turn = Arc::clone(&self.queries).acquire_owned();
        self.permit = self.within(turn).await?.ok();
        Ok(done)
    }

    /// The turn itself, for what is computed on another thread: it is over when that ends, also if nobody waits for it any more.
    pub(crate) fn lend(&mut self) -> Option<OwnedSemaphorePermit> {
        self.permit.take()
    }

    /// Takes back what was lent.
    pub(crate) fn take_back(&mut self, lent: Option<OwnedSemaphorePermit>) {
        self.permit = lent;
    }

    fn late(&self) -> Error {
        Error::limit(format!(
            "the query and its answer took longer than {} s; ask for less, or raise the limit",
            self.time_max.as_secs_f64()
        ))
    }
}

fn full() -> Busy {
    Busy("other requests fill the memory for bodies; try again".to_owned())
}

/// Bytes in KiB, rounded up.
fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}
