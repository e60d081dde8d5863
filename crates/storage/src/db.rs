//! The entry: a database in a directory.

use std::path::Path;

use tidefall_ground::failure::Failure;
use tidefall_ground::manifest::Edit;
use tidefall_ground::options::{CascadeReport, DbOptions};
use tidefall_ground::steps::Step;
use tidefall_ground::wal::Wal;
use tidefall_series::ingest::record::{LogRecord, encode_delete};
use tidefall_series::read::{LiveTombstone, TableSnapshot};
use tidefall_store::{DirLock, Disk, GuardedDisk, LocalDisk, LocalIo, ObjectIo, Readers, names};
use tidefall_sync::atomic::Ordering;
use tidefall_sync::thread::JoinHandle;
use tidefall_sync::{Arc, Mutex, OnceLock, PoisonError};
use tidefall_types::{Error, ErrorKind, Result, TableKind, TableSchema, TimeRange, caught};

use crate::TagFilter;
use crate::begin::{Beginning, LogPlace};
use crate::commit::CommitQueue;
use crate::engine::Engine;
use crate::follower::Follower;
use crate::options::{CascadeRequest, IfExists};
use crate::recovery::{delete_strays, load_tables, open_manifest, replay, seq_behind};
use crate::table::{Change, Snapshot, Table};
use crate::upkeep::{
    cascade_all, close_log, flush, flush_at_last, flush_some, for_all, forget, may_pass,
    spawn_committer, spawn_compactor, spawn_flusher, spawn_maintenance, spend_log,
};

/// An open database. Clones share it; it closes when the last one is dropped, or by
/// [`Db::close`]. All methods may be called from many threads at once and block until done.
///
/// What the database calls when a write is done may drop the last one, too: it closes on another thread then, shortly after
/// that. Of the methods that write only [`Db::submit`] may be called there; others would wait for themselves, and say so.
///
/// # Errors
/// Whatever changes something is refused
///
/// - as `Unsupported` by a database that was opened only for reading, by [`Db::open_shared`] with the reason why it cannot be written,
/// - as `Closed` once [`Db::close`] was called, or a failure of the disk has ended writes: open it again,
/// - as `Unsupported` in what the database calls when a write is done, if it would wait there.
///
/// The methods tell what comes besides.
#[derive(Debug, Clone)]
pub struct Db {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    engine: Arc<Engine>,
    /// What it follows, if it is opened only for reading.
    follower: Option<Arc<Follower>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    lock: Mutex<Option<DirLock>>,
    /// Where the database is written.
    local: OnceLock<Arc<LocalDisk>>,
    /// How the close ended.
    closed: Mutex<Option<Result<()>>>,
}

impl Db {
    /// Opens the database in `dir` for reading and writing, and creates it if it is missing.
    ///
    /// # Errors
    /// `Locked` when another process writes it, `Corrupt` when its manifest or log is damaged, `Unsupported` when a later version has written
    /// it, `Io` when the disk fails or the directory must not be written, `Full` when no more files can be opened, `Invalid` for impossible
    /// options, `Conflict` when it was written last with a log that lies elsewhere, as by [`Db::open_apart`].
    pub fn open(dir: impl AsRef<Path>, options: DbOptions) -> Result<Self> {
        let dir = dir.as_ref();
        Self::open_locked(dir, DirLock::acquire(dir)?, options)
    }

    /// Opens the database in `dir` for reading and writing with the right to do so.
    pub(crate) fn open_locked(dir: &Path, lock: DirLock, options: DbOptions) -> Result<Self> {
        // First of all: there is no database to read as yet, or none that anything is deleted from.
        let readers = Readers::watch(dir);
        let disk = Arc::new(LocalDisk::locked(dir, &lock));
        let db = Self::open_on(Arc::clone(&disk) as Arc<dyn Disk>, options)?;
        match readers {
            Ok(readers) => drop(db.engine().readers.set(readers)),
            // As on a full disk. What is replaced stays for a while then, whether anybody reads it or not.
            Err(error) => tracing::warn!(%error, "who reads the database is not known"),
        }
        let _ = db.shared.local.set(disk);
        *db.shared.lock.lock().unwrap_or_else(PoisonError::into_inner) = Some(lock);
        Ok(db)
    }

    /// Opens the database on a disk that nobody else writes: the caller sees to that.
    ///
    /// # Errors
    /// As [`Db::open`].
    pub fn open_on(disk: Arc<dyn Disk>, options: DbOptions) -> Result<Self> {
        options.check()?;
        let disk = GuardedDisk::new(disk);
        let failure = Failure::of(disk.failure());
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let dirs = [names::MANIFEST_DIR, names::OBJECTS_DIR, names::REACHED_DIR];
        let io: Arc<dyn ObjectIo> = Arc::new(LocalIo::open(Arc::clone(&disk), &dirs)?);
        Self::open_written(&disk, io, Some(&*disk), options, failure)
    }

    /// Opens the database whose log lies on a disk and whose objects lie elsewhere, both of which nobody else writes: the caller sees to
    /// that (for directories [`DirLock`](crate::store::DirLock) does). Who has written the database before and goes on all the same cannot change the manifest any more, which it learns when it tries to; what it
    /// acknowledges until then is in its own log alone, which cannot be opened with these objects again. Where a read of an object takes long, `objects`
    /// should be a [`ReadAhead`](crate::store::ReadAhead). As yet there is no such store but those of tests, and no command opens a database so.
    ///
    /// The log has to be the one that was written last. An empty one may take its place when that was closed in order with all of its rows in objects
    /// ([`Db::flush`], then [`Db::close`]), or when [`DbOptions::missing_log`] gives up what only the last one holds.
    ///
    /// # Errors
    /// As [`Db::open`]; `Conflict` for another log than the last one, and when another writer begins meanwhile.
    pub fn open_apart(
        log: Arc<dyn Disk>,
        objects: Arc<dyn ObjectIo>,
        options: DbOptions,
    ) -> Result<Self> {
        options.check()?;
        let log = GuardedDisk::new(log);
        let failure = Failure::of(log.failure());
        let log: Arc<dyn Disk> = Arc::new(log);
        Self::open_written(&log, objects, None, options, failure)
    }

    /// Opens a database for writing. What nothing names, though it is not known whether anything should, is kept aside: on `objects_disk`, or
    /// where objects lie.
    fn open_written(
        disk: &Arc<dyn Disk>,
        io: Arc<dyn ObjectIo>,
        objects_disk: Option<&dyn Disk>,
        options: DbOptions,
        failure: Failure,
    ) -> Result<Self> {
        let (manifest, reached) = open_manifest(&io, disk)?;
        let place = if objects_disk.is_some() { LogPlace::Together } else { LogPlace::Apart };
        let beginning = Beginning::check(disk, place, &manifest, options.missing_log)?;
        // What comes there later is of a writer that has begun behind this one.
        let found = io.list(names::OBJECTS_DIR)?;
        let state = beginning.state(&manifest);
        let salt = options.clock.now_ns() as u64 ^ (u64::from(std::process::id()) << 32);
        let (wal, records) = Wal::open(Arc::clone(disk), state.wal_from, salt)?;
        let next_seq = wal.next_seq().max(seq_behind(&state));
        let commits = CommitQueue::new(next_seq, failure, options.memory_bytes);
        let engine = Arc::new(Engine::new(io, options, (manifest, reached), commits));
        let tables = load_tables(&engine, &state)?;
        let (rows, _) = replay(&tables, &state, records)?;
        // Nothing else keeps a writer out that does not know of this one.
        beginning.begin(&**disk, &mut engine.ground.manifest())?;
        delete_strays(&engine, objects_disk, &state, found)?;
        if rows > 0 {
            tracing::info!(rows, "brought rows back from the log");
        }
        engine.show_tables(tables);
        *engine.wal.lock().unwrap_or_else(PoisonError::into_inner) = Some(wal);
        // One that cannot be started ends the others with the database.
        let db = Self::with(Arc::clone(&engine), None, vec![spawn_committer(&engine)?]);
        for spawn in [spawn_flusher, spawn_compactor, spawn_maintenance] {
            db.shared.threads.lock().unwrap_or_else(PoisonError::into_inner).push(spawn(&engine)?);
        }
        Ok(db)
    }

    /// A database that nobody writes through it.
    pub(crate) fn read_only(engine: Arc<Engine>, follower: Follower) -> Self {
        Self::with(engine, Some(Arc::new(follower)), Vec::new())
    }

    fn with(
        engine: Arc<Engine>,
        follower: Option<Arc<Follower>>,
        threads: Vec<JoinHandle<()>>,
    ) -> Self {
        let shared = Shared {
            engine,
            follower,
            threads: Mutex::new(threads),
            lock: Mutex::new(None),
            local: OnceLock::new(),
            closed: Mutex::new(None),
        };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.shared.engine
    }

    pub(crate) fn follower(&self) -> Option<&Follower> {
        self.shared.follower.as_deref()
    }

    /// How the database was opened.
    pub fn options(&self) -> &DbOptions {
        &self.engine().ground.options
    }

    // ---- tables ----

    /// The schemas of all tables, by name.
    pub fn tables(&self) -> Vec<Arc<TableSchema>> {
        self.engine().tables().iter().map(|table| table.schema()).collect()
    }

    /// The schema of a table.
    ///
    /// # Errors
    /// `NotFound`, with the first of the tables that there are.
    pub fn schema(&self, table: &str) -> Result<Arc<TableSchema>> {
        Ok(self.engine().table(table)?.schema())
    }

    /// Creates a table; the id in `schema` is of no meaning.
    ///
    /// # Errors
    /// `Conflict` when it exists and `if_exists` is [`IfExists::Fail`], `Invalid` without a name or with a block interval that is not above
    /// 0, `Full` when the disk is. `Io`, or `Conflict` when another process has written the manifest, ends writes.
    pub fn create_table(&self, schema: &TableSchema, if_exists: IfExists) -> Result<()> {
        let _step = self.begin()?;
        let engine = self.engine();
        if schema.name.is_empty() {
            return Err(Error::invalid("a table needs a name"));
        }
        if schema.options.block_ns <= 0 {
            return Err(Error::invalid("a block interval must be above 0"));
        }
        if schema.kind == TableKind::Records && schema.dimensions.is_empty() {
            let name = &schema.name;
            return Err(Error::invalid(format!("table {name}: records need a dimension at least")));
        }
        let mut manifest = engine.ground.manifest();
        if engine.find(&schema.name).is_some() {
            return match if_exists {
                IfExists::Keep => Ok(()),
                IfExists::Fail => {
                    Err(Error::conflict(format!("there is a table {:?} already", schema.name)))
                }
            };
        }
        let mut schema = schema.clone();
        schema.id = tidefall_types::TableId(manifest.state().next_table);
        engine.ground.commit(&mut manifest, &[Edit::PutTable(schema.clone())])?;
        engine.show_table(Table::new(schema));
        Ok(())
    }

    /// Drops a table with all its readings.
    ///
    /// # Errors
    /// `NotFound` when there is none, `Full` when the disk is; all stays then. `Io`, or `Conflict` when another process has written the
    /// manifest, ends writes.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let _step = self.begin()?;
        let engine = self.engine();
        loop {
            let table = engine.table(name)?;
            let _turns = (engine.alone_with(table.lock())?, engine.begin_flush()?);
            if table.is_dropped() {
                // Another one may have its name.
                continue;
            }
            // Until it is known who reads its objects.
            let _alone = engine.ground.install_alone();
            // Held until it is gone here, too: nobody must give columns to a table that the manifest has lost.
            let mut manifest = engine.ground.manifest();
            engine.ground.commit(&mut manifest, &[Edit::DropTable(table.id())])?;
            engine.hide_table(&table);
            return Ok(());
        }
    }

    // ---- readings ----

    /// Deletes the readings of some sensors within a stretch of time that were written before.
    ///
    /// # Errors
    /// `NotFound` without the table or a tag, `Invalid` for a pattern that is none, `Full` when the log finds no room, `Limit` for more
    /// sensors than a record of the log takes, `Io` when the disk fails, and the damage of a table that cannot be read. Nothing is deleted
    /// then, but after `Io`, which ends writes, nobody knows until the database is opened again.
    pub fn delete(&self, table: &str, filter: &TagFilter, time: TimeRange) -> Result<()> {
        let _step = self.begin()?;
        let engine = self.engine();
        engine.commits.check_may_wait()?;
        let table = engine.series_table(table)?;
        table.check_whole()?;
        let view = table.sensors.read().unwrap_or_else(PoisonError::into_inner).view();
        let sensors = match filter {
            TagFilter::All => None,
            filter => Some(Arc::new(view.resolve(&table.schema(), filter)?)),
        };
        if time.is_empty() || sensors.as_ref().is_some_and(|sensors| sensors.is_empty()) {
            return Ok(());
        }
        let tombstone = LiveTombstone { seq: Default::default(), time, sensors };
        let record = encode_delete(&tombstone.to_stored()?)?;
        engine.commits.submit_and_wait(Change::Series {
            table,
            change: tidefall_series::change::Change::Delete(tombstone),
            record: Some(LogRecord::Delete(record)),
            watch: None,
        })?;
        Ok(())
    }

    /// One consistent view of a table as it is now.
    ///
    /// # Errors
    /// `NotFound` without the table, and the damage of one that cannot be read.
    pub fn snapshot(&self, table: &str) -> Result<TableSnapshot> {
        let table = self.engine().series_table(table)?;
        table.check_whole()?;
        loop {
            let applied = self.engine().commits.applied();
            // Rows first: the sensors that they need are there before them.
            let sources = table.sources()?;
            let sensors = table.sensors.read().unwrap_or_else(PoisonError::into_inner).view();
            // Sensors that have come since have no rows here, but may have a tag that the rows do not know of.
            if table.schema().tags.len() == sources.version.schema.tags.len() {
                return Ok(TableSnapshot::new(applied, sensors, sources));
            }
        }
    }

    /// As [`Db::snapshot`], of a table of whichever kind.
    ///
    /// # Errors
    /// As [`Db::snapshot`].
    pub fn snapshot_of_any(&self, table: &str) -> Result<Snapshot> {
        match self.engine().table(table)? {
            Table::Series(_) => self.snapshot(table).map(Snapshot::Series),
            Table::Records(_) => self.records(table).map(Snapshot::Records),
        }
    }

    // ---- moving readings ----

    /// Makes everything durable that was acknowledged from memory: writes all rows in memory to
    /// objects, each in the model that owns its time.
    ///
    /// # Errors
    /// `Full` when the disk is, `Io` when it fails; the rows stay in memory then. A commit of the manifest that fails otherwise than by
    /// `Full` ends writes.
    pub fn flush(&self) -> Result<CascadeReport> {
        let _step = self.begin()?;
        let engine = self.engine();
        let _flushing = engine.begin_flush()?;
        caught(|| flush(engine))
    }

    /// Frees memory, as the database does by itself when it is full: writes rows to objects, but late ones, of days that are there
    /// already, only if they are many.
    ///
    /// # Errors
    /// As [`Db::flush`].
    pub fn free_memory(&self) -> Result<CascadeReport> {
        let _step = self.begin()?;
        let engine = self.engine();
        let _flushing = engine.begin_flush()?;
        caught(|| flush_some(engine))
    }

    /// Ends work that was acknowledged from memory piece by piece: flushes, also when a later piece failed, as the
    /// earlier ones stay.
    ///
    /// # Errors
    /// That of the work, and behind it that of the flush; that of [`Db::flush`] if the work is done.
    pub fn flush_after<T>(&self, work: Result<T>) -> Result<T> {
        let flushed = self.flush();
        match (work, flushed) {
            (work, Ok(_)) => work,
            (Ok(_), Err(error)) => Err(error),
            (Err(error), Err(later)) => {
                Err(error
                    .followed_by(&later.context("what is in memory could not be written to disk")))
            }
        }
    }

    /// Moves readings to the next model.
    ///
    /// # Errors
    /// `NotFound` without the table, `Io`, `Full` and `Corrupt` from storage: the first of all steps, which are taken all the same unless the
    /// disk is full or writes have ended. `Closed` also when the database is closed meanwhile; readings that were not moved yet are then where they were.
    pub fn cascade(&self, request: &CascadeRequest) -> Result<CascadeReport> {
        let _step = self.begin()?;
        let engine = self.engine();
        let _maintenance = engine.maintain()?;
        let tables = match &request.table {
            Some(name) => vec![engine.table(name)?],
            None => engine.tables(),
        };
        // First of all: it frees the disk for what comes.
        if let Err(error) = engine.delete_replaced() {
            tracing::warn!(%error, "what was replaced stays for now");
        }
        let report = for_all(&tables, |table| cascade_all(engine, table, request.target));
        caught(|| forget(engine))?;
        report
    }

    /// Makes everything durable and ends the background work. What changes something and is under way
    /// ends first; a cascade stops where it is. Nothing is written after that: all further changes are
    /// `Closed`. A second call waits for the first and says the same.
    ///
    /// # Errors
    /// `Io` and `Full` from the disk; what was acknowledged as durable is so all the same, what was acknowledged from memory may be lost.
    /// `Unsupported` in what is called when a write is done; nothing is closed then.
    pub fn close(&self) -> Result<()> {
        self.engine().commits.check_may_wait()?;
        self.shared.close()
    }

    /// Begins what may write; the database does not close before it ends.
    pub(crate) fn begin(&self) -> Result<Step<'_>> {
        match self.follower() {
            Some(follower) => Err(follower.why().clone()),
            None => self.engine().ground.steps.begin(),
        }
    }
}

impl Shared {
    fn close(&self) -> Result<()> {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let end = || if self.follower.is_some() { Ok(()) } else { self.end() };
        closed.get_or_insert_with(end).clone()
    }

    fn end(&self) -> Result<()> {
        self.engine.ground.steps.refuse();
        // Those under way need the threads.
        self.engine.ground.steps.wait();
        self.engine.commits.close();
        self.engine.ground.alarms.raise(|alarm| alarm.is_closing = true);
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the database panicked");
            }
        }
        let closed = caught(|| self.close_storage());
        if let Some(local) = self.local.get() {
            // Snapshots that are left read on, and the next writer must know.
            local.begin_to_read();
        }
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = None;
        closed
    }

    /// What is left when nothing and nobody else changes anything any more.
    fn close_storage(&self) -> Result<()> {
        let engine = &self.engine;
        let flushed = match engine.has_unlogged.load(Ordering::Acquire) {
            true => flush_at_last(engine),
            false => Ok(()),
        };
        let swept = engine.sweep();
        if let Err(error) = spend_log(engine) {
            tracing::warn!(%error, "the log is still needed");
        }
        let wal = engine.wal.lock().unwrap_or_else(PoisonError::into_inner).take();
        let closed = wal.map_or(Ok(()), |wal| close_log(engine, wal));
        flushed.and(closed).and(swept).and_then(|()| {
            let mut manifest = engine.ground.manifest();
            match manifest.checkpoint() {
                // It only makes the next open faster.
                Err(error) if error.kind() == ErrorKind::Full || may_pass(engine, &error) => {}
                written => written?,
            }
            let mark = manifest.mark();
            if engine.ground.reached().newest() != Some(mark) {
                engine.ground.mark_reached(mark);
            }
            Ok(())
        })
    }
}

impl Shared {
    /// Whether this is one of the threads for which a close waits.
    fn is_own_thread(&mut self) -> bool {
        let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
        threads.iter().any(|thread| thread.thread().id() == tidefall_sync::thread::current().id())
    }

    /// Closes on another thread: one of its own would wait for itself.
    fn close_aside(&mut self) {
        let threads =
            std::mem::take(self.threads.get_mut().unwrap_or_else(PoisonError::into_inner));
        let lock = self.lock.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let all = Arc::new(Mutex::new(Some(Self {
            engine: Arc::clone(&self.engine),
            follower: self.follower.clone(),
            threads: Mutex::new(threads),
            lock: Mutex::new(lock),
            local: std::mem::take(&mut self.local),
            closed: Mutex::new(None),
        })));
        let take =
            |all: &Mutex<Option<Self>>| all.lock().unwrap_or_else(PoisonError::into_inner).take();
        let close = {
            let all = Arc::clone(&all);
            move || drop(take(&all))
        };
        let builder = tidefall_sync::thread::Builder::new().name("tidefall-close".into());
        if let Err(error) = builder.spawn(close) {
            tracing::error!(%error, "the database was not closed cleanly, and stays locked until this process ends");
            self.engine.ground.steps.refuse();
            self.engine.commits.close();
            self.engine.ground.alarms.raise(|alarm| alarm.is_closing = true);
            // Its threads may still write.
            std::mem::forget(take(&all));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let is_closed = self.closed.get_mut().unwrap_or_else(PoisonError::into_inner).is_some();
        if is_closed {
            return;
        }
        if self.is_own_thread() {
            return self.close_aside();
        }
        if let Err(error) = self.close() {
            tracing::error!(%error, "the database was not closed cleanly");
        }
    }
}
