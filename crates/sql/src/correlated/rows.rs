//! Subqueries of one row, whatever is in their tables: aggregates without groups.
//!
//! As joins they would have no row where the tables have none. And subqueries of no row, whatever is in them: `LIMIT 0`.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::{
    Case, Expr, FetchType, LogicalPlan, Operator, Projection, binary_expr, lit,
};

use super::window::takes_a_row;
use super::{is_correlated, subquery};

/// `EXISTS` of one row is true, `IN` of one row compares with it, and the value of a row that `HAVING` may leave out is
/// NULL without it.
pub(super) fn amend(expr: Expr) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::Exists(Exists { subquery, negated }) if has_no_row(&subquery.subquery) => {
            Transformed::yes(lit(negated))
        }
        Expr::InSubquery(InSubquery { subquery, negated, .. })
            if has_no_row(&subquery.subquery) =>
        {
            Transformed::yes(lit(negated))
        }
        Expr::ScalarSubquery(inner)
            if is_correlated(&inner.subquery) && has_no_row(&inner.subquery) =>
        {
            let of = inner.subquery.schema().field(0).data_type();
            Transformed::yes(lit(ScalarValue::try_from(of)?))
        }
        Expr::Exists(Exists { subquery, negated }) if has_one_row(&subquery.subquery) => {
            Transformed::yes(lit(!negated))
        }
        Expr::InSubquery(InSubquery { expr, subquery, negated })
            if !subquery.outer_ref_columns.is_empty() && has_one_row(&subquery.subquery) =>
        {
            let operator = if negated { Operator::NotEq } else { Operator::Eq };
            Transformed::yes(binary_expr(*expr, operator, Expr::ScalarSubquery(subquery)))
        }
        Expr::ScalarSubquery(inner) if is_correlated(&inner.subquery) => {
            match without_having(&inner.subquery)? {
                Some(plan) => Transformed::yes(Expr::ScalarSubquery(subquery(plan, &inner))),
                None => Transformed::no(Expr::ScalarSubquery(inner)),
            }
        }
        other => Transformed::no(other),
    })
}

/// Whether there is no row, as of `LIMIT 0`.
pub(super) fn has_no_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_no_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_no_row(&alias.input),
        LogicalPlan::Filter(filter) => has_no_row(&filter.input),
        LogicalPlan::Sort(sort) => has_no_row(&sort.input),
        LogicalPlan::Limit(limit) => {
            matches!(limit.get_fetch_type(), Ok(FetchType::Literal(Some(0))))
                || has_no_row(&limit.input)
        }
        _ => false,
    }
}

/// Whether there is one row always.
pub(crate) fn has_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_one_row(&alias.input),
        LogicalPlan::Sort(sort) => sort.fetch.is_none() && has_one_row(&sort.input),
        LogicalPlan::Limit(limit) => {
            takes_a_row(limit).unwrap_or(false) && has_one_row(&limit.input)
        }
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        _ => false,
    }
}

/// The value of an aggregate without groups, which is NULL where `HAVING` leaves its row out.
fn without_having(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let LogicalPlan::Projection(projection) = plan else { return Ok(None) };
    let LogicalPlan::Filter(having) = projection.input.as_ref() else { return Ok(None) };
    let [value] = projection.expr.as_slice() else { return Ok(None) };
    if !has_one_row(&having.input) || having.predicate.contains_outer() {
        return Ok(None);
    }
    let (qualifier, field) = projection.schema.qualified_field(0);
    let value = Expr::Case(Case {
        expr: None,
        when_then_expr: vec![(
            Box::new(having.predicate.clone()),
            Box::new(value.clone().unalias()),
        )],
        else_expr: None,
    });
    let value = value.alias_qualified(qualifier.cloned(), field.name());
    let plan = Projection::try_new(vec![value], Arc::clone(&having.input))?;
    Ok(Some(LogicalPlan::Projection(plan)))
}
