//! The one way out: a merged view of everything that holds readings.
//!
//! A reader takes a [`TableSnapshot`]. `parts.rs` finds where a sensor's rows lie, `deletes.rs` what is hidden of
//! them, `merge.rs` lays them together. Questions are answered by `scan.rs` (rows), `series.rs` (columns of a sensor),
//! `frame.rs` and `align.rs` (sensors side by side), `point.rs` and `extreme.rs` (one value a sensor)
//! and `aggregate.rs`, which `shares.rs` spreads over threads and for which `sweep.rs` adds what blocks of many sensors
//! say, and `walk.rs` finds what answers for whole sensors.
//! `repeats.rs` tells a write which readings it replaces, `settle.rs` whether late rows in memory do. `fetch.rs` reads ahead, `chunk.rs` decodes.

mod accumulate;
mod aggregate;
mod align;
mod bin;
mod buffer;
mod chunk;
mod deletes;
mod estimate;
mod extreme;
mod fetch;
mod frame;
mod huge;
mod late_rows;
mod merge;
mod near;
mod objects;
mod parts;
mod point;
mod prune;
mod repeats;
mod request;
mod scan;
mod sensors;
mod series;
mod settle;
mod shares;
mod snapshot;
mod split;
mod stretches;
mod sums;
mod sweep;
mod totals;
mod version;
mod walk;
mod whole_runs;
mod widths;

pub use aggregate::AggregatePlan;
pub use align::union_of_times;
pub use bin::Bin;
pub use extreme::Extreme;
pub use frame::{Frame, Keep};
pub use point::SensorValues;
pub use request::{
    AggregateRequest, AggregateResult, BATCH_ROWS, Comparison, FieldMetrics, LateCondition,
    ReadStats, RowBatch, ScanRequest, TimeOrder, ValueCondition,
};
pub use scan::Scan;
pub use sensors::Sensors;
pub use series::SensorSeries;
pub use snapshot::TableSnapshot;

pub use crate::segment::numbers::whole_sum;

pub use deletes::{Deletes, LiveTombstone};
pub use fetch::Fetched;
pub use merge::SensorStream;
pub use objects::{LiveObject, Objects};
pub use parts::{Part, Sources};
pub use repeats::Repeats;
pub use version::Version;
