//! `/api/v1/sql`: a statement in, rows out.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use tidefall_sql::Session;
use tidefall_types::{Error, Result};

use crate::address::parameters;
use crate::admission::Permit;
use crate::answer::{Job, Wanted, answer};
use crate::app::App;
use crate::body;
use crate::failure::{Dialect, Failure};
use crate::format::Format;
use crate::values::Values;

/// The longest text of statements. Loading rows by `INSERT` in longer ones would take more memory
/// for its plan than for its rows.
const SQL_BYTES_MAX: usize = 8 << 20;

#[derive(Debug, Default, Deserialize)]
struct Parameters {
    q: Option<String>,
    format: Option<String>,
    /// A list in JSON.
    parameters: Option<String>,
}

/// A body of the type `application/json`.
#[derive(Debug, Deserialize)]
struct JsonBody {
    sql: String,
    parameters: Option<Values>,
}

/// A statement, and the values for its parameters.
struct Asked {
    sql: String,
    values: Option<Values>,
}

/// `GET` and `HEAD /api/v1/sql?q=...`, which only read.
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Extension(permit): Extension<Permit>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let outcome = async {
        let parameters: Parameters = parameters(&parts.uri)?;
        let Some(sql) = parameters.q.clone() else {
            let error = Error::invalid("the parameter q with a statement is missing");
            return Err(Failure::from(error));
        };
        // A link, an image or a browser that reads ahead must not change anything.
        if !Session::is_read_only(&sql)? {
            return Err(only_by_post(&parts.method));
        }
        run(&app, permit, Asked { sql, values: None }, &parameters, &parts.headers).await
    };
    let mut response =
        outcome.await.unwrap_or_else(|failure| failure.into_response(Dialect::Tidefall));
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    }
    response
}

fn only_by_post(method: &Method) -> Failure {
    let error = Error::invalid(format!(
        "{method} only reads: send statements that change something with POST"
    ));
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, &error)
}

/// `POST /api/v1/sql` with the statement as its body.
pub(crate) async fn post(
    State(app): State<Arc<App>>,
    Extension(permit): Extension<Permit>,
    request: Request,
) -> Response {
    let outcome = async {
        let (parts, body) = request.into_parts();
        let parameters: Parameters = parameters(&parts.uri)?;
        let mut received = body::receive(&app, &parts.headers, body).await?;
        let bytes = received.unpack()?;
        let asked = statement(&parts.headers, &bytes)?;
        run(&app, permit, asked, &parameters, &parts.headers).await
    };
    outcome.await.unwrap_or_else(|failure| failure.into_response(Dialect::Tidefall))
}

async fn run(
    app: &Arc<App>,
    permit: Permit,
    Asked { sql, mut values }: Asked,
    parameters: &Parameters,
    headers: &HeaderMap,
) -> std::result::Result<Response, Failure> {
    let format = Format::choose(parameters.format.as_deref(), headers)?;
    if let Some(list) = &parameters.parameters {
        if values.is_some() {
            let error = Error::invalid("parameters are given twice, in the body and beside it");
            return Err(error.into());
        }
        values = Some(serde_json::from_str(list).map_err(|error| {
            Error::invalid(format!("parameters are no list of values in JSON: {error}"))
        })?);
    }
    let Values(parameters) = values.unwrap_or_default();
    let wanted = Wanted::Sql(sql, parameters);
    answer(app, Job { wanted, format, permit }).await
}

fn statement(headers: &HeaderMap, body: &[u8]) -> Result<Asked> {
    if body.len() > SQL_BYTES_MAX {
        return Err(Error::limit(format!(
            "statements are at most {SQL_BYTES_MAX} bytes long; write rows as line protocol"
        )));
    }
    let sql = std::str::from_utf8(body)
        .map_err(|error| Error::invalid(format!("the statement is not UTF-8: {error}")))?;
    let content_type =
        headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !content_type.starts_with("application/json") {
        return Ok(Asked { sql: sql.to_owned(), values: None });
    }
    let body: JsonBody = serde_json::from_str(sql)
        .map_err(|error| Error::invalid(format!("the body is not {{\"sql\": ...}}: {error}")))?;
    Ok(Asked { sql: body.sql, values: body.parameters })
}
