//! Numbers of several kinds that one value is compared with, each kind apart from the others.
//!
//! DataFusion brings all parts of `IN`, `BETWEEN` and `CASE x WHEN` to one type. Beside one float all whole numbers and decimals are floats,
//! which are equal to others near them. Each comparison by itself is as exact as its two sides are.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Between, Case, InList};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, binary_expr, in_list};

/// What compares by itself with what another number is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Whole numbers and decimals.
    Exact,
    Real,
    Double,
}

impl Kind {
    fn of(of: &DataType) -> Option<Self> {
        match of {
            DataType::Float64 => Some(Self::Double),
            DataType::Float32 | DataType::Float16 => Some(Self::Real),
            of if of.is_numeric() => Some(Self::Exact),
            _ => None,
        }
    }
}

/// The kind of each of some numbers, that of the first for NULL, if not all are of one and `value` is compared as another type with each.
fn kinds(value: &Expr, others: &[&Expr], schema: &DFSchema) -> Result<Option<Vec<Kind>>> {
    let own = Kind::of(&value.get_type(schema)?);
    // What is drawn must be drawn once.
    if own.is_none_or(|own| own == Kind::Double) || value.is_volatile() {
        return Ok(None);
    }
    let mut kinds = Vec::with_capacity(others.len());
    for other in others {
        let of = other.get_type(schema)?;
        match Kind::of(&of) {
            None if !of.is_null() => return Ok(None),
            kind => kinds.push(kind),
        }
    }
    let Some(first) = kinds.iter().flatten().min().copied() else { return Ok(None) };
    let kinds: Vec<Kind> = kinds.into_iter().map(|kind| kind.unwrap_or(first)).collect();
    Ok(kinds.iter().any(|kind| *kind != first).then_some(kinds))
}

/// Writes an expression as comparisons with numbers of one kind, if it is one with several. Nobody has amended these.
pub(super) fn divided(
    expr: &Expr,
    schema: &DFSchema,
    amend: impl Fn(Expr) -> Result<Expr>,
) -> Result<Option<Expr>> {
    match expr {
        Expr::InList(InList { expr: value, list, negated }) => {
            let others: Vec<&Expr> = list.iter().collect();
            let Some(kinds) = kinds(value, &others, schema)? else { return Ok(None) };
            let each = [Kind::Exact, Kind::Real, Kind::Double].into_iter();
            let lists = each.map(|kind| -> Vec<Expr> {
                let of_kind = list.iter().zip(&kinds).filter(|(_, of)| **of == kind);
                of_kind.map(|(other, _)| other.clone()).collect()
            });
            let (op, mut all) = (if *negated { Operator::And } else { Operator::Or }, None);
            for list in lists.filter(|list| !list.is_empty()) {
                let next = amend(in_list((**value).clone(), list, *negated))?;
                all = Some(match all {
                    Some(all) => binary_expr(all, op, next),
                    None => next,
                });
            }
            Ok(all)
        }
        Expr::Between(Between { expr: value, negated, low, high }) => {
            if kinds(value, &[low, high], schema)?.is_none() {
                return Ok(None);
            }
            let (not_below, not_above, op) = match negated {
                false => (Operator::GtEq, Operator::LtEq, Operator::And),
                true => (Operator::Lt, Operator::Gt, Operator::Or),
            };
            let side = |op, bound: &Expr| amend(binary_expr((**value).clone(), op, bound.clone()));
            Ok(Some(binary_expr(side(not_below, low)?, op, side(not_above, high)?)))
        }
        Expr::Case(Case { expr: Some(value), when_then_expr, else_expr }) => {
            let others: Vec<&Expr> = when_then_expr.iter().map(|(other, _)| &**other).collect();
            if kinds(value, &others, schema)?.is_none() {
                return Ok(None);
            }
            let cases = when_then_expr.iter().map(|(other, then)| {
                let is = binary_expr((**value).clone(), Operator::Eq, (**other).clone());
                Ok((Box::new(amend(is)?), then.clone()))
            });
            let cases = cases.collect::<Result<_>>()?;
            Ok(Some(Expr::Case(Case::new(None, cases, else_expr.clone()))))
        }
        _ => Ok(None),
    }
}
