//! Names that are given twice.
//!
//! DataFusion names an expression by what it is, but for its casts and subqueries, and fails when two columns have the
//! same name:
//!
//! - Columns of an answer without a name get one of their own where another has it already.
//! - Where `sum(a)` and `sum(a::DOUBLE)` differ in nothing but casts, each cast is written as a function that has a name,
//!   until the names are given.

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
    Expr, GroupByExpr, Ident, OrderBy, OrderByKind, Query, Select, SelectItem, Value, VisitorMut,
    visit_expressions, visit_expressions_mut,
};
use tidefall_types::Error;

use crate::ast::{call, selects};

const NAME: &str = "named_cast";

/// Makes the function known.
pub(crate) fn register(context: &SessionContext) {
    context.register_udf(ScalarUDF::new_from_impl(NamedCast));
}

/// Gives names where they would be the same without.
pub(crate) struct UniqueNames;

impl VisitorMut for UniqueNames {
    type Break = Error;

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let mut order = query.order_by.take();
        for select in selects(&mut query.body) {
            name_columns(&mut select.projection);
            name_casts(select, order.as_mut());
        }
        query.order_by = order;
        ControlFlow::Continue(())
    }
}

/// Names the columns whose names others before them have.
fn name_columns(items: &mut [SelectItem]) {
    let mut taken: HashMap<String, usize> = HashMap::with_capacity(items.len());
    for item in items {
        let name = match &*item {
            SelectItem::UnnamedExpr(Expr::Subquery(_)) => "(<subquery>)".to_owned(),
            SelectItem::UnnamedExpr(expr) => without_casts(expr),
            SelectItem::ExprWithAlias { alias, .. } => alias.value.clone(),
            _ => continue,
        };
        let count = taken.entry(name).and_modify(|count| *count += 1).or_insert(0);
        if *count == 0 {
            continue;
        }
        if let SelectItem::UnnamedExpr(expr) = item {
            let alias = Ident::with_quote('"', format!("{expr}:{count}"));
            let expr = std::mem::replace(expr, Expr::Value(Value::Null.into()));
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
    }
}

fn name_casts(select: &mut Select, order: Option<&mut OrderBy>) {
    let mut exprs = expressions(select, order);
    if exprs.iter().any(|expr| has_cast(expr)) && any_differ_in_casts_alone(&exprs) {
        for expr in &mut exprs {
            let ControlFlow::Continue(()) = visit_expressions_mut(*expr, |node| {
                if type_of(node).is_some() {
                    *node = named(std::mem::replace(node, Expr::Value(Value::Null.into())));
                }
                ControlFlow::<std::convert::Infallible>::Continue(())
            });
        }
    }
}

/// The expressions of a query that get names, or contain what does.
fn expressions<'a>(select: &'a mut Select, order: Option<&'a mut OrderBy>) -> Vec<&'a mut Expr> {
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

fn type_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Cast { data_type, .. } => Some(data_type.to_string()),
        Expr::AtTimeZone { time_zone, .. } => Some(format!("TIME ZONE {time_zone}")),
        _ => None,
    }
}

fn has_cast(expr: &Expr) -> bool {
    let found = visit_expressions(expr, |node| match type_of(node) {
        Some(_) => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Whether two expressions, or two calls within them, are the same but for their casts.
fn any_differ_in_casts_alone(exprs: &[&mut Expr]) -> bool {
    let mut seen: HashMap<String, String> = HashMap::new();
    exprs.iter().any(|expr| {
        let found = visit_expressions(&**expr, |node| {
            if !std::ptr::eq(node, &**expr) && !matches!(node, Expr::Function(_)) {
                return ControlFlow::Continue(());
            }
            let text = node.to_string();
            match seen.entry(without_casts(node)).or_insert_with(|| text.clone()) == &text {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        found.is_break()
    })
}

fn without_casts(expr: &Expr) -> String {
    let mut bare = expr.clone();
    let ControlFlow::Continue(()) = visit_expressions_mut(&mut bare, |node| {
        while let Expr::Cast { expr: inner, .. } | Expr::AtTimeZone { timestamp: inner, .. } = node
        {
            *node = std::mem::replace(inner, Expr::Value(Value::Null.into()));
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
        // Written in three ways, and named in one.
        if let Expr::Substring { special, shorthand, .. } = node {
            (*special, *shorthand) = (true, true);
        }
        ControlFlow::<std::convert::Infallible>::Continue(())
    });
    bare.to_string()
}

/// An expression as a function that has its type in its name.
pub(crate) fn named(cast: Expr) -> Expr {
    let name = type_of(&cast).unwrap_or_default();
    let name = Expr::Value(Value::SingleQuotedString(name).into());
    call(NAME, [cast, name])
}

/// Its first argument, a cast, under a name that tells the type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct NamedCast;

/// The cast below its name.
pub(crate) fn unnamed(expr: DfExpr) -> Result<DfExpr, DfExpr> {
    match expr {
        DfExpr::ScalarFunction(ScalarFunction { func, mut args })
            if func.inner().is::<NamedCast>() && !args.is_empty() =>
        {
            Ok(args.swap_remove(0))
        }
        other => Err(other),
    }
}

impl ScalarUDFImpl for NamedCast {
    fn name(&self) -> &str {
        NAME
    }

    fn schema_name(&self, args: &[DfExpr]) -> DfResult<String> {
        match args {
            [cast, DfExpr::Literal(name, _)] => {
                let name = name.try_as_str().flatten().unwrap_or_default();
                Ok(format!("CAST({} AS {name})", cast.schema_name()))
            }
            _ => plan_err!("{NAME} stands for a cast and cannot be called"),
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
