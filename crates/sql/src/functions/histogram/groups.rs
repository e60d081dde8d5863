//! The counts of many groups: memory grows with what is counted, not with the parts that there could be.

use std::collections::BTreeMap;
use std::mem::size_of_val;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use tidefall_types::Error;

use super::{Parts, list_field};
use crate::error::to_datafusion;

/// Bytes that the answers for all groups may have: they are made at once, and nobody charges them.
const ANSWER_BYTES_MAX: usize = 128 << 20;

/// Bytes that a count takes in a tree, about.
const ENTRY_BYTES: usize = 2 * size_of::<((usize, usize), i64)>();

/// The counts of many groups.
#[derive(Debug)]
pub(super) struct Groups {
    parts: Parts,
    /// Groups and their parts, if there is something in them.
    counts: BTreeMap<(usize, usize), i64>,
    /// Whether a group has rows.
    has_rows: Vec<bool>,
}

impl Groups {
    pub(super) const fn new(parts: Parts) -> Self {
        Self { parts, counts: BTreeMap::new(), has_rows: Vec::new() }
    }

    fn add(&mut self, group: usize, place: usize, count: i64) {
        *self.counts.entry((group, place)).or_default() += count;
    }

    /// Takes the first groups out: whether they have rows, and their counts.
    fn take(&mut self, emit_to: EmitTo) -> (Vec<bool>, BTreeMap<(usize, usize), i64>) {
        let has_rows = emit_to.take_needed(&mut self.has_rows);
        let first = has_rows.len();
        let left = self.counts.split_off(&(first, 0));
        let counts = std::mem::take(&mut self.counts);
        let moved = left.into_iter().map(|((group, place), count)| ((group - first, place), count));
        self.counts = moved.collect();
        (has_rows, counts)
    }
}

/// A list for each group; null for those that have no rows.
fn lists(
    lengths: impl Iterator<Item = usize>,
    values: Vec<i64>,
    has_rows: &[bool],
) -> Result<ArrayRef> {
    let offsets = OffsetBuffer::from_lengths(lengths);
    let nulls = NullBuffer::from(has_rows.to_vec());
    let values = Arc::new(Int64Array::from(values));
    Ok(Arc::new(ListArray::try_new(list_field(DataType::Int64), offsets, values, Some(nulls))?))
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        columns: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.has_rows.resize(group_count, false);
        let values = columns[0].as_primitive::<Float64Type>();
        for (row, group) in groups.iter().enumerate() {
            if filter.is_some_and(|filter| filter.is_null(row) || !filter.value(row)) {
                continue;
            }
            self.has_rows[*group] = true;
            if values.is_valid(row) {
                self.add(*group, self.parts.place(values.value(row)), 1);
            }
        }
        Ok(())
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.has_rows.resize(group_count, false);
        let (places, counts) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        for ((group, places), counts) in groups.iter().zip(places.iter()).zip(counts.iter()) {
            let (Some(places), Some(counts)) = (places, counts) else { continue };
            self.has_rows[*group] = true;
            let counts = counts.as_primitive::<Int64Type>().values();
            for (place, count) in places.as_primitive::<Int64Type>().values().iter().zip(counts) {
                self.add(*group, self.parts.known(*place)?, *count);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (has_rows, counts) = self.take(emit_to);
        let width = self.parts.width();
        let lengths = || has_rows.iter().map(|has_rows| if *has_rows { width } else { 0 });
        let rows: usize = lengths().sum();
        if rows > ANSWER_BYTES_MAX / size_of::<i64>() {
            return Err(to_datafusion(Error::limit(format!(
                "the histograms of {} groups would take more than {ANSWER_BYTES_MAX} bytes; ask for fewer buckets, or \
                 fewer groups at a time",
                has_rows.len()
            ))));
        }
        let mut starts = Vec::with_capacity(has_rows.len());
        lengths().fold(0, |start, length| {
            starts.push(start);
            start + length
        });
        let mut values = vec![0; rows];
        for ((group, place), count) in counts {
            values[starts[group] + place] = count;
        }
        lists(lengths(), values, &has_rows)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (has_rows, counts) = self.take(emit_to);
        let mut lengths = vec![0; has_rows.len()];
        counts.keys().for_each(|(group, _)| lengths[*group] += 1);
        let places = counts.keys().map(|(_, place)| *place as i64).collect();
        let lengths = || lengths.iter().copied();
        let counts = counts.values().copied().collect();
        Ok(vec![lists(lengths(), places, &has_rows)?, lists(lengths(), counts, &has_rows)?])
    }

    fn convert_to_state(
        &self,
        columns: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let groups: Vec<usize> = (0..columns[0].len()).collect();
        let mut each = Self::new(self.parts);
        each.update_batch(columns, &groups, filter, groups.len())?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.counts.len() * ENTRY_BYTES + self.has_rows.capacity()
    }
}
