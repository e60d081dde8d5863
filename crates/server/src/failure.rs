//! Errors as answers, in the words of the protocol that was spoken.

use axum::Json;
use axum::http::header::{CONNECTION, HeaderName, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tidefall_types::{Error, ErrorKind};
use tokio::task::JoinError;

use crate::admission::Busy;

/// Which protocol a client speaks, and so how its errors look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// InfluxDB 1: `{"error": "..."}`.
    InfluxV1,
    /// InfluxDB 2: `{"code": "...", "message": "..."}`.
    InfluxV2,
    /// `{"error": {"kind": "...", "message": "..."}}`.
    Tidefall,
}

impl Dialect {
    pub(crate) fn of_path(path: &str) -> Self {
        match path {
            "/write" | "/query" | "/ping" => Self::InfluxV1,
            "/api/v2/write" => Self::InfluxV2,
            _ => Self::Tidefall,
        }
    }
}

/// A request that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub status: StatusCode,
    pub kind: ErrorKind,
    pub message: String,
}

impl From<Busy> for Failure {
    fn from(Busy(message): Busy) -> Self {
        Self::busy(message)
    }
}

impl Failure {
    pub(crate) fn new(status: StatusCode, error: &Error) -> Self {
        Self { status, kind: error.kind(), message: error.message().to_owned() }
    }

    /// Too much at once: the client may come back.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, &Error::limit(message))
    }

    pub(crate) fn into_response(self, dialect: Dialect) -> Response {
        let body = match dialect {
            Dialect::InfluxV1 => json!({ "error": self.message }),
            Dialect::InfluxV2 => json!({ "code": v2_code(self.status), "message": self.message }),
            Dialect::Tidefall => {
                json!({ "error": { "kind": self.kind.name(), "message": self.message } })
            }
        };
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::REQUEST_TIMEOUT {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if dialect == Dialect::InfluxV1 {
            // A header is one line of ASCII; the body has the whole message.
            let line: String = self
                .message
                .chars()
                .map(|c| if c.is_ascii() && !c.is_ascii_control() { c } else { ' ' })
                .take(HEADER_CHARS_MAX)
                .collect();
            if let Ok(value) = HeaderValue::from_str(&line) {
                headers.insert(HeaderName::from_static("x-influxdb-error"), value);
            }
        }
        response.extensions_mut().insert(Reason { kind: self.kind, message: self.message });
        response
    }
}

/// Why a request failed, for the log and the metrics; travels with the answer.
#[derive(Debug, Clone)]
pub(crate) struct Reason {
    pub kind: ErrorKind,
    pub message: String,
}

/// Clients and proxies give up on long headers.
const HEADER_CHARS_MAX: usize = 1_000;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Invalid | ErrorKind::Unsupported => StatusCode::BAD_REQUEST,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Limit => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::Internal => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            ErrorKind::Full => StatusCode::INSUFFICIENT_STORAGE,
            ErrorKind::Locked | ErrorKind::Closed => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, &error)
    }
}

/// A task that did not come to its end.
pub(crate) fn lost(error: JoinError) -> Error {
    match error.try_into_panic() {
        Ok(panic) => Error::of_panic(&*panic),
        Err(_) => Error::closed("the request was cut off: the server stops"),
    }
}

impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Self {
        Self::from(lost(error))
    }
}

fn v2_code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "not found",
        StatusCode::CONFLICT => "conflict",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::PAYLOAD_TOO_LARGE => "request too large",
        StatusCode::UNPROCESSABLE_ENTITY => "unprocessable entity",
        StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        StatusCode::INTERNAL_SERVER_ERROR => "internal error",
        StatusCode::INSUFFICIENT_STORAGE => "insufficient storage",
        _ => "invalid",
    }
}
