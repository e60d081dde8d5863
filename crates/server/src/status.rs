//! How the server is doing, for people, probes and Prometheus.

use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::header::{CONTENT_TYPE, HeaderMap};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tidefall_types::Error;

use crate::app::App;
use crate::failure::{Dialect, Failure};

/// What clients of InfluxDB are told: a version whose protocol is spoken here, and who speaks.
const INFLUX_VERSION: &str = concat!("1.8.0-tidefall-", env!("CARGO_PKG_VERSION"));

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn add_influx_headers(headers: &mut HeaderMap) {
    headers.insert("x-influxdb-version", HeaderValue::from_static(INFLUX_VERSION));
    headers.insert("x-influxdb-build", HeaderValue::from_static("Tidefall"));
}

/// `GET` and `HEAD /ping`: 204, or 200 with the version when `verbose=true` is asked for.
pub(crate) async fn ping(RawQuery(query): RawQuery) -> Response {
    let is_verbose = query.unwrap_or_default().split('&').any(|pair| pair == "verbose=true");
    let mut response = if is_verbose {
        Json(json!({ "version": INFLUX_VERSION })).into_response()
    } else {
        StatusCode::NO_CONTENT.into_response()
    };
    add_influx_headers(response.headers_mut());
    response
}

/// `GET /health`: 200 while writes are taken, 503 when they are refused.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Response {
    let (code, status, message) = if app.db.stats().is_failed {
        let message = "writes are refused after a failure of the disk; restart the server";
        (StatusCode::SERVICE_UNAVAILABLE, "fail", message)
    } else {
        (StatusCode::OK, "pass", "ready for queries and writes")
    };
    let body = json!({
        "name": "tidefall", "version": VERSION, "status": status, "message": message,
    });
    (code, Json(body)).into_response()
}

/// `GET /metrics`, in the text format of Prometheus.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    // Footers of objects may be read for it. All threads that may block may be those of writes that wait, but for those of queries.
    let Some(queries) = app.queries().cloned() else {
        return Failure::from(Error::closed("the server stops")).into_response(Dialect::Tidefall);
    };
    let render = move || app.metrics.render(&app.db, app.admission.answers.held_bytes());
    let text = match queries.spawn_blocking(render).await {
        Ok(text) => text,
        Err(error) => return Failure::from(error).into_response(Dialect::Tidefall),
    };
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
