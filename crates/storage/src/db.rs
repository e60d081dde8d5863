//! The entry: a database in a directory.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use roaring::RoaringBitmap;
use tidefall_types::{
    Error, FieldType, Result, RowError, SeriesBatch, TableSchema, TimeRange, WriteBatch,
};

use crate::TagFilter;
use crate::engine::{Engine, Sweep, to_stored};
use crate::ingest::commit::{Change, Commit, CommitQueue};
use crate::ingest::record::{RecordKind, encode_delete, encode_rows, encode_sensors};
use crate::ingest::{Prepared, coerce, order_series, sensors_of_rows};
use crate::manifest::log::ManifestLog;
use crate::manifest::{Edit, State};
use crate::options::{
    Ack, BadRows, CascadeReport, CascadeRequest, DbOptions, IfExists, Unknown, WriteOptions,
    WriteReport,
};
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

    /// Writes rows and waits until they are acknowledged.
    ///
    /// # Errors
    /// `NotFound` and `Conflict` for columns that do not fit the table, `Invalid` for a malformed
    /// batch or, with [`BadRows::Reject`], for its first bad row; nothing is written then.
    /// `Closed` after a failure of the disk.
    pub fn write(
        &self,
        table: &str,
        batch: &WriteBatch,
        options: &WriteOptions,
    ) -> Result<WriteReport> {
        let (send, receive) = mpsc::sync_channel(1);
        self.submit(table, batch, options, move |outcome| {
            // The receiver waits below; it is gone only if this thread is.
            let _ = send.send(outcome);
        })?;
        receive.recv().map_err(|_| Error::closed("the database was closed during a write"))?
    }

    /// Writes rows; `done` is called with the outcome, from another thread, once they are
    /// acknowledged.
    ///
    /// # Errors
    /// As [`Db::write`]; `done` is not called then.
    pub fn submit(
        &self,
        table: &str,
        batch: &WriteBatch,
        options: &WriteOptions,
        done: impl FnOnce(Result<WriteReport>) + Send + 'static,
    ) -> Result<()> {
        self.check_writable()?;
        batch.check()?;
        let engine = self.engine();
        engine.wait_for_room()?;
        let table = self.table_for(table, batch, options.unknown)?;
        let mut bad = Vec::new();
        let batch = self.fit(&table, batch, options, &mut bad)?;
        let (batch, fields) = &batch;
        let report = WriteReport { rows: batch.rows(), bad };
        if batch.rows() == 0 {
            done(Ok(report));
            return Ok(());
        }
        let sensor = self.find_sensors(&table, batch)?;
        let rows =
            Prepared { sensor: sensor.into(), time: batch.time.clone(), fields: fields.clone() };
        let is_durable = options.ack == Ack::Durable;
        let unlogged = Arc::clone(engine);
        let record = match options.ack {
            Ack::Memory => None,
            Ack::Durable => Some((RecordKind::Rows, encode_rows(table.id, &rows)?)),
        };
        engine.commits.submit(Commit {
            table,
            change: Change::Rows(rows),
            record,
            is_durable,
            done: Box::new(move |outcome| {
                if !is_durable {
                    // After the rows are visible, or a flush that misses them could clear it.
                    unlogged.has_unlogged.store(true, Ordering::Release);
                }
                done(outcome.map(|_| report));
            }),
        })
    }

    /// Whether [`Db::submit`] would take this batch at once, without waiting for memory or for the
    /// manifest: then it may be called where a thread must not be held up.
    pub fn is_ready_for(&self, table: &str, batch: &WriteBatch) -> bool {
        let engine = self.engine();
        let is_known = || match engine.table(table) {
            Ok(table) => !lacks_columns(&table.schema(), batch),
            Err(_) => false,
        };
        engine.has_room() && engine.commits.has_room() && is_known()
    }

    /// Writes whole columns straight to objects, each reading to the model that owns its time:
    /// the fastest way in for readings that lie sensor by sensor. All are durable and become
    /// visible at once when it returns; they count as written then.
    ///
    /// # Errors
    /// `Invalid` for a malformed batch or a sensor that appears twice, `NotFound` and `Conflict`
    /// for columns that do not fit the table; `Io` when the disk fails. Nothing is written then.
    pub fn load(&self, table: &str, batch: &SeriesBatch, unknown: Unknown) -> Result<u64> {
        self.check_writable()?;
        batch.check()?;
        let heads = batch.heads();
        let table = self.table_for(table, &heads, unknown)?;
        // Another write may add fields meanwhile; this one does not have them.
        let schema = table.schema();
        check_tags(&schema, &heads)?;
        let sensors = self.find_sensors(&table, &heads)?;
        let mut seen = RoaringBitmap::new();
        let mut series = Vec::with_capacity(sensors.len());
        for (number, (sensor, columns)) in sensors.into_iter().zip(&batch.series).enumerate() {
            if !seen.insert(sensor) {
                return Err(Error::invalid(format!(
                    "series {number} has the tags of one before it; put the readings of a sensor \
                     into one series"
                )));
            }
            series.push((sensor, order_series(&schema, &batch.fields, columns)?));
        }
        let rows = series.iter().map(|(_, rows)| rows.len() as u64).sum();
        crate::cascade::load(self.engine(), &table, &schema, series)?;
        Ok(rows)
    }

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

    fn check_writable(&self) -> Result<()> {
        if self.shared.is_read_only {
            return Err(Error::unsupported("the database is open read-only"));
        }
        Ok(())
    }

    // ---- steps of a write ----

    /// The table with all columns that the batch needs.
    fn table_for(&self, name: &str, batch: &WriteBatch, unknown: Unknown) -> Result<Arc<Table>> {
        if unknown == Unknown::Refuse {
            let table = self.engine().table(name)?;
            table.check_whole()?;
            return Ok(table);
        }
        let table = match self.engine().table(name) {
            Ok(table) => table.check_whole().map(|()| table)?,
            Err(_) => {
                let mut schema = TableSchema::new(Default::default(), name, time_name(batch));
                add_columns_of(batch, &mut schema)?;
                self.create_table(&schema, IfExists::Keep)?;
                self.engine().table(name)?
            }
        };
        if lacks_columns(&table.schema(), batch) {
            self.add_columns(&table, batch)?;
        }
        Ok(table)
    }

    fn add_columns(&self, table: &Arc<Table>, batch: &WriteBatch) -> Result<()> {
        let mut manifest = self.engine().manifest();
        let mut schema = (*table.schema()).clone();
        add_columns_of(batch, &mut schema)?;
        self.engine().commit(&mut manifest, &[Edit::PutTable(schema.clone())])?;
        table.sensors.write().unwrap_or_else(PoisonError::into_inner).add_tags(schema.tags.len());
        *table.schema.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(schema);
        Ok(())
    }

    /// The batch without bad rows, and its fields as the table stores them.
    fn fit<'a>(
        &self,
        table: &Table,
        batch: &'a WriteBatch,
        options: &WriteOptions,
        bad: &mut Vec<RowError>,
    ) -> Result<(std::borrow::Cow<'a, WriteBatch>, Vec<Option<arrow_array::ArrayRef>>)> {
        let schema = table.schema();
        check_tags(&schema, batch)?;
        let fields = coerce(&schema, batch, bad)?;
        if bad.is_empty() {
            return Ok((std::borrow::Cow::Borrowed(batch), fields));
        }
        bad.sort_by_key(|error| error.row);
        bad.dedup_by_key(|error| error.row);
        if options.bad_rows == BadRows::Reject {
            let first = &bad[0];
            return Err(first.error.clone().context(format_args!("row {}", first.row)));
        }
        let good = crate::ingest::without_rows(batch, bad)?;
        let fields = coerce(&schema, &good, &mut Vec::new())?;
        Ok((std::borrow::Cow::Owned(good), fields))
    }

    /// The sensor of each row; new ones are added and logged.
    fn find_sensors(&self, table: &Arc<Table>, batch: &WriteBatch) -> Result<Vec<u32>> {
        let schema = table.schema();
        {
            let sensors = table.sensors.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(found) = sensors_of_rows(&schema, batch, |values| Ok(sensors.find(values)))?
            {
                return Ok(found);
            }
        }
        let mut sensors = table.sensors.write().unwrap_or_else(PoisonError::into_inner);
        let first = sensors.count();
        let found =
            sensors_of_rows(&schema, batch, |values| sensors.find_or_add(values).map(Some))?;
        if sensors.count() > first {
            // Submitted under the lock: whoever finds these sensors later is logged behind them.
            let record = encode_sensors(table.id, &sensors.encode_from(first)?)?;
            self.engine().commits.submit(Commit {
                table: Arc::clone(table),
                change: Change::Sensors,
                record: Some((RecordKind::Sensors, record)),
                is_durable: false,
                done: Box::new(|_| {}),
            })?;
        }
        found.ok_or_else(|| Error::invalid("a sensor was not found"))
    }
}

/// Adds the tags and fields of a batch that a schema lacks.
fn add_columns_of(batch: &WriteBatch, schema: &mut TableSchema) -> Result<()> {
    for tag in &batch.tags {
        if schema.column(&tag.name).is_none() {
            schema.add_tag(&tag.name)?;
        }
    }
    for field in &batch.fields {
        if schema.column(&field.name).is_none() {
            let ty = FieldType::from_arrow(field.values.data_type()).ok_or_else(|| {
                Error::invalid(format!(
                    "field {:?}: values of type {} cannot be stored",
                    field.name,
                    field.values.data_type()
                ))
            })?;
            schema.add_field(&field.name, ty)?;
        }
    }
    Ok(())
}

/// Whether a batch has columns that the table does not have.
fn lacks_columns(schema: &TableSchema, batch: &WriteBatch) -> bool {
    let tags = batch.tags.iter().map(|tag| &tag.name);
    let fields = batch.fields.iter().map(|field| &field.name);
    tags.chain(fields).any(|name| schema.column(name).is_none())
}

/// The tags of a batch must be tags of the table.
fn check_tags(schema: &TableSchema, batch: &WriteBatch) -> Result<()> {
    match batch.tags.iter().find(|tag| !schema.tags.contains(&tag.name)) {
        None => Ok(()),
        Some(tag) if schema.column(&tag.name).is_some() => Err(Error::conflict(format!(
            "table {}: {:?} is a field there, and a tag here",
            schema.name, tag.name
        ))),
        Some(tag) => Err(crate::ingest::unknown_column(schema, &tag.name)),
    }
}

/// The name of the time column of a table that is made by its first write: `time`, unless a column
/// of the batch has it.
fn time_name(batch: &WriteBatch) -> &'static str {
    let names = || {
        batch.tags.iter().map(|tag| &tag.name).chain(batch.fields.iter().map(|field| &field.name))
    };
    if names().any(|name| name == "time") { "_time" } else { "time" }
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
