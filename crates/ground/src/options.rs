//! How a database is opened, and what its upkeep and its verification tell.

use std::sync::Arc;
use std::time::Duration;

use tidefall_types::{Clock, Error, Result, SystemClock};

/// How a database is opened.
#[derive(Debug, Clone)]
pub struct DbOptions {
    /// The memory that ingest, merges, caches and reads share.
    pub memory_bytes: usize,
    /// The threads that the cascade uses.
    pub threads: usize,
    /// The time between two looks at which readings have come of age.
    pub cascade_pause: Duration,
    /// Where "now" comes from.
    pub clock: Arc<dyn Clock>,
    /// What becomes of a database that is opened for writing with another log than the last one.
    pub missing_log: MissingLog,
}

/// What becomes of a database that is opened with another log than the one that was written last, if it is not known that nothing in that is
/// needed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissingLog {
    /// It is not opened.
    #[default]
    Refuse,
    /// It is opened with an empty log, without what only the last one holds, which is refused from then on: for a log whose disk is lost.
    GiveUp,
}

/// The least memory that a database works with. Where a test chooses the order of threads, a few rows shall fill it.
pub const MEMORY_BYTES_MIN: usize = if cfg!(tidefall_shuttle) { 4 << 10 } else { 64 << 20 };

/// The least [`DbOptions::cascade_pause`]; with less, looking would be all that is done.
pub const CASCADE_PAUSE_MIN: Duration = Duration::from_millis(1);

impl DbOptions {
    /// Refuses what a database cannot work with.
    ///
    /// # Errors
    /// `Invalid`, with the least that will do.
    pub fn check(&self) -> Result<()> {
        if self.memory_bytes < MEMORY_BYTES_MIN {
            return Err(Error::invalid(format!(
                "a memory budget of {} bytes is too small: give at least {MEMORY_BYTES_MIN}",
                self.memory_bytes
            )));
        }
        if self.cascade_pause < CASCADE_PAUSE_MIN {
            return Err(Error::invalid(format!(
                "a pause of {:?} between looks for old readings is too short: give at least \
                 {CASCADE_PAUSE_MIN:?}",
                self.cascade_pause
            )));
        }
        Ok(())
    }
}

impl Default for DbOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 512 << 20,
            threads: crate::parallel::cores(),
            cascade_pause: Duration::from_secs(60),
            clock: Arc::new(SystemClock),
            missing_log: MissingLog::Refuse,
        }
    }
}

/// What a cascade did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CascadeReport {
    /// Steps that installed something in the manifest.
    pub steps: u64,
    /// Readings (rows) written by those steps.
    pub rows: u64,
    /// Bytes written by those steps.
    pub bytes: u64,
    /// Rows dropped because of deletes or retention.
    pub rows_dropped: u64,
}

impl std::ops::AddAssign for CascadeReport {
    fn add_assign(&mut self, other: Self) {
        self.steps += other.steps;
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.rows_dropped += other.rows_dropped;
    }
}

/// What a verification has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Objects read: segments, sensors, and the manifest.
    pub objects: u64,
    /// Rows read.
    pub rows: u64,
    /// Blocks of metrics read; the rows that they count must be those of the index.
    pub blocks: u64,
    /// What is wrong, one entry for each object and sensor.
    pub damages: Vec<Error>,
}
