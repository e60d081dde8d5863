//! The order of rows is what it is taken for, and kept where it matters.
//!
//! DataFusion knows of rows in which order they are, and leaves out sorts by that. Some of what it knows does not hold, and some sorts
//! that it takes for idle are looked at:
//!
//! - What comes out of a merge has the order of the merge, and no other one (`merged.rs`).
//! - Rows are chosen, numbered and collected in the order in which they come, also if nobody asks for the order afterwards
//!   (`chosen.rs`).
//! - Where groups and joins would lose their order, they are sorted behind them or for them (`subqueries.rs`).
//! - No aggregate is asked to order or to group by a key twice (`repeated.rs`).
//!
//! SQL leaves the order of a subquery open. PostgreSQL and DuckDB keep it where somebody sees it, and people count on that; so
//! sorts of subqueries stay in the plan (`session.rs`), until they turn out to be idle.
//!
//! The rule that adds sorts and merges is run until all nodes have what they need: it may leave out what it has added itself.

mod calls;
mod chosen;
mod merged;
mod repeated;
mod subqueries;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::physical_expr::{LexOrdering, OrderingRequirements};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ChildSatisfactionOptions, ExecutionPlan, ExecutionPlanProperties};

pub(crate) use self::repeated::KeysOnce;
pub(crate) use self::subqueries::{SubqueryOrders, only_numbers};
use crate::instead::{PhysicalRule, known_as_inner};
use crate::tree::Tree;

/// Aggregates whose answers depend on the order of the rows, if they are not told one.
const ORDERED: [&str; 5] = ["array_agg", "string_agg", "first_value", "last_value", "nth_value"];
/// Another one, which takes no order, and in DuckDB the first row.
const ANY_VALUE: &str = "any_value";

/// How often the rule is run at most; two times are usual where one is not enough.
const ROUNDS_MAX: usize = 8;

/// DataFusion's rule that adds sorts and merges and leaves out idle ones, run again where it has left out too much.
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
            if !plan.exists(lacks_something)? {
                break;
            }
        }
        // It leaves out keys that are constant and then finds what is left idle, although the order is not known.
        plan = plan.transform_up(with_its_orders)?.data;
        plan.transform_up(chosen::settled).map(|settled| settled.data)
    }

    known_as_inner!();
}

/// Whether a node does not get its rows in the order and the partitions that it needs.
fn lacks_something(node: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    if missing_orders(node)?.iter().any(Option::is_some) {
        return Ok(true);
    }
    let needed = node.input_distribution_requirements();
    for (place, input) in node.children().into_iter().enumerate() {
        let options = ChildSatisfactionOptions::new().with_allow_subset(true);
        if !needed.child_satisfaction(place, &**input, options)?.is_satisfied() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// For each input of a node the order that it needs, if the rows are not known to be in it.
fn missing_orders(node: &Arc<dyn ExecutionPlan>) -> Result<Vec<Option<LexOrdering>>> {
    let inputs = node.children().into_iter().zip(node.required_input_ordering());
    let missing = inputs.map(|(input, needed)| {
        let Some(needed) = needed.map(OrderingRequirements::into_single) else { return Ok(None) };
        let known = input.equivalence_properties();
        let is_there = known.ordering_satisfy_requirement(needed.clone())?;
        Ok((!is_there).then(|| LexOrdering::from(needed)))
    });
    missing.collect()
}

/// A node over rows that are sorted as it needs them.
fn with_its_orders(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let missing = missing_orders(&node)?;
    if missing.iter().all(Option::is_none) {
        return Ok(Transformed::no(node));
    }
    let inputs = node.children().into_iter().zip(missing);
    let sorted = inputs.map(|(input, order)| match order {
        Some(order) => {
            let sort = SortExec::new(order, Arc::clone(input)).with_preserve_partitioning(true);
            Arc::new(sort) as Arc<dyn ExecutionPlan>
        }
        None => Arc::clone(input),
    });
    let sorted = sorted.collect();
    let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    node.replace_children(sorted, anew).map(Transformed::yes)
}
