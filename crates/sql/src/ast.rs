//! Parts of statements that are built or walked in more places than one.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    GroupByExpr, Ident, ObjectName, OrderBy, OrderByKind, Select, SelectItem, SetExpr, Statement,
    UnaryOperator,
};
use tidefall_types::{Error, Result};

use crate::walk::{Walked, visit_expressions};

/// The call of a function.
pub(crate) fn call(name: &str, args: impl IntoIterator<Item = Expr>) -> Expr {
    let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// The statement of the parser within one of DataFusion's, or within the one that it explains.
pub(crate) fn sql_statement_mut(statement: &mut DfStatement) -> Option<&mut Statement> {
    match statement {
        DfStatement::Statement(statement) => Some(statement),
        DfStatement::Explain(explain) => sql_statement_mut(&mut explain.statement),
        _ => None,
    }
}

/// What stands between parentheses and behind signs.
pub(crate) fn without_signs(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(inner)
    | Expr::UnaryOp { op: UnaryOperator::Plus | UnaryOperator::Minus, expr: inner } = expr
    {
        expr = inner;
    }
    expr
}

/// Functions that answer otherwise each time, by all of their names.
const VOLATILE: [&str; 5] = ["random", "rand", "uuid", "input_file_name", "file_row_index"];

/// Whether something has another value each time that it is computed.
pub(crate) fn is_random(within: &impl Walked) -> bool {
    visit_expressions(within, |expr| match expr {
        Expr::Function(call) if is_volatile(&call.name) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .is_break()
}

fn is_volatile(function: &ObjectName) -> bool {
    let name = function.0.last().and_then(|part| part.as_ident());
    name.is_some_and(|name| VOLATILE.contains(&&*name.value.to_lowercase()))
}

/// What is written more than once must have the same value each time.
pub(crate) fn refuse_random(within: &impl Walked) -> Result<()> {
    match is_random(within) {
        true => Err(Error::unsupported(
            "what is random would have another value for each part of this comparison; name it in a subquery: \
             SELECT ... FROM (SELECT random() AS r, ... FROM ...) WHERE (r, ...) ...",
        )),
        false => Ok(()),
    }
}

/// A name as it is compared with others: letters are the same in both cases but between quotation marks.
pub(crate) fn plain(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

/// The selects that a body is made of, in any order; queries between parentheses are visited by themselves.
pub(crate) fn selects(body: &mut SetExpr) -> Vec<&mut Select> {
    selects_of(body, false)
}

/// As [`selects`], those of queries between parentheses as well.
pub(crate) fn all_selects(body: &mut SetExpr) -> Vec<&mut Select> {
    selects_of(body, true)
}

fn selects_of(body: &mut SetExpr, with_queries: bool) -> Vec<&mut Select> {
    let (mut found, mut waiting) = (Vec::new(), vec![body]);
    while let Some(next) = waiting.pop() {
        match next {
            SetExpr::Select(select) => found.push(&mut **select),
            SetExpr::SetOperation { left, right, .. } => {
                waiting.extend([&mut **left, &mut **right])
            }
            SetExpr::Query(query) if with_queries => waiting.push(&mut *query.body),
            _ => {}
        }
    }
    found
}

/// The expressions of a query that have names, or contain what has, with those that order its rows.
pub(crate) fn expressions<'a>(
    select: &'a mut Select,
    order: Option<&'a mut OrderBy>,
) -> Vec<&'a mut Expr> {
    let items = select.projection.iter_mut().filter_map(|item| match item {
        SelectItem::UnnamedExpr(expr)
        | SelectItem::ExprWithAlias { expr, .. }
        | SelectItem::ExprWithAliases { expr, .. } => Some(expr),
        SelectItem::QualifiedWildcard(..) | SelectItem::Wildcard(_) => None,
    });
    let groups = match &mut select.group_by {
        GroupByExpr::Expressions(exprs, _) => exprs.iter_mut(),
        GroupByExpr::All(_) => [].iter_mut(),
    };
    let order = match order.map(|order| &mut order.kind) {
        Some(OrderByKind::Expressions(exprs)) => exprs.iter_mut(),
        _ => [].iter_mut(),
    };
    let order = order.map(|order| &mut order.expr);
    items.chain(groups).chain(&mut select.having).chain(&mut select.qualify).chain(order).collect()
}

/// Puts what is written instead of an expression, if something is, in its place.
pub(crate) fn put(expr: &mut Expr, written: Result<Option<Expr>>) -> ControlFlow<Error> {
    match written {
        Ok(Some(written)) => *expr = written,
        Ok(None) => {}
        Err(error) => return ControlFlow::Break(error),
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::Volatility;
    use datafusion::prelude::SessionContext;

    use super::*;

    #[test]
    fn all_volatile_functions_are_known() {
        let context = SessionContext::new();
        crate::functions::register(&context);
        let state = context.state();
        let functions = state.scalar_functions().values();
        let volatile =
            functions.filter(|function| function.signature().volatility == Volatility::Volatile);
        let names = volatile.flat_map(|function| {
            let aliases = function.aliases().iter().cloned();
            std::iter::once(function.name().to_owned()).chain(aliases).collect::<Vec<String>>()
        });
        // The fault among the functions of tests is never asked for twice.
        for name in names.filter(|name| name != "panic_where") {
            assert!(VOLATILE.contains(&&*name), "{name}");
        }
    }
}
