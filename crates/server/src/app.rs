//! What all handlers share.

use std::sync::Arc;

use tidefall_sql::Session;
use tidefall_storage::Db;
use tidefall_types::{Error, Result};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;

use crate::metrics::Metrics;
use crate::options::ServerOptions;

/// The state of a server.
#[derive(Debug)]
pub(crate) struct App {
    pub db: Db,
    pub session: Session,
    pub options: ServerOptions,
    pub metrics: Metrics,
    /// One permit a request.
    pub requests: Arc<Semaphore>,
    /// One permit for each KiB of a body in memory.
    pub bodies: Arc<Semaphore>,
    /// One permit a query that is computed; who waits gets one in turn.
    pub queries_free: Arc<Semaphore>,
    queries: QueryRuntime,
}

impl App {
    pub(crate) fn new(db: Db, options: ServerOptions) -> Result<Self> {
        let bodies_bytes = options.bodies_bytes_max.max(options.body_bytes_max.saturating_mul(2));
        Ok(Self {
            session: Session::with_options(db.clone(), db.options()),
            metrics: Metrics::default(),
            requests: Arc::new(Semaphore::new(options.requests_max.min(Semaphore::MAX_PERMITS))),
            bodies: Arc::new(Semaphore::new(kib(bodies_bytes) as usize)),
            queries_free: Arc::new(Semaphore::new(
                options.queries_max.clamp(1, Semaphore::MAX_PERMITS),
            )),
            queries: QueryRuntime::start(db.options().threads.max(1))?,
            db,
            options,
        })
    }

    /// Where queries run: apart from the connections, so that a query which keeps every core busy
    /// does not hold up writes and health checks.
    pub(crate) fn queries(&self) -> Option<&Handle> {
        self.queries.0.as_ref().map(Runtime::handle)
    }
}

/// Bytes in KiB, rounded up.
pub(crate) fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

/// A runtime that may be dropped inside of another.
#[derive(Debug)]
struct QueryRuntime(Option<Runtime>);

impl QueryRuntime {
    fn start(threads: usize) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("query")
            .enable_all()
            .build()
            .map_err(|error| Error::io("starting the threads for queries", &error))?;
        Ok(Self(Some(runtime)))
    }
}

impl Drop for QueryRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
