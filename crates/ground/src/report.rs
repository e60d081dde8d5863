//! What a table holds, for people: said by its kind.

use tidefall_types::TimeRange;

use crate::manifest::series::Model;

/// What a table holds in one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelReport {
    /// The model; [`Model::Kv`] counts run files here, memory is apart.
    pub model: Model,
    /// Its objects.
    pub objects: u64,
    /// Rows in them; a row that a later part replaces is counted twice until they are laid together.
    pub rows: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// The first and the last time in them, if there is a row.
    pub time: Option<TimeRange>,
}

/// What a table holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableReport {
    /// The table's name.
    pub name: String,
    /// Its sensors; none where it is of records.
    pub sensors: u32,
    /// Its fields.
    pub fields: usize,
    /// Rows in memory.
    pub rows_in_memory: u64,
    /// Bytes of rows in memory.
    pub bytes_in_memory: u64,
    /// Deletes that may still hide rows.
    pub deletes: usize,
    /// The models, in the order in which readings move through them; none where it is of records.
    pub models: Vec<ModelReport>,
    /// Where it is of records its segments.
    pub segments: Option<SegmentsReport>,
}

/// The segments of a table of records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmentsReport {
    /// How many there are.
    pub objects: u64,
    /// Rows in them; one that is deleted counts until its segment is written anew.
    pub rows: u64,
    /// Bytes of them.
    pub bytes: u64,
}
