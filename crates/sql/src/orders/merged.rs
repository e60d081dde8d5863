//! What comes out of a merge has the order of the merge, and no other one.
//!
//! Rows may come in several orders at once: those of a scan by the tags and then by time, those of each part of a
//! `UNION ALL` by time and by a column that is constant in it. DataFusion merges parts by what is asked for above, and
//! goes on with all orders that the rows of each part have. Sorts and partitions of windows above a merge then count on
//! orders that the merge has undone; and sorts that are put below a merge, as they are finer than it, leave it as it is.
//!
//! Here a merge goes by all orders of its parts, first by its own, and nothing else is known of the rows behind it.

use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, replace_children_if_necessary,
};

use crate::unknown::{Forget, Unknown};

/// A merge by all orders of its parts, which are known in no other order.
pub(super) fn in_one_order(
    node: Arc<dyn ExecutionPlan>,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if node.is::<RepartitionExec>() && node.maintains_input_order() == [true] {
        return divided_in_one_order(node);
    }
    let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() else {
        return Ok(Transformed::no(node));
    };
    if !undoes_an_order(merge.expr(), merge.input())? {
        return Ok(Transformed::no(node));
    }
    // Rows in two orders are in the one that goes by both, one after the other.
    let known = merge.input().output_ordering().into_iter().flatten();
    let Some(order) = LexOrdering::new(merge.expr().iter().chain(known).cloned()) else {
        return internal_err!("a merge has an order");
    };
    let mut parts = Arc::clone(merge.input());
    if undoes_an_order(&order, &parts)? {
        parts = Arc::new(Unknown::new(parts, Forget::OtherOrders(order.clone())));
    }
    let merged = SortPreservingMergeExec::new(order, parts).with_fetch(merge.fetch());
    Ok(Transformed::yes(Arc::new(merged)))
}

/// Parts that are merged and divided anew, and known in the order of the merge alone.
fn divided_in_one_order(
    node: Arc<dyn ExecutionPlan>,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let parts = Arc::clone(node.children()[0]);
    let Some(order) = parts.output_ordering().cloned() else { return Ok(Transformed::no(node)) };
    if !undoes_an_order(&order, &parts)? {
        return Ok(Transformed::no(node));
    }
    let parts = Unknown::new(parts, Forget::OtherOrders(order));
    replace_children_if_necessary(node, vec![Arc::new(parts)]).map(Transformed::yes)
}

/// Whether the rows of each part have an order that does not follow from that by which they are merged.
fn undoes_an_order(order: &LexOrdering, parts: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    if parts.output_partitioning().partition_count() <= 1 {
        return Ok(false);
    }
    let before = parts.equivalence_properties();
    let mut after = before.clone();
    after.clear_orderings();
    after.clear_per_partition_constants();
    after.add_ordering(order.clone());
    for known in before.oeq_class().iter() {
        if !after.ordering_satisfy(known.iter().cloned())? {
            return Ok(true);
        }
    }
    Ok(false)
}
