//! Errors of DataFusion as errors of Tidefall.

use std::cmp::Reverse;

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use tidefall_types::{Error, FieldType};

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
        DataFusionError::Plan(message) if names_missing_table(&message) => {
            Error::not_found(format!("{message}; SHOW TABLES lists what there is"))
        }
        DataFusionError::SQL(source, _) => {
            let why = match *source {
                ParserError::ParserError(why) | ParserError::TokenizerError(why) => why,
                ParserError::RecursionLimitExceeded => "it nests too deeply".to_owned(),
            };
            Error::invalid(format!("the statement cannot be read: {}", lower_first(&why)))
        }
        // Planning, schema and run-time errors all come from what the statement says.
        other => Error::invalid(plain(&other.strip_backtrace())),
    }
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

/// A message without the places in DataFusion where it comes from.
fn plain(message: &str) -> String {
    if message.contains("logical expression WindowFunction") {
        return "a window function stands where rows are not known yet, as in WHERE; write QUALIFY"
            .to_owned();
    }
    if message.contains("logical expression ScalarSubquery")
        || message.contains("must be aggregated")
    {
        return "a subquery as a value looks at columns of the query around it otherwise than by =, or has several rows for \
                one of them; write an aggregate WHERE inner.sensor = outer.sensor, a window function, ASOF JOIN for the \
                row before, or LEFT JOIN ... ON ... with GROUP BY"
            .to_owned();
    }
    if let Some((_, name)) = message.split_once("and unqualified field name ")
        && let Some((name, _)) = name.split_once(" which would be ambiguous")
    {
        return format!(
            "two columns of the answer are called {name}, one of them as one of all columns; give the other one another name \
             with AS, or name the columns"
        );
    }
    if let Some((_, name)) = message.split_once("Ambiguous reference to unqualified field ") {
        return format!(
            "Ambiguous reference to unqualified field {name}: more than one table has it; write a table before it, as in a.{name}, \
             and for * EXCLUDE a.* EXCLUDE ({name}), b.* EXCLUDE ({name})"
        );
    }
    if message.contains("Conflicting ordering requirements") {
        return "aggregates that gather rows in different orders cannot stand side by side; write first_value(x ORDER BY y), or \
                each in a query of its own"
            .to_owned();
    }
    if message.contains("OuterReferenceColumn") {
        return "a subquery looks at columns of the query around it in a way that cannot be run, as beside LIMIT; a join may say the same"
            .to_owned();
    }
    if message.contains("Cannot access field at argument") {
        return "a name with a dot stands for a part of a column that has no parts; if it is a column of a table of the query \
                around, give that table an alias that is not the name of a column"
            .to_owned();
    }
    const PLACES: [&str; 11] = [
        "Error during planning: ",
        "Execution error: ",
        "Schema error: ",
        "Internal error: ",
        "Optimizer rule 'simplify_expressions' failed\ncaused by\n",
        "type_coercion\ncaused by\n",
        "This feature is not implemented: ",
        "Arrow error: ",
        "Compute error: ",
        "Cast error: ",
        "Parser error: ",
    ];
    let message = message.split("\nThis issue was likely caused by").next().unwrap_or(message);
    let message =
        PLACES.iter().fold(message.to_owned(), |message, place| message.replace(place, ""));
    with_sql_types(&message)
}

/// A message that calls types as statements do.
fn with_sql_types(message: &str) -> String {
    /// Types that expressions have and no field.
    const OTHERS: [(&str, &str); 10] = [
        ("Dictionary(UInt32, Utf8)", "TEXT"),
        ("Timestamp(s)", "TIMESTAMP(0)"),
        ("Timestamp(ms)", "TIMESTAMP(3)"),
        ("Timestamp(µs)", "TIMESTAMP(6)"),
        ("Interval(MonthDayNano)", "INTERVAL"),
        ("Duration(ns)", "INTERVAL"),
        ("LargeUtf8", "TEXT"),
        ("Utf8View", "TEXT"),
        ("Date32", "DATE"),
        ("Time64(ns)", "TIME"),
    ];
    let of_fields = FieldType::ALL.map(|ty| (ty.arrow().to_string(), ty.sql_name()));
    let others = OTHERS.map(|(name, sql)| (name.to_owned(), sql));
    let mut names: Vec<_> = of_fields.into_iter().chain(others).collect();
    // A name may be the end of a longer one, as `Int64` is of `UInt64`.
    names.sort_by_key(|(name, _)| Reverse(name.len()));
    names.iter().fold(message.to_owned(), |message, (name, sql)| message.replace(name, sql))
}

fn lower_first(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_lowercase().chain(rest).collect())
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
        other => Error::invalid(plain(&other.strip_backtrace())),
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
