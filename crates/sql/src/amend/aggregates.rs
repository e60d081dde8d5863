//! Aggregates of tags, which are texts in a dictionary, and those that order what they gather.
//!
//! - `string_agg(DISTINCT tag ORDER BY tag)` has its argument cast to text and not its order, which then looks like another
//!   expression.
//! - `approx_distinct(tag)` knows texts alone.
//! - Beside `array_agg(DISTINCT x ORDER BY x)`, `array_agg(DISTINCT x ORDER BY x DESC)` would have the order of the first one.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, cast};
use tidefall_types::Error;

use crate::error::to_datafusion;
use crate::tree::apply_with_subqueries;

/// Refuses aggregates of distinct values beside those of the other order, which DataFusion would give to both.
pub(super) fn check_orders(plan: &LogicalPlan) -> Result<()> {
    apply_with_subqueries(plan, &mut |node| {
        let LogicalPlan::Aggregate(aggregate) = node else {
            return Ok(TreeNodeRecursion::Continue);
        };
        let calls: Vec<(bool, &Sort)> =
            aggregate.aggr_expr.iter().filter_map(first_order).collect();
        let is_other = |one: &Sort, other: &Sort| {
            one.expr == other.expr && (one.asc, one.nulls_first) != (other.asc, other.nulls_first)
        };
        let mut distinct = calls.iter().filter(|(is_distinct, _)| *is_distinct);
        match distinct.any(|(_, one)| calls.iter().any(|(_, other)| is_other(one, other))) {
            true => Err(to_datafusion(Error::unsupported(
                "an aggregate of DISTINCT values in one order cannot stand beside one in the other order; write \
                 array_sort(array_agg(DISTINCT x), 'DESC', 'NULLS LAST'), or each in a query of its own",
            ))),
            false => Ok(TreeNodeRecursion::Continue),
        }
    })?;
    Ok(())
}

/// Whether an aggregate is of distinct values, and what orders them first.
fn first_order(expr: &Expr) -> Option<(bool, &Sort)> {
    match expr {
        Expr::Alias(alias) => first_order(&alias.expr),
        Expr::AggregateFunction(call) => {
            call.params.order_by.first().map(|sort| (call.params.distinct, sort))
        }
        _ => None,
    }
}

/// An aggregate that orders and counts tags as the texts that they are.
pub(super) fn amend(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::AggregateFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
    let mut is_amended = false;
    if call.params.distinct {
        for sort in &mut call.params.order_by {
            let is_same = |arg: &&Expr| match arg {
                Expr::Cast(Cast { expr, .. }) => **expr == sort.expr,
                _ => false,
            };
            if let Some(arg) = call.params.args.iter().find(is_same) {
                sort.expr = arg.clone();
                is_amended = true;
            }
        }
    }
    if call.func.name() == "approx_distinct" {
        for arg in &mut call.params.args {
            if matches!(arg.get_type(schema)?, DataType::Dictionary(..)) {
                *arg = cast(std::mem::take(arg), DataType::Utf8);
                is_amended = true;
            }
        }
    }
    let expr = Expr::AggregateFunction(call);
    Ok(if is_amended { Transformed::yes(expr) } else { Transformed::no(expr) })
}
