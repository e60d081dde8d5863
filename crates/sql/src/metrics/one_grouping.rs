//! Counts of distinct values with a single grouping.
//!
//! DataFusion takes `count(DISTINCT value) GROUP BY key` apart: it groups by key and value, and then by key. The first
//! grouping has a row for each pair, which is hashed, sent across partitions and hashed again. Our own accumulators need
//! a few nanoseconds for a pair, but cannot put the values of one group on the disk. So a count of integers or times
//! stays as it is where the rows are few enough for all of their values to be in memory, whatever they are.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::single_distinct_to_groupby::SingleDistinctToGroupBy;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::ask::{replace_columns, scan_below};
use super::spec::Group;
use crate::functions::{NUMBERED_BYTES, is_value_type};
use crate::pushdown::Conditions;
use crate::table::Table;

/// A value takes ten bytes in the list of a group that grows. Two stages share the memory of all queries, of which
/// something is to be left.
const VALUE_BYTES: usize = 24;

/// Stages that count at the same time, each in all partitions.
const STAGES: usize = 2;

/// DataFusion's rule, but for counts that our accumulators can do in memory.
#[derive(Debug)]
pub(crate) struct OneGrouping {
    inner: SingleDistinctToGroupBy,
    /// The memory of all queries.
    memory_bytes: usize,
}

impl OneGrouping {
    /// Puts it in the place of DataFusion's rule.
    pub(crate) fn instead_of(
        rule: Arc<dyn OptimizerRule + Send + Sync>,
        memory_bytes: usize,
    ) -> Arc<dyn OptimizerRule + Send + Sync> {
        let inner = SingleDistinctToGroupBy::new();
        match rule.name() == inner.name() {
            true => Arc::new(Self { inner, memory_bytes }),
            false => rule,
        }
    }

    /// Whether all that is distinct in an aggregate is counted by our accumulators, in memory, and not by metrics.
    fn stays(&self, aggregate: &Aggregate, partitions: usize) -> Result<bool> {
        let share = self.memory_bytes / (STAGES * partitions.max(1));
        // Tables of numbers grow to twice their size.
        if aggregate.group_expr.is_empty() || share < 2 * NUMBERED_BYTES {
            return Ok(false);
        }
        let Some(values) = distinct_values(aggregate)? else { return Ok(false) };
        let mut input = &aggregate.input;
        while let LogicalPlan::Filter(filter) = input.as_ref() {
            input = &filter.input;
        }
        let Some((scan, meaning)) = scan_below(input)? else { return Ok(false) };
        let Ok(provider) = source_as_provider(&scan.source) else { return Ok(false) };
        let Some(table) = provider.downcast_ref::<Table>() else { return Ok(false) };
        let view = table.view();
        let group = |expr: &Expr| -> Result<Option<Group>> {
            Ok(Group::of(&replace_columns(expr, &meaning)?, view.schema()))
        };
        // Rows come ordered by tags, so that the others group the values of one of their groups at a time.
        let groups = aggregate.group_expr.iter().map(group).collect::<Result<Vec<_>>>()?;
        if groups.iter().all(|group| matches!(group, Some(Group::Tags(_)))) {
            return Ok(false);
        }
        for value in values {
            // Metrics know which tags and bins there are.
            if group(value)?.is_some() {
                return Ok(false);
            }
        }
        let time = Conditions::of(&scan.filters, view.schema()).time;
        let snapshot = view.snapshot();
        let rows = snapshot.rows_about(snapshot.sensor_count() as usize, &time);
        Ok(rows.saturating_mul(VALUE_BYTES) <= self.memory_bytes)
    }
}

/// The values of which distinct ones are counted; none if there are others of which something else is asked.
fn distinct_values(aggregate: &Aggregate) -> Result<Option<Vec<&Expr>>> {
    let mut values = Vec::new();
    for expr in &aggregate.aggr_expr {
        let Expr::AggregateFunction(AggregateFunction { func, params }) = expr else {
            return Ok(None);
        };
        if !params.distinct {
            continue;
        }
        let [value] = params.args.as_slice() else { return Ok(None) };
        if func.name() != "count" || !is_value_type(&value.get_type(aggregate.input.schema())?) {
            return Ok(None);
        }
        values.push(value);
    }
    Ok((!values.is_empty()).then_some(values))
}

impl OptimizerRule for OneGrouping {
    fn name(&self) -> &str {
        "tidefall_one_grouping"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.inner.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let partitions = config.options().execution.target_partitions;
        match &plan {
            LogicalPlan::Aggregate(aggregate) if self.stays(aggregate, partitions)? => {
                Ok(Transformed::no(plan))
            }
            _ => self.inner.rewrite(plan, config),
        }
    }
}
