//! How many rows of a write took the place of others: counted when it is done, as all writes behind it would wait.
//!
//! 1. The committing thread knows which rows are newer than all of their sensors (`kv/newest.rs`). In the rule all of a
//!    write are, and nothing has to be counted.
//! 2. Otherwise it keeps them, with what readers saw just before of the places where they may lie.
//! 3. Whoever waited for the write looks them up there, and takes note of what readers will ask.

use arrow_buffer::ScalarBuffer;
use tidefall_sync::{Arc, Mutex, PoisonError};
use tidefall_types::Result;

use crate::kv::{Fact, Run};
use crate::read::{Repeats, Sources};

/// What the committing thread keeps of a write whose replaced rows shall be counted, part by part.
#[derive(Debug, Clone, Default)]
pub struct Watch(Arc<Mutex<Vec<Doubtful>>>);

/// Rows that may have taken the place of others, and what was there just before.
#[derive(Debug)]
struct Doubtful {
    sensor: ScalarBuffer<u32>,
    time: ScalarBuffer<i64>,
    /// What is to be known of them.
    facts: Vec<Fact>,
    before: Result<Sources>,
}

impl Watch {
    /// Keeps rows that are not newer than all of their sensors.
    pub(crate) fn keep(&self, run: &Arc<Run>, before: Result<Sources>) {
        let (sensor, time) = (run.sensor.clone(), run.time.clone());
        let facts = run.late.facts().cloned().collect();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(Doubtful { sensor, time, facts, before });
    }

    /// What is to be counted of a write that is done, if anything is.
    pub fn end(&self) -> Option<Uncounted> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (!kept.is_empty()).then(|| Uncounted(std::mem::take(&mut kept)))
    }
}

/// Rows of a write of which it is not known yet how many took the place of others. What they may have replaced stays in
/// memory and on the disk until it is dropped.
#[derive(Debug)]
pub struct Uncounted(Vec<Doubtful>);

impl Uncounted {
    /// How many rows took the place of readings that were there, or of rows before them in their write; none where a
    /// damaged object keeps it from being known. It may read objects, and is not for the thread that commits.
    pub fn count(&self) -> Option<u64> {
        let repeats = |rows: &Doubtful| {
            let before = rows.before.as_ref().map_err(Clone::clone)?;
            let repeats = before.repeats_of_rows(&rows.sensor, &rows.time)?;
            if before.settling.is_some() {
                rows.facts.iter().for_each(|fact| fact.settle(repeats.rows == 0));
            }
            Ok(repeats)
        };
        self.0.iter().map(|rows| rows_of(repeats(rows))).sum()
    }
}

/// A count of rows that are written already, so that only the count can fail.
pub fn rows_of(repeats: Result<Repeats>) -> Option<u64> {
    repeats
        .inspect_err(|error| tracing::warn!(%error, "replaced readings could not be counted"))
        .ok()
        .map(|repeats| repeats.rows)
}
