//! The way in for rows: validate, find sensors, log, make visible.
//!
//! 1. `prepare.rs` turns a [`tidefall_types::WriteBatch`] into rows with sensor ids, and sets bad
//!    rows aside.
//! 2. `record.rs` writes them as a record of the log.
//! 3. The database orders the writes of all threads, lets those that wait together share one
//!    fsync, and then makes them visible in that order.

mod prepare;
pub mod record;

pub use prepare::{
    Prepared, all_fit, coerce, order_series, recast, refuse_long_tags, sensors_of_rows, tag_value,
    unknown_column, without_rows,
};
pub use prepare::{TAG_BYTES_MAX, TAGS_BYTES_MAX};
