//! Projections are pushed below filters that have none of their own yet.
//!
//! A filter may leave out columns by itself. When DataFusion pushes a second projection below such a filter, it takes the
//! columns that come out of the filter for those that go in: it fails when their names differ, and mixes columns up when
//! they do not. Here filters give their columns back to a projection first, and get them again as the last of all that
//! was pushed.
//!
//! Nor are projections that show something twice pushed below a union: what is equal in each part is not known to be above it, where
//! sorts count on it already.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::projection_pushdown::ProjectionPushdown;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;

use crate::instead::PhysicalRule;
use crate::tree::Tree;
use crate::unknown::{Forget, Unknown};

/// DataFusion's rule, over filters without projections.
#[derive(Debug)]
pub(crate) struct PushProjections(ProjectionPushdown);

impl PushProjections {
    /// Puts it in the place of DataFusion's rule.
    pub(crate) fn instead_of(rule: PhysicalRule) -> PhysicalRule {
        match rule.name() == ProjectionPushdown::new().name() {
            true => Arc::new(Self(ProjectionPushdown::new())),
            false => rule,
        }
    }
}

impl PhysicalOptimizerRule for PushProjections {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plain = plan.transform_up(|node| match node.downcast_ref::<FilterExec>() {
            Some(filter) if filter.projection().is_some() => projection_above(filter),
            _ => kept_above_union(node),
        })?;
        self.0.optimize(plain.data, config)
    }

    fn name(&self) -> &str {
        "tidefall_push_projections"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A projection that shows something twice, so that it stays above a union.
fn kept_above_union(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let Some(projection) = node.downcast_ref::<ProjectionExec>() else {
        return Ok(Transformed::no(node));
    };
    let exprs = projection.expr();
    let is_repeated = |(at, one): (usize, &ProjectionExpr)| {
        exprs[..at].iter().any(|other| other.expr.eq(&one.expr))
    };
    if !projection.input().is::<UnionExec>() || !exprs.iter().enumerate().any(is_repeated) {
        return Ok(Transformed::no(node));
    }
    let union = Unknown::new(Arc::clone(projection.input()), Forget::Constants);
    Ok(Transformed::yes(Arc::new(ProjectionExec::try_new(exprs.to_vec(), Arc::new(union))?)))
}

/// The same filter, with a projection above it that leaves its columns out.
fn projection_above(filter: &FilterExec) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let schema = filter.input().schema();
    let columns = filter.projection().iter().flat_map(|kept| kept.iter()).map(|at| {
        let name = schema.field(*at).name();
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(name, *at));
        ProjectionExpr { expr: column, alias: name.clone() }
    });
    let columns: Vec<ProjectionExpr> = columns.collect();
    let plain = FilterExecBuilder::new(Arc::clone(filter.predicate()), Arc::clone(filter.input()))
        .with_default_selectivity(filter.default_selectivity())
        .with_batch_size(filter.batch_size())
        .with_fetch(filter.fetch())
        .build()?;
    Ok(Transformed::yes(Arc::new(ProjectionExec::try_new(columns, Arc::new(plain))?)))
}
