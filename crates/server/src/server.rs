//! Connections: accepting them, and ending them in good order.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tidefall_storage::Db;
use tidefall_types::{Error, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::app::App;
use crate::guard::Client;
use crate::options::ServerOptions;
use crate::routes;
use crate::unread::Watched;

/// How long a client may take to send the head of a request; a slower one holds a connection for
/// nothing.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);

/// Bytes that the operating system holds of an answer and has not sent, about.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 128 << 10;

/// The pause after an `accept` that failed, for instance because no file handle was free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A server that listens, and answers once it [runs](Server::run).
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    app: Arc<App>,
}

impl Server {
    /// Listens on the address of `options`; port 0 takes any free one.
    ///
    /// # Errors
    /// `Io` when the address cannot be listened on.
    pub async fn bind(db: Db, options: ServerOptions) -> Result<Self> {
        let listener = listen(options.address).await?;
        Self::new(listener, db, options)
    }

    /// Answers at a listener that is there already, whose address takes the place of that in `options`.
    ///
    /// # Errors
    /// `Io` when the operating system does not tell the address, or grants no threads.
    pub fn new(listener: TcpListener, db: Db, mut options: ServerOptions) -> Result<Self> {
        options.address = address_of(&listener)?;
        Ok(Self { listener, app: Arc::new(App::new(db, options)?) })
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// `Io` when the operating system does not tell.
    pub fn address(&self) -> Result<SocketAddr> {
        address_of(&self.listener)
    }

    /// Answers requests until `shutdown` is ready; then stops accepting, lets running requests
    /// finish as long as the options grant, and closes the database.
    ///
    /// # Errors
    /// Those of [`Db::close`].
    pub fn run<'a>(
        self,
        shutdown: impl Future<Output = ()> + Send + 'a,
    ) -> BoxFuture<'a, Result<()>> {
        self.run_until(Box::pin(shutdown))
    }

    // Boxed here, so that callers do not compile the server again.
    fn run_until<'a>(self, shutdown: BoxFuture<'a, ()>) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.answer_until(shutdown))
    }

    async fn answer_until(self, mut shutdown: BoxFuture<'_, ()>) -> Result<()> {
        let Self { listener, app } = self;
        let router = routes::router(Arc::clone(&app));
        let free = Arc::new(Semaphore::new(app.options.connections_max));
        let graceful = GracefulShutdown::new();
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(_) = connections.join_next() => {}
                (stream, client, permit) = accept(&listener, &free) => {
                    let stream = Watched::new(stream, Arc::clone(&app));
                    let connection = connection(stream, Answering::new(&router, client));
                    let watched = graceful.watch(connection);
                    connections.spawn(async move {
                        let _permit = permit;
                        if let Err(error) = watched.await {
                            tracing::debug!(%error, "a connection broke");
                        }
                    });
                }
            }
        }
        drop(listener);
        let open = connections.len();
        tracing::info!(open, "stopping: no new connections, finishing running requests");
        let grace = app.options.shutdown_time_max;
        if tokio::time::timeout(grace, graceful.shutdown()).await.is_err() {
            tracing::warn!(?grace, "some requests did not finish in time and are cut off");
            connections.shutdown().await;
        }
        let (db, (closed, end)) = (app.db.clone(), oneshot::channel());
        // A thread of its own: all others may be those of writes that wait for memory, until they hear of the close.
        let close = move || closed.send(db.close());
        let named = std::thread::Builder::new().name("tidefall-close".into());
        named.spawn(close).map_err(|error| Error::io("starting a thread", &error))?;
        end.await.map_err(|_| Error::closed("closing the database did not finish"))?
    }
}

/// Listens on an address, for [`Server::new`]: connections wait until the server runs.
///
/// # Errors
/// `Io` when the address cannot be listened on.
pub async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|error| Error::io(format_args!("listening on {address}"), &error))
}

fn address_of(listener: &TcpListener) -> Result<SocketAddr> {
    listener.local_addr().map_err(|error| Error::io("asking for the address", &error))
}

/// Binds, and runs until `shutdown` is ready.
///
/// # Errors
/// Those of [`Server::bind`] and [`Server::run`].
pub async fn serve(
    db: Db,
    options: ServerOptions,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<()> {
    let server = Server::bind(db, options).await?;
    tracing::info!(address = %server.address()?, "listening");
    server.run(shutdown).await
}

/// Ready when the process is asked to stop: by SIGTERM, or by SIGINT (Ctrl-C).
pub async fn termination() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        }
        Err(error) => {
            tracing::warn!(%error, "SIGTERM cannot be waited for; only Ctrl-C stops the server");
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}

async fn accept(
    listener: &TcpListener,
    free: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, Option<OwnedSemaphorePermit>) {
    let permit = Arc::clone(free).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                // Answers are written whole; waiting to fill a packet only delays them.
                let _ = stream.set_nodelay(true);
                // Or a socket that was full says for seconds that it takes nothing, while its client reads.
                #[cfg(target_os = "linux")]
                let _ = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES);
                return (stream, client, permit);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Answers the requests of one client, and tells the handlers who that is.
struct Answering {
    router: TowerToHyperService<Router>,
    client: Client,
}

impl Answering {
    fn new(router: &Router, client: SocketAddr) -> Self {
        Self { router: TowerToHyperService::new(router.clone()), client: Client(client) }
    }
}

impl Service<Request<Incoming>> for Answering {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.client);
        self.router.call(request)
    }
}

type Connection = http1::Connection<TokioIo<Watched>, Answering>;

fn connection(stream: Watched, answering: Answering) -> Connection {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .serve_connection(TokioIo::new(stream), answering)
}
