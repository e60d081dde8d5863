//! Means of whole numbers: their sum, which is exact, by their count.
//!
//! DataFusion makes floats of them, whose sum depends on the order in which they come: beyond 2^53 what cancels out leaves
//! something behind. Two floats may also be one value that two whole numbers are not.

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
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{HashMap, HashSet, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::{
    Accumulator, Coercion, EmitTo, GroupsAccumulator, TypeSignature, TypeSignatureClass,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::accumulate::accumulate;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::nulls::filter_to_nulls;

use super::percentile::Frame;

/// Holds the sum of as many values of 64 bits as there may be rows.
const SUM: DataType = DataType::Decimal128(38, 0);

/// What a mean takes as it is.
pub(super) fn takes() -> TypeSignature {
    TypeSignature::Coercible(vec![Coercion::new_exact(TypeSignatureClass::Integer)])
}

/// What is kept between the stages of an aggregation.
pub(super) fn state_fields(name: &str, of: &DataType, is_distinct: bool) -> Vec<FieldRef> {
    let field =
        |part: &str, of: DataType| Arc::new(Field::new(format!("{name}[{part}]"), of, true));
    match is_distinct {
        true => {
            let value = Field::new_list_field(wide(of), true);
            vec![field("values", DataType::List(Arc::new(value)))]
        }
        false => vec![field("count", DataType::UInt64), field("sum", SUM)],
    }
}

/// The type of 64 bits that whole numbers of a type fit.
fn wide(of: &DataType) -> DataType {
    if *of == DataType::UInt64 { DataType::UInt64 } else { DataType::Int64 }
}

/// A whole number of 64 bits.
trait Whole: Copy + Into<i128> {
    /// Its upper and its lower half.
    fn halves(self) -> (i64, u64);
    fn bits(self) -> u64;
}

impl Whole for i64 {
    fn halves(self) -> (i64, u64) {
        (self >> 32, u64::from(self as u32))
    }

    fn bits(self) -> u64 {
        self as u64
    }
}

impl Whole for u64 {
    fn halves(self) -> (i64, u64) {
        ((self >> 32) as i64, u64::from(self as u32))
    }

    fn bits(self) -> u64 {
        self
    }
}

/// What values come to. Their halves are added up side by side.
fn sum(values: &[impl Whole]) -> i128 {
    // So many halves do not wrap around.
    values
        .chunks(1 << 30)
        .map(|values| {
            let (upper, lower) = values.iter().fold((0_i64, 0_u64), |(upper, lower), value| {
                let halves = value.halves();
                (upper + halves.0, lower + halves.1)
            });
            (i128::from(upper) << 32) + i128::from(lower)
        })
        .sum()
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

/// Which values count.
#[derive(Debug)]
enum Counted {
    All,
    /// Each once: the bits of those that are there.
    Once(HashSet<u64>),
    /// Each once while it is in a window: how often that is.
    OnceWithin(HashMap<u64, u64>),
}

/// The mean of one group, or in one window.
#[derive(Debug)]
pub(super) struct WholeMean {
    count: u64,
    sum: i128,
    counted: Counted,
    /// The type of the values of 64 bits.
    wide: DataType,
}

impl WholeMean {
    pub(super) fn new(of: &DataType, frame: Frame) -> Self {
        let counted = match frame {
            Frame::Grows(false) | Frame::Slides(false) => Counted::All,
            Frame::Grows(true) => Counted::Once(HashSet::default()),
            Frame::Slides(true) => Counted::OnceWithin(HashMap::default()),
        };
        Self { count: 0, sum: 0, counted, wide: wide(of) }
    }

    fn add<T: ArrowPrimitiveType<Native: Whole>>(&mut self, values: &PrimitiveArray<T>) {
        match &mut self.counted {
            Counted::All if values.null_count() == 0 => {
                self.count += values.len() as u64;
                self.sum += sum(values.values());
            }
            Counted::All => values.iter().flatten().for_each(|value| {
                self.count += 1;
                self.sum += value.into();
            }),
            Counted::Once(seen) => {
                for value in values.iter().flatten().filter(|value| seen.insert(value.bits())) {
                    self.count += 1;
                    self.sum += value.into();
                }
            }
            Counted::OnceWithin(times) => {
                for value in values.iter().flatten() {
                    let times = times.entry(value.bits()).or_default();
                    *times += 1;
                    if *times == 1 {
                        self.count += 1;
                        self.sum += value.into();
                    }
                }
            }
        }
    }

    fn take<T: ArrowPrimitiveType<Native: Whole>>(&mut self, values: &PrimitiveArray<T>) {
        for value in values.iter().flatten() {
            if let Counted::OnceWithin(times) = &mut self.counted {
                let Some(left) = times.get_mut(&value.bits()) else { continue };
                *left -= 1;
                if *left > 0 {
                    continue;
                }
                times.remove(&value.bits());
            }
            self.count -= 1;
            self.sum -= value.into();
        }
    }
}

impl Accumulator for WholeMean {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        with_whole!(&columns[0], |values| self.add(values));
        Ok(())
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        with_whole!(&columns[0], |values| self.take(values));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        !matches!(self.counted, Counted::Once(_))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64((self.count > 0).then(|| mean(self.sum, self.count))))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(match &mut self.counted {
            Counted::Once(seen) => {
                let bits = UInt64Array::from_iter_values(seen.drain());
                let values: ArrayRef = match self.wide {
                    DataType::UInt64 => Arc::new(bits),
                    _ => Arc::new(bits.unary::<_, Int64Type>(|bits| bits as i64)),
                };
                vec![SingleRowListArrayBuilder::new(values).build_list_scalar()]
            }
            _ => vec![
                ScalarValue::UInt64(Some(self.count)),
                ScalarValue::Decimal128(Some(self.sum), 38, 0),
            ],
        })
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        if matches!(self.counted, Counted::Once(_)) {
            return states[0].as_list::<i32>().iter().flatten().try_for_each(|values| {
                with_whole!(&values, |values| self.add(values));
                Ok(())
            });
        }
        self.count += states[0].as_primitive::<UInt64Type>().iter().flatten().sum::<u64>();
        self.sum += states[1].as_primitive::<Decimal128Type>().iter().flatten().sum::<i128>();
        Ok(())
    }

    fn size(&self) -> usize {
        let values = match &self.counted {
            Counted::All => 0,
            Counted::Once(seen) => seen.allocation_size(),
            Counted::OnceWithin(times) => times.allocation_size(),
        };
        size_of_val(self) + values
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
        let sums = Decimal128Array::from(sums).with_data_type(SUM);
        Ok(vec![Arc::new(UInt64Array::from(counts)), Arc::new(sums)])
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
