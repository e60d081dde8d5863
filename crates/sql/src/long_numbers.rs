//! Whole numbers beyond 64 bits, compared with others. DataFusion takes them for floats, which are equal to all that is near.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value, VisitorMut};
use tidefall_types::{Error, Result};

use crate::tuples::filled;

/// Makes decimals of them.
pub(crate) struct LongNumbers;

impl VisitorMut for LongNumbers {
    type Break = Error;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
        let made = match expr {
            Expr::BinaryOp { left, op: Eq | NotEq | Lt | LtEq | Gt | GtEq, right }
            | Expr::IsDistinctFrom(left, right)
            | Expr::IsNotDistinctFrom(left, right) => make(left).and_then(|()| make(right)),
            Expr::InList { expr, list, .. } => {
                make(expr).and_then(|()| list.iter_mut().try_for_each(make))
            }
            _ => Ok(()),
        };
        match made {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

fn make(expr: &mut Expr) -> Result<()> {
    if let Some(number) = number(expr)
        && (number < i128::from(i64::MIN) || number > i128::from(u64::MAX))
    {
        *expr = filled(&format!("CAST('{number}' AS DECIMAL(38, 0))"), &[])?;
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
