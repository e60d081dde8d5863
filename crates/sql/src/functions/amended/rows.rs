//! The least and the greatest of structs and lists, as `ORDER BY` has them: where a part is NULL, it is the greatest. DataFusion takes it
//! for equal to every other.

use std::cmp::Ordering;
use std::collections::VecDeque;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, UInt32Array};
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::row::{OwnedRow, RowConverter};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use super::distinct::is_kept;
use crate::functions::nested_order::converter_of;

/// The extreme of values that have parts.
#[derive(Debug)]
pub(super) struct ExtremeRow {
    /// How the extreme stands to the others.
    wanted: Ordering,
    /// Whether values leave again, the earliest first.
    slides: bool,
    converter: RowConverter,
    data_type: DataType,
    /// The values that are the extreme of those that came with or after them, and which in the row of all values each is.
    best: VecDeque<(usize, OwnedRow)>,
    best_bytes: usize,
    come: usize,
    left: usize,
}

impl ExtremeRow {
    pub(super) fn new(wanted: Ordering, slides: bool, data_type: &DataType) -> Result<Self> {
        Ok(Self {
            wanted,
            slides,
            converter: converter_of(data_type)?,
            data_type: data_type.clone(),
            best: VecDeque::new(),
            best_bytes: 0,
            come: 0,
            left: 0,
        })
    }
}

impl Accumulator for ExtremeRow {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let values = &columns[0];
        let rows = self.converter.convert_columns(std::slice::from_ref(values))?;
        let nulls = values.logical_nulls();
        let is_there = |at: &usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*at));
        for row in (0..values.len()).filter(is_there).map(|at| rows.row(at)) {
            while let Some((_, other)) = self.best.back()
                && row.cmp(&other.row()) == self.wanted
            {
                self.best_bytes -= other.row().data().len();
                self.best.pop_back();
            }
            if self.slides || self.best.is_empty() {
                self.best_bytes += row.data().len();
                self.best.push_back((self.come, row.owned()));
            }
            self.come += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.left += columns[0].len() - columns[0].logical_null_count();
        while let Some((at, row)) = self.best.front()
            && *at < self.left
        {
            self.best_bytes -= row.row().data().len();
            self.best.pop_front();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        self.slides
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let Some((_, best)) = self.best.front() else {
            return ScalarValue::try_from(&self.data_type);
        };
        let columns = self.converter.convert_rows([best.row()])?;
        // Tags have come out as texts.
        ScalarValue::try_from_array(&cast(&columns[0], &self.data_type)?, 0)
    }

    fn size(&self) -> usize {
        let places = self.best.capacity() * size_of::<(usize, OwnedRow)>();
        size_of_val(self) + self.converter.size() + places + self.best_bytes
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}

/// The extremes of groups, whose values share one converter.
pub(super) struct ExtremeRows {
    wanted: Ordering,
    converter: RowConverter,
    data_type: DataType,
    best: Vec<Option<OwnedRow>>,
    best_bytes: usize,
}

impl ExtremeRows {
    pub(super) fn new(wanted: Ordering, data_type: &DataType) -> Result<Self> {
        Ok(Self {
            wanted,
            converter: converter_of(data_type)?,
            data_type: data_type.clone(),
            best: Vec::new(),
            best_bytes: 0,
        })
    }
}

impl GroupsAccumulator for ExtremeRows {
    fn update_batch(
        &mut self,
        columns: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.best.resize(group_count, None);
        let values = &columns[0];
        let nulls = values.logical_nulls();
        let rows = self.converter.convert_columns(std::slice::from_ref(values))?;
        for (at, group) in groups.iter().enumerate() {
            let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(at));
            if is_null || !is_kept(filter, at) {
                continue;
            }
            let (row, best) = (rows.row(at), &mut self.best[*group]);
            if best.as_ref().is_some_and(|best| row.cmp(&best.row()) != self.wanted) {
                continue;
            }
            self.best_bytes += row.data().len();
            if let Some(before) = best.replace(row.owned()) {
                self.best_bytes -= before.row().data().len();
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let emitted = emit_to.take_needed(&mut self.best);
        let there: Vec<_> = emitted.iter().flatten().map(OwnedRow::row).collect();
        self.best_bytes -= there.iter().map(|row| row.data().len()).sum::<usize>();
        let values = self.converter.convert_rows(there)?.remove(0);
        let mut next = 0..;
        let places: UInt32Array =
            emitted.iter().map(|best| best.as_ref().and_then(|_| next.next())).collect();
        // Tags have come out as texts.
        Ok(cast(&take(&values, &places, None)?, &self.data_type)?)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.update_batch(states, groups, None, group_count)
    }

    fn convert_to_state(
        &self,
        columns: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = 0..columns[0].len();
        let kept: UInt32Array =
            rows.map(|row| is_kept(filter, row).then_some(row as u32)).collect();
        Ok(vec![take(&columns[0], &kept, None)?])
    }

    fn size(&self) -> usize {
        let places = self.best.capacity() * size_of::<Option<OwnedRow>>();
        size_of_val(self) + self.converter.size() + places + self.best_bytes
    }
}
