//! `histogram(value, low, high, buckets)`: how many values lie in each of `buckets` parts of equal width from
//! `low` up to `high`; one more count before them for what is below, one behind them for what is not
//! below `high`.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use tidefall_types::Error;

use crate::error::to_datafusion;

/// The most parts.
const BUCKETS_MAX: i64 = 1 << 20;

/// The aggregate `histogram`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Histogram;

static SIGNATURE: std::sync::LazyLock<Signature> =
    std::sync::LazyLock::new(|| Signature::user_defined(Volatility::Immutable));

/// The items of a list in a state or a result.
pub(super) fn list_field(item: DataType) -> FieldRef {
    Arc::new(Field::new_list_field(item, true))
}

fn wrong(why: &str) -> DataFusionError {
    to_datafusion(Error::invalid(format!("{why}, as in histogram(value, 0, 100, 10)")))
}

impl AggregateUDFImpl for Histogram {
    fn name(&self) -> &str {
        "histogram"
    }

    fn signature(&self) -> &Signature {
        &SIGNATURE
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(list_field(DataType::Int64)))
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [_, _, _, _] if types.iter().all(DataType::is_numeric) => {
                let double = DataType::Float64;
                Ok(vec![double.clone(), double.clone(), double, DataType::Int64])
            }
            _ => Err(wrong("histogram wants a number, its bounds and a number of buckets")),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let name = format!("{}[counts]", args.name);
        Ok(vec![Arc::new(Field::new_list(name, list_field(DataType::Int64), true))])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return Err(wrong("histogram counts each row; take DISTINCT values in a subquery"));
        }
        Ok(Box::new(Counts::default()))
    }
}

/// The counts of a group; none before its first row.
#[derive(Debug, Default)]
struct Counts {
    counts: Vec<i64>,
}

impl Accumulator for Counts {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let [values, low, high] = [0, 1, 2].map(|at| columns[at].as_primitive::<Float64Type>());
        let buckets = columns[3].as_primitive::<Int64Type>();
        if values.is_empty() {
            return Ok(());
        }
        let (low, high, buckets) = (low.value(0), high.value(0), buckets.value(0));
        // The whole difference may be more than there is.
        let half = high / 2.0 - low / 2.0;
        if !(1..=BUCKETS_MAX).contains(&buckets)
            || low.partial_cmp(&high) != Some(std::cmp::Ordering::Less)
        {
            return Err(wrong(
                "histogram wants a lower and an upper bound and 1 to 1,048,576 buckets",
            ));
        }
        self.counts.resize(buckets as usize + 2, 0);
        for value in values.iter().flatten().filter(|value| !value.is_nan()) {
            let place = match value {
                _ if value < low => 0,
                _ if value >= high => buckets + 1,
                _ => {
                    let part = (value / 2.0 - low / 2.0) / half;
                    ((part * buckets as f64) as i64).min(buckets - 1) + 1
                }
            };
            self.counts[place as usize] += 1;
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for counts in states[0].as_list::<i32>().iter().flatten() {
            let counts = counts.as_primitive::<Int64Type>();
            if self.counts.len() < counts.len() {
                self.counts.resize(counts.len(), 0);
            }
            self.counts.iter_mut().zip(counts.values()).for_each(|(sum, count)| *sum += count);
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        // Windows ask after each row.
        let counts = Int64Array::from(self.counts.clone());
        if counts.is_empty() {
            return ScalarValue::try_new_null(&DataType::List(list_field(DataType::Int64)));
        }
        Ok(SingleRowListArrayBuilder::new(Arc::new(counts)).build_list_scalar())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.counts.capacity() * size_of::<i64>()
    }
}
