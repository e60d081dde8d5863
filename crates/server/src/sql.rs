//! `/api/v1/sql`: a statement in, rows out.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use tidefall_sql::{Parameter, Session};
use tidefall_types::{Error, Result, parse_time};

use crate::address::parameters;
use crate::admission::Place;
use crate::answer::{Job, answer};
use crate::app::App;
use crate::body;
use crate::failure::{Dialect, Failure};
use crate::format::Format;

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
    #[serde(default)]
    parameters: Vec<Value>,
}

/// A statement, and the values for its parameters.
struct Asked {
    sql: String,
    values: Vec<Value>,
}

/// `GET` and `HEAD /api/v1/sql?q=...`, which only read.
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Extension(place): Extension<Place>,
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
        run(&app, place, Asked { sql, values: Vec::new() }, &parameters, &parts.headers).await
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
    Extension(place): Extension<Place>,
    request: Request,
) -> Response {
    let outcome = async {
        let (parts, body) = request.into_parts();
        let parameters: Parameters = parameters(&parts.uri)?;
        let mut received = body::receive(&app, &parts.headers, body).await?;
        let bytes = received.unpack()?;
        let asked = statement(&parts.headers, &bytes)?;
        run(&app, place, asked, &parameters, &parts.headers).await
    };
    outcome.await.unwrap_or_else(|failure| failure.into_response(Dialect::Tidefall))
}

async fn run(
    app: &Arc<App>,
    place: Place,
    Asked { sql, mut values }: Asked,
    parameters: &Parameters,
    headers: &HeaderMap,
) -> std::result::Result<Response, Failure> {
    let format = Format::choose(parameters.format.as_deref(), headers)?;
    if let Some(list) = &parameters.parameters {
        if !values.is_empty() {
            return Err(
                Error::invalid("parameters are given twice, in the body and beside it").into()
            );
        }
        values = serde_json::from_str(list).map_err(|error| {
            Error::invalid(format!("parameters are no list in JSON, such as [7, \"a\"]: {error}"))
        })?;
    }
    let values = values.iter().enumerate();
    let values = values.map(|(at, value)| {
        value_of(value).map_err(|error| error.context(format_args!("parameter {}", at + 1)))
    });
    let parameters = values.collect::<Result<_>>()?;
    answer(app, Job { sql, parameters, format, _place: place }).await
}

/// The value of a parameter: what JSON knows, and `{"timestamp": "2024-01-31T12:00:00Z"}`, and `{"double": "NaN"}` for numbers that it does not know.
fn value_of(value: &Value) -> Result<Parameter> {
    let of_kind = |kind: &str| value.as_object().filter(|of| of.len() == 1)?.get(kind)?.as_str();
    Ok(match value {
        Value::Null => Parameter::Null,
        Value::Bool(value) => Parameter::Bool(*value),
        Value::String(text) => Parameter::Text(text.clone()),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), ..) => Parameter::Int(number),
            (_, Some(number), _) => Parameter::UInt(number),
            (.., number) => Parameter::Float(number.unwrap_or(f64::NAN)),
        },
        Value::Object(_) if let Some(text) = of_kind("timestamp") => {
            Parameter::Time(parse_time(text)?)
        }
        Value::Object(_) if let Some(text) = of_kind("double") => {
            let number =
                text.parse().map_err(|_| Error::invalid(format!("{text:?} is no number")))?;
            Parameter::Float(number)
        }
        _ => {
            return Err(Error::invalid(format!(
                "{value} is no value of SQL; give null, true, false, a number, a text, {{\"timestamp\": \"...\"}} or {{\"double\": \"NaN\"}}"
            )));
        }
    })
}

fn statement(headers: &HeaderMap, body: &[u8]) -> Result<Asked> {
    if body.len() > SQL_BYTES_MAX {
        return Err(Error::limit(format!(
            "statements are at most {SQL_BYTES_MAX} bytes long; write rows as line protocol"
        )));
    }
    let content_type =
        headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if content_type.starts_with("application/json") {
        let body: JsonBody = serde_json::from_slice(body).map_err(|error| {
            Error::invalid(format!("the body is not {{\"sql\": ...}}: {error}"))
        })?;
        return Ok(Asked { sql: body.sql, values: body.parameters });
    }
    match std::str::from_utf8(body) {
        Ok(sql) => Ok(Asked { sql: sql.to_owned(), values: Vec::new() }),
        Err(error) => Err(Error::invalid(format!("the statement is not UTF-8: {error}"))),
    }
}
