//! What a table holds, for people.

use std::sync::PoisonError;

use tidefall_ground::manifest::series::Model;
use tidefall_types::TimeRange;

use crate::table::Table;

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
    /// Its sensors.
    pub sensors: u32,
    /// Its fields.
    pub fields: usize,
    /// Rows in memory.
    pub rows_in_memory: u64,
    /// Bytes of rows in memory.
    pub bytes_in_memory: u64,
    /// Deletes that may still hide rows.
    pub deletes: usize,
    /// The models, in the order in which readings move through them.
    pub models: Vec<ModelReport>,
}

/// What a table holds: counts from memory and the manifest.
pub fn report(table: &Table) -> TableReport {
    let sensors = table.sensors.read().unwrap_or_else(PoisonError::into_inner).count();
    let live = table.live();
    let version = table.version();
    let report = |model: Model| {
        let objects = version.objects.of(model);
        let entries = || objects.iter().map(|object| &object.entry);
        ModelReport {
            model,
            objects: objects.len() as u64,
            rows: entries().map(|entry| entry.rows).sum(),
            bytes: entries().map(|entry| entry.bytes).sum(),
            time: entries().map(|entry| entry.time).reduce(|a, b| a.union(&b)),
        }
    };
    TableReport {
        name: version.schema.name.clone(),
        sensors,
        fields: version.schema.fields.len(),
        rows_in_memory: live.all_runs().map(|run| run.rows() as u64).sum(),
        bytes_in_memory: live.kv_bytes() as u64,
        deletes: version.deletes.len(),
        models: [Model::Kv, Model::Short, Model::Long].map(report).to_vec(),
    }
}
