//! What changes a table: in the order of writes, one after the other.

use tidefall_types::{Result, Seq};

use crate::deletes::Delete;
use crate::region::Regions;
use crate::table::{Rows, Table};

/// A change of a table.
#[derive(Debug)]
pub enum Change {
    /// Rows become visible.
    Rows(Rows),
    /// Nothing; the place among the writes is for rows that go straight to segments, or for a delete that is known. What was written before is kept
    /// apart from what comes later.
    Mark,
    /// What is in these boxes disappears.
    Delete(Regions),
}

impl Change {
    /// The bytes of its rows.
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.size_bytes(),
            Self::Mark | Self::Delete(_) => 0,
        }
    }
}

/// Makes a change visible, and returns the bytes that it added to memory.
///
/// # Errors
/// When rows in memory cannot be laid together.
pub fn apply(table: &Table, seq: Seq, change: Change) -> Result<usize> {
    let mut live = table.live();
    match change {
        Change::Mark => live.seal(&table.version()).map(|()| 0),
        Change::Rows(rows) if rows.is_empty() => Ok(0),
        Change::Rows(rows) => {
            let version = table.version();
            live.push(seq, rows, &version)
        }
        Change::Delete(regions) => {
            // What comes behind it must be apart from what it hides.
            live.seal(&table.version())?;
            table.change_version(&mut live, |version| version.add_delete(Delete { seq, regions }));
            Ok(0)
        }
    }
}
