//! The entry: a database in a directory.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use tidefall_types::{Error, Result, TableSchema, TimeRange};

use crate::TagFilter;
use crate::engine::{Engine, Sweep, to_stored};
use crate::ingest::commit::{Change, Commit, CommitQueue};
use crate::ingest::record::{RecordKind, encode_delete};
use crate::manifest::log::ManifestLog;
use crate::manifest::{Edit, State};
use crate::options::{CascadeReport, CascadeRequest, DbOptions, IfExists};
use crate::read::{LiveTombstone, TableSnapshot};
use crate::recovery::{delete_strays, load_tables, replay, seq_behind};
use crate::store::{DirLock, Disk, GuardedDisk, LocalDisk, LocalIo, ObjectIo, SyncFailure, names};
use crate::table::Table;
use crate::upkeep::{
    cascade_table, close_log, flush, for_all, forget, spawn_committer, spawn_tide,
};
use crate::wal::{Replay, Wal};

/// An open database. Clones share it; it closes when the last one is dropped, or by
/// [`Db::close`]. All methods may be called from many threads at once and block until done.
#[derive(Debug, Clone)]
pub struct Db {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    engine: Arc<Engine>,
    is_read_only: bool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    lock: Mutex<Option<DirLock>>,
}

impl Db {
    /// Opens the database in `dir` for reading and writing, and creates it if it is missing.
    ///
    /// # Errors
    /// `Locked` when another process writes it, `Corrupt` when its manifest or log is damaged,
    /// `Io` when the disk fails, `Invalid` for impossible options.
    pub fn open(dir: impl AsRef<Path>, options: DbOptions) -> Result<Self> {
        let dir = dir.as_ref();
        let lock = DirLock::acquire(dir)?;
        let db = Self::open_on(Arc::new(LocalDisk::new(dir)), options)?;
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
        let failure = disk.failure();
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let dirs = [names::MANIFEST_DIR, names::OBJECTS_DIR];
        let io: Arc<dyn ObjectIo> = Arc::new(LocalIo::open(Arc::clone(&disk), &dirs)?);
        let manifest: ManifestLog<State> = ManifestLog::open(Arc::clone(&io))?;
        let state: State = (**manifest.state()).clone();
        let salt = options.clock.now_ns() as u64 ^ (u64::from(std::process::id()) << 32);
        let (wal, records) = Wal::open(disk, state.wal_from, salt)?;
        let commits = CommitQueue::new(wal.next_seq().max(seq_behind(&state)), failure);
        let engine = Arc::new(Engine::new(io, options, manifest, commits));
        load_tables(&engine, &state)?;
        delete_strays(&engine, &state)?;
        let rows = replay(&engine, &state, records)?;
        if rows > 0 {
            tracing::info!(rows, "brought rows back from the log");
        }
        *engine.wal.lock().unwrap_or_else(PoisonError::into_inner) = Some(wal);
        let threads = vec![spawn_committer(&engine)?, spawn_tide(&engine)?];
        Ok(Self::with(engine, false, threads))
    }

    /// Opens the database in `dir` only for reading, also while another process writes it: the
    /// latest manifest, and what the log holds beyond it. It shows one moment; open it again to
    /// see what was written since.
    ///
    /// # Errors
    /// `NotFound` when there is no database, and as [`Db::open`].
    pub fn open_read_only(dir: impl AsRef<Path>, options: DbOptions) -> Result<Self> {
        options.check()?;
        let dir = dir.as_ref();
        if !dir.join(names::MANIFEST_DIR).is_dir() {
            return Err(Error::not_found(format!("there is no database in {}", dir.display())));
        }
        let disk: Arc<dyn Disk> = Arc::new(LocalDisk::new(dir));
        let io: Arc<dyn ObjectIo> = Arc::new(LocalIo::open_read_only(Arc::clone(&disk)));
        let mut manifest: ManifestLog<State> = ManifestLog::open(Arc::clone(&io))?;
        loop {
            let state: State = (**manifest.state()).clone();
            match load_read_only(&io, &disk, &options, state) {
                Ok(engine) if engine.tables().iter().all(|table| table.damage.is_none()) => {
                    return Ok(Self::with(engine, true, Vec::new()));
                }
                // The writer may have cut the log or replaced objects since the manifest was read.
                outcome => {
                    if !manifest.refresh()? {
                        return outcome.map(|engine| Self::with(engine, true, Vec::new()));
                    }
                }
            }
        }
    }

    fn with(engine: Arc<Engine>, is_read_only: bool, threads: Vec<JoinHandle<()>>) -> Self {
        let threads = Mutex::new(threads);
        Self { shared: Arc::new(Shared { engine, is_read_only, threads, lock: Mutex::new(None) }) }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.shared.engine
    }

    /// How the database was opened.
    pub fn options(&self) -> &DbOptions {
        &self.engine().options
    }

    // ---- tables ----

    /// The schemas of all tables, by name.
    pub fn tables(&self) -> Vec<Arc<TableSchema>> {
        self.engine().tables().iter().map(|table| table.schema()).collect()
    }

    /// The schema of a table.
    ///
    /// # Errors
    /// `NotFound`, with the tables that there are.
    pub fn schema(&self, table: &str) -> Result<Arc<TableSchema>> {
        Ok(self.engine().table(table)?.schema())
    }

    /// Creates a table; the id in `schema` is of no meaning.
    ///
    /// # Errors
    /// `Conflict` when it exists and `if_exists` is [`IfExists::Fail`].
    pub fn create_table(&self, schema: &TableSchema, if_exists: IfExists) -> Result<()> {
        self.check_writable()?;
        let engine = self.engine();
        if schema.name.is_empty() {
            return Err(Error::invalid("a table needs a name"));
        }
        if schema.options.block_ns <= 0 {
            return Err(Error::invalid("a block interval must be above 0"));
        }
        let mut manifest = engine.manifest();
        if engine.table(&schema.name).is_ok() {
            return match if_exists {
                IfExists::Keep => Ok(()),
                IfExists::Fail => {
                    Err(Error::conflict(format!("there is a table {:?} already", schema.name)))
                }
            };
        }
        let mut schema = schema.clone();
        schema.id = tidefall_types::TableId(manifest.state().next_table);
        engine.commit(&mut manifest, &[Edit::PutTable(schema.clone())])?;
        engine.show_table(Arc::new(Table::new(schema)));
        Ok(())
    }

    /// Drops a table with all its readings.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        let engine = self.engine();
        let _maintenance = engine.maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        let table = engine.table(name)?;
        engine.commit(&mut engine.manifest(), &[Edit::DropTable(table.id)])?;
        engine.hide_table(&table);
        Ok(())
    }

    // ---- readings ----

    /// Deletes the readings of some sensors within a stretch of time that were written before.
    ///
    /// # Errors
    /// `NotFound` without the table or a tag, `Closed` after a failure of the disk.
    pub fn delete(&self, table: &str, filter: &TagFilter, time: TimeRange) -> Result<()> {
        self.check_writable()?;
        let engine = self.engine();
        let table = engine.table(table)?;
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
        let record = encode_delete(table.id, &to_stored(&tombstone)?)?;
        let (send, receive) = mpsc::sync_channel(1);
        engine.commits.submit(Commit {
            table,
            change: Change::Delete(tombstone),
            record: Some((RecordKind::Delete, record)),
            is_durable: true,
            watch: None,
            done: Box::new(move |outcome| {
                let _ = send.send(outcome);
            }),
        })?;
        receive.recv().map_err(|_| Error::closed("the database was closed during a delete"))??;
        Ok(())
    }

    /// One consistent view of a table as it is now.
    ///
    /// # Errors
    /// `NotFound` without the table.
    pub fn snapshot(&self, table: &str) -> Result<TableSnapshot> {
        let table = self.engine().table(table)?;
        table.check_whole()?;
        // Rows first: the sensors and columns that they need are there before them.
        let sources = table.sources()?;
        let sensors = table.sensors.read().unwrap_or_else(PoisonError::into_inner).view();
        Ok(TableSnapshot::new(table.schema(), sensors, sources))
    }

    // ---- moving readings ----

    /// Makes everything durable that was acknowledged from memory: writes all rows in memory to
    /// objects, each in the model that owns its time.
    ///
    /// # Errors
    /// `Io` when the disk fails; the rows stay in memory then.
    pub fn flush(&self) -> Result<CascadeReport> {
        self.check_writable()?;
        let engine = self.engine();
        let _maintenance = engine.maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        flush(engine)
    }

    /// Lets readings fall.
    ///
    /// # Errors
    /// `NotFound` without the table, `Io` and `Corrupt` from storage; the readings are then where
    /// they were.
    pub fn cascade(&self, request: &CascadeRequest) -> Result<CascadeReport> {
        self.check_writable()?;
        let engine = self.engine();
        let _maintenance = engine.maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        let tables = match &request.table {
            Some(name) => vec![engine.table(name)?],
            None => engine.tables(),
        };
        let report = for_all(&tables, |table| cascade_table(engine, table, request.target));
        forget(engine)?;
        report
    }

    /// Makes everything durable and ends the background work. Further writes fail.
    ///
    /// # Errors
    /// `Io` when the disk fails; what was acknowledged as durable is so all the same.
    pub fn close(&self) -> Result<()> {
        self.shared.close()
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.shared.is_read_only {
            return Err(Error::unsupported("the database is open read-only"));
        }
        Ok(())
    }
}

/// A state and the log behind it, for reading only.
fn load_read_only(
    io: &Arc<dyn ObjectIo>,
    disk: &Arc<dyn Disk>,
    options: &DbOptions,
    state: State,
) -> Result<Arc<Engine>> {
    let manifest = ManifestLog::open(Arc::clone(io))?;
    // A reader writes nothing that could fail.
    let commits = CommitQueue::new(seq_behind(&state), SyncFailure::default());
    let engine = Arc::new(Engine::new(Arc::clone(io), options.clone(), manifest, commits));
    load_tables(&engine, &state)?;
    replay(&engine, &state, Replay::open(Arc::clone(disk), state.wal_from)?)?;
    Ok(engine)
}

impl Shared {
    fn close(&self) -> Result<()> {
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        if threads.is_empty() {
            return Ok(());
        }
        self.engine.commits.close();
        self.engine.raise(|alarm| alarm.is_closing = true);
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the database panicked");
            }
        }
        let closed = self.close_storage();
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = None;
        closed
    }

    /// What is left when no thread changes anything any more.
    fn close_storage(&self) -> Result<()> {
        let engine = &self.engine;
        let _maintenance = engine.maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        // Only now: nothing comes behind it any more.
        let flushed = match engine.has_unlogged.load(Ordering::Acquire) {
            true => flush(engine).map(drop),
            false => Ok(()),
        };
        let swept = engine.sweep(Sweep::All);
        let wal = engine.wal.lock().unwrap_or_else(PoisonError::into_inner).take();
        let closed = wal.map_or(Ok(()), |wal| close_log(engine, wal));
        flushed.and(closed).and(swept).and_then(|()| engine.manifest().checkpoint())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the database was not closed cleanly");
        }
    }
}
