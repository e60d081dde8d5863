//! Where functions are computed of rows that come without a turn for others.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;

use crate::tree::Tree;

/// Whether a node computes functions of its rows, which may take long for each batch.
pub(super) fn calls_functions(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return any_calls(projection.expr().iter().map(|shown| &shown.expr));
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        return any_calls([filter.predicate()]);
    }
    let Some(aggregate) = plan.downcast_ref::<AggregateExec>() else { return Ok(false) };
    let keys = aggregate.group_expr().expr().iter().map(|(key, _)| key);
    let filters = aggregate.filter_expr().iter().flatten();
    let values: Vec<_> = aggregate.aggr_expr().iter().flat_map(|one| one.expressions()).collect();
    Ok(any_calls(keys.chain(filters))? || any_calls(&values)?)
}

fn any_calls<'a>(exprs: impl IntoIterator<Item = &'a Arc<dyn PhysicalExpr>>) -> Result<bool> {
    for expr in exprs {
        if expr.exists(|part| Ok(part.is::<ScalarFunctionExpr>()))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether others have a turn between the batches of a plan. Nodes that hold their rows give out all batches in one go.
pub(super) fn gives_turns(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let hands_on = matches!(
        plan.name(),
        "ProjectionExec" | "FilterExec" | "LocalLimitExec" | "GlobalLimitExec" | "UnionExec"
    );
    // Leaves give turns by themselves.
    let children = plan.children();
    match plan.name() {
        "Turns" => true,
        _ if children.is_empty() => true,
        _ => hands_on && children.into_iter().all(gives_turns),
    }
}
