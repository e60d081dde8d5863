//! The engine of Tidefall: readings fall through three storage models as they age, and are read
//! through one merged view.
//!
//! ```text
//! Db::write ── ingest ── wal ── kv (memory) ──┐
//!                                 │ cascade    │
//!                               short          ├── read ── TableSnapshot
//!                                 │ cascade    │
//!                               long ─────────┘
//! ```
//!
//! [`Db`] is the entry. Modules stand in the order in which data flows.

mod cache;
mod cascade;
mod catalog;
mod claims;
mod db;
mod engine;
mod failed;
mod follower;
#[doc(hidden)]
pub mod fuzz;
mod gate;
mod graveyard;
mod ingest;
mod inspect;
mod kv;
mod lacking;
mod manifest;
mod options;
mod panics;
mod parallel;
mod read;
mod read_only;
mod recovery;
mod repair;
mod retype;
mod rows;
mod search;
mod segment;
mod steps;
pub mod store;
mod table;
mod texts;
mod uncounted;
mod upkeep;
mod verify;
mod wal;
mod write;
mod written;

pub use catalog::{Case, SensorTag, TagFilter, TagOrder};
pub use db::Db;
pub use ingest::{TAG_BYTES_MAX, TAGS_BYTES_MAX};
pub use inspect::{ModelReport, Stats, TableReport, Work};
pub use manifest::Model;
pub use options::{
    Ack, BadRows, CASCADE_PAUSE_MIN, CascadeReport, CascadeRequest, DbOptions, Existing,
    FieldTypes, IfExists, MEMORY_BYTES_MIN, Rewriting, Target, Unknown, VerifyReport, WriteOptions,
    WriteReport,
};
pub use parallel::{cores, spread, threads_for};
pub use read::{
    AggregatePlan, AggregateRequest, AggregateResult, BATCH_ROWS, Bin, Comparison, Extreme,
    FieldMetrics, Frame, Keep, LateCondition, ReadStats, RowBatch, Scan, ScanRequest, SensorSeries,
    SensorValues, Sensors, TableSnapshot, TimeOrder, ValueCondition, union_of_times,
};
pub use repair::{Loss, Repair, RepairReport};
pub use uncounted::Uncounted;
