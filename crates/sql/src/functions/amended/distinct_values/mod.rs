//! `count(DISTINCT value)` by group, of integers and times of eight bytes. Floats seldom come again in other groups, and are left
//! to DataFusion.
//!
//! Many sensors have readings at the same times, and integers have few values. So each value has a number, and each group
//! a bit for each number, in blocks that are there once a bit is set (`numbered.rs`). Where values do not come again,
//! that is more than the values themselves: then each group has a list of them (`listed.rs`).

mod listed;
mod numbered;
#[cfg(test)]
mod tests;

use std::mem::size_of_val;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BooleanArray, Int64Array, make_array,
};
use datafusion::arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use self::listed::Listed;
use self::numbered::Numbered;
use super::distinct::{each_alone, is_kept, lists_of};

/// Bytes that numbered values may take whatever lists would.
pub(crate) const NUMBERED_BYTES: usize = 8 << 20;

/// Whether values of a type are counted here.
pub(crate) fn is_value_type(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Int64
            | DataType::UInt64
            | DataType::Timestamp(..)
            | DataType::Date64
            | DataType::Time64(_)
            | DataType::Duration(_)
    )
}

/// Counts the distinct values of many groups.
#[derive(Debug)]
pub(super) struct DistinctValues {
    data_type: DataType,
    group_count: usize,
    kept: Kept,
}

#[derive(Debug)]
enum Kept {
    Numbered(Numbered),
    Listed(Listed),
}

impl DistinctValues {
    pub(super) fn new(data_type: &DataType) -> Self {
        let data_type = data_type.clone();
        Self { data_type, group_count: 0, kept: Kept::Numbered(Numbered::default()) }
    }

    fn begin(&mut self, group_count: usize) -> Result<()> {
        if u32::try_from(group_count).is_err() {
            return exec_err!("count(DISTINCT) has more than {} groups", u32::MAX);
        }
        self.group_count = group_count;
        match &mut self.kept {
            Kept::Numbered(numbered) => numbered.begin(group_count),
            Kept::Listed(listed) => listed.begin(group_count),
        }
        Ok(())
    }

    fn add(&mut self, pairs: impl Iterator<Item = (usize, u64)>) {
        match &mut self.kept {
            Kept::Numbered(numbered) => pairs.for_each(|(group, value)| numbered.add(group, value)),
            Kept::Listed(listed) => pairs.for_each(|(group, value)| listed.add(group, value)),
        }
    }

    /// Goes over to lists if they are shorter.
    fn end(&mut self) {
        let Kept::Numbered(numbered) = &self.kept else { return };
        let bytes = numbered.bytes();
        if bytes <= NUMBERED_BYTES
            || bytes <= Listed::bytes_about(self.group_count, numbered.pairs())
        {
            return;
        }
        let (lengths, values) = numbered.lists(self.group_count);
        self.kept = Kept::Listed(Listed::of(&lengths, &values));
    }

    /// The numbers of values of the groups that are emitted, and the values, if they are wanted.
    fn emit(&mut self, emit_to: EmitTo, with_values: bool) -> (Vec<usize>, Vec<u64>) {
        let count = match emit_to {
            EmitTo::All => self.group_count,
            EmitTo::First(count) => count,
        };
        self.group_count -= count;
        match &mut self.kept {
            Kept::Numbered(numbered) => {
                let emitted = match with_values {
                    true => numbered.lists(count),
                    false => (numbered.lengths(count), Vec::new()),
                };
                numbered.forget(count);
                emitted
            }
            Kept::Listed(listed) => {
                let emitted = listed.take(count, with_values);
                if self.group_count == 0 {
                    self.kept = Kept::Numbered(Numbered::default());
                }
                emitted
            }
        }
    }
}

impl GroupsAccumulator for DistinctValues {
    fn update_batch(
        &mut self,
        columns: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.begin(group_count)?;
        let column = &columns[0];
        let values = values_of(column);
        let pairs = groups.iter().copied().zip(values.iter().copied());
        let nulls = column.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        if filter.is_none() && nulls.is_none() {
            self.add(pairs);
        } else {
            let is_valid = |nulls: &NullBuffer, row| nulls.is_valid(row);
            let kept = pairs.enumerate().filter(|(row, _)| {
                is_kept(filter, *row) && nulls.as_ref().is_none_or(|nulls| is_valid(nulls, *row))
            });
            self.add(kept.map(|(_, pair)| pair));
        }
        self.end();
        Ok(())
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.begin(group_count)?;
        let lists = states[0].as_list::<i32>();
        let offsets = lists.offsets();
        // A part of a column has the values of the whole.
        let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else { return Ok(()) };
        let (first, last) = (*first as usize, *last as usize);
        let values = values_of(&lists.values().slice(first, last - first));
        for (group, places) in groups.iter().zip(offsets.windows(2)) {
            let values = &values[places[0] as usize - first..places[1] as usize - first];
            self.add(values.iter().map(|value| (*group, *value)));
        }
        self.end();
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (counts, _) = self.emit(emit_to, false);
        Ok(Arc::new(Int64Array::from_iter_values(counts.into_iter().map(|count| count as i64))))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (lengths, values) = self.emit(emit_to, true);
        let data = ArrayData::builder(self.data_type.clone())
            .len(values.len())
            .add_buffer(Buffer::from_vec(values))
            .build()?;
        Ok(vec![lists_of(&self.data_type, lengths.into_iter(), &make_array(data))?])
    }

    fn convert_to_state(
        &self,
        columns: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        Ok(vec![each_alone(&self.data_type, &columns[0], filter)?])
    }

    fn size(&self) -> usize {
        let kept = match &self.kept {
            Kept::Numbered(numbered) => numbered.bytes(),
            Kept::Listed(listed) => listed.bytes(),
        };
        size_of_val(self) + kept
    }
}

/// The bits of the values of a column. What is null has any.
fn values_of(column: &ArrayRef) -> ScalarBuffer<u64> {
    let data = column.to_data();
    match data.buffers().first() {
        Some(buffer) => ScalarBuffer::new(buffer.clone(), data.offset(), data.len()),
        None => ScalarBuffer::default(),
    }
}
