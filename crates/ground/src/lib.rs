//! The common ground: what every kind of table stands on while a database is open. It uses no code of any kind; only the state of the manifest and
//! the heads of objects name what series tables store.
//!
//! From below, on disks and objects (`tidefall-store`): [`wal`] (the log), [`manifest`] (which objects make up the database),
//! [`frames`] (checksummed parts of objects), caches, and the memory budget.

pub mod alarms;
pub mod cache;
pub mod claims;
pub mod convert;
mod drawn;
pub mod failure;
pub mod frames;
pub mod gate;
pub mod ground;
pub mod held;
pub mod kept;
pub mod manifest;
pub mod memory;
pub mod obsolete;
pub mod options;
pub mod pace;
pub mod parallel;
pub mod report;
pub mod search;
pub mod steps;
pub mod texts;
pub mod tries;
pub mod turns;
pub mod wal;
pub mod worked;
pub mod written;

pub use ground::Ground;
