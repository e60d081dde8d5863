//! What `SET` may change.

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

/// Settings that change how a session plans or shows, and never what the process may use: memory
/// and threads belong to whoever runs the process, not to who sends a statement.
const FREE: [&str; 5] = [
    "tidefall.",
    "datafusion.explain.",
    "datafusion.optimizer.",
    "datafusion.sql_parser.enable_ident_normalization",
    "datafusion.execution.time_zone",
];

/// What DataFusion would do wrong if it were set otherwise; see `session.rs`.
const FIXED: [&str; 6] = [
    "datafusion.optimizer.enable_aggregate_dynamic_filter_pushdown",
    "datafusion.optimizer.enable_piecewise_merge_join",
    "datafusion.optimizer.enable_topk_aggregation",
    "datafusion.optimizer.max_passes",
    "datafusion.optimizer.skip_failed_rules",
    "datafusion.optimizer.subset_repartition_threshold",
];

/// Checks that a statement may change the setting.
///
/// # Errors
/// `Unsupported`, naming what can be set.
pub(crate) fn check_free(variable: &str) -> Result<()> {
    let name = variable.to_ascii_lowercase();
    let is_free = FREE.iter().any(|prefix| name.starts_with(prefix)) || name == "timezone";
    if is_free && !FIXED.contains(&name.as_str()) {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "{variable} cannot be set by a statement; tidefall.metrics, datafusion.explain.*, \
         most of datafusion.optimizer.* and the time zone can"
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
