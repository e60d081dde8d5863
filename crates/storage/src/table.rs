//! A table of any kind, and what the database asks of each.
//!
//! Whoever adds a kind adds it here, and then does what does not compile.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};

use tidefall_ground::Ground;
use tidefall_ground::manifest::{Edit, OfKind, State, TableState};
use tidefall_ground::obsolete::Watched;
use tidefall_ground::options::{CascadeReport, VerifyReport};
use tidefall_ground::report::TableReport;
use tidefall_ground::turns::TableLock;
use tidefall_ground::wal::Wal;
use tidefall_ground::written::Written;
use tidefall_records::snapshot::RecordsSnapshot;
use tidefall_records::upkeep::Asked;
use tidefall_series::cascade::{
    Effort, Look, Take, Target, backlog, compact, compact_once, drop_old,
};
use tidefall_series::change::apply;
use tidefall_series::ingest::record::LogRecord;
use tidefall_series::open::open;
use tidefall_series::read::{Objects, TableSnapshot};
use tidefall_series::replay::{replay, replayed};
use tidefall_series::report::report;
use tidefall_series::uncounted::Watch;
use tidefall_series::{Context, install, upkeep, verify};
use tidefall_types::{Error, ErrorKind, ObjectId, Result, Seq, TableId, TableKind, TableSchema};

/// A table of any kind, while the database is open.
#[derive(Debug, Clone)]
pub(crate) enum Table {
    Series(Arc<tidefall_series::Table>),
    Records(Arc<tidefall_records::Table>),
}

/// A table of any kind at one moment.
#[derive(Debug, Clone)]
pub enum Snapshot {
    /// One with a series of readings for each sensor.
    Series(TableSnapshot),
    /// One of records.
    Records(RecordsSnapshot),
}

impl Snapshot {
    /// The columns of the table.
    pub fn schema(&self) -> &TableSchema {
        match self {
            Self::Series(snapshot) => snapshot.schema(),
            Self::Records(snapshot) => snapshot.schema(),
        }
    }
}

/// What the tables of each kind have in common.
#[derive(Debug)]
pub(crate) struct Kinds {
    pub(crate) series: Context,
    pub(crate) records: tidefall_records::Context,
}

/// An object that a table shows, and whoever reads it.
pub(crate) type Shown = (ObjectId, String, Weak<Watched>);

impl Kinds {
    pub(crate) fn new(ground: &Arc<Ground>) -> Self {
        Self {
            series: Context::new(Arc::clone(ground)),
            records: tidefall_records::Context::new(Arc::clone(ground)),
        }
    }

    /// Lets go of what is kept of objects that are gone.
    pub(crate) fn forget(&self, is_gone: impl Fn(ObjectId) -> bool + Copy) {
        self.series.caches.forget(is_gone);
        self.records.caches.forget(is_gone);
    }
}

impl Table {
    /// An empty one.
    pub(crate) fn new(schema: TableSchema) -> Self {
        match schema.kind {
            TableKind::Series => Self::Series(Arc::new(tidefall_series::Table::new(schema))),
            TableKind::Records => Self::Records(Arc::new(tidefall_records::Table::new(schema))),
        }
    }

    /// One of what the manifest names, without what is only in the log. One that is damaged is there, but only to be dropped. Objects that
    /// an `earlier` one has open are shared with it.
    ///
    /// # Errors
    /// `Io` and `Full` from the disk.
    pub(crate) fn open(kinds: &Kinds, stored: &TableState, earlier: Option<&Self>) -> Result<Self> {
        let opened = match &stored.of_kind {
            OfKind::Series(series) => {
                let earlier = match earlier {
                    Some(Self::Series(table)) => table.version().objects.clone(),
                    _ => Objects::default(),
                };
                open(&kinds.series, (stored, series), &earlier)
                    .map(|table| Self::Series(Arc::new(table)))
            }
            OfKind::Records(records) => {
                let earlier = match earlier {
                    Some(Self::Records(table)) => Arc::clone(&table.version().segments),
                    _ => Arc::default(),
                };
                tidefall_records::open::open(&kinds.records, (stored, records), &earlier)
                    .map(|table| Self::Records(Arc::new(table)))
            }
        };
        match opened {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let name = &stored.schema.name;
                tracing::error!(table = name, %error, "a table cannot be read");
                let damage = error.context(format_args!("table {name}"));
                Ok(Self::damaged(stored.schema.clone(), damage))
            }
            opened => opened,
        }
    }

    /// One that cannot be read, and why.
    fn damaged(schema: TableSchema, damage: Error) -> Self {
        match schema.kind {
            TableKind::Series => {
                Self::Series(Arc::new(tidefall_series::Table::damaged(schema, damage)))
            }
            TableKind::Records => {
                Self::Records(Arc::new(tidefall_records::Table::damaged(schema, damage)))
            }
        }
    }

    /// Whether one can be opened of what the manifest names.
    pub(crate) fn is_whole(kinds: &Kinds, stored: &TableState) -> bool {
        match &stored.of_kind {
            OfKind::Series(series) => {
                open(&kinds.series, (stored, series), &Objects::default()).is_ok()
            }
            OfKind::Records(records) => {
                let none = Arc::default();
                tidefall_records::open::open(&kinds.records, (stored, records), &none).is_ok()
            }
        }
    }

    pub(crate) fn id(&self) -> TableId {
        match self {
            Self::Series(table) => table.id,
            Self::Records(table) => table.id,
        }
    }

    pub(crate) fn schema(&self) -> Arc<TableSchema> {
        match self {
            Self::Series(table) => table.schema(),
            Self::Records(table) => table.schema(),
        }
    }

    /// Why it cannot be read or written, if it cannot.
    pub(crate) fn damage(&self) -> Option<&Error> {
        match self {
            Self::Series(table) => table.damage.as_ref(),
            Self::Records(table) => table.damage.as_ref(),
        }
    }

    pub(crate) fn check_whole(&self) -> Result<()> {
        self.damage().cloned().map_or(Ok(()), Err)
    }

    /// The objects that it shows.
    pub(crate) fn shown(&self) -> Vec<Shown> {
        match self {
            Self::Series(table) => {
                let version = table.version();
                version
                    .objects
                    .iter()
                    .map(|object| {
                        (object.entry.id, object.segment.name().to_owned(), object.reader())
                    })
                    .collect()
            }
            Self::Records(table) => {
                let version = table.version();
                let shown = version
                    .segments
                    .iter()
                    .map(|live| (live.entry.id, live.segment.name().to_owned(), live.reader()));
                shown.collect()
            }
        }
    }

    // ---- the log ----

    /// Applies a record of the log, of a table of which `stored` is in objects: its kind and what is behind the table mean what the kind
    /// of the table says. Returns the number of rows.
    ///
    /// # Errors
    /// `Corrupt` when the record is damaged.
    pub(crate) fn replay(
        &self,
        stored: Option<&TableState>,
        (seq, kind, body): (Seq, u8, &[u8]),
    ) -> Result<u64> {
        match self {
            Self::Series(table) => replay(table, stored, (seq, kind, body)),
            Self::Records(table) => {
                tidefall_records::replay::replay(table, stored, (seq, kind, body))
            }
        }
    }

    /// Takes note that all records were applied.
    pub(crate) fn replayed(&self) {
        match self {
            Self::Series(table) => replayed(table),
            Self::Records(_) => {}
        }
    }

    /// Who moves what it has.
    pub(crate) fn lock(&self) -> &TableLock {
        match self {
            Self::Series(table) => &table.lock,
            Self::Records(table) => &table.lock,
        }
    }

    /// Whether it is no table any more.
    pub(crate) fn is_dropped(&self) -> bool {
        match self {
            Self::Series(table) => table.live().is_dropped,
            Self::Records(table) => table.live().is_dropped,
        }
    }

    /// The first record of the log that it needs.
    pub(crate) fn oldest_seq(&self) -> Option<Seq> {
        match self {
            Self::Series(table) => table.live().oldest_seq(),
            Self::Records(table) => table.live().oldest_seq(),
        }
    }

    /// Adds edits that make durable outside of the log what only that has beside rows.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn add_what_the_log_holds(
        &self,
        ground: &Ground,
        edits: &mut Vec<Edit>,
        written: &Written,
    ) -> Result<()> {
        match self {
            Self::Series(table) => table.add_what_the_log_holds(ground, edits, written),
            Self::Records(table) => {
                table.add_what_the_log_holds(ground, edits);
                Ok(())
            }
        }
    }

    /// Takes note of what the manifest has come to say of it.
    pub(crate) fn note_stored(&self, state: &State) {
        match self {
            Self::Series(table) => table.note_stored(state),
            Self::Records(_) => {}
        }
    }

    // ---- memory, and what moves ----

    /// Counts what it takes as a part of the memory of all.
    pub(crate) fn count(&self, ground: &Ground) {
        match self {
            Self::Series(table) => {
                table.live().count_into(&ground.memory.rows, &ground.memory.held);
            }
            Self::Records(table) => {
                table.live().count_into(&ground.memory.rows, &ground.memory.held);
            }
        }
    }

    /// The bytes of rows in memory that stay while others leave.
    pub(crate) fn late_bytes(&self, kinds: &Kinds) -> usize {
        match self {
            Self::Series(table) => upkeep::late_bytes(&kinds.series, table),
            // All of them leave.
            Self::Records(_) => 0,
        }
    }

    /// Writes rows in memory to objects. Whoever calls holds the turn of flushes.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn flush(&self, kinds: &Kinds, take: Take) -> Result<CascadeReport> {
        match self {
            Self::Series(table) => upkeep::flush(&kinds.series, table, take),
            // None of them is late.
            Self::Records(_) if take == Take::Late => Ok(CascadeReport::default()),
            Self::Records(table) => tidefall_records::flush::flush(&kinds.records, table),
        }
    }

    /// Moves what is due to the next model. Whoever calls holds the turn of maintenance and the lock of the table.
    ///
    /// # Errors
    /// The first one of all steps.
    pub(crate) fn cascade(
        &self,
        kinds: &Kinds,
        target: Target,
        effort: Effort,
        look: Look,
    ) -> Result<CascadeReport> {
        match self {
            Self::Series(table) => upkeep::cascade(&kinds.series, table, target, effort, look),
            Self::Records(table) => {
                let asked = match target {
                    Target::ByAge => Asked::ByTheClock,
                    _ => Asked::BySomebody,
                };
                tidefall_records::upkeep::tend(&kinds.records, table, asked)
            }
        }
    }

    /// Tries again what could not be read: somebody asks for it.
    pub(crate) fn forget_failures(&self) {
        match self {
            Self::Series(table) => table.failed.forget(),
            Self::Records(table) => table.failed.forget(),
        }
    }

    /// Whether a step has done without objects that another one had since this was asked last.
    pub(crate) fn take_refused(&self) -> bool {
        match self {
            Self::Series(table) => table.claims.take_refused(),
            Self::Records(table) => table.claims.take_refused(),
        }
    }

    /// Notes that what is due was left to a later look.
    pub(crate) fn refuse(&self) {
        match self {
            Self::Series(table) => table.claims.refuse(),
            Self::Records(table) => table.claims.refuse(),
        }
    }

    /// As [`Table::take_refused`], and it can be asked again.
    pub(crate) fn is_refused(&self) -> bool {
        match self {
            Self::Series(table) => table.claims.is_refused(),
            Self::Records(table) => table.claims.is_refused(),
        }
    }

    /// Waits until nobody gives its fields other types, for which objects are taken long before they are needed alone.
    pub(crate) fn wait_for_retyping(&self) {
        match self {
            Self::Series(table) => {
                drop(table.retyping.lock().unwrap_or_else(PoisonError::into_inner));
            }
            // Columns of records keep their types.
            Self::Records(_) => {}
        }
    }

    /// Lays together what has piled up. Whoever calls holds the turn of compaction and the lock of the table.
    ///
    /// # Errors
    /// The first one of all groups.
    pub(crate) fn compact(&self, kinds: &Kinds) -> Result<CascadeReport> {
        match self {
            Self::Series(table) => compact(&kinds.series, table),
            Self::Records(table) => tidefall_records::compact::compact(&kinds.records, table),
        }
    }

    /// As [`Table::compact`], as much as is due at once.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn compact_once(&self, kinds: &Kinds) -> Result<CascadeReport> {
        match self {
            Self::Series(table) => compact_once(&kinds.series, table),
            Self::Records(table) => tidefall_records::compact::compact_once(&kinds.records, table),
        }
    }

    /// Drops what is too old as a whole, for which no room is needed.
    ///
    /// # Errors
    /// Those of the commit.
    pub(crate) fn drop_old(&self, kinds: &Kinds) -> Result<CascadeReport> {
        match self {
            Self::Series(table) => drop_old(&kinds.series, table),
            Self::Records(table) => tidefall_records::compact::drop_hidden(&kinds.records, table),
        }
    }

    /// Forgets deletes that hide nothing any more.
    ///
    /// # Errors
    /// Those of the commit.
    pub(crate) fn retire_deletes(&self, kinds: &Kinds) -> Result<()> {
        match self {
            Self::Series(table) => upkeep::retire_deletes(&kinds.series, table),
            Self::Records(table) => tidefall_records::upkeep::retire_deletes(&kinds.records, table),
        }
    }

    /// Lets go of all that it has: it is no table any more.
    pub(crate) fn drop_all(&self, ground: &Ground) {
        match self {
            Self::Series(table) => install::forget(ground, table),
            Self::Records(table) => tidefall_records::install::forget(ground, table),
        }
    }

    // ---- reports ----

    /// Reads all of it. Damage is listed in the report.
    pub(crate) fn verify(&self, ground: &Ground, found: &mut VerifyReport) {
        match self {
            Self::Series(table) => verify::verify(ground, table, found),
            Self::Records(table) => tidefall_records::verify::verify(table, found),
        }
    }

    /// What it holds.
    pub(crate) fn report(&self) -> TableReport {
        match self {
            Self::Series(table) => report(table),
            Self::Records(table) => tidefall_records::report::report(table),
        }
    }

    /// How many objects are due to be laid together, and nobody does.
    pub(crate) fn backlog(&self, kinds: &Kinds) -> usize {
        match self {
            Self::Series(table) => backlog(&kinds.series, table).objects,
            Self::Records(table) => tidefall_records::compact::backlog(table),
        }
    }

    /// For how long something has been due; nothing where nothing is.
    pub(crate) fn behind_ns(&self, kinds: &Kinds) -> Option<i64> {
        match self {
            Self::Series(table) => upkeep::behind_ns(&kinds.series, table),
            Self::Records(table) => tidefall_records::upkeep::behind_ns(&kinds.records, table),
        }
    }
}

/// A change of a table, as its kind makes it.
pub(crate) enum Change {
    Series {
        table: Arc<tidefall_series::Table>,
        change: tidefall_series::change::Change,
        /// What the log on disk gets before the change is acknowledged; none for writes that are so from memory.
        record: Option<LogRecord>,
        /// Where rows that may take the place of others are kept for somebody who wants to count them.
        watch: Option<Watch>,
    },
    Records {
        table: Arc<tidefall_records::Table>,
        change: tidefall_records::change::Change,
        /// As for series tables.
        record: Option<tidefall_records::record::LogRecord>,
    },
}

/// What the log will know beside rows when the changes of a group are in it.
#[derive(Default)]
pub(crate) struct KnownToLog {
    /// The sensors of each series table.
    sensors: HashMap<TableId, (Arc<tidefall_series::Table>, u32)>,
}

impl KnownToLog {
    /// Takes note that the log has all of it.
    pub(crate) fn keep(self) {
        self.sensors.into_values().for_each(|(table, known)| table.known.keep(known));
    }
}

impl Change {
    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            Self::Series { change, .. } => change.size_bytes() + self.record_bytes(),
            Self::Records { change, .. } => change.size_bytes() + self.record_bytes(),
        }
    }

    /// Bytes of its record.
    pub(crate) fn record_bytes(&self) -> usize {
        match self {
            Self::Series { record, .. } => record.as_ref().map_or(0, LogRecord::size_bytes),
            Self::Records { record, .. } => record.as_ref().map_or(0, |record| record.size_bytes()),
        }
    }

    pub(crate) fn needs_log(&self) -> bool {
        match self {
            Self::Series { record, .. } => record.is_some(),
            Self::Records { record, .. } => record.is_some(),
        }
    }

    /// Makes its record one that the log can take, behind those of which it `known` what they bring.
    ///
    /// # Errors
    /// `Limit` when the log cannot take as much at once; others can still be logged.
    pub(crate) fn complete(&mut self, known: &mut KnownToLog) -> Result<()> {
        match self {
            Self::Series { table, record: Some(record), .. } => {
                let place = known.sensors.entry(table.id);
                let (_, known) = place.or_insert_with(|| (Arc::clone(table), table.known.kept()));
                *known = record.complete(table, *known)?;
                Ok(())
            }
            Self::Series { record: None, .. } | Self::Records { .. } => Ok(()),
        }
    }

    /// Appends its record to the log.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn append(&mut self, wal: &mut Wal, seq: Seq) -> Result<()> {
        match self {
            Self::Series { table, record: Some(record), .. } => record.append(wal, seq, table.id),
            Self::Records { table, record: Some(record), .. } => record.append(wal, seq, table.id),
            Self::Series { record: None, .. } | Self::Records { record: None, .. } => Ok(()),
        }
    }

    /// Makes the change visible, and returns the bytes that it added to memory.
    ///
    /// # Errors
    /// When rows in memory cannot be laid together.
    pub(crate) fn apply(self, seq: Seq) -> Result<usize> {
        match self {
            Self::Series { table, change, watch, .. } => apply(&table, seq, change, watch.as_ref()),
            Self::Records { table, change, .. } => {
                tidefall_records::change::apply(&table, seq, change)
            }
        }
    }
}
