//! Functions of windows whose answers are not taken from DataFusion as they are.
//!
//! `first_value`, `last_value` and `nth_value` copy a value into each row, so that a long text in a million rows is more
//! memory than there is. Windows do not charge the memory of queries for what they answer, so that what is long is counted
//! here.
//!
//! `row_number`, `rank`, `dense_rank` and `ntile` count without a sign, and what is computed of such a number and a usual
//! one is a decimal. Here they are integers as all others.
//!
//! With `IGNORE NULLS`, `lead` and `lag` are computed in `shift.rs`, and values of windows in `valid.rs`.
//!
//! All of them look whether anybody still waits, and charge what they answer.

mod shift;
mod valid;

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::{SortOptions, cast};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::{
    ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs,
};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{
    Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF,
    WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;
use tidefall_types::Error;

use self::shift::Shift;
use self::valid::Valid;
use crate::error::to_datafusion;
use crate::over::bytes_of;
use crate::over::watch::{self, heap_bytes};

/// The functions, and what is done with their answers.
pub(super) const FUNCTIONS: [(&str, Answers); 11] = [
    ("first_value", Answers::Repeated),
    ("last_value", Answers::Repeated),
    ("nth_value", Answers::Repeated),
    ("row_number", Answers::Numbers),
    ("rank", Answers::Numbers),
    ("dense_rank", Answers::Numbers),
    ("ntile", Answers::Numbers),
    ("percent_rank", Answers::Plain),
    ("cume_dist", Answers::Plain),
    ("lead", Answers::Shifted),
    ("lag", Answers::Shifted),
];

/// What the answers of a function are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Answers {
    /// Values of rows, which may be long.
    Repeated,
    /// Integers without a sign.
    Numbers,
    /// Values of other rows, once each.
    Shifted,
    /// What needs nothing done.
    Plain,
}

/// Bytes that long values may take in the rows of one window.
const BYTES_MAX: usize = 64 << 20;

/// Bytes of a value that is not long.
const SHORT_BYTES_MAX: usize = 1 << 10;

/// Bytes that a value takes in each row that repeats it; none if it is short.
pub(super) fn long_bytes(value: &ScalarValue) -> usize {
    let bytes = heap_bytes(value);
    if bytes > SHORT_BYTES_MAX { bytes } else { 0 }
}

/// A function of DataFusion.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Window {
    pub(super) inner: Arc<WindowUDF>,
    pub(super) answers: Answers,
}

impl WindowUDFImpl for Window {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn expressions(&self, args: ExpressionArgs<'_>) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.inner().expressions(args)
    }

    fn partition_evaluator(
        &self,
        args: PartitionEvaluatorArgs<'_>,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        let shift = match self.answers {
            Answers::Shifted => Shift::of(self.name(), &args)?,
            _ => None,
        };
        let valid = match self.answers {
            Answers::Repeated => Valid::of(self.name(), &args),
            _ => None,
        };
        let plain = self.inner.inner().partition_evaluator(args)?;
        let inner = match (shift, valid) {
            (Some(shift), _) => Box::new(shift) as _,
            (None, Some(valid)) => Box::new(valid) as _,
            (None, None) => plain,
        };
        let name = self.name().to_owned();
        Ok(Box::new(Partition { inner, answers: self.answers, name, bytes: 0 }))
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        let field = self.inner.inner().field(args)?;
        Ok(match self.answers {
            Answers::Repeated | Answers::Shifted | Answers::Plain => field,
            Answers::Numbers => Arc::new(field.as_ref().clone().with_data_type(DataType::Int64)),
        })
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.inner().sort_options()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(types)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.inner.inner().reverse_expr() {
            ReversedUDWF::Reversed(other) => {
                let other = Self { inner: other, answers: self.answers };
                ReversedUDWF::Reversed(Arc::new(WindowUDF::new_from_impl(other)))
            }
            other => other,
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        match self.answers {
            Answers::Shifted => shift::limit_effect(self.name(), args),
            _ => self.inner.inner().limit_effect(args),
        }
    }
}

/// Answers for one partition.
#[derive(Debug)]
struct Partition {
    inner: Box<dyn PartitionEvaluator>,
    answers: Answers,
    name: String,
    /// Bytes of the long answers.
    bytes: usize,
}

impl Partition {
    /// An answer, if there is memory for it.
    fn counted(&mut self, answer: ScalarValue) -> Result<ScalarValue> {
        self.bytes = self.bytes.saturating_add(long_bytes(&answer));
        match self.bytes > BYTES_MAX {
            true => Err(to_datafusion(Error::limit(format!(
                "{} would repeat long values in more than {BYTES_MAX} bytes of the rows of one window; repeat a part \
                 of them, as with left(text, 100), or look for them once for each group",
                self.name
            )))),
            false => Ok(answer),
        }
    }

    fn column(&self, answers: ArrayRef) -> Result<ArrayRef> {
        watch::took(bytes_of(&answers))?;
        match self.answers {
            Answers::Numbers => Ok(cast(&answers, &DataType::Int64)?),
            Answers::Repeated | Answers::Shifted | Answers::Plain => Ok(answers),
        }
    }
}

impl PartitionEvaluator for Partition {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, row: usize, rows: usize) -> Result<Range<usize>> {
        self.inner.get_range(row, rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate(&mut self, columns: &[ArrayRef], rows: &Range<usize>) -> Result<ScalarValue> {
        let answer = self.inner.evaluate(columns, rows)?;
        watch::answered(&answer)?;
        match self.answers {
            Answers::Repeated => self.counted(answer),
            Answers::Numbers => answer.cast_to(&DataType::Int64),
            Answers::Shifted | Answers::Plain => Ok(answer),
        }
    }

    fn evaluate_all(&mut self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        watch::check()?;
        let answers = self.inner.evaluate_all(columns, rows)?;
        self.column(answers)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        self.column(self.inner.evaluate_all_with_rank(rows, ranks)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}
