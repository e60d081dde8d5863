//! `/api/v1/write`: rows as a stream of Arrow in, for clients that have columns.

use std::sync::Arc;

use arrow_array::RecordBatch;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::json;
use tidefall_import::{ArrowOptions, batch_from_arrow, columns_from_arrow, unshared_bytes};
use tidefall_storage::{Ack, Db, Existing, FieldTypes, Unknown, WriteOptions};
use tidefall_types::{Error, Result, TableKind, TableSchema};

use crate::address::parameters;
use crate::admission::Permit;
use crate::app::App;
use crate::arrow_stream;
use crate::body;
use crate::failure::{Dialect, Failure};

#[derive(Debug, Deserialize)]
struct Parameters {
    table: Option<String>,
    time: Option<String>,
    /// Names with commas in between.
    tags: Option<String>,
    /// What becomes of readings that are there already.
    existing: Option<String>,
}

/// How many rows were written, and how many of them replaced others, if that was counted.
#[derive(Debug, Default, Clone, Copy)]
struct Written {
    rows: usize,
    replaced: Option<u64>,
}

/// `POST /api/v1/write?table=...&time=...&tags=a,b` with a stream of Arrow's IPC format as its body.
pub(crate) async fn post(
    State(app): State<Arc<App>>,
    Extension(permit): Extension<Permit>,
    request: Request,
) -> Response {
    match write(&app, permit, request).await {
        Ok(Written { rows, replaced }) => {
            Json(json!({ "rows": rows, "replaced": replaced })).into_response()
        }
        Err(failure) => failure.into_response(Dialect::Tidefall),
    }
}

async fn write(
    app: &Arc<App>,
    permit: Permit,
    request: Request,
) -> std::result::Result<Written, Failure> {
    let (parts, body) = request.into_parts();
    let parameters = parameters(&parts.uri)?;
    let mut received = body::receive(app, &parts.headers, body).await?;
    let app = Arc::clone(app);
    // A write that has begun is finished also when its client is gone.
    let task = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let stream = received.unpack()?;
        let unpacked_bytes = arrow_stream::unpacked_bytes(&stream)?;
        if unpacked_bytes > stream.len() {
            received.grow_by(unpacked_bytes)?;
        }
        let target = Target::of(&app.db, parameters)?;
        let batches = arrow_stream::read(stream)?;
        let unshared: usize =
            batches.iter().map(|batch| unshared_bytes(batch, &target.options)).sum();
        if unshared > 0 {
            received.grow_by(unpacked_bytes.saturating_add(unshared))?;
        }
        let (written, outcome) = write_batches(&app.db, &target, &batches)?;
        // Also when not all of them could be written: those before stay.
        app.metrics.written(written.rows, 0);
        app.metrics.replaced(written.replaced.unwrap_or(0));
        Ok(outcome.map(|()| written)?)
    });
    task.await?
}

fn existing_of(word: Option<&str>) -> Result<Existing> {
    match word {
        None | Some("count") => Ok(Existing::Count),
        Some("replace") => Ok(Existing::Replace),
        Some("refuse") => Ok(Existing::Refuse),
        Some(other) => Err(Error::invalid(format!(
            "existing {other:?} is unknown: use count (the default), replace or refuse"
        ))),
    }
}

/// Where rows go, and what becomes of those that are there.
struct Target {
    table: String,
    options: ArrowOptions,
    existing: Existing,
    /// Where it is of records its columns.
    records: Option<Arc<TableSchema>>,
}

impl Target {
    fn of(db: &Db, parameters: Parameters) -> Result<Self> {
        let missing = || Error::invalid("the parameter table is missing");
        let table = parameters.table.ok_or_else(missing)?;
        let tags = parameters.tags.unwrap_or_default();
        let tags = tags.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned).collect();
        let existing = existing_of(parameters.existing.as_deref())?;
        let options = ArrowOptions { time: parameters.time, tags };
        let known = db.schema(&table).ok();
        if let Some(known) = &known {
            options.check_tags(known)?;
        }
        let records = known.filter(|known| known.kind == TableKind::Records);
        if records.is_some() {
            options.refuse_for_records(&table)?;
        }
        Ok(Self { table, options, existing, records })
    }
}

/// Writes the batches of a body, up to the first that is refused. Returns what was written, and whether all was.
///
/// # Errors
/// `Invalid` and the like for a body that is not understood; nothing is written then.
fn write_batches(
    db: &Db,
    target: &Target,
    stream: &[RecordBatch],
) -> Result<(Written, Result<()>)> {
    let Target { table, options, existing, records } = target;
    if let Some(schema) = records {
        return write_records(db, schema, stream);
    }
    // The whole body is understood before any of it is written.
    let mut batches = Vec::new();
    let mut row = 0;
    for batch in stream {
        batches.push(batch_from_arrow(batch, options).map_err(|error| from_row(row, error))?);
        row += batch.num_rows();
    }
    let write = WriteOptions {
        ack: Ack::Durable,
        unknown: Unknown::Create,
        existing: *existing,
        field_types: FieldTypes::Widen,
        ..WriteOptions::default()
    };
    let is_counted = *existing != Existing::Replace;
    let mut written = Written { rows: 0, replaced: is_counted.then_some(0) };
    for batch in &batches {
        let report = match db.write(table, batch, &write) {
            Ok(report) => report,
            // Rows are named as they are counted in the batch.
            Err(error) => return Ok((written, Err(from_row(written.rows, error)))),
        };
        written.rows += report.rows;
        written.replaced = written.replaced.zip(report.replaced).map(|(sum, more)| sum + more);
    }
    Ok((written, Ok(())))
}

/// As [`write_batches`], of records.
fn write_records(
    db: &Db,
    schema: &TableSchema,
    stream: &[RecordBatch],
) -> Result<(Written, Result<()>)> {
    let mut batches = Vec::new();
    let mut row = 0;
    for batch in stream {
        batches.push(columns_from_arrow(batch, schema).map_err(|error| from_row(row, error))?);
        row += batch.num_rows();
    }
    let mut written = Written { rows: 0, replaced: Some(0) };
    for columns in &batches {
        match db.write_records(&schema.name, columns, &WriteOptions::default()) {
            Ok(report) => written.rows += report.rows,
            Err(error) => return Ok((written, Err(from_row(written.rows, error)))),
        }
    }
    Ok((written, Ok(())))
}

/// An error of the batch that begins behind so many rows of the body; messages count them from 1.
fn from_row(row: usize, error: Error) -> Error {
    match row {
        0 => error,
        row => error.context(format_args!("of the rows from {} on", row + 1)),
    }
}
