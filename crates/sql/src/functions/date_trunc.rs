//! `date_trunc` of DataFusion, also of times in the first second, hour or year there is, and to decades and longer (`decades.rs`).
//!
//! These began before the first time, and DataFusion fails for them. Here they begin with it, as block metrics have it, and
//! `date_bin`.
//!
//! Where less than seconds are cut off of a single time before 1970, DataFusion gives one that comes later; so do casts to
//! times with fewer digits, which go by [`truncated`].

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, TimestampNanosecondArray};
use datafusion::arrow::datatypes::{DataType, FieldRef, TimeUnit, TimestampNanosecondType};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions::datetime::date_trunc;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, lit,
};
use tidefall_types::{
    NS_PER_DAY, NS_PER_HOUR, NS_PER_MICRO, NS_PER_MILLI, NS_PER_MINUTE, NS_PER_SECOND,
};

use super::decades::Era;
use super::forward::forward_identity;
use crate::types::is_utc;

/// The name of the function.
pub(super) const NAME: &str = "date_trunc";
/// Midnight of 1 October 1677, and of 1 January 1678, in nanoseconds since 1970.
const OCTOBER_1677_NS: i64 = -106_742 * NS_PER_DAY;
const YEAR_1678_NS: i64 = -106_650 * NS_PER_DAY;
/// 1970-01-05, a Monday.
const MONDAY_NS: i64 = 4 * NS_PER_DAY;

/// An expression that is a time, without what is finer than a unit.
pub(crate) fn truncated(unit: &str, time: Expr) -> Expr {
    let date_trunc = ScalarUDF::new_from_impl(DateTrunc(date_trunc()));
    date_trunc.call(vec![lit(unit), time])
}

/// Whether an expression is what [`truncated`] gave for a unit.
pub(crate) fn is_truncated(unit: &str, expr: &Expr) -> bool {
    let Expr::ScalarFunction(call) = expr else { return false };
    call.func.inner().is::<DateTrunc>() && call.args.first() == Some(&lit(unit))
}

/// The function, around DataFusion's.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct DateTrunc(pub(super) Arc<ScalarUDF>);

impl DateTrunc {
    /// The start of the stretch of a unit in which a time lies, if that is within time.
    fn start_of(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Scalar(unit), ColumnarValue::Scalar(time)] if is_fine(unit) => {
                args.args[1] = ColumnarValue::Array(time.to_array()?);
                let start = self.0.invoke_with_args(args)?.into_array(1)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&start, 0)?))
            }
            _ => self.0.invoke_with_args(args),
        }
    }
}

impl ScalarUDFImpl for DateTrunc {
    forward_identity!();

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.0.return_field_from_args(args)
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let [unit, times] = &args.args[..]
            && let Some(era) = Era::of_argument(unit)
            && matches!(times.data_type(), DataType::Timestamp(..))
        {
            return Ok(match times {
                ColumnarValue::Array(times) => ColumnarValue::Array(era.starts(times)?),
                ColumnarValue::Scalar(time) => {
                    let start = era.starts(&time.to_array()?)?;
                    ColumnarValue::Scalar(ScalarValue::try_from_array(&start, 0)?)
                }
            });
        }
        let Some(whole_ns) = first_whole(&args.args) else { return self.start_of(args) };
        let is_early = |time_ns: Option<i64>| time_ns.is_some_and(|time_ns| time_ns < whole_ns);
        match args.args[1].clone() {
            ColumnarValue::Scalar(ScalarValue::TimestampNanosecond(time_ns, zone))
                if is_early(time_ns) =>
            {
                Ok(ColumnarValue::Scalar(ScalarValue::TimestampNanosecond(Some(i64::MIN), zone)))
            }
            ColumnarValue::Array(times) => {
                let times = times.as_primitive::<TimestampNanosecondType>();
                if !times.iter().any(is_early) {
                    return self.0.invoke_with_args(args);
                }
                let zone = times.timezone().map(Arc::from);
                let later = times.iter().map(|time_ns| time_ns.filter(|_| !is_early(time_ns)));
                let later: TimestampNanosecondArray = later.collect();
                args.args[1] =
                    ColumnarValue::Array(Arc::new(later.with_timezone_opt(zone.clone())));
                let starts = self.0.invoke_with_args(args)?.into_array(times.len())?;
                let starts = starts.as_primitive::<TimestampNanosecondType>();
                let all = times.iter().zip(starts.iter());
                let all = all
                    .map(|(time_ns, start)| if is_early(time_ns) { Some(i64::MIN) } else { start });
                let all: TimestampNanosecondArray = all.collect();
                Ok(ColumnarValue::Array(Arc::new(all.with_timezone_opt::<Arc<str>>(zone))))
            }
            _ => self.start_of(args),
        }
    }

    fn output_ordering(&self, input: &[ExprProperties]) -> Result<SortProperties> {
        self.0.output_ordering(input)
    }
}

/// Whether a unit is shorter than a second: DataFusion cuts these off of a single time towards 1970, and off of columns
/// towards the past.
fn is_fine(unit: &ScalarValue) -> bool {
    let unit = unit.try_as_str().flatten().map(str::to_ascii_lowercase);
    unit.is_some_and(|unit| matches!(unit.as_str(), "millisecond" | "microsecond"))
}

/// When the first stretch of a unit begins that lies within time as a whole.
fn first_whole(args: &[ColumnarValue]) -> Option<i64> {
    let [ColumnarValue::Scalar(unit), time] = args else { return None };
    let DataType::Timestamp(TimeUnit::Nanosecond, zone) = time.data_type() else { return None };
    if zone.is_some_and(|zone| !is_utc(&zone)) {
        return None;
    }
    let (width_ns, origin_ns) = match unit.try_as_str()??.to_ascii_lowercase().as_str() {
        "year" => return Some(YEAR_1678_NS),
        "quarter" | "month" => return Some(OCTOBER_1677_NS),
        "week" => (7 * NS_PER_DAY, MONDAY_NS),
        "day" => (NS_PER_DAY, 0),
        "hour" => (NS_PER_HOUR, 0),
        "minute" => (NS_PER_MINUTE, 0),
        "second" => (NS_PER_SECOND, 0),
        "millisecond" => (NS_PER_MILLI, 0),
        "microsecond" => (NS_PER_MICRO, 0),
        _ => return None,
    };
    let (first, width) = (i128::from(i64::MIN), i128::from(width_ns));
    let over = (first - i128::from(origin_ns)).rem_euclid(width);
    i64::try_from(first + (width - over) % width).ok()
}
