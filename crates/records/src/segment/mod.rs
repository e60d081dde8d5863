//! Segments: packed rows in an object that is written once. `docs/format/records.md` has the history of versions.
//!
//! ```text
//! header   magic "TDFRECRD", version, table, checksum (see frames/header.rs of ground)
//! cells    of each cell its columns, one behind the other, each as pages with their lengths (u32) in front
//! metrics  frame: for each column what its leaves come to (see metrics.rs)
//! index    frame: description as JSON, bytes of each column of each cell, and for each dimension the least and
//!          the greatest ordinals of the leaves
//! tail     where the index is, checksum, magic "TDFRECRD" (see frames/tail.rs of ground)
//! ```
//!
//! Rows of a leaf and of a cell are as many as [`crate::order`] says, but for the last of each.

mod index;
mod reader;
mod verify;
mod writer;

pub use index::Index;
pub use reader::{Caches, Segment};
pub use verify::verify;
pub use writer::{Cell, SegmentSummary, SegmentWriter, encode_cell};

use serde::{Deserialize, Serialize};

use crate::packed::Layout;

/// What the index says of a whole segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Its columns.
    #[serde(flatten)]
    pub layout: Layout,
    /// Its rows.
    pub rows: u64,
    /// Where its cells end, and its metrics begin.
    pub data_end: u64,
}

#[cfg(test)]
mod tests;
