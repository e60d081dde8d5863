#![allow(clippy::unwrap_used)] // A test that cannot go on should stop.
//! Tests of objects on disks that lose power and fail, and of reads of slow stores.

mod objects;
mod read_ahead;
