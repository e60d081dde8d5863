//! The network protocols of Tidefall, and the only crate that knows any.

pub mod line_protocol;
