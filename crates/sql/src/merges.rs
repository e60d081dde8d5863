//! What comes out of a merge has the order of the merge, and no other one.
//!
//! Rows may come in several orders at once: those of a scan by the tags and then by time, those of each part of a
//! `UNION ALL` by time and by a column that is constant in it. DataFusion merges parts by what is asked for above, and
//! goes on with all orders that the rows of each part have. Sorts and partitions of windows above a merge then count on
//! orders that the merge has undone; and sorts that are put below a merge, as they are finer than it, leave it as it is.
//!
//! Likewise it puts sorts below `OFFSET`, which then leaves out the first rows of another order, or more of them.
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
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::rules::PhysicalRule;
use crate::unknown::{Forget, Unknown};

/// How often the rule is run at most; two times are usual where one is not enough.
const ROUNDS_MAX: usize = 32;

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
        let mut plan = plan.transform_up(not_below_offsets)?.data;
        for _ in 0..ROUNDS_MAX {
            plan = self.0.optimize(plan, config)?.transform_up(in_one_order)?.data;
            if has_its_orders(&plan)? {
                return Ok(plan);
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

/// Rows behind an `OFFSET`, which are sorted there.
fn not_below_offsets(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    Ok(match node.downcast_ref::<GlobalLimitExec>().is_some_and(|limit| limit.skip() > 0) {
        true => Transformed::yes(Arc::new(Unknown::new(node, Forget::Nothing))),
        false => Transformed::no(node),
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
