//! What a table holds, for people.

use std::sync::PoisonError;

use tidefall_ground::manifest::series::Model;
use tidefall_ground::report::{ModelReport, TableReport};

use crate::table::Table;

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
        segments: None,
        models: [Model::Kv, Model::Short, Model::Long].map(report).to_vec(),
    }
}
