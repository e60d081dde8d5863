//! `x SIMILAR TO pattern` is about the whole text, as in DuckDB, and the pattern is a regular expression as that of `~`.
//!
//! DataFusion looks for the pattern anywhere in the text.

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, binary_expr, lit};
use tidefall_types::Error;

use crate::error::to_datafusion;

pub(super) fn amend(expr: Expr) -> Result<Transformed<Expr>> {
    let Expr::SimilarTo(similar) = expr else { return Ok(Transformed::no(expr)) };
    if similar.escape_char.is_some() {
        return Err(to_datafusion(Error::unsupported(
            "SIMILAR TO has no ESCAPE: its pattern is a regular expression, in which \\ escapes",
        )));
    }
    let behind = binary_expr(*similar.pattern, Operator::StringConcat, lit(")$"));
    let whole = binary_expr(lit("^(?:"), Operator::StringConcat, behind);
    let operator = match similar.negated {
        true => Operator::RegexNotMatch,
        false => Operator::RegexMatch,
    };
    let matches = BinaryExpr::new(similar.expr, operator, Box::new(whole));
    Ok(Transformed::yes(Expr::BinaryExpr(matches)))
}
