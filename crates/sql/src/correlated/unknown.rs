//! `IN` and NULL: what is not among rows one of which is NULL may be it, and so may NULL, where there are rows.
//!
//! DataFusion's joins know about that for `NOT IN` as a condition of its own over a subquery that stands for itself. In
//! all other places they take what is not known for false. That is the same in a condition as long as nothing turns
//! it around; where it is not, `IN` is written as what it asks.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Case, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, lit, not,
};
use tidefall_types::Error;

use super::{has_subquery, is_correlated, subquery};
use crate::error::to_datafusion;

/// What is asked of a truth value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Whether it is true.
    True,
    /// Whether it is false.
    False,
    /// Which of the three it is.
    All,
}

impl Need {
    fn turned(self) -> Self {
        match self {
            Self::True => Self::False,
            Self::False => Self::True,
            Self::All => Self::All,
        }
    }
}

/// A condition on rows whose `IN`s say what they mean.
pub(super) fn amend_filter(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let parts = split_conjunction_owned(expr).into_iter().map(|part| match part {
        Expr::InSubquery(part) if is_join(&part, part.negated) => Ok(Expr::InSubquery(part)),
        Expr::Not(part) => match *part {
            Expr::InSubquery(part) if is_join(&part, !part.negated) => {
                Ok(not(Expr::InSubquery(part)))
            }
            part => amend(not(part), Need::True, schema),
        },
        part => amend(part, Need::True, schema),
    });
    let parts = parts.collect::<Result<Vec<_>>>()?;
    Ok(conjunction(parts).unwrap_or_else(|| lit(true)))
}

/// Whether DataFusion makes the right join of a condition of its own.
fn is_join(part: &InSubquery, is_negated: bool) -> bool {
    !is_negated || !is_correlated(&part.subquery.subquery)
}

fn amend(expr: Expr, need: Need, schema: &DFSchema) -> Result<Expr> {
    if !has_subquery(&expr)? {
        return Ok(expr);
    }
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let left = Box::new(amend(*left, need, schema)?);
            let right = Box::new(amend(*right, need, schema)?);
            Expr::BinaryExpr(BinaryExpr { left, op, right })
        }
        Expr::Not(inner) => not(amend(*inner, need.turned(), schema)?),
        Expr::IsTrue(inner) => Expr::IsTrue(Box::new(amend(*inner, Need::True, schema)?)),
        Expr::IsNotTrue(inner) => Expr::IsNotTrue(Box::new(amend(*inner, Need::True, schema)?)),
        Expr::IsFalse(inner) => Expr::IsFalse(Box::new(amend(*inner, Need::False, schema)?)),
        Expr::IsNotFalse(inner) => Expr::IsNotFalse(Box::new(amend(*inner, Need::False, schema)?)),
        Expr::InSubquery(question) => ask(question, need, schema)?,
        other => {
            let inner = |part| Ok(Transformed::yes(amend(part, Need::All, schema)?));
            other.map_children(inner)?.data
        }
    })
}

/// `IN` as the questions whether there is such a row, and whether there is one that may be it.
fn ask(question: InSubquery, need: Need, schema: &DFSchema) -> Result<Expr> {
    let knows = match need {
        Need::True => !question.negated,
        Need::False => question.negated,
        Need::All => false,
    };
    let (value, rows) = (question.expr.as_ref(), question.subquery.subquery.as_ref());
    let may_be_null = (value.nullable(schema)?, rows.schema().field(0).is_nullable());
    let is_safe = need == Need::All || !is_correlated(rows);
    if knows || (may_be_null == (false, false) && is_safe) {
        return Ok(Expr::InSubquery(question));
    }
    check_size(rows)?;
    let column = || Expr::Column(Column::from(rows.schema().qualified_field(0)));
    let matched = matched(&question, schema)?;
    let mut unknown = Vec::new();
    if may_be_null.1 {
        let nulls = LogicalPlanBuilder::from(rows.clone()).filter(column().is_null())?.build()?;
        unknown.push(any(nulls, &question)?);
    }
    if may_be_null.0 {
        unknown.push(value.clone().is_null().and(any(rows.clone(), &question)?));
    }
    let unknown = unknown.into_iter().reduce(Expr::or);
    if need == Need::All {
        let mut cases = vec![(Box::new(matched), Box::new(lit(!question.negated)))];
        let null = Expr::Literal(ScalarValue::Boolean(None), None);
        cases.extend(unknown.map(|unknown| (Box::new(unknown), Box::new(null))));
        let otherwise = Some(Box::new(lit(question.negated)));
        return Ok(Expr::Case(Case { expr: None, when_then_expr: cases, else_expr: otherwise }));
    }
    // Whether it is false for `IN`, whether it is true for `NOT IN`: one is the other turned around.
    let may_be = match unknown {
        Some(unknown) => matched.or(unknown),
        None => matched,
    };
    Ok(if question.negated { not(may_be) } else { may_be })
}

/// Nodes of a subquery at most that is asked three times instead of once, as subqueries within it may be.
const NODES_MAX: usize = 2_000;

fn check_size(rows: &LogicalPlan) -> Result<()> {
    let mut nodes = 0;
    rows.apply_with_subqueries(|_| {
        nodes += 1;
        Ok(if nodes > NODES_MAX { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    match nodes > NODES_MAX {
        true => Err(to_datafusion(Error::limit(format!(
            "a subquery of IN in a place where NULL matters has more than {NODES_MAX} parts; make it a table of its own, \
             or leave NULL out by IS NOT NULL and write NOT EXISTS"
        )))),
        false => Ok(()),
    }
}

/// Whether there is a row that is equal to what is looked for.
fn matched(question: &InSubquery, schema: &DFSchema) -> Result<Expr> {
    let rows = question.subquery.subquery.as_ref();
    if has_subquery(&question.expr)? || question.expr.contains_outer() {
        let instead = "name it in a subquery in FROM, and look for that name";
        return Err(to_datafusion(Error::unsupported(format!(
            "IN of a subquery in this place for a value that is one itself, or comes from the query around both, is not \
             supported; {instead}"
        ))));
    }
    let value = question.expr.as_ref().clone().transform_up(|node| match node {
        Expr::Column(column) => {
            let field = Arc::clone(schema.field_from_column(&column)?);
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    let found = Expr::Column(Column::from(rows.schema().qualified_field(0)));
    let rows = LogicalPlanBuilder::from(rows.clone()).project([found.alias(FOUND)])?;
    let found = Expr::Column(Column::new_unqualified(FOUND));
    exists(rows.filter(found.eq(value.data))?.build()?, question)
}

/// The column that `IN` looks through, under a name that no other has.
const FOUND: &str = "__in";

/// Whether there is any row.
fn any(rows: LogicalPlan, question: &InSubquery) -> Result<Expr> {
    let rows = match is_correlated(&rows) {
        true => rows,
        false => LogicalPlanBuilder::from(rows).limit(0, Some(1))?.build()?,
    };
    exists(rows, question)
}

fn exists(rows: LogicalPlan, question: &InSubquery) -> Result<Expr> {
    let subquery = subquery(rows, &question.subquery);
    Ok(Expr::Exists(Exists { subquery, negated: false }))
}
