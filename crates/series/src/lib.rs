//! Series tables: readings move through three storage models as they age, and are read through one merged view.
//!
//! ```text
//! rows ── ingest ── (log) ── kv (memory) ──┐
//!                              │ cascade    │
//!                            short          ├── read ── TableSnapshot
//!                              │ cascade    │
//!                            long ──────────┘
//! ```
//!
//! What a database asks of each kind of table, and where it is answered here:
//!
//! | question | answer |
//! |---|---|
//! | open what the manifest names | [`open`] |
//! | apply a change; a record of the log | [`change`]; [`replay`] |
//! | the oldest record still needed, what the log alone holds | [`table::Table::oldest_seq`], [`install`] |
//! | flush, and the next step of upkeep | [`cascade`], [`upkeep`] |
//! | show one moment | [`read::TableSnapshot`] |
//! | verify, report | [`verify`], [`report`] |

pub mod cascade;
pub mod catalog;
pub mod change;
pub mod context;
pub mod failed;
pub mod ingest;
pub mod install;
pub mod kv;
pub mod open;
pub mod read;
pub mod replay;
pub mod report;
mod rest;
pub mod rows;
pub mod segment;
pub mod table;
pub mod uncounted;
pub mod upkeep;
pub mod verify;

pub use context::Context;
pub use table::Table;
