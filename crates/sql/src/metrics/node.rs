//! The question in the logical plan, and its way into the physical one.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::DFSchemaRef;
use datafusion::error::Result;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

use super::answers::Share;
use super::exec;
use super::question::Question;

/// A leaf of the logical plan that stands for an aggregate and all below it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct MetricsNode {
    question: Arc<Question>,
    schema: DFSchemaRef,
}

impl MetricsNode {
    /// A node whose answer has `schema`.
    pub(crate) fn new(question: Question, schema: DFSchemaRef) -> Self {
        Self { question: Arc::new(question), schema }
    }

    /// What is asked.
    pub(super) fn question(&self) -> &Question {
        &self.question
    }
}

impl PartialOrd for MetricsNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for MetricsNode {
    fn name(&self) -> &str {
        "TidefallMetrics"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        Vec::new()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.schema.fields().iter().map(|field| field.name().as_str());
        let names: Vec<&str> = names.collect();
        let (groups, measures) = names.split_at(self.question.groups.len());
        let table = &self.question.view.schema().name;
        let (groups, measures) = (groups.join(", "), measures.join(", "));
        write!(f, "TidefallMetrics: table={table}, groupBy=[{groups}], aggr=[{measures}]")
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, _: Vec<LogicalPlan>) -> Result<Self> {
        Ok(self.clone())
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
        let schema = Arc::clone(node.schema.inner());
        let share = Share::whole(session.config().target_partitions());
        exec::plan(Arc::clone(&node.question), schema, share).map(Some)
    }
}
