//! How many rows a batch of a query has. DataFusion counts rows: its nodes gather batches of so many, and eight thousand
//! rows with texts of some pages each are hundreds of megabytes, of which several are under way. So the number follows
//! from how long the rows are that the query reads.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::{SessionState, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;

use crate::source::SourceNode;

/// Bytes of texts and lists that a batch should have: as many as one that comes from the storage.
pub(crate) const BATCH_BYTES: u64 = 1 << 20;

/// A plan, and the context to run it in, whose batches have fewer rows than usual where rows are long.
pub(crate) fn with_bounded_batches(
    plan: Arc<dyn ExecutionPlan>,
    state: &SessionState,
) -> Result<(Arc<dyn ExecutionPlan>, Arc<TaskContext>)> {
    let context = TaskContext::from(state);
    let usual = context.session_config().batch_size();
    let rows = rows_of_a_batch(&plan)?;
    if rows >= usual as u64 {
        return Ok((plan, Arc::new(context)));
    }
    let rows = (rows as usize).max(1);
    // All other nodes look into the context when they begin.
    let plan = plan.transform_up(|node| {
        Ok(match node.downcast_ref::<FilterExec>() {
            Some(filter) => {
                let rows = rows.min(filter.batch_size());
                Transformed::yes(Arc::new(filter.with_batch_size(rows)?) as _)
            }
            None => Transformed::no(node),
        })
    })?;
    let config = context.session_config().clone().with_batch_size(rows);
    Ok((plan.data, Arc::new(context.with_session_config(config))))
}

fn rows_of_a_batch(plan: &Arc<dyn ExecutionPlan>) -> Result<u64> {
    let mut row_bytes: u64 = 0;
    plan.apply(|node| {
        if let Some(source) = node.downcast_ref::<SourceNode>() {
            // A row of a join has those of both sides.
            row_bytes = row_bytes.saturating_add(source.row_bytes());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(BATCH_BYTES / row_bytes.max(1))
}
