//! A real server on a free port, and plain sockets as its clients.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test that cannot go on should stop.

mod batches;
mod client;
mod frames;
mod limits;
mod queries;
mod shutdown;
mod telegraf;
mod turns;
mod writes;
