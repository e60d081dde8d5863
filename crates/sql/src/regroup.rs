//! Grouping sets forget what was the same in all rows.
//!
//! `ROLLUP`, `CUBE` and `GROUPING SETS` give columns back as NULL that they do not group by. DataFusion goes on to take a
//! column for constant that a condition had made so below, and for ordered what was, and leaves out sorts that are
//! needed. Here the input of such an aggregate tells nothing of its rows, and a value that they are grouped by, as in
//! `ROLLUP ('all', site)`, is a column of it.

use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, PhysicalGroupBy};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

use crate::tree::Tree;
use crate::unknown::{Forget, Unknown};

/// Puts [`Unknown`] below every aggregate with grouping sets; the first of all rules.
#[derive(Debug)]
pub(crate) struct ForgetfulGroupingSets;

impl PhysicalOptimizerRule for ForgetfulGroupingSets {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let forgetful = plan.transform_up(|node| match node.downcast_ref::<AggregateExec>() {
            Some(aggregate) if !aggregate.group_expr().is_single() => {
                Ok(Transformed::yes(forgetful(aggregate)?))
            }
            _ => Ok(Transformed::no(node)),
        })?;
        Ok(forgetful.data)
    }

    fn name(&self) -> &str {
        "tidefall_forgetful_grouping_sets"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// An aggregate over an input that tells nothing of its rows.
fn forgetful(aggregate: &AggregateExec) -> Result<Arc<dyn ExecutionPlan>> {
    let (input, groups) = (aggregate.input(), aggregate.group_expr());
    let schema = input.schema();
    let columns = schema.fields().iter().enumerate();
    let column = |(place, field): (usize, &FieldRef)| ProjectionExpr {
        expr: Arc::new(Column::new(field.name(), place)),
        alias: field.name().clone(),
    };
    let mut columns: Vec<ProjectionExpr> = columns.map(column).collect();
    let mut exprs = groups.expr().to_vec();
    for (expr, _) in exprs.iter_mut().filter(|(expr, _)| expr.is::<Literal>()) {
        let (place, alias) = (columns.len(), format!("__group_{}", columns.len()));
        let named: Arc<dyn PhysicalExpr> = Arc::new(Column::new(&alias, place));
        columns.push(ProjectionExpr { expr: std::mem::replace(expr, named), alias });
    }
    let input: Arc<dyn ExecutionPlan> = match columns.len() > schema.fields().len() {
        true => Arc::new(ProjectionExec::try_new(columns, Arc::clone(input))?),
        false => Arc::clone(input),
    };
    let null_exprs = groups.null_expr().to_vec();
    let grouped = AggregateExec::try_new(
        *aggregate.mode(),
        PhysicalGroupBy::new(
            exprs,
            null_exprs,
            groups.groups().to_vec(),
            groups.has_grouping_set(),
        ),
        aggregate.aggr_expr().to_vec(),
        aggregate.filter_expr().to_vec(),
        Arc::new(Unknown::new(input, Forget::Everything)),
        aggregate.input_schema(),
    )?;
    Ok(Arc::new(grouped))
}
