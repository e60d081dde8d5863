//! From logical to physical plans, with the nodes that are ours.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::error::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};

use crate::asof::AsOfPlanner;
use crate::expansion::check_repeats;
use crate::metrics::{MergePlanner, MetricsPlanner};
use crate::records::TotalsPlanner;

/// Plans queries as DataFusion does, and knows our nodes too.
#[derive(Debug)]
pub(crate) struct Planner;

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        logical_plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        check_repeats(logical_plan)?;
        let ours = vec![
            Arc::new(MetricsPlanner) as _,
            Arc::new(MergePlanner) as _,
            Arc::new(TotalsPlanner) as _,
            Arc::new(AsOfPlanner) as _,
        ];
        DefaultPhysicalPlanner::with_extension_planners(ours)
            .create_physical_plan(logical_plan, session)
            .await
    }
}
