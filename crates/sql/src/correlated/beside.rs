//! `LATERAL (SELECT b.n + 1 AS y)`: expressions without a table are columns beside those of the query around them, as are
//! the values of `LATERAL (SELECT unnest([b.n, b.m]))`.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{JoinType, ScalarValue, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::{
    EmptyRelation, Expr, Join, LogicalPlan, LogicalPlanBuilder, Projection,
};

use super::condition::columns;
use crate::tree::Tree;

/// A join with the one row of a subquery as the left side with more columns, if it is one; with the values of lists that the
/// subquery unnests, as the left side with a row for each.
pub(super) fn beside(
    join: &Join,
    inner: &LogicalPlan,
    alias: Option<&TableReference>,
) -> Result<Option<LogicalPlan>> {
    let is_pairing = matches!(join.join_type, JoinType::Inner | JoinType::Left)
        && join.on.is_empty()
        && join.filter.as_ref().is_none_or(is_true);
    let LogicalPlan::Projection(Projection { expr, input, .. }) = inner else { return Ok(None) };
    if !is_pairing {
        return Ok(None);
    }
    let Some(below) = below(input, join)? else { return Ok(None) };
    let mut columns: Vec<Expr> = columns(&join.left);
    for (expr, (qualifier, field)) in expr.iter().zip(inner.schema().iter()) {
        let column = expr.clone().unalias_nested().data.transform_up(at_its_place)?.data;
        columns.push(column.alias_qualified(alias.or(qualifier).cloned(), field.name()));
    }
    LogicalPlanBuilder::from(below).project(columns)?.build().map(Some)
}

/// The left side in the place of one row, with what is unnested beside it.
fn below(input: &LogicalPlan, join: &Join) -> Result<Option<Arc<LogicalPlan>>> {
    if is_one_row(input) {
        return Ok(Some(Arc::clone(&join.left)));
    }
    let LogicalPlan::Unnest(unnest) = input else { return Ok(None) };
    let LogicalPlan::Projection(lists) = unnest.input.as_ref() else { return Ok(None) };
    // Rows without a value stay in a left join.
    if join.join_type != JoinType::Inner || !is_one_row(&lists.input) {
        return Ok(None);
    }
    let mut columns = columns(&join.left);
    for (expr, (qualifier, field)) in lists.expr.iter().zip(lists.schema.iter()) {
        let list = expr.clone().unalias_nested().data.transform_up(at_its_place)?.data;
        columns.push(list.alias_qualified(qualifier.cloned(), field.name()));
    }
    let plan = LogicalPlanBuilder::from(Arc::clone(&join.left)).project(columns)?;
    let (lists, options) = (unnest.exec_columns.clone(), unnest.options.clone());
    let plan = plan.unnest_columns_with_options(lists, options)?.build()?;
    Ok(Some(Arc::new(plan)))
}

const fn is_one_row(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: true, .. }))
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
