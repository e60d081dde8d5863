//! Which objects make up the database: a numbered log of changes on storage.

mod certain;
pub mod log;
pub mod object;
pub mod reached;
pub mod records;
pub mod series;
mod state;

pub use state::{Edit, Flushed, OBSOLETE_NS, OfKind, State, TableState, Tombstone};
