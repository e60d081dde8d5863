//! Joins with `USING`: which column a common one is.
//!
//! DataFusion does not know the common columns of a join in `WHERE`. There they are named as those of the first table,
//! which has a value in all rows of inner and left joins.
//!
//! The common columns of `RIGHT JOIN ... USING` and `FULL JOIN ... USING` have a value in all rows, too.
//! DataFusion takes the column of the left side for the common one, which is NULL where a row of the right side has no
//! partner. Here such a join gets a condition instead, and whatever names the common column without a table names the
//! first value of both sides. That takes two tables with names; of more, or without any, joins are refused.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, JoinConstraint, JoinOperator, ObjectName,
    OrderBy, OrderByKind, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    TableFactor, TableWithJoins, VisitMut, VisitorMut, WildcardAdditionalOptions,
};
use tidefall_types::{Error, Result};

/// Completes the joins of a statement.
pub(crate) struct OuterUsing;

impl VisitorMut for OuterUsing {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let completed = match query.body.as_mut() {
            SetExpr::Select(select) => complete(select, query.order_by.as_mut()),
            // The order of what sets are made of is one by the columns of the answer.
            body => branches(body).into_iter().try_for_each(|select| complete(select, None)),
        };
        match completed {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// The selects that sets are made of; queries between parentheses come by themselves.
fn branches(body: &mut SetExpr) -> Vec<&mut Select> {
    match body {
        SetExpr::Select(select) => vec![select],
        SetExpr::SetOperation { left, right, .. } => {
            branches(left).into_iter().chain(branches(right)).collect()
        }
        _ => Vec::new(),
    }
}

/// The constraint of a join that shows rows of its right side without a partner.
fn outer(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    match operator {
        JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint) => match constraint {
            JoinConstraint::Using(_) | JoinConstraint::Natural => Some(constraint),
            JoinConstraint::On(_) | JoinConstraint::None => None,
        },
        _ => None,
    }
}

fn refused(why: &str) -> Error {
    Error::unsupported(format!(
        "{why}; write FULL JOIN ... ON a.time = b.time, and coalesce(a.time, b.time) for the time of both"
    ))
}

fn complete(select: &mut Select, order: Option<&mut OrderBy>) -> Result<()> {
    let joins = select.from.iter_mut().flat_map(|from| &mut from.joins);
    if !joins.map(|join| outer(&mut join.join_operator)).any(|found| found.is_some()) {
        qualify_conditions(select);
        return Ok(());
    }
    let common = match select.from.as_mut_slice() {
        [from] => Common::of(from)?,
        _ => return Err(refused("RIGHT or FULL JOIN with USING takes no table beside its two")),
    };
    // An answer may be ordered by its own columns, which have names that common ones have, too.
    let is_hidden = |column: &&Ident| !is_shown(column, &select.projection);
    let hidden: Vec<Ident> = common.columns.iter().filter(is_hidden).cloned().collect();
    let items = std::mem::take(&mut select.projection);
    for item in items {
        common.show(item, &mut select.projection)?;
    }
    let from = std::mem::take(&mut select.from);
    let value = |column: &Ident| common.value(column);
    let mut named = Named { columns: &common.columns, value: &value, depth: 0 };
    let ControlFlow::Continue(()) = VisitMut::visit(select, &mut named);
    named.columns = &hidden;
    if let Some(OrderByKind::Expressions(exprs)) = order.map(|order| &mut order.kind) {
        let ControlFlow::Continue(()) = VisitMut::visit(exprs, &mut named);
    }
    select.from = from;
    Ok(())
}

/// Names the common columns of inner and left joins in `WHERE` as those of the first table.
fn qualify_conditions(select: &mut Select) {
    let (Some(condition), [from]) = (&mut select.selection, select.from.as_slice()) else { return };
    let (Some(table), Some(join)) = (name_of(&from.relation), from.joins.first()) else { return };
    let (JoinOperator::Join(JoinConstraint::Using(names))
    | JoinOperator::Inner(JoinConstraint::Using(names))
    | JoinOperator::Left(JoinConstraint::Using(names))
    | JoinOperator::LeftOuter(JoinConstraint::Using(names))) = &join.join_operator
    else {
        return;
    };
    let columns = names.iter().filter_map(|name| match name.0.as_slice() {
        [part] => part.as_ident().cloned(),
        _ => None,
    });
    let columns: Vec<Ident> = columns.collect();
    let value =
        |column: &Ident| Expr::CompoundIdentifier(table.iter().chain([column]).cloned().collect());
    let mut named = Named { columns: &columns, value: &value, depth: 0 };
    let ControlFlow::Continue(()) = VisitMut::visit(condition, &mut named);
}

/// The common columns of two tables.
struct Common {
    sides: [Vec<Ident>; 2],
    columns: Vec<Ident>,
}

impl Common {
    /// Those of a join, which gets a condition.
    fn of(from: &mut TableWithJoins) -> Result<Self> {
        let [join] = from.joins.as_mut_slice() else {
            return Err(refused("RIGHT or FULL JOIN with USING takes no further join beside it"));
        };
        let (Some(left), Some(right)) = (name_of(&from.relation), name_of(&join.relation)) else {
            return Err(refused("RIGHT or FULL JOIN with USING wants tables with names"));
        };
        let Some(constraint) = outer(&mut join.join_operator) else {
            return Err(refused("RIGHT or FULL JOIN with USING stands alone"));
        };
        let JoinConstraint::Using(names) = constraint else {
            return Err(refused("NATURAL RIGHT or FULL JOIN names no columns"));
        };
        let column = |name: &ObjectName| match name.0.as_slice() {
            [part] => part.as_ident().cloned(),
            _ => None,
        };
        let columns: Option<Vec<Ident>> = names.iter().map(column).collect();
        let columns = columns.ok_or_else(|| Error::invalid("USING wants names of columns"))?;
        let common = Self { sides: [left, right], columns };
        let equal = common.columns.iter().map(|column| {
            let [left, right] = common.both(column).map(Box::new);
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right }
        });
        let all = equal.reduce(|all, next| Expr::BinaryOp {
            left: Box::new(all),
            op: BinaryOperator::And,
            right: Box::new(next),
        });
        *constraint = all.map_or(JoinConstraint::None, JoinConstraint::On);
        Ok(common)
    }

    /// The column of each side.
    fn both(&self, column: &Ident) -> [Expr; 2] {
        [&self.sides[0], &self.sides[1]].map(|side| {
            let parts = side.iter().chain([column]).cloned();
            Expr::CompoundIdentifier(parts.collect())
        })
    }

    /// The first value of both sides.
    fn value(&self, column: &Ident) -> Expr {
        let args = self.both(column).map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)));
        Expr::Function(Function {
            name: ObjectName::from(vec![Ident::new("coalesce")]),
            uses_odbc_syntax: false,
            parameters: FunctionArguments::None,
            args: FunctionArguments::List(FunctionArgumentList {
                duplicate_treatment: None,
                args: args.into(),
                clauses: Vec::new(),
            }),
            filter: None,
            null_treatment: None,
            over: None,
            within_group: Vec::new(),
        })
    }

    fn named_value(&self, column: &Ident) -> SelectItem {
        SelectItem::ExprWithAlias { expr: self.value(column), alias: column.clone() }
    }

    /// The columns of an answer for what names one, or all of them.
    fn show(&self, item: SelectItem, items: &mut Vec<SelectItem>) -> Result<()> {
        match item {
            SelectItem::UnnamedExpr(expr) => items.push(match column_of(&self.columns, &expr) {
                Some(column) => self.named_value(column),
                None => SelectItem::UnnamedExpr(expr),
            }),
            SelectItem::Wildcard(options) => {
                if options.opt_exclude.is_some()
                    || options.opt_except.is_some()
                    || options.opt_replace.is_some()
                {
                    return Err(refused(
                        "RIGHT or FULL JOIN with USING shows all columns or named ones",
                    ));
                }
                items.extend(self.columns.iter().map(|column| self.named_value(column)));
                for side in &self.sides {
                    let columns =
                        self.columns.iter().cloned().map(|name| ObjectName::from(vec![name]));
                    let options = WildcardAdditionalOptions {
                        opt_exclude: Some(ExcludeSelectItem::Multiple(columns.collect())),
                        ..options.clone()
                    };
                    let side =
                        SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(side.clone()));
                    items.push(SelectItem::QualifiedWildcard(side, options));
                }
            }
            other => items.push(other),
        }
        Ok(())
    }
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

/// The name by which the columns of a table are called.
fn name_of(factor: &TableFactor) -> Option<Vec<Ident>> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. } => Some(vec![alias.name.clone()]),
        TableFactor::Table { name, args: None, .. } => {
            name.0.iter().map(|part| part.as_ident().cloned()).collect()
        }
        _ => None,
    }
}

/// The one of some columns that an expression is.
fn column_of<'a>(columns: &'a [Ident], expr: &Expr) -> Option<&'a Ident> {
    let Expr::Identifier(name) = expr else { return None };
    columns.iter().find(|column| is_same(column, name))
}

fn is_same(one: &Ident, other: &Ident) -> bool {
    let plain = |name: &Ident| match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    };
    plain(one) == plain(other)
}

/// Puts values in the place of common columns, but not in queries within, which have tables of their own.
struct Named<'a> {
    columns: &'a [Ident],
    value: &'a dyn Fn(&Ident) -> Expr,
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
            && let Some(column) = column_of(self.columns, expr)
        {
            *expr = (self.value)(column);
        }
        ControlFlow::Continue(())
    }
}
