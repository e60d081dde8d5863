//! A subquery in the place of a value is NULL when it has no row, also where its column never is.
//!
//! DataFusion takes over from the column that there is no NULL, and fails when there is one. Correlated subqueries
//! become joins, which know about it.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, ScalarValue};
use datafusion::error::Result;
use datafusion::functions::core::nullif;
use datafusion::logical_expr::logical_plan::Subquery;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};

use crate::correlated::has_one_row;

/// A subquery whose column may be NULL, as it is when there is no row.
pub(super) fn amend(node: Expr) -> Result<Transformed<Expr>> {
    let Expr::ScalarSubquery(subquery) = node else { return Ok(Transformed::no(node)) };
    let plan = &subquery.subquery;
    let is_plain = subquery.outer_ref_columns.is_empty() && plan.schema().fields().len() == 1;
    if !is_plain || plan.schema().field(0).is_nullable() || has_one_row(plan) {
        return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
    }
    let (qualifier, field) = plan.schema().qualified_field(0);
    let null = Expr::Literal(ScalarValue::try_from(field.data_type())?, None);
    let value = nullif().call(vec![Expr::Column(Column::from((qualifier, field))), null]);
    let value = value.alias_qualified(qualifier.cloned(), field.name());
    let plan = LogicalPlanBuilder::from(Arc::clone(plan)).project([value])?.build()?;
    let subquery = Subquery { subquery: Arc::new(plan), ..subquery };
    Ok(Transformed::yes(Expr::ScalarSubquery(subquery)))
}
