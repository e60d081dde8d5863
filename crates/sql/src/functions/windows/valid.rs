//! `first_value`, `last_value` and `nth_value` with `IGNORE NULLS`. DataFusion looks through the whole window for each row;
//! here each row is looked at when it comes.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::PartitionEvaluator;
use datafusion::logical_expr::function::PartitionEvaluatorArgs;
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::physical_expr::expressions::Literal;

use crate::over::watch;

/// Which of the values in a window is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    First,
    Last,
    /// Counted from 1 on, or from -1 back from the end.
    Nth(i128),
}

/// Answers for one partition.
#[derive(Debug)]
pub(super) struct Valid {
    which: Which,
    /// The rows that are looked at: each time that more come, or some are not needed any more, it is another array.
    values: Option<ArrayRef>,
    nulls: Option<NullBuffer>,
    /// Rows before this one have been looked at.
    end: usize,
    /// Rows in the window that have values: the one that is wanted, or all if they are counted.
    places: VecDeque<usize>,
    /// Memory for them, if they are counted.
    reservation: Option<MemoryReservation>,
    /// The last answer that is no NULL.
    found: Option<ScalarValue>,
    /// The answer from rows that are gone, where windows only grow.
    carried: Option<ScalarValue>,
}

impl Valid {
    /// What computes a call of `name`; none if it takes nulls for values.
    pub(super) fn of(name: &str, args: &PartitionEvaluatorArgs<'_>) -> Option<Self> {
        if !args.ignore_nulls() {
            return None;
        }
        let which = match name {
            "first_value" => Which::First,
            "last_value" => Which::Last,
            _ => {
                let number = args.input_exprs().get(1)?.downcast_ref::<Literal>()?.value();
                let number: i128 = number.to_string().parse().ok()?;
                Which::Nth(if args.is_reversed() { -number } else { number })
            }
        };
        Some(Self {
            which,
            values: None,
            nulls: None,
            end: 0,
            places: VecDeque::new(),
            reservation: None,
            found: None,
            carried: None,
        })
    }

    fn look_at(&mut self, values: &ArrayRef, window: &Range<usize>) -> Result<()> {
        if self.values.as_ref().is_none_or(|known| !Arc::ptr_eq(known, values)) {
            self.values = Some(Arc::clone(values));
            self.nulls = values.logical_nulls();
            self.end = window.start;
            self.places.clear();
        }
        while self.places.front().is_some_and(|place| *place < window.start) {
            self.places.pop_front();
        }
        let mut row = self.end.max(window.start);
        // The first value is enough, and others are looked for when it has left.
        while row < window.end && (self.which != Which::First || self.places.is_empty()) {
            if self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                if self.which == Which::Last {
                    self.places.clear();
                }
                self.places.push_back(row);
            }
            row += 1;
        }
        self.end = row;
        self.charge()
    }

    /// Charges the places when there may be many of them.
    fn charge(&mut self) -> Result<()> {
        let Which::Nth(_) = self.which else { return Ok(()) };
        if self.reservation.is_none() {
            self.reservation = watch::reservation();
        }
        let bytes = self.places.capacity().saturating_mul(size_of::<usize>());
        match &self.reservation {
            Some(reservation) if reservation.size() != bytes => reservation.try_resize(bytes),
            _ => Ok(()),
        }
    }

    fn place(&self) -> Option<usize> {
        match self.which {
            Which::First => self.places.front().copied(),
            Which::Last => self.places.back().copied(),
            Which::Nth(0) => None,
            Which::Nth(number) => {
                let from_start =
                    if number > 0 { number - 1 } else { self.places.len() as i128 + number };
                usize::try_from(from_start).ok().and_then(|at| self.places.get(at).copied())
            }
        }
    }
}

impl PartitionEvaluator for Valid {
    /// Windows grow from the start of the partition: rows that have been looked at are not needed any more.
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        if let Which::Nth(_) = self.which {
            return Ok(());
        }
        self.carried.clone_from(&self.found);
        state.window_frame_range.start = state.window_frame_range.end.saturating_sub(1);
        Ok(())
    }

    fn evaluate(&mut self, columns: &[ArrayRef], window: &Range<usize>) -> Result<ScalarValue> {
        let values = &columns[0];
        if let (Which::First, Some(first)) = (self.which, &self.carried) {
            return Ok(first.clone());
        }
        self.look_at(values, window)?;
        match (self.place(), &self.carried) {
            (Some(place), _) => {
                let found = ScalarValue::try_from_array(values, place)?;
                self.found = Some(found.clone());
                Ok(found)
            }
            (None, Some(carried)) => Ok(carried.clone()),
            (None, None) => ScalarValue::try_from(values.data_type()),
        }
    }

    fn supports_bounded_execution(&self) -> bool {
        true
    }

    fn uses_window_frame(&self) -> bool {
        true
    }
}
