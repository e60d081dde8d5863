//! The first rows of a window need the rows behind them at which its functions look.
//!
//! DataFusion has a sort below windows stop behind these. Of windows above each other it takes the one that looks farthest ahead,
//! where the rows at which each of them looks add up. Here it does so in plans with windows that are not above each other.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::limit_pushdown_past_window::LimitPushPastWindows;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};

use crate::instead::{PhysicalRule, known_as_inner};
use crate::tree::Tree;

/// DataFusion's rule, but where a window looks at the answers of another one.
#[derive(Debug)]
struct WindowLimits(LimitPushPastWindows);

/// Puts it in the place of DataFusion's rule.
pub(crate) fn instead_of(rule: PhysicalRule) -> PhysicalRule {
    let limits = LimitPushPastWindows::new();
    if rule.name() == limits.name() { Arc::new(WindowLimits(limits)) } else { rule }
}

impl PhysicalOptimizerRule for WindowLimits {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match has_window(&plan, has_window_below)? {
            true => Ok(plan),
            false => self.0.optimize(plan, config),
        }
    }

    known_as_inner!();
}

/// Whether a plan has a window of which something holds.
fn has_window(
    plan: &Arc<dyn ExecutionPlan>,
    holds: fn(&Arc<dyn ExecutionPlan>) -> Result<bool>,
) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        let is_window = node.is::<BoundedWindowAggExec>() || node.is::<WindowAggExec>();
        found = is_window && holds(node)?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn has_window_below(window: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    for input in window.children() {
        if has_window(input, |_| Ok(true))? {
            return Ok(true);
        }
    }
    Ok(false)
}
