//! Sums over a window that slides.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::Float64Type;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Accumulator;

/// The sum, or the mean, of the values in a window that slides: a queue of two stacks, of which the older
/// holds running sums from the values that leave last to those that leave next. Each value is added
/// twice in its time.
#[derive(Debug)]
pub(super) struct SlidingSum {
    is_mean: bool,
    /// Sums of the older values: the last one of all of them, the one before of all but the next to leave.
    older: Vec<f64>,
    newer: Vec<f64>,
    /// The sum of the newer values.
    newer_sum: f64,
}

impl SlidingSum {
    pub(super) const fn new(is_mean: bool) -> Self {
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
pub(super) fn never_merged() -> DataFusionError {
    DataFusionError::Internal("a sliding sum was to be merged".into())
}
