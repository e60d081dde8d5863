//! What the caller chooses.

use std::sync::Arc;
use std::time::Duration;

use tidefall_types::{Clock, Error, Result, RowError, SystemClock};

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
}

/// The least memory that a database works with.
pub const MEMORY_BYTES_MIN: usize = 64 << 20;

/// The least [`DbOptions::cascade_pause`]; with less, looking would be all that is done.
pub const CASCADE_PAUSE_MIN: Duration = Duration::from_millis(1);

impl DbOptions {
    /// Refuses what a database cannot work with.
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
        }
    }
}

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ack {
    /// When it is in memory. It is not logged: a crash loses what was written after the last
    /// [`Db::flush`], which makes everything before it durable. A write of many megabytes of texts comes into
    /// memory in parts, which readers may see one by one.
    Memory,
    /// When it is in the log on disk.
    #[default]
    Durable,
}

/// What happens to a batch in which some rows are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BadRows {
    /// Nothing of the batch is written.
    #[default]
    Reject,
    /// The good rows are written, the bad ones reported.
    SetAside,
}

/// What happens when a table, tag or field is named that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unknown {
    /// The write is refused.
    #[default]
    Refuse,
    /// It is created: schema on write.
    Create,
}

/// What a write does with readings that have the tags and the time of one of its rows. A row always takes the place
/// of those before it in its own batch, which counts as replacing, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// It replaces them, field by field.
    #[default]
    Replace,
    /// It replaces them, and says how many. Rows that are newer than all of their sensors cost nothing for that.
    Count,
    /// It is refused if there are any, with `Conflict`; nothing is written then. So that it sees all others, no other write to its
    /// table is on its way from the moment that it is looked at until it is acknowledged.
    Refuse,
}

/// What happens when values of numbers come that do not fit into the type of their field, or values of any type for a field
/// that holds nothing as yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldTypes {
    /// They are bad: a field keeps its type.
    #[default]
    Keep,
    /// The field gets a type that holds them, if what it holds fits, too, and is not too much to be written anew while the
    /// write waits.
    Widen,
}

/// How much may be written anew when a field gets another type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rewriting {
    /// What takes some ten seconds at most.
    Brief,
    /// All that there is.
    All,
}

/// How a batch is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// When the write is acknowledged.
    pub ack: Ack,
    /// What becomes of bad rows.
    pub bad_rows: BadRows,
    /// What becomes of unknown tables, tags and fields.
    pub unknown: Unknown,
    /// What becomes of readings that are there already.
    pub existing: Existing,
    /// What becomes of values that do not fit into the types of their fields.
    pub field_types: FieldTypes,
}

/// What a write did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteReport {
    /// The rows written.
    pub rows: usize,
    /// How many of them took the place of others, where that was asked for with [`Existing::Count`] or
    /// [`Existing::Refuse`]. None also where a damaged object keeps it from being known.
    pub replaced: Option<u64>,
    /// The rows left out, in order; empty unless [`BadRows::SetAside`] was chosen.
    pub bad: Vec<RowError>,
}

/// What `create_table` does when the table exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfExists {
    /// It fails.
    Fail,
    /// It leaves the table as it is.
    Keep,
}

/// How far the cascade shall go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// As far as the ages of the readings ask.
    ByAge,
    /// Everything to short columns at least.
    Short,
    /// Everything to long columns.
    Long,
}

/// A request to let readings fall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CascadeRequest {
    /// One table, or all of them.
    pub table: Option<String>,
    /// How far.
    pub target: Target,
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
