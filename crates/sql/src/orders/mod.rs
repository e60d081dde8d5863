//! The order of rows is what it is taken for, and kept where it matters.
//!
//! DataFusion knows of rows in which order they are, and leaves out sorts by that. Some of what it knows does not hold, and some sorts
//! that it takes for idle are looked at:
//!
//! - What comes out of a merge has the order of the merge, and no other one (`merged.rs`).
//! - Rows are chosen and numbered in the order in which they come, also if nobody asks for the order afterwards (`chosen.rs`).
//! - So are they collected by aggregates that are not told an order of their own (`told.rs`).
//!
//! SQL leaves the order of a subquery open. PostgreSQL and DuckDB keep it where somebody sees it, and people count on that; so
//! sorts of subqueries stay in the plan (`session.rs`), until they turn out to be idle.

mod chosen;
mod merged;
mod told;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

pub(crate) use self::told::SubqueryOrders;
use crate::rules::{PhysicalRule, known_as_inner};

/// How often the rule is run at most; two times are usual where one is not enough.
const ROUNDS_MAX: usize = 32;

/// DataFusion's rule that adds sorts and merges and leaves out idle ones, run again where a sort was left out for what is known no longer.
#[derive(Debug)]
pub(crate) struct EnsureOrders(EnsureRequirements);

/// Puts it in the place of DataFusion's rule.
pub(crate) fn instead_of(rule: PhysicalRule) -> PhysicalRule {
    let ensured = EnsureRequirements::new();
    if rule.name() == ensured.name() { Arc::new(EnsureOrders(ensured)) } else { rule }
}

impl PhysicalOptimizerRule for EnsureOrders {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut plan = plan.transform_up(chosen::in_given_order)?.data;
        for _ in 0..ROUNDS_MAX {
            plan = self.0.optimize(plan, config)?.transform_up(merged::in_one_order)?.data;
            if has_its_orders(&plan)? {
                return plan.transform_up(chosen::with_all_rows).map(|plain| plain.data);
            }
        }
        internal_err!("a sort is missing after {ROUNDS_MAX} rounds")
    }

    known_as_inner!();
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
