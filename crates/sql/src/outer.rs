//! Right joins forget what was the same in all rows of their left side.
//!
//! DataFusion takes what is constant on the left side of a right join for constant above the join, though rows without a
//! partner have nulls there, and then leaves out sorts. It does not so with the right side of a left join. Right
//! joins come from queries, and from left joins whose sides were exchanged for the sake of memory.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::HashJoinExec;

use crate::regroup::Unknown;

/// Puts [`Unknown`] below the left side of every right join by hash, when the sides of joins are chosen.
#[derive(Debug)]
pub(crate) struct ForgetfulRightJoins;

impl PhysicalOptimizerRule for ForgetfulRightJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| match node.downcast_ref::<HashJoinExec>() {
            Some(join) if *join.join_type() == JoinType::Right => {
                let left = Arc::new(Unknown::new(Arc::clone(join.left())));
                let sides: Vec<Arc<dyn ExecutionPlan>> = vec![left, Arc::clone(join.right())];
                let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
                Ok(Transformed::yes(node.replace_children(sides, anew)?))
            }
            _ => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "tidefall_forgetful_right_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
