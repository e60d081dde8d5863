//! What the database knows of its tables beside their readings: schemas and sensors.

mod filter;
mod resolve;
mod sensors;

pub use filter::{Case, TagFilter};
pub(crate) use sensors::{SensorDictionary, SensorsView};
