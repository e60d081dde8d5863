//! Joins with `USING`: which column a common one is.
//!
//! DataFusion does not know the common columns of a join in `WHERE`, in the `ON` of a later join, beside other tables, and in
//! subqueries around which there are columns of the same names.
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
    SetExpr, TableAlias, TableFactor, TableWithJoins, VisitorMut, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use tidefall_types::{Error, Result};

use crate::ast::{plain, selects};
use crate::tuples::has_tuple;
use crate::walk::{Walked, visit_expressions, walk_mut};
use chain::{Chain, column_of};

/// Completes the joins of a statement.
#[derive(Default)]
pub(crate) struct OuterUsing {
    /// How many queries there are around the one that is completed whose columns it may see.
    depth: usize,
}

impl VisitorMut for OuterUsing {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let is_within = self.depth > 0;
        let completed = match query.body.as_mut() {
            SetExpr::Select(select) => complete(select, query.order_by.as_mut(), is_within),
            // The order of what sets are made of is one by the columns of the answer.
            body => {
                selects(body).into_iter().try_for_each(|select| complete(select, None, is_within))
            }
        };
        match completed {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        self.depth += usize::from(has_query(expr));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        self.depth -= usize::from(has_query(expr));
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        self.depth += usize::from(is_lateral(factor));
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        self.depth -= usize::from(is_lateral(factor));
        ControlFlow::Continue(())
    }
}

/// Whether an expression is about the rows of a query, which sees the columns around it.
const fn has_query(expr: &Expr) -> bool {
    matches!(expr, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. })
}

/// Whether a table is a query that sees the columns around it.
const fn is_lateral(factor: &TableFactor) -> bool {
    matches!(factor, TableFactor::Derived { lateral: true, .. })
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
    joins.any(|join| {
        let is_within = match &mut join.relation {
            TableFactor::NestedJoin { table_with_joins, .. } => {
                any_common(std::slice::from_mut(table_with_joins), outer_only)
            }
            _ => false,
        };
        is_within || has_common(&mut join.join_operator, outer_only)
    })
}

fn refused(why: &str) -> Error {
    Error::unsupported(format!(
        "{why}; write FULL JOIN ... ON a.time = b.time, and coalesce(a.time, b.time) for the time of both"
    ))
}

fn complete(select: &mut Select, order: Option<&mut OrderBy>, is_within: bool) -> Result<()> {
    for from in &mut select.from {
        flatten(from)?;
    }
    if !any_common(&mut select.from, false) {
        return Ok(());
    }
    let is_outer = any_common(&mut select.from, true);
    let is_free = !names_tables(select, order.as_deref());
    let is_renamed = is_free && !is_outer && shows_all(select);
    name_tables(&mut select.from, is_renamed, &mut 0);
    // All columns of the join, and nothing else, are known.
    let is_all = matches!(select.projection.as_slice(), [SelectItem::Wildcard(_)])
        && select.selection.is_none()
        && order.is_none();
    if is_natural(&select.from) && !is_all && is_free {
        let name = Ident::with_quote('"', "__natural");
        let alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
        let subquery = all_of(select.from.remove(0))?;
        let relation = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
        select.from.push(TableWithJoins { relation, joins: Vec::new() });
        return Ok(());
    }
    if is_within && names_any_natural(select) && has_bare_names(select) {
        return Err(Error::unsupported(
            "a NATURAL JOIN in a subquery that looks at the query around it takes columns without a table for those of that \
             query; write USING (...) with the common columns, or a table before each column",
        ));
    }
    // Of a column that two tables have in common, DataFusion shows the one of the table whose name is the lesser one.
    let in_order = is_renamed || !shows_all(select);
    if !is_outer && in_order && !select.from.iter().any(Chain::repeats) {
        return qualify(select, order, is_within);
    }
    let mut from = select.from.clone();
    let chains: Result<Vec<Chain>> = from.iter_mut().map(Chain::written_out).collect();
    let chains = match chains {
        Ok(chains) if in_order || !has_options(select) => chains,
        Err(error) if is_outer => return Err(error),
        _ if !in_order && keeps_left(&select.from) => {
            return Err(Error::unsupported(
                "* of a LEFT JOIN with common columns is not known where tables are named, too; write the columns, or the join as \
                 a subquery",
            ));
        }
        _ => return qualify(select, order, is_within),
    };
    select.from = from;
    let common = unique(chains.iter().flat_map(Chain::values).collect());
    if let Some(OrderByKind::Expressions(exprs)) = order.map(|order| &mut order.kind) {
        name_values(exprs, &hidden(&common, &select.projection));
    }
    let items = std::mem::take(&mut select.projection);
    for item in items {
        show(&chains, &common, item, &mut select.projection)?;
    }
    let from = std::mem::take(&mut select.from);
    name_values(select, &common);
    select.from = from;
    Ok(())
}

/// The common columns of inner and left joins where DataFusion does not know them: in a subquery it takes those of the query
/// around it, if they have the same names.
fn qualify(select: &mut Select, order: Option<&mut OrderBy>, is_within: bool) -> Result<()> {
    let chains: Vec<Chain> = select.from.iter_mut().map(Chain::qualified).collect();
    let common = unique(chains.iter().flat_map(Chain::values).collect());
    if is_within {
        check_known(select, &common)?;
    }
    let conditions = [&mut select.selection, &mut select.having, &mut select.qualify];
    for condition in conditions.into_iter().flatten() {
        name_values(condition, &common);
    }
    // Tuples are looked for in subqueries of their own, whose columns may have the same names.
    if is_within {
        name_values(&mut select.group_by, &common);
    }
    for item in select.projection.iter_mut().filter(|item| is_within || has_tuple(&**item)) {
        name_values(item, &common);
    }
    if let Some(OrderByKind::Expressions(exprs)) = order.map(|order| &mut order.kind) {
        let hidden = hidden(&common, &select.projection);
        let is_column = |expr: &Expr| matches!(expr, Expr::Identifier(_));
        for order in exprs.iter_mut().filter(|order| is_within || !is_column(&order.expr)) {
            name_values(order, &hidden);
        }
    }
    Ok(())
}

/// In a subquery common columns without a known value would be those of the query around it.
fn check_known(select: &mut Select, common: &[(Ident, Expr)]) -> Result<()> {
    let mut using: Vec<Ident> = Vec::new();
    for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
        if let Some((JoinConstraint::Using(names), _)) = constraint(&mut join.join_operator) {
            using.extend(names.iter().filter_map(column_of).cloned());
        }
    }
    using.retain(|name| !common.iter().any(|(known, _)| is_same(known, name)));
    let is_lost = |name: &Ident| using.iter().any(|column| is_same(column, name));
    let found = visit_expressions(&*select, |expr| match expr {
        Expr::Identifier(name) if is_lost(name) => ControlFlow::Break(name.clone()),
        _ => ControlFlow::Continue(()),
    });
    match found {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(name) => Err(Error::unsupported(format!(
            "{name} is a common column of several joins of a subquery; write the table that is meant before it"
        ))),
    }
}

/// The common columns by which an answer can be ordered: it may have columns of its own of the same names.
fn hidden(common: &[(Ident, Expr)], shown: &[SelectItem]) -> Vec<(Ident, Expr)> {
    common.iter().filter(|(column, _)| !is_shown(column, shown)).cloned().collect()
}

/// Common columns, each with its value, but for those that there are more than once.
fn unique(all: Vec<(Ident, Expr)>) -> Vec<(Ident, Expr)> {
    let is_unique = |(column, _): &&(Ident, Expr)| {
        all.iter().filter(|(name, _)| is_same(name, column)).count() == 1
    };
    all.iter().filter(is_unique).cloned().collect()
}

/// Takes the parentheses away around the first of joined tables, and around single ones. Joins that have a name become
/// subqueries.
fn flatten(from: &mut TableWithJoins) -> Result<()> {
    loop {
        name_join(&mut from.relation)?;
        let TableFactor::NestedJoin { table_with_joins, .. } = &mut from.relation else { break };
        let TableWithJoins { relation, mut joins } = (**table_with_joins).clone();
        joins.append(&mut from.joins);
        *from = TableWithJoins { relation, joins };
    }
    for join in &mut from.joins {
        name_join(&mut join.relation)?;
        if let TableFactor::NestedJoin { table_with_joins, .. } = &mut join.relation {
            flatten(table_with_joins)?;
            if table_with_joins.joins.is_empty() {
                join.relation = table_with_joins.relation.clone();
            }
        }
    }
    Ok(())
}

/// `(a JOIN b ...) AS c` as a subquery.
fn name_join(factor: &mut TableFactor) -> Result<()> {
    let TableFactor::NestedJoin { table_with_joins, alias: alias @ Some(_) } = factor else {
        return Ok(());
    };
    let subquery = all_of((**table_with_joins).clone())?;
    let alias = alias.take();
    *factor = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
    Ok(())
}

/// All columns of joined tables as a query.
fn all_of(from: TableWithJoins) -> Result<Box<Query>> {
    let parser = Parser::new(&GenericDialect).try_with_sql("SELECT * FROM q");
    let parsed = parser.and_then(|mut parser| parser.parse_query());
    let mut query = parsed.map_err(|error| Error::internal(error.to_string()))?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.from = vec![from];
    }
    Ok(query)
}

/// Whether two tables are joined by whatever columns they have in common, each of which has its value on the left.
fn is_natural(from: &[TableWithJoins]) -> bool {
    let [TableWithJoins { joins, .. }] = from else { return false };
    let [join] = joins.as_slice() else { return false };
    matches!(
        join.join_operator,
        JoinOperator::Join(JoinConstraint::Natural)
            | JoinOperator::Inner(JoinConstraint::Natural)
            | JoinOperator::Left(JoinConstraint::Natural)
            | JoinOperator::LeftOuter(JoinConstraint::Natural)
    )
}

/// Whether any join is by whatever columns there are in common.
fn names_any_natural(select: &mut Select) -> bool {
    let mut joins = select.from.iter_mut().flat_map(|from| &mut from.joins);
    joins.any(|join| {
        constraint(&mut join.join_operator)
            .is_some_and(|(constraint, _)| matches!(constraint, JoinConstraint::Natural))
    })
}

/// Whether columns are named without a table.
fn has_bare_names(select: &Select) -> bool {
    let found = visit_expressions(select, |expr| match expr {
        Expr::Identifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Whether anything in a query, or in those within it, stands behind the name of a table.
fn names_tables(select: &Select, order: Option<&OrderBy>) -> bool {
    let is_named = |item: &SelectItem| matches!(item, SelectItem::QualifiedWildcard(..));
    let is_behind = |expr: &Expr| match expr {
        Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    visit_expressions(select, is_behind).is_break()
        || order.is_some_and(|order| visit_expressions(order, is_behind).is_break())
        || select.projection.iter().any(is_named)
}

/// Whether all columns are shown.
fn shows_all(select: &Select) -> bool {
    select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)))
}

/// Whether all columns but some are shown, or some of them otherwise.
fn has_options(select: &Select) -> bool {
    select.projection.iter().any(|item| match item {
        SelectItem::Wildcard(options) => *options != WildcardAdditionalOptions::default(),
        _ => false,
    })
}

/// Whether some join shows rows of its left side without a partner.
fn keeps_left(from: &[TableWithJoins]) -> bool {
    from.iter().flat_map(|from| &from.joins).any(|join| {
        let is_within = match &join.relation {
            TableFactor::NestedJoin { table_with_joins, .. } => {
                keeps_left(std::slice::from_ref(table_with_joins))
            }
            _ => false,
        };
        is_within
            || matches!(join.join_operator, JoinOperator::Left(_) | JoinOperator::LeftOuter(_))
    })
}

/// Gives names to derived tables that have none; to all tables, if nobody names them. The names are in the order of the tables.
fn name_tables(from: &mut [TableWithJoins], all: bool, number: &mut usize) {
    for from in from {
        let joined = from.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut from.relation).chain(joined) {
            let alias = match factor {
                TableFactor::NestedJoin { table_with_joins, .. } => {
                    name_tables(std::slice::from_mut(table_with_joins), all, number);
                    continue;
                }
                TableFactor::Derived { alias, .. } if all || alias.is_none() => alias,
                TableFactor::Table { alias, .. }
                | TableFactor::Function { alias, .. }
                | TableFactor::UNNEST { alias, .. }
                    if all =>
                {
                    alias
                }
                _ => continue,
            };
            *number += 1;
            let name = Ident::with_quote('"', format!("__joined_{number:04}"));
            let columns = alias.take().map_or_else(Vec::new, |alias| alias.columns);
            *alias = Some(TableAlias { explicit: true, name, columns, at: None });
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
                // All columns of a table stand before it, and one of these has the name.
                let is_taken = chains.iter().any(|chain| chain.shows(items, column));
                let alias = match is_taken {
                    true => Ident::with_quote('"', format!("{}:1", column.value)),
                    false => column.clone(),
                };
                SelectItem::ExprWithAlias { expr: value.clone(), alias }
            }
            None => SelectItem::UnnamedExpr(expr),
        }),
        SelectItem::Wildcard(options) => {
            if options != WildcardAdditionalOptions::default() {
                return Err(refused(
                    "RIGHT or FULL JOIN with USING shows all columns or named ones",
                ));
            }
            return chains.iter().try_for_each(|chain| chain.show_all(items));
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
    plain(one) == plain(other)
}

/// Puts values in the place of common columns, but not in queries within, which have tables of their own.
fn name_values(within: &mut impl Walked, common: &[(Ident, Expr)]) {
    let ControlFlow::Continue(()) = walk_mut(within, &mut Named { common, depth: 0 });
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
