//! Windows that turn out to be the same: `sum(n) OVER (ORDER BY n RANGE 1.5 PRECEDING)` beside `RANGE 1.50 PRECEDING`,
//! `sum(n * 1) OVER (...)` beside `sum(n) OVER (...)`.
//!
//! DataFusion takes the second one for an expression that can be computed below both, where no window can be. Here it is computed once,
//! and has both names.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Window};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Computes each of them once.
#[derive(Debug)]
pub(crate) struct SameWindows;

impl OptimizerRule for SameWindows {
    fn name(&self) -> &str {
        "tidefall_same_windows"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Window(window) => once(window),
            plan => Ok(Transformed::no(plan)),
        }
    }
}

fn once(window: Window) -> Result<Transformed<LogicalPlan>> {
    let mut known = HashMap::new();
    let mut below = &window.input;
    while let LogicalPlan::Window(other) = &**below {
        for (expr, column) in columns(other) {
            known.entry(expr).or_insert(column);
        }
        below = &other.input;
    }
    let mut own = Vec::with_capacity(window.window_expr.len());
    let mut shown = window.input.schema().columns();
    let mut names = vec![None; shown.len()];
    for (expr, (what, column)) in window.window_expr.iter().zip(columns(&window)) {
        if let Some(same) = known.get(&what).filter(|_| !what.is_volatile()) {
            shown.push(same.clone());
            names.push(Some(column));
            continue;
        }
        own.push(expr.clone());
        shown.push(column.clone());
        names.push(None);
        known.insert(what, column);
    }
    if own.len() == window.window_expr.len() {
        return Ok(Transformed::no(LogicalPlan::Window(window)));
    }
    let input = match own.is_empty() {
        true => window.input,
        false => Arc::new(LogicalPlan::Window(Window::try_new(own, window.input)?)),
    };
    let exprs = shown.into_iter().zip(names).map(|(column, name)| match name {
        Some(name) => Expr::Column(column).alias_qualified(name.relation, name.name),
        None => Expr::Column(column),
    });
    let projection = Projection::try_new(exprs.collect(), input)?;
    Ok(Transformed::yes(LogicalPlan::Projection(projection)))
}

/// What a node computes, without the names that it has, and the columns of that.
fn columns(window: &Window) -> impl Iterator<Item = (Expr, Column)> {
    let skipped = window.input.schema().fields().len();
    let columns = window.schema.columns().into_iter().skip(skipped);
    window.window_expr.iter().map(|expr| expr.clone().unalias_nested().data).zip(columns)
}
