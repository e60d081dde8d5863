//! `x > ANY (...)` and `x > ALL (...)`, of the rows of a subquery and of the values of an array.
//!
//! - `= ANY` and `<> ALL` of a subquery, or of an array that is written out, are `IN` and `NOT IN`.
//! - For others DataFusion looks for the left side among the columns of the subquery. Here they compare with the least or the
//!   greatest of its values: `x > ALL (q)` is true if `q` has no row, else unknown if `x` is, else false unless `x` is above
//!   the greatest, and else unknown if `q` has a NULL.
//! - Of arrays DataFusion knows what is unknown for `ALL`, and takes it for false for `ANY`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Array, BinaryOperator, Expr, Query, VisitorMut};
use tidefall_types::{Error, Result};

use crate::ast::{put, refuse_random};
use crate::tuples::{filled, over};
use crate::walk::visit_expressions;

/// Writes comparisons with any or all of something in words that mean it.
pub(crate) struct Quantified;

impl VisitorMut for Quantified {
    type Break = Error;

    // After its parts: what is written here has such comparisons, too.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let written = written(expr);
        put(expr, written)
    }
}

fn written(expr: &Expr) -> Result<Option<Expr>> {
    let (left, op, right, with_all) = match expr {
        Expr::AnyOp { left, compare_op, right, .. } => (left, compare_op, right, false),
        Expr::AllOp { left, compare_op, right } => (left, compare_op, right, true),
        _ => return Ok(None),
    };
    match (&**right, op, with_all) {
        (Expr::Subquery(subquery), BinaryOperator::Eq, false)
        | (Expr::Subquery(subquery), BinaryOperator::NotEq, true) => Ok(Some(Expr::InSubquery {
            expr: left.clone(),
            subquery: subquery.clone(),
            negated: with_all,
        })),
        (Expr::Array(Array { elem, .. }), BinaryOperator::Eq, false)
        | (Expr::Array(Array { elem, .. }), BinaryOperator::NotEq, true)
            if !elem.is_empty() =>
        {
            let (expr, list) = (left.clone(), elem.clone());
            Ok(Some(Expr::InList { expr, list, negated: with_all }))
        }
        (Expr::Subquery(subquery), ..) => {
            check_plain(left)?;
            check_settled(subquery)?;
            of_rows(left, op, subquery, with_all).map(Some)
        }
        (_, _, false) => of_any_value(left, op, right),
        _ => Ok(None),
    }
}

/// The left side is written more than once.
fn check_plain(left: &Expr) -> Result<()> {
    refuse_random(left)?;
    let found = visit_expressions(left, |part| match part {
        Expr::InSubquery { .. } | Expr::Exists { .. } | Expr::Subquery(_) | Expr::Tuple(_) => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    match found.is_break() {
        true => Err(Error::unsupported(
            "comparisons with ANY or ALL of a subquery, but = ANY and <> ALL, take no subqueries and no tuples on their left \
             side; name it in a subquery: SELECT ... FROM (SELECT ..., (...) AS v FROM ...) WHERE v > ALL (...)",
        )),
        false => Ok(()),
    }
}

/// The subquery is written more than once, and each time its rows must be the same.
fn check_settled(subquery: &Query) -> Result<()> {
    refuse_random(subquery)?;
    match subquery.limit_clause.is_some() || subquery.fetch.is_some() {
        true => Err(Error::unsupported(
            "comparisons with ANY or ALL of a subquery with LIMIT, but = ANY and <> ALL, are not supported; compare with \
             (SELECT min(v) FROM (...)) or (SELECT max(v) FROM (...))",
        )),
        false => Ok(()),
    }
}

/// A comparison with any or all rows of a subquery.
fn of_rows(left: &Expr, op: &BinaryOperator, subquery: &Query, with_all: bool) -> Result<Expr> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    // `__q2` is the least value, `__q3` the greatest.
    let compared = match (op, with_all) {
        (Gt | GtEq, true) | (Lt | LtEq, false) => format!("__p0 {op} __q3"),
        (Gt | GtEq, false) | (Lt | LtEq, true) => format!("__p0 {op} __q2"),
        (Eq, true) => "(__p0 = __q2 AND __p0 = __q3)".to_owned(),
        (NotEq, false) => "(__p0 <> __q2 OR __p0 <> __q3)".to_owned(),
        _ => {
            return Err(Error::unsupported(format!(
                "{op} with ANY or ALL of a subquery is not supported; compare by =, <>, <, <=, > or >=, or write EXISTS"
            )));
        }
    };
    // `__q0` is the number of rows, `__q1` that of those that are NULL.
    let template = match with_all {
        true => format!(
            "(CASE WHEN __q0 = 0 THEN true WHEN __p0 IS NULL THEN NULL WHEN NOT ({compared}) THEN false \
             WHEN __q1 > 0 THEN NULL ELSE true END)"
        ),
        false => format!(
            "(CASE WHEN {compared} THEN true WHEN __q0 = 0 THEN false WHEN __p0 IS NULL OR __q1 > 0 THEN NULL \
             ELSE false END)"
        ),
    };
    let values = ["count(*)", "count(*) - count(__v)", "min(__v)", "max(__v)"];
    let values = values.map(|value| {
        let mut query = filled(&format!("(SELECT {value} FROM (SELECT 1) AS __among (__v))"), &[])?;
        if let Expr::Subquery(outer) = &mut query {
            over(outer, subquery);
        }
        Ok(query)
    });
    let values = values.into_iter().collect::<Result<Vec<Expr>>>()?;
    filled(&template, &[(std::slice::from_ref(left), "__p"), (&values, "__q")])
}

/// A comparison with any value of an array.
fn of_any_value(left: &Expr, op: &BinaryOperator, array: &Expr) -> Result<Option<Expr>> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    if !matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq) {
        return Ok(None);
    }
    refuse_random(left)?;
    refuse_random(array)?;
    let template = format!(
        "(CASE WHEN __p0 {op} ANY(__p1) THEN true WHEN cardinality(__p1) = 0 THEN false \
         WHEN __p0 IS NULL OR __p1 IS NULL OR array_position(__p1, NULL) IS NOT NULL THEN NULL ELSE false END)"
    );
    filled(&template, &[(&[left.clone(), array.clone()], "__p")]).map(Some)
}
