//! `LATERAL (SELECT b.n + 1 AS y)`: expressions without a table are columns beside those of the query around them.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinType, ScalarValue, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::{
    EmptyRelation, Expr, Join, LogicalPlan, LogicalPlanBuilder, Projection,
};

/// A join with the one row of a subquery as the left side with more columns, if it is one.
pub(super) fn beside(
    join: &Join,
    inner: &LogicalPlan,
    alias: Option<&TableReference>,
) -> Result<Option<LogicalPlan>> {
    let is_pairing = matches!(join.join_type, JoinType::Inner | JoinType::Left)
        && join.on.is_empty()
        && join.filter.as_ref().is_none_or(is_true);
    let LogicalPlan::Projection(Projection { expr, input, .. }) = inner else { return Ok(None) };
    let has_one_row = matches!(
        input.as_ref(),
        LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: true, .. })
    );
    if !is_pairing || !has_one_row {
        return Ok(None);
    }
    let left = join.left.schema().columns().into_iter().map(Expr::Column);
    let mut columns: Vec<Expr> = left.collect();
    for (expr, (qualifier, field)) in expr.iter().zip(inner.schema().iter()) {
        let column = expr.clone().unalias_nested().data.transform(at_its_place)?.data;
        columns.push(column.alias_qualified(alias.or(qualifier).cloned(), field.name()));
    }
    let plan = LogicalPlanBuilder::from(Arc::clone(&join.left)).project(columns)?;
    plan.build().map(Some)
}

fn is_true(condition: &Expr) -> bool {
    matches!(condition, Expr::Literal(ScalarValue::Boolean(Some(true)), _))
}

/// A column of the query around a subquery as one of the query itself.
fn at_its_place(expr: Expr) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::OuterReferenceColumn(_, column) => Transformed::yes(Expr::Column(column)),
        other => Transformed::no(other),
    })
}
