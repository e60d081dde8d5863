//! What comes out of a merge has the order of the merge, and no other one.
//!
//! Rows may come in several orders at once: those of a scan by the tags and then by time, those of each part of a
//! `UNION ALL` by time and by a column that is constant in it. DataFusion merges parts by what is asked for above, and
//! goes on with all orders that the rows of each part have. Sorts and partitions of windows above a merge then count on
//! orders that the merge has undone; and sorts that are put below a merge, as they are finer than it, leave it as it is.
//!
//! Likewise it puts sorts below `OFFSET`, which then leaves out the first rows of another order, or more of them; and it leaves
//! out sorts by which rows are chosen or numbered, when the order of what comes out matters to nobody.
//!
//! Here a merge goes by all orders of its parts, first by its own, and nothing else is known of the rows behind it. Where a sort
//! was left out for what is known no longer, DataFusion's rule is run again with that.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, replace_children_if_necessary,
};

use crate::rules::PhysicalRule;
use crate::unknown::{Forget, Unknown};

/// How often the rule is run at most; two times are usual where one is not enough.
const ROUNDS_MAX: usize = 32;

/// More rows than there are.
const ALL_ROWS: usize = usize::MAX / 2;

/// DataFusion's rule that adds sorts and merges, for merges that claim no more than their order.
#[derive(Debug)]
pub(crate) struct ModestMerges(EnsureRequirements);

/// Puts it in the place of DataFusion's rule.
pub(crate) fn instead_of(rule: PhysicalRule) -> PhysicalRule {
    let ensured = EnsureRequirements::new();
    if rule.name() == ensured.name() { Arc::new(ModestMerges(ensured)) } else { rule }
}

impl PhysicalOptimizerRule for ModestMerges {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut plan = plan.transform_up(in_given_order)?.data;
        for _ in 0..ROUNDS_MAX {
            plan = self.0.optimize(plan, config)?.transform_up(in_one_order)?.data;
            if has_its_orders(&plan)? {
                return plan.transform_up(with_all_rows).map(|plain| plain.data);
            }
        }
        internal_err!("a sort is missing after {ROUNDS_MAX} rounds")
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// A node that chooses or numbers rows as they come, over rows that are sorted, and not for what comes after it.
fn in_given_order(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
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
fn with_all_rows(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    Ok(match node.fetch().filter(|rows| *rows == ALL_ROWS).and_then(|_| node.with_fetch(None)) {
        Some(node) => Transformed::yes(node),
        None => Transformed::no(node),
    })
}

/// Whether all nodes get their rows in the order that they need.
fn has_its_orders(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    plan.exists(|node| {
        for (input, needed) in node.children().into_iter().zip(node.required_input_ordering()) {
            let Some(needed) = needed else { continue };
            let known = input.equivalence_properties();
            if !known.ordering_satisfy_requirement(needed.into_single())? {
                return Ok(true);
            }
        }
        Ok(false)
    })
    .map(|lacks| !lacks)
}

/// A merge by all orders of its parts, which are known in no other order.
fn in_one_order(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
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
