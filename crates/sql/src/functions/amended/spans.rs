//! The shortest and the longest of intervals.

use std::cmp::Ordering;
use std::collections::VecDeque;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{IntervalMonthDayNano, IntervalMonthDayNanoType};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;

use crate::amend::length_ns;

/// The extreme of intervals by their length, as it was given: the first of those that are equally long.
#[derive(Debug)]
pub(super) struct ExtremeSpan {
    /// How the extreme stands to the others.
    wanted: Ordering,
    /// Whether values leave again, the earliest first.
    slides: bool,
    /// The values that are the extreme of those that came with or after them, and which in the row of all values each is.
    best: VecDeque<(usize, IntervalMonthDayNano)>,
    come: usize,
    left: usize,
}

impl ExtremeSpan {
    pub(super) const fn new(wanted: Ordering, slides: bool) -> Self {
        Self { wanted, slides, best: VecDeque::new(), come: 0, left: 0 }
    }

    fn push(&mut self, span: IntervalMonthDayNano) {
        let beats =
            |other: IntervalMonthDayNano| length_ns(span).cmp(&length_ns(other)) == self.wanted;
        while self.best.back().is_some_and(|(_, other)| beats(*other)) {
            self.best.pop_back();
        }
        if self.slides || self.best.is_empty() {
            self.best.push_back((self.come, span));
        }
        self.come += 1;
    }
}

impl Accumulator for ExtremeSpan {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let spans = columns[0].as_primitive::<IntervalMonthDayNanoType>();
        spans.iter().flatten().for_each(|span| self.push(span));
        Ok(())
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.left += columns[0].len() - columns[0].logical_null_count();
        while self.best.front().is_some_and(|(at, _)| *at < self.left) {
            self.best.pop_front();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        self.slides
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::IntervalMonthDayNano(self.best.front().map(|(_, span)| *span)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.best.capacity() * size_of::<(usize, IntervalMonthDayNano)>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}
