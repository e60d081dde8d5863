//! What `SET` may change.

use datafusion::arrow::array::timezone::Tz;
use datafusion::common::extensions_options;
use datafusion::config::ConfigExtension;
use datafusion::sql::sqlparser::ast::{Expr, Set, Statement, Value};
use tidefall_types::{Error, Result};

extensions_options! {
    /// The settings of Tidefall itself: `SET tidefall.metrics = off`.
    pub(crate) struct Settings {
        /// Whether aggregates are answered from block metrics where they can be.
        pub metrics: bool, default = true
    }
}

impl ConfigExtension for Settings {
    const PREFIX: &'static str = "tidefall";
}

/// Settings that change how a session reads names and times or shows plans. How plans are made is not among them: many of the
/// ways that DataFusion can be told to go have wrong answers, and none is as fast. What the process may use, memory and
/// threads, belongs to whoever runs it, not to who sends a statement.
const FREE: [&str; 4] = [
    "tidefall.",
    "datafusion.explain.",
    "datafusion.sql_parser.enable_ident_normalization",
    "datafusion.execution.time_zone",
];

/// Checks that a statement may change the setting.
///
/// # Errors
/// `Unsupported`, naming what can be set.
pub(crate) fn check_free(variable: &str) -> Result<()> {
    let name = variable.to_ascii_lowercase();
    if FREE.iter().any(|prefix| name.starts_with(prefix)) || name == "timezone" {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "{variable} cannot be set by a statement; tidefall.metrics, datafusion.explain.* and the time zone can"
    )))
}

/// Checks that a time zone is one, as it is used only later.
///
/// # Errors
/// `Invalid` if it is not known.
pub(crate) fn check_zone(variable: &str, values: &[Expr]) -> Result<()> {
    let name = variable.to_ascii_lowercase();
    let [Expr::Value(value)] = values else { return Ok(()) };
    let Value::SingleQuotedString(zone) = &value.value else { return Ok(()) };
    if !(name.ends_with("time_zone") || name == "timezone") || zone.parse::<Tz>().is_ok() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{zone:?} is no time zone; write one as 'Europe/Berlin', 'UTC' or '+02:00'"
    )))
}

/// Reads `on` and `off` as the booleans that they mean.
pub(crate) fn read_switch(mut statement: Statement) -> Statement {
    if let Statement::Set(Set::SingleAssignment { values, .. }) = &mut statement {
        for value in values {
            let text = value.to_string().to_ascii_lowercase();
            match text.trim_matches('\'') {
                "on" => *value = Expr::Value(Value::Boolean(true).into()),
                "off" => *value = Expr::Value(Value::Boolean(false).into()),
                _ => {}
            }
        }
    }
    statement
}
