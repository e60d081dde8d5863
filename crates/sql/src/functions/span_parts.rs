//! `date_part` of spans of time, as in PostgreSQL and DuckDB: a difference of two times has whole days and a rest, of which
//! hours, minutes and seconds are told. Seconds have what is finer than them from milliseconds on.
//!
//! DataFusion computes with 32 bits, and answers with NULL, or with anything, where these do not suffice.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Float64Array, Int32Array, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::cast_utils::IntervalUnit as Unit;
use datafusion::arrow::datatypes::{
    DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use tidefall_types::{
    NS_PER_DAY, NS_PER_HOUR, NS_PER_MICRO, NS_PER_MILLI, NS_PER_MINUTE, NS_PER_SECOND,
};

use super::decades::Era;
use crate::amend::length_ns;

const MONTHS_PER_YEAR: i32 = 12;
const MONTHS_PER_QUARTER: i32 = 3;
const DAYS_PER_WEEK: i32 = 7;

/// A part of each span, if `spans` are spans and it is one that they have.
pub(super) fn part_of(
    part: &ColumnarValue,
    spans: &ColumnarValue,
) -> Result<Option<ColumnarValue>> {
    let is_difference = match spans.data_type() {
        DataType::Duration(_) => true,
        DataType::Interval(_) => false,
        _ => return Ok(None),
    };
    let ColumnarValue::Scalar(part) = part else { return Ok(None) };
    let Some(part) = part.try_as_str().flatten().and_then(Part::of) else { return Ok(None) };
    let found = match spans {
        ColumnarValue::Array(spans) => ColumnarValue::Array(part.of_all(spans, is_difference)?),
        ColumnarValue::Scalar(span) => {
            let found = part.of_all(&span.to_array()?, is_difference)?;
            ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?)
        }
    };
    Ok(Some(found))
}

/// What can be told of a span.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// The seconds of all of it.
    Epoch,
    /// The nanoseconds of the minute.
    Nanosecond,
    Quarter,
    /// Decades or more.
    Era(Era),
    Whole(Unit),
}

impl Part {
    fn of(name: &str) -> Option<Self> {
        let name = name.trim_matches(['\'', '"']).to_ascii_lowercase();
        match name.as_str() {
            "epoch" => return Some(Self::Epoch),
            "qtr" | "quarter" => return Some(Self::Quarter),
            _ => {}
        }
        if let Some(era) = Era::of(&name) {
            return Some(Self::Era(era));
        }
        match name.parse::<Unit>().ok()? {
            Unit::Nanosecond => Some(Self::Nanosecond),
            Unit::Century | Unit::Decade => None,
            unit => Some(Self::Whole(unit)),
        }
    }

    fn of_all(self, spans: &ArrayRef, is_difference: bool) -> Result<ArrayRef> {
        let spans = cast(spans, &DataType::Interval(IntervalUnit::MonthDayNano))?;
        let spans = spans.as_primitive::<IntervalMonthDayNanoType>();
        let spans = spans.iter().map(|span| match is_difference {
            true => span.map(with_days),
            false => span,
        });
        Ok(match self {
            Self::Epoch => Arc::new(Float64Array::from_iter(spans.map(|span| span.map(seconds)))),
            Self::Nanosecond => {
                let rests = spans.map(|span| span.map(|span| span.nanoseconds % NS_PER_MINUTE));
                Arc::new(Int64Array::from_iter(rests))
            }
            Self::Quarter => {
                let quarter = |span: IntervalMonthDayNano| {
                    span.months % MONTHS_PER_YEAR / MONTHS_PER_QUARTER + 1
                };
                Arc::new(Int32Array::from_iter(spans.map(|span| span.map(quarter))))
            }
            Self::Era(era) => {
                let whole =
                    |span: IntervalMonthDayNano| span.months / MONTHS_PER_YEAR / era.count();
                Arc::new(Int32Array::from_iter(spans.map(|span| span.map(whole))))
            }
            Self::Whole(unit) => {
                let wholes = spans.map(|span| span.and_then(|span| whole(unit, span)));
                Arc::new(Int32Array::from_iter(wholes))
            }
        })
    }
}

/// A difference of two times as days and a rest.
const fn with_days(span: IntervalMonthDayNano) -> IntervalMonthDayNano {
    // 64 bits of nanoseconds are fewer days than 32 bits count.
    let days = (span.nanoseconds / NS_PER_DAY) as i32;
    IntervalMonthDayNano::new(0, days, span.nanoseconds % NS_PER_DAY)
}

/// The length of a span in seconds, as exact as it can be.
fn seconds(span: IntervalMonthDayNano) -> f64 {
    let span_ns = length_ns(span);
    let micro_ns = i128::from(NS_PER_MICRO);
    match span_ns % micro_ns {
        0 => (span_ns / micro_ns) as f64 / (NS_PER_SECOND / NS_PER_MICRO) as f64,
        _ => span_ns as f64 / NS_PER_SECOND as f64,
    }
}

/// A part that is a whole number of 32 bits.
fn whole(unit: Unit, span: IntervalMonthDayNano) -> Option<i32> {
    let rest_ns = span.nanoseconds;
    let of_rest = |whole: i64| i32::try_from(whole).ok();
    match unit {
        Unit::Year => Some(span.months / MONTHS_PER_YEAR),
        Unit::Month => Some(span.months % MONTHS_PER_YEAR),
        Unit::Week => Some(span.days / DAYS_PER_WEEK),
        Unit::Day => Some(span.days),
        Unit::Hour => of_rest(rest_ns / NS_PER_HOUR),
        Unit::Minute => of_rest(rest_ns % NS_PER_HOUR / NS_PER_MINUTE),
        Unit::Second => of_rest(rest_ns % NS_PER_MINUTE / NS_PER_SECOND),
        Unit::Millisecond => of_rest(rest_ns % NS_PER_MINUTE / NS_PER_MILLI),
        Unit::Microsecond => of_rest(rest_ns % NS_PER_MINUTE / NS_PER_MICRO),
        Unit::Nanosecond | Unit::Century | Unit::Decade => None,
    }
}
