//! Aggregates above a join with a small side, without the rows of the join.
//!
//! Of `SELECT s.room, avg(b.v) FROM big b JOIN small s ON b.k = s.k GROUP BY s.room` DataFusion makes all rows of the
//! join, and looks for the group of each by its `room`. Which group a row of the big side belongs to follows from its
//! key, though:
//!
//! 1. The small side is read, and its groups are numbered (`small.rs`). For each key there is a group, or a list of them where
//!    more rows have that key (`keys.rs`). The big side is told which keys there are, and leaves blocks out by that.
//! 2. Keys of the big side become groups, and the columns that are aggregated go to DataFusion's accumulators with these
//!    (`sums.rs`). Each partition of the big side has its own.
//!
//! 3. Where rows are grouped by columns of the big side, too, their values are numbered as they come, and pairs of numbers are
//!    groups (`seen.rs`).
//!
//! That takes the place of the join and of the first, or only, aggregate above it. Where one group or aggregate looks at
//! both sides, or an aggregate at the small one, where the join has a further condition, where keys are floats, and for
//! `DISTINCT` and whatever else keeps more than some numbers for a group, plans stay as they are (`question.rs`).

mod keys;
mod node;
mod question;
mod seen;
mod small;
mod sums;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

use self::node::GroupedJoin;
use self::question::Question;

use crate::tree::Tree;

/// Answers aggregates above joins without the rows of these, where that can be.
#[derive(Debug)]
pub(crate) struct GroupedJoins;

impl PhysicalOptimizerRule for GroupedJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let Some(aggregate) = node.downcast_ref::<AggregateExec>() else {
                return Ok(Transformed::no(node));
            };
            let Some((question, join)) = Question::of(aggregate)? else {
                return Ok(Transformed::no(node));
            };
            let (small, big) = (Arc::clone(join.left()), Arc::clone(join.right()));
            let properties = Arc::clone(aggregate.properties());
            Ok(Transformed::yes(Arc::new(GroupedJoin::new(question, small, big, properties)) as _))
        })
        .data()
    }

    fn name(&self) -> &str {
        "tidefall_grouped_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
