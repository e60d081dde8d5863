//! Times in conditions, in all the forms in which people write them.
//!
//! DataFusion wants seconds in every time; `time >= '2024-01-01 12:00'` is how people write it,
//! and how every other way into Tidefall reads it.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{ExprSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;
use tidefall_types::parse_time;

/// Reads texts that are compared with a time, before DataFusion does.
#[derive(Debug)]
pub(crate) struct ReadTimes;

impl AnalyzerRule for ReadTimes {
    fn name(&self) -> &str {
        "tidefall_read_times"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let read = plan.transform_up_with_subqueries(|node| match node {
            // Elsewhere a changed expression would change the name of its column.
            LogicalPlan::Filter(mut filter) => {
                let read = read_times(filter.predicate.clone(), filter.input.schema().as_ref())?;
                filter.predicate = read.data;
                Ok(Transformed::yes(LogicalPlan::Filter(filter)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(read.data)
    }
}

/// Turns texts that are compared with a time, or cast to one, into times. What is no time stays,
/// and DataFusion says so.
pub(crate) fn read_times(expr: Expr, schema: &dyn ExprSchema) -> Result<Transformed<Expr>> {
    expr.transform_up(|node| {
        Ok(match node {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if compares(op) && (is_time(&left, schema) || is_time(&right, schema)) =>
            {
                let (left, right) = (Box::new(read(*left)), Box::new(read(*right)));
                Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right }))
            }
            Expr::Between(between) if is_time(&between.expr, schema) => {
                let Between { expr, negated, low, high } = between;
                let (low, high) = (Box::new(read(*low)), Box::new(read(*high)));
                Transformed::yes(Expr::Between(Between { expr, negated, low, high }))
            }
            Expr::InList(list) if is_time(&list.expr, schema) => {
                let InList { expr, list, negated } = list;
                let list = list.into_iter().map(read).collect();
                Transformed::yes(Expr::InList(InList { expr, list, negated }))
            }
            Expr::Cast(cast) if is_nanoseconds(cast.field.data_type()) => match read(*cast.expr) {
                Expr::Literal(literal @ ScalarValue::TimestampNanosecond(..), metadata) => {
                    Transformed::yes(Expr::Literal(literal, metadata))
                }
                expr => {
                    Transformed::no(Expr::Cast(Cast { expr: Box::new(expr), field: cast.field }))
                }
            },
            other => Transformed::no(other),
        })
    })
}

fn compares(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

fn is_time(expr: &Expr, schema: &dyn ExprSchema) -> bool {
    expr.get_type(schema).is_ok_and(|data_type| matches!(data_type, DataType::Timestamp(_, None)))
}

fn is_nanoseconds(data_type: &DataType) -> bool {
    *data_type == DataType::Timestamp(TimeUnit::Nanosecond, None)
}

fn read(expr: Expr) -> Expr {
    let Expr::Literal(literal, metadata) = expr else { return expr };
    let time_ns = literal.try_as_str().flatten().and_then(|text| parse_time(text).ok());
    match time_ns {
        Some(ns) => Expr::Literal(ScalarValue::TimestampNanosecond(Some(ns), None), metadata),
        None => Expr::Literal(literal, metadata),
    }
}
