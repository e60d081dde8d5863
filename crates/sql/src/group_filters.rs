//! Filters above aggregates that have a row also where none is aggregated.
//!
//! DataFusion pushes what holds for whole groups below their aggregate: conditions on the keys of groups, and those on no
//! column at all. Without keys, and in grouping sets, there is a group of all rows, which is there without rows, too: a
//! condition below it takes its rows away, but not the group. So nothing is pushed there.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::rules::named_as_inner;

/// DataFusion's rule, but for filters above a group that is always there.
#[derive(Debug)]
pub(crate) struct PushGroupFilters(PushDownFilter);

impl PushGroupFilters {
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

impl OptimizerRule for PushGroupFilters {
    named_as_inner!();

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Filter(filter) if has_group_of_all(&filter.input) => {
                Ok(Transformed::no(plan))
            }
            _ => self.0.rewrite(plan, config),
        }
    }
}

/// Whether a plan is an aggregate with a group of all rows.
fn has_group_of_all(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Aggregate(Aggregate { group_expr, .. }) = plan else { return false };
    matches!(group_expr.as_slice(), [] | [Expr::GroupingSet(_)])
}
