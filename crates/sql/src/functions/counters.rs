//! `increase(value, time)` and `rate(value, time)` of counters, as Prometheus defines them but without its
//! extrapolation: a counter that falls was reset, and has grown by what it shows since.
//!
//! Whole numbers are subtracted as such: beyond 2^53 floats do not have all of them.

mod readings;

use std::sync::Arc;

use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Float64Type, Int64Type, TimeUnit, UInt64Type,
};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};

use self::readings::Readings;
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

/// As what the values of a counter are taken.
fn counted(value: &DataType) -> DataType {
    match value {
        DataType::UInt64 => DataType::UInt64,
        whole if whole.is_integer() => DataType::Int64,
        _ => DataType::Float64,
    }
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
                Ok(vec![counted(value), DataType::Timestamp(TimeUnit::Nanosecond, None)])
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
        let value =
            args.input_fields.first().map_or(DataType::Float64, |of| counted(of.data_type()));
        Ok(vec![list("time", DataType::Int64), list("value", value)])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return Err(to_datafusion(tidefall_types::Error::invalid(format!(
                "{} looks at all readings of a counter; leave DISTINCT out",
                self.name
            ))));
        }
        let value = args.expr_fields.first().map(|of| counted(of.data_type()));
        Ok(match value {
            Some(DataType::Int64) => Box::new(Readings::<Int64Type>::new(self.per_second)),
            Some(DataType::UInt64) => Box::new(Readings::<UInt64Type>::new(self.per_second)),
            _ => Box::new(Readings::<Float64Type>::new(self.per_second)),
        })
    }
}
