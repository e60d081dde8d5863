//! What a database holds, for people.

use std::path::Path;
use std::time::Duration;

use tidefall_ground::report::TableReport;
use tidefall_store::names;
use tidefall_types::{NS_PER_SECOND, Result};

use crate::Db;
use crate::engine::Engine;
use crate::table::Table;

/// Figures about an open database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Bytes of rows in memory.
    pub kv_bytes: u64,
    /// Bytes of rows that have left memory for objects and that readers who began before still hold. Writers are
    /// slowed earlier for them, and never stopped.
    pub retained_bytes: u64,
    /// The memory budget.
    pub memory_bytes: u64,
    /// The number of commits of the manifest; of one that is under way, that before it.
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
    /// For how long the oldest step has been due: readings moved to the next model, objects laid together, or what is too old dropped; nothing when
    /// none is.
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
        Ok(self.engine().tables().iter().map(Table::report).collect())
    }

    /// What storage has done since the database was opened, and how far it is behind.
    pub fn work(&self) -> Work {
        self.engine().work()
    }

    /// Figures about the open database.
    pub fn stats(&self) -> Stats {
        let engine = self.engine();
        Stats {
            kv_bytes: engine.ground.memory.rows.get() as u64,
            retained_bytes: engine.ground.memory.retained_bytes() as u64,
            memory_bytes: engine.ground.options.memory_bytes as u64,
            manifest_version: engine.ground.manifest_version(),
            is_failed: engine.commits.failure().is_some(),
        }
    }
}

impl Engine {
    /// What was done, and what is due.
    pub(crate) fn work(&self) -> Work {
        let (tables, ground) = (self.tables(), &self.ground);
        let behind = tables.iter().filter_map(|table| table.behind_ns(&self.kinds)).max();
        let (delayed_writes, delayed) = ground.worked.delays();
        Work {
            flushed_bytes: ground.worked.flushed_bytes(),
            rewritten_bytes: ground.worked.rewritten_bytes(),
            delayed_writes,
            delayed,
            objects_to_compact: tables.iter().map(|it| it.backlog(&self.kinds) as u64).sum(),
            replaced_objects: ground.obsolete.count() as u64,
            behind: behind.map(|ns| Duration::from_secs((ns / NS_PER_SECOND) as u64)),
        }
    }
}
