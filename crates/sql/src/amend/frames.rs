//! Windows that end with the rows that are ordered alike, by what numbers cannot be added to: a time of day, a span.
//!
//! DataFusion refuses `RANGE` by such keys, also where nothing is added, as in the window that a function has without a word
//! about it. `GROUPS` has the same rows then.
//!
//! Where something is added to whole numbers, or taken from them, they are of a type that has room for it: DataFusion takes a bound
//! beyond the type for none, and the window has all rows, NULL among them.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::{
    Expr, ExprSchemable, WindowFrame, WindowFrameBound, WindowFrameUnits, cast,
};

use super::texts::is_text;

/// A window by groups of rows that are ordered alike, where DataFusion has none by ranges.
pub(super) fn amend(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::WindowFunction(mut window) = expr else { return Ok(Transformed::no(expr)) };
    let params = &mut window.params;
    let frame = &params.window_frame;
    let has_offset = [&frame.start_bound, &frame.end_bound].into_iter().any(|bound| match bound {
        WindowFrameBound::CurrentRow => false,
        bound => !bound.is_unbounded(),
    });
    let is_by_ranges = frame.units == WindowFrameUnits::Range;
    if let Some(key) = params.order_by.first_mut().filter(|_| is_by_ranges && has_offset)
        && let Some(roomy) = roomy(&key.expr.get_type(schema)?)
    {
        key.expr = cast(key.expr.clone(), roomy);
        return Ok(Transformed::yes(Expr::WindowFunction(window)));
    }
    let is_plain = frame.units == WindowFrameUnits::Range && !has_offset;
    let key = params.order_by.first().filter(|_| is_plain);
    let refused = match key {
        Some(key) => !has_ranges(&key.expr.get_type(schema)?),
        None => false,
    };
    if !refused {
        return Ok(Transformed::no(Expr::WindowFunction(window)));
    }
    let (start, end) = (frame.start_bound.clone(), frame.end_bound.clone());
    params.window_frame = WindowFrame::new_bounds(WindowFrameUnits::Groups, start, end);
    Ok(Transformed::yes(Expr::WindowFunction(window)))
}

/// A type for whole numbers that has room for an offset.
fn roomy(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32 => Some(DataType::Int64),
        DataType::Int64 | DataType::UInt64 => Some(DataType::Decimal128(38, 0)),
        _ => None,
    }
}

/// Whether DataFusion finds ranges of values of a type.
fn has_ranges(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => has_ranges(values),
        DataType::Boolean
        | DataType::Null
        | DataType::Date32
        | DataType::Date64
        | DataType::Timestamp(..)
        | DataType::List(_)
        | DataType::LargeList(_)
        | DataType::FixedSizeList(..) => true,
        other => other.is_numeric() || is_text(other),
    }
}
