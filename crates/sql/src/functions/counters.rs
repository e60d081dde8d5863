//! `increase(value, time)` and `rate(value, time)` of counters, as Prometheus defines them but without its
//! extrapolation: a counter that falls was reset, and has grown by what it shows since.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Float64Type, Int64Type, TimeUnit, TimestampNanosecondType,
};
use datafusion::common::ScalarValue;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};

use tidefall_types::OneForm;

use super::histogram::list_field;
use crate::error::to_datafusion;

/// By how much a counter grew.
pub(super) const INCREASE: Counter = Counter { name: "increase", per_second: false };
/// By how much it grew a second, between its first and its last reading.
pub(super) const RATE: Counter = Counter { name: "rate", per_second: true };

/// An aggregate of a counter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Counter {
    name: &'static str,
    per_second: bool,
}

static SIGNATURE: std::sync::LazyLock<Signature> =
    std::sync::LazyLock::new(|| Signature::user_defined(Volatility::Immutable));

impl AggregateUDFImpl for Counter {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &SIGNATURE
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [value, DataType::Timestamp(..)] if value.is_numeric() => {
                Ok(vec![DataType::Float64, DataType::Timestamp(TimeUnit::Nanosecond, None)])
            }
            _ => Err(to_datafusion(tidefall_types::Error::invalid(format!(
                "{name} wants a number and its time, as in {name}(value, time)",
                name = self.name
            )))),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let list = |what: &str, ty| {
            Arc::new(Field::new_list(format!("{}[{what}]", args.name), list_field(ty), true))
        };
        Ok(vec![list("time", DataType::Int64), list("value", DataType::Float64)])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return Err(to_datafusion(tidefall_types::Error::invalid(format!(
                "{} looks at all readings of a counter; leave DISTINCT out",
                self.name
            ))));
        }
        Ok(Box::new(Readings { per_second: self.per_second, rows: Vec::new() }))
    }
}

/// The readings of a group, in the order in which they came.
#[derive(Debug)]
struct Readings {
    per_second: bool,
    rows: Vec<(i64, f64)>,
}

impl Readings {
    fn add<'a>(&mut self, times: impl Iterator<Item = Option<i64>> + 'a, values: &ArrayRef) {
        let values = values.as_primitive::<Float64Type>().iter();
        self.rows.extend(times.zip(values).filter_map(|(time, value)| Some((time?, value?))));
    }
}

/// How many rows have both a value and its time.
fn known(columns: &[ArrayRef]) -> usize {
    let rows = 0..columns[0].len();
    rows.filter(|row| columns.iter().all(|column| column.is_valid(*row))).count()
}

impl Accumulator for Readings {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let times = columns[1].as_primitive::<TimestampNanosecondType>();
        self.add(times.iter(), &columns[0]);
        Ok(())
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.rows.drain(..known(columns).min(self.rows.len()));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (times, values) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        for group in (0..times.len()).filter(|group| times.is_valid(*group)) {
            let times = times.value(group);
            self.add(times.as_primitive::<Int64Type>().iter(), &values.value(group));
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let (times, values): (Vec<i64>, Vec<f64>) = self.rows.iter().copied().unzip();
        let list = |values: ArrayRef| SingleRowListArrayBuilder::new(values).build_list_scalar();
        let times = datafusion::arrow::array::Int64Array::from(times);
        let values = datafusion::arrow::array::Float64Array::from(values);
        Ok(vec![list(Arc::new(times)), list(Arc::new(values))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        // Those that came first may leave first.
        let mut rows = Cow::Borrowed(&self.rows);
        if !rows.is_sorted_by_key(|(time, _)| *time) {
            // Stable: of several readings at one time the last stays the last.
            rows.to_mut().sort_by_key(|(time, _)| *time);
        }
        let grown: f64 = rows
            .windows(2)
            .map(|pair| {
                let [(_, before), (_, now)] = [pair[0], pair[1]];
                if now < before { now } else { now - before }
            })
            .sum();
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(ScalarValue::Float64(None));
        };
        let seconds = (last.0 as f64 - first.0 as f64) / 1e9;
        Ok(ScalarValue::Float64(match self.per_second {
            _ if seconds <= 0.0 => None,
            true => Some((grown / seconds).one_form()),
            false => Some(grown.one_form()),
        }))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.rows.capacity() * size_of::<(i64, f64)>()
    }
}
