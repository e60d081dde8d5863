//! Short forms of what SQL says at greater length.
//!
//! | short | long |
//! |---|---|
//! | `first(x, t)`, `last(x, t)` | `first_value(x ORDER BY t)`, `last_value(x ORDER BY t)` |
//! | `first(x, t) OVER (PARTITION BY s)` | `first_value(x) OVER (PARTITION BY s ORDER BY t ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)` |
//! | `first(x ORDER BY t)`, `last(x) OVER (...)` | the same of `first_value`, `last_value` |
//! | `percentile(x, p)` | `percentile_cont(x, p)` |
//! | `approx_percentile(x, p)` | `approx_percentile_cont(x, p)` |
//! | `moving_average(x, n) OVER (w)` | `avg(x) OVER (w ROWS n - 1 PRECEDING)` |
//! | `nvl2(x, a, b)` | `CASE WHEN x IS NOT NULL THEN a ELSE b END`: DataFusion looks for a type that all three have in common |
//! | `locf(x) OVER (w)` | `last_value(x) IGNORE NULLS OVER (w ROWS UNBOUNDED PRECEDING)` |
//! | `lag(x, n, y) OVER (w)` where `y` looks at columns | `CASE WHEN count(*) OVER (w ROWS BETWEEN n PRECEDING AND n PRECEDING) = 0 THEN y ELSE lag(x, n) OVER (w) END`, and so for `lead`: DataFusion takes constants |
//! | `-(a - b)` | `(b - a)`: DataFusion takes no spans of time below zero |

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArgumentList, FunctionArguments, Ident, NullTreatment, ObjectName, OrderByExpr,
    OrderByOptions, UnaryOperator, Value, VisitorMut, WindowFrame, WindowFrameBound,
    WindowFrameUnits, WindowSpec, WindowType,
};
use tidefall_types::{Error, Result};

use crate::ast::put;
use crate::tuples::filled;
use crate::walk::visit_expressions;

/// The names of the short forms that are no functions of their own.
pub(crate) const SHORT_FORMS: [&str; 6] =
    ["first", "last", "percentile", "approx_percentile", "moving_average", "locf"];

/// Writes the short forms in a statement out; wrong are those with other arguments.
pub(crate) struct ShortForms;

impl VisitorMut for ShortForms {
    type Break = Error;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if let Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } = expr {
            let written = swapped(inner);
            return put(expr, Ok(written));
        }
        let Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        let name = call.name.to_string().to_ascii_lowercase();
        if name == "nvl2" {
            let written = chosen(call).map(Some);
            return put(expr, written);
        }
        if name == "lag" || name == "lead" {
            let written = shifted(call, &name);
            return put(expr, written);
        }
        let written = match name.as_str() {
            "first" => edge(call, "first_value"),
            "last" => edge(call, "last_value"),
            "percentile" => percentile(call, "percentile_cont"),
            "approx_percentile" => percentile(call, "approx_percentile_cont"),
            "moving_average" => moving_average(call),
            "locf" => locf(call),
            _ => Ok(()),
        };
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

fn chosen(call: &Function) -> Result<Expr> {
    let why = || {
        "nvl2 wants a value, and two more of which it takes the first where there is one".to_owned()
    };
    let parts: [Expr; 3] = arguments(call, why)?;
    filled("(CASE WHEN __p0 IS NOT NULL THEN __p1 ELSE __p2 END)", &[(&parts, "__p")])
}

/// What is below zero by as much as a difference is above.
fn swapped(difference: &mut Expr) -> Option<Expr> {
    let Expr::Nested(inner) = difference else { return None };
    let Expr::BinaryOp { left, op: BinaryOperator::Minus, right } = &mut **inner else {
        return None;
    };
    std::mem::swap(left, right);
    Some(std::mem::replace(difference, Expr::Value(Value::Null.into())))
}

/// What stands for a row that is not there, if it is another thing in each row.
fn shifted(call: &Function, name: &str) -> Result<Option<Expr>> {
    let why = || format!("{name} wants a value, a number of rows, and what stands for none");
    let (Ok([value, rows, otherwise]), None | Some(NullTreatment::RespectNulls)) =
        (arguments(call, why), &call.null_treatment)
    else {
        return Ok(None);
    };
    let looks = visit_expressions(&otherwise, |part| match part {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    let is_number = rows.to_string().parse::<u64>().is_ok();
    let Some(WindowType::WindowSpec(window)) = &call.over else { return Ok(None) };
    if looks.is_continue() || !is_number {
        return Ok(None);
    }
    let mut shifted = call.clone();
    set_arguments(&mut shifted, vec![value, rows.clone()], Vec::new());
    let bound = || match name {
        "lag" => WindowFrameBound::Preceding(Some(Box::new(rows.clone()))),
        _ => WindowFrameBound::Following(Some(Box::new(rows.clone()))),
    };
    let frame = WindowFrame {
        units: WindowFrameUnits::Rows,
        start_bound: bound(),
        end_bound: Some(bound()),
    };
    let mut count = call.clone();
    rename(&mut count, "count");
    let all = FunctionArg::Unnamed(FunctionArgExpr::Wildcard);
    count.args = FunctionArguments::List(FunctionArgumentList {
        duplicate_treatment: None,
        args: vec![all],
        clauses: Vec::new(),
    });
    let window = WindowSpec { window_frame: Some(frame), ..window.clone() };
    count.over = Some(WindowType::WindowSpec(window));
    let parts = [Expr::Function(count), otherwise, Expr::Function(shifted)];
    let written = "(CASE WHEN __p0 = 0 THEN __p1 ELSE __p2 END)";
    filled(written, &[(&parts, "__p")]).map(Some)
}

fn edge(call: &mut Function, long: &str) -> Result<()> {
    if is_ordered(call) {
        rename(call, long);
        return Ok(());
    }
    let name = call.name.clone();
    let why = || format!("{name} wants a value and the time that orders it: {name}(value, time)");
    let [value, time] = arguments(call, why)?;
    rename(call, long);
    if let Some(WindowType::WindowSpec(window)) = &mut call.over
        && window.order_by.is_empty()
        && window.window_frame.is_none()
    {
        // All rows of the window, in order of time.
        window.order_by = vec![ascending(time)];
        window.window_frame = Some(WindowFrame {
            units: WindowFrameUnits::Rows,
            start_bound: WindowFrameBound::Preceding(None),
            end_bound: Some(WindowFrameBound::Following(None)),
        });
        set_arguments(call, vec![value], Vec::new());
        return Ok(());
    }
    let order = FunctionArgumentClause::OrderBy(vec![ascending(time)]);
    set_arguments(call, vec![value], vec![order]);
    Ok(())
}

/// Whether a call says by itself what orders its values: `first(value ORDER BY time)`.
fn is_ordered(call: &Function) -> bool {
    let FunctionArguments::List(list) = &call.args else { return false };
    let orders =
        |clause: &FunctionArgumentClause| matches!(clause, FunctionArgumentClause::OrderBy(_));
    list.args.len() == 1 && (call.over.is_some() || list.clauses.iter().any(orders))
}

fn percentile(call: &mut Function, long: &str) -> Result<()> {
    let name = call.name.clone();
    let why = || format!("{name} wants a value and a part of 1: {name}(value, 0.95)");
    let [value, part] = arguments(call, why)?;
    rename(call, long);
    set_arguments(call, vec![value, part], Vec::new());
    Ok(())
}

fn moving_average(call: &mut Function) -> Result<()> {
    let why = || {
        "moving_average wants a value, a number of rows and their order: \
         moving_average(value, 5) OVER (PARTITION BY sensor ORDER BY time)"
            .to_owned()
    };
    let [value, rows] = arguments(call, why)?;
    let rows: u64 = match rows.to_string().parse() {
        Ok(rows @ 1..) => rows,
        _ => return Err(Error::invalid(why())),
    };
    let before = Expr::Value(Value::Number((rows - 1).to_string(), false).into());
    rename(call, "avg");
    set_arguments(call, vec![value], Vec::new());
    set_frame(call, WindowFrameBound::Preceding(Some(Box::new(before))), why)
}

fn locf(call: &mut Function) -> Result<()> {
    let why = || {
        "locf wants a value and the order of its rows: \
         locf(value) OVER (PARTITION BY sensor ORDER BY time)"
            .to_owned()
    };
    let [value] = arguments(call, why)?;
    rename(call, "last_value");
    call.null_treatment = Some(NullTreatment::IgnoreNulls);
    set_arguments(call, vec![value], Vec::new());
    set_frame(call, WindowFrameBound::Preceding(None), why)
}

/// The arguments, if there are so many and nothing else stands between the parentheses.
fn arguments<const N: usize>(call: &Function, why: impl Fn() -> String) -> Result<[Expr; N]> {
    let wrong = || Error::invalid(why());
    let FunctionArguments::List(list) = &call.args else { return Err(wrong()) };
    if list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
        return Err(wrong());
    }
    let expr = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    let found: Option<Vec<Expr>> = list.args.iter().map(expr).collect();
    found.and_then(|found| found.try_into().ok()).ok_or_else(wrong)
}

fn set_arguments(call: &mut Function, args: Vec<Expr>, clauses: Vec<FunctionArgumentClause>) {
    let unnamed = |arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg));
    let args = args.into_iter().map(unnamed).collect();
    call.args =
        FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses });
}

fn set_frame(
    call: &mut Function,
    start_bound: WindowFrameBound,
    why: impl Fn() -> String,
) -> Result<()> {
    match &mut call.over {
        Some(WindowType::WindowSpec(window))
            if window.window_frame.is_none() && !window.order_by.is_empty() =>
        {
            let end_bound = Some(WindowFrameBound::CurrentRow);
            window.window_frame =
                Some(WindowFrame { units: WindowFrameUnits::Rows, start_bound, end_bound });
            Ok(())
        }
        _ => Err(Error::invalid(why())),
    }
}

fn rename(call: &mut Function, long: &str) {
    call.name = ObjectName::from(vec![Ident::new(long)]);
}

fn ascending(expr: Expr) -> OrderByExpr {
    OrderByExpr { expr, options: OrderByOptions::default(), with_fill: None }
}
