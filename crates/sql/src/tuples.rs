//! `(a, b) IN (SELECT x, y ...)`, which DataFusion knows for one column alone, and `(a, b) < (c, d)`, for which it takes NULL as
//! the least value.
//!
//! With `q` for the subquery it becomes `EXISTS (SELECT 1 FROM q WHERE x = a AND y = b)` where it stands alone in a condition. As a
//! value, and for `NOT IN`, it may also be unknown: if there is no such row, but one that differs only where one of both
//! sides is NULL.
//!
//! `(a, b) < (c, d)` becomes `a < c OR (a = c AND b < d)`, and `(a, b) = (c, d)` becomes `a = c AND b = d`, which are unknown where the
//! parts that decide are. A long list of constant tuples is looked up as a subquery.
//!
//! Everywhere else a tuple is a struct, whatever its parts are.

use std::convert::Infallible;
use std::ops::{ControlFlow, Range};

use datafusion::execution::context::SessionState;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, JoinConstraint, JoinOperator, Parens, Query, Select, SetExpr,
    TableFactor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use tidefall_types::{Error, Result};

use crate::ast::{call, put, refuse_random};
use crate::walk::{Walked, visit_expressions, visit_expressions_mut};

/// Makes `EXISTS` of tuples that are looked for in subqueries.
pub(crate) struct TuplesAmong<'a>(pub(crate) &'a SessionState);

impl VisitorMut for TuplesAmong<'_> {
    type Break = Error;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        let joins = select.from.iter_mut().flat_map(|from| &mut from.joins);
        let joined = joins.filter_map(|join| match &mut join.join_operator {
            JoinOperator::Join(JoinConstraint::On(condition))
            | JoinOperator::Inner(JoinConstraint::On(condition)) => Some(condition),
            _ => None,
        });
        let conditions = [&mut select.selection, &mut select.having, &mut select.qualify];
        for condition in conditions.into_iter().flatten().chain(joined) {
            if let Err(error) = self.alone(condition) {
                return ControlFlow::Break(error);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        self.look_up(expr);
        let written = compared(expr);
        put(expr, written)?;
        let written = tuple_of(expr).map(|(tuple, subquery, negated)| {
            self.check_parts(&tuple)?;
            refuse_random(&subquery)?;
            if has_tuple(&subquery) {
                return Err(Error::unsupported(
                    "NOT IN and values of IN take no tuples whose subquery looks for tuples again; write EXISTS",
                ));
            }
            value(&tuple, &subquery, negated)
        });
        put(expr, written.transpose())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let written = as_struct(expr);
        put(expr, Ok(written))
    }
}

/// A tuple as a struct, where DataFusion does not take it for one: it wants a name or a constant as the first part.
fn as_struct(expr: &Expr) -> Option<Expr> {
    let Expr::Tuple(parts) = expr else { return None };
    if let None | Some(Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_)) =
        parts.first()
    {
        return None;
    }
    Some(call("struct", parts.iter().cloned()))
}

impl TuplesAmong<'_> {
    /// Makes a subquery of a long list of constant tuples.
    fn look_up(&self, expr: &mut Expr) {
        let Expr::InList { expr: tuple, list, negated } = expr else { return };
        let Some(parts) = parts_of(tuple).filter(|_| list.len() > LISTED_MAX) else { return };
        let rows: Option<Vec<&[Expr]>> = list.iter().map(parts_of).collect();
        let is_alike = |row: &&[Expr]| row.len() == parts.len() && row.iter().all(is_constant);
        let Some(rows) = rows.filter(|rows| rows.iter().all(is_alike)) else { return };
        if self.check_parts(parts).is_err() {
            return;
        }
        let Some(subquery) = values(&rows) else { return };
        *expr = Expr::InSubquery {
            expr: Box::new(Expr::Tuple(parts.to_vec())),
            subquery,
            negated: *negated,
        };
    }

    /// Tuples of which a condition asks nothing but whether they are there.
    fn alone(&self, condition: &mut Expr) -> Result<()> {
        match condition {
            Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
                self.alone(left)?;
                self.alone(right)
            }
            Expr::Nested(inner) => self.alone(inner),
            other => {
                self.look_up(other);
                if let Some((tuple, subquery, false)) = tuple_of(other) {
                    self.check_parts(&tuple)?;
                    *other = exists(&tuple, &subquery, &equal(0..tuple.len()))?;
                }
                Ok(())
            }
        }
    }

    /// Parts that look for tuples themselves would be written out again and again; and they stand in a subquery, where
    /// groups and windows are those of that.
    fn check_parts(&self, tuple: &[Expr]) -> Result<()> {
        tuple.iter().try_for_each(refuse_random)?;
        let aggregates = self.0.aggregate_functions();
        let found = tuple.iter().try_for_each(|part| {
            visit_expressions(part, |expr| match expr {
                Expr::InSubquery { .. } | Expr::Exists { .. } | Expr::Subquery(_) => {
                    ControlFlow::Break(None)
                }
                Expr::Function(Function { name, over, .. })
                    if over.is_some()
                        || aggregates.contains_key(&name.to_string().to_lowercase()) =>
                {
                    ControlFlow::Break(Some(expr.to_string()))
                }
                _ => ControlFlow::Continue(()),
            })
        });
        match found {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(None) => Err(Error::unsupported(
                "tuples for IN take no subqueries as their parts; write EXISTS",
            )),
            ControlFlow::Break(Some(part)) => Err(Error::unsupported(format!(
                "tuples for IN take no aggregates and no window functions as their parts; name {part} in a subquery: \
                 SELECT ... FROM (SELECT ..., {part} AS v FROM ...) WHERE (..., v) IN (...)"
            ))),
        }
    }
}

/// Tuples in a list that are compared one by one; more of them are looked up where they are constant.
pub(crate) const LISTED_MAX: usize = 64;

/// The comparison of tuples by their parts.
fn compared(expr: &Expr) -> Result<Option<Expr>> {
    match expr {
        Expr::BinaryOp { left, op, right } => ordered(left, op, right),
        Expr::Between { expr, negated, low, high } if parts_of(expr).is_some() => {
            refuse_random(&**expr)?;
            let parts = [&**expr, &**low, &**high].map(Clone::clone);
            let not = if *negated { "NOT " } else { "" };
            let template = format!("({not}(__p0 >= __p1 AND __p0 <= __p2))");
            filled(&template, &[(&parts, "__p")]).map(Some)
        }
        Expr::InList { expr, list, negated } => listed(expr, list, *negated),
        _ => Ok(None),
    }
}

fn listed(expr: &Expr, list: &[Expr], negated: bool) -> Result<Option<Expr>> {
    let Some(parts) = parts_of(expr) else { return Ok(None) };
    let is_alike = |other: &Expr| parts_of(other).is_some_and(|other| other.len() == parts.len());
    parts.iter().try_for_each(refuse_random)?;
    if list.is_empty() || !list.iter().all(is_alike) || parts.iter().any(has_tuple_within) {
        return Ok(None);
    }
    // Each is written as often as there are others.
    if list.len() > LISTED_SUBQUERIES_MAX {
        check_plain(parts)?;
    }
    let whole = [expr.clone()];
    let not = if negated { "NOT " } else { "" };
    let template = format!("({not}({}))", any_of(0..list.len()));
    filled(&template, &[(&whole, "__p"), (list, "__q")]).map(Some)
}

/// `__p0` is one of `__q...`, which is as deep as it must be.
fn any_of(range: Range<usize>) -> String {
    match range.len() {
        0 | 1 => format!("__p0 = __q{}", range.start),
        len => {
            let middle = range.start + len / 2;
            format!("({} OR {})", any_of(range.start..middle), any_of(middle..range.end))
        }
    }
}

fn ordered(left: &Expr, op: &BinaryOperator, right: &Expr) -> Result<Option<Expr>> {
    let (Some(left), Some(right)) = (parts_of(left), parts_of(right)) else { return Ok(None) };
    let (strict, order) = match op {
        BinaryOperator::Eq | BinaryOperator::NotEq => ("", ""),
        BinaryOperator::Lt => ("<", "<"),
        BinaryOperator::LtEq => ("<", "<="),
        BinaryOperator::Gt => (">", ">"),
        BinaryOperator::GtEq => (">", ">="),
        _ => return Ok(None),
    };
    if left.len() != right.len() {
        return Err(Error::invalid(format!(
            "a tuple of {} parts is compared with one of {}",
            left.len(),
            right.len()
        )));
    }
    let Some(last) = left.len().checked_sub(1) else { return Ok(None) };
    let template = match op {
        BinaryOperator::Eq => {
            (0..=last).map(|at| format!("__l{at} = __r{at}")).collect::<Vec<_>>().join(" AND ")
        }
        BinaryOperator::NotEq => {
            (0..=last).map(|at| format!("__l{at} <> __r{at}")).collect::<Vec<_>>().join(" OR ")
        }
        _ => {
            for side in [left, right] {
                check_plain(side)?;
                side.iter().try_for_each(refuse_random)?;
            }
            (0..last).rev().fold(format!("__l{last} {order} __r{last}"), |rest, at| {
                format!("__l{at} {strict} __r{at} OR (__l{at} = __r{at} AND ({rest}))")
            })
        }
    };
    filled(&format!("({template})"), &[(left, "__l"), (right, "__r")]).map(Some)
}

/// The parts of a tuple, also of one in parentheses.
pub(crate) fn parts_of(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::Tuple(parts) => Some(parts),
        Expr::Nested(inner) => parts_of(inner),
        _ => None,
    }
}

fn has_tuple_within(expr: &Expr) -> bool {
    has_part(expr, |part| matches!(part, Expr::Tuple(_)))
}

fn has_part(expr: &Expr, is_kind: impl Fn(&Expr) -> bool) -> bool {
    let found = visit_expressions(expr, |part| match is_kind(part) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Tuples with subqueries among their parts are compared with so many others at most.
const LISTED_SUBQUERIES_MAX: usize = 32;

/// Parts that are written more than once must not be of the same kind again.
fn check_plain(parts: &[Expr]) -> Result<()> {
    let is_large = |expr: &Expr| {
        has_part(expr, |part| {
            matches!(
                part,
                Expr::InSubquery { .. } | Expr::Exists { .. } | Expr::Subquery(_) | Expr::Tuple(_)
            )
        })
    };
    match parts.iter().any(is_large) {
        true => Err(Error::unsupported(
            "tuples that are compared by < or > take no subqueries and no tuples as their parts, nor do those that are looked for among many; compare the parts",
        )),
        false => Ok(()),
    }
}

/// Whether an expression is the same wherever it stands.
fn is_constant(expr: &Expr) -> bool {
    let found = visit_expressions(expr, |part| match part {
        Expr::Value(_)
        | Expr::TypedString(_)
        | Expr::Interval(_)
        | Expr::Cast { .. }
        | Expr::UnaryOp { .. }
        | Expr::Nested(_) => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    });
    found.is_continue()
}

/// The query of some rows.
fn values(rows: &[&[Expr]]) -> Option<Box<Query>> {
    let parser = Parser::new(&GenericDialect).try_with_sql("VALUES (1)");
    let mut query = parser.and_then(|mut parser| parser.parse_query()).ok()?;
    let SetExpr::Values(values) = query.body.as_mut() else { return None };
    let first = values.rows.pop()?;
    values.rows =
        rows.iter().map(|row| Parens { content: row.to_vec(), ..first.clone() }).collect();
    Some(query)
}

/// The parts of a tuple, what it is looked for in, and whether it must not be there.
fn tuple_of(expr: &Expr) -> Option<(Vec<Expr>, Query, bool)> {
    let Expr::InSubquery { expr, subquery, negated } = expr else { return None };
    match expr.as_ref() {
        Expr::Tuple(parts) => Some((parts.clone(), (**subquery).clone(), *negated)),
        _ => None,
    }
}

/// Whether a tuple is looked for in a subquery anywhere.
pub(crate) fn has_tuple(within: &impl Walked) -> bool {
    let found = visit_expressions(within, |expr| match tuple_of(expr) {
        Some(_) => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// `NOT IN`, or `IN` as a value: true, false, or unknown.
fn value(tuple: &[Expr], subquery: &Query, negated: bool) -> Result<Expr> {
    let columns = 0..tuple.len();
    let found = exists(tuple, subquery, &equal(columns.clone()))?;
    let any_null = |side: &str| {
        let nulls: Vec<String> =
            columns.clone().map(|column| format!("__{side}{column} IS NULL")).collect();
        format!("({})", nulls.join(" OR "))
    };
    let maybe = columns.clone().map(|column| {
        format!("(__x{column} = __t{column} OR __x{column} IS NULL OR __t{column} IS NULL)")
    });
    let maybe = maybe.collect::<Vec<_>>().join(" AND ");
    let unknown = match tuple {
        [_, _] => {
            // Each of these is a join by what is equal, but for the rows with a NULL, of which there are few.
            let with_null = exists(tuple, subquery, &format!("{} AND {maybe}", any_null("x")))?;
            let first = exists(tuple, subquery, &equal(1..2))?;
            let second = exists(tuple, subquery, &equal(0..1))?;
            let any = exists(tuple, subquery, "true")?;
            let template = "__q0 OR (__t0 IS NULL AND __q1) OR (__t1 IS NULL AND __q2) \
                            OR (__t0 IS NULL AND __t1 IS NULL AND __q3)";
            let queries = [with_null, first, second, any];
            filled(template, &[(tuple, "__t"), (&queries[..], "__q")])?
        }
        _ => exists(tuple, subquery, &maybe)?,
    };
    let template = match negated {
        true => "CASE WHEN __q0 THEN false WHEN __q1 THEN NULL ELSE true END",
        false => "CASE WHEN __q0 THEN true WHEN __q1 THEN NULL ELSE false END",
    };
    filled(template, &[(&[found, unknown][..], "__q")])
}

fn equal(columns: Range<usize>) -> String {
    let equal = columns.map(|column| format!("__x{column} = __t{column}"));
    equal.collect::<Vec<_>>().join(" AND ")
}

/// Whether a subquery, whose columns are `__x0`, `__x1` ..., has a row for a tuple.
fn exists(tuple: &[Expr], subquery: &Query, condition: &str) -> Result<Expr> {
    let columns: Vec<String> = (0..tuple.len()).map(|column| format!("__x{column}")).collect();
    let template = format!(
        "EXISTS (SELECT 1 FROM (SELECT 1) AS __among ({}) WHERE {condition})",
        columns.join(", ")
    );
    let mut exists = filled(&template, &[(tuple, "__t")])?;
    if let Expr::Exists { subquery: outer, .. } = &mut exists {
        over(outer, subquery);
    }
    Ok(exists)
}

/// Puts a query in the place of the one from which `outer` selects.
pub(crate) fn over(outer: &mut Query, inner: &Query) {
    if let SetExpr::Select(select) = outer.body.as_mut()
        && let Some(from) = select.from.first_mut()
        && let TableFactor::Derived { subquery, .. } = &mut from.relation
    {
        **subquery = inner.clone();
    }
}

/// An expression with others in the place of names with numbers.
pub(crate) fn filled(template: &str, groups: &[(&[Expr], &str)]) -> Result<Expr> {
    let parser = Parser::new(&GenericDialect).try_with_sql(template);
    let parsed = parser.and_then(|mut parser| parser.parse_expr());
    let mut expr = parsed.map_err(|error| Error::internal(format!("{template}: {error}")))?;
    let ControlFlow::Continue(()) = visit_expressions_mut(&mut expr, |part| {
        let Expr::Identifier(name) = &*part else { return ControlFlow::<Infallible>::Continue(()) };
        let found = groups.iter().find_map(|(exprs, prefix)| {
            let number = name.value.strip_prefix(prefix)?.parse::<usize>().ok()?;
            exprs.get(number)
        });
        if let Some(found) = found {
            *part = Expr::Nested(Box::new(found.clone()));
        }
        ControlFlow::Continue(())
    });
    Ok(expr)
}
