//! What every request passes: limits, the checks of host and origin, the log line and the metrics.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use tidefall_types::Error;
use tracing::field::display;

use crate::app::App;
use crate::failure::{Dialect, Failure, Reason};
use crate::metrics::Route;

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client(pub SocketAddr);

/// Passes a request on, and accounts for it.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let start = Instant::now();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let client = request.extensions().get::<Client>().map(|client| display(client.0));
    let route = Route::of_path(&path);
    let response = match pass(&app, route, request, next).await {
        Ok(response) => response,
        Err(failure) => failure.into_response(Dialect::of_path(&path)),
    };
    let (status, time) = (response.status(), start.elapsed());
    app.metrics.request_done(route, status, time);
    let time_us = time.as_micros() as u64;
    match response.extensions().get::<Reason>() {
        Some(Reason { kind, message }) => {
            app.metrics.failed(*kind);
            let (status, kind) = (status.as_u16(), kind.name());
            let reason = message.lines().next().unwrap_or_default();
            tracing::warn!(%method, path, client, status, kind, reason, time_us, "request failed");
        }
        None => tracing::debug!(%method, path, status = status.as_u16(), time_us, "request"),
    }
    response
}

async fn pass(
    app: &Arc<App>,
    route: Route,
    mut request: Request,
    next: Next,
) -> Result<Response, Failure> {
    check_host(app, request.headers())?;
    check_origin(request.headers())?;
    // Whoever watches over the server must get an answer most of all when it is busy.
    if route.needs_place() {
        // Handlers whose answer outlives them take it out of the request's extensions.
        request.extensions_mut().insert(app.admission.permit()?);
    }
    let time_max = app.options.request_time_max;
    tokio::time::timeout(time_max, next.run(request)).await.map_err(|_| {
        Failure::busy(format!("the request took longer than {} s", time_max.as_secs_f64()))
    })
}

/// Refuses names that are not of this machine while the server is for this machine only: the name of
/// a web page may have been made to point here, which makes all of this one origin for a browser.
fn check_host(app: &App, headers: &HeaderMap) -> Result<(), Failure> {
    let address = app.options.address.ip();
    let Some(host) = headers.get(HOST).filter(|_| address.is_loopback()) else { return Ok(()) };
    let authority = Authority::try_from(host.as_bytes());
    let name = authority.as_ref().map(Authority::host).unwrap_or_default();
    let is_ours = |ip: IpAddr| {
        [address, Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()].contains(&ip)
    };
    let ip = name.trim_start_matches('[').trim_end_matches(']').parse();
    if name.eq_ignore_ascii_case("localhost") || ip.is_ok_and(is_ours) {
        return Ok(());
    }
    let error = Error::invalid(format!(
        "the server listens on {address} only and is not called {name:?}: ask for localhost"
    ));
    Err(Failure::new(StatusCode::FORBIDDEN, &error))
}

/// Refuses what a web page of another origin makes a browser send: without passwords, being on
/// this machine would otherwise be enough for any page to read and delete.
fn check_origin(headers: &HeaderMap) -> Result<(), Failure> {
    let text = |value: &axum::http::HeaderValue| value.to_str().map(str::to_owned).ok();
    let fetch_site = headers.get("sec-fetch-site").and_then(text);
    let is_foreign = match (fetch_site.as_deref(), headers.get(ORIGIN).and_then(text)) {
        (Some("cross-site" | "same-site"), _) => true,
        (_, Some(origin)) => {
            let host = headers.get(HOST).and_then(text).unwrap_or_default();
            origin.split_once("://").is_none_or(|(_, authority)| authority != host)
        }
        _ => false,
    };
    if is_foreign {
        let error = Error::invalid("requests from web pages of another origin are refused");
        return Err(Failure::new(StatusCode::FORBIDDEN, &error));
    }
    Ok(())
}
