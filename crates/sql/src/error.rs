//! Errors of DataFusion as errors of Tidefall.
//!
//! What DataFusion says is told in words of SQL: columns that are not there in `columns.rs`, calls with wrong arguments in
//! `calls.rs`, everything else in `words.rs`.

mod calls;
mod columns;
mod words;

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use tidefall_types::Error;

pub(crate) use calls::with_arguments;
pub(crate) use words::{NO_FUNCTION, in_sql};

use crate::schemas::{CATALOG, READINGS};

/// How the error of a table that is not there ends.
pub(crate) const LISTS_TABLES: &str = "SHOW TABLES lists what there is";

/// Finds the kind that tells the caller what to do. Errors of Tidefall that went through
/// DataFusion come out as they went in; what DataFusion adds about its own workings is left out.
pub(crate) fn from_datafusion(error: DataFusionError) -> Error {
    match error {
        DataFusionError::External(source) => from_box(source),
        DataFusionError::ArrowError(source, _) => from_arrow(*source),
        // Which of its rules it was at.
        DataFusionError::Context(_, source) | DataFusionError::Diagnostic(_, source) => {
            from_datafusion(*source)
        }
        DataFusionError::Shared(source) => from_shared(&source),
        DataFusionError::Collection(errors) => match errors.into_iter().next() {
            Some(first) => from_datafusion(first),
            None => Error::invalid("the statement failed without a reason"),
        },
        DataFusionError::NotImplemented(message) => Error::unsupported(plain(&message)),
        DataFusionError::ResourcesExhausted(message) => from_exhausted(&message),
        // A panic is nobody's fault but the engine's.
        DataFusionError::ExecutionJoin(source) if source.is_panic() => from_panic(&source),
        DataFusionError::IoError(source) => Error::io("running a query", &source),
        DataFusionError::Internal(message) => Error::unsupported(format!(
            "the query engine cannot run this statement: {}",
            plain(&message)
        )),
        DataFusionError::Plan(message) => match missing_table(&message) {
            Some(name) => Error::not_found(format!("there is no table {name:?}; {LISTS_TABLES}")),
            None => Error::invalid(plain(&message)),
        },
        DataFusionError::SQL(source, _) => {
            let why = match *source {
                ParserError::ParserError(why) | ParserError::TokenizerError(why) => why,
                ParserError::RecursionLimitExceeded => "it nests too deeply".to_owned(),
            };
            Error::invalid(format!("the statement cannot be read: {}", lower_first(&why)))
        }
        // Planning, schema and run-time errors all come from what the statement says.
        other => Error::invalid(told(&other)),
    }
}

/// What is wrong with a statement.
fn told(error: &DataFusionError) -> String {
    match error {
        DataFusionError::SchemaError(error, _) => columns::told(error),
        other => plain(&other.strip_backtrace()),
    }
}

/// A message without the places in DataFusion where it comes from, in words of SQL.
fn plain(message: &str) -> String {
    // What it says of calls lists much, of which little is told.
    calls::told(message).unwrap_or_else(|| words::told(message))
}

fn from_panic(source: &impl std::fmt::Display) -> Error {
    Error::internal(format!("the query engine panicked: {source}"))
}

fn from_exhausted(message: &str) -> Error {
    // Who of the engine asks, and what others have, says nothing to who asked the question.
    let more =
        message.split_once("allocate additional ").and_then(|(_, rest)| rest.split_once(" for "));
    let message =
        more.map_or_else(|| plain(message), |(bytes, _)| format!("{bytes} more were asked for"));
    Error::limit(format!(
        "the query needs more memory than it may use: ask for less time, fewer sensors or fewer \
         groups, or start the process with more than its budget of now, as in --memory 2GiB, or \
         tidefall.open(path, memory_mib=2048) in Python; queries have a quarter of it ({message})"
    ))
}

fn lower_first(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_lowercase().chain(rest).collect())
}

/// Wraps an error of Tidefall so that it can pass through DataFusion.
pub(crate) fn to_datafusion(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The table that is missing, without the names of the catalog and of the schema that need not be written. DataFusion has
/// no error of its own for that, only a text.
fn missing_table(message: &str) -> Option<&str> {
    let name = message.strip_prefix("table '")?.strip_suffix("' not found")?;
    let name = name.strip_prefix(CATALOG).and_then(|name| name.strip_prefix('.')).unwrap_or(name);
    Some(name.strip_prefix(READINGS).and_then(|name| name.strip_prefix('.')).unwrap_or(name))
}

fn from_box(source: Box<dyn std::error::Error + Send + Sync>) -> Error {
    let source = match source.downcast::<Error>() {
        Ok(ours) => return *ours,
        Err(other) => other,
    };
    match source.downcast::<DataFusionError>() {
        Ok(inner) => from_datafusion(*inner),
        Err(other) => Error::invalid(other.to_string()),
    }
}

fn from_arrow(error: ArrowError) -> Error {
    match error {
        ArrowError::ExternalError(source) => from_box(source),
        ArrowError::IoError(_, source) => Error::io("running a query", &source),
        ArrowError::MemoryError(message) => Error::limit(message),
        other => Error::invalid(plain(&other.to_string())),
    }
}

fn from_shared(error: &DataFusionError) -> Error {
    match error {
        DataFusionError::External(source) => match source.downcast_ref::<Error>() {
            Some(ours) => ours.clone(),
            None => Error::invalid(source.to_string()),
        },
        DataFusionError::Context(_, source) => from_shared(source),
        DataFusionError::Shared(source) => from_shared(source),
        DataFusionError::ResourcesExhausted(message) => from_exhausted(message),
        DataFusionError::ExecutionJoin(source) if source.is_panic() => from_panic(source),
        other => Error::invalid(told(other)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidefall_types::ErrorKind;

    use super::*;

    #[test]
    fn errors_keep_their_kind_on_the_way_through() {
        let ours = Error::corrupt("segment 7, offset 12: wrong checksum");
        let wrapped = DataFusionError::Context(
            "reading".to_owned(),
            Box::new(DataFusionError::Shared(Arc::new(to_datafusion(ours)))),
        );
        let back = from_datafusion(wrapped);
        assert_eq!(back.kind(), ErrorKind::Corrupt);
        assert_eq!(back.message(), "segment 7, offset 12: wrong checksum");
        let limit = from_datafusion(DataFusionError::ResourcesExhausted("x".to_owned()));
        assert_eq!(limit.kind(), ErrorKind::Limit);
        let plan = from_datafusion(DataFusionError::Plan("no such column".to_owned()));
        assert_eq!(plan.kind(), ErrorKind::Invalid);
        assert_eq!(plan.message(), "no such column");
    }

    #[tokio::test]
    async fn panics_are_not_the_fault_of_a_statement() {
        let handle = tokio::spawn(std::future::pending::<()>());
        handle.abort();
        let stopped = handle.await.map_err(Box::new).map_err(DataFusionError::ExecutionJoin);
        let stopped = stopped.map_err(from_datafusion);
        assert_eq!(stopped.as_ref().map_err(Error::kind), Err(ErrorKind::Invalid));
        let panicked = tokio::spawn(async { assert!(std::hint::black_box(false), "oh") }).await;
        let panicked = panicked.map_err(Box::new).map_err(DataFusionError::ExecutionJoin);
        let shared = panicked.map_err(|error| DataFusionError::Shared(Arc::new(error)));
        let error = shared.map_err(from_datafusion);
        assert_eq!(error.as_ref().map_err(Error::kind), Err(ErrorKind::Internal), "{error:?}");
        let panicked = tokio::spawn(async { assert!(std::hint::black_box(false), "oh") }).await;
        let panicked = panicked.map_err(Box::new).map_err(DataFusionError::ExecutionJoin);
        let error = panicked.map_err(from_datafusion);
        assert_eq!(error.as_ref().map_err(Error::kind), Err(ErrorKind::Internal), "{error:?}");
    }

    #[test]
    fn the_workings_of_the_engine_stay_inside() {
        let inner = DataFusionError::Plan("Execution error: no such function".to_owned());
        let outer = inner.context("Optimizer rule 'simplify_expressions' failed");
        assert_eq!(from_datafusion(outer).message(), "no such function");
        let shared = DataFusionError::Shared(Arc::new(DataFusionError::ResourcesExhausted(
            "sort".to_owned(),
        )));
        let message = from_datafusion(shared).message().to_owned();
        assert!(message.starts_with("the query needs more memory"), "{message}");
        assert!(message.contains("--memory 2GiB") && message.contains("memory_mib="), "{message}");
        let bug = DataFusionError::Internal(
            "x\nThis issue was likely caused by a bug in DataFusion's code.".to_owned(),
        );
        assert!(from_datafusion(bug).message().ends_with("this statement: x"));
    }
}
