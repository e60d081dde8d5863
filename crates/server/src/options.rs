//! What the caller chooses.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The port that the server listens on unless told otherwise.
const DEFAULT_PORT: u16 = 8527;

/// How the server is reached, and what it grants its clients.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Where it listens. The default is this machine only: there is no access control yet.
    pub address: SocketAddr,
    /// Bytes of a request's body at most, before and after it is unpacked.
    pub body_bytes_max: usize,
    /// Bytes of all bodies in memory at one time; requests beyond wait for their turn. At least
    /// one body of `body_bytes_max` always fits, packed and unpacked.
    pub bodies_bytes_max: usize,
    /// How long the next bytes of a body may take to come, and how long a request may wait for memory for its body.
    pub body_pause_max: Duration,
    /// Connections at one time; further ones wait to be accepted.
    pub connections_max: usize,
    /// Requests that are worked on at one time; further ones are answered with status 503.
    pub requests_max: usize,
    /// Queries that are computed at one time. More of them wait, in the order in which they came; one whose answer is not
    /// read waits for its reader, and is not counted.
    pub queries_max: usize,
    /// How long a query may wait until it is computed; then it is answered with status 503.
    pub query_wait_max: Duration,
    /// How long a request may take, its answer included.
    pub request_time_max: Duration,
    /// How long running requests may go on after the server was told to stop.
    pub shutdown_time_max: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)),
            body_bytes_max: 64 << 20,
            bodies_bytes_max: 128 << 20,
            body_pause_max: Duration::from_secs(10),
            connections_max: 4_096,
            requests_max: 1_024,
            // Each of them uses all cores when it can, and a part of the memory of queries.
            queries_max: 16,
            query_wait_max: Duration::from_secs(30),
            request_time_max: Duration::from_secs(300),
            shutdown_time_max: Duration::from_secs(10),
        }
    }
}
