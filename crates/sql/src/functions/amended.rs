//! `min`, `max`, `sum` and `avg` of floats, where those of DataFusion lose readings beside a NaN or an
//! infinity; everything else is left to them.
//!
//! - Extremes of groups: compared as if nothing were above or below a NaN, whatever came before one is
//!   forgotten. Here NaN is the greatest number, as everywhere in SQL.
//! - Sums and means over a window that slides: subtracting what leaves it leaves NaN behind for good, and
//!   rounding errors pile up. Here nothing is subtracted, see [`SlidingSum`].

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use datafusion::arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{
    AggregateFunction, AggregateFunctionParams, WindowFunctionParams,
};
use datafusion::logical_expr::function::{
    AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs,
};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Expr, GroupsAccumulator, Operator,
    ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

/// What is amended in a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Amendment {
    Min,
    Max,
    Sum,
    Mean,
}

/// A function of DataFusion, amended.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Amended {
    inner: AggregateUDF,
    amendment: Amendment,
}

impl Amended {
    /// The amended form of a function, if it has one.
    pub(super) fn of(inner: &AggregateUDF) -> Option<Self> {
        let amendment = match inner.name() {
            "min" => Amendment::Min,
            "max" => Amendment::Max,
            "sum" => Amendment::Sum,
            "avg" => Amendment::Mean,
            _ => return None,
        };
        Some(Self { inner: inner.clone(), amendment })
    }

    fn inner(&self) -> &Arc<dyn AggregateUDFImpl> {
        self.inner.inner()
    }

    fn extremes<T>(&self, data_type: &DataType) -> Option<Box<dyn GroupsAccumulator>>
    where
        T: ArrowPrimitiveType + Send,
        T::Native: Float,
    {
        let (wanted, start) = match self.amendment {
            Amendment::Min => (Ordering::Less, T::Native::GREATEST),
            Amendment::Max => (Ordering::Greater, T::Native::LEAST),
            Amendment::Sum | Amendment::Mean => return None,
        };
        let keep = move |best: &mut T::Native, new: T::Native| {
            if new.order(*best) == wanted {
                *best = new;
            }
        };
        let accumulator = PrimitiveGroupsAccumulator::<T, _>::new(data_type, keep);
        Some(Box::new(accumulator.with_starting_value(start)))
    }
}

/// Floats in SQL's order: NaN is the greatest, and equal to itself.
trait Float: Copy {
    const LEAST: Self;
    const GREATEST: Self;
    fn order(self, other: Self) -> Ordering;
}

macro_rules! floats {
    ($($ty:ty),*) => {$(
        impl Float for $ty {
            const LEAST: Self = Self::NEG_INFINITY;
            const GREATEST: Self = Self::NAN;

            fn order(self, other: Self) -> Ordering {
                self.partial_cmp(&other).unwrap_or_else(|| self.is_nan().cmp(&other.is_nan()))
            }
        }
    )*};
}
floats!(f32, f64);

impl AggregateUDFImpl for Amended {
    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let data_type = args.return_field.data_type();
        let amended = match data_type {
            DataType::Float32 => self.extremes::<Float32Type>(data_type),
            DataType::Float64 => self.extremes::<Float64Type>(data_type),
            _ => None,
        };
        match amended {
            Some(amended) => Ok(amended),
            None => self.inner().create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let is_float =
            matches!(args.expr_fields, [field] if field.data_type() == &DataType::Float64);
        match self.amendment {
            Amendment::Sum if is_float && !args.is_distinct => Ok(Box::new(SlidingSum::new(false))),
            Amendment::Mean if is_float && !args.is_distinct => Ok(Box::new(SlidingSum::new(true))),
            _ => self.inner().create_sliding_accumulator(args),
        }
    }

    fn name(&self) -> &str {
        self.inner().name()
    }

    fn aliases(&self) -> &[String] {
        self.inner().aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner().signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner().return_type(types)
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        self.inner().return_field(fields)
    }

    fn is_nullable(&self) -> bool {
        self.inner().is_nullable()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner().coerce_types(types)
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner().schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner().human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner().window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner().display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner().window_function_display_name(params)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.inner().accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner().state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner().groups_accumulator_supported(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner().order_sensitivity()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.inner().simplify()
    }

    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        arg: &Expr,
        op: Operator,
        literal: &Expr,
        arg_is_left: bool,
    ) -> Result<Option<Expr>> {
        self.inner().simplify_expr_op_literal(function, arg, op, literal, arg_is_left)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner().reverse_expr()
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner().is_descending()
    }

    fn value_from_stats(&self, args: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.inner().value_from_stats(args)
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner().default_value(data_type)
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner().set_monotonicity(data_type)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner().documentation()
    }
}

/// The sum, or the mean, of the values in a window that slides: a queue of two stacks, of which the older
/// holds running sums from the values that leave last to those that leave next. Each value is added
/// twice in its time.
#[derive(Debug)]
struct SlidingSum {
    is_mean: bool,
    /// Sums of the older values: the last one of all of them, the one before of all but the next to leave.
    older: Vec<f64>,
    newer: Vec<f64>,
    /// The sum of the newer values.
    newer_sum: f64,
}

impl SlidingSum {
    const fn new(is_mean: bool) -> Self {
        Self { is_mean, older: Vec::new(), newer: Vec::new(), newer_sum: 0.0 }
    }

    fn push(&mut self, value: f64) {
        self.newer.push(value);
        self.newer_sum += value;
    }

    fn pop(&mut self) {
        if self.older.is_empty() {
            let mut sum = 0.0;
            self.older.extend(self.newer.drain(..).rev().map(|value| {
                sum += value;
                sum
            }));
            self.newer_sum = 0.0;
        }
        self.older.pop();
    }
}

impl Accumulator for SlidingSum {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        columns[0]
            .as_primitive::<Float64Type>()
            .iter()
            .flatten()
            .for_each(|value| self.push(value));
        Ok(())
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let left = columns[0].len() - columns[0].logical_null_count();
        (0..left).for_each(|_| self.pop());
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let count = self.older.len() + self.newer.len();
        let sum = self.older.last().copied().unwrap_or_default() + self.newer_sum;
        let value = if self.is_mean { sum / count as f64 } else { sum };
        Ok(ScalarValue::Float64((count > 0).then_some(value)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + (self.older.capacity() + self.newer.capacity()) * size_of::<f64>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Err(never_merged())
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(never_merged())
    }
}

/// Windows are not computed in parts.
fn never_merged() -> DataFusionError {
    DataFusionError::Internal("a sliding sum was to be merged".into())
}
