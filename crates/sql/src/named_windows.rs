//! Windows with names: `sum(v) OVER (w ORDER BY time) ... WINDOW w AS (PARTITION BY sensor)`.
//!
//! DataFusion knows a name that stands alone, and passes over one that something is added to. Here each window is written
//! out where it is used.
//!
//! How far a window reaches is a number or an interval, as DataFusion knows it. Casts of such are these themselves here.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, Ident, Interval, NamedWindowDefinition, NamedWindowExpr, OrderBy, Query,
    Select, Value, VisitorMut, WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
};
use tidefall_types::{Error, Result};

use crate::ast::{expressions, plain, selects};
use crate::walk::visit_expressions_mut;

/// Writes the windows of a statement out.
pub(crate) struct NamedWindows;

impl VisitorMut for NamedWindows {
    type Break = Error;

    // Queries within others come first: they do not see the windows of these.
    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let mut order = query.order_by.take();
        let mut all = selects(&mut query.body).into_iter();
        let written = all.try_for_each(|select| write_out(select, order.as_mut()));
        query.order_by = order;
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

fn write_out(select: &mut Select, order: Option<&mut OrderBy>) -> Result<()> {
    let mut known = HashMap::new();
    for NamedWindowDefinition(name, window) in std::mem::take(&mut select.named_window) {
        let window = match window {
            NamedWindowExpr::NamedWindow(base) => find(&known, &base)?.clone(),
            NamedWindowExpr::WindowSpec(window) => completed(&known, window)?,
        };
        if known.insert(plain(&name), window).is_some() {
            return Err(Error::invalid(format!("WINDOW defines {name} twice")));
        }
    }
    for expr in expressions(select, order) {
        let found = visit_expressions_mut(expr, |node| {
            let Expr::Function(call) = node else { return ControlFlow::Continue(()) };
            let window = match call.over.take() {
                None => return ControlFlow::Continue(()),
                Some(WindowType::NamedWindow(name)) => find(&known, &name).cloned(),
                Some(WindowType::WindowSpec(window)) => completed(&known, window),
            };
            match window.and_then(with_offsets) {
                Ok(window) => call.over = Some(WindowType::WindowSpec(window)),
                Err(error) => return ControlFlow::Break(error),
            }
            ControlFlow::Continue(())
        });
        if let ControlFlow::Break(error) = found {
            return Err(error);
        }
    }
    Ok(())
}

fn find<'a>(known: &'a HashMap<String, WindowSpec>, name: &Ident) -> Result<&'a WindowSpec> {
    known.get(&plain(name)).ok_or_else(|| {
        Error::invalid(format!(
            "there is no window {name}; define it before it is used, as in WINDOW {name} AS (PARTITION BY sensor ORDER BY time)"
        ))
    })
}

/// A window with what the one has to which it adds something.
fn completed(known: &HashMap<String, WindowSpec>, window: WindowSpec) -> Result<WindowSpec> {
    let WindowSpec { window_name: Some(name), partition_by, order_by, window_frame } = window
    else {
        return Ok(window);
    };
    let base = find(known, &name)?.clone();
    let twice = |clause: &str| {
        Error::invalid(format!("window {name} has {clause} already; leave one of both out"))
    };
    if !partition_by.is_empty() {
        return Err(Error::invalid(format!(
            "PARTITION BY cannot be added to window {name}; define another one with it"
        )));
    }
    if !order_by.is_empty() && !base.order_by.is_empty() {
        return Err(twice("ORDER BY"));
    }
    if window_frame.is_some() && base.window_frame.is_some() {
        return Err(twice("a frame"));
    }
    Ok(WindowSpec {
        window_name: None,
        partition_by: base.partition_by,
        order_by: if order_by.is_empty() { base.order_by } else { order_by },
        window_frame: window_frame.or(base.window_frame),
    })
}

/// A window whose offsets are written as DataFusion knows them.
fn with_offsets(mut window: WindowSpec) -> Result<WindowSpec> {
    let Some(frame) = &mut window.window_frame else { return Ok(window) };
    let units = frame.units;
    for bound in [Some(&mut frame.start_bound), frame.end_bound.as_mut()].into_iter().flatten() {
        if let WindowFrameBound::Preceding(Some(offset))
        | WindowFrameBound::Following(Some(offset)) = bound
        {
            let written = settled(offset, units);
            let instead = match units {
                WindowFrameUnits::Range => {
                    "RANGE 1.5 PRECEDING, or RANGE INTERVAL '1 hour' PRECEDING"
                }
                WindowFrameUnits::Rows => "ROWS 5 PRECEDING",
                WindowFrameUnits::Groups => "GROUPS 5 PRECEDING",
            };
            **offset = written.ok_or_else(|| {
                Error::invalid(format!(
                    "a window reaches as far as a number from zero on, or an interval, that is written out, not {offset}; write \
                     {instead}"
                ))
            })?;
        }
    }
    Ok(window)
}

/// An offset without its cast, if it is one that is written out.
fn settled(offset: &Expr, units: WindowFrameUnits) -> Option<Expr> {
    match offset {
        Expr::Nested(inner) => settled(inner, units),
        Expr::Value(_) | Expr::Interval(_) => Some(offset.clone()),
        Expr::Cast { expr, data_type, .. } => {
            let Expr::Value(value) = &**expr else { return None };
            let is_range = units == WindowFrameUnits::Range;
            let is_same = match (&value.value, data_type) {
                (Value::Number(..), DataType::Double(_) | DataType::DoublePrecision) => is_range,
                (
                    Value::Number(digits, _),
                    DataType::BigInt(_) | DataType::Int(_) | DataType::Integer(_),
                ) => digits.parse::<i32>().is_ok(),
                (Value::SingleQuotedString(_), DataType::Interval { .. }) => {
                    return is_range.then(|| interval(expr));
                }
                _ => false,
            };
            is_same.then(|| (**expr).clone())
        }
        _ => None,
    }
}

fn interval(text: &Expr) -> Expr {
    Expr::Interval(Interval {
        value: Box::new(text.clone()),
        leading_field: None,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    })
}
