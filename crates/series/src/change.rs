//! What changes a table: in the order of writes, one after the other.

use std::sync::Arc;

use tidefall_sync::atomic::{AtomicBool, Ordering};
use tidefall_types::{Result, Seq, TimeRange};

use crate::ingest::Prepared;
use crate::kv::Run;
use crate::read::LiveTombstone;
use crate::table::Table;
use crate::uncounted::Watch;

/// A change of a table.
pub enum Change {
    /// Rows become visible.
    Rows(Prepared),
    /// Nothing; the place among the writes is for columns that go straight to objects. What was
    /// written before is kept apart from what comes later.
    Mark(Mark),
    /// Rows disappear; the tombstone's place among the writes is set when it is made.
    Delete(LiveTombstone),
}

/// Rows that go straight to objects.
#[derive(Debug, Clone)]
pub struct Mark {
    /// When they lie.
    pub(crate) time: TimeRange,
    /// Told whether all of them are newer than all that was written before.
    pub(crate) are_new: Arc<AtomicBool>,
}

impl Default for Mark {
    /// No rows.
    fn default() -> Self {
        Self { time: TimeRange::new(0, -1), are_new: Arc::default() }
    }
}

impl Change {
    /// The bytes of its rows.
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.size_bytes(),
            Self::Mark(_) | Self::Delete(_) => 0,
        }
    }
}

/// Makes a change visible, and returns the bytes that it added to memory.
///
/// # Errors
/// When rows in memory cannot be laid together.
pub fn apply(table: &Table, seq: Seq, change: Change, watch: Option<&Watch>) -> Result<usize> {
    match change {
        Change::Mark(mark) => {
            table.live().seal()?;
            let are_new = table.newest().take_all_within(&mark.time);
            mark.are_new.store(are_new, Ordering::Release);
            Ok(0)
        }
        Change::Rows(rows) if rows.time.is_empty() => Ok(0),
        Change::Rows(rows) => {
            let mut run = Run::new((seq, seq), rows.sensor, rows.time, rows.fields);
            if let Some(order) = rows.order {
                run = run.with_order(order);
            }
            // Late rows that a flush will leave in memory are apart from those that it takes.
            let late = table.newest().take(&run, table.kv_ns.load(Ordering::Relaxed));
            let run = run.with_late(late);
            let watch = watch.filter(|_| !run.is_distinct(&TimeRange::ALL));
            let watched = watch.map(|watch| (watch, table.sources_near(&run)));
            let bytes = run.size_bytes;
            let run = table.live().push(run)?;
            if let Some((watch, before)) = watched {
                watch.keep(&run, before);
            }
            Ok(bytes)
        }
        Change::Delete(mut tombstone) => {
            tombstone.seq = seq;
            let mut live = table.live();
            live.seal()?;
            live.lose(&tombstone.time);
            table.change_version(&mut live, |version| version.add_delete(tombstone));
            Ok(0)
        }
    }
}
