//! Spans of time times a number: `INTERVAL '5 minutes' * n`, `(max(time) - min(time)) / 2`.
//!
//! Months and days of an interval are multiplied by whole numbers, and nothing else, as they have no length that is always
//! the same; days are divided as 24 hours.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, IntervalMonthDayNanoArray,
};
use datafusion::arrow::compute::{CastOptions, cast as cast_array, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::planner::RawBinaryExpr;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use tidefall_types::{Error, NS_PER_DAY, Result as TidefallResult};

use crate::error::to_datafusion;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// A span times a number, a number times a span, or a span divided by a number. Whether that is whole is seen when its values
/// come: columns of a `UNION` have another type by then than when operators are planned.
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
    let span = match of {
        DataType::Interval(_) => cast(span.clone(), INTERVAL),
        _ => span.clone(),
    };
    let scaled = ScalarUDF::new_from_impl(Scaled { is_division });
    Some(scaled.call(vec![span, factor.clone()]))
}

const fn is_span(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Duration(_) | DataType::Interval(_))
}

/// A span times a number, or divided by it.
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

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let factors = Factors::of(&arrays[1])?;
        let scaled: ArrayRef = match arrays[0].data_type() {
            DataType::Interval(_) => {
                let spans = arrays[0].as_primitive::<IntervalMonthDayNanoType>();
                let rows = spans.iter().enumerate();
                let scaled = rows.map(|(row, span)| {
                    let both = span.zip(factors.at(row));
                    both.map(|(span, factor)| self.scale(span, factor)).transpose()
                });
                let scaled: TidefallResult<IntervalMonthDayNanoArray> = scaled.collect();
                Arc::new(scaled.map_err(to_datafusion)?)
            }
            of => {
                let counts = cast_array(&arrays[0], &DataType::Int64)?;
                let rows = counts.as_primitive::<Int64Type>().iter().enumerate();
                let scaled = rows.map(|(row, count)| {
                    let both = count.zip(factors.at(row));
                    both.map(|(count, factor)| self.scale_count(count, factor)).transpose()
                });
                let scaled: TidefallResult<Int64Array> = scaled.collect();
                cast_array(&scaled.map_err(to_datafusion)?, of)?
            }
        };
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&scaled, 0)?),
            false => ColumnarValue::Array(scaled),
        })
    }
}

/// The numbers by which spans are scaled.
struct Factors {
    wholes: Option<Int64Array>,
    floats: Float64Array,
}

impl Factors {
    fn of(numbers: &ArrayRef) -> Result<Self> {
        let wholes = match numbers.data_type().is_integer() {
            true => {
                let exact = CastOptions { safe: false, ..CastOptions::default() };
                let wholes = cast_with_options(numbers, &DataType::Int64, &exact)?;
                Some(wholes.as_primitive::<Int64Type>().clone())
            }
            false => None,
        };
        let floats = cast_array(numbers, &DataType::Float64)?;
        Ok(Self { wholes, floats: floats.as_primitive::<Float64Type>().clone() })
    }

    fn at(&self, row: usize) -> Option<Factor> {
        self.floats.is_valid(row).then(|| match &self.wholes {
            Some(wholes) => Factor::Whole(wholes.value(row)),
            None => Factor::Float(self.floats.value(row)),
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
        Ok(IntervalMonthDayNano::new(0, 0, self.scale_length(span_ns, factor)?))
    }

    /// A span that is so many of a unit.
    fn scale_count(&self, count: i64, factor: Factor) -> TidefallResult<i64> {
        match factor {
            Factor::Whole(factor) if !self.is_division => {
                count.checked_mul(factor).ok_or_else(too_long)
            }
            factor => self.scale_length(i128::from(count), factor),
        }
    }

    /// The whole part of a length that is divided, or multiplied by a float.
    fn scale_length(&self, length: i128, factor: Factor) -> TidefallResult<i64> {
        let scaled = match factor {
            Factor::Whole(0) => return Err(Error::invalid("an interval is divided by zero")),
            Factor::Whole(factor) => length / i128::from(factor),
            Factor::Float(factor) => {
                let scaled = match self.is_division {
                    true => length as f64 / factor,
                    false => length as f64 * factor,
                };
                if !scaled.is_finite() {
                    return Err(too_long());
                }
                scaled as i128
            }
        };
        i64::try_from(scaled).map_err(|_| too_long())
    }
}

fn too_long() -> Error {
    Error::invalid("an interval becomes longer than what can be held")
}
