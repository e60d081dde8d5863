//! The question in the logical plan, and its way into the physical one.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
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

use super::exec;
use super::spec::{Group, Measure};
use crate::pushdown::Conditions;
use crate::table::View;

/// What is asked of the metrics of a table.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    /// The table.
    pub(crate) view: Arc<View>,
    /// Which rows count; exact.
    pub(crate) conditions: Conditions,
    /// The first columns of the answer.
    pub(crate) groups: Vec<Group>,
    /// The columns behind them.
    pub(crate) measures: Vec<Measure>,
    /// The question as `EXPLAIN` shows it; equal for equal questions to the same view.
    pub(crate) text: String,
}

/// A leaf of the logical plan that stands for an aggregate and all below it.
#[derive(Debug, Clone)]
pub(crate) struct MetricsNode {
    question: Arc<Question>,
    schema: DFSchemaRef,
}

impl MetricsNode {
    /// A node whose answer has `schema`.
    pub(crate) fn new(question: Question, schema: DFSchemaRef) -> Self {
        Self { question: Arc::new(question), schema }
    }

    fn identity(&self) -> (usize, &str) {
        (Arc::as_ptr(&self.question.view) as usize, &self.question.text)
    }
}

impl PartialEq for MetricsNode {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity() && self.schema == other.schema
    }
}

impl Eq for MetricsNode {}

impl PartialOrd for MetricsNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl Hash for MetricsNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
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
        write!(f, "TidefallMetrics: {}", self.question.text)
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
        let partitions = session.config().target_partitions();
        exec::plan(Arc::clone(&node.question), schema, partitions).map(Some)
    }
}
