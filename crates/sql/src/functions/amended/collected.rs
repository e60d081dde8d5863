//! Lists and texts that are collected over a window that grows: each row has all of those before it.

use datafusion::arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;
use tidefall_types::Error;

use crate::error::to_datafusion;

/// Bytes that the answers for the rows of a window may have together, beyond the first of them: windows do not charge
/// the memory of queries for what they answer.
const BYTES_MAX: usize = 64 << 20;

/// An accumulator that collects values, and counts what it answers.
#[derive(Debug)]
pub(super) struct Collected {
    inner: Box<dyn Accumulator>,
    name: String,
    /// Bytes of the answers after the first one; none before that.
    bytes: Option<usize>,
}

impl Collected {
    pub(super) fn new(name: &str, inner: Box<dyn Accumulator>) -> Self {
        Self { inner, name: name.to_owned(), bytes: None }
    }
}

impl Accumulator for Collected {
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let answer = self.inner.evaluate()?;
        let Some(bytes) = &mut self.bytes else {
            self.bytes = Some(0);
            return Ok(answer);
        };
        *bytes = bytes.saturating_add(answer.size());
        match *bytes > BYTES_MAX {
            true => Err(to_datafusion(Error::limit(format!(
                "{} makes more than {BYTES_MAX} bytes for the rows of one window; collect once for each group, or \
                 over a window of fewer rows",
                self.name
            )))),
            false => Ok(answer),
        }
    }

    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(columns)
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(columns)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }
}
