//! Something else in the place of the columns of a plan.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

/// Puts something else in the place of columns, which keep their names, and says whether it did.
pub(super) fn project(
    input: Arc<LogicalPlan>,
    amend: impl Fn(usize, Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<(Arc<LogicalPlan>, bool)> {
    let schema = Arc::clone(input.schema());
    let mut is_amended = false;
    let columns = schema.iter().enumerate().map(|(at, (qualifier, field))| {
        let column = amend(at, Expr::Column(Column::from((qualifier, field))), &schema)?;
        is_amended |= column.transformed;
        Ok(match column.transformed {
            true => column.data.alias_qualified(qualifier.cloned(), field.name()),
            false => column.data,
        })
    });
    let columns: Vec<Expr> = columns.collect::<Result<_>>()?;
    if !is_amended {
        return Ok((input, false));
    }
    Ok((Arc::new(LogicalPlanBuilder::from(input).project(columns)?.build()?), true))
}
