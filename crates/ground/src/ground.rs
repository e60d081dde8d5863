//! What the tables of one open database have in common.

use tidefall_store::ObjectIo;
use tidefall_store::names::Mark;
use tidefall_sync::Instant;
use tidefall_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tidefall_sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use tidefall_types::{ErrorKind, ObjectId, Result, caught};

use crate::alarms::Alarms;
use crate::failure::Failure;
use crate::manifest::log::ManifestLog;
use crate::manifest::reached::Reached;
use crate::manifest::{Edit, State};
use crate::memory::Memory;
use crate::obsolete::ObsoleteObjects;
use crate::options::DbOptions;
use crate::steps::Steps;
use crate::turns::Turns;
use crate::worked::Worked;
use crate::written::Written;

/// What the tables of one open database have in common.
#[derive(Debug)]
pub struct Ground {
    /// Where objects lie.
    pub io: Arc<dyn ObjectIo>,
    /// How the database was opened.
    pub options: DbOptions,
    /// What may write, until the database closes.
    pub steps: Steps,
    /// Who does what with tables, one at a time.
    pub turns: Turns,
    /// What rows take, and who waits for it.
    pub memory: Memory,
    /// What the background threads wait for.
    pub alarms: Alarms,
    /// Why no more writes are taken, if they are not.
    pub failure: Failure,
    /// Objects that were replaced.
    pub obsolete: ObsoleteObjects,
    /// What was done.
    pub worked: Worked,
    /// Held from the look at what the manifest lacks until it has it.
    installing: Mutex<()>,
    manifest: Mutex<ManifestLog<State>>,
    /// Its version when something was committed, or somebody asked, last.
    version: AtomicU64,
    reached: Mutex<Reached>,
    /// Whether nothing is said outside of the manifest about how far it has come.
    is_unmarked: AtomicBool,
    next_object: AtomicU64,
    writer: u32,
}

impl Ground {
    /// The ground of a database with this manifest, and what is known of how far that had come.
    pub fn new(
        io: Arc<dyn ObjectIo>,
        options: DbOptions,
        (manifest, reached): (ManifestLog<State>, Reached),
        failure: Failure,
    ) -> Self {
        Self {
            io,
            steps: Steps::default(),
            turns: Turns::default(),
            memory: Memory::new(options.memory_bytes),
            alarms: Alarms::default(),
            failure,
            obsolete: ObsoleteObjects::default(),
            worked: Worked::default(),
            installing: Mutex::new(()),
            next_object: AtomicU64::new(manifest.state().next_object),
            writer: manifest.writer(),
            version: AtomicU64::new(manifest.version()),
            manifest: Mutex::new(manifest),
            reached: Mutex::new(reached),
            is_unmarked: AtomicBool::new(false),
            options,
        }
    }

    /// The threads that one step may use.
    pub fn threads(&self) -> usize {
        self.options.threads.max(1)
    }

    /// Nanoseconds since 1970 UTC.
    pub fn now_ns(&self) -> i64 {
        self.options.clock.now_ns()
    }

    // ---- memory ----

    /// Wakes the flush when so many bytes of rows, which have come into memory, are too many.
    pub fn rows_came(&self, bytes: usize) {
        if bytes > 0 && self.memory.is_full() {
            self.alarms.raise(|alarm| alarm.is_full = true);
        }
    }

    /// Waits until more rows may come into memory.
    ///
    /// # Errors
    /// `Full` when a full disk keeps rows in memory and no more may come; `Closed` when the database closes, or has failed.
    pub fn wait_for_memory(&self, bytes: usize) -> Result<()> {
        let start = Instant::now();
        let check = || self.steps.check().and_then(|()| self.failure.get().map_or(Ok(()), Err));
        let call = || self.alarms.raise(|alarm| alarm.is_full = true);
        if self.memory.wait_until_free(bytes, check, call)? {
            self.worked.delayed(start.elapsed());
        }
        Ok(())
    }

    /// Empties memory because it is full, and learns from it how fast that goes.
    ///
    /// # Errors
    /// Those of the flush.
    pub fn free_memory<T>(&self, flush: impl FnOnce() -> Result<T>) -> Result<T> {
        let (start, before) = (Instant::now(), self.worked.freed_bytes());
        let flushed = flush()?;
        self.memory.freed(self.worked.freed_bytes() - before, start.elapsed());
        Ok(flushed)
    }

    // ---- objects ----

    /// A number that no object has or had.
    pub fn next_object_id(&self) -> ObjectId {
        ObjectId(self.next_object.fetch_add(1, Ordering::Relaxed))
    }

    /// The number of this writer among all that a database had: a part of the names of its objects.
    pub fn writer(&self) -> u32 {
        self.writer
    }

    /// Leaves out the numbers of objects up to this one.
    pub fn skip_objects(&self, last: ObjectId) {
        self.next_object.fetch_max(last.0.saturating_add(1), Ordering::Relaxed);
    }

    /// What a step that begins has written: nothing as yet.
    pub fn written(&self) -> Written {
        Written::new(&self.io)
    }

    // ---- the manifest ----

    /// Waits until nobody else changes which objects the manifest names, which takes a moment.
    pub fn install_alone(&self) -> MutexGuard<'_, ()> {
        self.installing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The manifest, for a moment.
    pub fn manifest(&self) -> MutexGuard<'_, ManifestLog<State>> {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version of the manifest. Does not wait for a commit, which takes as long as the disk does: that is the version before it then.
    pub fn manifest_version(&self) -> u64 {
        let manifest = match self.manifest.try_lock() {
            Ok(manifest) => manifest,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return self.version.load(Ordering::Relaxed),
        };
        self.version.store(manifest.version(), Ordering::Relaxed);
        manifest.version()
    }

    /// Commits edits of the manifest. When that fails nobody knows whether they are in it, and a
    /// write could be lost with, say, the table that it is for: so no write is taken any more. On a full disk they
    /// are not in it, and all goes on.
    ///
    /// # Errors
    /// Those of [`ManifestLog::commit`].
    pub fn commit(&self, manifest: &mut ManifestLog<State>, edits: &[Edit]) -> Result<()> {
        let replaces_objects = edits.iter().any(Edit::replaces_objects);
        let committed = match replaces_objects {
            true => manifest.commit(&[&[Edit::At(self.now_ns())], edits].concat()),
            false => manifest.commit(edits),
        };
        committed.inspect_err(|error| self.failure.set(error))?;
        self.version.store(manifest.version(), Ordering::Relaxed);
        if edits.iter().any(Edit::names_new_object) {
            self.mark_reached(manifest.mark());
        }
        if replaces_objects {
            let state = manifest.state();
            // The others were noted before, and may be gone.
            let new = state.replaced.iter().filter(|(_, since_ns)| **since_ns == state.at_ns);
            self.obsolete.add(new);
        }
        Ok(())
    }

    /// Commits edits that name what was written. Objects stay when nobody knows whether they are named, and go when there was no
    /// room for the names, or when nobody has tried to name them because an earlier commit has failed.
    ///
    /// # Errors
    /// As [`Ground::commit`].
    pub fn commit_written(
        &self,
        manifest: &mut ManifestLog<State>,
        written: Written,
        edits: &[Edit],
    ) -> Result<()> {
        manifest.check_open()?;
        let outcome = self.commit(manifest, edits);
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Full) {
            return outcome;
        }
        written.hand_over();
        outcome
    }

    /// Says outside of the manifest how far it has come. When that cannot be said, what a crash leaves behind is kept
    /// aside rather than deleted, which hurts nobody.
    pub fn mark_reached(&self, mark: Mark) {
        if self.is_unmarked.load(Ordering::Relaxed) {
            return;
        }
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        // The commit is made: a panic must not keep it from being shown.
        if let Err(error) = caught(|| reached.put(&*self.io, mark)) {
            tracing::warn!(%error, version = mark.version, "how far the manifest has come could not be noted");
        }
    }

    /// Says nothing more outside of the manifest: there are objects that it does not name, though it may be that it did, and a mark would say that it
    /// never has.
    pub fn leave_unmarked(&self) {
        self.is_unmarked.store(true, Ordering::Relaxed);
    }

    /// What is known of how far the manifest had come.
    pub fn reached(&self) -> Reached {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
