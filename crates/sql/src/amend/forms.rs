//! Forms of times in `to_char`, checked: DataFusion answers one without a part of the time, as those of PostgreSQL are, with itself.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable};
use tidefall_types::Error;

use crate::error::to_datafusion;

/// The forms that are words, of differences of times alone.
const WORDS: [&str; 2] = ["iso8601", "pretty"];

/// Refuses a form in which no part of the time is named.
pub(super) fn check(expr: &Expr, schema: &DFSchema) -> Result<()> {
    let Expr::ScalarFunction(call) = expr else { return Ok(()) };
    let ("to_char", [value, Expr::Literal(form, _)]) = (call.func.name(), &call.args[..]) else {
        return Ok(());
    };
    let Some(Some(form)) = form.try_as_str() else { return Ok(()) };
    let is_difference = || {
        let of = value.get_type(schema);
        of.is_ok_and(|of| matches!(of, DataType::Duration(_) | DataType::Interval(_)))
    };
    let is_word = WORDS.iter().any(|word| form.eq_ignore_ascii_case(word));
    let names_a_part = form.contains('%') || is_word && is_difference();
    if names_a_part || !form.contains(char::is_alphabetic) {
        return Ok(());
    }
    Err(to_datafusion(Error::invalid(format!(
        "to_char: '{form}' has no % in it; write '%Y-%m-%d %H:%M:%S'"
    ))))
}
