//! Operators that DataFusion does not know for all types for which people use them.
//!
//! - `tag || 7`: what is not text becomes text beside a text, as in PostgreSQL and DuckDB.
//! - `date + INTERVAL '8 hours'` is a time, as there; DataFusion leaves the hours out.
//! - `7 // 2` and `7 DIV 2` divide whole numbers, as `7 / 2` does.
//! - `7 / 2` is 3 also where one of both has a sign and the other has none: DataFusion makes decimals of four digits of them.
//! - `b = 'true'`: the text beside a boolean is cast to one.
//! - `INTERVAL '1 hour' * 3`, `(max(time) - min(time)) / count(*)`: spans of time times numbers, and divided by them
//!   (`spans.rs`).

mod spans;

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, binary_expr, cast, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use tidefall_types::{Error, sql_type_name};

use crate::error::to_datafusion;
use crate::types::is_text;

/// A type for all integers, with a sign and without.
const WIDE: DataType = DataType::Decimal128(20, 0);

/// Makes the operators known.
pub(crate) fn register(context: &mut SessionContext) {
    // A context takes all of them.
    let _ = context.register_expr_planner(Arc::new(Operators));
}

/// Plans operators by the types of both sides.
#[derive(Debug)]
struct Operators;

impl ExprPlanner for Operators {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let types = (expr.left.get_type(schema), expr.right.get_type(schema));
        let (Ok(left), Ok(right)) = types else { return Ok(PlannerResult::Original(expr)) };
        let planned = match expr.op {
            BinaryOperator::StringConcat => concatenate(&expr, &left, &right),
            BinaryOperator::DuckIntegerDivide | BinaryOperator::MyIntegerDivide => {
                Some(divide_whole(&expr, &left, &right)?)
            }
            BinaryOperator::Plus | BinaryOperator::Minus => with_time_of_day(&expr, &left, &right),
            BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq => as_booleans(&expr, &left, &right),
            BinaryOperator::Divide if is_mixed(&left, &right) => Some(divide_mixed(&expr)),
            BinaryOperator::Multiply | BinaryOperator::Divide => spans::scale(&expr, &left, &right),
            _ => None,
        };
        Ok(planned.map_or_else(|| PlannerResult::Original(expr), PlannerResult::Planned))
    }
}

/// Two sides of which one is a text and the other is none.
fn concatenate(expr: &RawBinaryExpr, left: &DataType, right: &DataType) -> Option<Expr> {
    let as_text = |side: &Expr, of: &DataType| match is_text(of) {
        true => side.clone(),
        false => cast(side.clone(), DataType::Utf8),
    };
    let is_plain = |of: &DataType| !of.is_nested() && !of.is_null() && !of.is_binary();
    let is_mixed = is_text(left) != is_text(right) && is_plain(left) && is_plain(right);
    is_mixed.then(|| {
        let (left, right) = (as_text(&expr.left, left), as_text(&expr.right, right));
        binary_expr(left, Operator::StringConcat, right)
    })
}

/// A boolean and a text.
fn as_booleans(expr: &RawBinaryExpr, left: &DataType, right: &DataType) -> Option<Expr> {
    let op = match expr.op {
        BinaryOperator::Eq => Operator::Eq,
        BinaryOperator::NotEq => Operator::NotEq,
        BinaryOperator::Lt => Operator::Lt,
        BinaryOperator::LtEq => Operator::LtEq,
        BinaryOperator::Gt => Operator::Gt,
        BinaryOperator::GtEq => Operator::GtEq,
        _ => return None,
    };
    let as_boolean = |side: &Expr| cast(side.clone(), DataType::Boolean);
    let (left, right) = match (left, right) {
        (DataType::Boolean, text) if is_text(text) => (expr.left.clone(), as_boolean(&expr.right)),
        (text, DataType::Boolean) if is_text(text) => (as_boolean(&expr.left), expr.right.clone()),
        _ => return None,
    };
    Some(binary_expr(left, op, right))
}

/// A date and an interval, which may have hours.
fn with_time_of_day(expr: &RawBinaryExpr, left: &DataType, right: &DataType) -> Option<Expr> {
    let is_date = |of: &DataType| matches!(of, DataType::Date32 | DataType::Date64);
    let is_interval = |of: &DataType| matches!(of, DataType::Interval(_));
    let as_time = |date: &Expr| cast(date.clone(), DataType::Timestamp(TimeUnit::Nanosecond, None));
    match expr.op {
        BinaryOperator::Plus if is_date(left) && is_interval(right) => {
            Some(binary_expr(as_time(&expr.left), Operator::Plus, expr.right.clone()))
        }
        BinaryOperator::Plus if is_interval(left) && is_date(right) => {
            Some(binary_expr(as_time(&expr.right), Operator::Plus, expr.left.clone()))
        }
        BinaryOperator::Minus if is_date(left) && is_interval(right) => {
            Some(binary_expr(as_time(&expr.left), Operator::Minus, expr.right.clone()))
        }
        _ => None,
    }
}

fn divide_whole(expr: &RawBinaryExpr, left: &DataType, right: &DataType) -> Result<Expr> {
    match left.is_integer() && right.is_integer() {
        true if is_mixed(left, right) => Ok(divide_mixed(expr)),
        true => Ok(binary_expr(expr.left.clone(), Operator::Divide, expr.right.clone())),
        false => Err(to_datafusion(Error::unsupported(format!(
            "{} divides whole numbers, not {} by {}; write floor(a / b)",
            expr.op,
            sql_type_name(left),
            sql_type_name(right)
        )))),
    }
}

/// Whether one of two types are large integers without a sign and the other are integers with one.
fn is_mixed(left: &DataType, right: &DataType) -> bool {
    (*left == DataType::UInt64 && right.is_signed_integer())
        || (left.is_signed_integer() && *right == DataType::UInt64)
}

/// The whole part of a quotient of an integer with a sign and a large one without.
fn divide_mixed(expr: &RawBinaryExpr) -> Expr {
    let unsigned = |side: &Expr| match side {
        Expr::Literal(ScalarValue::Int64(Some(number)), _) => u64::try_from(*number).ok().map(lit),
        _ => None,
    };
    match (unsigned(&expr.left), unsigned(&expr.right)) {
        (Some(left), _) => binary_expr(left, Operator::Divide, expr.right.clone()),
        (_, Some(right)) => binary_expr(expr.left.clone(), Operator::Divide, right),
        _ => {
            let (left, right) = (cast(expr.left.clone(), WIDE), cast(expr.right.clone(), WIDE));
            // Nothing is left for the digits behind the point.
            let rest = binary_expr(left.clone(), Operator::Modulo, right.clone());
            let whole = binary_expr(left, Operator::Minus, rest);
            cast(binary_expr(whole, Operator::Divide, right), WIDE)
        }
    }
}
