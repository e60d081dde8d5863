//! Which objects make up the database: a numbered log of changes on storage.

pub(crate) mod log;
pub(crate) mod reached;
mod state;

pub use state::Model;
pub(crate) use state::{
    Drained, Edit, GRAVE_NS, ObjectEntry, SensorObject, State, TableState, Tombstone,
};
