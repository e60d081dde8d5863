//! Spans of time beside each other: a month is 30 days, and a day 24 hours, as in PostgreSQL and DuckDB.
//!
//! DataFusion compares the months of two intervals, then their days, then the rest, and takes a difference of two times for
//! nothing but such a rest: a span of four days is then shorter than an interval of one. Here what is compared, ordered or
//! looked up is the length of spans. An interval that is written out beside a difference of times becomes such a
//! difference.
//!
//! What groups are told apart by is answered, too: intervals of days and hours in one form of them. Those of months have none
//! that moves a time by as much as each of those that are as long.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Decimal128Array, IntervalMonthDayNanoArray};
use datafusion::arrow::compute::cast as cast_array;
use datafusion::arrow::datatypes::{
    DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    cast,
};
use tidefall_types::{Error, NS_PER_DAY, Result as TidefallResult};

use super::casts::any_one;
use super::compared;
use crate::error::to_datafusion;
use crate::types::is_text;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
/// Holds the nanoseconds of the longest interval.
const LENGTH: DataType = DataType::Decimal128(38, 0);
const DAYS_PER_MONTH: i128 = 30;

/// The nanoseconds of an interval.
pub(crate) fn length_ns(span: IntervalMonthDayNano) -> i128 {
    let days = i128::from(span.months) * DAYS_PER_MONTH + i128::from(span.days);
    days * i128::from(NS_PER_DAY) + i128::from(span.nanoseconds)
}

pub(super) const fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_))
}

/// A comparison with intervals as one of lengths; what orders windows and aggregates, too.
pub(super) fn amend(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::WindowFunction(mut window) => {
            let params = &mut window.params;
            let mut is_amended = false;
            let keys = params.order_by.iter_mut().map(|sort| &mut sort.expr);
            for key in params.partition_by.iter_mut().chain(keys) {
                is_amended |= by_length(key, schema)?;
            }
            if params.distinct && window.fun.name() == "count" {
                for arg in &mut params.args {
                    is_amended |= by_length(arg, schema)?;
                }
            }
            let expr = Expr::WindowFunction(window);
            Ok(if is_amended { Transformed::yes(expr) } else { Transformed::no(expr) })
        }
        Expr::AggregateFunction(mut call) => {
            let params = &mut call.params;
            let mut is_amended = false;
            for sort in &mut params.order_by {
                is_amended |= by_length(&mut sort.expr, schema)?;
            }
            for arg in params.args.iter_mut().filter(|_| params.distinct) {
                is_amended |= match call.func.name() {
                    "count" => by_length(arg, schema)?,
                    _ => in_one_form(arg, schema)?,
                };
            }
            let expr = Expr::AggregateFunction(call);
            Ok(if is_amended { Transformed::yes(expr) } else { Transformed::no(expr) })
        }
        expr => compare(expr, schema),
    }
}

fn compare(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let types = compared::types(&expr, schema);
    let is_span = |of: &DataType| is_interval(of) || matches!(of, DataType::Duration(_));
    let fits = |of: &DataType| is_span(of) || is_text(of) || of.is_null();
    if !types.iter().any(is_interval) || !types.iter().all(fits) {
        return Ok(Transformed::no(expr));
    }
    let is_nanoseconds = |of: &DataType| match of {
        DataType::Duration(unit) => *unit == TimeUnit::Nanosecond,
        of => is_interval(of),
    };
    let is_written = std::cell::Cell::new(types.iter().all(is_nanoseconds));
    if is_written.get() && !types.iter().all(is_interval) {
        let written = |part: Expr, schema: &DFSchema| {
            Ok(match difference(&part) {
                Some(span) => Transformed::yes(span),
                None => {
                    let is_other = part.get_type(schema).is_ok_and(|of| is_interval(&of));
                    is_written.set(is_written.get() && !is_other);
                    Transformed::no(part)
                }
            })
        };
        let written = compared::map(expr.clone(), schema, &written)?;
        if is_written.get() {
            return Ok(written);
        }
    }
    compared::map(expr, schema, &|part, schema| {
        let of = part.get_type(schema)?;
        Ok(match is_text(&of) {
            true => Transformed::yes(length(cast(part, INTERVAL))),
            false if of.is_null() => Transformed::no(part),
            false => Transformed::yes(length(part)),
        })
    })
}

/// An interval that is written out as a difference of times, unless it is longer than such are.
fn difference(expr: &Expr) -> Option<Expr> {
    let (span, sign) = match expr {
        Expr::Negative(inner) => (&**inner, -1),
        expr => (expr, 1),
    };
    let Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(span)), metadata) = span else {
        return None;
    };
    let span_ns = i64::try_from(length_ns(*span) * sign).ok()?;
    Some(Expr::Literal(ScalarValue::DurationNanosecond(Some(span_ns)), metadata.clone()))
}

/// Puts the length of an interval in its place, and says whether it is one.
pub(super) fn by_length(expr: &mut Expr, schema: &DFSchema) -> Result<bool> {
    replace(expr, schema, length)
}

/// The same of an interval and of a difference of times.
pub(super) fn span_by_length(expr: &mut Expr, schema: &DFSchema) -> Result<bool> {
    let is_difference = matches!(expr.get_type(schema)?, DataType::Duration(_));
    if is_difference {
        *expr = length(std::mem::take(expr));
    }
    Ok(is_difference || by_length(expr, schema)?)
}

/// Brings an interval into the form of all those that are as long, and says whether it is one.
pub(super) fn in_one_form(expr: &mut Expr, schema: &DFSchema) -> Result<bool> {
    replace(expr, schema, |span| {
        ScalarUDF::new_from_impl(Measure::Form).call(vec![cast(span, INTERVAL)])
    })
}

fn replace(expr: &mut Expr, schema: &DFSchema, with: impl Fn(Expr) -> Expr) -> Result<bool> {
    if let Expr::Alias(alias) = expr {
        return replace(&mut alias.expr, schema, with);
    }
    let is_span = expr.get_type(schema).is_ok_and(|of| is_interval(&of));
    if is_span {
        *expr = with(std::mem::take(expr));
    }
    Ok(is_span)
}

fn length(span: Expr) -> Expr {
    ScalarUDF::new_from_impl(Measure::Length).call(vec![span])
}

/// What is the same for all spans that are equally long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Measure {
    /// Nanoseconds.
    Length,
    /// Days and the rest.
    Form,
}

impl ScalarUDFImpl for Measure {
    fn name(&self) -> &str {
        match self {
            Self::Length => "length_of_span",
            Self::Form => "one_form_of_span",
        }
    }

    fn signature(&self) -> &Signature {
        any_one()
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self {
            Self::Length => LENGTH,
            Self::Form => INTERVAL,
        })
    }

    fn evaluate_bounds(&self, _: &[&Interval]) -> Result<Interval> {
        Interval::make_unbounded(&self.return_type(&[])?)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match &args.args[0] {
            ColumnarValue::Array(spans) => ColumnarValue::Array(self.of(spans)?),
            ColumnarValue::Scalar(span) => {
                let measured = self.of(&span.to_array()?)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&measured, 0)?)
            }
        })
    }
}

impl Measure {
    fn of(self, spans: &ArrayRef) -> Result<ArrayRef> {
        let spans = cast_array(spans, &INTERVAL)?;
        let spans = spans.as_primitive::<IntervalMonthDayNanoType>();
        Ok(match self {
            Self::Length => {
                let lengths: Decimal128Array =
                    spans.iter().map(|span| span.map(length_ns)).collect();
                Arc::new(lengths.with_data_type(LENGTH))
            }
            Self::Form => {
                let forms = spans.iter().map(|span| span.map(form).transpose());
                let forms: TidefallResult<IntervalMonthDayNanoArray> = forms.collect();
                Arc::new(forms.map_err(to_datafusion)?)
            }
        })
    }
}

/// The one form of intervals that are as long as one without months.
fn form(span: IntervalMonthDayNano) -> TidefallResult<IntervalMonthDayNano> {
    if span.months != 0 {
        return Err(Error::unsupported(
            "intervals of months cannot be told apart, as some are as long as others of days and move a time by less \
             or more; group by extract(epoch FROM interval) instead",
        ));
    }
    let (span_ns, day_ns) = (length_ns(span), i128::from(NS_PER_DAY));
    let parts = (i32::try_from(span_ns / day_ns), i64::try_from(span_ns % day_ns));
    match parts {
        (Ok(days), Ok(rest_ns)) => Ok(IntervalMonthDayNano::new(0, days, rest_ns)),
        _ => Err(Error::invalid("an interval is longer than what can be held")),
    }
}
