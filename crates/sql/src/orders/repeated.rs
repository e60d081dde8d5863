//! Keys that repeat an earlier one order and group nothing, and are left out.
//!
//! DataFusion leaves them out in some places and counts them in others: `first_value(x ORDER BY a, a)` panicked,
//! `array_agg(x ORDER BY a, a)` and `DISTINCT ON (a, a)` were refused.

use std::collections::HashSet;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::Sort as SortKey;
use datafusion::logical_expr::{Aggregate, DistinctOn, Expr, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::calls::with_calls;

/// Leaves them out, once columns have the names of what they are.
#[derive(Debug)]
pub(crate) struct KeysOnce;

impl OptimizerRule for KeysOnce {
    fn name(&self) -> &str {
        "tidefall_keys_once"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(Transformed::no(plan)) };
        if !aggregate.aggr_expr.iter().any(repeats_a_key) {
            return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
        }
        let Aggregate { input, group_expr, aggr_expr, .. } = aggregate;
        let calls = with_calls(aggr_expr, |call| keep_first(&mut call.params.order_by, plain))?;
        let aggregate = Aggregate::try_new(input, group_expr, calls)?;
        Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
    }
}

/// Leaves out of some keys those that are what an earlier one is.
pub(super) fn keep_first<T>(keys: &mut Vec<T>, what: impl Fn(&T) -> Expr) {
    let mut seen = HashSet::with_capacity(keys.len());
    keys.retain(|key| seen.insert(what(key)));
}

/// A `DISTINCT ON` without them. It is to be made so before DataFusion makes groups of it.
pub(super) fn once(mut first: DistinctOn) -> DistinctOn {
    keep_first(&mut first.on_expr, Expr::clone);
    if let Some(keys) = &mut first.sort_expr {
        keep_first(keys, plain);
    }
    first
}

/// What a key orders by, without the names that it got as it became simpler.
fn plain(key: &SortKey) -> Expr {
    key.expr.clone().unalias_nested().data
}

fn repeats_a_key(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => repeats_a_key(&alias.expr),
        Expr::AggregateFunction(call) => {
            let keys = &call.params.order_by;
            let distinct: HashSet<Expr> = keys.iter().map(plain).collect();
            distinct.len() < keys.len()
        }
        _ => false,
    }
}
