//! Sums, means and percentiles of times and of spans of time.
//!
//! DataFusion adds spans up in 64 bits, which wrap after 292 years, and has no means and no medians of times, as these
//! cannot be added up. Here they are numbers of 128 bits: a mean of times is a time, cut off towards the past, one of spans
//! is cut off towards zero, and a sum that is longer than what can be held is an error.
//!
//! Intervals are added up part by part: months, days and the rest. What the mean of months leaves goes on as 30 days each,
//! and what that of days leaves as 24 hours each, as in DuckDB. Percentiles have them in the order of their lengths.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Int64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit, UInt64Type,
};
use datafusion::common::ScalarValue;
use datafusion::common::types::{NativeType, logical_date, logical_float64};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::error::Result;
use datafusion::logical_expr::{Accumulator, Coercion, TypeSignature, TypeSignatureClass};
use tidefall_types::{Error, NS_PER_DAY};

use super::Amendment;
use super::percentile::{Frame, Part};
use crate::amend::length_ns;
use crate::error::to_datafusion;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
/// Holds the sum of as many values of 64 bits as there may be rows.
const TOTAL: DataType = DataType::Decimal128(38, 0);
const DAYS_PER_MONTH: i128 = 30;

/// What is asked of times or spans.
#[derive(Debug, Clone, Copy)]
pub(super) enum Question {
    Sum,
    Mean,
    Percentile(Part),
}

/// What an amended function answers with if it is asked about times or spans.
pub(super) fn answer_type(amendment: Amendment, of: &DataType) -> Option<DataType> {
    let adds_up = matches!(
        amendment,
        Amendment::Sum | Amendment::Mean | Amendment::Median | Amendment::Percentile
    );
    match of {
        DataType::Interval(_) if adds_up => Some(INTERVAL),
        DataType::Timestamp(..) | DataType::Duration(_) if adds_up => Some(of.clone()),
        _ => None,
    }
}

/// The times and spans that a function of numbers takes, where they have an answer.
pub(super) fn takes(amendment: Amendment) -> Vec<TypeSignature> {
    let time = Coercion::new_implicit(
        TypeSignatureClass::Timestamp,
        vec![TypeSignatureClass::Native(logical_date())],
        NativeType::Timestamp(TimeUnit::Nanosecond, None),
    );
    let spans = [TypeSignatureClass::Duration, TypeSignatureClass::Interval];
    let part = Coercion::new_implicit(
        TypeSignatureClass::Native(logical_float64()),
        vec![TypeSignatureClass::Numeric],
        NativeType::Float64,
    );
    let others = match amendment {
        Amendment::Mean | Amendment::Median => Vec::new(),
        Amendment::Percentile => vec![part],
        _ => return Vec::new(),
    };
    let values = [time].into_iter().chain(spans.map(Coercion::new_exact));
    let takes = |value| TypeSignature::Coercible([&[value][..], &others[..]].concat());
    values.map(takes).collect()
}

/// What is kept between the stages of an aggregation.
pub(super) fn state_fields(amendment: Amendment, name: &str, is_distinct: bool) -> Vec<FieldRef> {
    let field =
        |part: &str, of: DataType| Arc::new(Field::new(format!("{name}[{part}]"), of, true));
    if is_distinct || !matches!(amendment, Amendment::Sum | Amendment::Mean) {
        let item = Field::new_list_field(INTERVAL, true);
        return vec![field("values", DataType::List(Arc::new(item)))];
    }
    vec![
        field("count", DataType::UInt64),
        field("months", TOTAL),
        field("days", TOTAL),
        field("rest", TOTAL),
    ]
}

/// Values that are added up: how many, and the sums of their months, their days, and the rest.
#[derive(Debug, Clone, Copy, Default)]
struct Total {
    count: i128,
    parts: [i128; 3],
}

impl Total {
    /// Adds a value so many times.
    fn add(&mut self, value: IntervalMonthDayNano, times: i128) {
        let parts: [i128; 3] = [value.months.into(), value.days.into(), value.nanoseconds.into()];
        self.count += times;
        for (sum, part) in self.parts.iter_mut().zip(parts) {
            *sum += part * times;
        }
    }
}

/// The times or spans of one group, or in one window.
#[derive(Debug)]
pub(super) struct Times {
    question: Question,
    frame: Frame,
    /// The type of the answer.
    data_type: DataType,
    /// Where values are added up as they come.
    total: Total,
    /// Otherwise the values: of what is no interval, each as a rest.
    values: VecDeque<IntervalMonthDayNano>,
}

impl Times {
    pub(super) fn new(question: Question, frame: Frame, data_type: DataType) -> Self {
        Self { question, frame, data_type, total: Total::default(), values: VecDeque::new() }
    }

    fn is_distinct(&self) -> bool {
        matches!(self.frame, Frame::Grows(true) | Frame::Slides(true))
    }

    fn keeps_values(&self) -> bool {
        self.is_distinct() || matches!(self.question, Question::Percentile(_))
    }

    /// The values that count, in any order.
    fn counted(&self) -> Vec<IntervalMonthDayNano> {
        let mut values: Vec<_> = self.values.iter().copied().collect();
        if self.is_distinct() {
            values.sort_unstable();
            values.dedup();
        }
        values
    }

    fn total(&self) -> Total {
        if !self.keeps_values() {
            return self.total;
        }
        let mut total = Total::default();
        self.counted().into_iter().for_each(|value| total.add(value, 1));
        total
    }

    /// The mean of a total of something.
    fn mean(&self, Total { count, parts: [months, days, rest] }: Total) -> [i128; 3] {
        if matches!(self.data_type, DataType::Timestamp(..)) {
            return [0, 0, rest.div_euclid(count)];
        }
        let days = days + months % count * DAYS_PER_MONTH;
        let rest = rest + days % count * i128::from(NS_PER_DAY);
        [months / count, days / count, rest / count]
    }

    /// A percentile of something.
    fn percentile(&self, part: Part) -> Option<[i128; 3]> {
        let mut values = self.counted();
        let order = |left: &IntervalMonthDayNano, right: &IntervalMonthDayNano| {
            length_ns(*left).cmp(&length_ns(*right)).then(left.cmp(right))
        };
        let (lower, upper) = part.neighbours(&mut values, order)?;
        Some(match upper {
            None => [lower.months.into(), lower.days.into(), lower.nanoseconds.into()],
            Some((upper, way)) => {
                let (lower, upper) = (length_ns(lower), length_ns(upper));
                let found = lower + way.of_whole(upper - lower);
                match self.data_type {
                    DataType::Interval(_) => {
                        let day_ns = i128::from(NS_PER_DAY);
                        [0, found / day_ns, found % day_ns]
                    }
                    _ => [0, 0, found],
                }
            }
        })
    }

    /// The answer of some months, days and the rest.
    fn answer(&self, [months, mut days, mut rest]: [i128; 3]) -> Result<ScalarValue> {
        let is_interval = matches!(self.data_type, DataType::Interval(_));
        if is_interval && i64::try_from(rest).is_err() {
            let day_ns = i128::from(NS_PER_DAY);
            (days, rest) = (days + rest / day_ns, rest % day_ns);
        }
        let parts = (i32::try_from(months), i32::try_from(days), i64::try_from(rest));
        let (Ok(months), Ok(days), Ok(rest)) = parts else {
            return Err(to_datafusion(Error::invalid(
                "the sum of these spans of time is longer than what can be held, which is 292 years for differences of \
                 times; add up seconds, as in sum(extract(epoch FROM b - a))",
            )));
        };
        match is_interval {
            true => {
                let span = IntervalMonthDayNano::new(months, days, rest);
                Ok(ScalarValue::IntervalMonthDayNano(Some(span)))
            }
            false => ScalarValue::Int64(Some(rest)).cast_to(&self.data_type),
        }
    }
}

/// The values of a column, without NULL.
fn values_of(column: &ArrayRef) -> Result<Vec<IntervalMonthDayNano>> {
    if matches!(column.data_type(), DataType::Interval(_)) {
        let spans = cast(column, &INTERVAL)?;
        return Ok(spans.as_primitive::<IntervalMonthDayNanoType>().iter().flatten().collect());
    }
    let rests = cast(column, &DataType::Int64)?;
    let rests = rests.as_primitive::<Int64Type>().iter().flatten();
    Ok(rests.map(|rest| IntervalMonthDayNano::new(0, 0, rest)).collect())
}

impl Accumulator for Times {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let values = values_of(&columns[0])?;
        match self.keeps_values() {
            true => self.values.extend(values),
            false => values.into_iter().for_each(|value| self.total.add(value, 1)),
        }
        Ok(())
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        if self.keeps_values() {
            let left = columns[0].len() - columns[0].logical_null_count();
            self.values.drain(..left.min(self.values.len()));
        } else {
            values_of(&columns[0])?.into_iter().for_each(|value| self.total.add(value, -1));
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        matches!(self.frame, Frame::Slides(_))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let found = match self.question {
            Question::Percentile(part) => self.percentile(part),
            Question::Sum | Question::Mean => match self.total() {
                Total { count: 0, .. } => None,
                total if matches!(self.question, Question::Sum) => Some(total.parts),
                total => Some(self.mean(total)),
            },
        };
        match found {
            Some(parts) => self.answer(parts),
            None => ScalarValue::try_from(&self.data_type),
        }
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        if self.keeps_values() {
            let values =
                PrimitiveArray::<IntervalMonthDayNanoType>::from_iter_values(self.counted());
            self.values.clear();
            return Ok(vec![SingleRowListArrayBuilder::new(Arc::new(values)).build_list_scalar()]);
        }
        let Total { count, parts } = self.total;
        let count = ScalarValue::UInt64(u64::try_from(count).ok());
        let sums = parts.map(|sum| ScalarValue::Decimal128(Some(sum), 38, 0));
        Ok([count].into_iter().chain(sums).collect())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        if self.keeps_values() {
            for values in states[0].as_list::<i32>().iter().flatten() {
                self.values.extend(values_of(&values)?);
            }
            return Ok(());
        }
        let counts = states[0].as_primitive::<UInt64Type>().iter().flatten();
        self.total.count += counts.map(i128::from).sum::<i128>();
        for (sum, column) in self.total.parts.iter_mut().zip(&states[1..]) {
            *sum += column.as_primitive::<Decimal128Type>().iter().flatten().sum::<i128>();
        }
        Ok(())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<IntervalMonthDayNano>()
    }
}
