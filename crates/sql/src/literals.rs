//! Constants among the arguments of functions in the place of a table.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;
use tidefall_types::{Result, parse_time};

/// The value of an expression that is a constant.
pub(crate) fn literal(expr: &Expr) -> Option<&ScalarValue> {
    if let Expr::Literal(value, _) = expr { Some(value) } else { None }
}

/// A text.
pub(crate) fn text(value: &ScalarValue) -> Option<&str> {
    value.try_as_str().flatten()
}

/// A time in nanoseconds since 1970 UTC; nothing for what is none.
///
/// # Errors
/// `Invalid` for a text that cannot be read as one.
pub(crate) fn time(value: &ScalarValue) -> Result<Option<i64>> {
    if let Some(text) = text(value) {
        return parse_time(text).map(Some);
    }
    let is_time =
        matches!(value.data_type(), DataType::Timestamp(..) | DataType::Date32 | DataType::Date64);
    let utc = DataType::Timestamp(TimeUnit::Nanosecond, Some("+00:00".into()));
    Ok(match is_time.then(|| value.cast_to(&utc)) {
        Some(Ok(ScalarValue::TimestampNanosecond(time_ns, _))) => time_ns,
        _ => None,
    })
}
