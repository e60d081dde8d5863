//! Plan nodes claim no more of their rows than what holds, or than what those above them can bear.
//!
//! DataFusion takes more for known above a join than is, and then leaves out sorts, or groups rows as if those of a group
//! followed each other:
//!
//! - Rows of an inner join by hash come in the order of the right side. It goes on with that of the left side, as if no
//!   two rows of the right side were equal in their order.
//! - Sorts are put below joins that keep the order of their right side, and left out there where a column is constant. The
//!   join then drops that it is constant, and the sort is missed. Here constants become orders, which the join keeps.
//! - What is constant, or equal to something else, on a side whose columns become NULL in rows without a partner stays so
//!   above the join. It is careful with the constants of the right side alone.
//!
//! A column that is constant in each part of a `UNION ALL` is not constant in all of it. DataFusion leaves sorts by it out in the
//! parts, and then takes the first rows of one for those of all.
//!
//! Of `n / 10 = 1` or `v::INT = 1` it makes that `n` is 10 and `v` 1 in all rows, as if numbers were not cut off, and leaves out
//! sorts by them. Columns are constant here if the condition says so as it stands.
//!
//! Groups are told apart by their keys, so rows in the order of these are in any order that begins with them: sorts are left out. A
//! window then refuses its rows, as it does not see that they are in the order of all of its partition's keys.
//!
//! Left and right are those of the plan: sides are exchanged for the sake of memory before this rule runs.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Literal};
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::tree::Tree;
use crate::unknown::{Forget, Unknown};

/// Puts [`Unknown`] below joins by hash and by nested loops, unions, and windows with partitions by several keys, when the sides of
/// joins are chosen.
#[derive(Debug)]
pub(crate) struct ModestNodes;

impl PhysicalOptimizerRule for ModestNodes {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let below = node.children().into_iter().zip(forgotten_below(&*node));
            let below: Vec<_> = below
                .map(|(child, forget)| (child, forget.filter(|forget| tells(child, forget))))
                .collect();
            if below.iter().all(|(_, forget)| forget.is_none()) {
                return Ok(Transformed::no(node));
            }
            let children = below.into_iter().map(|(child, forget)| match forget {
                Some(forget) => Arc::new(Unknown::new(Arc::clone(child), forget)) as _,
                None => Arc::clone(child),
            });
            let children = children.collect();
            let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            node.replace_children(children, anew).map(Transformed::yes)
        })
        .data()
    }

    fn name(&self) -> &str {
        "tidefall_modest_nodes"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether a node tells what is to be forgotten, as far as that is seen.
fn tells(node: &Arc<dyn ExecutionPlan>, forget: &Forget) -> bool {
    let known = node.equivalence_properties();
    match forget {
        Forget::Constants => !known.constants().is_empty(),
        Forget::Unique => !known.constraints().is_empty(),
        _ => true,
    }
}

/// Whether columns are taken for constant of which the condition does not say that they are equal to a value.
fn takes_too_much_for_constant(filter: &FilterExec) -> bool {
    let constants_of =
        |node: &dyn ExecutionPlan| node.properties().equivalence_properties().constants();
    let before = constants_of(&**filter.input()).into_iter();
    let mut known: Vec<_> = before.map(|constant| constant.expr).collect();
    let mut equal: Vec<_> = split_conjunction(filter.predicate())
        .into_iter()
        .filter_map(|part| part.downcast_ref::<BinaryExpr>())
        .filter(|part| *part.op() == Operator::Eq)
        .map(|part| (part.left(), part.right()))
        .collect();
    // What is equal to a value is known, and so is what is equal to that; two columns may be equal and differ from row to row.
    loop {
        let before = known.len();
        equal.retain(|(left, right)| {
            let tells = |side: &Arc<dyn PhysicalExpr>| side.is::<Literal>() || known.contains(side);
            let told = match (tells(left), tells(right)) {
                (true, _) => right,
                (_, true) => left,
                _ => return true,
            };
            known.push(Arc::clone(told));
            false
        });
        if known.len() == before {
            break;
        }
    }
    // Where columns are left out their places are others.
    let has_all = filter.projection().is_none();
    constants_of(filter).iter().any(|constant| !(has_all && known.contains(&constant.expr)))
}

/// Puts [`Unknown`] above filters that take too much for constant, before sorts are left out.
#[derive(Debug)]
pub(crate) struct ModestFilters;

impl PhysicalOptimizerRule for ModestFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            Ok(match node.downcast_ref::<FilterExec>().is_some_and(takes_too_much_for_constant) {
                true => Transformed::yes(Arc::new(Unknown::new(node, Forget::Condition)) as _),
                false => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "tidefall_modest_filters"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What is forgotten of each child of a node; of those of other nodes nothing.
fn forgotten_below(node: &dyn ExecutionPlan) -> Vec<Option<Forget>> {
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return match join.join_type() {
            JoinType::Inner => vec![Some(Forget::Order), Some(Forget::Constants)],
            other => without_partners(*other).to_vec(),
        };
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        return without_partners(*join.join_type()).to_vec();
    }
    if let Some(union) = node.downcast_ref::<UnionExec>() {
        return vec![Some(Forget::Constants); union.children().len()];
    }
    let bounded = node.downcast_ref::<BoundedWindowAggExec>();
    let functions = match node.downcast_ref::<WindowAggExec>() {
        Some(window) => window.window_expr(),
        None => bounded.map_or(&[][..], |window| window.window_expr()),
    };
    match functions.iter().any(|function| function.partition_by().len() > 1) {
        true => vec![Some(Forget::Unique)],
        false => Vec::new(),
    }
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
