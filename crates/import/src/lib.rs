//! CSV, Parquet and Arrow files in, [`WriteBatch`](tidefall_types::WriteBatch)es out.
//!
//! - [`open_csv`] and [`read_csv`] read CSV, plain or compressed, on several threads; what a file
//!   does not say about itself is inferred from its beginning and can be read in
//!   [`CsvReader::schema`].
//! - [`open_columnar`] reads Parquet and Arrow.
//! - [`Descriptor`] says what rows of bytes are.
//! - [`look_together`] finds the types that hold the values of several files.
//! - [`batch_from_arrow`] turns an Arrow record batch into a write batch; data frames and
//!   Arrow over HTTP come in through it.
//!
//! Rows that cannot be taken are set aside as [`BadLine`]s and never stop the rows beside them.
//! Nothing here knows the storage.

mod arrow;
mod columnar;
mod csv;
mod descriptor;
mod input;
mod ipc;
mod local;
mod options;
mod retype;
mod tags;
mod together;
mod zone;

pub use arrow::{ArrowOptions, batch_from_arrow, columns_from_arrow, unshared_bytes};
pub use columnar::{ColumnarOptions, ColumnarReader, is_columnar, open_columnar};
pub use csv::{CsvReader, CsvSchema, TimeFormat, TimeUnit, open_csv, read_csv};
pub use descriptor::Descriptor;
pub use input::Input;
pub use options::{CsvOptions, Header, Layout, TimeSource, WIDE_FIELD};
pub use together::{Together, look_together};
pub use zone::LocalZone;

use std::ops::RangeInclusive;

use tidefall_types::{Error, WriteBatch};

/// A row of the input that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// The line on which the record starts, counted from 1; in Parquet and Arrow the row,
    /// counted from 1.
    pub line: u64,
    /// The record as it stands in the file, cut to a bounded length; empty for Parquet
    /// and Arrow.
    pub text: String,
    /// Why it was not taken: the column, the text, and what was expected.
    pub reason: Error,
}

/// A piece of the input, in the order of the file.
#[derive(Debug, Clone)]
pub struct ParsedBatch {
    /// The good rows.
    pub batch: WriteBatch,
    /// The rows that were set aside, in the order of the file.
    pub bad: Vec<BadLine>,
    /// The first and the last line of this piece, counted from 1; in Parquet and Arrow rows.
    pub lines: RangeInclusive<u64>,
    /// Records whose time clocks showed twice in the zone that was told, as they went back; the first of both is taken.
    pub twice: u64,
    /// Bytes of the file that were read so far, as stored (compressed when it is compressed).
    pub bytes_read: u64,
}
