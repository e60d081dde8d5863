//! Names that are given twice.
//!
//! DataFusion names an expression by what it makes of it, but for its casts, subqueries and parentheses, and fails when two
//! columns have the same name:
//!
//! - Columns of an answer without a name have what is written as their name, casts as `CAST(x AS TYPE)`, with a number where
//!   another has it already.
//! - Where `sum(a)` and `sum(a::DOUBLE)`, or `sum((a - b) - c)` and `sum(a - (b - c))`, differ in nothing but casts or
//!   parentheses, each cast and each operation within another one is written as a function that has a name, until the names
//!   are given.
//! - What a subquery of `IN` or `= ANY` finds has a name of its own where it is a column: a cast to the type of what is looked for has the
//!   name of the column, which may be among the conditions of the subquery.
//! - Casts of the rows of `VALUES` and of `WITH RECURSIVE` are written so, too: DataFusion puts others there, to types that are amended
//!   (`amend/nodes.rs`, `amend/recursions.rs`).

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::plan_err;
use datafusion::error::Result as DfResult;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr as DfExpr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, Expr, Ident, OrderBy, Query, Select, SelectItem, SetExpr,
    UnaryOperator, Value, VisitorMut,
};
use tidefall_types::Error;

use crate::ast::{all_selects, call, expressions, plain, selects};
use crate::walk::{visit_expressions, visit_expressions_mut};

const NAME: &str = "named";
/// The name of what a subquery looks up.
const FOUND: &str = "__found";

/// Makes the function known.
pub(crate) fn register(context: &SessionContext) {
    context.register_udf(ScalarUDF::new_from_impl(Named));
}

/// Gives names to the columns of answers.
pub(crate) struct ColumnNames;

impl VisitorMut for ColumnNames {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        for select in selects(&mut query.body) {
            name_columns(&mut select.projection);
        }
        ControlFlow::Continue(())
    }
}

/// Gives names to what would have the same without.
pub(crate) struct UniqueNames;

impl VisitorMut for UniqueNames {
    type Break = Error;

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let mut order = query.order_by.take();
        for select in selects(&mut query.body) {
            name_parts(select, order.as_mut());
        }
        query.order_by = order;
        name_casts_of_rows(&mut query.body);
        if let Some(with) = query.with.as_mut().filter(|with| with.recursive) {
            let bodies = with.cte_tables.iter_mut().map(|cte| &mut *cte.query.body);
            for select in bodies.flat_map(all_selects) {
                name_casts_of_items(&mut select.projection);
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        match expr {
            Expr::InSubquery { subquery, .. } => name_what_is_found(subquery),
            Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } => {
                if let Expr::Subquery(subquery) = &mut **right {
                    name_what_is_found(subquery);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Names what a subquery with conditions looks up, if it is a column.
fn name_what_is_found(subquery: &mut Query) {
    let SetExpr::Select(select) = &mut *subquery.body else { return };
    if select.selection.is_none() || select.distinct.is_some() {
        return;
    }
    if let [item] = &mut select.projection[..]
        && let SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) =
            item
    {
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::new(FOUND) };
    }
}

/// Names columns by what is written, and anew where another has the name already.
fn name_columns(items: &mut [SelectItem]) {
    let mut taken: HashMap<String, usize> = HashMap::with_capacity(items.len());
    for item in items {
        let (name, is_column) = match &*item {
            SelectItem::UnnamedExpr(expr) => column_of(expr)
                .map_or_else(|| (written(expr), false), |column| (plain(column), true)),
            SelectItem::ExprWithAlias { alias, .. } => (plain(alias), true),
            _ => continue,
        };
        let count = taken.entry(name).and_modify(|count| *count += 1).or_insert(0);
        if is_column && *count == 0 {
            continue;
        }
        let anew = |name: String| match *count {
            0 => name,
            count => format!("{name}:{count}"),
        };
        match item {
            SelectItem::UnnamedExpr(expr) => {
                let alias = Ident::with_quote('"', anew(written(expr)));
                *item = SelectItem::ExprWithAlias { expr: take(expr), alias };
            }
            SelectItem::ExprWithAlias { alias, .. } => {
                *alias = Ident::with_quote('"', anew(alias.value.clone()));
            }
            _ => {}
        }
    }
}

/// What is written, with all casts in one form: `v::INT` is `CAST(v AS INT)`.
fn written(expr: &Expr) -> String {
    let mut expr = expr.clone();
    let ControlFlow::Continue(()) = visit_expressions_mut(&mut expr, |node| {
        if let Expr::Cast { kind: kind @ CastKind::DoubleColon, .. } = node {
            *kind = CastKind::Cast;
        }
        ControlFlow::<std::convert::Infallible>::Continue(())
    });
    expr.to_string()
}

/// The column that an expression is: its name is that of the answer.
fn column_of(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(names) => names.last(),
        Expr::Nested(expr) => column_of(expr),
        _ => None,
    }
}

fn name_parts(select: &mut Select, order: Option<&mut OrderBy>) {
    let mut exprs = expressions(select, order);
    if exprs.iter().any(|expr| has_unnamed(expr)) && any_differ_in_unnamed_alone(&exprs) {
        for expr in &mut exprs {
            let whole: *const Expr = *expr;
            let ControlFlow::Continue(()) = visit_expressions_mut(*expr, |node| {
                while let Expr::Nested(inner) = node {
                    *node = take(inner);
                }
                let is_part = !std::ptr::eq(node, whole) && is_operation(node);
                if is_part || type_of(node).is_some() {
                    *node = named(take(node));
                }
                ControlFlow::<std::convert::Infallible>::Continue(())
            });
        }
    }
}

fn name_casts_of_rows(body: &mut SetExpr) {
    let mut waiting = vec![body];
    while let Some(next) = waiting.pop() {
        match next {
            SetExpr::Values(values) => {
                values.rows.iter_mut().flat_map(|row| &mut row.content).for_each(name_cast);
            }
            SetExpr::SetOperation { left, right, .. } => {
                waiting.extend([&mut **left, &mut **right]);
            }
            _ => {}
        }
    }
}

fn name_casts_of_items(items: &mut [SelectItem]) {
    for item in items {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            name_cast(expr);
        }
    }
}

fn name_cast(expr: &mut Expr) {
    while let Expr::Nested(inner) = expr {
        *expr = take(inner);
    }
    if let Expr::Cast { .. } = expr {
        *expr = named(take(expr));
    }
}

/// An expression, from where it stood.
fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Value(Value::Null.into()))
}

/// Whether parentheses tell what the parts of an expression are.
fn is_operation(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryOp { .. } | Expr::UnaryOp { op: UnaryOperator::Not, .. })
}

fn type_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Cast { data_type, .. } => Some(data_type.to_string()),
        Expr::AtTimeZone { time_zone, .. } => Some(format!("TIME ZONE {time_zone}")),
        _ => None,
    }
}

/// Whether there is something in an expression that is not in its name.
fn has_unnamed(expr: &Expr) -> bool {
    let found = visit_expressions(expr, |node| match node {
        Expr::Nested(_) => ControlFlow::Break(()),
        node if type_of(node).is_some() => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Whether two expressions, or two calls within them, are the same but for their casts and parentheses.
fn any_differ_in_unnamed_alone(exprs: &[&mut Expr]) -> bool {
    let mut seen: HashMap<String, String> = HashMap::new();
    exprs.iter().any(|expr| {
        let found = visit_expressions(&**expr, |node| {
            if !std::ptr::eq(node, &**expr) && !matches!(node, Expr::Function(_)) {
                return ControlFlow::Continue(());
            }
            let text = node.to_string();
            match seen.entry(bare(node)).or_insert_with(|| text.clone()) == &text {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        found.is_break()
    })
}

/// What DataFusion sees of an expression in its name.
fn bare(expr: &Expr) -> String {
    let mut bare = expr.clone();
    let ControlFlow::Continue(()) = visit_expressions_mut(&mut bare, |node| {
        while let Expr::Cast { expr: inner, .. }
        | Expr::AtTimeZone { timestamp: inner, .. }
        | Expr::Nested(inner) = node
        {
            *node = take(inner);
        }
        let predicate = match node {
            Expr::InSubquery { negated: true, .. } => Some("NOT IN"),
            Expr::InSubquery { .. } => Some("IN"),
            Expr::Exists { negated: true, .. } => Some("NOT EXISTS"),
            Expr::Exists { .. } => Some("EXISTS"),
            _ => None,
        };
        if let Expr::Position { expr, r#in } = node {
            *node = Expr::Identifier(Ident::new(format!("strpos({}, {expr})", r#in)));
        }
        if let Some(name) = predicate {
            *node = Expr::Identifier(Ident::new(name));
        }
        // Written in two or three ways, and named in one.
        if let Expr::BinaryOp { op, .. } = node
            && matches!(op, BinaryOperator::DuckIntegerDivide | BinaryOperator::MyIntegerDivide)
        {
            *op = BinaryOperator::Divide;
        }
        if let Expr::Substring { special, shorthand, .. } = node {
            (*special, *shorthand) = (true, true);
        }
        ControlFlow::<std::convert::Infallible>::Continue(())
    });
    bare.to_string()
}

/// An expression as a function that has its type in its name, or its parentheses if it is no cast.
pub(crate) fn named(expr: Expr) -> Expr {
    let name = type_of(&expr).unwrap_or_default();
    let name = Expr::Value(Value::SingleQuotedString(name).into());
    call(NAME, [expr, name])
}

/// Its first argument, under a name that tells to which type it is cast, or else where it begins and ends.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Named;

/// The expression below its name.
pub(crate) fn unnamed(expr: DfExpr) -> Result<DfExpr, DfExpr> {
    match expr {
        DfExpr::ScalarFunction(ScalarFunction { func, mut args })
            if func.inner().is::<Named>() && !args.is_empty() =>
        {
            Ok(args.swap_remove(0))
        }
        other => Err(other),
    }
}

impl ScalarUDFImpl for Named {
    fn name(&self) -> &str {
        NAME
    }

    fn schema_name(&self, args: &[DfExpr]) -> DfResult<String> {
        match args {
            [expr, DfExpr::Literal(name, _)] => {
                let expr = expr.schema_name();
                Ok(match name.try_as_str().flatten().unwrap_or_default() {
                    "" => format!("({expr})"),
                    name => format!("CAST({expr} AS {name})"),
                })
            }
            _ => plan_err!("{NAME} stands for a part of an expression and cannot be called"),
        }
    }

    fn signature(&self) -> &Signature {
        static ANY: LazyLock<Signature> =
            LazyLock::new(|| Signature::any(2, Volatility::Immutable));
        &ANY
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> DfResult<FieldRef> {
        Ok(Arc::clone(&args.arg_fields[0]))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        Ok(args.args[0].clone())
    }
}
