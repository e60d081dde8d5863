//! `interpolate(value, time) OVER (PARTITION BY sensor ORDER BY time)`: a value that is missing lies on the
//! line between the one before it and the one behind it. Before the first value and behind the last
//! there is none.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Float64Type, TimeUnit, TimestampNanosecondType,
};
use datafusion::error::Result;
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    LimitEffect, PartitionEvaluator, Signature, Volatility, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;

use tidefall_types::OneForm;

use crate::error::to_datafusion;

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Interpolate;

static SIGNATURE: std::sync::LazyLock<Signature> =
    std::sync::LazyLock::new(|| Signature::user_defined(Volatility::Immutable));

impl WindowUDFImpl for Interpolate {
    fn name(&self) -> &str {
        "interpolate"
    }

    fn signature(&self) -> &Signature {
        &SIGNATURE
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [value, DataType::Timestamp(..)] if value.is_numeric() || value.is_null() => {
                Ok(vec![DataType::Float64, DataType::Timestamp(TimeUnit::Nanosecond, None)])
            }
            _ => Err(to_datafusion(tidefall_types::Error::invalid(
                "interpolate wants a number, its time and the order of the rows: \
                 interpolate(value, time) OVER (PARTITION BY sensor ORDER BY time)",
            ))),
        }
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), DataType::Float64, true)))
    }

    fn partition_evaluator(
        &self,
        _: PartitionEvaluatorArgs<'_>,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Lines))
    }

    fn limit_effect(&self, _: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        LimitEffect::Unknown
    }
}

/// Draws lines over all rows of a partition.
#[derive(Debug)]
struct Lines;

impl PartitionEvaluator for Lines {
    fn evaluate_all(&mut self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let values = columns[0].as_primitive::<Float64Type>();
        let times = columns[1].as_primitive::<TimestampNanosecondType>();
        let known = |row: &usize| values.is_valid(*row) && times.is_valid(*row);
        let mut found: Vec<Option<f64>> = values.iter().collect();
        let mut before: Option<usize> = None;
        for row in (0..rows).filter(known) {
            if let Some(before) = before.filter(|before| row - before > 1) {
                let start = (times.value(before), values.value(before));
                let end = (times.value(row), values.value(row));
                for gap in (before + 1..row).filter(|gap| times.is_valid(*gap)) {
                    found[gap] = Some(on_line(start, end, times.value(gap)));
                }
            }
            before = Some(row);
        }
        Ok(Arc::new(Float64Array::from(found)))
    }
}

/// The value at a time on the line through two points.
fn on_line(start: (i64, f64), end: (i64, f64), time_ns: i64) -> f64 {
    let distance = |to: i64| i128::from(to) - i128::from(start.0);
    match distance(end.0) {
        0 => start.1,
        all => {
            let way = distance(time_ns) as f64 / all as f64;
            (start.1 + (end.1 - start.1) * way).one_form()
        }
    }
}
