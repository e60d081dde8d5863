#![allow(clippy::unwrap_used)] // A test that cannot go on should stop.
//! Tests of the engine through its public face.

mod model;
mod recovery;
