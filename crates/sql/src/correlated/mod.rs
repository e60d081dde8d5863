//! Subqueries that look at the query around them, written so that DataFusion answers them rightly, or refused.
//!
//! DataFusion makes joins of them: a condition on a row of the query around it is taken out of the subquery and put into
//! the join, above whatever lies in between. Windows, outer joins, aggregates without groups, `LIMIT` and `DISTINCT`
//! give other rows then. It also tells the columns of such conditions apart by their bare names alone.
//!
//! - `rows.rs`: subqueries that have one row always are no question of whether there is a row.
//! - `lift.rs`: takes such conditions up itself, with columns of their own, through what lets them pass, and refuses
//!   the rest; where DataFusion gets it right, plans stay as they are.
//! - `lower.rs`: computes values of subqueries below the order of rows, windows, groups and joins.
//! - `beside.rs`: `LATERAL` without a table.
//! - `window.rs`: windows and `LIMIT` for the rows of each value of such a condition.
//! - `condition.rs`: what a condition compares, and whether it parts the rows of a subquery.
//! - `refusals.rs`: what is refused here and in `../marks`, where `EXISTS` and `IN` become joins.

mod beside;
mod condition;
mod lift;
mod lower;
mod refusals;
mod rows;
mod window;

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::Subquery;
use datafusion::logical_expr::{EmptyRelation, Expr, LogicalPlan, SubqueryAlias};
use datafusion::optimizer::AnalyzerRule;

use beside::beside;
use condition::Names;
use lift::{Kind, lifted};
use lower::{lowered, takes_values};
use refusals::LEVELS;

use crate::tree::{Tree, apply_expressions, map_expressions, transform_up_with_subqueries};

pub(crate) use refusals::{PARTNERS, refuse, too_many_parts};
pub(crate) use rows::has_one_row;

/// Puts correlated subqueries right, once types are known and before anything is optimised.
#[derive(Debug)]
pub(crate) struct CorrelatedSubqueries;

impl AnalyzerRule for CorrelatedSubqueries {
    fn name(&self) -> &str {
        "tidefall_correlated_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !asks(&plan)? {
            return Ok(plan);
        }
        let mut names = Names::default();
        let amended = transform_up_with_subqueries(plan, &mut |node| {
            let node = amend_lateral(node, &mut names)?;
            let node = node.transform_data(|node| amend_expressions(node, &mut names))?;
            node.transform_data(|node| lowered(node, &mut names))
        })?;
        Ok(amended.data)
    }
}

/// Whether there is a subquery anywhere.
fn asks(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Subquery(_)) || node_has(node, is_subquery)?))
}

/// Whether the expressions of a node have a part of some kind.
pub(crate) fn node_has(node: &LogicalPlan, is_kind: fn(&Expr) -> bool) -> Result<bool> {
    let mut found = false;
    apply_expressions(node, &mut |expr| {
        found = expr.exists(|part| Ok(is_kind(part)))?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Whether an expression is a subquery, or looks something up in one.
pub(crate) fn is_subquery(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) | Expr::ScalarSubquery(_)
    )
}

/// Whether a part of an expression is one.
pub(crate) fn has_subquery(expr: &Expr) -> Result<bool> {
    expr.exists(|part| Ok(is_subquery(part)))
}

/// Whether a subquery looks at the query around it; what a `LATERAL` within it looks at is within it, too.
fn is_correlated(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let walked = plan.apply(|node| {
        if matches!(node, LogicalPlan::Subquery(_)) {
            return Ok(TreeNodeRecursion::Jump);
        }
        found |= node.contains_outer_reference();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    // Walking a plan cannot fail.
    walked.is_err() || found
}

/// The columns around it at which a subquery looks, but for those of a `LATERAL` within it.
fn outer_columns(plan: &LogicalPlan) -> Result<Vec<Column>> {
    let mut found = Vec::new();
    plan.apply(|node| {
        if matches!(node, LogicalPlan::Subquery(_)) {
            return Ok(TreeNodeRecursion::Jump);
        }
        apply_expressions(node, &mut |expr| {
            expr.apply(|part| {
                if let Expr::OuterReferenceColumn(_, column) = part {
                    found.push(column.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}

/// A subquery over a plan, with the columns around it at which that looks.
fn subquery(plan: LogicalPlan, like: &Subquery) -> Subquery {
    let outer_ref_columns = plan.all_out_ref_exprs();
    Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: like.spans.clone() }
}

/// The subqueries in the expressions of a node.
fn amend_expressions(node: LogicalPlan, names: &mut Names) -> Result<Transformed<LogicalPlan>> {
    if !node_has(&node, is_subquery)? {
        return Ok(Transformed::no(node));
    }
    check_levels(&node)?;
    let preserver = NamePreserver::new(&node);
    let amended = map_expressions(node, &mut |expr| {
        if !has_subquery(&expr)? {
            return Ok(Transformed::no(expr));
        }
        let name = preserver.save(&expr);
        let expr = expr.transform_up(rows::amend)?.data;
        let expr = expr.transform_up(|expr| amend_subquery(expr, names))?.data;
        Ok(Transformed::yes(name.restore(expr)))
    })?;
    amended.map_data(LogicalPlan::recompute_schema)
}

/// Refuses subqueries that look at columns of a query around the one in which they stand.
fn check_levels(node: &LogicalPlan) -> Result<()> {
    let inputs = node.inputs();
    let is_here =
        |column: &Column| inputs.iter().any(|input| input.schema().is_column_from_schema(column));
    apply_expressions(node, &mut |expr| {
        expr.apply(|part| {
            let inner = match part {
                Expr::Exists(Exists { subquery, .. })
                | Expr::InSubquery(InSubquery { subquery, .. }) => subquery,
                Expr::ScalarSubquery(subquery) if takes_values(node) => subquery,
                _ => return Ok(TreeNodeRecursion::Continue),
            };
            match outer_columns(&inner.subquery)?.into_iter().find(|column| !is_here(column)) {
                Some(column) => refuse(&format!("and of the one around that ({column})"), LEVELS),
                None => Ok(TreeNodeRecursion::Continue),
            }
        })
    })?;
    Ok(())
}

fn amend_subquery(expr: Expr, names: &mut Names) -> Result<Transformed<Expr>> {
    let mut lift = |kind, inner: &Subquery| -> Result<Option<Subquery>> {
        let plan = lifted(kind, &inner.subquery, names)?;
        Ok(plan.map(|plan| subquery(plan, inner)))
    };
    Ok(match expr {
        Expr::Exists(Exists { subquery, negated }) => {
            let amended = lift(Kind::Exists, &subquery)?.unwrap_or(subquery);
            Transformed::yes(Expr::Exists(Exists { subquery: amended, negated }))
        }
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            let amended = lift(Kind::In, &subquery)?.unwrap_or(subquery);
            Transformed::yes(Expr::InSubquery(InSubquery { expr, subquery: amended, negated }))
        }
        Expr::ScalarSubquery(subquery) => {
            let amended = lift(Kind::Scalar, &subquery)?.unwrap_or(subquery);
            Transformed::yes(Expr::ScalarSubquery(amended))
        }
        other => Transformed::no(other),
    })
}

/// The subquery of a `LATERAL` join, which is its right side, with a name or without.
fn amend_lateral(node: LogicalPlan, names: &mut Names) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(mut join) = node else { return Ok(Transformed::no(node)) };
    let (inner, alias) = match join.right.as_ref() {
        LogicalPlan::Subquery(inner) => (inner, None),
        LogicalPlan::SubqueryAlias(named) => match named.input.as_ref() {
            LogicalPlan::Subquery(inner) => (inner, Some(named.alias.clone())),
            _ => return Ok(Transformed::no(LogicalPlan::Join(join))),
        },
        _ => return Ok(Transformed::no(LogicalPlan::Join(join))),
    };
    if rows::has_no_row(&inner.subquery) {
        let schema = Arc::clone(inner.subquery.schema());
        let empty = EmptyRelation { produce_one_row: false, schema };
        let empty = Arc::new(LogicalPlan::EmptyRelation(empty));
        join.right = match alias {
            Some(alias) => {
                Arc::new(LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(empty, alias)?))
            }
            None => empty,
        };
        return Ok(Transformed::yes(LogicalPlan::Join(join)));
    }
    if let Some(plan) = beside(&join, &inner.subquery, alias.as_ref())? {
        return Ok(Transformed::yes(plan));
    }
    let Some(plan) = lifted(Kind::Lateral, &inner.subquery, names)? else {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    };
    let amended = Arc::new(LogicalPlan::Subquery(subquery(plan, inner)));
    join.right = match alias {
        Some(alias) => {
            Arc::new(LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(amended, alias)?))
        }
        None => amended,
    };
    Ok(Transformed::yes(LogicalPlan::Join(join)))
}
