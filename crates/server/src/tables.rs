//! `/api/v1/tables`: tables of records, as their descriptors say.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::json;
use tidefall_import::Descriptor;
use tidefall_storage::IfExists;
use tidefall_types::{Error, TableSchema};

use crate::address::parameters;
use crate::admission::Permit;
use crate::app::App;
use crate::body;
use crate::failure::{Dialect, Failure};

#[derive(Debug, Deserialize)]
struct Parameters {
    table: Option<String>,
}

/// `POST /api/v1/tables?table=...` with a record descriptor in XML as its body.
pub(crate) async fn post(
    State(app): State<Arc<App>>,
    Extension(permit): Extension<Permit>,
    request: Request,
) -> Response {
    match create(&app, permit, request).await {
        Ok(schema) => Json(json!({
            "table": schema.name,
            "columns": schema.columns.len(),
            "dimensions": schema.dimensions.len(),
        }))
        .into_response(),
        Err(failure) => failure.into_response(Dialect::Tidefall),
    }
}

async fn create(app: &Arc<App>, permit: Permit, request: Request) -> Result<TableSchema, Failure> {
    let (parts, body) = request.into_parts();
    let Parameters { table } = parameters(&parts.uri)?;
    let table = table.ok_or_else(|| Error::invalid("the parameter table is missing"))?;
    let received = body::receive(app, &parts.headers, body).await?;
    let app = Arc::clone(app);
    let task = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut received = received;
        let bytes = received.unpack()?;
        let text = std::str::from_utf8(&bytes).map_err(|_| {
            Error::invalid("the body is no text in UTF-8: send a record descriptor in XML")
        })?;
        let schema = Descriptor::parse(text)?.schema(&table)?;
        app.db.create_table(&schema, IfExists::Fail)?;
        Ok(schema)
    });
    task.await?
}
