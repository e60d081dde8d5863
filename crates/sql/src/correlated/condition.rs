//! Conditions that look at the query around a subquery.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, Projection, SubqueryAlias,
};

use super::has_subquery;
use crate::amend::is_of_decimal;
use crate::tree::Tree;

/// What keeps the columns of a condition apart from all others.
#[derive(Debug, Default)]
pub(super) struct Names(usize);

impl Names {
    pub(super) fn next(&mut self) -> String {
        self.0 += 1;
        format!("__outer_{}", self.0)
    }
}

/// A condition on its way up: it looks at columns of its own, which come up with it.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) expr: Expr,
    pub(super) keys: Vec<Column>,
    /// How it parts the rows: each row of the query around it sees the rows of one value of the key, or all or none.
    pub(super) parts: Option<Parts>,
}

/// How a condition parts the rows of a subquery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parts {
    /// By a column, or a value that stands for it, that is equal to something.
    Column,
    /// By an expression that is equal to something.
    Value,
    /// By something that is not distinct from something.
    Distinct,
    /// All or none.
    Whole,
}

/// A plan without its conditions on rows of the query around it.
pub(super) struct Lifted {
    pub(super) plan: LogicalPlan,
    pub(super) conditions: Vec<Condition>,
    /// Whether there is an aggregate without groups that has such conditions.
    pub(super) has_one_row: bool,
}

/// Takes the columns out of a condition: what it computes from them is put into `computed` under names of its own.
/// `None` where it cannot be moved.
pub(super) fn taken(
    expr: Expr,
    schema: &DFSchema,
    names: &mut Names,
    computed: &mut Vec<Expr>,
) -> Result<Option<Condition>> {
    if has_subquery(&expr)? || expr.is_volatile() {
        return Ok(None);
    }
    let mut keys = Vec::new();
    let mut key = |inner: Expr| {
        let name = names.next();
        computed.push(inner.alias(&name));
        let column = Column::new_unqualified(name);
        keys.push(column.clone());
        Expr::Column(column)
    };
    if let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &expr
        && let Operator::Eq | Operator::IsNotDistinctFrom = op
    {
        let is_inner = |side: &Expr| side.any_column_refs() && !side.contains_outer();
        let sides = (is_inner(left), is_inner(right));
        let is_parting = match sides {
            (true, false) => !right.any_column_refs(),
            (false, true) => !left.any_column_refs(),
            _ => false,
        };
        if is_parting {
            let (inner, is_left) = if sides.0 { (left, true) } else { (right, false) };
            let is_float = inner.get_type(schema)?.is_floating() && !was_exact(inner, schema)?;
            let parts = match op {
                Operator::Eq if is_column(inner, schema)? => Some(Parts::Column),
                // Computed zeros and NaN are equal without being the same to groups.
                _ if is_float && !matches!(inner.as_ref(), Expr::Column(_)) => None,
                Operator::Eq => Some(Parts::Value),
                _ => Some(Parts::Distinct),
            };
            let inner = Box::new(key(inner.as_ref().clone()));
            let (left, right) =
                if is_left { (inner, right.clone()) } else { (left.clone(), inner) };
            let expr = Expr::BinaryExpr(BinaryExpr { left, op: *op, right });
            return Ok(Some(Condition { expr, keys, parts }));
        }
    }
    let is_whole = !expr.any_column_refs();
    let expr = expr.transform_up(|node| match node {
        Expr::Column(_) => Ok(Transformed::yes(key(node))),
        other => Ok(Transformed::no(other)),
    })?;
    let parts = is_whole.then_some(Parts::Whole);
    Ok(Some(Condition { expr: expr.data, keys, parts }))
}

/// Whether an expression is a column, or has as many values.
fn is_column(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    Ok(match expr {
        Expr::Column(_) => true,
        Expr::Cast(Cast { expr: inner, .. }) if matches!(inner.as_ref(), Expr::Column(_)) => {
            let (from, to) = (inner.get_type(schema)?, expr.get_type(schema)?);
            keeps_apart(&from, &to)
        }
        _ => false,
    })
}

/// Whether a number comes from an integer or a decimal.
fn was_exact(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    Ok(match expr {
        Expr::Cast(Cast { expr: inner, .. }) => inner.get_type(schema)?.is_integer(),
        _ => is_of_decimal(expr, schema)?,
    })
}

/// Whether a cast never makes one value of two.
fn keeps_apart(from: &DataType, to: &DataType) -> bool {
    let from = if let DataType::Dictionary(_, value) = from { value } else { from };
    let to = if let DataType::Dictionary(_, value) = to { value } else { to };
    let is_text =
        |t: &DataType| matches!(t, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let is_wider =
        from.is_integer() && to.is_integer() && from.primitive_width() <= to.primitive_width();
    from == to
        || (is_text(from) && is_text(to))
        || is_wider
        || (*from == DataType::Float32 && *to == DataType::Float64)
}

impl Condition {
    /// The columns of a condition under the name that a subquery in `FROM` has.
    pub(super) fn named(self, alias: &SubqueryAlias) -> Result<Self> {
        let rename = |column: &Column| Column::new(Some(alias.alias.clone()), &column.name);
        let keys: Vec<Column> = self.keys.iter().map(rename).collect();
        let expr = self.expr.transform_up(|node| match node {
            Expr::Column(column) => Ok(Transformed::yes(Expr::Column(rename(&column)))),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(Self { expr: expr.data, keys, parts: self.parts })
    }

    /// Whether a value of the subquery is equal to something.
    pub(super) fn is_equal(&self) -> bool {
        matches!(self.parts, Some(Parts::Column | Parts::Value))
    }

    /// The column of the subquery that is the same as a column of the query around it, if the condition says so.
    pub(super) fn stand_in(&self, outer: &Expr) -> Option<Expr> {
        let Expr::OuterReferenceColumn(field, _) = outer else { return None };
        // Zeros are equal without being the same.
        let is_same = self.is_equal() && !field.data_type().is_floating();
        let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = &self.expr else {
            return None;
        };
        match (&**left, &**right) {
            (own @ Expr::Column(_), other) | (other, own @ Expr::Column(_))
                if is_same && other == outer =>
            {
                Some(own.clone())
            }
            _ => None,
        }
    }

    /// The columns of a condition as expressions.
    pub(super) fn columns(&self) -> impl Iterator<Item = Expr> + '_ {
        self.keys.iter().cloned().map(Expr::Column)
    }
}

/// A plan with all of its columns, and more.
pub(super) fn with_more(plan: LogicalPlan, more: Vec<Expr>) -> Result<LogicalPlan> {
    if more.is_empty() {
        return Ok(plan);
    }
    let mut columns = columns(&plan);
    columns.extend(more);
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?))
}

/// The columns of a plan as expressions.
pub(super) fn columns(plan: &LogicalPlan) -> Vec<Expr> {
    plan.schema().columns().into_iter().map(Expr::Column).collect()
}
