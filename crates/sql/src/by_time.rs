//! Sources that begin at the end of time which is asked for.
//!
//! A sort by time that keeps a few rows, `ORDER BY time DESC LIMIT 10`, needs the rows of one end of time. This rule
//! tells the source below such a sort to begin there and to go on stretch by stretch. As soon as the sort has enough,
//! its filter, which the source looks at before each stretch, leaves out the rest.
//!
//! The rule must run before filters that change are pushed down: they stay with the nodes that are there then.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};
use tidefall_storage::TimeOrder;

use crate::source::SourceNode;
use crate::tree::Tree;

/// Lets sources begin where a sort of a few rows begins.
#[derive(Debug)]
pub(crate) struct ReadByTime;

impl PhysicalOptimizerRule for ReadByTime {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let changed = plan.transform_up(|node| match below_sort(&node)? {
            Some(input) => replace_children_if_necessary(node, vec![input]).map(Transformed::yes),
            None => Ok(Transformed::no(node)),
        });
        changed.map(|changed| changed.data)
    }

    fn name(&self) -> &str {
        "tidefall_read_by_time"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What a sort wants.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    /// The column by which it sorts first, as it stands in the plan that is looked at.
    column: usize,
    order: TimeOrder,
    /// The rows that it keeps.
    rows: usize,
}

/// What comes below a sort instead, if it keeps a few rows by time.
fn below_sort(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(sort) = node.downcast_ref::<SortExec>() else { return Ok(None) };
    let Some(rows) = sort.fetch() else { return Ok(None) };
    let first = sort.expr().first();
    let Some(column) = first.expr.downcast_ref::<Column>() else { return Ok(None) };
    // Rows that come in this order already are read no further than needed.
    if sort.input().properties().equivalence_properties().ordering_satisfy([first.clone()])? {
        return Ok(None);
    }
    let order = match first.options.descending {
        true => TimeOrder::NewestFirst,
        false => TimeOrder::OldestFirst,
    };
    by_time(sort.input(), Wanted { column: column.index(), order, rows })
}

/// The same plan over a source that begins where it is wanted, if the column is its time.
fn by_time(
    node: &Arc<dyn ExecutionPlan>,
    wanted: Wanted,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if node.fetch().is_some() {
        return Ok(None);
    }
    if let Some(source) = node.downcast_ref::<SourceNode>() {
        let source = source.by_time(wanted.column, wanted.order)?;
        return Ok(source.map(|source| Arc::new(source) as Arc<dyn ExecutionPlan>));
    }
    let (mut node, mut column) = (Arc::clone(node), wanted.column);
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        if let Some(kept) = filter.projection() {
            column = kept[column];
        }
        // It would gather the rows of many batches before the sort sees the first of them.
        let batch_rows = filter.batch_size().min(wanted.rows.max(1));
        let filter = filter.with_batch_size(batch_rows)?;
        node = Arc::new(filter);
    } else if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        match projection.expr()[column].expr.downcast_ref::<Column>() {
            Some(below) => column = below.index(),
            None => return Ok(None),
        }
    } else if !node.is::<CooperativeExec>() && !node.is::<CoalescePartitionsExec>() {
        return Ok(None);
    }
    let child = by_time(node.children()[0], Wanted { column, ..wanted })?;
    child.map(|child| replace_children_if_necessary(node, vec![child])).transpose()
}
