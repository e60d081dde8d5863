//! The one way out: a merged view of everything that holds readings.
//!
//! A reader takes a [`TableSnapshot`]. `parts.rs` finds where a sensor's rows lie, `merge.rs` lays
//! them together, `scan.rs` and `aggregate.rs` answer questions with them.

mod accumulate;
mod aggregate;
mod merge;
mod parts;
mod prune;
mod request;
mod scan;
mod snapshot;

pub use aggregate::AggregatePlan;
pub use request::{
    AggregateRequest, AggregateResult, BATCH_ROWS, Bin, Comparison, FieldMetrics, ReadStats,
    RowBatch, ScanRequest, ValueCondition,
};
pub use scan::Scan;
pub use snapshot::{SensorSeries, TableSnapshot};

pub(crate) use merge::SensorStream;
pub(crate) use parts::{Fetched, LiveObject, LiveTombstone, Sources};
