//! The network protocols of Tidefall, and the only crate that knows any.
//!
//! ```text
//! connection ── server ── routes ─┬─ write ──── body ── line_protocol ── Db::submit
//!                                 ├─ batches ── body ── arrow_stream ─── Db::write
//!                                 ├─ sql ────── answer ── format        (on a runtime of its own)
//!                                 └─ status     (ping, health, metrics)
//! ```
//!
//! [`Server::bind`] and [`Server::run`], or [`serve`] for both, are the entry. A new endpoint gets
//! its line in `routes.rs`, a handler in a module of its own, and its paragraph in `docs/http.md`.

mod address;
mod admission;
mod answer;
mod app;
mod arrow_stream;
mod batches;
mod body;
mod failure;
mod format;
mod frames;
mod guard;
pub mod line_protocol;
mod metrics;
mod options;
mod parts;
mod routes;
mod server;
mod sql;
mod status;
mod tables;
mod unread;
mod values;
mod write;

pub use options::ServerOptions;
pub use server::{Server, listen, serve, termination};
