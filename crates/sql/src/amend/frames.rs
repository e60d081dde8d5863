//! Windows that end with the rows that are ordered alike, by what numbers cannot be added to: a time of day, a span.
//!
//! DataFusion refuses `RANGE` by such keys, also where nothing is added, as in the window that a function has without a word
//! about it. `GROUPS` has the same rows then.
//!
//! Where something is added to whole numbers, or taken from them, they are of a type that has room for it: DataFusion takes a bound
//! beyond the type for none, and the window has all rows, NULL among them. They have as many digits behind their point as the
//! offsets, too, which DataFusion rounds. So have decimals.

use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::{
    Expr, ExprSchemable, WindowFrame, WindowFrameBound, WindowFrameUnits, cast,
};

use crate::types::is_text;

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
        && let Some(digits) = Digits::of(&key.expr.get_type(schema)?)
        && let Some((to, start, end)) = digits.with_offsets(&frame.start_bound, &frame.end_bound)
    {
        key.expr = cast(key.expr.clone(), to);
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

/// How many digits numbers may have.
#[derive(Clone, Copy)]
struct Digits {
    before_point: usize,
    behind_point: usize,
}

/// Digits of an offset behind those of the numbers that are kept as they are written; all others are one.
const FINER: usize = 8;

impl Digits {
    /// The digits of whole numbers and of decimals.
    fn of(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::Decimal32(precision, scale)
            | DataType::Decimal64(precision, scale)
            | DataType::Decimal128(precision, scale)
            | DataType::Decimal256(precision, scale) => {
                let behind_point = usize::try_from(*scale).ok()?;
                let before_point = usize::from(*precision).checked_sub(behind_point)?;
                Some(Self { before_point, behind_point })
            }
            of if of.is_integer() => Some(Self { before_point: 20, behind_point: 0 }),
            _ => None,
        }
    }

    /// A type with room for both offsets, and the bounds in its digits. Nothing where an offset is no number, or where no type
    /// has room.
    fn with_offsets(
        self,
        start: &WindowFrameBound,
        end: &WindowFrameBound,
    ) -> Option<(DataType, WindowFrameBound, WindowFrameBound)> {
        let (start, start_digits) = self.settled(start)?;
        let (end, end_digits) = self.settled(end)?;
        let behind_point = self.behind_point.max(start_digits).max(end_digits);
        // What is added may have two digits more than the numbers, and so may the sum.
        let precision = u8::try_from(self.before_point + 2 + behind_point).ok()?;
        let scale = i8::try_from(behind_point).ok()?;
        let to = if precision <= DECIMAL128_MAX_PRECISION {
            DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale)
        } else if precision <= DECIMAL256_MAX_PRECISION {
            DataType::Decimal256(DECIMAL256_MAX_PRECISION, scale)
        } else {
            return None;
        };
        Some((to, start, end))
    }

    /// A bound whose offset has only digits that matter, and how many of them are behind its point.
    fn settled(self, bound: &WindowFrameBound) -> Option<(WindowFrameBound, usize)> {
        let settle = |offset: &ScalarValue| match offset {
            ScalarValue::Utf8(Some(text)) => {
                let (text, behind_point) = self.offset(text)?;
                Some((ScalarValue::Utf8(Some(text)), behind_point))
            }
            unbounded => Some((unbounded.clone(), 0)),
        };
        Some(match bound {
            WindowFrameBound::Preceding(offset) => {
                let (offset, digits) = settle(offset)?;
                (WindowFrameBound::Preceding(offset), digits)
            }
            WindowFrameBound::Following(offset) => {
                let (offset, digits) = settle(offset)?;
                (WindowFrameBound::Following(offset), digits)
            }
            WindowFrameBound::CurrentRow => (WindowFrameBound::CurrentRow, 0),
        })
    }

    fn offset(self, text: &str) -> Option<(String, usize)> {
        if let Some(text) = text.strip_prefix('-') {
            let (text, behind_point) = self.offset(text)?;
            return Some((format!("-{text}"), behind_point));
        }
        let (before, behind) = decimal(text)?;
        // What reaches all numbers from each of them, from one end to the other, reaches no further.
        if before.len() > self.before_point + 1 {
            return Some((format!("1{}", "0".repeat(self.before_point + 1)), 0));
        }
        let kept = self.behind_point + FINER;
        let behind = match behind.get(..kept).filter(|_| behind.len() > kept) {
            // Between two numbers it does not matter where.
            Some(kept) => format!("{kept}5"),
            None => behind,
        };
        let before = if before.is_empty() { "0" } else { &before };
        Some(if behind.is_empty() {
            (before.to_owned(), 0)
        } else {
            (format!("{before}.{behind}"), behind.len())
        })
    }
}

/// The digits before and behind the point of a number as it is written, without zeros that say nothing.
fn decimal(text: &str) -> Option<(String, String)> {
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().ok()?;
    let (before, behind) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{before}{behind}");
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // Further than that it makes no difference.
    let point = before.len() as i64 + i64::from(exponent.clamp(-400, 400));
    let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or(0));
    let digits = format!("{}{digits}{}", zeros(-point), zeros(point - digits.len() as i64));
    let (before, behind) = digits.split_at(usize::try_from(point).unwrap_or(0));
    Some((before.trim_start_matches('0').to_owned(), behind.trim_end_matches('0').to_owned()))
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
    fn offsets_keep_the_digits_that_matter() {
        let offset = |of: &DataType, text: &str| Digits::of(of).unwrap().offset(text);
        let found = |text: &str, digits| Some((text.to_owned(), digits));
        let whole = &DataType::Int8;
        assert_eq!(offset(whole, "1.5"), found("1.5", 1));
        assert_eq!(offset(whole, "001.000"), found("1", 0));
        assert_eq!(offset(whole, ".50"), found("0.5", 1));
        assert_eq!(offset(whole, "0"), found("0", 0));
        assert_eq!(offset(whole, "115e-2"), found("1.15", 2));
        assert_eq!(offset(whole, "1.25E1"), found("12.5", 1));
        assert_eq!(offset(whole, "9007199254740993e0"), found("9007199254740993", 0));
        assert_eq!(offset(whole, "1e-300"), found("0.000000005", 9));
        assert_eq!(offset(whole, "0.12345678901"), found("0.123456785", 9));
        let most = found("1000000000000000000000", 0);
        assert_eq!(offset(whole, "1e300"), most);
        assert_eq!(offset(whole, &"9".repeat(60)), most);
        assert_eq!(offset(&DataType::Decimal128(10, 2), "1e300"), found("1000000000", 0));
        assert_eq!(offset(whole, "-0.5"), found("-0.5", 1));
        for refused in ["NaN", "", ".", "5 DAY", "e5", "1e"] {
            assert_eq!(offset(whole, refused), None, "{refused}");
        }
    }

    #[test]
    fn a_type_holds_numbers_and_offsets() {
        let type_of = |of: DataType, text: &str| {
            let bound = WindowFrameBound::Preceding(ScalarValue::from(text));
            let found = Digits::of(&of)?.with_offsets(&bound, &WindowFrameBound::CurrentRow);
            found.map(|(to, ..)| to)
        };
        assert_eq!(type_of(DataType::UInt64, "1"), Some(DataType::Decimal128(38, 0)));
        assert_eq!(type_of(DataType::UInt64, "1e-300"), Some(DataType::Decimal128(38, 9)));
        assert_eq!(type_of(DataType::Decimal128(38, 10), "1"), Some(DataType::Decimal256(76, 10)));
        assert_eq!(type_of(DataType::Decimal256(76, 10), "1"), None);
        assert_eq!(type_of(DataType::Float64, "1"), None);
    }
}
