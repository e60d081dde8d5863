//! What all handlers share.

use std::time::Duration;

use tidefall_sql::Session;
use tidefall_storage::Db;
use tidefall_types::{Error, Result};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::admission::Admission;
use crate::metrics::Metrics;
use crate::options::ServerOptions;

/// The state of a server.
#[derive(Debug)]
pub(crate) struct App {
    pub db: Db,
    pub session: Session,
    pub options: ServerOptions,
    pub metrics: Metrics,
    pub admission: Admission,
    queries: QueryRuntime,
}

impl App {
    pub(crate) fn new(db: Db, options: ServerOptions) -> Result<Self> {
        Ok(Self {
            session: Session::with_options(db.clone(), db.options()),
            metrics: Metrics::default(),
            admission: Admission::new(&options, db.options().memory_bytes / 2),
            queries: QueryRuntime::start(db.options().threads.max(1))?,
            db,
            options,
        })
    }

    /// Whether answers that are not read should go: others wait for their memory, or the rows that answers hold for their snapshots, and that have left
    /// memory for objects, take more than half of the budget. Writers are slowed for these, but not stopped.
    pub(crate) fn needs_memory_of_answers(&self) -> bool {
        let stats = self.db.stats();
        self.admission.answers.are_waited_for() || stats.retained_bytes > stats.memory_bytes / 2
    }

    /// Where queries run: apart from the connections, so that a query which keeps every core busy
    /// does not hold up writes and health checks.
    pub(crate) fn queries(&self) -> Option<&Handle> {
        self.queries.0.as_ref().map(Runtime::handle)
    }
}

/// How long a thread stays that has nothing to do. An allocator keeps for each what others have freed of its memory, until it ends.
const IDLE_MAX: Duration = Duration::from_millis(300);

/// A runtime that may be dropped inside of another.
#[derive(Debug)]
struct QueryRuntime(Option<Runtime>);

impl QueryRuntime {
    fn start(threads: usize) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("query")
            .thread_keep_alive(IDLE_MAX)
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
