//! Functions of time that never fall as time rises, and what a comparison with one of them says
//! about time.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, Operator};
use tidefall_storage::Bin;
use tidefall_types::{
    ColumnKind, NS_PER_DAY, NS_PER_HOUR, NS_PER_MICRO, NS_PER_MILLI, NS_PER_MINUTE, NS_PER_SECOND,
    TableSchema, TimeRange,
};

use super::column_kind;
use crate::amend::kept;
use crate::functions::time_bucket;
use crate::types::{is_utc, unit_ns};

/// 1970-01-05, the first Monday: where weeks begin.
const MONDAY_NS: i64 = 4 * NS_PER_DAY;

/// A function of the time of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Time itself.
    Time,
    /// The start of the bin that holds it: `date_bin` and `date_trunc`.
    Bin(Bin),
    /// The same in a type that has fewer digits: a cast to a coarser timestamp.
    Coarse(Bin),
    /// The day in which it lies: a cast to a date.
    Day,
    /// The moment at which the clocks of a zone show it: a cast to that zone.
    Zoned,
}

impl Step {
    /// The function of time that `expr` is, if it is one.
    pub(crate) fn of(expr: &Expr, schema: &TableSchema) -> Option<Self> {
        match expr {
            Expr::Alias(alias) => Self::of(&alias.expr, schema),
            Expr::Column(_) if is_time(expr, schema) => Some(Self::Time),
            Expr::Cast(cast) if is_time(&cast.expr, schema) => match cast.field.data_type() {
                DataType::Timestamp(_, Some(zone)) if !is_utc(zone) => Some(Self::Zoned),
                DataType::Timestamp(TimeUnit::Nanosecond, _) => Some(Self::Time),
                DataType::Date32 => Some(Self::Day),
                _ => None,
            },
            Expr::Cast(cast) => match (Self::of(&cast.expr, schema)?, cast.field.data_type()) {
                (Self::Bin(bin), DataType::Timestamp(unit, zone))
                    if zone.as_ref().is_none_or(|zone| is_utc(zone))
                        && [bin.width_ns, bin.origin_ns]
                            .iter()
                            .all(|ns| ns % unit_ns(*unit) == 0) =>
                {
                    Some(Self::Coarse(bin))
                }
                _ => None,
            },
            Expr::ScalarFunction(call) => match kept(expr) {
                Some((inner, DataType::Timestamp(_, Some(zone)))) if !is_utc(zone) => {
                    is_time(inner, schema).then_some(Self::Zoned)
                }
                // To a finer unit: what was cut off is not there again.
                Some((inner, DataType::Timestamp(..))) => Self::of(inner, schema),
                Some(_) => None,
                None => bin_of(call, schema).map(Self::Bin),
            },
            _ => None,
        }
    }

    /// The times for which `self op literal` is true, and whether it is true for all of them.
    pub(super) fn range(self, op: Operator, literal: &ScalarValue) -> Option<(TimeRange, bool)> {
        let (lower, upper, exact) = match self {
            Self::Time => {
                let ns = timestamp_ns(literal)?;
                (ns, ns, true)
            }
            Self::Bin(bin) | Self::Coarse(bin) => {
                let ns = timestamp_ns(literal)?;
                let start = ns - (ns - i128::from(bin.origin_ns)).rem_euclid(width(bin));
                // The first bin is said to start with time itself.
                let is_start = start == ns || (ns == i128::from(i64::MIN) && start < ns);
                (if is_start { ns } else { start + width(bin) }, start + width(bin) - 1, true)
            }
            Self::Day => {
                let ScalarValue::Date32(Some(day)) = literal else { return None };
                let (day, ns) = (i128::from(NS_PER_DAY), i128::from(*day) * i128::from(NS_PER_DAY));
                // Before 1970 it matters how the cast rounds; stay on the safe side there.
                if ns > 0 { (ns, ns + day - 1, true) } else { (ns - day, ns + day - 1, false) }
            }
            Self::Zoned => {
                // Clocks everywhere are less than a day from those in UTC, but how much changes.
                let (day, ns) = (i128::from(NS_PER_DAY), timestamp_ns(literal)?);
                (ns - day, ns + day, false)
            }
        };
        let (first, last) = match op {
            Operator::Eq => (lower, upper),
            Operator::GtEq => (lower, i128::from(i64::MAX)),
            Operator::Gt if exact => (upper + 1, i128::from(i64::MAX)),
            Operator::Gt => (lower, i128::from(i64::MAX)),
            Operator::LtEq => (i128::from(i64::MIN), upper),
            Operator::Lt if exact => (i128::from(i64::MIN), lower - 1),
            Operator::Lt => (i128::from(i64::MIN), upper),
            _ => return None,
        };
        Some((clamp(first, last), exact))
    }
}

fn clamp(first: i128, last: i128) -> TimeRange {
    let (min, max) = (i128::from(i64::MIN), i128::from(i64::MAX));
    if first > last || first > max || last < min {
        return TimeRange::new(0, -1);
    }
    TimeRange::new(first.max(min) as i64, last.min(max) as i64)
}

fn width(bin: Bin) -> i128 {
    i128::from(bin.width_ns)
}

fn is_time(expr: &Expr, schema: &TableSchema) -> bool {
    column_kind(expr, schema) == Some(ColumnKind::Time)
}

/// The nanoseconds since 1970 of a literal that is a moment; more than an `i64` holds is allowed.
fn timestamp_ns(literal: &ScalarValue) -> Option<i128> {
    let (value, unit) = match literal {
        ScalarValue::TimestampNanosecond(value, _) => ((*value)?, 1),
        ScalarValue::TimestampMicrosecond(value, _) => ((*value)?, NS_PER_MICRO),
        ScalarValue::TimestampMillisecond(value, _) => ((*value)?, NS_PER_MILLI),
        ScalarValue::TimestampSecond(value, _) => ((*value)?, NS_PER_SECOND),
        ScalarValue::Date32(value) => (i64::from((*value)?), NS_PER_DAY),
        ScalarValue::Date64(value) => ((*value)?, NS_PER_MILLI),
        _ => return None,
    };
    Some(i128::from(value) * i128::from(unit))
}

/// The bins of `date_bin(width, time[, origin])`, `time_bucket(width, time[, origin])` or `date_trunc(unit, time)`.
fn bin_of(call: &ScalarFunction, schema: &TableSchema) -> Option<Bin> {
    match (call.name(), call.args.as_slice()) {
        (name @ ("date_bin" | time_bucket::NAME), [width, time, rest @ ..])
            if is_time(time, schema) =>
        {
            let width_ns = interval_ns(width)?;
            let origin_ns = match rest {
                [] if name == time_bucket::NAME => time_bucket::ORIGIN_NS,
                [] => 0,
                [Expr::Literal(origin, _)] => i64::try_from(timestamp_ns(origin)?).ok()?,
                _ => return None,
            };
            (width_ns > 0).then_some(Bin { width_ns, origin_ns })
        }
        ("date_trunc", [Expr::Literal(unit, _), time]) if is_time(time, schema) => {
            let unit = unit.try_as_str()??.to_ascii_lowercase();
            let (width_ns, origin_ns) = match unit.as_str() {
                "week" => (7 * NS_PER_DAY, MONDAY_NS),
                "day" => (NS_PER_DAY, 0),
                "hour" => (NS_PER_HOUR, 0),
                "minute" => (NS_PER_MINUTE, 0),
                "second" => (NS_PER_SECOND, 0),
                "millisecond" => (NS_PER_MILLI, 0),
                "microsecond" => (NS_PER_MICRO, 0),
                // Months, quarters and years differ in length.
                _ => return None,
            };
            Some(Bin { width_ns, origin_ns })
        }
        _ => None,
    }
}

/// The nanoseconds of an interval of fixed length; one with months has none.
fn interval_ns(expr: &Expr) -> Option<i64> {
    let Expr::Literal(literal, _) = expr else { return None };
    let (days, rest_ns) = match literal {
        ScalarValue::IntervalMonthDayNano(Some(value)) if value.months == 0 => {
            (value.days, value.nanoseconds)
        }
        ScalarValue::IntervalDayTime(Some(value)) => {
            (value.days, i64::from(value.milliseconds) * NS_PER_MILLI)
        }
        _ => return None,
    };
    i64::from(days).checked_mul(NS_PER_DAY)?.checked_add(rest_ns)
}
