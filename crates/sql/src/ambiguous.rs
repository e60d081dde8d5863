//! Filters are pushed down by name only where names are not ambiguous.
//!
//! DataFusion's rule finds the columns of a filter below a node by their names. Above a join both sides may have a column
//! of one name, and a condition on one of them can become a condition on the other: rows are lost or shown that
//! should not be. Conditions that never change have been pushed by the logical plan already, so nothing is lost but the
//! filters that change while such a query runs.
//!
//! A semi-join shows the columns of one side, and hands conditions on its keys to the other one too: to the column of the
//! same name, which need not be the key there. So does an aggregate with conditions on its groups.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::HashJoinExec;

use crate::instead::{PhysicalRule, known_as_inner};
use crate::tree::Tree;

/// DataFusion's rule, for plans all of whose nodes have columns of different names.
#[derive(Debug)]
pub(crate) struct PushNamedFilters(PhysicalRule);

impl PushNamedFilters {
    /// Puts it in the place of DataFusion's rules.
    pub(crate) fn instead_of(rule: PhysicalRule) -> PhysicalRule {
        let names = [FilterPushdown::new(), FilterPushdown::new_post_optimization()];
        match names.iter().any(|pushdown| pushdown.name() == rule.name()) {
            true => Arc::new(Self(rule)),
            false => rule,
        }
    }
}

impl PhysicalOptimizerRule for PushNamedFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let is_ambiguous = |node: &dyn ExecutionPlan| {
            has_ambiguous_names(node) || has_ambiguous_keys(node) || has_ambiguous_groups(node)
        };
        match plan.exists(|node| Ok(is_ambiguous(&**node)))? {
            true => Ok(plan),
            false => self.0.optimize(plan, config),
        }
    }

    known_as_inner!();
}

fn has_ambiguous_names(node: &dyn ExecutionPlan) -> bool {
    let schema = node.schema();
    let mut names = HashSet::with_capacity(schema.fields().len());
    !schema.fields().iter().all(|field| names.insert(field.name()))
}

/// Whether a key that a semi-join shows has the name of something else on the side that it does not show.
fn has_ambiguous_keys(node: &dyn ExecutionPlan) -> bool {
    let Some(join) = node.downcast_ref::<HashJoinExec>() else { return false };
    let is_left_shown = match join.join_type() {
        JoinType::LeftSemi => true,
        JoinType::RightSemi => false,
        _ => return false,
    };
    let hidden_side = if is_left_shown { join.right() } else { join.left() };
    let hidden_schema = hidden_side.schema();
    join.on().iter().any(|(left, right)| {
        let (shown, hidden) = if is_left_shown { (left, right) } else { (right, left) };
        let Some(shown) = shown.downcast_ref::<Column>() else { return false };
        let key = hidden.downcast_ref::<Column>().map(Column::name);
        hidden_schema.index_of(shown.name()).is_ok() && key != Some(shown.name())
    })
}

/// Whether a group has the name of something else below its aggregate.
fn has_ambiguous_groups(node: &dyn ExecutionPlan) -> bool {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return false };
    let below = aggregate.input().schema();
    aggregate.group_expr().expr().iter().any(|(group, name)| {
        let group = group.downcast_ref::<Column>().map(Column::index);
        below.index_of(name).is_ok_and(|place| group != Some(place))
    })
}
