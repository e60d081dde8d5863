//! What the database knows of its tables beside their readings: schemas and sensors.

mod filter;
pub(crate) mod object;
mod resolve;
mod sensors;

pub use filter::{Case, TagFilter};
pub(crate) use sensors::{SensorDictionary, SensorsView};
