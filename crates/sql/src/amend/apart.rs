//! Numbers of several kinds that one value is compared with, each kind apart from the others.
//!
//! DataFusion brings all parts of `IN`, `BETWEEN` and `CASE x WHEN` to one type. Beside one float all whole numbers and decimals are floats,
//! which are equal to others near them. Each comparison by itself is as exact as its two sides are. Floats that are written beside whole
//! numbers become such themselves.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Between, Case, InList};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, binary_expr, in_list};

use super::compared;
use super::numbers::with_point;
use crate::correlated::has_subquery;
use crate::tree::Tree;

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

/// The kinds of some numbers, that of the first for NULL, if not all are of one and `value` is compared as another type with each.
fn kinds(value: &Expr, others: &[&Expr], schema: &DFSchema) -> Result<Option<Vec<Kind>>> {
    let own = Kind::of(&value.get_type(schema)?);
    if own.is_none_or(|own| own == Kind::Double) {
        return Ok(None);
    }
    let mut kinds = Vec::with_capacity(others.len());
    for other in others {
        let of = other.get_type(schema)?;
        match Kind::of(&of) {
            None if !of.is_null() => return Ok(None),
            // Beside a float it will be one.
            Some(_) if own == Some(Kind::Real) && with_point(other).is_some() => {
                kinds.push(Some(Kind::Double));
            }
            kind => kinds.push(kind),
        }
    }
    let Some(first) = kinds.iter().flatten().min().copied() else { return Ok(None) };
    let kinds: Vec<Kind> = kinds.into_iter().map(|kind| kind.unwrap_or(first)).collect();
    Ok(kinds.iter().any(|kind| *kind != first).then_some(kinds))
}

/// A value, and the others that it is compared with, if they are several.
fn value_and_others(expr: &Expr) -> Option<(&Expr, Vec<&Expr>)> {
    let (parts, None) = compared::parts(expr) else { return None };
    let (value, others) = parts.split_first().filter(|(_, others)| others.len() > 1)?;
    Some((value, others.to_vec()))
}

/// Makes whole numbers of floats that are written beside such. No whole number equals one with a fraction: lists are left without, if there
/// are others, and a `CASE` with NULL, as what it answers then has a say in its type.
pub(super) fn with_whole_numbers(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Some((value, others)) = value_and_others(&expr) else { return Ok(Transformed::no(expr)) };
    if !value.get_type(schema)?.is_integer() {
        return Ok(Transformed::no(expr));
    }
    match kinds(value, &others, schema)? {
        None => return Ok(Transformed::no(expr)),
        // Without those that are DOUBLE all would be compared as REAL.
        Some(kinds) if kinds.contains(&Kind::Real) && !may_repeat(value) => {
            return Ok(Transformed::no(expr));
        }
        Some(_) => {}
    }
    match &mut expr {
        Expr::InList(InList { list, .. }) => {
            if !list.iter().all(is_fraction) {
                list.retain(|other| !is_fraction(other));
            }
            list.iter_mut().for_each(|other| put_whole(other, |float| float));
        }
        Expr::Between(Between { low, high, .. }) => {
            put_whole(low, f64::ceil);
            put_whole(high, f64::floor);
        }
        Expr::Case(Case { when_then_expr, .. }) => {
            for (other, _) in when_then_expr {
                match is_fraction(other) {
                    true => **other = Expr::Literal(ScalarValue::Int64(None), None),
                    false => put_whole(other, |float| float),
                }
            }
        }
        _ => {}
    }
    Ok(Transformed::yes(expr))
}

/// A float that is written out and has a fraction.
fn is_fraction(expr: &Expr) -> bool {
    written(expr).is_some_and(|float| float.fract() != 0.0)
}

fn written(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Literal(ScalarValue::Float64(Some(float)), _) if float.is_finite() => Some(*float),
        _ => None,
    }
}

/// Puts a whole number of 64 bits in the place of a float that is one, or of one that `round` makes of it.
fn put_whole(expr: &mut Expr, round: impl Fn(f64) -> f64) {
    const BEYOND: f64 = (1_u64 << 63) as f64;
    let Some(whole) = written(expr).map(round) else { return };
    if whole.fract() == 0.0 && (-BEYOND..BEYOND).contains(&whole) {
        *expr = Expr::Literal(ScalarValue::Int64(Some(whole as i64)), None);
    }
}

/// How many parts a value may have that is written more than once.
const PARTS_MAX: usize = 32;

/// Whether an expression is the same wherever it stands, and costs little.
fn may_repeat(expr: &Expr) -> bool {
    let mut parts = 0;
    let is_large = expr.exists(|_| {
        parts += 1;
        Ok(parts > PARTS_MAX)
    });
    let is_small = is_large.is_ok_and(|is_large| !is_large);
    is_small && has_subquery(expr).is_ok_and(|has_any| !has_any) && !expr.is_volatile()
}

/// Writes an expression as comparisons with numbers of one kind, which are amended, if it is one with several.
pub(super) fn divided(
    expr: &Expr,
    schema: &DFSchema,
    amend: impl Fn(Expr) -> Result<Expr>,
) -> Result<Option<Expr>> {
    let Some((value, others)) = value_and_others(expr) else { return Ok(None) };
    let Some(kinds) = kinds(value, &others, schema)?.filter(|_| may_repeat(value)) else {
        return Ok(None);
    };
    match expr {
        Expr::InList(InList { list, negated, .. }) => {
            let each = [Kind::Exact, Kind::Real, Kind::Double].into_iter();
            let lists = each.map(|kind| -> Vec<Expr> {
                let of_kind = list.iter().zip(&kinds).filter(|(_, of)| **of == kind);
                of_kind.map(|(other, _)| other.clone()).collect()
            });
            let (op, mut all) = (if *negated { Operator::And } else { Operator::Or }, None);
            for list in lists.filter(|list| !list.is_empty()) {
                let next = amend(in_list(value.clone(), list, *negated))?;
                all = Some(match all {
                    Some(all) => binary_expr(all, op, next),
                    None => next,
                });
            }
            Ok(all)
        }
        Expr::Between(Between { negated, low, high, .. }) => {
            let (not_below, not_above, op) = match negated {
                false => (Operator::GtEq, Operator::LtEq, Operator::And),
                true => (Operator::Lt, Operator::Gt, Operator::Or),
            };
            let side = |op, bound: &Expr| amend(binary_expr(value.clone(), op, bound.clone()));
            Ok(Some(binary_expr(side(not_below, low)?, op, side(not_above, high)?)))
        }
        Expr::Case(Case { when_then_expr, else_expr, .. }) => {
            let cases = when_then_expr.iter().map(|(other, then)| {
                let is = binary_expr(value.clone(), Operator::Eq, (**other).clone());
                Ok((Box::new(amend(is)?), then.clone()))
            });
            let cases = cases.collect::<Result<_>>()?;
            Ok(Some(Expr::Case(Case::new(None, cases, else_expr.clone()))))
        }
        _ => Ok(None),
    }
}
