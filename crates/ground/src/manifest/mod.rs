//! Which objects make up the database: a numbered log of changes on storage.

mod certain;
pub mod log;
pub mod reached;
mod state;

pub use state::Model;
pub use state::{
    Edit, Flushed, OBSOLETE_NS, ObjectEntry, SensorObject, State, TableState, Tombstone,
};
