//! A real server on a free port, and plain sockets as its clients.

mod client;
mod limits;
mod queries;
mod shutdown;
mod telegraf;
mod writes;
