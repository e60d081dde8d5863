//! What the database knows of its tables beside their readings and their schemas: sensors.

mod columns;
mod filter;
pub mod object;
mod resolve;
mod sensors;
mod stored;
mod tag;

pub use filter::{Case, TagFilter};
pub use sensors::{SensorDictionary, SensorsView};
pub use tag::{SensorTag, TagOrder};
