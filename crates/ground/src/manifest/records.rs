//! What the manifest has of tables of records alone: their data, none of what is done with it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidefall_store::names;
use tidefall_types::{ObjectId, Seq, TableId};

use super::series::{is_nobody, is_unknown};

/// How the names of segments of records end.
pub const RECORDS: &str = "records";

/// From the least to the greatest ordinal in a dimension; both are in it. (Values of dimensions count as integers in their order.)
pub type Side = (i64, i64);

/// A live segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentEntry {
    /// Its id, from which its name is made, ...
    pub id: ObjectId,
    /// ... and who has written it.
    #[serde(default, skip_serializing_if = "is_nobody")]
    pub writer: u32,
    /// When it was written, in nanoseconds since 1970 UTC.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub since_ns: i64,
    /// The latest write in it.
    pub last_seq: Seq,
    /// The latest delete that was applied when it was written: what that and earlier ones hide is not in it.
    pub last_delete: Seq,
    /// Its rows.
    pub rows: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The box that all rows are in: a side for each dimension.
    pub bounds: Vec<Side>,
}

impl SegmentEntry {
    /// The name of the object.
    pub fn name(&self) -> String {
        names::object(self.id, self.writer, RECORDS)
    }

    /// Deletes up to here hide nothing in it.
    pub fn deletes_upto(&self) -> Seq {
        self.last_seq.max(self.last_delete)
    }
}

/// The objects of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Stored {
    /// Its segments.
    pub segments: BTreeMap<ObjectId, SegmentEntry>,
}

impl Stored {
    pub(super) fn object_names(&self) -> impl Iterator<Item = String> {
        self.segments.values().map(SegmentEntry::name)
    }

    /// The latest write in objects.
    pub(super) fn last_seq(&self) -> Option<Seq> {
        self.segments.values().map(|entry| entry.last_seq).max()
    }

    /// The latest write in objects, or the latest delete that was applied to one if that is later.
    pub(super) fn deletes_upto(&self) -> Option<Seq> {
        self.segments.values().map(SegmentEntry::deletes_upto).max()
    }

    /// Makes a change of its table.
    pub(super) fn apply(&mut self, edit: &Edit) {
        match edit {
            Edit::AddSegment(_, entry) => drop(self.segments.insert(entry.id, entry.clone())),
        }
    }

    /// Takes a segment out. Returns its name.
    pub(super) fn remove(&mut self, id: ObjectId) -> Option<String> {
        self.segments.remove(&id).map(|entry| entry.name())
    }
}

/// A change of what is stored of a table of records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Edit {
    /// A segment is live from now on.
    AddSegment(TableId, SegmentEntry),
}

impl Edit {
    pub(super) fn table(&self) -> TableId {
        match self {
            Self::AddSegment(table, _) => *table,
        }
    }

    /// The object that it names, and that was not named before.
    pub(super) fn new_object(&self) -> ObjectId {
        match self {
            Self::AddSegment(_, entry) => entry.id,
        }
    }
}
