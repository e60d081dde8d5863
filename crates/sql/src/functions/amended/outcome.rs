//! Answers in their one form.

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use tidefall_types::{OneForm, one_form};

/// An accumulator whose floats are brought into their one form.
#[derive(Debug)]
pub(super) struct InOneForm<A: ?Sized>(pub(super) Box<A>);

impl Accumulator for InOneForm<dyn Accumulator> {
    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(match self.0.evaluate()? {
            ScalarValue::Float64(value) => ScalarValue::Float64(value.map(OneForm::one_form)),
            ScalarValue::Float32(value) => ScalarValue::Float32(value.map(OneForm::one_form)),
            other => other,
        })
    }

    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(columns)
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(columns)
    }

    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.0.size()
    }
}

impl GroupsAccumulator for InOneForm<dyn GroupsAccumulator> {
    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let found = self.0.evaluate(emit_to)?;
        Ok(one_form(&found).unwrap_or(found))
    }

    fn update_batch(
        &mut self,
        columns: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.0.update_batch(columns, groups, filter, group_count)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.0.merge_batch(states, groups, group_count)
    }

    fn convert_to_state(
        &self,
        columns: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(columns, filter)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.0.size()
    }
}
