//! Windows and `LIMIT` for the rows that each row of the query around a subquery sees.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::functions_window::row_number::row_number;
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, FetchType, Filter, Limit, LogicalPlan, SkipType, Window, lit,
};

use super::condition::{Condition, Lifted, Names};
use crate::tree::Tree;

/// Whether a limit leaves a row where there is one.
pub(super) fn takes_a_row(limit: &Limit) -> Result<bool> {
    let is_whole = matches!(limit.get_skip_type()?, SkipType::Literal(0));
    Ok(is_whole && matches!(limit.get_fetch_type()?, FetchType::Literal(None | Some(1..))))
}

/// The windows of a node, each parted by the columns of the conditions as well.
pub(super) fn parted(plan: &LogicalPlan, below: &Lifted) -> Result<LogicalPlan> {
    let LogicalPlan::Window(window) = plan else { return Ok(plan.clone()) };
    let keys: Vec<Expr> = below.conditions.iter().flat_map(Condition::columns).collect();
    let names = NamePreserver::new(plan);
    let parted = window.window_expr.iter().map(|expr| {
        let name = names.save(expr);
        let parted = expr.clone().transform_up(|node| match node {
            Expr::WindowFunction(mut call) => {
                call.params.partition_by.extend(keys.iter().cloned());
                Ok(Transformed::yes(Expr::WindowFunction(call)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(name.restore(parted.data))
    });
    let parted = parted.collect::<Result<Vec<_>>>()?;
    Ok(LogicalPlan::Window(Window::try_new(parted, Arc::new(below.plan.clone()))?))
}

/// The rows that a limit leaves of those of each value of the conditions; `None` where it is not known.
pub(super) fn numbered(
    limit: &Limit,
    sorted: Vec<Sort>,
    below: &Lifted,
    names: &mut Names,
) -> Result<Option<LogicalPlan>> {
    let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
        (limit.get_skip_type()?, limit.get_fetch_type()?)
    else {
        return Ok(None);
    };
    let keys: Vec<Expr> = below.conditions.iter().flat_map(Condition::columns).collect();
    let call = row_number().partition_by(keys).order_by(sorted).build()?;
    let name = names.next();
    let window = Window::try_new(vec![call.alias(&name)], Arc::new(below.plan.clone()))?;
    let number = Expr::Column(Column::new_unqualified(name));
    let skip = u64::try_from(skip).unwrap_or(u64::MAX);
    let mut is_left = number.clone().gt(lit(skip));
    if let Some(fetch) = fetch {
        let last = skip.saturating_add(u64::try_from(fetch).unwrap_or(u64::MAX));
        is_left = is_left.and(number.lt_eq(lit(last)));
    }
    let filter = Filter::try_new(is_left, Arc::new(LogicalPlan::Window(window)))?;
    Ok(Some(LogicalPlan::Filter(filter)))
}
