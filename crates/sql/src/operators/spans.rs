//! Spans of time times a number: `INTERVAL '5 minutes' * n`, `(max(time) - min(time)) / 2`.
//!
//! Months and days of an interval are multiplied by whole numbers, and nothing else, as they have no length that is always
//! the same; days are divided as 24 hours.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, AsArray, IntervalMonthDayNanoArray};
use datafusion::arrow::compute::cast as cast_array;
use datafusion::arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::error::Result;
use datafusion::logical_expr::planner::RawBinaryExpr;
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, binary_expr, cast,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use tidefall_types::{Error, NS_PER_DAY, Result as TidefallResult};

use crate::error::to_datafusion;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// A span times a number, a number times a span, or a span divided by a number.
pub(super) fn scale(expr: &RawBinaryExpr, left: &DataType, right: &DataType) -> Option<Expr> {
    let is_division = expr.op == BinaryOperator::Divide;
    let (span, of, factor, by) = match (is_span(left), is_span(right)) {
        (true, false) => (&expr.left, left, &expr.right, right),
        (false, true) if !is_division => (&expr.right, right, &expr.left, left),
        _ => return None,
    };
    if !by.is_numeric() {
        return None;
    }
    let is_whole = by.is_integer();
    if matches!(of, DataType::Interval(_)) {
        let to = if is_whole { DataType::Int64 } else { DataType::Float64 };
        let scaled = ScalarUDF::new_from_impl(Scaled { is_division });
        return Some(scaled.call(vec![cast(span.clone(), INTERVAL), cast(factor.clone(), to)]));
    }
    let op = if is_division { Operator::Divide } else { Operator::Multiply };
    let number = cast(span.clone(), DataType::Int64);
    let number = match is_whole {
        true => binary_expr(number, op, cast(factor.clone(), DataType::Int64)),
        false => {
            let exact = cast(number, DataType::Float64);
            cast(binary_expr(exact, op, cast(factor.clone(), DataType::Float64)), DataType::Int64)
        }
    };
    Some(cast(number, of.clone()))
}

const fn is_span(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Duration(_) | DataType::Interval(_))
}

/// An interval times a number, or divided by it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Scaled {
    is_division: bool,
}

impl ScalarUDFImpl for Scaled {
    fn name(&self) -> &str {
        if self.is_division { "divide_interval" } else { "multiply_interval" }
    }

    fn signature(&self) -> &Signature {
        static TWO: LazyLock<Signature> =
            LazyLock::new(|| Signature::any(2, Volatility::Immutable));
        &TWO
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let spans = arrays[0].as_primitive::<IntervalMonthDayNanoType>();
        let is_whole = *arrays[1].data_type() == DataType::Int64;
        let wholes = is_whole.then(|| arrays[1].as_primitive::<Int64Type>());
        let floats = cast_array(&arrays[1], &DataType::Float64)?;
        let floats = floats.as_primitive::<Float64Type>();
        let scaled = (0..spans.len()).map(|row| {
            if spans.is_null(row) || floats.is_null(row) {
                return Ok(None);
            }
            let factor = match wholes {
                Some(wholes) => Factor::Whole(wholes.value(row)),
                None => Factor::Float(floats.value(row)),
            };
            self.scale(spans.value(row), factor).map(Some)
        });
        let scaled: TidefallResult<IntervalMonthDayNanoArray> = scaled.collect();
        let scaled = scaled.map_err(to_datafusion)?;
        Ok(match is_scalar {
            true => {
                ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(&scaled, 0)?)
            }
            false => ColumnarValue::Array(Arc::new(scaled)),
        })
    }
}

/// What an interval is multiplied by, or divided by.
#[derive(Debug, Clone, Copy)]
enum Factor {
    Whole(i64),
    Float(f64),
}

impl Scaled {
    fn scale(
        &self,
        span: IntervalMonthDayNano,
        factor: Factor,
    ) -> TidefallResult<IntervalMonthDayNano> {
        if let (Factor::Whole(factor), false) = (factor, self.is_division) {
            let part = |part: i32| {
                i64::from(part).checked_mul(factor).and_then(|part| i32::try_from(part).ok())
            };
            let parts = (part(span.months), part(span.days), span.nanoseconds.checked_mul(factor));
            let (Some(months), Some(days), Some(rest_ns)) = parts else { return Err(too_long()) };
            return Ok(IntervalMonthDayNano::new(months, days, rest_ns));
        }
        if span.months != 0 {
            return Err(Error::invalid(
                "an interval of months is multiplied by whole numbers alone, as months differ in length",
            ));
        }
        let span_ns = i128::from(span.days) * i128::from(NS_PER_DAY) + i128::from(span.nanoseconds);
        let scaled_ns = match factor {
            Factor::Whole(0) => return Err(Error::invalid("an interval is divided by zero")),
            Factor::Whole(factor) => span_ns / i128::from(factor),
            Factor::Float(factor) => {
                let scaled_ns = match self.is_division {
                    true => span_ns as f64 / factor,
                    false => span_ns as f64 * factor,
                };
                if !scaled_ns.is_finite() {
                    return Err(too_long());
                }
                scaled_ns as i128
            }
        };
        let scaled_ns = i64::try_from(scaled_ns).map_err(|_| too_long())?;
        Ok(IntervalMonthDayNano::new(0, 0, scaled_ns))
    }
}

fn too_long() -> Error {
    Error::invalid("an interval becomes longer than what can be held")
}
