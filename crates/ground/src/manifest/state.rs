//! The state that the manifest records, and the edits that change it.

mod json;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidefall_types::{NS_PER_SECOND, ObjectId, Seq, TableId, TableKind, TableSchema, TimeRange};

use super::log::{LogState, Writer, Writers};
use super::{records, series};

/// How long objects stay after they were replaced while anybody else may read the database: a read-only process has so long to
/// read what it found when it opened it.
pub const OBSOLETE_NS: i64 = 60 * NS_PER_SECOND;

/// A delete that may still hide stored rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// Its place among the writes: it hides what was written before.
    pub seq: Seq,
    /// The times that it hides.
    pub time: TimeRange,
    /// The sensors that it hides, as a serialised bitmap in base 16; all sensors when absent.
    pub sensors: Option<String>,
    /// Of records the boxes that it hides; those have all times and all sensors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub boxes: Vec<Vec<records::Side>>,
}

/// Rows that have left the memory for good: recovery passes them over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flushed {
    /// Written up to here, ...
    pub upto: Seq,
    /// ... with times before this; [`i64::MAX`] for all times, ...
    pub before_ns: i64,
    /// ... and from this on; [`i64::MIN`] for all times.
    #[serde(default = "all_times", skip_serializing_if = "is_all_times")]
    pub from_ns: i64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
fn is_not(is: &bool) -> bool {
    !*is
}

const fn all_times() -> i64 {
    i64::MIN
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
fn is_all_times(from_ns: &i64) -> bool {
    *from_ns == all_times()
}

impl Flushed {
    /// All rows that were written up to a place.
    pub fn all(upto: Seq) -> Self {
        Self { upto, before_ns: i64::MAX, from_ns: all_times() }
    }

    /// Whether rows of this time have been flushed.
    pub fn has_time(&self, time_ns: i64) -> bool {
        self.from_ns <= time_ns && (self.before_ns == i64::MAX || time_ns < self.before_ns)
    }

    /// The times of which rows have been flushed.
    pub fn range(&self) -> TimeRange {
        let last_ns = if self.before_ns == i64::MAX { i64::MAX } else { self.before_ns - 1 };
        TimeRange::new(self.from_ns, last_ns)
    }

    /// Whether rows of some of these times have been flushed.
    pub fn overlaps(&self, range: &TimeRange) -> bool {
        range.overlaps(&self.range())
    }

    /// Whether a row has been flushed.
    pub fn covers(&self, seq: Seq, time_ns: i64) -> bool {
        seq <= self.upto && self.has_time(time_ns)
    }

    /// Whether it says all that another one does.
    fn covers_all_of(&self, other: &Self) -> bool {
        other.upto <= self.upto
            && other.before_ns <= self.before_ns
            && self.from_ns <= other.from_ns
    }
}

/// What is stored of a table as its kind has it. This is all that is known here of kinds: whoever adds one adds its variant, its
/// [`Edit`] and how both are read, and then does what does not compile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum OfKind {
    /// Of a series table.
    Series(series::Stored),
    /// Of a table of records.
    Records(records::Stored),
}

impl OfKind {
    /// That of a table which is new.
    fn new(kind: TableKind) -> Self {
        match kind {
            TableKind::Series => Self::Series(series::Stored::default()),
            TableKind::Records => Self::Records(records::Stored::default()),
        }
    }

    fn object_names(&self) -> Box<dyn Iterator<Item = String> + '_> {
        match self {
            Self::Series(stored) => Box::new(stored.object_names()),
            Self::Records(stored) => Box::new(stored.object_names()),
        }
    }

    fn remove(&mut self, id: ObjectId) -> Option<String> {
        match self {
            Self::Series(stored) => stored.remove(id),
            Self::Records(stored) => stored.remove(id),
        }
    }

    /// Whether records of the log mean beside this what they mean beside an earlier one, and nothing came to objects.
    fn reads_log_as(&self, earlier: &Self) -> bool {
        match (self, earlier) {
            // Rows in the log may be of sensors that are only in objects.
            (Self::Series(stored), Self::Series(earlier)) => {
                stored.sensor_count() == earlier.sensor_count()
                    && stored.last_seq() == earlier.last_seq()
            }
            (Self::Records(stored), Self::Records(earlier)) => {
                stored.last_seq() == earlier.last_seq()
            }
            // A table stays of its kind.
            (Self::Series(_), Self::Records(_)) | (Self::Records(_), Self::Series(_)) => false,
        }
    }
}

/// A table and what is stored of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "json::Table")]
pub struct TableState {
    /// Its schema.
    pub schema: TableSchema,
    /// Its objects.
    #[serde(flatten)]
    pub of_kind: OfKind,
    /// Its deletes, in the order of the writes.
    pub tombstones: Vec<Tombstone>,
    /// What recovery passes over.
    #[serde(rename = "drained")]
    pub flushed: Vec<Flushed>,
}

impl TableState {
    /// The names of all its objects.
    pub fn object_names(&self) -> impl Iterator<Item = String> {
        self.of_kind.object_names()
    }

    /// The latest write or delete of which anything is stored.
    pub fn last_seq(&self) -> Option<Seq> {
        let in_objects = match &self.of_kind {
            OfKind::Series(stored) => stored.deletes_upto(),
            OfKind::Records(stored) => stored.deletes_upto(),
        };
        let deletes = self.tombstones.iter().map(|tombstone| tombstone.seq);
        let flushed = self.flushed.iter().map(|flushed| flushed.upto);
        deletes.chain(flushed).chain(in_objects).max()
    }

    /// Whether all rows of a write are in objects. Fields of theirs may have had other types.
    pub fn has_flushed(&self, seq: Seq) -> bool {
        self.flushed.iter().any(|flushed| flushed.covers_all_of(&Flushed::all(seq)))
    }

    /// Whether a delete is recorded.
    pub fn has_delete(&self, seq: Seq) -> bool {
        self.place_of_delete(seq).is_ok()
    }

    fn place_of_delete(&self, seq: Seq) -> Result<usize, usize> {
        self.tombstones.binary_search_by_key(&seq, |tombstone| tombstone.seq)
    }
}

/// The database as the manifest knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The tables.
    pub tables: BTreeMap<TableId, TableState>,
    /// Ids below are taken.
    pub next_table: u32,
    /// Ids below are taken.
    pub next_object: u64,
    /// Everything written before is in objects: the log is needed only from here on.
    pub wal_from: Seq,
    /// The log reached up to here when the database was last closed in order: if it ends before, a
    /// file of it is missing.
    #[serde(default)]
    pub log_end: Seq,
    /// Whether the last log, if it lies apart, was closed in order when nothing in it was needed any more.
    #[serde(default, skip_serializing_if = "is_not")]
    pub has_spent_log: bool,
    /// When objects were last replaced: nanoseconds since 1970 UTC.
    #[serde(default)]
    pub at_ns: i64,
    /// The names of objects that are not live any more, and since when; those of the last minute.
    #[serde(default)]
    pub replaced: BTreeMap<String, i64>,
    /// Who made which versions.
    #[serde(default)]
    pub writers: Writers,
}

/// A change of the state. Several are committed together, all or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", from = "json::Edit")]
pub enum Edit {
    /// A table is created, or gets another schema.
    PutTable(TableSchema),
    /// A table is gone with all that it held.
    DropTable(TableId),
    /// An object with rows is not live any more.
    RemoveObject(TableId, ObjectId),
    /// Rows were deleted.
    AddTombstone(TableId, Tombstone),
    /// A delete hides nothing any more.
    RemoveTombstone(TableId, Seq),
    /// Rows left the memory.
    #[serde(rename = "drained")]
    Flushed(TableId, Flushed),
    /// The log is needed only from here on.
    WalFrom(Seq),
    /// The log was closed in order and reaches up to here.
    LogEnd(Seq),
    /// A process begins to write the manifest.
    Begun(Writer),
    /// The time of the edits behind it in the same commit, if one of them replaces objects: nanoseconds since
    /// 1970 UTC.
    At(i64),
    /// What is stored of a series table changes.
    #[serde(untagged)]
    Series(series::Edit),
    /// What is stored of a table of records changes.
    #[serde(untagged)]
    Records(records::Edit),
}

impl Edit {
    /// Whether an object is named that was not before.
    pub fn names_new_object(&self) -> bool {
        self.new_object().is_some()
    }

    /// Whether objects may not be live any more after it.
    pub fn replaces_objects(&self) -> bool {
        match self {
            Self::Series(edit) => edit.replaces_objects(),
            Self::DropTable(_) | Self::RemoveObject(..) => true,
            Self::Records(_)
            | Self::PutTable(_)
            | Self::AddTombstone(..)
            | Self::RemoveTombstone(..)
            | Self::Flushed(..)
            | Self::WalFrom(_)
            | Self::LogEnd(_)
            | Self::Begun(_)
            | Self::At(_) => false,
        }
    }

    fn new_object(&self) -> Option<ObjectId> {
        match self {
            Self::Series(edit) => Some(edit.new_object()),
            Self::Records(edit) => Some(edit.new_object()),
            Self::PutTable(_)
            | Self::DropTable(_)
            | Self::RemoveObject(..)
            | Self::AddTombstone(..)
            | Self::RemoveTombstone(..)
            | Self::Flushed(..)
            | Self::WalFrom(_)
            | Self::LogEnd(_)
            | Self::Begun(_)
            | Self::At(_) => None,
        }
    }
}

impl From<series::Edit> for Edit {
    fn from(edit: series::Edit) -> Self {
        Self::Series(edit)
    }
}

impl From<records::Edit> for Edit {
    fn from(edit: records::Edit) -> Self {
        Self::Records(edit)
    }
}

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

impl State {
    /// Whether records of the log mean to this state what they mean to an earlier one, none of those that
    /// it needed is gone, and nothing came to objects that the log does not have: who reads a record must see what was
    /// written before it.
    pub fn reads_log_as(&self, earlier: &Self) -> bool {
        let is_same = |(table, earlier): (&TableState, &TableState)| {
            table.schema == earlier.schema
                && table.flushed == earlier.flushed
                && table.of_kind.reads_log_as(&earlier.of_kind)
        };
        self.wal_from == earlier.wal_from
            && self.tables.len() == earlier.tables.len()
            && self.tables.values().zip(earlier.tables.values()).all(is_same)
    }

    /// A series table and what is stored of it; nothing when there is no such table any more.
    pub fn series(&self, id: TableId) -> Option<(&TableState, &series::Stored)> {
        let table = self.tables.get(&id)?;
        match &table.of_kind {
            OfKind::Series(stored) => Some((table, stored)),
            OfKind::Records(_) => None,
        }
    }

    /// A table of records and what is stored of it; nothing when there is no such table any more.
    pub fn records(&self, id: TableId) -> Option<(&TableState, &records::Stored)> {
        let table = self.tables.get(&id)?;
        match &table.of_kind {
            OfKind::Records(stored) => Some((table, stored)),
            OfKind::Series(_) => None,
        }
    }

    /// Makes a change. Edits of tables that are gone are passed over: a table may be dropped while
    /// its readings move.
    pub fn apply(&mut self, edit: &Edit) {
        if let Some(id) = edit.new_object() {
            self.next_object = self.next_object.max(id.0 + 1);
        }
        match edit {
            Edit::PutTable(schema) => self.put_table(schema),
            Edit::DropTable(table) => {
                let dropped = self.tables.remove(table);
                self.retire(dropped.iter().flat_map(TableState::object_names));
            }
            Edit::RemoveObject(table, id) => {
                let table = self.tables.get_mut(table);
                let removed = table.and_then(|state| state.of_kind.remove(*id));
                self.retire(removed.into_iter());
            }
            Edit::Series(edit) => {
                let mut replaced = Vec::new();
                self.with(edit.table(), |state| match &mut state.of_kind {
                    OfKind::Series(stored) => replaced = stored.apply(edit),
                    OfKind::Records(_) => unreachable!("an edit of a series table, of records"),
                });
                self.retire(replaced.into_iter());
            }
            Edit::Records(edit) => self.with(edit.table(), |state| match &mut state.of_kind {
                OfKind::Records(stored) => stored.apply(edit),
                OfKind::Series(_) => unreachable!("an edit of records, of a series table"),
            }),
            Edit::AddTombstone(table, tombstone) => self.with(*table, |state| {
                if let Err(place) = state.place_of_delete(tombstone.seq) {
                    state.tombstones.insert(place, tombstone.clone());
                }
            }),
            Edit::RemoveTombstone(table, seq) => self.with(*table, |state| {
                if let Ok(place) = state.place_of_delete(*seq) {
                    state.tombstones.remove(place);
                }
            }),
            Edit::Flushed(table, flushed) => self.with(*table, |state| {
                state.flushed.retain(|other| !flushed.covers_all_of(other));
                state.flushed.push(*flushed);
            }),
            Edit::LogEnd(seq) => {
                self.log_end = *seq;
                self.has_spent_log = *seq <= self.wal_from && self.writers.last_log() != 0;
            }
            Edit::Begun(writer) => {
                self.writers.add(*writer);
                self.has_spent_log = false;
            }
            Edit::At(now_ns) => {
                self.at_ns = *now_ns;
                self.replaced.retain(|_, since_ns| {
                    // The clock may have been set back.
                    *since_ns = (*since_ns).min(*now_ns);
                    now_ns.saturating_sub(*since_ns) < OBSOLETE_NS
                });
            }
            Edit::WalFrom(seq) => {
                self.wal_from = *seq;
                for table in self.tables.values_mut() {
                    table.flushed.retain(|flushed| flushed.upto >= *seq);
                }
            }
        }
    }

    fn put_table(&mut self, schema: &TableSchema) {
        self.next_table = self.next_table.max(schema.id.0 + 1);
        let state = self.tables.entry(schema.id).or_insert_with(|| TableState {
            schema: schema.clone(),
            of_kind: OfKind::new(schema.kind),
            tombstones: Vec::new(),
            flushed: Vec::new(),
        });
        debug_assert_eq!(state.schema.kind, schema.kind, "a table stays of its kind");
        state.schema = schema.clone();
    }

    fn retire(&mut self, names: impl Iterator<Item = String>) {
        let at_ns = self.at_ns;
        self.replaced.extend(names.map(|name| (name, at_ns)));
    }

    fn with(&mut self, table: TableId, change: impl FnOnce(&mut TableState)) {
        if let Some(state) = self.tables.get_mut(&table) {
            change(state);
        }
    }
}

#[cfg(test)]
mod tests;
