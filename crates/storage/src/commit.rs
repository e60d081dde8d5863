//! Group commit: one thread takes all writes that wait, logs them with one fsync, and makes them
//! visible in their order.

use std::collections::HashMap;

use tidefall_ground::failure::Failure;
use tidefall_ground::wal::{Wal, check_record_bytes};
use tidefall_sync::atomic::{AtomicU64, Ordering};
use tidefall_sync::thread::ThreadId;
use tidefall_sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use tidefall_types::{Error, ErrorKind, Result, Seq, caught};

use crate::table::{Change, KnownToLog};

/// Bytes of rows and records that may wait; writers wait beyond. Four groups of the log's own size, ...
const QUEUE_BYTES_MAX: usize = 16 << 20;
/// ... and no more than one of so many parts of the memory budget.
const QUEUE_SHARE: usize = 32;

/// A change that waits to be made.
pub(crate) struct Commit {
    pub(crate) change: Change,
    /// Called once with the outcome.
    pub(crate) done: Done,
}

/// Called with the outcome of a change.
pub(crate) type Done = Box<dyn FnOnce(Result<Seq>) + Send>;

impl Commit {
    fn size_bytes(&self) -> usize {
        self.change.size_bytes() + size_of::<Self>()
    }
}

/// The writes that wait, and the state of the thread that takes them.
#[derive(Default)]
pub(crate) struct CommitQueue {
    inner: Mutex<Inner>,
    has_work: Condvar,
    has_memory: Condvar,
    /// Everything before this is visible.
    applied: AtomicU64,
    failure: Failure,
    /// The committing thread.
    committer: OnceLock<ThreadId>,
}

#[derive(Default)]
struct Inner {
    waiting: Vec<(Seq, Commit)>,
    bytes: usize,
    bytes_max: usize,
    next_seq: Seq,
    is_closed: bool,
}

impl std::fmt::Debug for CommitQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommitQueue").field("applied", &self.applied).finish_non_exhaustive()
    }
}

impl CommitQueue {
    pub(crate) fn new(next_seq: Seq, failure: Failure, memory_bytes: usize) -> Self {
        let queue = Self { failure, ..Self::default() };
        let bytes_max = QUEUE_BYTES_MAX.min(memory_bytes / QUEUE_SHARE);
        *queue.lock() = Inner { next_seq, bytes_max, ..Inner::default() };
        queue.applied.store(next_seq.0, Ordering::Release);
        queue
    }

    /// Everything before this sequence number is visible.
    pub(crate) fn applied(&self) -> Seq {
        Seq(self.applied.load(Ordering::Acquire))
    }

    /// Takes note that everything before a place is visible, which another process has written.
    pub(crate) fn follow(&self, upto: Seq) {
        self.applied.fetch_max(upto.0, Ordering::AcqRel);
    }

    /// Why the database takes no more writes, if it does not.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.get()
    }

    /// Whether a change would be taken without waiting for those before it.
    pub(crate) fn takes_at_once(&self) -> bool {
        let inner = self.lock();
        inner.bytes <= inner.bytes_max
    }

    /// Where it stands why the database takes no more writes, for all who may find a reason.
    pub(crate) fn failure_of_all(&self) -> &Failure {
        &self.failure
    }

    /// Makes all further writes fail; but a full disk does not, which leaves nothing half done.
    pub(crate) fn fail(&self, error: &Error) {
        self.failure.set(error);
        let _inner = self.lock();
        self.has_work.notify_all();
        self.has_memory.notify_all();
    }

    /// Refuses what waits for the committing thread, or for somebody who does, on that thread itself: in what it calls back
    /// when a write is done.
    ///
    /// # Errors
    /// `Unsupported` there.
    pub(crate) fn check_may_wait(&self) -> Result<()> {
        match self.is_committer() {
            false => Ok(()),
            true => Err(Error::unsupported(
                "this would wait for itself: it was asked for by what the database calls when a write is done; ask for it \
                 on another thread",
            )),
        }
    }

    /// Whether this is the thread that commits.
    pub(crate) fn is_committer(&self) -> bool {
        self.committer.get() == Some(&tidefall_sync::thread::current().id())
    }

    /// Adds a change behind all others.
    ///
    /// # Errors
    /// `Closed` after a failure or a close, `Limit` when the log cannot take as much at once;
    /// `commit.done` is not called then.
    pub(crate) fn submit(&self, commit: Commit) -> Result<()> {
        check_record_bytes(commit.change.record_bytes())?;
        let size_bytes = commit.size_bytes();
        // Nobody else would empty the queue.
        let may_wait = !self.is_committer();
        let mut inner = self.lock();
        while may_wait
            && inner.bytes > inner.bytes_max
            && self.failure().is_none()
            && !inner.is_closed
        {
            inner = self.has_memory.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        if inner.is_closed {
            return Err(Error::closed("the database is closed"));
        }
        let seq = inner.next_seq;
        inner.next_seq = Seq(seq.0 + 1);
        inner.bytes += size_bytes;
        inner.waiting.push((seq, commit));
        self.has_work.notify_one();
        Ok(())
    }

    /// Adds a change behind all others, and waits until it is acknowledged. Returns its place among the writes.
    ///
    /// # Errors
    /// As [`CommitQueue::submit`], and those of the change.
    pub(crate) fn submit_and_wait(&self, change: Change) -> Result<Seq> {
        let (send, receive) = mpsc::sync_channel(1);
        let done = Box::new(move |outcome| {
            // The receiver waits below; it is gone only if this thread is.
            let _ = send.send(outcome);
        });
        self.submit(Commit { change, done })?;
        receive.recv().map_err(|_| Error::closed("the database was closed during a change"))?
    }

    /// Lets the committing thread end when nothing waits any more.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.has_work.notify_all();
        self.has_memory.notify_all();
    }

    /// The committing thread: runs until the queue is closed.
    pub(crate) fn run(&self, wal: &Mutex<Option<Wal>>, on_rows: impl Fn(usize)) {
        // A queue has one.
        let _ = self.committer.set(tidefall_sync::thread::current().id());
        while let Some(mut group) = self.take_group() {
            let logged = caught(|| self.log(wal, &mut group));
            let (mut logged, mut refused) = match logged.inspect_err(|error| self.fail(error)) {
                Ok(refused) => (Ok(()), refused),
                Err(error) => (Err(error), Refused::new()),
            };
            let last = group.last().map(|(seq, _)| *seq);
            for (seq, commit) in group {
                let Commit { change, done } = commit;
                let taken = refused.remove(&seq).map_or(Ok(()), Err);
                let outcome = logged.clone().and(taken).and_then(|()| {
                    caught(|| {
                        on_rows(change.apply(seq)?);
                        Ok(seq)
                    })
                });
                if let Err(error) = &outcome
                    && error.kind() == ErrorKind::Internal
                {
                    // Nobody knows what it has left: neither this nor what comes behind is acknowledged.
                    self.fail(error);
                    logged = Err(error.clone());
                }
                if outcome.is_ok() {
                    // Before anybody is told: the next that is asked for may be a cascade, which forgets a delete only
                    // when that is known to be behind it.
                    self.applied.store(seq.0 + 1, Ordering::Release);
                }
                // It is not ours.
                let told = caught(|| {
                    done(outcome);
                    Ok(())
                });
                if let Err(error) = told {
                    tracing::error!(%error, "whoever waited for a write panicked");
                }
            }
            if let Some(last) = last {
                self.applied.store(last.0 + 1, Ordering::Release);
            }
        }
    }

    fn take_group(&self) -> Option<Vec<(Seq, Commit)>> {
        let mut inner = self.lock();
        while inner.waiting.is_empty() {
            if inner.is_closed {
                return None;
            }
            inner = self.has_work.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        inner.bytes = 0;
        self.has_memory.notify_all();
        Some(std::mem::take(&mut inner.waiting))
    }

    /// Logs a group. Returns the changes that the log does not take, with the reasons.
    fn log(&self, wal: &Mutex<Option<Wal>>, group: &mut [(Seq, Commit)]) -> Result<Refused> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        let mut place = wal.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken out meanwhile: after a panic nobody knows what is in it, and it must not be written again.
        let Some(mut wal) = place.take() else { return Err(Error::closed("the log is closed")) };
        let logged = log_group(&mut wal, group);
        *place = Some(wal);
        match logged {
            // The log has taken back all of the group, and goes on. What needs no log is not refused for that.
            Err(error) if error.kind() == ErrorKind::Full => {
                let needs_log = group.iter().filter(|(_, commit)| commit.change.needs_log());
                Ok(needs_log.map(|(seq, _)| (*seq, error.clone())).collect())
            }
            logged => logged,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes of a group that the log does not take, though it takes the others.
type Refused = HashMap<Seq, Error>;

fn log_group(wal: &mut Wal, group: &mut [(Seq, Commit)]) -> Result<Refused> {
    let mut refused = Refused::new();
    let (mut known, mut has_records) = (KnownToLog::default(), false);
    for (seq, Commit { change, .. }) in group.iter_mut().filter(|(_, it)| it.change.needs_log()) {
        if let Err(error) = change.complete(&mut known) {
            refused.insert(*seq, error);
            continue;
        }
        has_records = true;
        change.append(wal, *seq)?;
    }
    if has_records {
        wal.sync()?;
    }
    known.keep();
    Ok(refused)
}
