//! Pages: columns in, checksummed bytes out, and back. No I/O.
//!
//! A page holds up to [`MAX_PAGE_ROWS`] values of one type, compressed in the way that suits them
//! best. It describes itself, and every damage to it is a `Corrupt` error.
//!
//! ```text
//! page:    codec u8      how the values are stored (Codec)
//!          flags u8      bits 0..3 type of the values, bits 4..7 form of the validity
//!          checksum u32  CRC-32C over all other bytes of the page
//!          rows varint
//!          nulls varint  if the form of the validity is not 0 (all rows have a value)
//!          bytes varint  of validity and values
//!          validity      see validity.rs
//!          values        of the rows that have one; see numeric.rs, decimal.rs, dictionary.rs, ints.rs,
//!                        planes.rs, text.rs
//! ```
//! Numbers are little-endian; a varint is LEB128, and *signed* a varint after zig-zag. Truth values are
//! stored as 8-bit integers 0 and 1. `docs/format/page.md` has the same with history and measurements.

mod bits;
mod builder;
mod bytes;
mod decimal;
mod dictionary;
mod encode;
mod heavy;
mod ints;
mod numeric;
mod page;
mod planes;
mod profile;
mod sample;
mod search;
mod stream;
mod text;
mod trial;
mod validity;
mod value;

#[cfg(test)]
mod tests;

pub use builder::{ColumnBuilder, decode_into, decode_page, decode_rows_into};
pub use encode::{encode_page, encode_slice, encode_with_each};
pub use page::{Codec, PageInfo, check_page, page_info, repair_checksum};
pub use profile::{MAX_PAGE_ROWS, Profile};
pub use search::find_ascending;
pub use value::{Number, PageValue};
