//! Rows are chosen and numbered in the order in which they come.
//!
//! DataFusion puts sorts below `OFFSET`, which then leaves out the first rows of another order, or more of them. And it leaves out
//! sorts before `LIMIT`, `OFFSET` and `row_number() OVER ()` when the order of what comes out matters to nobody. It leaves those
//! alone that keep some rows: here such sorts keep all there are, until the plan is settled.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

use crate::unknown::{Forget, Unknown};

/// More rows than there are.
const ALL_ROWS: usize = usize::MAX / 2;

/// A node that chooses or numbers rows as they come, over rows that are sorted, and not for what comes after it.
pub(super) fn in_given_order(
    node: Arc<dyn ExecutionPlan>,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let skips = node.downcast_ref::<GlobalLimitExec>().map(|limit| limit.skip() > 0);
    if skips.is_none() && !numbers_rows(&*node) {
        return Ok(Transformed::no(node));
    }
    let sorted = chosen_by_sort(Arc::clone(node.children()[0]))?;
    let node = replace_children_if_necessary(node, vec![sorted])?;
    Ok(Transformed::yes(match skips {
        Some(true) => Arc::new(Unknown::new(node, Forget::Nothing)),
        _ => node,
    }))
}

/// Whether a window is over all rows in the order in which they come.
fn numbers_rows(node: &dyn ExecutionPlan) -> bool {
    let whole = node.downcast_ref::<WindowAggExec>().map(WindowAggExec::window_expr);
    let bounded =
        node.downcast_ref::<BoundedWindowAggExec>().map(BoundedWindowAggExec::window_expr);
    let exprs = whole.or(bounded).unwrap_or_default();
    exprs.iter().any(|expr| expr.partition_by().is_empty() && expr.order_by().is_empty())
}

/// The same rows, of which a sort that comes first takes as many as there are: what chooses rows is left where it is.
fn chosen_by_sort(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if node.is::<SortExec>() {
        return Ok(node.with_fetch(node.fetch().or(Some(ALL_ROWS))).unwrap_or(node));
    }
    match (&node.children()[..], &node.maintains_input_order()[..]) {
        ([input], [true]) => {
            let input = chosen_by_sort(Arc::clone(input))?;
            replace_children_if_necessary(node, vec![input])
        }
        _ => Ok(node),
    }
}

/// A node that takes all rows anyway.
pub(super) fn with_all_rows(
    node: Arc<dyn ExecutionPlan>,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    Ok(match node.fetch().filter(|rows| *rows == ALL_ROWS).and_then(|_| node.with_fetch(None)) {
        Some(node) => Transformed::yes(node),
        None => Transformed::no(node),
    })
}
