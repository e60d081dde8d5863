//! What columns in memory take.

use arrow_array::{Array, ArrayRef};
use arrow_schema::ArrowError;
use tidefall_types::{Error, Result};

/// The bytes that the rows of a column take. A slice counts as what it shows: all slices of a column together are
/// then as much as the column.
pub fn size_bytes(column: &dyn Array) -> usize {
    let data = column.to_data();
    data.get_slice_memory_size().unwrap_or_else(|_| column.get_buffer_memory_size())
}

/// A column that shows less than one part in so many of the memory that it keeps is copied before it is kept.
const KEPT_MAX: usize = 2;
/// So little may always be kept in vain: buffers are made in steps of some size.
const KEPT_BYTES_MIN: usize = 4 << 10;

/// Whether so many bytes that are needed keep too many others.
pub fn keeps_too_much(bytes: usize, kept_bytes: usize) -> bool {
    kept_bytes > KEPT_MAX * bytes + KEPT_BYTES_MIN
}

/// A column without the memory of a larger one of which it is a slice.
///
/// # Errors
/// None that is known.
pub fn compact(column: ArrayRef) -> Result<ArrayRef> {
    if !keeps_too_much(size_bytes(&column), column.get_buffer_memory_size()) {
        return Ok(column);
    }
    // A single array would come back as it is.
    let nothing = column.slice(0, 0);
    arrow_select::concat::concat(&[&*nothing, &*column]).map_err(arrow_error)
}

/// An error of Arrow's kernels, which only a bug or exhausted offsets can cause here.
pub fn arrow_error(error: ArrowError) -> Error {
    Error::limit(format!("columns cannot be put together: {error}"))
}
