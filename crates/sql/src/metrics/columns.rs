//! From metrics to the columns of an answer.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, TimestampNanosecondArray,
    UInt64Array, new_null_array,
};
use datafusion::arrow::buffer::{BooleanBuffer, NullBuffer};
use datafusion::arrow::compute::{cast, nullif};
use datafusion::arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion::error::Result;
use tidefall_storage::{AggregateRequest, AggregateResult, FieldMetrics, whole_sum};
use tidefall_types::OneForm;

use super::spec::{Edge, Measure, Nulls, Spread};

/// An answer of the storage with the question it belongs to.
pub(super) struct Answer<'a> {
    pub(super) request: &'a AggregateRequest,
    pub(super) result: &'a AggregateResult,
}

impl Answer<'_> {
    /// The column of a measure, one value a line, in the type that the query has for it.
    pub(super) fn column(&self, measure: Measure, data_type: &DataType) -> Result<ArrayRef> {
        let result = self.result;
        let column: ArrayRef = match measure {
            Measure::Rows => counts(&result.rows, data_type)?,
            Measure::Time(Edge::First) => times(&result.first_time_ns),
            Measure::Time(Edge::Last) => times(&result.last_time_ns),
            Measure::Count(_) => counts(&self.metrics(measure)?.count, data_type)?,
            Measure::Min(_) => Arc::clone(&self.metrics(measure)?.min),
            Measure::Max(_) => Arc::clone(&self.metrics(measure)?.max),
            Measure::Sum(_) => sums(self.metrics(measure)?, data_type)?,
            Measure::Mean(_) => derive(self.metrics(measure)?, 1, |at, count| at.sum / count),
            Measure::Variance(_, spread) => variance(self.metrics(measure)?, spread, |value| value),
            Measure::Deviation(_, spread) => variance(self.metrics(measure)?, spread, f64::sqrt),
            Measure::Value(_, edge, Nulls::Ignore) => {
                Arc::clone(of_edge(self.metrics(measure)?, edge))
            }
            Measure::Value(_, edge, Nulls::Respect) => {
                self.value_of_row(self.metrics(measure)?, edge)?
            }
            Measure::CountOfSome(_) => {
                let count = &self.metrics(measure)?.count;
                let is_none = count.iter().map(|count| Some(*count == 0)).collect();
                nullif(&counts(count, data_type)?, &is_none)?
            }
            Measure::Centre(_) => {
                derive(self.metrics(measure)?, 0, |at, n| if n > 0.0 { at.sum / n } else { 0.0 })
            }
            Measure::Squares(_) => {
                derive(self.metrics(measure)?, 0, |at, n| if n > 0.0 { at.m2 } else { 0.0 })
            }
            Measure::TimeOf(_, edge, Nulls::Ignore) => {
                let metrics = self.metrics(measure)?;
                match edge {
                    Edge::First => times(&metrics.first_time_ns),
                    Edge::Last => times(&metrics.last_time_ns),
                }
            }
            Measure::TimeOf(_, edge, Nulls::Respect) => {
                self.column(Measure::Time(edge), data_type)?
            }
            Measure::IsSet(_, Nulls::Ignore) => {
                let count = &self.metrics(measure)?.count;
                Arc::new(count.iter().map(|count| Some(*count > 0)).collect::<BooleanArray>())
            }
            Measure::IsSet(_, Nulls::Respect) | Measure::IsThere => {
                Arc::new(BooleanArray::from(vec![true; result.rows.len()]))
            }
        };
        debug_assert_eq!(column.data_type(), data_type, "{measure:?}");
        Ok(column)
    }

    /// The value of the first or last row of each line: NULL where another row has the first or last value. Of several sensors that have
    /// a row there one with a value counts.
    fn value_of_row(&self, metrics: &FieldMetrics, edge: Edge) -> Result<ArrayRef> {
        let (values, rows) = match edge {
            Edge::First => (&metrics.first_time_ns, &self.result.first_time_ns),
            Edge::Last => (&metrics.last_time_ns, &self.result.last_time_ns),
        };
        let is_other = values.iter().zip(rows).map(|(value_ns, row_ns)| Some(value_ns != row_ns));
        Ok(nullif(of_edge(metrics, edge), &BooleanArray::from_iter(is_other))?)
    }

    /// The metrics of the field of a measure.
    pub(super) fn metrics(&self, measure: Measure) -> Result<&FieldMetrics> {
        let at = measure
            .field()
            .and_then(|id| self.request.fields.iter().position(|wanted| *wanted == id));
        match at.and_then(|at| self.result.fields.get(at)) {
            Some(metrics) => Ok(metrics),
            None => datafusion::common::internal_err!("no metrics were asked for {measure:?}"),
        }
    }
}

/// The values at one end of time, without regard to nulls.
pub(super) fn of_edge(metrics: &FieldMetrics, edge: Edge) -> &ArrayRef {
    match edge {
        Edge::First => &metrics.first,
        Edge::Last => &metrics.last,
    }
}

/// The sums of one line.
struct Sums {
    sum: f64,
    m2: f64,
}

fn counts(counts: &[u64], data_type: &DataType) -> Result<ArrayRef> {
    Ok(cast(&UInt64Array::from_iter_values(counts.iter().copied()), data_type)?)
}

/// Sums, in a type in which an aggregate has them or keeps them between its stages.
fn sums(metrics: &FieldMetrics, data_type: &DataType) -> Result<ArrayRef> {
    Ok(match data_type {
        DataType::Float64 => derive(metrics, 1, |at, _| at.sum),
        DataType::Decimal128(..) => {
            let wrapped = match metrics.sum.as_primitive_opt::<UInt64Type>() {
                Some(sums) => sums.unary::<_, Int64Type>(|sum| sum as i64),
                None => metrics.sum.as_primitive::<Int64Type>().clone(),
            };
            let whole = wrapped.iter().zip(&metrics.sum_f64);
            let whole = whole.map(|(wrapped, about)| Some(whole_sum(wrapped?, *about)));
            let whole: Decimal128Array = whole.collect();
            Arc::new(whole.with_data_type(data_type.clone()))
        }
        // The storage sums small unsigned integers as signed ones.
        _ => cast(&metrics.sum, data_type)?,
    })
}

/// Times as a column.
pub(super) fn times(times: &[i64]) -> ArrayRef {
    Arc::new(TimestampNanosecondArray::new(times.to_vec().into(), None))
}

/// A float for each line that has at least `count_min` values, null for the others.
fn derive(metrics: &FieldMetrics, count_min: u64, of: impl Fn(Sums, f64) -> f64) -> ArrayRef {
    let values: Vec<f64> = (0..metrics.count.len())
        .map(|at| {
            let sums = Sums { sum: metrics.sum_f64[at], m2: metrics.m2[at] };
            of(sums, metrics.count[at] as f64).one_form()
        })
        .collect();
    let valid = BooleanBuffer::collect_bool(values.len(), |at| metrics.count[at] >= count_min);
    Arc::new(Float64Array::new(values.into(), Some(NullBuffer::new(valid))))
}

fn variance(metrics: &FieldMetrics, spread: Spread, of: fn(f64) -> f64) -> ArrayRef {
    match spread {
        Spread::Sample => derive(metrics, 2, |at, count| of(at.m2 / (count - 1.0))),
        Spread::Population => derive(metrics, 1, |at, count| of(at.m2 / count)),
    }
}

/// The answer to a question over no rows, without `GROUP BY`: one line.
pub(super) fn of_nothing(measure: Measure, data_type: &DataType) -> Result<ArrayRef> {
    Ok(match measure {
        Measure::Rows | Measure::Count(_) => counts(&[0], data_type)?,
        Measure::IsSet(..) | Measure::IsThere => Arc::new(BooleanArray::from(vec![false])),
        Measure::Centre(_) | Measure::Squares(_) => Arc::new(Float64Array::from(vec![0.0])),
        _ => new_null_array(data_type, 1),
    })
}
