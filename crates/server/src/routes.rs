//! Which handler answers which request.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Router, extract::DefaultBodyLimit};
use tidefall_types::Error;

use crate::app::App;
use crate::failure::{Dialect, Failure};
use crate::{batches, frames, guard, sql, status, tables, write};

pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/write", post(write::v1))
        .route("/api/v2/write", post(write::v2))
        .route("/query", get(write::query).post(write::query))
        .route("/api/v1/write", post(batches::post))
        .route("/api/v1/tables", post(tables::post))
        .route("/api/v1/sql", get(sql::get).post(sql::post))
        .route("/api/v1/frames", post(frames::post))
        .route("/ping", get(status::ping))
        .route("/health", get(status::health))
        .route("/metrics", get(status::metrics))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        // Bodies are bounded where they are read, by the options of the server.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(Arc::clone(&app), guard::guard))
        .with_state(app)
}

async fn not_found(request: Request) -> Response {
    let path = request.uri().path();
    let error = Error::not_found(format!(
        "there is no {path}; write to /write or /api/v2/write, query at /api/v1/sql or /api/v1/frames"
    ));
    Failure::from(error).into_response(Dialect::of_path(path))
}

async fn wrong_method(request: Request) -> Response {
    let path = request.uri().path();
    let error = Error::invalid(format!("{path} does not answer {}", request.method()));
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, &error).into_response(Dialect::of_path(path))
}
