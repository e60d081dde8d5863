//! A way out for a database that does not open: what can be read of a damaged log is kept, and what is lost is said.
//!
//! 1. *Look*: read the log past all damage ([`salvage`]), and each record as recovery would. Rows are kept when
//!    their sensors are known; sensors get other numbers when those before them are lost. Objects that cannot be
//!    opened are looked for, too.
//! 2. *Mend*: give all files that will be replaced a second name below `damaged/`; write a new log of what is
//!    kept; take what is lost out of the manifest; put the new log in the place of the old one; remove the old names.
//!
//! A crash between any two steps leaves a database that is as damaged as before, or mended. The new log takes
//! effect with its name: from then on older files are not read.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use tidefall_ground::failure::Failure;
use tidefall_ground::manifest::log::ManifestLog;
use tidefall_ground::manifest::reached::Reached;
use tidefall_ground::manifest::{Edit, State};
use tidefall_ground::options::DbOptions;
use tidefall_ground::wal::{self, Found, Gap, NewLog, Record, salvage};
use tidefall_series::Table as SeriesTable;
use tidefall_series::ingest::record::{
    LogRecord, RecordKind, decode_delete, decode_rows, encode_delete, split_sensors, split_table,
};
use tidefall_series::read::LiveTombstone;
use tidefall_series::replay::pick_rows;
use tidefall_store::{DirLock, Disk, GuardedDisk, LocalDisk, LocalIo, ObjectIo, keep_aside, names};
use tidefall_types::{Error, ErrorKind, Result, Seq, TableId, TimeRange};

use crate::Db;
use crate::begin::check_together;
use crate::commit::CommitQueue;
use crate::engine::Engine;
use crate::recovery::{check_new, check_table, load_tables, seq_behind, strays};
use crate::table::Table;

/// What to do about damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// Only look for it; nothing is changed.
    Look,
    /// Give up what is lost, so that the database opens with the rest. The damaged files are kept.
    Mend,
}

/// Something that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The file and its bytes, or the record.
    pub place: String,
    /// What was there, as far as that is known, and why it cannot be read.
    pub what: String,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// What a repair has found and done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// What is lost, in the order of the log, then objects. Empty when nothing needs a repair.
    pub losses: Vec<Loss>,
    /// What is damaged and stays as it is, as nothing would be gained.
    pub left: Vec<Error>,
    /// The records of the log that are kept.
    pub records: u64,
    /// The rows in them.
    pub rows: u64,
    /// Where the damaged files are kept, relative to the database, when it was mended.
    pub kept_in: Option<String>,
}

impl Db {
    /// Finds out, of a database that nobody has open, what is damaged so that it does not open or that all of an
    /// object is lost, and mends that.
    ///
    /// # Errors
    /// `NotFound` without a database, `Locked` when a process writes it, `Corrupt` when its manifest is damaged,
    /// which cannot be mended, `Conflict` when its log lies elsewhere; `Io` when the disk fails, `Full` when it is full. Another try goes on from
    /// there.
    pub fn repair(dir: impl AsRef<Path>, options: DbOptions, how: Repair) -> Result<RepairReport> {
        let dir = dir.as_ref();
        if !Self::exists(dir) {
            return Err(Error::not_found(format!("there is no database in {}", dir.display())));
        }
        let lock = DirLock::acquire(dir)?;
        Self::repair_on(Arc::new(LocalDisk::locked(dir, &lock)), options, how)
    }

    /// As [`Db::repair`], on a disk that nobody else uses.
    ///
    /// # Errors
    /// As [`Db::repair`].
    pub fn repair_on(disk: Arc<dyn Disk>, options: DbOptions, how: Repair) -> Result<RepairReport> {
        options.check()?;
        let disk: Arc<dyn Disk> = Arc::new(GuardedDisk::new(disk));
        let mut look = Look::new(&disk, options.clone(), Repair::Look)?;
        let strays = look.manifest()?;
        let before = look.report.losses.len();
        let files = look.log(&*disk, None)?;
        let is_log_whole = look.report.losses.len() == before;
        let lost = look.objects()?;
        if how == Repair::Look || look.report.losses.is_empty() {
            return Ok(look.report);
        }
        let files = (!is_log_whole).then_some(&files[..]);
        look.report.kept_in = Some(mend(&disk, options, files, (&lost, strays))?);
        Ok(look.report)
    }
}

/// A database that is read to find out what is damaged.
struct Look {
    engine: Engine,
    state: Arc<State>,
    report: RepairReport,
    sensors: HashMap<TableId, Sensors>,
    /// The last record that was seen.
    last_seq: Option<Seq>,
    /// Losses behind it.
    open_gaps: usize,
}

/// The sensors of a table: by the numbers that they have in the damaged log, and those that they get.
#[derive(Debug, Default)]
struct Sensors {
    /// Those below are in objects, and keep their numbers.
    stored: u32,
    renamed: HashMap<u32, u32>,
    /// Those below, by their new numbers, are in objects or in the new log.
    known: u32,
}

impl Sensors {
    fn renamed(&self, sensor: u32) -> Option<u32> {
        if sensor < self.stored { Some(sensor) } else { self.renamed.get(&sensor).copied() }
    }
}

/// An object that cannot be opened.
struct LostObject {
    name: String,
    edit: Edit,
}

impl Look {
    fn new(disk: &Arc<dyn Disk>, options: DbOptions, how: Repair) -> Result<Self> {
        let io: Arc<dyn ObjectIo> = Arc::new(match how {
            Repair::Look => LocalIo::open_read_only(Arc::clone(disk)),
            Repair::Mend => {
                let dirs = [names::MANIFEST_DIR, names::OBJECTS_DIR, names::REACHED_DIR];
                LocalIo::open(Arc::clone(disk), &dirs)?
            }
        });
        let reached = Reached::read(&*io)?;
        let manifest: ManifestLog<State> = ManifestLog::open(Arc::clone(&io)).map_err(|error| {
            error.context(
                "without its manifest a database cannot be repaired, and nothing was changed; restore this from a \
                 copy",
            )
        })?;
        if manifest.version() == 0 {
            check_new(&*io, disk)?;
        }
        let state = Arc::clone(manifest.state());
        check_together(disk, &state, &wal::ids(&**disk)?)?;
        let commits = CommitQueue::new(seq_behind(&state), Failure::default(), 0);
        let engine = Engine::new(io, options, (manifest, reached), commits);
        engine.show_tables(load_tables(&engine, &state)?);
        let sensors = state.tables.iter().map(|(id, table)| {
            let stored = table.sensor_count();
            (*id, Sensors { stored, renamed: HashMap::new(), known: stored })
        });
        let sensors = sensors.collect();
        let report = RepairReport::default();
        Ok(Self { engine, state, report, sensors, last_seq: None, open_gaps: 0 })
    }

    /// Finds out whether the manifest has lost its newest files. Returns what is to be kept aside then: the objects
    /// that it does not name.
    fn manifest(&mut self) -> Result<Vec<String>> {
        let version = self.engine.ground.manifest().version();
        let Some(loss) = self.engine.ground.reached().loss(version) else { return Ok(Vec::new()) };
        self.engine.ground.obsolete.add(&self.state.replaced);
        let found = self.engine.ground.io.list(names::OBJECTS_DIR)?;
        let strays = strays(&self.engine, &self.state, found);
        let (count, bytes) = (strays.len(), strays.iter().map(|(_, bytes)| bytes).sum::<u64>());
        self.lose(
            names::MANIFEST_DIR.to_owned(),
            format!("{loss}; nothing tells what {count} objects of {bytes} bytes hold"),
        );
        Ok(strays.into_iter().map(|(name, _)| name).collect())
    }

    /// Reads the log, and writes what is kept to another one. Returns the files that there are.
    fn log(&mut self, disk: &dyn Disk, mut new: Option<&mut NewLog>) -> Result<Vec<u64>> {
        let from = self.state.wal_from;
        let files = salvage(disk, from, |found| match found {
            Found::Gap(gap) => {
                self.gap(&gap);
                Ok(())
            }
            Found::Record(record) => self.record(record, new.as_deref_mut()),
        })?;
        let end = self.last_seq.map_or(from, |seq| Seq(seq.0 + 1));
        if end < self.state.log_end {
            self.lose(
                names::WAL_DIR.to_owned(),
                format!(
                    "the log ends before record {end}, and had reached {} when the database was closed: its \
                     last file is missing or cut short",
                    self.state.log_end
                ),
            );
        }
        Ok(files)
    }

    fn lose(&mut self, place: String, what: String) {
        self.report.losses.push(Loss { place, what });
    }

    fn gap(&mut self, gap: &Gap) {
        let place = match gap.bytes.is_empty() {
            true => gap.name.clone(),
            false => format!("{}, bytes {} to {}", gap.name, gap.bytes.start, gap.bytes.end),
        };
        let behind = match self.last_seq {
            Some(seq) => format!("behind record {seq}"),
            None => "before all records that can be read".to_owned(),
        };
        let bytes = gap.bytes.end - gap.bytes.start;
        self.lose(place, format!("{}; {bytes} bytes {behind}", gap.why));
        self.open_gaps += 1;
    }

    fn record(&mut self, record: Record, new: Option<&mut NewLog>) -> Result<()> {
        let losses = self.report.losses.len();
        for loss in &mut self.report.losses[losses - self.open_gaps..] {
            loss.what += &format!(" and before record {}", record.seq);
        }
        (self.open_gaps, self.last_seq) = (0, Some(record.seq));
        let place = format!("record {} of the log", record.seq);
        let bytes = record.payload.len();
        match self.keep(&place, &record, new) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.lose(place, format!("{error}; its {bytes} bytes"));
                Ok(())
            }
            kept => kept,
        }
    }

    /// Keeps of a record what recovery would take.
    fn keep(&mut self, place: &str, record: &Record, new: Option<&mut NewLog>) -> Result<()> {
        let kind = RecordKind::from_byte(record.kind)?;
        let (id, body) = split_table(&record.payload)?;
        check_table(&self.state, id)?;
        // Of a table that was dropped later.
        let Some(Table::Series(table)) = self.engine.table_by_id(id) else { return Ok(()) };
        let mut kept = match kind {
            _ if table.damage.is_some() => {
                // The log keeps what it holds of a table that cannot be read.
                self.report.records += 1;
                let new = new.map(NewLog::wal);
                return new
                    .map_or(Ok(()), |new| new.append(record.seq, record.kind, &[&record.payload]));
            }
            // They are written with the rows that need them.
            RecordKind::Sensors => return self.take_sensors(&table, body),
            RecordKind::Delete => self.delete(id, body)?,
            RecordKind::Rows if self.has_flushed(id, record.seq) => return Ok(()),
            RecordKind::Rows => self.rows(place, &table, body)?,
            RecordKind::RowsWithSensors => {
                let rows = self.sensors_before_rows(place, &table, body)?;
                if self.has_flushed(id, record.seq) {
                    return Ok(());
                }
                self.rows(place, &table, rows)?
            }
        };
        self.report.records += 1;
        let Some(new) = new else { return Ok(()) };
        let sensors = self.sensors.entry(id).or_default();
        sensors.known = kept.complete(&table, sensors.known)?;
        kept.append(new.wal(), record.seq, id)
    }

    /// Whether the rows of a record are in objects: the log need not have them.
    fn has_flushed(&self, table: TableId, seq: Seq) -> bool {
        self.state.tables.get(&table).is_some_and(|table| table.has_flushed(seq))
    }

    fn delete(&self, table: TableId, json: &[u8]) -> Result<LogRecord> {
        let mut delete = LiveTombstone::of_stored(&decode_delete(json)?)?;
        if let (Some(sensors), Some(names)) = (&mut delete.sensors, self.sensors.get(&table)) {
            // What is lost needs no delete.
            *sensors = Arc::new(sensors.iter().filter_map(|s| names.renamed(s)).collect());
        }
        Ok(LogRecord::Delete(encode_delete(&delete.to_stored()?)?))
    }

    fn take_sensors(&mut self, table: &SeriesTable, frame: &[u8]) -> Result<()> {
        let mut dictionary = table.sensors.write().unwrap_or_else(PoisonError::into_inner);
        let renamed = dictionary.adopt(frame)?;
        self.sensors.entry(table.id).or_default().renamed.extend(renamed);
        Ok(())
    }

    /// The frame of rows behind that of sensors, also when that is damaged.
    fn sensors_before_rows<'a>(
        &mut self,
        place: &str,
        table: &SeriesTable,
        body: &'a [u8],
    ) -> Result<&'a [u8]> {
        let (sensors, rows) = split_sensors(body)?;
        match self.take_sensors(table, sensors) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let name = &table.schema().name;
                self.lose(place.to_owned(), format!("new sensors of table {name}: {error}"));
            }
            taken => taken?,
        }
        Ok(rows)
    }

    /// The rows whose sensors are known.
    fn rows(&mut self, place: &str, table: &SeriesTable, frame: &[u8]) -> Result<LogRecord> {
        let schema = table.schema();
        let rows = decode_rows(&schema, frame)
            .map_err(|error| error.context(format_args!("rows of table {}", schema.name)))?;
        let names = self.sensors.entry(table.id).or_default();
        let renamed: Vec<Option<u32>> =
            rows.sensor.iter().map(|sensor| names.renamed(*sensor)).collect();
        let lost: Vec<i64> = renamed
            .iter()
            .zip(rows.time.iter())
            .filter_map(|(sensor, time)| sensor.is_none().then_some(*time))
            .collect();
        let mut kept = pick_rows(&rows, |row| renamed[row].is_some())?;
        kept.sensor = renamed.iter().flatten().copied().collect::<Vec<_>>().into();
        self.report.rows += kept.time.len() as u64;
        let (Some(first), Some(last)) = (lost.iter().min(), lost.iter().max()) else {
            return LogRecord::alone(&kept);
        };
        let what = format!(
            "{} of {} rows of table {}, of times in {}: they belong to sensors that nothing names",
            lost.len(),
            rows.time.len(),
            schema.name,
            TimeRange::new(*first, *last),
        );
        if lost.len() == rows.time.len() {
            return Err(Error::corrupt(what));
        }
        self.lose(place.to_owned(), what);
        LogRecord::alone(&kept)
    }

    /// Looks for objects that cannot be opened. Damage to a part of one hurts nothing else, and is found by
    /// [`Db::verify`].
    fn objects(&mut self) -> Result<Vec<LostObject>> {
        let mut lost = Vec::new();
        for Table::Series(table) in self.engine.tables() {
            if let Some(damage) = &table.damage {
                let advice = "restore it from a copy, or drop the table";
                self.report.left.push(Error::corrupt(format!("{damage}; {advice}")));
                continue;
            }
            let version = table.version();
            for object in version.objects.iter() {
                let opened = object.segment.check_size().and_then(|()| {
                    object.segment.table()?;
                    object.segment.index_block_count().map(drop)
                });
                match opened {
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        let entry = &object.entry;
                        let name = entry.name();
                        let what = format!(
                            "{} rows of table {}, of times in {}: {error}",
                            entry.rows,
                            table.schema().name,
                            entry.time
                        );
                        self.lose(name.clone(), what);
                        lost.push(LostObject {
                            name,
                            edit: Edit::RemoveObject(table.id, entry.id),
                        });
                    }
                    opened => opened?,
                }
            }
        }
        Ok(lost)
    }
}

/// Replaces a log of these files, if it is damaged, takes lost objects out of the manifest, and takes what is left of
/// it for all of it; what that does not name goes when the database is opened. Returns where the files are kept.
fn mend(
    disk: &Arc<dyn Disk>,
    options: DbOptions,
    files: Option<&[u64]>,
    (lost, strays): (&[LostObject], Vec<String>),
) -> Result<String> {
    let old: Vec<String> =
        files.unwrap_or_default().iter().map(|number| names::wal_file(*number)).collect();
    let objects = lost.iter().map(|lost| lost.name.clone()).chain(strays);
    let kept_in = keep_aside(&**disk, old.iter().cloned().chain(objects))?;
    let salt = options.clock.now_ns() as u64 ^ (u64::from(std::process::id()) << 32);
    let mut look = Look::new(disk, options, Repair::Mend)?;
    let mut edits: Vec<Edit> = lost.iter().map(|lost| lost.edit.clone()).collect();
    let mut new = None;
    if let Some(files) = files {
        let number = files.last().map_or(1, |last| last + 1);
        let log = new.insert(NewLog::begin(Arc::clone(disk), number, look.state.wal_from, salt)?);
        look.log(&**disk, Some(&mut *log))?;
        edits.push(Edit::LogEnd(log.wal().next_seq()));
    }
    look.engine.ground.commit(&mut look.engine.ground.manifest(), &edits)?;
    let mark = look.engine.ground.manifest().mark();
    if look.engine.ground.reached().loss(mark.version).is_some() {
        look.engine.ground.reached().put(&*look.engine.ground.io, mark)?;
        // What said that it had come further must not come back.
        disk.sync_dir(names::REACHED_DIR)?;
    }
    if let Some(new) = new {
        new.finish()?;
        for name in &old {
            disk.remove(name)?;
        }
        disk.sync_dir(names::WAL_DIR)?;
    }
    Ok(kept_in)
}

#[cfg(test)]
mod tests;
