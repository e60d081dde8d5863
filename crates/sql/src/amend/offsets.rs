//! Offsets of windows, checked: none is below zero, and no window begins behind its end.
//!
//! DataFusion looks for neither where an offset is a text or an interval, and panics when it finds the rows.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{WindowFrame, WindowFrameBound};
use tidefall_types::NS_PER_DAY;

/// How far an offset reaches: in nanoseconds if it is an interval, whose months are of different lengths.
struct Reach {
    least: ScalarValue,
    most: ScalarValue,
}

impl Reach {
    fn of(offset: &ScalarValue) -> Self {
        let ScalarValue::IntervalMonthDayNano(Some(interval)) = offset else {
            return Self { least: offset.clone(), most: offset.clone() };
        };
        let (months, days) = (i128::from(interval.months), i128::from(interval.days));
        let with_months_of = |days_of_month: i128| {
            let days = months * days_of_month + days;
            let ns = days * i128::from(NS_PER_DAY) + i128::from(interval.nanoseconds);
            ScalarValue::Decimal128(Some(ns), 38, 0)
        };
        let (short, long) = (with_months_of(28), with_months_of(31));
        if months < 0 {
            Self { least: long, most: short }
        } else {
            Self { least: short, most: long }
        }
    }

    fn is_below_zero(&self) -> Result<bool> {
        Ok(self.least < ScalarValue::new_zero(&self.least.data_type())?)
    }

    fn is_zero(&self) -> Result<bool> {
        Ok(self.most == ScalarValue::new_zero(&self.most.data_type())?)
    }
}

/// Refuses a window whose bounds, in the types by which its rows are found, are no places before, at or behind a row
/// in this order.
pub(super) fn check(frame: &WindowFrame) -> Result<()> {
    for bound in [&frame.start_bound, &frame.end_bound] {
        let Some(offset) = offset(bound) else { continue };
        if !is_measured(&offset.data_type()) {
            return plan_err!(
                "the window {frame} counts from values that are no numbers and no times; write ROWS or GROUPS instead of RANGE"
            );
        }
        if is_nan(offset) || Reach::of(offset).is_below_zero()? {
            return plan_err!(
                "the window {frame} has an offset below zero or without a value; write 5 FOLLOWING for -5 PRECEDING"
            );
        }
    }
    if begins_behind_end(frame)? {
        return plan_err!(
            "the window {frame} begins behind its end; write the bounds the other way round"
        );
    }
    Ok(())
}

/// What a bound is away from its row, if that is told.
fn offset(bound: &WindowFrameBound) -> Option<&ScalarValue> {
    match bound {
        WindowFrameBound::Preceding(offset) | WindowFrameBound::Following(offset) => {
            (!offset.is_null()).then_some(offset)
        }
        WindowFrameBound::CurrentRow => None,
    }
}

/// Whether values of a type can be added to what rows are ordered by.
fn is_measured(data_type: &DataType) -> bool {
    data_type.is_numeric() || matches!(data_type, DataType::Interval(_) | DataType::Duration(_))
}

fn is_nan(offset: &ScalarValue) -> bool {
    match offset {
        ScalarValue::Float64(Some(value)) => value.is_nan(),
        ScalarValue::Float32(Some(value)) => value.is_nan(),
        _ => false,
    }
}

fn begins_behind_end(frame: &WindowFrame) -> Result<bool> {
    use WindowFrameBound::{CurrentRow, Following, Preceding};
    let (start, end) = (&frame.start_bound, &frame.end_bound);
    if start == end || start.is_unbounded() || end.is_unbounded() {
        return Ok(false);
    }
    Ok(match (start, end) {
        (Preceding(start), Preceding(end)) => Reach::of(start).least < Reach::of(end).most,
        (Following(start), Following(end)) => Reach::of(start).most > Reach::of(end).least,
        (Following(start), Preceding(end)) => {
            !Reach::of(start).is_zero()? || !Reach::of(end).is_zero()?
        }
        (CurrentRow, Preceding(offset)) | (Following(offset), CurrentRow) => {
            !Reach::of(offset).is_zero()?
        }
        (Preceding(_), CurrentRow | Following(_)) | (CurrentRow, CurrentRow | Following(_)) => {
            false
        }
    })
}
