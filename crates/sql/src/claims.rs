//! Joins claim no more of their rows than what holds.
//!
//! DataFusion takes more for known above a join than is, and then leaves out sorts, or groups rows as if those of a group
//! followed each other:
//!
//! - Rows of an inner join by hash come in the order of the right side. It goes on with that of the left side, as if no
//!   two rows of the right side were equal in their order. A merge join claims the same with its sides exchanged.
//! - Sorts are put below joins that keep the order of their right side, and left out there where a column is constant. The
//!   join then drops that it is constant, and the sort is missed. Here constants become an order, which the join keeps.
//! - What is constant, or equal to something else, on a side whose columns become NULL in rows without a partner stays so
//!   above the join. It is careful with the constants of the right side alone.
//!
//! Rows of a filter such as `n / 10 = 1` or `v::INT = 1` are ordered by `n` for it, as if a constant part of an order told of the rest
//! of it. Here such a filter tells nothing of what is constant but in columns.
//!
//! Left and right are those of the plan: sides are exchanged for the sake of memory before this rule runs.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::unknown::{Forget, Unknown};

/// Puts [`Unknown`] below joins by hash and by nested loops, and above those that merge, when the sides of joins are
/// chosen.
#[derive(Debug)]
pub(crate) struct ModestJoins;

impl PhysicalOptimizerRule for ModestJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            if node.downcast_ref::<FilterExec>().is_some_and(compares_an_expression) {
                return Ok(Transformed::yes(Arc::new(Unknown::new(node, Forget::Constants)) as _));
            }
            if let Some(forget) = forgotten_above(&*node) {
                return Ok(Transformed::yes(Arc::new(Unknown::new(node, forget)) as _));
            }
            let sides = forgotten_below(&*node);
            if sides == [None, None] {
                return Ok(Transformed::no(node));
            }
            let children = node.children().into_iter().zip(sides);
            let children = children.map(|(side, forget)| match forget {
                Some(Forget::Constants) if side.equivalence_properties().constants().is_empty() => {
                    Arc::clone(side)
                }
                Some(forget) => Arc::new(Unknown::new(Arc::clone(side), forget)) as _,
                None => Arc::clone(side),
            });
            let children = children.collect();
            let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            node.replace_children(children, anew).map(Transformed::yes)
        })
        .data()
    }

    fn name(&self) -> &str {
        "tidefall_modest_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether something that is no column would be taken for constant.
fn compares_an_expression(filter: &FilterExec) -> bool {
    let constants = filter.equivalence_properties().constants();
    constants.iter().any(|constant| !constant.expr.is::<Column>())
}

/// What is forgotten of the left and of the right side of a join.
fn forgotten_below(node: &dyn ExecutionPlan) -> [Option<Forget>; 2] {
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return match join.join_type() {
            JoinType::Inner => [Some(Forget::Order), Some(Forget::Constants)],
            other => without_partners(*other),
        };
    }
    let nested = node.downcast_ref::<NestedLoopJoinExec>().map(|join| *join.join_type());
    let other = node.downcast_ref::<PiecewiseMergeJoinExec>().map(|join| join.join_type());
    nested.or(other).map_or([None, None], without_partners)
}

/// Everything of the sides whose columns may become NULL.
const fn without_partners(join_type: JoinType) -> [Option<Forget>; 2] {
    match join_type {
        JoinType::Left => [None, Some(Forget::Values)],
        JoinType::Right => [Some(Forget::Values), Some(Forget::Constants)],
        JoinType::Full => [Some(Forget::Values), Some(Forget::Values)],
        _ => [None, None],
    }
}

/// What is forgotten of the rows of a merge join, which wants its sides in order.
fn forgotten_above(node: &dyn ExecutionPlan) -> Option<Forget> {
    match node.downcast_ref::<SortMergeJoinExec>()?.join_type() {
        JoinType::Inner => Some(Forget::Order),
        JoinType::Left | JoinType::Right | JoinType::Full => Some(Forget::Values),
        _ => None,
    }
}
