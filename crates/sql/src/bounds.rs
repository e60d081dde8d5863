//! How many rows a batch of a query has. DataFusion counts rows: its nodes gather batches of so many, and eight thousand
//! rows with texts of some pages each are hundreds of megabytes, of which several are under way. So the number follows
//! from how long the rows are that the query reads.
//!
//! Where lists become rows, as by `unnest`, these are short again, and have batches of the usual size.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};
use datafusion::prelude::SessionConfig;

use crate::passing::{PassesRows, passes_rows_on};
use crate::source::{BATCH_BYTES, SourceNode};
use crate::tree::Tree;

/// A plan, and the context to run it in, whose batches have fewer rows than usual where rows are long.
pub(crate) fn with_bounded_batches(
    plan: Arc<dyn ExecutionPlan>,
    state: &SessionState,
) -> Result<(Arc<dyn ExecutionPlan>, Arc<TaskContext>)> {
    let context = TaskContext::from(state);
    let usual = context.session_config().batch_size();
    let plan = plan.transform_up(|node| {
        let Some(unnested) = node.downcast_ref::<UnnestExec>().filter(|node| is_short(node)) else {
            return Ok(Transformed::no(node));
        };
        let Some(rows) = rows_of_a_batch(unnested.input(), usual)? else {
            return Ok(Transformed::no(node));
        };
        let input = with_batch_rows(Arc::clone(unnested.input()), rows)?;
        let input = Arc::new(LongRows { input, batch_rows: rows });
        replace_children_if_necessary(node, vec![input]).map(Transformed::yes)
    })?;
    let Some(rows) = rows_of_a_batch(&plan.data, usual)? else {
        return Ok((plan.data, Arc::new(context)));
    };
    let plan = with_batch_rows(plan.data, rows)?;
    let config = context.session_config().clone().with_batch_size(rows);
    Ok((plan, Arc::new(context.with_session_config(config))))
}

/// The rows of a batch, where they are so long that these are fewer than usual.
fn rows_of_a_batch(plan: &Arc<dyn ExecutionPlan>, usual: usize) -> Result<Option<usize>> {
    let rows = BATCH_BYTES / text_bytes(plan)?.max(1);
    Ok((rows < usual as u64).then(|| (rows as usize).max(1)))
}

/// About how many bytes a row that a plan gives out has in texts and lists, as far as tables know it.
pub(crate) fn text_bytes(plan: &Arc<dyn ExecutionPlan>) -> Result<u64> {
    let mut row_bytes: u64 = 0;
    plan.apply(|node| {
        if let Some(source) = node.downcast_ref::<SourceNode>() {
            // A row of a join has those of both sides.
            row_bytes = row_bytes.saturating_add(source.row_bytes());
        }
        Ok(match node.is::<LongRows>() {
            true => TreeNodeRecursion::Jump,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(row_bytes)
}

/// The same plan, whose nodes make batches of so many rows where they do not look into the context.
fn with_batch_rows(plan: Arc<dyn ExecutionPlan>, rows: usize) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_down(|node| {
        if node.is::<LongRows>() {
            return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
        }
        Ok(match node.downcast_ref::<FilterExec>() {
            Some(filter) => {
                let rows = rows.min(filter.batch_size());
                Transformed::yes(Arc::new(filter.with_batch_size(rows)?) as _)
            }
            None => Transformed::no(node),
        })
    });
    plan.map(|plan| plan.data)
}

/// Whether rows have no lists any more, nor values that may be long.
fn is_short(unnested: &UnnestExec) -> bool {
    let schema = unnested.schema();
    let is_short = |data_type: &DataType| match data_type {
        DataType::Dictionary(..) => true,
        other => other.primitive_width().is_some() || *other == DataType::Boolean,
    };
    schema.fields().iter().all(|field| is_short(field.data_type()))
}

/// Rows so long that their batches have fewer of them than those above.
#[derive(Debug)]
struct LongRows {
    input: Arc<dyn ExecutionPlan>,
    batch_rows: usize,
}

passes_rows_on!(LongRows);

impl PassesRows for LongRows {
    const NAME: &'static str = "LongRows";

    fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input, batch_rows: self.batch_rows }
    }

    fn run(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let config = context.session_config().clone().with_batch_size(self.batch_rows);
        self.input.execute(partition, with_config(&context, config))
    }
}

/// The same context with another configuration.
pub(crate) fn with_config(context: &TaskContext, config: SessionConfig) -> Arc<TaskContext> {
    Arc::new(TaskContext::new(
        context.task_id(),
        context.session_id(),
        config,
        context.scalar_functions().clone(),
        context.higher_order_functions().clone(),
        context.aggregate_functions().clone(),
        context.window_functions().clone(),
        context.runtime_env(),
    ))
}
