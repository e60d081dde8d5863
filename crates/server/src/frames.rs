//! `/api/v1/frames`: what data frames ask of a table, for clients that have columns.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use tidefall_questions::Asked;
use tidefall_types::Error;

use crate::admission::Permit;
use crate::answer::{Job, Wanted, answer};
use crate::app::App;
use crate::body;
use crate::failure::{Dialect, Failure};
use crate::format::Format;

/// `POST /api/v1/frames` with a question in JSON; the answer is a stream of Arrow.
pub(crate) async fn post(
    State(app): State<Arc<App>>,
    Extension(permit): Extension<Permit>,
    request: Request,
) -> Response {
    let outcome = async {
        let (parts, body) = request.into_parts();
        let mut received = body::receive(&app, &parts.headers, body).await?;
        let asked: Asked = serde_json::from_slice(&received.unpack()?)
            .map_err(|error| Error::invalid(format!("the body is no question: {error}")))?;
        let job = Job { wanted: Wanted::Frames(asked), format: Format::Arrow, permit };
        answer(&app, job).await
    };
    outcome.await.unwrap_or_else(|failure: Failure| failure.into_response(Dialect::Tidefall))
}
