//! Whole numbers beyond 64 bits, and numbers with more digits than floats hold, compared with others. DataFusion takes them for
//! floats, which are equal to all that is near.
//!
//! Here they are decimals; of all numbers the underscores between their digits go. Beside a float these are floats again (`amend/numbers.rs`): that needs the types, which are not known
//! before a statement is planned, and the digits, which are not known any more after. What others write as comparisons must be
//! there: tuples, `= ANY`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator, Value,
    VisitorMut,
};
use tidefall_types::{Error, Result};

use crate::tuples::filled;

/// How many digits whole numbers of 64 bits have at most.
pub(crate) const WHOLE_DIGITS: usize = 20;
/// How many digits decimals beside such have behind the point at most.
const DIGITS_BEHIND_MAX: usize = 18;

/// Makes decimals of them.
pub(crate) struct LongNumbers;

impl VisitorMut for LongNumbers {
    type Break = Error;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if let Expr::Value(value) = expr
            && let Value::Number(digits, _) = &mut value.value
        {
            digits.retain(|digit| digit != '_');
        }
        match compared(expr).into_iter().try_for_each(make) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// What an expression compares with each other.
fn compared(expr: &mut Expr) -> Vec<&mut Expr> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    match expr {
        Expr::BinaryOp { left, op: Eq | NotEq | Lt | LtEq | Gt | GtEq, right }
        | Expr::IsDistinctFrom(left, right)
        | Expr::IsNotDistinctFrom(left, right) => vec![left, right],
        Expr::Between { expr, low, high, .. } => vec![expr, low, high],
        Expr::InList { expr, list, .. } => [&mut **expr].into_iter().chain(list).collect(),
        Expr::Case { operand: Some(operand), conditions, .. } => {
            let values = conditions.iter_mut().map(|when| &mut when.condition);
            [&mut **operand].into_iter().chain(values).collect()
        }
        Expr::Function(call) if call.name.to_string().eq_ignore_ascii_case("nullif") => {
            let FunctionArguments::List(list) = &mut call.args else { return Vec::new() };
            let values = list.args.iter_mut().filter_map(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
                _ => None,
            });
            values.collect()
        }
        _ => Vec::new(),
    }
}

fn make(expr: &mut Expr) -> Result<()> {
    if let Some(number) = number(expr) {
        if number < i128::from(i64::MIN) || number > i128::from(u64::MAX) {
            let digits = number.unsigned_abs().to_string().len().max(WHOLE_DIGITS);
            *expr = filled(&format!("CAST('{number}' AS DECIMAL({digits}, 0))"), &[])?;
        }
    } else if let Some((digits, behind)) = with_point(expr) {
        let all = WHOLE_DIGITS + behind;
        *expr = filled(&format!("CAST('{digits}' AS DECIMAL({all}, {behind}))"), &[])?;
    }
    Ok(())
}

/// A whole number that a decimal can hold.
fn number(expr: &Expr) -> Option<i128> {
    match expr {
        Expr::Nested(inner) => number(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => number(expr).map(|number| -number),
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) if digits.len() <= 38 => digits.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// A number with a point and more digits than every float keeps, and how many of them are behind the point, if decimals beside whole
/// numbers can hold it.
fn with_point(expr: &Expr) -> Option<(String, usize)> {
    match expr {
        Expr::Nested(inner) => with_point(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            with_point(expr).map(|(digits, behind)| match digits.strip_prefix('-') {
                Some(plain) => (plain.to_owned(), behind),
                None => (format!("-{digits}"), behind),
            })
        }
        Expr::Value(value) => {
            let Value::Number(digits, _) = &value.value else { return None };
            let (before, behind) = digits.split_once('.')?;
            let is_plain = |part: &str| part.bytes().all(|digit| digit.is_ascii_digit());
            let is_long = before.len() + behind.len() > f64::DIGITS as usize;
            let fits = before.len() <= WHOLE_DIGITS && behind.len() <= DIGITS_BEHIND_MAX;
            (is_plain(before) && is_plain(behind) && is_long && fits)
                .then(|| (digits.clone(), behind.len()))
        }
        _ => None,
    }
}
