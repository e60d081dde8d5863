//! One module a command.

pub(crate) mod bench;
pub(crate) mod cascade;
pub(crate) mod create;
pub(crate) mod demo;
pub(crate) mod generate;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod query;
pub(crate) mod repair;
pub(crate) mod serve;
pub(crate) mod shell;
pub(crate) mod verify;

use tidefall_types::{Error, Result};

/// A runtime for SQL and the server.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::io("starting threads", &error))
}
