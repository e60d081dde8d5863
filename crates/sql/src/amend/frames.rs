//! Windows that end with the rows that are ordered alike, by what numbers cannot be added to: a time of day, a span.
//!
//! DataFusion refuses `RANGE` by such keys, also where nothing is added, as in the window that a function has without a word
//! about it. `GROUPS` has the same rows then.
//!
//! Where something is added to whole numbers, or taken from them, they are of a type that has room for it: DataFusion takes a bound
//! beyond the type for none, and the window has all rows, NULL among them. So are decimals. Between two whole numbers lies none, so
//! that offsets with a fraction, which DataFusion rounds, become whole ones that reach as far; decimals likewise.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
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
        && let Some(grid) = Grid::of(&key.expr.get_type(schema)?)
    {
        key.expr = cast(key.expr.clone(), DataType::Decimal128(38, grid.scale));
        let (start, end) =
            (grid.bound(&frame.start_bound, true), grid.bound(&frame.end_bound, false));
        params.window_frame = WindowFrame::new_bounds(WindowFrameUnits::Range, start, end);
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

/// What numbers lie on.
#[derive(Clone, Copy)]
struct Grid {
    /// Digits behind the point.
    scale: i8,
    /// An offset that reaches all of them from each of them, if there is one.
    offset_max: Option<i128>,
}

impl Grid {
    fn of(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
                if *scale >= 0 =>
            {
                Some(Self { scale: *scale, offset_max: None })
            }
            of if of.is_integer() => Some(Self { scale: 0, offset_max: Some(1 << 65) }),
            _ => None,
        }
    }

    /// A bound that reaches the same numbers with an offset on the grid.
    fn bound(self, bound: &WindowFrameBound, is_start: bool) -> WindowFrameBound {
        let settled = |offset: &ScalarValue, is_outwards: bool| {
            let ScalarValue::Utf8(Some(text)) = offset else { return offset.clone() };
            ScalarValue::Utf8(Some(self.offset(text, is_outwards).unwrap_or_else(|| text.clone())))
        };
        match bound {
            // Of whole numbers, what begins 1.5 before one begins 1 before it, and what ends there ends 2 before it.
            WindowFrameBound::Preceding(offset) => {
                WindowFrameBound::Preceding(settled(offset, is_start))
            }
            WindowFrameBound::Following(offset) => {
                WindowFrameBound::Following(settled(offset, !is_start))
            }
            WindowFrameBound::CurrentRow => WindowFrameBound::CurrentRow,
        }
    }

    /// An offset on the grid: the one below where the window opens towards it, and else the one above. What is no number and
    /// what is below zero stays what it is, and is refused.
    fn offset(self, offset: &str, is_outwards: bool) -> Option<String> {
        let scale = usize::try_from(self.scale).ok()?;
        let (digits, fraction) = offset.split_once('.').unwrap_or((offset, ""));
        let is_plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        let (below, has_rest) = if digits.is_empty() && fraction.is_empty() {
            return None;
        } else if is_plain(digits) && is_plain(fraction) {
            let (kept, rest) = fraction.split_at(scale.min(fraction.len()));
            let below = format!("0{digits}{kept:0<scale$}").parse().ok();
            (below, rest.bytes().any(|digit| digit != b'0'))
        } else {
            let offset: f64 = offset.parse().ok().filter(|offset| *offset >= 0.0)?;
            let offset = offset * 10_f64.powi(self.scale.into());
            (Some(offset.floor() as i128), offset.fract() != 0.0)
        };
        let below = below.or(self.offset_max)?;
        let found = below.saturating_add(i128::from(has_rest && !is_outwards));
        let found = self.offset_max.map_or(found, |most| found.min(most));
        let digits = format!("{found:0>width$}", width = scale + 1);
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        Some(if scale > 0 { format!("{whole}.{fraction}") } else { digits })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_lie_on_the_grid_of_their_numbers() {
        let whole = Grid::of(&DataType::Int8).unwrap();
        let offsets = |grid: Grid, text: &str| [true, false].map(|side| grid.offset(text, side));
        let both = |below: &str, above: &str| [Some(below.to_owned()), Some(above.to_owned())];
        assert_eq!(offsets(whole, "1.5"), both("1", "2"));
        assert_eq!(offsets(whole, "1.000"), both("1", "1"));
        assert_eq!(offsets(whole, ".5"), both("0", "1"));
        assert_eq!(
            offsets(whole, "9007199254740993.25"),
            both("9007199254740993", "9007199254740994")
        );
        assert_eq!(offsets(whole, "1e-1"), both("0", "1"));
        assert_eq!(offsets(whole, "1e3"), both("1000", "1000"));
        let most = (1_i128 << 65).to_string();
        assert_eq!(offsets(whole, "1e300"), both(&most, &most));
        assert_eq!(offsets(whole, &"9".repeat(60)), both(&most, &most));
        let cents = Grid::of(&DataType::Decimal128(10, 2)).unwrap();
        assert_eq!(offsets(cents, "1.5"), both("1.50", "1.50"));
        assert_eq!(offsets(cents, "0.005"), both("0.00", "0.01"));
        assert_eq!(offsets(cents, "1e-1"), both("0.10", "0.10"));
        for refused in ["-1", "-0.5", "NaN", "", "5 DAY"] {
            assert_eq!(offsets(whole, refused), [None, None], "{refused}");
        }
    }
}
