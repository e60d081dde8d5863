//! The plan node of `INSERT`. DataFusion's answers with the number of rows alone; this one also says how many of them took
//! the place of others.

use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

use datafusion::arrow::array::{RecordBatch, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::plan_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    ChildrenPropertiesMode, EvaluationType, ReplaceChildrenOptions, SchedulingType,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties,
};
use futures::stream;

use crate::sink::{Inserted, Sink};

/// The columns of the answer.
static ANSWER: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new("count", DataType::UInt64, false),
        Field::new("replaced", DataType::UInt64, true),
    ]))
});

/// Writes the rows of its input, and answers with one row.
#[derive(Debug)]
pub(crate) struct InsertNode {
    input: Arc<dyn ExecutionPlan>,
    sink: Arc<Sink>,
    properties: Arc<PlanProperties>,
    /// Set when all is written.
    inserted: Arc<OnceLock<Inserted>>,
}

impl InsertNode {
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, sink: Arc<Sink>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&ANSWER)),
            Partitioning::UnknownPartitioning(1),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        let properties = properties
            .with_scheduling_type(SchedulingType::Cooperative)
            .with_evaluation_type(EvaluationType::Eager);
        Self { input, sink, properties: Arc::new(properties), inserted: Arc::default() }
    }

    /// What a plan has written, if it is one of `INSERT` and done.
    pub(crate) fn inserted_by(plan: &Arc<dyn ExecutionPlan>) -> Option<Inserted> {
        plan.downcast_ref::<Self>()?.inserted.get().copied()
    }
}

fn answer(inserted: Inserted) -> Result<RecordBatch> {
    let columns =
        [UInt64Array::from(vec![inserted.rows]), UInt64Array::from(vec![inserted.replaced])];
    let columns = columns.into_iter().map(|column| Arc::new(column) as _).collect();
    Ok(RecordBatch::try_new(Arc::clone(&ANSWER), columns)?)
}

impl DisplayAs for InsertNode {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TidefallInsert: table={}", self.sink.table())
    }
}

impl ExecutionPlan for InsertNode {
    fn name(&self) -> &str {
        "TidefallInsert"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    /// Rows are written in the order in which they come, in which later ones win.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition])
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(Self::new(input, Arc::clone(&self.sink)))),
            Err(inputs) => plan_err!("TidefallInsert has one input, not {}", inputs.len()),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, anew)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.input.execute(partition, Arc::clone(&context))?;
        let (sink, told) = (Arc::clone(&self.sink), Arc::clone(&self.inserted));
        let answered = stream::once(async move {
            let inserted = sink.write_all(rows, &context).await?;
            // Plans run once.
            let _ = told.set(inserted);
            answer(inserted)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&ANSWER), answered)))
    }
}
