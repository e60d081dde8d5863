//! What a database holds, for people.

use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

use tidefall_types::{Result, TimeRange};

use crate::Db;
use crate::manifest::Model;
use crate::store::names;

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
    /// The models, in the order in which readings fall.
    pub models: Vec<ModelReport>,
}

/// Figures about an open database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Bytes of rows in memory.
    pub kv_bytes: u64,
    /// Bytes of rows that have left memory for objects and that readers who began before still hold. No writer waits
    /// for them.
    pub retained_bytes: u64,
    /// The memory budget.
    pub memory_bytes: u64,
    /// The number of commits of the manifest.
    pub manifest_version: u64,
    /// Whether writes are refused after a failure.
    pub is_failed: bool,
}

/// What storage has done since the database was opened, and how far it is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Bytes of the objects that new rows became.
    pub flushed_bytes: u64,
    /// Bytes of the objects that older objects became.
    pub rewritten_bytes: u64,
    /// Writes that have waited for rows to leave memory.
    pub delayed_writes: u64,
    /// How long these have waited together.
    pub delayed: Duration,
    /// Objects that are to be laid together with others and still wait for it.
    pub objects_to_compact: u64,
    /// Objects that were replaced and are still on the disk, as somebody may read them.
    pub replaced_objects: u64,
    /// For how long there have been objects that could have fallen to the next model; nothing when there are none.
    pub behind: Option<Duration>,
}

impl Work {
    /// How often each byte was written, the log aside; nothing before the first one.
    pub fn amplification(&self) -> Option<f64> {
        let all = self.flushed_bytes + self.rewritten_bytes;
        (self.flushed_bytes > 0).then(|| all as f64 / self.flushed_bytes as f64)
    }
}

impl Db {
    /// Whether there is a database in `dir`. [`Db::open`] makes one where there is none.
    pub fn exists(dir: impl AsRef<Path>) -> bool {
        dir.as_ref().join(names::MANIFEST_DIR).is_dir()
    }

    /// What each table holds.
    ///
    /// # Errors
    /// None at present; counts come from memory and the manifest.
    pub fn inspect(&self) -> Result<Vec<TableReport>> {
        Ok(self
            .engine()
            .tables()
            .iter()
            .map(|table| {
                let sensors = table.sensors.read().unwrap_or_else(PoisonError::into_inner).count();
                let live = table.live();
                let report = |model: Model| {
                    let objects = live.objects_of(model);
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
                    name: table.schema().name.clone(),
                    sensors,
                    fields: table.schema().fields.len(),
                    rows_in_memory: live.all_runs().map(|run| run.rows() as u64).sum(),
                    bytes_in_memory: live.kv_bytes() as u64,
                    deletes: live.deletes.len(),
                    models: [Model::Kv, Model::Short, Model::Long].map(report).to_vec(),
                }
            })
            .collect())
    }

    /// What storage has done since the database was opened, and how far it is behind.
    pub fn work(&self) -> Work {
        self.engine().work()
    }

    /// Figures about the open database.
    pub fn stats(&self) -> Stats {
        let engine = self.engine();
        Stats {
            kv_bytes: engine.kv_bytes() as u64,
            retained_bytes: engine.retained_bytes() as u64,
            memory_bytes: engine.options.memory_bytes as u64,
            manifest_version: engine.manifest().version(),
            is_failed: engine.commits.failure().is_some(),
        }
    }
}
