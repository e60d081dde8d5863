//! The endpoints of InfluxDB: line protocol in, and as much of its query endpoint as its clients
//! need to start.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::json;
use tidefall_storage::{Ack, BadRows, Db, Existing, Uncounted, Unknown, WriteOptions, WriteReport};
use tidefall_types::{Error, ErrorKind, Result};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::address::parameters;
use crate::admission::Permit;
use crate::app::App;
use crate::body::{self, Received};
use crate::failure::{Dialect, Failure};
use crate::line_protocol::{self, ERRORS_KEPT, Parsed, Precision, TableBatch};
use crate::status::add_influx_headers;

/// The parameters of a write that mean something here; the others (`db`, `rp`, `bucket`, `org`,
/// `u`, `p`) are accepted and passed over.
#[derive(Debug, Default, Deserialize)]
struct WriteParameters {
    precision: Option<String>,
    ack: Option<String>,
}

/// `POST /write`.
pub(crate) async fn v1(
    State(app): State<Arc<App>>,
    Extension(permit): Extension<Permit>,
    request: Request,
) -> Response {
    answer(&app, permit, request, Dialect::InfluxV1).await
}

/// `POST /api/v2/write`.
pub(crate) async fn v2(
    State(app): State<Arc<App>>,
    Extension(permit): Extension<Permit>,
    request: Request,
) -> Response {
    answer(&app, permit, request, Dialect::InfluxV2).await
}

/// The header that says how many rows of a write took the place of others, where that is known. InfluxDB has no such
/// thing, and its answer no body.
const REPLACED: &str = "x-tidefall-replaced";

async fn answer(app: &Arc<App>, permit: Permit, request: Request, dialect: Dialect) -> Response {
    let (mut response, replaced) = match write(app, permit, request).await {
        Ok((outcome, replaced)) => match outcome.into_failure(dialect) {
            None => (StatusCode::NO_CONTENT.into_response(), replaced),
            Some(failure) => (failure.into_response(dialect), replaced),
        },
        Err(failure) => (failure.into_response(dialect), None),
    };
    if let Some(replaced) = replaced {
        response.headers_mut().insert(REPLACED, HeaderValue::from(replaced));
    }
    add_influx_headers(response.headers_mut());
    response
}

/// Writes a body. Returns what became of its lines, and how many of them took the place of others, if that is known.
async fn write(
    app: &Arc<App>,
    permit: Permit,
    request: Request,
) -> std::result::Result<(Outcome, Option<u64>), Failure> {
    let (parts, body) = request.into_parts();
    let parameters: WriteParameters = parameters(&parts.uri)?;
    let precision = Precision::parse(parameters.precision.as_deref().unwrap_or_default())?;
    let ack = ack(parameters.ack.as_deref(), &parts.headers)?;
    let received = body::receive(app, &parts.headers, body).await?;
    let mut write = Write { app: Arc::clone(app), received, precision, ack };
    let writes = match write.submit_at_once()? {
        Some(writes) => writes,
        None => {
            // A write that has begun is finished also when its client is gone.
            let held = permit.clone();
            let task = tokio::task::spawn_blocking(move || {
                let _permit = held;
                write.submit()
            });
            task.await??
        }
    };
    let mut outcome = Outcome::default();
    let mut uncounted = Vec::new();
    outcome.add_lines(&writes.parsed);
    for (table, pending) in writes.parsed.batches.iter().zip(writes.pending) {
        let written = match pending {
            Pending::Submitted(receiver) => receiver
                .await
                .unwrap_or_else(|_| Err(Error::closed("the database was closed during the write"))),
            Pending::Refused(error) => Err(error),
        };
        let report = written.map(|(report, more)| {
            uncounted.extend(more);
            report
        });
        outcome.add_batch(table, report);
    }
    app.metrics.written(outcome.rows, outcome.dropped);
    let replaced = count(app, permit, uncounted).await;
    Ok((outcome, replaced))
}

/// How long a client waits for what its rows replaced to be counted, once they are written: far less than clients wait
/// before they send a body again.
const COUNT_TIME_MAX: Duration = Duration::from_secs(2);

/// Counts what rows replaced that are not newer than all of their sensors; none where that fails or takes too long.
async fn count(app: &Arc<App>, permit: Permit, uncounted: Vec<Uncounted>) -> Option<u64> {
    if uncounted.is_empty() {
        return Some(0);
    }
    let app = Arc::clone(app);
    let task = tokio::task::spawn_blocking(move || {
        // A client that does not wait for it may not ask for more of it without bounds.
        let _permit = permit;
        let replaced = uncounted.iter().map(Uncounted::count).sum::<Option<u64>>();
        app.metrics.replaced(replaced.unwrap_or(0));
        replaced
    });
    timeout(COUNT_TIME_MAX, task).await.ok()?.ok()?
}

/// Bodies up to this length are parsed on the thread of their connection: that takes less time than
/// another thread takes to wake.
const AT_ONCE_BYTES_MAX: usize = 8 << 10;

/// A request whose body is here.
struct Write {
    app: Arc<App>,
    received: Received,
    precision: Precision,
    ack: Ack,
}

impl Write {
    /// Submits a small body, if nothing has to be waited for.
    fn submit_at_once(&mut self) -> std::result::Result<Option<Writes>, Failure> {
        if !self.received.is_plain_up_to(AT_ONCE_BYTES_MAX) {
            return Ok(None);
        }
        let parsed = self.parse()?;
        let is_ready = |table: &TableBatch| self.app.db.is_ready_for(&table.table, &table.batch);
        let is_ready = parsed.batches.iter().all(is_ready);
        Ok(is_ready.then(|| self.submit_parsed(parsed)))
    }

    /// Submits the body. May wait for memory, or for the manifest when a table or column is new: once for all of them.
    fn submit(&mut self) -> std::result::Result<Writes, Failure> {
        let parsed = self.parse()?;
        let batches: Vec<_> =
            parsed.batches.iter().map(|table| (table.table.as_str(), &table.batch)).collect();
        if let Err(error) = self.app.db.prepare(&batches, &self.options()) {
            // Each write meets it again, and says so.
            tracing::debug!(%error, "the tables of a body could not be made at once");
        }
        Ok(self.submit_parsed(parsed))
    }

    fn parse(&mut self) -> std::result::Result<Parsed, Failure> {
        let body = self.received.unpack()?;
        let now_ns = self.app.db.options().clock.now_ns();
        Ok(line_protocol::parse(&body, self.precision, now_ns)?)
    }

    /// All batches of a body are submitted before the first is waited for, so that they share
    /// fsyncs with each other and with the writes of other clients.
    fn submit_parsed(&self, parsed: Parsed) -> Writes {
        let submit = |table| submit_batch(&self.app.db, table, self.options());
        Writes { pending: parsed.batches.iter().map(submit).collect(), parsed }
    }

    fn options(&self) -> WriteOptions {
        WriteOptions {
            ack: self.ack,
            bad_rows: BadRows::SetAside,
            unknown: Unknown::Create,
            existing: Existing::Count,
            ..WriteOptions::default()
        }
    }
}

struct Writes {
    parsed: Parsed,
    /// One for each batch of `parsed`.
    pending: Vec<Pending>,
}

enum Pending {
    Submitted(oneshot::Receiver<Result<(WriteReport, Option<Uncounted>)>>),
    Refused(Error),
}

fn submit_batch(db: &Db, table: &TableBatch, options: WriteOptions) -> Pending {
    let (send, receive) = oneshot::channel();
    let done = move |outcome| {
        // A receiver that is gone is a client that is gone.
        let _ = send.send(outcome);
    };
    match db.submit(&table.table, &table.batch, &options, done) {
        Ok(()) => Pending::Submitted(receive),
        Err(error) => Pending::Refused(error),
    }
}

/// What became of the lines of a body.
#[derive(Debug, Default)]
struct Outcome {
    rows: usize,
    dropped: usize,
    /// Why lines were refused, in InfluxDB's words.
    reasons: Vec<String>,
    /// Whether lines were understood but did not fit their table.
    has_misfits: bool,
    /// Why lines that are right could not be stored; sent again, they may be.
    failed: Option<Error>,
    /// Whether lines that are right are not stored however often they are sent; in parts they would be.
    is_too_much: bool,
}

impl Outcome {
    fn add_lines(&mut self, parsed: &Parsed) {
        self.dropped += parsed.lines_bad;
        self.is_too_much |= parsed.is_too_much;
        self.reasons.extend(parsed.errors.iter().map(ToString::to_string));
    }

    fn add_batch(&mut self, table: &TableBatch, report: Result<WriteReport>) {
        match report {
            Ok(report) => {
                self.rows += report.rows;
                self.dropped += report.bad.len();
                for bad in &report.bad {
                    let line = table.lines.get(bad.row).copied().unwrap_or_default();
                    self.add_misfit(&bad.error, line);
                }
            }
            Err(error) if is_of_the_rows(error.kind()) => {
                self.dropped += table.batch.rows();
                self.add_misfit(&error, table.lines.first().copied().unwrap_or_default());
            }
            Err(error) if error.kind() == ErrorKind::Limit => {
                self.dropped += table.batch.rows();
                self.add_misfit(&error, table.lines.first().copied().unwrap_or_default());
                self.is_too_much = true;
            }
            // The table was dropped meanwhile: it is made when the lines come again.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.failed.get_or_insert(error.with_kind(ErrorKind::Closed));
            }
            Err(error) => {
                self.failed.get_or_insert(error);
            }
        }
    }

    fn add_misfit(&mut self, error: &Error, line: u32) {
        self.has_misfits = true;
        if self.reasons.len() >= ERRORS_KEPT {
            return;
        }
        let what = match error.kind() {
            ErrorKind::Conflict => "field type conflict: ",
            _ => "",
        };
        self.reasons.push(format!("{what}{} (line {line})", error.message()));
    }

    /// The answer if something went wrong.
    fn into_failure(self, dialect: Dialect) -> Option<Failure> {
        if let Some(error) = self.failed {
            return Some(Failure::from(error));
        }
        if self.dropped == 0 {
            return None;
        }
        let mut message = self.reasons.join("\n");
        if self.rows > 0 || self.has_misfits {
            message = format!("partial write: {message} dropped={}", self.dropped);
        }
        if self.is_too_much {
            return Some(Failure::from(Error::limit(message)));
        }
        if dialect == Dialect::InfluxV2 && self.has_misfits {
            let message = format!("failure writing points to database: {message}");
            let error = Error::conflict(message);
            return Some(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, &error));
        }
        Some(Failure::from(Error::invalid(message)))
    }
}

/// Whether an error of a batch says that its rows do not fit, rather than that the database could
/// not take them.
fn is_of_the_rows(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Invalid | ErrorKind::Conflict)
}

/// How a write is acknowledged: by the parameter `ack`, or else by the header `X-Tidefall-Ack`.
fn ack(parameter: Option<&str>, headers: &HeaderMap) -> Result<Ack> {
    let header = headers.get("x-tidefall-ack").and_then(|value| value.to_str().ok());
    match parameter.or(header) {
        None | Some("durable") => Ok(Ack::Durable),
        Some("memory") => Ok(Ack::Memory),
        Some(other) => Err(Error::invalid(format!(
            "ack {other:?} is unknown: use durable (the default) or memory"
        ))),
    }
}

#[derive(Debug, Default, Deserialize)]
struct QueryParameters {
    q: Option<String>,
}

/// `GET` and `POST /query`: `CREATE DATABASE` succeeds, because Telegraf sends it first.
pub(crate) async fn query(State(app): State<Arc<App>>, request: Request) -> Response {
    let mut response = match influx_query(&app, request).await {
        Ok(()) => Json(json!({ "results": [{ "statement_id": 0 }] })).into_response(),
        Err(failure) => failure.into_response(Dialect::InfluxV1),
    };
    add_influx_headers(response.headers_mut());
    response
}

async fn influx_query(app: &App, request: Request) -> std::result::Result<(), Failure> {
    let (parts, body) = request.into_parts();
    let query = match parameters::<QueryParameters>(&parts.uri)?.q {
        Some(query) => query,
        None => form_query(app, &parts.headers, body).await?,
    };
    let mut words = query.split_ascii_whitespace();
    let begin = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if begin.0.eq_ignore_ascii_case("create") && begin.1.eq_ignore_ascii_case("database") {
        return Ok(());
    }
    Err(Error::unsupported(
        "InfluxQL is not understood here, except for CREATE DATABASE; send SQL to /api/v1/sql",
    )
    .into())
}

/// The parameter `q` of a form in the body.
async fn form_query(
    app: &App,
    headers: &HeaderMap,
    body: Body,
) -> std::result::Result<String, Failure> {
    let form = body::receive(app, headers, body).await?.unpack()?;
    let parameters: QueryParameters = serde_urlencoded::from_bytes(form.trim_ascii())
        .map_err(|error| Error::invalid(format!("the body is not a form: {error}")))?;
    let query = parameters.q;
    Ok(query.ok_or_else(|| Error::invalid("missing required parameter \"q\""))?)
}
