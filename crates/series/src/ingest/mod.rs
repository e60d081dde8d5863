//! The way in for rows: validate, find sensors, log, make visible.
//!
//! 1. `prepare.rs` turns a [`tidefall_types::WriteBatch`] into rows in the types of their fields (`convert.rs` of ground),
//!    `sensors.rs` finds their sensors; bad rows are set aside.
//! 2. `record.rs` writes them as a record of the log.
//! 3. The database orders the writes of all threads, lets those that wait together share one
//!    fsync, and then makes them visible in that order.

mod prepare;
pub mod record;
mod sensors;

pub use prepare::{Prepared, coerce, order_series, unknown_column, without_rows};
pub use sensors::{TAG_BYTES_MAX, TAGS_BYTES_MAX, refuse_long_tags, sensors_of_rows, tag_value};
