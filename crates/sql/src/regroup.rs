//! Grouping sets forget what was the same in all rows.
//!
//! `ROLLUP`, `CUBE` and `GROUPING SETS` give columns back as NULL that they do not group by. DataFusion goes on to take a
//! column for constant that a condition had made so below, and for ordered what was, and leaves out sorts that are
//! needed. Here the input of such an aggregate tells nothing of its rows.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};

use crate::unknown::{Forget, Unknown};

/// Puts [`Unknown`] below every aggregate with grouping sets; the first of all rules.
#[derive(Debug)]
pub(crate) struct ForgetfulGroupingSets;

impl PhysicalOptimizerRule for ForgetfulGroupingSets {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let forgetful = plan.transform_up(|node| match node.downcast_ref::<AggregateExec>() {
            Some(aggregate) if !aggregate.group_expr().is_single() => {
                let input = Unknown::new(Arc::clone(aggregate.input()), Forget::Everything);
                let input = Arc::new(input);
                let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
                Ok(Transformed::yes(node.replace_children(vec![input], anew)?))
            }
            _ => Ok(Transformed::no(node)),
        })?;
        Ok(forgetful.data)
    }

    fn name(&self) -> &str {
        "tidefall_forgetful_grouping_sets"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
