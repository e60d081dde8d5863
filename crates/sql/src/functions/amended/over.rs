//! Aggregates over windows, which look whether anybody still waits, and charge what they keep and answer.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::expr::WindowFunctionParams;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, Expr, WindowFrame, WindowFrameBound, WindowFrameUnits,
    WindowFunctionDefinition,
};

use super::Amended;
use super::collected::Whole;
use crate::over::watch;

/// Lets an aggregate know that it is called over windows, and over which; bounds that are beyond any partition become
/// such as can be added to.
pub(crate) fn amend_window(expr: Expr) -> Transformed<Expr> {
    let Expr::WindowFunction(mut window) = expr else { return Transformed::no(expr) };
    let is_bounded = bound_frame(&mut window.params.window_frame);
    let amended = match &window.fun {
        WindowFunctionDefinition::AggregateUDF(function) => over(function, &window.params),
        WindowFunctionDefinition::WindowUDF(_) => None,
    };
    let is_amended = is_bounded || amended.is_some();
    if let Some(amended) = amended {
        let function = Arc::new(AggregateUDF::new_from_impl(amended));
        window.fun = WindowFunctionDefinition::AggregateUDF(function);
    }
    Transformed::new_transformed(Expr::WindowFunction(window), is_amended)
}

/// A function as it is called over windows; none if it knows that already.
fn over(function: &AggregateUDF, params: &WindowFunctionParams) -> Option<Amended> {
    let amended = match function.inner().downcast_ref::<Amended>() {
        Some(Amended { is_over: true, .. }) => return None,
        Some(amended) => amended.clone(),
        None => Amended::of(function),
    };
    let whole = is_whole(params).then(|| Whole::new(params.filter.is_some()));
    Some(Amended { whole, is_over: true, ..amended })
}

/// Rows or groups of them beyond any partition.
const FRAME_MAX: u64 = 1 << 40;

/// Bounds a frame: DataFusion adds its numbers of rows to others.
fn bound_frame(frame: &mut WindowFrame) -> bool {
    if frame.units == WindowFrameUnits::Range {
        return false;
    }
    let mut is_changed = false;
    for bound in [&mut frame.start_bound, &mut frame.end_bound] {
        if let WindowFrameBound::Preceding(ScalarValue::UInt64(Some(rows)))
        | WindowFrameBound::Following(ScalarValue::UInt64(Some(rows))) = bound
            && *rows > FRAME_MAX
        {
            (*rows, is_changed) = (FRAME_MAX, true);
        }
    }
    is_changed
}

/// Whether each row of a partition has all of it for its window.
fn is_whole(params: &WindowFunctionParams) -> bool {
    let frame = &params.window_frame;
    let all_are_peers = frame.units == WindowFrameUnits::Range && params.order_by.is_empty();
    [&frame.start_bound, &frame.end_bound].into_iter().all(|bound| match bound {
        WindowFrameBound::CurrentRow => all_are_peers,
        bound => bound.is_unbounded(),
    })
}

/// What is kept is looked at again when there are so many more rows, or a quarter more: it takes long.
const ROWS_MORE: usize = 256;

/// An accumulator over a window.
#[derive(Debug)]
pub(super) struct Over {
    inner: Box<dyn Accumulator>,
    /// Memory for what is kept; none while nothing was, or where no window is computed.
    reservation: Option<MemoryReservation>,
    /// Rows in the window.
    rows: usize,
    /// Rows at which it is looked at what is kept.
    rows_next: usize,
}

impl Over {
    pub(super) fn new(inner: Box<dyn Accumulator>) -> Self {
        Self { inner, reservation: None, rows: 0, rows_next: ROWS_MORE }
    }

    fn charge(&mut self) -> Result<()> {
        if self.reservation.is_none() {
            self.reservation = watch::reservation();
        }
        if let Some(reservation) = &self.reservation {
            reservation.try_resize(self.inner.size())?;
        }
        self.rows_next = self.rows + ROWS_MORE.max(self.rows / 4);
        Ok(())
    }
}

fn rows_of(columns: &[ArrayRef]) -> usize {
    columns.first().map_or(0, Array::len)
}

impl Accumulator for Over {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        watch::check()?;
        self.inner.update_batch(columns)?;
        self.rows = self.rows.saturating_add(rows_of(columns));
        match self.rows >= self.rows_next {
            true => self.charge(),
            false => Ok(()),
        }
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        watch::check()?;
        self.rows = self.rows.saturating_sub(rows_of(columns));
        self.inner.retract_batch(columns)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let answer = self.inner.evaluate()?;
        watch::answered(&answer)?;
        Ok(answer)
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
