//! Segments: the one file format in which readings lie on storage, sensor by sensor.
//!
//! Run files of the key-value model, short columns and long columns share it; they differ in the
//! time that one file spans and in how hard it is compressed. `docs/format/segment.md` has the
//! history of versions.
//!
//! ```text
//! header   magic "TDFSEGMT", version, table, checksum (see frames/header.rs of ground)
//! pieces   of the first sensor, of the second, ... (see encode.rs)
//! filters  frames: which readings are surely not there, of rows that came late (see filter.rs)
//! index    frames: per chunk sensor, rows, times, bytes of its pages (see index.rs)
//! metrics  frames: per block count, min, max, sum, ... column-wise (see metrics.rs)
//! footer   frame: description as JSON, then a fence for each of these frames
//! tail     where the footer is, checksum, magic "TDFSEGMT" (see frames/tail.rs of ground)
//! ```
//!
//! Of a large segment some of these frames lie between two pieces, where the writer had enough of them.

pub mod encode;
pub(crate) mod filter;
mod index;
pub(crate) mod metrics;
pub(crate) mod numbers;
mod reader;
mod verify;
pub(crate) mod wanted;
mod writer;

pub use index::{Chunk, Fence, IndexBlock};
pub use reader::{Footer, Segment, SegmentCaches, decode_footer};
pub use verify::verify_segment;
pub use writer::SegmentWriter;

use serde::{Deserialize, Serialize};
use tidefall_types::{FieldId, FieldType};

/// What the footer says of a whole segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Its fields and their types.
    pub fields: Vec<(FieldId, FieldType)>,
    /// The interval of its metrics.
    pub block_ns: i64,
    /// Its rows.
    pub rows: u64,
    /// Its sensors.
    pub sensors: u32,
    /// The bytes of each field's texts before they were encoded, which tell readers how long they are. Nothing where
    /// no field is a text, and in segments from before it was noted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub text_bytes: Vec<u64>,
}

#[cfg(test)]
mod tests;
