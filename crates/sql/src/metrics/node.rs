//! The question in the logical plan, and its way into the physical one.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::error::Result;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

use super::answers::Share;
use super::exec;
use super::question::Question;
use crate::answer_node::{AnswerNode, Asked};

/// A question for metrics in the logical plan.
pub(crate) type MetricsNode = AnswerNode<Question>;

impl Asked for Question {
    const NAME: &'static str = "TidefallMetrics";

    fn explain(&self, columns: &[&str]) -> String {
        let (groups, measures) = columns.split_at(self.groups.len());
        let table = &self.view.schema().name;
        let (groups, measures) = (groups.join(", "), measures.join(", "));
        format!("table={table}, groupBy=[{groups}], aggr=[{measures}]")
    }
}

/// Plans the question.
pub(crate) struct MetricsPlanner;

#[async_trait]
impl ExtensionPlanner for MetricsPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        _physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        _planning_ctx: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<MetricsNode>() else { return Ok(None) };
        let schema = node.arrow();
        let share = Share::whole(session.config().target_partitions());
        exec::plan(Arc::clone(node.question()), schema, share).map(Some)
    }
}
