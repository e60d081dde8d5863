//! How edits and tables are read: in JSON those of all kinds stand side by side. How they are written is said beside what they are; reading
//! needs the kind before the rest.

use std::collections::BTreeMap;

use serde::Deserialize;
use tidefall_types::{ObjectId, Seq, TableId, TableKind, TableSchema};

use super::{Flushed, OfKind, TableState, Tombstone};
use crate::manifest::log::Writer;
use crate::manifest::records::{self, SegmentEntry};
use crate::manifest::series::{self, ObjectEntry, SensorObject};

/// A [`TableState`]: what its kind alone has is beside what all have. A key that a kind needs and that is missing is an error: a table without its
/// objects would lose them to the next clean-up.
#[derive(Deserialize)]
pub(super) struct Table {
    schema: TableSchema,
    objects: Option<BTreeMap<ObjectId, ObjectEntry>>,
    sensors: Option<Vec<SensorObject>>,
    segments: Option<BTreeMap<ObjectId, SegmentEntry>>,
    tombstones: Vec<Tombstone>,
    #[serde(rename = "drained")]
    flushed: Vec<Flushed>,
}

impl TryFrom<Table> for TableState {
    type Error = String;

    fn try_from(table: Table) -> Result<Self, String> {
        let Table { schema, objects, sensors, segments, tombstones, flushed } = table;
        let of_kind = match (schema.kind, objects, sensors, segments) {
            (TableKind::Series, Some(objects), Some(sensors), None) => {
                OfKind::Series(series::Stored { objects, sensors })
            }
            (TableKind::Records, None, None, Some(segments)) => {
                OfKind::Records(records::Stored { segments })
            }
            (kind, ..) => {
                let (name, kind) = (&schema.name, kind.name());
                return Err(format!("table {name}: it is not stored as one of {kind} is"));
            }
        };
        Ok(Self { schema, of_kind, tombstones, flushed })
    }
}

/// An [`Edit`](super::Edit): its name says whether it is one of a kind.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Edit {
    PutTable(TableSchema),
    DropTable(TableId),
    AddObject(TableId, ObjectEntry),
    RemoveObject(TableId, ObjectId),
    AddSensors(TableId, SensorObject),
    ReplaceSensors(TableId, SensorObject),
    AddSegment(TableId, SegmentEntry),
    AddTombstone(TableId, Tombstone),
    RemoveTombstone(TableId, Seq),
    #[serde(rename = "drained")]
    Flushed(TableId, Flushed),
    WalFrom(Seq),
    LogEnd(Seq),
    Begun(Writer),
    At(i64),
}

impl From<Edit> for super::Edit {
    fn from(edit: Edit) -> Self {
        match edit {
            Edit::PutTable(schema) => Self::PutTable(schema),
            Edit::DropTable(table) => Self::DropTable(table),
            Edit::AddObject(table, entry) => series::Edit::AddObject(table, entry).into(),
            Edit::RemoveObject(table, id) => Self::RemoveObject(table, id),
            Edit::AddSensors(table, part) => series::Edit::AddSensors(table, part).into(),
            Edit::ReplaceSensors(table, part) => series::Edit::ReplaceSensors(table, part).into(),
            Edit::AddSegment(table, entry) => records::Edit::AddSegment(table, entry).into(),
            Edit::AddTombstone(table, tombstone) => Self::AddTombstone(table, tombstone),
            Edit::RemoveTombstone(table, seq) => Self::RemoveTombstone(table, seq),
            Edit::Flushed(table, flushed) => Self::Flushed(table, flushed),
            Edit::WalFrom(seq) => Self::WalFrom(seq),
            Edit::LogEnd(seq) => Self::LogEnd(seq),
            Edit::Begun(writer) => Self::Begun(writer),
            Edit::At(at_ns) => Self::At(at_ns),
        }
    }
}
