//! Filters are pushed down where that changes no answer.
//!
//! Some aggregates have a row also where none is aggregated. DataFusion pushes what holds for whole groups below their
//! aggregate: conditions on the keys of groups, and those on no column at all. Without keys, and in grouping sets, there is a group of all rows, which is there without rows, too: a
//! condition below it takes its rows away, but not the group. So nothing is pushed there.
//!
//! Of conditions on one column it keeps the one that leaves fewest rows, and takes those for different that are written in
//! different ways: `a = 1 AND 1 = a` left none. Here the column stands on the left.
//!
//! Nothing passes a window over all rows, whose answers would be others. Those that number rows for their order (`orders/subqueries.rs`)
//! number fewer as well.

use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, Filter, LogicalPlan, Operator, Window,
};
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::instead::named_as_inner;
use crate::orders::only_numbers;
use crate::tree::Tree;

/// DataFusion's rule, where it changes no answer.
#[derive(Debug)]
pub(crate) struct PushFilters(PushDownFilter);

impl PushFilters {
    /// Puts it in the place of DataFusion's rule.
    pub(crate) fn instead_of(
        rule: Arc<dyn OptimizerRule + Send + Sync>,
    ) -> Arc<dyn OptimizerRule + Send + Sync> {
        let inner = PushDownFilter::new();
        match rule.name() == inner.name() {
            true => Arc::new(Self(inner)),
            false => rule,
        }
    }
}

impl OptimizerRule for PushFilters {
    named_as_inner!();

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Filter(filter) if has_group_of_all(&filter.input) => {
                Ok(Transformed::no(LogicalPlan::Filter(filter)))
            }
            LogicalPlan::Filter(Filter { predicate, input, .. })
                if is_below_numbers(&predicate, &input) =>
            {
                let LogicalPlan::Window(numbers) = Arc::unwrap_or_clone(input) else {
                    return internal_err!("numbers are given by a window");
                };
                let kept = LogicalPlan::Filter(Filter::try_new(predicate, numbers.input)?);
                let numbered = Window::try_new(numbers.window_expr, Arc::new(kept))?;
                Ok(Transformed::yes(LogicalPlan::Window(numbered)))
            }
            plan => self.0.rewrite(with_columns_on_the_left(plan)?, config),
        }
    }
}

/// Filters that follow each other, and become one, with each comparison of a value and a column turned round.
fn with_columns_on_the_left(plan: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Filter(mut filter) = plan else { return Ok(plan) };
    filter.predicate = turned(filter.predicate)?;
    if matches!(*filter.input, LogicalPlan::Filter(_)) {
        let input = Arc::unwrap_or_clone(filter.input);
        filter.input = Arc::new(with_columns_on_the_left(input)?);
    }
    Ok(LogicalPlan::Filter(filter))
}

fn turned(condition: Expr) -> Result<Expr> {
    let turned = condition.transform_down(|part| {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = part else {
            return Ok(Transformed::new(part, false, TreeNodeRecursion::Jump));
        };
        let turned =
            op.swap().filter(|_| left.as_literal().is_some() && right.as_literal().is_none());
        let (left, op, right) = match turned {
            Some(op) => (right, op, left),
            None => (left, op, right),
        };
        let below =
            if op == Operator::And { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Jump };
        Ok(Transformed::new(
            Expr::BinaryExpr(BinaryExpr { left, op, right }),
            turned.is_some(),
            below,
        ))
    });
    turned.map(|turned| turned.data)
}

/// Whether a condition can be put below a window that gives rows numbers for their order alone.
fn is_below_numbers(condition: &Expr, plan: &LogicalPlan) -> bool {
    let LogicalPlan::Window(window) = plan else { return false };
    let known = window.input.schema();
    only_numbers(window)
        && !condition.is_volatile()
        && condition.column_refs().into_iter().all(|column| known.has_column(column))
}

/// Whether a plan is an aggregate with a group of all rows.
fn has_group_of_all(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Aggregate(Aggregate { group_expr, .. }) = plan else { return false };
    matches!(group_expr.as_slice(), [] | [Expr::GroupingSet(_)])
}
