//! What one open database consists of, and the few steps that change it as a whole.

mod install;
mod memory;
mod pace;
mod work;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError};

use roaring::RoaringBitmap;
use tidefall_types::{Error, ObjectId, Result, Seq, TableId};

use crate::catalog::SensorDictionary;
use crate::graveyard::{Elsewhere, Graveyard};
use crate::ingest::commit::CommitQueue;
use crate::kv::KvBytes;
use crate::manifest::log::{LogState, ManifestLog, Writer, Writers};
use crate::manifest::reached::Reached;
use crate::manifest::{Edit, Model, ObjectEntry, SensorObject, State, Tombstone};
use crate::options::DbOptions;
use crate::panics::caught;
use crate::read::{LiveObject, LiveTombstone};
use crate::segment::{Content, Segment, SegmentCaches, encode_header};
use crate::steps::Steps;
use crate::store::names::{self, Mark};
use crate::store::{ObjectIo, ObjectWriter, Readers};
use crate::table::Table;
use crate::wal::Wal;
use crate::written::Written;
use pace::Pace;
use work::Worked;

/// Of the memory budget: bytes of the log beyond which the rows are drained that keep its oldest part. All rows in memory
/// take a fraction of that, so that most of such a log is of rows that have left memory, and yet a recovery would read it,
/// a few seconds for each gigabyte. Tests have less.
const LOG_SHARE: f64 = if cfg!(debug_assertions) { 0.0005 } else { 2.0 };
/// Replaced objects that are deleted at once while readers are kept out.
const DELETED_AT_ONCE: usize = 16;
/// Of the memory budget: decoded footers, indexes and metrics.
const CACHE_SHARE: f64 = 0.15;
/// Sensor objects of a table beyond which they are written anew, as one unless that would be too large.
const SENSOR_OBJECTS_MAX: usize = 16;
/// Bytes of tags of an object of sensors, values that they share once and before they are packed; tests have less.
const SENSORS_BYTES_MAX: usize = if cfg!(debug_assertions) { 1 << 20 } else { 256 << 20 };
/// Versions of the manifest that are kept.
const MANIFEST_VERSIONS: u64 = 256;

impl LogState for State {
    type Edit = Edit;

    fn apply(&mut self, edit: &Edit) {
        Self::apply(self, edit);
    }

    fn begun_by(writer: Writer) -> Edit {
        Edit::Begun(writer)
    }

    fn writers(&self) -> &Writers {
        &self.writers
    }
}

/// An open database.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) io: Arc<dyn ObjectIo>,
    pub(crate) options: DbOptions,
    pub(crate) commits: CommitQueue,
    pub(crate) wal: Mutex<Option<Wal>>,
    /// What may write, until the database closes.
    pub(crate) steps: Steps,
    /// Held by whoever lets readings fall, tends the database or lets a table fall: one at a time.
    maintenance: Mutex<()>,
    /// Held by whoever lays run files together, a group at a time, and by whoever wants nobody to.
    compaction: Mutex<()>,
    /// Held by whoever takes rows out of memory, or puts objects where no such rows may come between.
    flushing: Mutex<()>,
    /// Held from the look at what the manifest lacks until it has it.
    installing: Mutex<()>,
    manifest: Mutex<ManifestLog<State>>,
    reached: Mutex<Reached>,
    tables: RwLock<Tables>,
    caches: Arc<SegmentCaches>,
    next_object: AtomicU64,
    kv_bytes: KvBytes,
    /// Of all runs that somebody holds: those in memory, and those that have left it under the eyes of a reader.
    run_bytes: KvBytes,
    /// Whether rows in memory may be missing in the log.
    pub(crate) has_unlogged: AtomicBool,
    /// What the background threads wait for.
    pub(crate) alarm: (Mutex<Alarm>, Condvar),
    drained: Condvar,
    drained_lock: Mutex<()>,
    pace: Pace,
    /// Why rows cannot leave memory, when a full disk keeps them there.
    blocked: Mutex<Option<Error>>,
    pub(crate) graveyard: Graveyard,
    pub(crate) worked: Worked,
    /// Tells whether other processes read the database, if it is in a directory.
    pub(crate) readers: OnceLock<Readers>,
}

/// Why a background thread shall wake up.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// Rows in memory have outgrown their share.
    pub(crate) is_full: bool,
    /// There are more run files.
    pub(crate) is_flushed: bool,
    /// The upkeep has been round.
    pub(crate) is_tended: bool,
    pub(crate) is_closing: bool,
}

#[derive(Debug, Default)]
struct Tables {
    by_name: HashMap<String, Arc<Table>>,
    by_id: HashMap<TableId, Arc<Table>>,
}

impl Tables {
    fn add(&mut self, table: Arc<Table>) {
        self.by_name.insert(table.schema().name.clone(), Arc::clone(&table));
        self.by_id.insert(table.id, table);
    }
}

impl Engine {
    pub(crate) fn new(
        io: Arc<dyn ObjectIo>,
        options: DbOptions,
        (manifest, reached): (ManifestLog<State>, Reached),
        commits: CommitQueue,
    ) -> Self {
        let state = manifest.state();
        let caches = SegmentCaches::new((options.memory_bytes as f64 * CACHE_SHARE) as usize);
        Self {
            io,
            commits,
            wal: Mutex::new(None),
            steps: Steps::default(),
            maintenance: Mutex::new(()),
            compaction: Mutex::new(()),
            flushing: Mutex::new(()),
            installing: Mutex::new(()),
            tables: RwLock::new(Tables::default()),
            caches: Arc::new(caches),
            next_object: AtomicU64::new(state.next_object),
            kv_bytes: KvBytes::default(),
            run_bytes: KvBytes::default(),
            has_unlogged: AtomicBool::new(false),
            alarm: Default::default(),
            drained: Condvar::new(),
            drained_lock: Mutex::new(()),
            pace: Pace::default(),
            blocked: Mutex::new(None),
            graveyard: Graveyard::default(),
            worked: Worked::default(),
            readers: OnceLock::new(),
            manifest: Mutex::new(manifest),
            reached: Mutex::new(reached),
            options,
        }
    }

    pub(crate) fn threads(&self) -> usize {
        self.options.threads.max(1)
    }

    pub(crate) fn now_ns(&self) -> i64 {
        self.options.clock.now_ns()
    }

    pub(crate) fn manifest(&self) -> MutexGuard<'_, ManifestLog<State>> {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody else tends the database.
    ///
    /// # Errors
    /// `Closed` when the database closes meanwhile, `Unsupported` in what is called when a write is done.
    pub(crate) fn maintain(&self) -> Result<MutexGuard<'_, ()>> {
        self.take_turn(&self.maintenance)
    }

    /// As [`Engine::maintain`], if nobody does.
    pub(crate) fn try_to_maintain(&self) -> Option<MutexGuard<'_, ()>> {
        match self.maintenance.try_lock() {
            Ok(maintenance) => Some(maintenance),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Waits until nobody lays run files together; whoever tends the database may do so first.
    ///
    /// # Errors
    /// As [`Engine::maintain`].
    pub(crate) fn compact(&self) -> Result<MutexGuard<'_, ()>> {
        self.take_turn(&self.compaction)
    }

    /// Waits until nobody else takes rows out of memory; whoever holds one of the other two may do so. It goes on while the database
    /// closes.
    ///
    /// # Errors
    /// `Unsupported` in what is called when a write is done.
    pub(crate) fn begin_flush(&self) -> Result<MutexGuard<'_, ()>> {
        self.commits.check_may_wait()?;
        Ok(self.flushing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take_turn<'a>(&self, turns: &'a Mutex<()>) -> Result<MutexGuard<'a, ()>> {
        self.commits.check_may_wait()?;
        let turn = turns.lock().unwrap_or_else(PoisonError::into_inner);
        self.steps.check().map(|()| turn)
    }

    /// Waits until nobody else changes which objects the manifest names, which takes a moment.
    pub(crate) fn install_alone(&self) -> MutexGuard<'_, ()> {
        self.installing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits edits of the manifest. When that fails nobody knows whether they are in it, and a
    /// write could be lost with, say, the table that it is for: so no write is taken any more. On a full disk they
    /// are not in it, and all goes on.
    pub(crate) fn commit(&self, manifest: &mut ManifestLog<State>, edits: &[Edit]) -> Result<()> {
        let replaces_objects = edits.iter().any(Edit::replaces_objects);
        let committed = match replaces_objects {
            true => manifest.commit(&[&[Edit::At(self.now_ns())], edits].concat()),
            false => manifest.commit(edits),
        };
        committed.inspect_err(|error| self.commits.fail(error))?;
        if edits.iter().any(Edit::names_new_object) {
            self.mark_reached(Mark::of(manifest));
        }
        for edit in edits {
            if let Edit::AddSensors(table, part) | Edit::ReplaceSensors(table, part) = edit
                && let Some(table) = self.table_by_id(*table)
            {
                table.known.keep(part.first + part.count);
            }
        }
        if replaces_objects {
            let state = manifest.state();
            // The others were buried before, and may be gone.
            let new = state.replaced.iter().filter(|(_, since_ns)| **since_ns == state.at_ns);
            self.graveyard.bury(new);
        }
        Ok(())
    }

    /// Says outside of the manifest how far it has come. When that cannot be said, what a crash leaves behind is kept
    /// aside rather than deleted, which hurts nobody.
    pub(crate) fn mark_reached(&self, mark: Mark) {
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        // The commit is made: a panic must not keep it from being shown.
        if let Err(error) = caught(|| reached.put(&*self.io, mark)) {
            tracing::warn!(%error, version = mark.version, "how far the manifest has come could not be noted");
        }
    }

    /// What is known of how far the manifest had come.
    pub(crate) fn reached(&self) -> Reached {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    // ---- tables ----

    pub(crate) fn table(&self, name: &str) -> Result<Arc<Table>> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        tables.by_name.get(name).cloned().ok_or_else(|| {
            let mut names: Vec<&str> = tables.by_name.keys().map(String::as_str).collect();
            names.sort_unstable();
            Error::not_found(format!("there is no table {name:?}; there are: {}", names.join(", ")))
        })
    }

    pub(crate) fn table_by_id(&self, id: TableId) -> Option<Arc<Table>> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).by_id.get(&id).cloned()
    }

    /// All tables, by name.
    pub(crate) fn tables(&self) -> Vec<Arc<Table>> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<(String, Arc<Table>)> =
            tables.by_name.iter().map(|(name, table)| (name.clone(), Arc::clone(table))).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all.into_iter().map(|(_, table)| table).collect()
    }

    pub(crate) fn show_table(&self, table: Arc<Table>) {
        table.live().count_into(&self.kv_bytes, &self.run_bytes);
        self.tables.write().unwrap_or_else(PoisonError::into_inner).add(table);
    }

    /// Shows these tables in place of all that there were, which come back.
    pub(crate) fn show_tables(&self, tables: Vec<Arc<Table>>) -> Vec<Arc<Table>> {
        let mut shown = Tables::default();
        for table in tables {
            table.live().count_into(&self.kv_bytes, &self.run_bytes);
            shown.add(table);
        }
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *tables, shown);
        drop(tables);
        self.rows_came(self.kv_bytes());
        before.by_id.into_values().collect()
    }

    pub(crate) fn hide_table(&self, table: &Table) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        tables.by_name.remove(&table.schema().name);
        tables.by_id.remove(&table.id);
        drop(tables);
        let objects = table.live().drop_all();
        self.graveyard.watch(&objects);
        self.rows_left();
    }

    // ---- objects ----

    pub(crate) fn next_object_id(&self) -> ObjectId {
        ObjectId(self.next_object.fetch_add(1, Ordering::Relaxed))
    }

    /// Leaves out the numbers of objects up to this one.
    pub(crate) fn skip_objects(&self, last: ObjectId) {
        self.next_object.fetch_max(last.0.saturating_add(1), Ordering::Relaxed);
    }

    /// Forgets objects that nobody reads any more, and closes their files.
    pub(crate) fn let_go(&self, objects: &HashMap<ObjectId, String>) {
        if !objects.is_empty() {
            self.caches.forget(|id| objects.contains_key(&id));
            objects.values().for_each(|name| self.io.let_go(name));
        }
    }

    /// What a step that begins has written: nothing as yet.
    pub(crate) fn written(&self) -> Written {
        Written::new(&self.io)
    }

    pub(crate) fn create_object(
        &self,
        id: ObjectId,
        model: Model,
    ) -> Result<Box<dyn ObjectWriter>> {
        self.io.writer(&names::object(id, model.name()))
    }

    pub(crate) fn live_object(&self, entry: &ObjectEntry) -> Arc<LiveObject> {
        let (entry, name) = (entry.clone(), entry.name());
        let (io, caches) = (Arc::clone(&self.io), Arc::clone(&self.caches));
        let segment = Segment::new(io, caches, entry.id, name.into(), entry.bytes);
        Arc::new(LiveObject { entry, segment, since_ns: self.now_ns() })
    }

    /// Adds edits that make new sensors and deletes durable outside of the log.
    fn add_what_the_log_holds(&self, edits: &mut Vec<Edit>, written: &Written) -> Result<()> {
        for table in self.tables().iter().filter(|table| table.damage.is_none()) {
            let deletes = Arc::clone(&table.live().deletes);
            let stored: Vec<SensorObject> = match self.manifest().state().tables.get(&table.id) {
                Some(state) => {
                    for delete in deletes.iter().filter(|delete| !state.has_delete(delete.seq)) {
                        edits.push(Edit::AddTombstone(table.id, to_stored(delete)?));
                    }
                    state.sensors.clone()
                }
                None => continue,
            };
            self.add_sensors(table, &stored, edits, written)?;
        }
        Ok(())
    }

    /// Writes the sensors that no object has yet, in parts of which each is read and written as a whole.
    fn add_sensors(
        &self,
        table: &Table,
        stored: &[SensorObject],
        edits: &mut Vec<Edit>,
        written: &Written,
    ) -> Result<()> {
        let known = stored.last().map_or(0, |part| part.first + part.count);
        let (count, is_crowded) = {
            let sensors = table.sensors.read().unwrap_or_else(PoisonError::into_inner);
            let count = sensors.count();
            (count, count > known && is_crowded(&sensors, stored.len()))
        };
        let mut first = if is_crowded { 0 } else { known };
        while first < count {
            let sensors = table.sensors.read().unwrap_or_else(PoisonError::into_inner);
            let part = sensors.first_within(first..count, SENSORS_BYTES_MAX);
            let frame = sensors.encode(part.clone())?;
            drop(sensors);
            let header = encode_header(Content::Sensors, table.id);
            let id = self.next_object_id();
            let name = names::object(id, names::SENSORS);
            written.note(name.clone());
            self.io.put_new(&name, &[&header, &frame])?;
            let bytes = (header.len() + frame.len()) as u64;
            let stored = SensorObject { id, first, count: part.end - first, bytes };
            edits.push(match is_crowded && first == 0 {
                true => Edit::ReplaceSensors(table.id, stored),
                false => Edit::AddSensors(table.id, stored),
            });
            first = part.end;
        }
        Ok(())
    }

    /// Writes to objects what sensors no object and no record of the log has, when those of a table below `upto`
    /// are too much for one record.
    pub(crate) fn unburden_log(&self, table: &Table, upto: u32) -> Result<()> {
        let is_too_much = || {
            let unkept = table.known.kept()..upto;
            let sensors = table.sensors.read().unwrap_or_else(PoisonError::into_inner);
            let max = self.logged_texts_max();
            !unkept.is_empty() && sensors.first_within(unkept.clone(), max).end < unkept.end
        };
        if !is_too_much() {
            return Ok(());
        }
        self.commits.check_may_wait()?;
        let _alone = self.install_alone();
        if !is_too_much() {
            return Ok(());
        }
        let (mut edits, written) = (Vec::new(), self.written());
        self.add_what_the_log_holds(&mut edits, &written)?;
        self.commit_written(written, &edits)
    }

    /// Cuts the log behind what is durable elsewhere.
    pub(crate) fn cut_log(&self) -> Result<()> {
        if self.tables().iter().any(|table| table.damage.is_some()) {
            // The log may hold readings of the table that could not be brought back.
            return Ok(());
        }
        let _alone = self.install_alone();
        // Read first: whatever is applied later has a later number.
        let applied = self.commits.applied();
        let oldest = self
            .tables()
            .iter()
            .filter_map(|table| table.live().all_runs().map(|run| run.first_seq).min())
            .min();
        let from = oldest.map_or(applied, |oldest| oldest.min(applied));
        if from <= self.manifest().state().wal_from {
            return Ok(());
        }
        let mut edits = Vec::new();
        let written = self.written();
        self.add_what_the_log_holds(&mut edits, &written)?;
        edits.push(Edit::WalFrom(from));
        self.commit_written(written, &edits)?;
        let mut wal = self.wal.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wal) = wal.as_mut() {
            wal.cut(from).inspect_err(|error| self.commits.fail(error))?;
        }
        Ok(())
    }

    /// Whether the log has more bytes than a share of the memory budget.
    pub(crate) fn log_has(&self, share: f64) -> bool {
        let bytes_max = self.budget_share(share) as u64;
        let wal = self.wal.lock().unwrap_or_else(PoisonError::into_inner);
        wal.as_ref().is_some_and(|wal| wal.place_to_cut(bytes_max).is_some())
    }

    /// Where the log should be cut, if it is too long.
    pub(crate) fn place_to_cut(&self) -> Option<Seq> {
        let wal = self.wal.lock().unwrap_or_else(PoisonError::into_inner);
        wal.as_ref()?.place_to_cut(self.budget_share(LOG_SHARE) as u64)
    }

    /// Forgets deletes that hide nothing any more.
    pub(crate) fn retire_tombstones(&self, table: &Table) -> Result<()> {
        // A load that has its number, but is not to be seen yet, may be older than a delete that hides nothing else.
        let _flushing = self.begin_flush()?;
        let _alone = self.install_alone();
        // A delete in the log must not be forgotten before the log is cut behind it.
        let from = self.manifest().state().wal_from;
        let spent: BTreeSet<Seq> = {
            let live = table.live();
            let is_spent = |delete: &&LiveTombstone| {
                delete.seq < from
                    && live.all_runs().all(|run| run.last_seq > delete.seq)
                    && !live.objects.iter().any(|object| delete.may_hide_in(&object.entry))
            };
            live.deletes.iter().filter(is_spent).map(|delete| delete.seq).collect()
        };
        if spent.is_empty() {
            return Ok(());
        }
        let edits: Vec<Edit> =
            spent.iter().map(|seq| Edit::RemoveTombstone(table.id, *seq)).collect();
        self.commit(&mut self.manifest(), &edits)?;
        let mut live = table.live();
        Arc::make_mut(&mut live.deletes).retain(|delete| !spent.contains(&delete.seq));
        Ok(())
    }

    /// Deletes objects that were replaced and that nobody reads any more, and versions of the
    /// manifest that nobody needs.
    pub(crate) fn sweep(&self) -> Result<()> {
        let deleted = self.delete_replaced();
        let forgotten = self.manifest().gc(MANIFEST_VERSIONS);
        deleted.and(forgotten.map(drop))
    }

    /// Deletes objects that were replaced and that nobody reads any more.
    pub(crate) fn delete_replaced(&self) -> Result<()> {
        let mut outcome = Ok(());
        let mut last = String::new();
        loop {
            // Nothing that was replaced a moment ago and is not known to be in use.
            let alone = self.install_alone();
            let kept_out = self.readers.get().and_then(Readers::keep_out);
            let elsewhere = if kept_out.is_some() { Elsewhere::Nobody } else { Elsewhere::Anybody };
            let mut due = self.graveyard.due(self.now_ns(), elsewhere, &last);
            drop(alone);
            // Readers do not wait for more.
            due.truncate(DELETED_AT_ONCE);
            for name in &due {
                if let Some(id) = names::parse_object(name) {
                    self.caches.forget(|other| other == id);
                }
                let deleted = self.io.delete(name).map(|()| self.graveyard.forget(name));
                // One that cannot go keeps no other.
                outcome = outcome.and(deleted);
            }
            match due.pop() {
                Some(name) => last = name,
                None => return outcome,
            }
        }
    }
}

/// Whether so many objects have the sensors that far fewer would do.
fn is_crowded(sensors: &SensorDictionary, objects: usize) -> bool {
    if objects < SENSOR_OBJECTS_MAX {
        return false;
    }
    let (mut needed, mut first) = (0, 0);
    while first < sensors.count() {
        first = sensors.first_within(first..sensors.count(), SENSORS_BYTES_MAX).end;
        needed += 1;
    }
    objects >= 2 * needed
}

/// A delete as it is stored.
pub(crate) fn to_stored(tombstone: &LiveTombstone) -> Result<Tombstone> {
    let sensors = match &tombstone.sensors {
        None => None,
        Some(sensors) => {
            let mut bytes = Vec::with_capacity(sensors.serialized_size());
            sensors.serialize_into(&mut bytes).map_err(|error| Error::io("a bitmap", &error))?;
            Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
        }
    };
    Ok(Tombstone { seq: tombstone.seq, time: tombstone.time, sensors })
}

/// A delete as readers apply it.
pub(crate) fn to_live(tombstone: &Tombstone) -> Result<LiveTombstone> {
    let damaged = || Error::corrupt("the sensors of a delete are damaged");
    let sensors = match &tombstone.sensors {
        None => None,
        Some(hex) => {
            let bytes = (0..hex.len() / 2)
                .map(|i| hex.get(2 * i..2 * i + 2).and_then(|d| u8::from_str_radix(d, 16).ok()))
                .collect::<Option<Vec<u8>>>()
                .ok_or_else(damaged)?;
            let bitmap = RoaringBitmap::deserialize_from(&bytes[..]).map_err(|_| damaged())?;
            Some(Arc::new(bitmap))
        }
    };
    Ok(LiveTombstone { seq: tombstone.seq, time: tombstone.time, sensors })
}
