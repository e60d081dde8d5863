//! `histogram(value, low, high, buckets)`: how many values lie in each of `buckets` parts of equal width from
//! `low` up to `high`; one more count before them for what is below, one behind them for what is not
//! below `high`. All but the value are constants.

mod groups;

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, GroupsAccumulator, Signature, Volatility,
};
use datafusion::physical_expr::expressions::Literal;
use tidefall_types::Error;

use self::groups::Groups;
use crate::error::to_datafusion;

/// The most parts.
const BUCKETS_MAX: usize = 1 << 20;

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
        let list = |what: &str| {
            let name = format!("{}[{what}]", args.name);
            Arc::new(Field::new_list(name, list_field(DataType::Int64), true))
        };
        Ok(vec![list("parts"), list("counts")])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Counts { parts: parts_of(&args)?, counts: Vec::new() }))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Groups::new(parts_of(&args)?)))
    }
}

/// The parts that a call names, if it is one that counts each row.
fn parts_of(args: &AccumulatorArgs<'_>) -> Result<Parts> {
    match args.is_distinct {
        true => Err(wrong("histogram counts each row; take DISTINCT values in a subquery")),
        false => Parts::of(args),
    }
}

/// The parts of equal width.
#[derive(Debug, Clone, Copy)]
struct Parts {
    low: f64,
    high: f64,
    buckets: usize,
}

impl Parts {
    /// Those that a call names, by constants.
    fn of(args: &AccumulatorArgs<'_>) -> Result<Self> {
        let literal = |at: usize| {
            let arg = args.exprs.get(at).and_then(|arg| arg.downcast_ref::<Literal>());
            arg.map(|arg| arg.value().clone())
        };
        let (Some(low), Some(high), Some(buckets)) = (literal(1), literal(2), literal(3)) else {
            return Err(wrong(
                "the bounds and the number of buckets of histogram must be constants",
            ));
        };
        let number = |value: ScalarValue| match value.cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(value)) => value,
            _ => None,
        };
        let (low, high) = (number(low), number(high));
        let buckets = match buckets.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(Some(buckets))) => usize::try_from(buckets).ok(),
            _ => None,
        };
        match (low, high, buckets) {
            (Some(low), Some(high), Some(buckets @ 1..=BUCKETS_MAX)) if low < high => {
                Ok(Self { low, high, buckets })
            }
            _ => {
                Err(wrong("histogram wants a lower and an upper bound and 1 to 1,048,576 buckets"))
            }
        }
    }

    /// All parts, and those below and above.
    const fn width(self) -> usize {
        self.buckets + 2
    }

    /// The part in which a value lies. NaN is greater than all others.
    fn place(self, value: f64) -> usize {
        match value {
            _ if value < self.low => 0,
            _ if value >= self.high || value.is_nan() => self.buckets + 1,
            _ => {
                // The whole difference may be more than there is.
                let half = self.high / 2.0 - self.low / 2.0;
                let part = (value / 2.0 - self.low / 2.0) / half;
                ((part * self.buckets as f64) as usize).min(self.buckets - 1) + 1
            }
        }
    }

    /// The part that a state names.
    fn known(self, place: i64) -> Result<usize> {
        let place = usize::try_from(place).ok().filter(|place| *place < self.width());
        place.ok_or_else(|| DataFusionError::Internal("a histogram has other parts".to_owned()))
    }
}

/// The counts of a group; none before its first row.
#[derive(Debug)]
struct Counts {
    parts: Parts,
    counts: Vec<i64>,
}

impl Counts {
    /// Counts so many values, up or down.
    fn count(&mut self, columns: &[ArrayRef], step: i64) {
        let values = columns[0].as_primitive::<Float64Type>();
        if values.is_empty() {
            return;
        }
        self.counts.resize(self.parts.width(), 0);
        for value in values.iter().flatten() {
            self.counts[self.parts.place(value)] += step;
        }
    }
}

impl Accumulator for Counts {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.count(columns, 1);
        Ok(())
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.count(columns, -1);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (places, counts) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        for (places, counts) in places.iter().flatten().zip(counts.iter().flatten()) {
            self.counts.resize(self.parts.width(), 0);
            let counts = counts.as_primitive::<Int64Type>().values();
            for (place, count) in places.as_primitive::<Int64Type>().values().iter().zip(counts) {
                self.counts[self.parts.known(*place)?] += count;
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let list = |values: Vec<i64>| {
            let values = Arc::new(Int64Array::from(values));
            SingleRowListArrayBuilder::new(values).build_list_scalar()
        };
        if self.counts.is_empty() {
            let null = ScalarValue::try_new_null(&DataType::List(list_field(DataType::Int64)))?;
            return Ok(vec![null.clone(), null]);
        }
        let full = self.counts.iter().enumerate().filter(|(_, count)| **count != 0);
        let (places, counts) = full.map(|(place, count)| (place as i64, *count)).unzip();
        Ok(vec![list(places), list(counts)])
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
