//! Means of whole numbers: their sum, which is exact, by their count.
//!
//! DataFusion makes floats of them, whose sum depends on the order in which they come: beyond 2^53 what cancels out leaves
//! something behind. Two floats may also be one value that two whole numbers are not.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, Float64Array,
    PrimitiveArray, UInt64Array,
};
use datafusion::arrow::buffer::{BooleanBuffer, NullBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Int64Type, UInt64Type,
};
use datafusion::common::ScalarValue;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::error::Result;
use datafusion::logical_expr::{
    Accumulator, Coercion, EmitTo, GroupsAccumulator, Signature, TypeSignature, TypeSignatureClass,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::accumulate;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::nulls::filter_to_nulls;

/// Holds the sum of as many values of 64 bits as there may be rows.
const SUM: DataType = DataType::Decimal128(38, 0);

/// The signature of a mean that takes whole numbers as they are.
pub(super) fn signature(plain: &Signature) -> Signature {
    let whole = Coercion::new_exact(TypeSignatureClass::Integer);
    let mut all = vec![TypeSignature::Coercible(vec![whole])];
    match &plain.type_signature {
        TypeSignature::OneOf(known) => all.extend(known.iter().cloned()),
        only => all.push(only.clone()),
    }
    Signature { type_signature: TypeSignature::OneOf(all), ..plain.clone() }
}

/// What is kept between the stages of an aggregation.
pub(super) fn state_fields(name: &str, is_distinct: bool) -> Vec<FieldRef> {
    let field =
        |part: &str, of: DataType| Arc::new(Field::new(format!("{name}[{part}]"), of, true));
    match is_distinct {
        true => {
            let values = DataType::List(Arc::new(Field::new_list_field(SUM, true)));
            vec![field("values", values)]
        }
        false => vec![field("count", DataType::UInt64), field("sum", SUM)],
    }
}

/// Calls a closure with a column of whole numbers of 64 bits.
macro_rules! with_whole {
    ($column:expr, |$values:ident| $body:expr) => {
        match $column.data_type() {
            DataType::UInt64 => {
                let $values = $column.as_primitive::<UInt64Type>();
                $body
            }
            DataType::Int64 => {
                let $values = $column.as_primitive::<Int64Type>();
                $body
            }
            _ => {
                let cast = cast($column, &DataType::Int64)?;
                let $values = cast.as_primitive::<Int64Type>();
                $body
            }
        }
    };
}

fn mean(sum: i128, count: u64) -> f64 {
    sum as f64 / count as f64
}

fn decimals(sums: Vec<i128>) -> Result<ArrayRef> {
    Ok(Arc::new(Decimal128Array::from(sums).with_data_type(SUM)))
}

/// The mean of one group, or in one window.
#[derive(Debug, Default)]
pub(super) struct WholeMean {
    count: u64,
    sum: i128,
    /// How often each value is there, where each counts once.
    values: Option<HashMap<i128, u64>>,
}

impl WholeMean {
    pub(super) fn new(is_distinct: bool) -> Self {
        Self { values: is_distinct.then(HashMap::new), ..Self::default() }
    }

    fn add(&mut self, value: i128) {
        if let Some(values) = &mut self.values {
            let times = values.entry(value).or_default();
            *times += 1;
            if *times > 1 {
                return;
            }
        }
        self.count += 1;
        self.sum += value;
    }

    fn take(&mut self, value: i128) {
        if let Some(values) = &mut self.values {
            let Some(times) = values.get_mut(&value) else { return };
            *times -= 1;
            if *times > 0 {
                return;
            }
            values.remove(&value);
        }
        self.count -= 1;
        self.sum -= value;
    }
}

fn each<T: ArrowPrimitiveType>(values: &PrimitiveArray<T>, with: impl FnMut(i128))
where
    T::Native: Into<i128>,
{
    values.iter().flatten().map(Into::into).for_each(with);
}

impl Accumulator for WholeMean {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        with_whole!(&columns[0], |values| each(values, |value| self.add(value)));
        Ok(())
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        with_whole!(&columns[0], |values| each(values, |value| self.take(value)));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64((self.count > 0).then(|| mean(self.sum, self.count))))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(match &self.values {
            Some(values) => {
                let values = decimals(values.keys().copied().collect())?;
                vec![SingleRowListArrayBuilder::new(values).build_list_scalar()]
            }
            None => vec![
                ScalarValue::UInt64(Some(self.count)),
                ScalarValue::Decimal128(Some(self.sum), 38, 0),
            ],
        })
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        if self.values.is_some() {
            for values in states[0].as_list::<i32>().iter().flatten() {
                each(values.as_primitive::<Decimal128Type>(), |value| self.add(value));
            }
            return Ok(());
        }
        self.count += states[0].as_primitive::<UInt64Type>().iter().flatten().sum::<u64>();
        self.sum += states[1].as_primitive::<Decimal128Type>().iter().flatten().sum::<i128>();
        Ok(())
    }

    fn size(&self) -> usize {
        let values = self.values.as_ref().map_or(0, HashMap::capacity);
        size_of_val(self) + values * size_of::<(i128, u64)>()
    }
}

/// The means of groups.
#[derive(Debug, Default)]
pub(super) struct WholeMeans {
    counts: Vec<u64>,
    sums: Vec<i128>,
}

impl WholeMeans {
    fn resize(&mut self, groups: usize) {
        self.counts.resize(groups, 0);
        self.sums.resize(groups, 0);
    }

    fn add<T: ArrowPrimitiveType + Send>(
        &mut self,
        values: &PrimitiveArray<T>,
        groups: &[usize],
        filter: Option<&BooleanArray>,
    ) where
        T::Native: Into<i128>,
    {
        accumulate(groups, values, filter, |group, value| {
            self.counts[group] += 1;
            self.sums[group] += value.into();
        });
    }
}

impl GroupsAccumulator for WholeMeans {
    fn update_batch(
        &mut self,
        columns: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.resize(group_count);
        with_whole!(&columns[0], |values| self.add(values, groups, filter));
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let counts = emit_to.take_needed(&mut self.counts);
        let sums = emit_to.take_needed(&mut self.sums);
        let valid = BooleanBuffer::collect_bool(counts.len(), |group| counts[group] > 0);
        let means = sums.into_iter().zip(counts).map(|(sum, count)| mean(sum, count.max(1)));
        let means: Vec<f64> = means.collect();
        Ok(Arc::new(Float64Array::new(means.into(), Some(NullBuffer::new(valid)))))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let counts = emit_to.take_needed(&mut self.counts);
        let sums = emit_to.take_needed(&mut self.sums);
        Ok(vec![Arc::new(UInt64Array::from(counts)), decimals(sums)?])
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.resize(group_count);
        let counts = states[0].as_primitive::<UInt64Type>();
        accumulate(groups, counts, None, |group, count| self.counts[group] += count);
        let sums = states[1].as_primitive::<Decimal128Type>();
        accumulate(groups, sums, None, |group, sum| self.sums[group] += sum);
        Ok(())
    }

    fn convert_to_state(
        &self,
        columns: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let sums = cast(&columns[0], &SUM)?;
        let counted = NullBuffer::union(sums.nulls(), filter.map(filter_to_nulls).as_ref());
        let sums = sums.as_primitive::<Decimal128Type>().values().clone();
        let sums = Decimal128Array::new(sums, counted.clone()).with_data_type(SUM);
        let counts = UInt64Array::new(vec![1; sums.len()].into(), counted);
        Ok(vec![Arc::new(counts), Arc::new(sums)])
    }

    fn size(&self) -> usize {
        self.counts.capacity() * size_of::<u64>() + self.sums.capacity() * size_of::<i128>()
    }
}
