//! The vocabulary that every other crate of Tidefall shares: ids, time, schemas, batches and
//! errors.
//!
//! Nothing here does I/O, reads a clock or draws a random number; those come in through
//! [`Clock`], so that tests decide what time it is.

mod batch;
mod clock;
mod decimals;
mod error;
mod floats;
mod ids;
mod panics;
mod schema;
mod time;

pub use batch::{
    FieldColumn, NO_TAG, RowError, Series, SeriesBatch, TagColumn, WriteBatch, text_bytes,
};
pub use clock::{Clock, ManualClock, SystemClock};
pub use decimals::{EXACT_MAX, POWERS_OF_TEN, nearest_floats};
pub use error::{Error, ErrorKind, Result};
pub use floats::{OneForm, one_form};
pub use ids::{FieldId, ObjectId, Seq, TableId, TagId};
pub use panics::caught;
pub use schema::{
    Column, ColumnKind, DIMENSIONS_MAX, Field, FieldType, TableKind, TableOptions, TableSchema,
    sql_type_name,
};
pub use time::{
    Day, Month, NS_PER_DAY, NS_PER_HOUR, NS_PER_MICRO, NS_PER_MILLI, NS_PER_MINUTE, NS_PER_SECOND,
    TimeRange, format_duration, format_time, parse_duration, parse_time, parse_zoned_time,
};
