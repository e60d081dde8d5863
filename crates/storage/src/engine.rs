//! What one open database consists of: its tables, its log, and the ground that they stand on.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tidefall_ground::Ground;
use tidefall_ground::manifest::log::ManifestLog;
use tidefall_ground::manifest::reached::Reached;
use tidefall_ground::manifest::{Edit, State};
use tidefall_ground::obsolete::Elsewhere;
use tidefall_ground::options::{CascadeReport, DbOptions};
use tidefall_ground::turns::{Alone, Moving, TableLock, Turn};
use tidefall_ground::wal::Wal;
use tidefall_records::Table as RecordsTable;
use tidefall_series::Table as SeriesTable;
use tidefall_store::{ObjectIo, Readers, names};
use tidefall_sync::atomic::AtomicBool;
use tidefall_sync::{Arc, Instant, Mutex, OnceLock, PoisonError, RwLock};
use tidefall_types::{Error, ObjectId, Result, Seq, TableId};

use crate::commit::CommitQueue;
use crate::table::{Kinds, Table};

/// Of the memory budget: bytes of the log beyond which the rows are flushed that keep its oldest part. All rows in memory
/// take a fraction of that, so that most of such a log is of rows that have left memory, and yet a recovery would read it,
/// a few seconds for each gigabyte. Tests have less.
const LOG_SHARE: f64 = if cfg!(debug_assertions) { 0.0005 } else { 2.0 };
/// Replaced objects that are deleted at once while readers are kept out.
const DELETED_AT_ONCE: usize = 16;
/// Readers are kept out for as long, or for one object if that takes longer: they wait for some seconds.
const KEPT_OUT_MAX: Duration = Duration::from_millis(50);
/// How long readers are let in before more are deleted.
const READERS_TURN: Duration = Duration::from_millis(2);
/// Of the memory budget: rows for days that are in objects already, which stay while others leave.
const LATE_SHARE: f64 = 0.05;
/// Of the memory budget: bytes of the log beyond which no rows stay that keep it.
const LATE_LOG_SHARE: f64 = 1.0;
/// Bytes of texts that one record of the log holds at most before they are packed, or their share of the memory of rows
/// if that is less. Twice what a record takes packed.
const LOGGED_TEXT_BYTES_MAX: usize = 64 << 20;
/// Versions of the manifest that are kept.
const MANIFEST_VERSIONS: u64 = 256;

/// Tables that are named where one is missing, as there may be thousands.
const NAMED_MAX: usize = 20;

/// An open database.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) ground: Arc<Ground>,
    /// What the tables of each kind have in common.
    pub(crate) kinds: Kinds,
    pub(crate) commits: CommitQueue,
    pub(crate) wal: Mutex<Option<Wal>>,
    tables: RwLock<Tables>,
    /// Whether rows in memory may be missing in the log.
    pub(crate) has_unlogged: AtomicBool,
    /// Tells whether other processes read the database, if it is in a directory.
    pub(crate) readers: OnceLock<Readers>,
}

#[derive(Debug, Default)]
struct Tables {
    /// In the order of their names.
    by_name: BTreeMap<String, Table>,
    by_id: HashMap<TableId, Table>,
}

impl Tables {
    fn add(&mut self, table: Table) {
        self.by_name.insert(table.schema().name.clone(), table.clone());
        self.by_id.insert(table.id(), table);
    }
}

impl Engine {
    pub(crate) fn new(
        io: Arc<dyn ObjectIo>,
        options: DbOptions,
        manifest: (ManifestLog<State>, Reached),
        commits: CommitQueue,
    ) -> Self {
        let ground = Arc::new(Ground::new(io, options, manifest, commits.failure_of_all().clone()));
        Self {
            kinds: Kinds::new(&ground),
            ground,
            commits,
            wal: Mutex::new(None),
            tables: RwLock::new(Tables::default()),
            has_unlogged: AtomicBool::new(false),
            readers: OnceLock::new(),
        }
    }

    // ---- turns ----

    /// Waits until nobody else tends the database.
    ///
    /// # Errors
    /// `Closed` when the database closes meanwhile, `Unsupported` in what is called when a write is done.
    pub(crate) fn maintain(&self) -> Result<Turn<'_>> {
        self.commits.check_may_wait()?;
        let turn = self.ground.turns.maintain();
        self.ground.steps.check().map(|()| turn)
    }

    /// Waits until nobody lays run files together; whoever tends the database may do so first.
    ///
    /// # Errors
    /// As [`Engine::maintain`].
    pub(crate) fn compact(&self) -> Result<Turn<'_>> {
        self.commits.check_may_wait()?;
        let turn = self.ground.turns.compact();
        self.ground.steps.check().map(|()| turn)
    }

    /// Moves something of a table, unless it has been dropped. Whoever is alone with it is waited for.
    ///
    /// # Errors
    /// `Closed` when the database closes meanwhile, and those of `act`.
    pub(crate) fn moving(
        &self,
        table: &Table,
        act: impl FnOnce(&Table) -> Result<CascadeReport>,
    ) -> Result<CascadeReport> {
        self.moving_under(table.lock().moving(), table, act)
    }

    /// As [`Engine::moving`]; where it would wait nothing is done, and the table looked at again soon.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn try_moving(
        &self,
        table: &Table,
        act: impl FnOnce(&Table) -> Result<CascadeReport>,
    ) -> Result<CascadeReport> {
        match table.lock().try_moving() {
            Some(moving) => self.moving_under(moving, table, act),
            None => {
                table.refuse();
                Ok(CascadeReport::default())
            }
        }
    }

    fn moving_under(
        &self,
        _moving: Moving<'_>,
        table: &Table,
        act: impl FnOnce(&Table) -> Result<CascadeReport>,
    ) -> Result<CascadeReport> {
        self.ground.steps.check()?;
        if table.is_dropped() { Ok(CascadeReport::default()) } else { act(table) }
    }

    /// Waits until nobody moves anything of a table any more: for what is done to it now, not to others.
    ///
    /// # Errors
    /// As [`Engine::maintain`].
    pub(crate) fn alone_with<'a>(&self, table: &'a TableLock) -> Result<Alone<'a>> {
        self.commits.check_may_wait()?;
        let alone = table.alone();
        self.ground.steps.check().map(|()| alone)
    }

    /// Waits until nobody else takes rows out of memory; whoever holds one of the others may do so. It goes on while the database
    /// closes.
    ///
    /// # Errors
    /// `Unsupported` in what is called when a write is done.
    pub(crate) fn begin_flush(&self) -> Result<Turn<'_>> {
        self.commits.check_may_wait()?;
        Ok(self.ground.turns.flush())
    }

    // ---- memory ----

    /// Waits until more rows may come into memory. The thread that
    /// commits only calls for the flush: others wait for it, perhaps while they keep the flush from beginning.
    pub(crate) fn wait_for_memory(&self, bytes: usize) -> Result<()> {
        if self.commits.is_committer() {
            if !self.ground.memory.takes_rows() {
                self.ground.alarms.raise(|alarm| alarm.is_full = true);
            }
            return Ok(());
        }
        self.ground.wait_for_memory(bytes)
    }

    /// Lets rows come slower when a table has many objects that are due to be laid together. Those of a damaged one stay as they are.
    pub(crate) fn note_backlog(&self) {
        let tables = self.tables();
        let whole = tables.iter().filter(|table| table.damage().is_none());
        let backlog = whole.map(|table| table.backlog(&self.kinds)).max();
        self.ground.memory.set_backlog(backlog.unwrap_or(0));
    }

    /// Bytes of late rows that may stay in memory, and keep the log, while others leave it.
    pub(crate) fn late_bytes_max(&self) -> usize {
        match self.log_has(LATE_LOG_SHARE) {
            true => 0,
            false => self.ground.memory.share(LATE_SHARE),
        }
    }

    /// Bytes of texts that one record of the log may hold.
    pub(crate) fn logged_texts_max(&self) -> usize {
        self.ground.memory.bytes_max().min(LOGGED_TEXT_BYTES_MAX)
    }

    // ---- tables ----

    /// The table of this name, if there is one.
    pub(crate) fn find(&self, name: &str) -> Option<Table> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).by_name.get(name).cloned()
    }

    /// As [`Engine::find`], of whom a table is asked for that must be there.
    pub(crate) fn table(&self, name: &str) -> Result<Table> {
        self.find(name).ok_or_else(|| self.no_table(name))
    }

    /// As [`Engine::find`], for what is asked of series tables alone.
    ///
    /// # Errors
    /// `Conflict` for a table of another kind: nobody may make a second one of its name.
    pub(crate) fn find_series(&self, name: &str) -> Result<Option<Arc<SeriesTable>>> {
        match self.find(name) {
            None => Ok(None),
            Some(Table::Series(table)) => Ok(Some(table)),
            Some(Table::Records(_)) => Err(Error::conflict(format!(
                "table {name} is of records, which have no sensors, tags or time of their own: ask it in SQL, by its name alone, or as records"
            ))),
        }
    }

    /// As [`Engine::table`], for what is asked of tables of records alone.
    ///
    /// # Errors
    /// `NotFound` where there is none of this name, `Conflict` for a table of another kind.
    pub(crate) fn records_table(&self, name: &str) -> Result<Arc<RecordsTable>> {
        match self.table(name)? {
            Table::Records(table) => Ok(table),
            Table::Series(_) => Err(Error::conflict(format!(
                "table {name} has a series for each sensor, and is not one of records; make those with model = 'records'"
            ))),
        }
    }

    /// As [`Engine::table`], for what is asked of series tables alone.
    pub(crate) fn series_table(&self, name: &str) -> Result<Arc<SeriesTable>> {
        self.find_series(name)?.ok_or_else(|| self.no_table(name))
    }

    /// That there is no table of this name, and which there are.
    pub(crate) fn no_table(&self, name: &str) -> Error {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let named: Vec<&str> = tables.by_name.keys().take(NAMED_MAX).map(String::as_str).collect();
        let more = match tables.by_name.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = named.join(", ");
        Error::not_found(format!("there is no table {name:?}; there are: {named}{more}"))
    }

    pub(crate) fn table_by_id(&self, id: TableId) -> Option<Table> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).by_id.get(&id).cloned()
    }

    /// All tables, by name.
    pub(crate) fn tables(&self) -> Vec<Table> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        tables.by_name.values().cloned().collect()
    }

    pub(crate) fn show_table(&self, table: Table) {
        table.count(&self.ground);
        self.tables.write().unwrap_or_else(PoisonError::into_inner).add(table);
    }

    /// Shows these tables in place of all that there were, which come back.
    pub(crate) fn show_tables(&self, tables: Vec<Table>) -> Vec<Table> {
        let mut shown = Tables::default();
        for table in tables {
            table.count(&self.ground);
            shown.add(table);
        }
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *tables, shown);
        drop(tables);
        self.ground.rows_came(self.ground.memory.rows.get());
        before.by_id.into_values().collect()
    }

    pub(crate) fn hide_table(&self, table: &Table) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        tables.by_name.remove(&table.schema().name);
        tables.by_id.remove(&table.id());
        drop(tables);
        table.drop_all(&self.ground);
    }

    // ---- objects ----

    /// Forgets objects that nobody reads any more, and closes their files.
    pub(crate) fn let_go(&self, objects: &HashMap<ObjectId, String>) {
        if !objects.is_empty() {
            self.kinds.forget(|id| objects.contains_key(&id));
            objects.values().for_each(|name| self.ground.io.let_go(name));
        }
    }

    /// Writes to objects what sensors no object and no record of the log has, when those of a table below `upto`
    /// are too much for one record.
    pub(crate) fn unburden_log(&self, table: &SeriesTable, upto: u32) -> Result<()> {
        let is_too_much = || table.has_many_new_sensors(upto, self.logged_texts_max());
        if !is_too_much() {
            return Ok(());
        }
        self.commits.check_may_wait()?;
        let _alone = self.ground.install_alone();
        if !is_too_much() {
            return Ok(());
        }
        let (mut edits, written) = (Vec::new(), self.ground.written());
        table.add_what_the_log_holds(&self.ground, &mut edits, &written)?;
        let mut manifest = self.ground.manifest();
        self.ground.commit_written(&mut manifest, written, &edits)?;
        table.note_stored(manifest.state());
        Ok(())
    }

    /// Cuts the log behind what is durable elsewhere.
    pub(crate) fn cut_log(&self) -> Result<()> {
        let (ground, tables) = (&self.ground, self.tables());
        if tables.iter().any(|table| table.damage().is_some()) {
            // The log may hold readings of the table that could not be brought back.
            return Ok(());
        }
        let _alone = ground.install_alone();
        // Read first: whatever is applied later has a later number.
        let applied = self.commits.applied();
        let oldest = self.tables().iter().filter_map(|table| table.oldest_seq()).min();
        let from = oldest.map_or(applied, |oldest| oldest.min(applied));
        if from <= ground.manifest().state().wal_from {
            return Ok(());
        }
        let (mut edits, written) = (Vec::new(), ground.written());
        let tables = self.tables();
        for table in &tables {
            table.add_what_the_log_holds(ground, &mut edits, &written)?;
        }
        edits.push(Edit::WalFrom(from));
        {
            let mut manifest = ground.manifest();
            ground.commit_written(&mut manifest, written, &edits)?;
            tables.iter().for_each(|table| table.note_stored(manifest.state()));
        }
        let mut wal = self.wal.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wal) = wal.as_mut() {
            wal.cut(from).inspect_err(|error| self.commits.fail(error))?;
        }
        Ok(())
    }

    /// Whether the log has more bytes than a share of the memory budget.
    pub(crate) fn log_has(&self, share: f64) -> bool {
        let bytes_max = self.ground.memory.share(share) as u64;
        let wal = self.wal.lock().unwrap_or_else(PoisonError::into_inner);
        wal.as_ref().is_some_and(|wal| wal.place_to_cut(bytes_max).is_some())
    }

    /// Where the log should be cut, if it is too long.
    pub(crate) fn place_to_cut(&self) -> Option<Seq> {
        let wal = self.wal.lock().unwrap_or_else(PoisonError::into_inner);
        wal.as_ref()?.place_to_cut(self.ground.memory.share(LOG_SHARE) as u64)
    }

    /// Deletes objects that were replaced and that nobody reads any more, and versions of the
    /// manifest that nobody needs.
    pub(crate) fn sweep(&self) -> Result<()> {
        let deleted = self.delete_replaced();
        let forgotten = self.ground.manifest().gc(MANIFEST_VERSIONS);
        deleted.and(forgotten.map(drop))
    }

    /// Deletes objects that were replaced and that nobody reads any more.
    pub(crate) fn delete_replaced(&self) -> Result<()> {
        let mut outcome = Ok(());
        let mut last = String::new();
        loop {
            // Nothing that was replaced a moment ago and is not known to be in use.
            let alone = self.ground.install_alone();
            let kept_out = self.readers.get().and_then(Readers::keep_out);
            let elsewhere = if kept_out.is_some() { Elsewhere::Nobody } else { Elsewhere::Anybody };
            let mut due = self.ground.obsolete.due(self.ground.now_ns(), elsewhere, &last);
            drop(alone);
            let are_all = due.len() <= DELETED_AT_ONCE;
            // Readers do not wait for more, nor for longer.
            due.truncate(DELETED_AT_ONCE);
            let (start, mut tried) = (Instant::now(), 0);
            for name in &due {
                if tried > 0 && start.elapsed() > KEPT_OUT_MAX {
                    break;
                }
                if let Some(id) = names::parse_object(name) {
                    self.kinds.forget(|other| other == id);
                }
                let deleted =
                    self.ground.io.delete(name).map(|()| self.ground.obsolete.forget(name));
                // One that cannot go keeps no other.
                outcome = outcome.and(deleted);
                tried += 1;
            }
            drop(kept_out);
            if tried == due.len() && are_all {
                return outcome;
            }
            // Whoever begins to read looks for its turn each millisecond.
            tidefall_sync::thread::sleep(READERS_TURN);
            due.truncate(tried);
            last = due.pop().unwrap_or_default();
        }
    }
}
