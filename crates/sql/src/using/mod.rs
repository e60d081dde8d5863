//! Joins with `USING`: which column a common one is.
//!
//! DataFusion does not know the common columns of a join in `WHERE`, in the `ON` of a later join, and beside other tables.
//! There they are named as those of a table that has a value in all rows: of the first one of inner and left joins.
//!
//! The common columns of `RIGHT JOIN ... USING` and `FULL JOIN ... USING` have a value in all rows, too, and more than two
//! tables may have one in common. DataFusion takes the column of the left side for the common one, which is NULL where a row of the right side has no
//! partner. Here such joins, and those around them, get conditions instead, and whatever names the common column without a
//! table names the first value of all sides (`chain.rs`). Derived tables without a name get one.

mod chain;

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, OrderBy, OrderByKind, Query, Select, SelectItem,
    SetExpr, TableAlias, TableFactor, TableWithJoins, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};
use tidefall_types::{Error, Result};

use crate::ast::selects;
use chain::Chain;

/// Completes the joins of a statement.
pub(crate) struct OuterUsing;

impl VisitorMut for OuterUsing {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let completed = match query.body.as_mut() {
            SetExpr::Select(select) => complete(select, query.order_by.as_mut()),
            // The order of what sets are made of is one by the columns of the answer.
            body => selects(body).into_iter().try_for_each(|select| complete(select, None)),
        };
        match completed {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// The constraint of a join, and whether the join shows rows of its right side without a partner.
fn constraint(operator: &mut JoinOperator) -> Option<(&mut JoinConstraint, bool)> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::LeftSemi(constraint)
        | JoinOperator::LeftAnti(constraint) => Some((constraint, false)),
        JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint) => Some((constraint, true)),
        _ => None,
    }
}

/// Whether a join names common columns, and shows rows of its right side without a partner.
fn has_common(operator: &mut JoinOperator, outer_only: bool) -> bool {
    constraint(operator).is_some_and(|(constraint, is_outer)| {
        let is_common = matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural);
        is_common && (is_outer || !outer_only)
    })
}

fn any_common(from: &mut [TableWithJoins], outer_only: bool) -> bool {
    let mut joins = from.iter_mut().flat_map(|from| &mut from.joins);
    joins.any(|join| has_common(&mut join.join_operator, outer_only))
}

fn refused(why: &str) -> Error {
    Error::unsupported(format!(
        "{why}; write FULL JOIN ... ON a.time = b.time, and coalesce(a.time, b.time) for the time of both"
    ))
}

fn complete(select: &mut Select, order: Option<&mut OrderBy>) -> Result<()> {
    if !any_common(&mut select.from, false) {
        return Ok(());
    }
    name_tables(&mut select.from);
    let is_outer = any_common(&mut select.from, true);
    if !is_outer && !select.from.iter().any(Chain::repeats) {
        qualify(select);
        return Ok(());
    }
    let mut from = select.from.clone();
    let chains: Result<Vec<Chain>> = from.iter_mut().map(Chain::written_out).collect();
    let chains = match chains {
        Ok(chains) => chains,
        Err(error) if is_outer => return Err(error),
        Err(_) => {
            qualify(select);
            return Ok(());
        }
    };
    select.from = from;
    let common = unique(&chains);
    // An answer may be ordered by its own columns, which have names that common ones have, too.
    let is_hidden = |(column, _): &&(Ident, Expr)| !is_shown(column, &select.projection);
    let hidden: Vec<(Ident, Expr)> = common.iter().filter(is_hidden).cloned().collect();
    let items = std::mem::take(&mut select.projection);
    for item in items {
        show(&chains, &common, item, &mut select.projection)?;
    }
    let from = std::mem::take(&mut select.from);
    name_values(select, &common);
    if let Some(OrderByKind::Expressions(exprs)) = order.map(|order| &mut order.kind) {
        name_values(exprs, &hidden);
    }
    select.from = from;
    Ok(())
}

/// The common columns of inner and left joins where DataFusion does not know them.
fn qualify(select: &mut Select) {
    let chains: Vec<Chain> = select.from.iter_mut().map(Chain::qualified).collect();
    let common = unique(&chains);
    let conditions = [&mut select.selection, &mut select.having, &mut select.qualify];
    for condition in conditions.into_iter().flatten() {
        name_values(condition, &common);
    }
}

/// The common columns of all chains of joins, each with its value, but for those that more than one has.
fn unique(chains: &[Chain]) -> Vec<(Ident, Expr)> {
    let all: Vec<(Ident, Expr)> = chains.iter().flat_map(Chain::values).collect();
    let is_unique = |(column, _): &&(Ident, Expr)| {
        all.iter().filter(|(name, _)| is_same(name, column)).count() == 1
    };
    all.iter().filter(is_unique).cloned().collect()
}

/// Gives names to derived tables that have none.
fn name_tables(from: &mut [TableWithJoins]) {
    let mut number = 0;
    for from in from {
        let joined = from.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut from.relation).chain(joined) {
            if let TableFactor::Derived { alias: alias @ None, .. } = factor {
                number += 1;
                let name = Ident::with_quote('"', format!("__joined_{number}"));
                *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
            }
        }
    }
}

/// The columns of an answer for what names one, or all of them.
fn show(
    chains: &[Chain],
    common: &[(Ident, Expr)],
    item: SelectItem,
    items: &mut Vec<SelectItem>,
) -> Result<()> {
    match item {
        SelectItem::UnnamedExpr(expr) => items.push(match value_of(common, &expr) {
            Some((column, value)) => {
                SelectItem::ExprWithAlias { expr: value.clone(), alias: column.clone() }
            }
            None => SelectItem::UnnamedExpr(expr),
        }),
        SelectItem::Wildcard(options) => {
            if options != WildcardAdditionalOptions::default() {
                return Err(refused(
                    "RIGHT or FULL JOIN with USING shows all columns or named ones",
                ));
            }
            chains.iter().for_each(|chain| chain.show_all(items));
        }
        other => items.push(other),
    }
    Ok(())
}

/// Whether an answer has a column of this name.
fn is_shown(column: &Ident, items: &[SelectItem]) -> bool {
    items.iter().any(|item| match item {
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => is_same(column, name),
        SelectItem::ExprWithAlias { alias, .. } => is_same(column, alias),
        SelectItem::Wildcard(_) => true,
        _ => false,
    })
}

/// The one of some columns that an expression is.
fn value_of<'a>(common: &'a [(Ident, Expr)], expr: &Expr) -> Option<&'a (Ident, Expr)> {
    let Expr::Identifier(name) = expr else { return None };
    common.iter().find(|(column, _)| is_same(column, name))
}

fn is_same(one: &Ident, other: &Ident) -> bool {
    let plain = |name: &Ident| match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    };
    plain(one) == plain(other)
}

/// Puts values in the place of common columns, but not in queries within, which have tables of their own.
fn name_values(within: &mut impl VisitMut, common: &[(Ident, Expr)]) {
    let ControlFlow::Continue(()) = within.visit(&mut Named { common, depth: 0 });
}

struct Named<'a> {
    common: &'a [(Ident, Expr)],
    depth: usize,
}

impl VisitorMut for Named<'_> {
    type Break = std::convert::Infallible;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if self.depth == 0
            && let Some((_, value)) = value_of(self.common, expr)
        {
            *expr = value.clone();
        }
        ControlFlow::Continue(())
    }
}
