//! Joins and recursions that can be stopped.
//!
//! A stream that is computed without waiting gives other tasks, and whoever wants to stop it, a turn only
//! where it says so. The leaves of a plan do. A join may make millions of batches of one that a leaf
//! gave, and says so here; so does a recursion, which may have no end.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;

/// Lets every join and every recursion give others a turn.
#[derive(Debug)]
pub(crate) struct CooperativeJoins;

impl PhysicalOptimizerRule for CooperativeJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let wrapped = plan.transform_up(|plan| {
            let makes_more =
                plan.name().ends_with("JoinExec") || plan.name() == "RecursiveQueryExec";
            Ok(match makes_more {
                true => Transformed::yes(Arc::new(CooperativeExec::new(plan)) as _),
                false => Transformed::no(plan),
            })
        });
        wrapped.map(|wrapped| wrapped.data)
    }

    fn name(&self) -> &str {
        "tidefall_cooperative_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
