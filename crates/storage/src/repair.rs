//! A way out for a database that does not open: what can be read of a damaged log is kept, and what is lost is said.
//!
//! 1. *Look*: read the log past all damage ([`salvage`]), and each record as recovery would: what of it is kept the kind of
//!    its table says ([`series`], [`records`]). Objects that cannot be opened are looked for, too.
//! 2. *Mend*: give all files that will be replaced a second name below `damaged/`; write a new log of what is
//!    kept; take what is lost out of the manifest; put the new log in the place of the old one; remove the old names.
//!
//! A crash between any two steps leaves a database that is as damaged as before, or mended. The new log takes
//! effect with its name: from then on older files are not read.

mod records;
mod series;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tidefall_ground::failure::Failure;
use tidefall_ground::manifest::log::ManifestLog;
use tidefall_ground::manifest::reached::Reached;
use tidefall_ground::manifest::{Edit, State, TableState};
use tidefall_ground::options::DbOptions;
use tidefall_ground::wal::{self, Found, Gap, NewLog, Record, Wal, salvage, split_table};
use tidefall_store::{DirLock, Disk, GuardedDisk, LocalDisk, LocalIo, ObjectIo, keep_aside, names};
use tidefall_types::{Error, ErrorKind, ObjectId, Result, Seq, TableId};

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
    tables: HashMap<TableId, Mended>,
    /// The last record that was seen.
    last_seq: Option<Seq>,
    /// Losses behind it.
    open_gaps: usize,
}

/// A table of any kind of which the log is read, which is not damaged itself.
#[derive(Debug)]
enum Mended {
    Series(series::Mended),
    Records(records::Mended),
}

impl Mended {
    /// A table as the manifest has it, if it does.
    fn of(table: Table, state: &State) -> Option<Self> {
        match table {
            Table::Series(table) => {
                let (_, stored) = state.series(table.id)?;
                Some(Self::Series(series::Mended::new(table, stored)))
            }
            Table::Records(table) => Some(Self::Records(records::Mended(table))),
        }
    }

    /// Finds out what recovery would take of a record of the table, and writes that to another log.
    ///
    /// # Errors
    /// `Corrupt` when nothing of it is left, those of the disk.
    fn keep(
        &mut self,
        stored: Option<&TableState>,
        record: (Seq, u8, &[u8]),
        new: Option<&mut Wal>,
        kept: &mut Kept,
    ) -> Result<()> {
        match self {
            Self::Series(table) => table.keep(stored, record, new, kept),
            Self::Records(table) => table.keep(stored, record, new, kept),
        }
    }
}

/// What is kept of a record.
#[derive(Debug, Default)]
struct Kept {
    /// One if some of it is.
    records: u64,
    rows: u64,
    /// What is lost of it beside.
    lost: Vec<String>,
}

/// An object that cannot be opened.
#[derive(Debug)]
struct LostObject {
    table: TableId,
    id: ObjectId,
    name: String,
    /// What was in it, and why it cannot be read.
    what: String,
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
        let whole = engine.tables().into_iter().filter(|table| table.damage().is_none());
        let tables = whole.filter_map(|table| Some((table.id(), Mended::of(table, &state)?)));
        let tables = tables.collect();
        let report = RepairReport::default();
        Ok(Self { engine, state, report, tables, last_seq: None, open_gaps: 0 })
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
        let (id, body) = split_table(&record.payload)?;
        check_table(&self.state, id)?;
        // Of a table that was dropped later.
        let Some(table) = self.engine.table_by_id(id) else { return Ok(()) };
        let new = new.map(NewLog::wal);
        let Some(mended) = self.tables.get_mut(&table.id()) else {
            // The log keeps what it holds of a table that cannot be read.
            self.report.records += 1;
            return new
                .map_or(Ok(()), |new| new.append(record.seq, record.kind, &[&record.payload]));
        };
        let mut kept = Kept::default();
        let stored = self.state.tables.get(&id);
        let outcome = mended.keep(stored, (record.seq, record.kind, body), new, &mut kept);
        self.report.records += kept.records;
        self.report.rows += kept.rows;
        kept.lost.into_iter().for_each(|what| self.lose(place.to_owned(), what));
        outcome
    }

    /// Looks for objects that cannot be opened. Damage to a part of one hurts nothing else, and is found by
    /// [`Db::verify`].
    fn objects(&mut self) -> Result<Vec<LostObject>> {
        let mut lost = Vec::new();
        for table in self.engine.tables() {
            if let Some(damage) = table.damage() {
                let advice = "restore it from a copy, or drop the table";
                self.report.left.push(Error::corrupt(format!("{damage}; {advice}")));
                continue;
            }
            lost.extend(match &table {
                Table::Series(table) => series::lost_objects(table)?,
                Table::Records(table) => records::lost_objects(table)?,
            });
        }
        for object in &lost {
            self.lose(object.name.clone(), object.what.clone());
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
    let gone = lost.iter().map(|lost| Edit::RemoveObject(lost.table, lost.id));
    let mut edits: Vec<Edit> = gone.collect();
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
