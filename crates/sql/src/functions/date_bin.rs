//! `date_bin` of DataFusion, with bins at the ends of what a time can be.
//!
//! DataFusion answers with NULL where the start of a bin lies before the first time there is, and where a time is further
//! from the origin than 64 bits of nanoseconds reach, as one of 1700 is from 2000. Here the first bin starts with the first
//! time, as block metrics have it, and all others where they do.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};
use tidefall_types::{Error, NS_PER_DAY, NS_PER_MILLI};

use super::forward::forward_identity;
use crate::error::to_datafusion;
use crate::types::unit_ns;

/// The name of the function.
pub(super) const NAME: &str = "date_bin";

/// The function, around DataFusion's.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct DateBin(pub(super) Arc<ScalarUDF>);

impl ScalarUDFImpl for DateBin {
    forward_identity!();

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let width = args.args.first().and_then(Width::of);
        if width.is_some_and(|width| !width.is_positive()) {
            return Err(to_datafusion(Error::invalid("the width of bins must be above 0")));
        }
        if let Some(ColumnarValue::Array(_)) = args.args.first() {
            return Err(to_datafusion(Error::unsupported(
                "the width of bins cannot differ from row to row; write it as a constant, as in INTERVAL '5 minutes'",
            )));
        }
        if args.args.first().is_some_and(is_mixed) {
            return Err(to_datafusion(Error::unsupported(
                "the width of bins is one of months, or one of days and less, not of both",
            )));
        }
        let (times, origin_ns) = (args.args.get(1).cloned(), origin_ns(args.args.get(2)));
        let starts = self.0.invoke_with_args(args)?;
        let (Some(times), Some(width), Some(origin_ns)) = (times, width, origin_ns) else {
            return Ok(starts);
        };
        let DataType::Timestamp(unit, _) = times.data_type() else { return Ok(starts) };
        let bins = Bins { width, origin_ns, unit_ns: unit_ns(unit) };
        Ok(match (&times, starts) {
            (ColumnarValue::Array(times), ColumnarValue::Array(starts)) => {
                ColumnarValue::Array(bins.complete(times, starts)?)
            }
            (ColumnarValue::Scalar(time), ColumnarValue::Scalar(start))
                if start.is_null() && !time.is_null() =>
            {
                let starts = bins.complete(&time.to_array()?, start.to_array()?)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&starts, 0)?)
            }
            (_, starts) => starts,
        })
    }

    fn output_ordering(&self, input: &[ExprProperties]) -> Result<SortProperties> {
        self.0.output_ordering(input)
    }
}

/// How long bins are.
#[derive(Debug, Clone, Copy)]
enum Width {
    Nanoseconds(i128),
    Months(i32),
}

impl Width {
    fn of(width: &ColumnarValue) -> Option<Self> {
        match width {
            ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(Some(width))) => {
                let rest_ns = i128::from(width.days) * i128::from(NS_PER_DAY);
                let rest_ns = rest_ns + i128::from(width.nanoseconds);
                Some(match width.months {
                    0 => Self::Nanoseconds(rest_ns),
                    months => Self::Months(months),
                })
            }
            ColumnarValue::Scalar(ScalarValue::IntervalDayTime(Some(width))) => {
                let rest_ns = i128::from(width.milliseconds) * i128::from(NS_PER_MILLI);
                let days_ns = i128::from(width.days) * i128::from(NS_PER_DAY);
                Some(Self::Nanoseconds(days_ns + rest_ns))
            }
            _ => None,
        }
    }

    const fn is_positive(self) -> bool {
        match self {
            Self::Nanoseconds(width_ns) => width_ns > 0,
            Self::Months(months) => months > 0,
        }
    }
}

/// Whether a width is one of months and of what is less, which is longer in some months than in others.
fn is_mixed(width: &ColumnarValue) -> bool {
    match width {
        ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(Some(width))) => {
            width.months != 0 && (width.days != 0 || width.nanoseconds != 0)
        }
        _ => false,
    }
}

/// The time from which bins are counted.
fn origin_ns(origin: Option<&ColumnarValue>) -> Option<i64> {
    match origin {
        None => Some(0),
        Some(ColumnarValue::Scalar(ScalarValue::TimestampNanosecond(origin_ns, _))) => *origin_ns,
        Some(_) => None,
    }
}

/// Bins of times in some unit.
struct Bins {
    width: Width,
    origin_ns: i64,
    unit_ns: i64,
}

impl Bins {
    /// The starts of all bins, with those that are missing though there is a time.
    fn complete(&self, times: &ArrayRef, starts: ArrayRef) -> Result<ArrayRef> {
        if starts.null_count() == times.null_count() {
            return Ok(starts);
        }
        let to = starts.data_type().clone();
        let (times, starts) = (cast(times, &DataType::Int64)?, cast(&starts, &DataType::Int64)?);
        let (times, starts) =
            (times.as_primitive::<Int64Type>(), starts.as_primitive::<Int64Type>());
        let complete = |(time, start): (Option<i64>, Option<i64>)| {
            start.or_else(|| time.and_then(|time| self.start_of(time)))
        };
        let all: Int64Array = times.iter().zip(starts.iter()).map(complete).collect();
        Ok(cast(&all, &to)?)
    }

    /// The start of the bin of a time of which DataFusion finds none.
    fn start_of(&self, time: i64) -> Option<i64> {
        let unit_ns = i128::from(self.unit_ns);
        match self.width {
            Width::Nanoseconds(width_ns) if width_ns > 0 => {
                let time_ns = i128::from(time) * unit_ns;
                let offset_ns = (time_ns - i128::from(self.origin_ns)).rem_euclid(width_ns);
                let start = (time_ns - offset_ns).div_euclid(unit_ns);
                Some(i64::try_from(start).unwrap_or(i64::MIN))
            }
            // Months are all found but the first one.
            _ => (self.unit_ns == 1).then_some(i64::MIN),
        }
    }
}
