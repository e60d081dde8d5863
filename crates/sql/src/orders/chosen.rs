//! Rows are chosen, numbered and collected in the order in which they come.
//!
//! DataFusion leaves out sorts before `LIMIT`, `OFFSET`, `row_number() OVER ()` and `array_agg` when the order of what comes out matters to nobody
//! afterwards, and puts sorts below `OFFSET`, which then leaves out the first rows of another order, or more of them. Where it
//! leaves out a sort that keeps some rows, it may keep all.
//!
//! Here such a sort has a node above it that needs its order, and that keeps some rows in its place, until the plan is settled.
//! Meanwhile it sorts all rows for what DataFusion knows, and would be put below joins, where there are more of them: an
//! [`Unknown`] stops it there.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

use super::{ANY_VALUE, ORDERED};
use crate::passing::{PassesRows, passes_rows_on};
use crate::unknown::{Forget, Unknown};

/// Rows that are chosen or numbered in an order, whatever is needed of them afterwards.
#[derive(Debug)]
struct InOrder {
    input: Arc<dyn ExecutionPlan>,
    order: LexOrdering,
    /// How many of them are kept, when the plan is settled.
    fetch: Option<usize>,
}

passes_rows_on!(InOrder);

impl PassesRows for InOrder {
    const NAME: &'static str = "InOrder";

    fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input, order: self.order.clone(), fetch: self.fetch }
    }

    fn run(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn keeps_order(&self) -> bool {
        // No sort from above is put below.
        false
    }

    fn needed_order(&self) -> Option<&LexOrdering> {
        Some(&self.order)
    }
}

/// What chooses, numbers or collects rows as they come, over rows that need their order.
pub(super) fn in_given_order(
    node: Arc<dyn ExecutionPlan>,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if node.fetch().is_some() && node.is::<SortExec>() {
        return in_order_of_sort(node).map(Transformed::yes);
    }
    let skips = node.downcast_ref::<GlobalLimitExec>().map(|limit| limit.skip() > 0);
    if skips.is_none() && !numbers_rows(&*node) && !collects_rows(&*node) {
        return Ok(Transformed::no(node));
    }
    let sorted = in_order_of_first_sort(Arc::clone(node.children()[0]))?;
    let node = replace_children_if_necessary(node, vec![sorted])?;
    Ok(Transformed::yes(match skips {
        Some(true) => Arc::new(Unknown::new(node, Forget::Nothing)),
        _ => node,
    }))
}

/// Whether a window is over all rows in the order in which they come.
fn numbers_rows(node: &dyn ExecutionPlan) -> bool {
    let whole = node.downcast_ref::<WindowAggExec>().map(WindowAggExec::window_expr);
    let bounded =
        node.downcast_ref::<BoundedWindowAggExec>().map(BoundedWindowAggExec::window_expr);
    let exprs = whole.or(bounded).unwrap_or_default();
    exprs.iter().any(|expr| expr.partition_by().is_empty() && expr.order_by().is_empty())
}

/// Whether an aggregate collects rows in the order in which they come; those of groups come sorted by these (`subqueries.rs`).
fn collects_rows(node: &dyn ExecutionPlan) -> bool {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return false };
    let collects = |call: &Arc<AggregateFunctionExpr>| {
        (ORDERED.contains(&call.fun().name()) || call.fun().name() == ANY_VALUE)
            && !call.is_distinct()
            && call.order_bys().is_empty()
    };
    aggregate.mode().input_mode() == AggregateInputMode::Raw
        && aggregate.aggr_expr().iter().any(collects)
}

/// The same rows, of which those of the sort from which they come need their order.
fn in_order_of_first_sort(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if node.is::<SortExec>() {
        return in_order_of_sort(node);
    }
    // It does not say so, but what it unnests comes in the order of the rows.
    let keeps_order = node.is::<UnnestExec>() || node.maintains_input_order() == [true];
    match &node.children()[..] {
        [input] if keeps_order => {
            let input = in_order_of_first_sort(Arc::clone(input))?;
            replace_children_if_necessary(node, vec![input])
        }
        _ => Ok(node),
    }
}

/// A sort of all rows, of which as many are kept above it. One that sorts each partition by itself stays as it is.
fn in_order_of_sort(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(sort) = node.downcast_ref::<SortExec>().filter(|sort| !sort.preserve_partitioning())
    else {
        return Ok(node);
    };
    let (order, fetch, input) = (sort.expr().clone(), sort.fetch(), Arc::clone(sort.input()));
    let input = if fetch.is_some() { sorted_above(input)? } else { input };
    let input = Arc::new(SortExec::new(order.clone(), input));
    Ok(Arc::new(InOrder { input, order, fetch }))
}

/// The same rows, which are sorted before there are more or fewer of them only if they come so.
fn sorted_above(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if node.children().is_empty() || node.is::<InOrder>() || node.is::<Unknown>() {
        return Ok(node);
    }
    let passes = node.is::<SortExec>()
        || node.maintains_input_order() == [true] && node.supports_limit_pushdown();
    match (&node.children()[..], node.cardinality_effect()) {
        ([input], CardinalityEffect::Equal) if passes => {
            let input = sorted_above(Arc::clone(input))?;
            replace_children_if_necessary(node, vec![input])
        }
        _ => Ok(Arc::new(Unknown::new(node, Forget::Nothing))),
    }
}

/// What keeps rows in the settled plan.
pub(super) fn settled(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if let Some(input) = node.downcast_ref().and_then(Unknown::of_nothing) {
        return Ok(Transformed::yes(Arc::clone(input)));
    }
    let Some(InOrder { input, fetch, .. }) = node.downcast_ref() else {
        return Ok(Transformed::no(node));
    };
    let input = Arc::clone(input);
    let Some(rows) = *fetch else { return Ok(Transformed::yes(input)) };
    let keeps_some = input.is::<SortExec>() || input.is::<SortPreservingMergeExec>();
    let fewer = Some(input.fetch().map_or(rows, |fewer| fewer.min(rows)));
    Ok(Transformed::yes(match input.with_fetch(fewer).filter(|_| keeps_some) {
        Some(kept) => kept,
        None => Arc::new(GlobalLimitExec::new(input, 0, Some(rows))),
    }))
}
