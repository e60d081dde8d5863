//! What stands behind the question mark of an address.

use axum::extract::Query;
use axum::http::Uri;
use serde::de::DeserializeOwned;
use tidefall_types::{Error, Result};

/// The parameters of a request.
///
/// # Errors
/// `Invalid` when one is not what it must be.
pub(crate) fn parameters<T: DeserializeOwned>(uri: &Uri) -> Result<T> {
    match Query::try_from_uri(uri) {
        Ok(Query(parameters)) => Ok(parameters),
        Err(error) => Err(Error::invalid(error.body_text())),
    }
}
