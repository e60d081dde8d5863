//! What the manifest has of series tables alone: their data, none of what is done with it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidefall_store::names;
use tidefall_types::{ObjectId, Seq, TableId, TimeRange};

/// How the names of objects of sensors end.
const SENSORS: &str = "sensors";

/// The storage model that an object belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// Key-value: a run that outgrew the memory.
    Kv,
    /// Short columns: a part of one day.
    Short,
    /// Long columns: whole months.
    Long,
}

impl Model {
    /// Its name in messages and object names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kv => "kv",
            Self::Short => "short",
            Self::Long => "long",
        }
    }
}

/// A live segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectEntry {
    /// Its id, from which its name is made, ...
    pub id: ObjectId,
    /// ... and who has written it; 0 in those of earlier versions.
    #[serde(default, skip_serializing_if = "is_nobody")]
    pub writer: u32,
    /// The model that it belongs to.
    pub model: Model,
    /// When it was written, in nanoseconds since 1970 UTC; 0 in those of earlier versions.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub since_ns: i64,
    /// The latest write in it. Where two objects hold the same identity, the later one wins; the
    /// writes of two objects that overlap in time never interleave.
    pub last_seq: Seq,
    /// The latest delete that was applied when it was written: what that and earlier ones hide is not in it.
    #[serde(default)]
    pub last_delete: Seq,
    /// Whether none of its rows has the time of an earlier row of its sensor, wherever that is or was: rows of places that are so can
    /// be counted without a look at each other.
    #[serde(default)]
    pub is_distinct: bool,
    /// The first and the last time in it.
    pub time: TimeRange,
    /// The least sensor in it.
    pub first_sensor: u32,
    /// The greatest sensor in it.
    pub last_sensor: u32,
    /// Its rows.
    pub rows: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl ObjectEntry {
    /// The name of the object.
    pub fn name(&self) -> String {
        names::object(self.id, self.writer, self.model.name())
    }

    /// Deletes up to here hide nothing in it.
    pub fn deletes_upto(&self) -> Seq {
        self.last_seq.max(self.last_delete)
    }
}

/// A stored part of a table's sensors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SensorObject {
    /// The object, ...
    pub id: ObjectId,
    /// ... and who has written it; 0 in those of earlier versions.
    #[serde(default, skip_serializing_if = "is_nobody")]
    pub writer: u32,
    /// The first sensor in it.
    pub first: u32,
    /// The sensors in it.
    pub count: u32,
    /// Its bytes.
    pub bytes: u64,
}

impl SensorObject {
    /// The name of the object.
    pub fn name(&self) -> String {
        names::object(self.id, self.writer, SENSORS)
    }
}

/// The objects of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Stored {
    /// Its segments.
    pub objects: BTreeMap<ObjectId, ObjectEntry>,
    /// Its sensors, in order.
    pub sensors: Vec<SensorObject>,
}

impl Stored {
    /// The sensors that are in objects.
    pub fn sensor_count(&self) -> u32 {
        self.sensors.last().map_or(0, |part| part.first + part.count)
    }

    pub(super) fn object_names(&self) -> impl Iterator<Item = String> {
        let segments = self.objects.values().map(ObjectEntry::name);
        segments.chain(self.sensors.iter().map(SensorObject::name))
    }

    /// The latest write in objects.
    pub(super) fn last_seq(&self) -> Option<Seq> {
        self.objects.values().map(|entry| entry.last_seq).max()
    }

    /// The latest write in objects, or the latest delete that was applied to one if that is later.
    pub(super) fn deletes_upto(&self) -> Option<Seq> {
        self.objects.values().map(ObjectEntry::deletes_upto).max()
    }

    /// Makes a change of its table. Returns the names of objects that it replaces.
    pub(super) fn apply(&mut self, edit: &Edit) -> Vec<String> {
        let mut replaced = Vec::new();
        match edit {
            Edit::AddObject(_, entry) => drop(self.objects.insert(entry.id, entry.clone())),
            Edit::AddSensors(_, part) => self.sensors.push(part.clone()),
            Edit::ReplaceSensors(_, part) => {
                replaced = std::mem::replace(&mut self.sensors, vec![part.clone()]);
            }
        }
        replaced.iter().map(SensorObject::name).collect()
    }

    /// Takes a segment out. Returns its name.
    pub(super) fn remove(&mut self, id: ObjectId) -> Option<String> {
        self.objects.remove(&id).map(|entry| entry.name())
    }
}

/// A change of what is stored of a series table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Edit {
    /// A segment is live from now on.
    AddObject(TableId, ObjectEntry),
    /// A part of a table's sensors is stored.
    AddSensors(TableId, SensorObject),
    /// A table's sensors are stored in one object instead of many.
    ReplaceSensors(TableId, SensorObject),
}

impl Edit {
    pub(super) fn table(&self) -> TableId {
        match self {
            Self::AddObject(table, _)
            | Self::AddSensors(table, _)
            | Self::ReplaceSensors(table, _) => *table,
        }
    }

    /// The object that it names, and that was not named before.
    pub(super) fn new_object(&self) -> ObjectId {
        match self {
            Self::AddObject(_, entry) => entry.id,
            Self::AddSensors(_, part) | Self::ReplaceSensors(_, part) => part.id,
        }
    }

    pub(super) fn replaces_objects(&self) -> bool {
        match self {
            Self::AddObject(..) | Self::AddSensors(..) => false,
            Self::ReplaceSensors(..) => true,
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
pub(super) fn is_nobody(writer: &u32) -> bool {
    *writer == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
pub(super) fn is_unknown(at_ns: &i64) -> bool {
    *at_ns == 0
}
