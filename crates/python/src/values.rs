//! Answers on their way to Python.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array as _, ArrayRef};
use arrow_schema::DataType;
use pyo3::IntoPyObject;
use tidefall_questions::{Block, Points, Tags};
use tidefall_types::Result;

use crate::array::{Array, NumpyType};
use crate::stream::Batch;

/// Values: numbers as memory that numpy views, all others and those with nulls as a column of Arrow, line behind line.
#[derive(IntoPyObject)]
pub(crate) enum Values {
    Numbers(Array),
    Others(Batch),
}

/// The times and the values of a block: of so many lines, or of a single one by itself.
pub(crate) fn block_of(block: Block, lines: Option<usize>) -> Result<(Array, Values)> {
    let shape = lines.map(|lines| (lines, block.time.len()));
    Ok((Array::times(block.time.into()), values_of(block.values, shape)?))
}

/// The tags, the times and the values of points.
pub(crate) fn points_of(points: Points) -> Result<(Tags, Array, Values)> {
    let Points { tags, time, values } = points;
    Ok((tags, Array::times(time), values_of(values, None)?))
}

fn values_of(values: ArrayRef, shape: Option<(usize, usize)>) -> Result<Values> {
    if values.null_count() > 0 {
        return Ok(Values::Others(Batch::of(values)?));
    }
    Ok(Values::Numbers(match values.data_type() {
        DataType::Int8 => numbers::<Int8Type>(values, shape),
        DataType::Int16 => numbers::<Int16Type>(values, shape),
        DataType::Int32 => numbers::<Int32Type>(values, shape),
        DataType::Int64 => numbers::<Int64Type>(values, shape),
        DataType::UInt8 => numbers::<UInt8Type>(values, shape),
        DataType::UInt16 => numbers::<UInt16Type>(values, shape),
        DataType::UInt32 => numbers::<UInt32Type>(values, shape),
        DataType::UInt64 => numbers::<UInt64Type>(values, shape),
        DataType::Float32 => numbers::<Float32Type>(values, shape),
        DataType::Float64 => numbers::<Float64Type>(values, shape),
        _ => return Ok(Values::Others(Batch::of(values)?)),
    }))
}

/// Numbers as they are in memory, if nobody else has them.
fn numbers<T: ArrowPrimitiveType>(values: ArrayRef, shape: Option<(usize, usize)>) -> Array
where
    T::Native: NumpyType,
{
    let typed = values.as_primitive::<T>().clone();
    drop(values);
    let (_, values, _) = typed.into_parts();
    let values = Vec::from(values);
    match shape {
        Some((lines, rows)) => Array::matrix(values, lines, rows),
        None => Array::new(values),
    }
}
