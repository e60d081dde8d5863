//! What is collected over a window, and comes again in its rows.
//!
//! - Over a window that grows each row has all of those before it: the answers for the rows are counted.
//! - Over one that is a whole partition one answer is repeated in each of its rows: these are counted before it is.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;
use tidefall_types::Error;

use crate::error::to_datafusion;
use crate::functions::windows::long_bytes;
use crate::over::watch;

/// Bytes that the answers for the rows of a window may have together, beyond the first of them: windows do not charge
/// the memory of queries for what they answer.
const BYTES_MAX: usize = 64 << 20;

/// Bytes that the answers for whole partitions may have in the rows of all of them.
const REPEATED_BYTES_MAX: usize = 256 << 20;

/// Rows that a partition is taken to have when some were left out, and nobody knows how many.
const FILTERED_ROWS: usize = 1 << 17;

/// A window that is a whole partition. It belongs to one statement.
#[derive(Debug, Clone)]
pub(super) struct Whole {
    pub(super) is_filtered: bool,
    /// Bytes of the answers in the rows of all partitions.
    bytes: Arc<AtomicUsize>,
}

impl Whole {
    pub(super) fn new(is_filtered: bool) -> Self {
        Self { is_filtered, bytes: Arc::default() }
    }

    /// Counts an answer that is repeated in so many rows.
    fn repeat(&self, name: &str, answer: &ScalarValue, rows: usize) -> Result<()> {
        let rows = if self.is_filtered { rows.max(FILTERED_ROWS) } else { rows };
        let bytes = long_bytes(answer).saturating_mul(rows).min(REPEATED_BYTES_MAX + 1);
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        match before.saturating_add(bytes) > REPEATED_BYTES_MAX {
            true => Err(to_datafusion(Error::limit(format!(
                "the answers of {name} would take more than {REPEATED_BYTES_MAX} bytes in the rows of their windows; \
                 compute them once for each group, and join them"
            )))),
            // They are laid out in all rows next.
            false => watch::took(bytes),
        }
    }
}

/// What was counted makes no function another.
impl PartialEq for Whole {
    fn eq(&self, other: &Self) -> bool {
        self.is_filtered == other.is_filtered
    }
}

impl Eq for Whole {}

impl Hash for Whole {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.is_filtered.hash(state);
    }
}

/// An accumulator whose answer is repeated in all rows that it was given.
#[derive(Debug)]
pub(super) struct Repeated {
    inner: Box<dyn Accumulator>,
    name: String,
    whole: Whole,
    rows: usize,
}

impl Repeated {
    pub(super) fn new(name: &str, inner: Box<dyn Accumulator>, whole: Whole) -> Self {
        Self { inner, name: name.to_owned(), whole, rows: 0 }
    }
}

impl Accumulator for Repeated {
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let answer = self.inner.evaluate()?;
        self.whole.repeat(&self.name, &answer, self.rows)?;
        Ok(answer)
    }

    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.rows = self.rows.saturating_add(columns.first().map_or(0, Array::len));
        self.inner.update_batch(columns)
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
        *bytes = bytes.saturating_add(long_bytes(&answer));
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
