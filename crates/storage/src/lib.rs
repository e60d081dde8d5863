//! The database: opens, recovers, orders writes, schedules upkeep and hands out snapshots of tables of every kind.
//!
//! [`Db`] is the entry. Below it stand the kinds of tables, each a crate of its own (`tidefall-series`), the common ground
//! (`tidefall-ground`): the log, the manifest, the memory budget; and disks and objects ([`store`]).

mod begin;
mod commit;
mod db;
mod engine;
mod follower;
mod inspect;
mod lacking;
mod options;
mod read_only;
mod records;
mod recovery;
mod repair;
mod retype;
mod table;
mod upkeep;
mod verify;
mod write;

pub use db::Db;
pub use inspect::{Stats, Work};
pub use options::{
    Ack, BadRows, CascadeRequest, Existing, FieldTypes, IfExists, Rewriting, Unknown, WriteOptions,
    WriteReport,
};
pub use repair::{Loss, Repair, RepairReport};
pub use table::Snapshot;
pub use tidefall_ground::manifest::series::Model;
pub use tidefall_ground::memory::{BACKLOG_FREE, BACKLOG_MAX};
pub use tidefall_ground::options::{
    CASCADE_PAUSE_MIN, CascadeReport, DbOptions, MEMORY_BYTES_MIN, MissingLog, VerifyReport,
};
pub use tidefall_ground::parallel::{cores, spread, threads_for};
pub use tidefall_ground::report::{ModelReport, SegmentsReport, TableReport};
pub use tidefall_records as record_tables;
pub use tidefall_records::snapshot::RecordsSnapshot;
pub use tidefall_series::cascade::Target;
pub use tidefall_series::catalog::{Case, SensorTag, TagFilter, TagOrder};
pub use tidefall_series::ingest::{TAG_BYTES_MAX, TAGS_BYTES_MAX};
pub use tidefall_series::read::{
    AggregatePlan, AggregateRequest, AggregateResult, BATCH_ROWS, Bin, Comparison, Extreme,
    FieldMetrics, Frame, Keep, LateCondition, ReadStats, RowBatch, Scan, ScanRequest, SensorSeries,
    SensorValues, Sensors, TableSnapshot, TimeOrder, ValueCondition, union_of_times, whole_sum,
};
pub use tidefall_series::uncounted::Uncounted;
pub use tidefall_store as store;
