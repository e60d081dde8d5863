//! Errors of DataFusion as errors of Tidefall.

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use tidefall_types::{Error, ErrorKind};

/// Finds the kind that tells the caller what to do. Errors of Tidefall that went through
/// DataFusion come out as they went in.
pub(crate) fn from_datafusion(error: DataFusionError) -> Error {
    match error {
        DataFusionError::External(source) => from_box(source),
        DataFusionError::ArrowError(source, _) => from_arrow(*source),
        DataFusionError::Context(context, source) => from_datafusion(*source).context(context),
        DataFusionError::Diagnostic(_, source) => from_datafusion(*source),
        DataFusionError::Shared(source) => from_shared(&source),
        DataFusionError::Collection(errors) => match errors.into_iter().next() {
            Some(first) => from_datafusion(first),
            None => Error::invalid("the statement failed without a reason"),
        },
        DataFusionError::NotImplemented(message) => Error::unsupported(message),
        DataFusionError::ResourcesExhausted(message) => Error::limit(format!(
            "the query needs more memory than it may use; ask for fewer rows or groups, or raise \
             the memory limit: {message}"
        )),
        DataFusionError::IoError(source) => Error::io("running a query", &source),
        DataFusionError::Internal(message) => {
            Error::unsupported(format!("the query engine cannot run this statement: {message}"))
        }
        DataFusionError::Plan(message) if names_missing_table(&message) => {
            Error::not_found(format!("{message}; SHOW TABLES lists what there is"))
        }
        // Parsing, planning, schema and run-time errors all come from what the statement says.
        other => Error::invalid(other.strip_backtrace()),
    }
}

/// Wraps an error of Tidefall so that it can pass through DataFusion.
pub(crate) fn to_datafusion(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// DataFusion has no error of its own for a missing table, only a text.
fn names_missing_table(message: &str) -> bool {
    message.starts_with("table '") && message.ends_with("' not found")
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
        other => Error::invalid(other.to_string()),
    }
}

fn from_shared(error: &DataFusionError) -> Error {
    match error {
        DataFusionError::External(source) => match source.downcast_ref::<Error>() {
            Some(ours) => ours.clone(),
            None => Error::invalid(source.to_string()),
        },
        DataFusionError::Context(context, source) => from_shared(source).context(context),
        DataFusionError::Shared(source) => from_shared(source),
        DataFusionError::ResourcesExhausted(message) => Error::limit(message.clone()),
        other => Error::new(ErrorKind::Invalid, other.strip_backtrace()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
        assert_eq!(back.message(), "reading: segment 7, offset 12: wrong checksum");
        let limit = from_datafusion(DataFusionError::ResourcesExhausted("x".to_owned()));
        assert_eq!(limit.kind(), ErrorKind::Limit);
        let plan = from_datafusion(DataFusionError::Plan("no such column".to_owned()));
        assert_eq!(plan.kind(), ErrorKind::Invalid);
    }
}
