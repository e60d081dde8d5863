//! Aggregates within expressions.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;

use crate::tree::Tree;

/// The calls of aggregates in some expressions.
pub(super) fn calls_of(exprs: &[Expr]) -> Result<Vec<AggregateFunction>> {
    let mut calls = Vec::new();
    for expr in exprs {
        expr.apply(|part| {
            if let Expr::AggregateFunction(call) = part {
                calls.push(call.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(calls)
}

/// Expressions whose calls of aggregates are changed, under the names that they have.
pub(super) fn with_calls(
    exprs: Vec<Expr>,
    change: impl Fn(&mut AggregateFunction),
) -> Result<Vec<Expr>> {
    let names = NamePreserver::new_for_projection();
    let changed = exprs.into_iter().map(|expr| {
        let name = names.save(&expr);
        let changed = expr.transform_up(|mut part| {
            let Expr::AggregateFunction(call) = &mut part else { return Ok(Transformed::no(part)) };
            change(call);
            Ok(Transformed::yes(part))
        })?;
        Ok(if changed.transformed { name.restore(changed.data) } else { changed.data })
    });
    changed.collect()
}
