//! Group commit: one thread takes all writes that wait, logs them with one fsync, and makes them
//! visible in their order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;

use tidefall_types::{Error, ErrorKind, Result, Seq, TableId, TimeRange};

use super::Prepared;
use super::record::LogRecord;
use crate::kv::Run;
use crate::panics::caught;
use crate::read::LiveTombstone;
use crate::store::SyncFailure;
use crate::table::Table;
use crate::uncounted::Watch;
use crate::wal::{Wal, check_record_bytes};

/// Bytes of rows and records that may wait; writers wait beyond. Four groups of the log's own size.
const QUEUE_BYTES_MAX: usize = 16 << 20;

/// A change that waits to be made.
pub(crate) struct Commit {
    pub(crate) table: Arc<Table>,
    pub(crate) change: Change,
    /// What the log on disk gets before the change is acknowledged; none for writes that are so from memory.
    pub(crate) record: Option<LogRecord>,
    /// Where rows that may take the place of others are kept for somebody who wants to count them.
    pub(crate) watch: Option<Watch>,
    /// Called once with the outcome.
    pub(crate) done: Done,
}

/// Called with the outcome of a change.
pub(crate) type Done = Box<dyn FnOnce(Result<Seq>) + Send>;

/// What a commit changes.
pub(crate) enum Change {
    /// Rows become visible.
    Rows(Prepared),
    /// Nothing; the place among the writes is for columns that go straight to objects. What was
    /// written before is kept apart from what comes later.
    Mark(Mark),
    /// Rows disappear; the tombstone's place among the writes is set when it is made.
    Delete(LiveTombstone),
}

/// Rows that go straight to objects.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    /// When they lie.
    pub(crate) time: TimeRange,
    /// Told whether all of them are newer than all that was written before.
    pub(crate) are_new: Arc<AtomicBool>,
}

impl Default for Mark {
    /// No rows.
    fn default() -> Self {
        Self { time: TimeRange::new(0, -1), are_new: Arc::default() }
    }
}

impl Commit {
    fn size_bytes(&self) -> usize {
        let record = self.record.as_ref().map_or(0, LogRecord::size_bytes);
        let rows = match &self.change {
            Change::Rows(rows) => rows.size_bytes(),
            Change::Mark(_) | Change::Delete(_) => 0,
        };
        record + rows + size_of::<Self>()
    }
}

/// The writes that wait, and the state of the thread that takes them.
#[derive(Default)]
pub(crate) struct CommitQueue {
    inner: Mutex<Inner>,
    has_work: Condvar,
    has_room: Condvar,
    /// Everything before this is visible.
    applied: AtomicU64,
    /// Whether anything, not only the log, could not be made durable.
    disk: SyncFailure,
    /// The committing thread.
    committer: OnceLock<ThreadId>,
}

#[derive(Default)]
struct Inner {
    waiting: Vec<(Seq, Commit)>,
    bytes: usize,
    next_seq: Seq,
    is_closed: bool,
    failure: Option<Error>,
}

impl std::fmt::Debug for CommitQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommitQueue").field("applied", &self.applied).finish_non_exhaustive()
    }
}

impl CommitQueue {
    pub(crate) fn new(next_seq: Seq, disk: SyncFailure) -> Self {
        let queue = Self { disk, ..Self::default() };
        queue.lock().next_seq = next_seq;
        queue.applied.store(next_seq.0, Ordering::Release);
        queue
    }

    /// Everything before this sequence number is visible.
    pub(crate) fn applied(&self) -> Seq {
        Seq(self.applied.load(Ordering::Acquire))
    }

    /// Why the database takes no more writes, if it does not.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.lock().failure.clone().or_else(|| self.disk.get())
    }

    /// Whether a change would be taken without waiting for those before it.
    pub(crate) fn has_room(&self) -> bool {
        self.lock().bytes <= QUEUE_BYTES_MAX
    }

    /// Makes all further writes fail; but a full disk does not, which leaves nothing half done.
    pub(crate) fn fail(&self, error: &Error) {
        if error.kind() == ErrorKind::Full {
            return;
        }
        let mut inner = self.lock();
        inner.failure.get_or_insert_with(|| {
            Error::closed(format!(
                "no more writes after a failure; open the database again: {error}"
            ))
        });
        self.has_work.notify_all();
        self.has_room.notify_all();
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
        self.committer.get() == Some(&std::thread::current().id())
    }

    /// Adds a change behind all others.
    ///
    /// # Errors
    /// `Closed` after a failure or a close, `Limit` when the log cannot take as much at once;
    /// `commit.done` is not called then.
    pub(crate) fn submit(&self, commit: Commit) -> Result<()> {
        check_record_bytes(commit.record.as_ref().map_or(0, LogRecord::size_bytes))?;
        let size_bytes = commit.size_bytes();
        // Nobody else would make room.
        let may_wait = !self.is_committer();
        let mut inner = self.lock();
        while may_wait
            && inner.bytes > QUEUE_BYTES_MAX
            && inner.failure.is_none()
            && !inner.is_closed
        {
            inner = self.has_room.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(failure) = inner.failure.clone().or_else(|| self.disk.get()) {
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

    /// Lets the committing thread end when nothing waits any more.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.has_work.notify_all();
        self.has_room.notify_all();
    }

    /// The committing thread: runs until the queue is closed.
    pub(crate) fn run(&self, wal: &Mutex<Option<Wal>>, on_rows: impl Fn(usize)) {
        // A queue has one.
        let _ = self.committer.set(std::thread::current().id());
        while let Some(mut group) = self.take_group() {
            let logged = caught(|| self.log(wal, &mut group));
            let (mut logged, mut refused) = match logged.inspect_err(|error| self.fail(error)) {
                Ok(refused) => (Ok(()), refused),
                Err(error) => (Err(error), Refused::new()),
            };
            let last = group.last().map(|(seq, _)| *seq);
            for (seq, commit) in group {
                let Commit { table, change, watch, done, .. } = commit;
                let taken = refused.remove(&seq).map_or(Ok(()), Err);
                let outcome = logged.clone().and(taken).and_then(|()| {
                    caught(|| {
                        on_rows(apply(&table, seq, change, watch.as_ref())?);
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
        self.has_room.notify_all();
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
                let needs_log = group.iter().filter(|(_, commit)| commit.record.is_some());
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
    // The sensors that the log will know when the group is in it.
    let mut known: HashMap<TableId, (Arc<Table>, u32)> = HashMap::new();
    for (seq, commit) in group {
        let Commit { table, record: Some(record), .. } = commit else { continue };
        let (_, known) =
            known.entry(table.id).or_insert_with(|| (Arc::clone(table), table.known.kept()));
        match record.complete(table, *known) {
            Ok(end) => *known = end,
            Err(error) => {
                refused.insert(*seq, error);
                continue;
            }
        }
        record.append(wal, *seq, table.id)?;
    }
    if !known.is_empty() {
        wal.sync()?;
    }
    known.into_values().for_each(|(table, known)| table.known.keep(known));
    Ok(refused)
}

/// Makes a change visible, and returns the bytes that it added to memory.
pub(crate) fn apply(
    table: &Table,
    seq: Seq,
    change: Change,
    watch: Option<&Watch>,
) -> Result<usize> {
    match change {
        Change::Mark(mark) => {
            table.live().seal()?;
            let are_new = table.newest().take_all_within(&mark.time);
            mark.are_new.store(are_new, Ordering::Release);
            Ok(0)
        }
        Change::Rows(rows) if rows.time.is_empty() => Ok(0),
        Change::Rows(rows) => {
            let mut run = Run::new((seq, seq), rows.sensor, rows.time, rows.fields);
            if let Some(order) = rows.order {
                run = run.with_order(order);
            }
            let late = table.newest().take(&run);
            let run = run.with_late(late);
            let watch = watch.filter(|_| !run.is_distinct());
            let watched = watch.map(|watch| (watch, table.sources_near(&run)));
            let bytes = run.size_bytes;
            let run = table.live().push(run)?;
            if let Some((watch, before)) = watched {
                watch.keep(&run, before);
            }
            Ok(bytes)
        }
        Change::Delete(mut tombstone) => {
            tombstone.seq = seq;
            let mut live = table.live();
            live.seal()?;
            Arc::make_mut(&mut live.deletes).insert(tombstone);
            live.settling.losses += 1;
            Ok(0)
        }
    }
}
