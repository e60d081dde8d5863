//! `time_bucket(width, time[, origin])`, as in DuckDB and TimescaleDB: `date_bin`, whose bins are counted from
//! Monday, 3 January 2000, those of months from 1 January 2000, so that weeks begin on Mondays.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

/// The name of the function.
pub(crate) const NAME: &str = "time_bucket";
/// Midnight of Monday, 3 January 2000, in nanoseconds since 1970.
pub(crate) const ORIGIN_NS: i64 = 946_857_600_000_000_000;
/// Midnight of 1 January 2000, in nanoseconds since 1970.
const MONTHS_ORIGIN_NS: i64 = 946_684_800_000_000_000;

const DAY_NS: i64 = 86_400_000_000_000;

/// The function, around `date_bin`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct TimeBucket(pub(super) Arc<ScalarUDF>);

/// Where a bin of this width begins. Of those of a fixed width it is one about 1970: `date_bin` subtracts it from times,
/// and what is far from some of them is further than 64 bits go.
fn origin_of(width: &ColumnarValue) -> ScalarValue {
    let origin_ns = match width {
        ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(Some(width))) => {
            let nanoseconds = i64::from(width.days)
                .checked_mul(DAY_NS)
                .and_then(|days| days.checked_add(width.nanoseconds));
            match nanoseconds {
                _ if width.months != 0 => MONTHS_ORIGIN_NS,
                Some(width) if width > 0 => ORIGIN_NS % width,
                _ => ORIGIN_NS,
            }
        }
        _ => ORIGIN_NS,
    };
    ScalarValue::TimestampNanosecond(Some(origin_ns), None)
}

impl ScalarUDFImpl for TimeBucket {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.0.return_type(types)
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let [width, time] = &args.args[..]
            && matches!(time.data_type(), DataType::Timestamp(..))
        {
            let origin = origin_of(width);
            args.args.push(ColumnarValue::Scalar(origin));
        }
        self.0.invoke_with_args(args)
    }

    fn output_ordering(&self, input: &[ExprProperties]) -> Result<SortProperties> {
        self.0.output_ordering(input)
    }
}
