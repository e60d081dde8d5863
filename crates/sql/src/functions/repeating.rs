//! Values of a window that come again in each of its rows: `first_value`, `last_value` and `nth_value`.
//!
//! A value is copied into each row, so that a long text in a million rows is more memory than there is. Windows do not
//! charge the memory of queries for what they answer, so that what is long is counted here.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
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

use crate::error::to_datafusion;

/// The names of the functions.
pub(super) const NAMES: [&str; 3] = ["first_value", "last_value", "nth_value"];

/// Bytes that long values may take in the rows of one window.
const BYTES_MAX: usize = 64 << 20;

/// Bytes of a value that is not long.
const SHORT_BYTES_MAX: usize = 1 << 10;

/// Bytes that a value takes in each row that repeats it; none if it is short.
pub(super) fn long_bytes(value: &ScalarValue) -> usize {
    // Parts of a column share its buffers, which count as a whole otherwise.
    let of = |array: &dyn Array| array.to_data().get_slice_memory_size().unwrap_or_default();
    let bytes = match value {
        ScalarValue::List(list) => of(&**list),
        ScalarValue::LargeList(list) => of(&**list),
        ScalarValue::FixedSizeList(list) => of(&**list),
        ScalarValue::Struct(fields) => of(&**fields),
        ScalarValue::Map(entries) => of(&**entries),
        other => other.size().saturating_sub(size_of::<ScalarValue>()),
    };
    if bytes > SHORT_BYTES_MAX { bytes } else { 0 }
}

/// A function of DataFusion, counted.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Repeating(pub(super) Arc<WindowUDF>);

impl WindowUDFImpl for Repeating {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn expressions(&self, args: ExpressionArgs<'_>) -> Vec<Arc<dyn PhysicalExpr>> {
        self.0.inner().expressions(args)
    }

    fn partition_evaluator(
        &self,
        args: PartitionEvaluatorArgs<'_>,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        let inner = self.0.inner().partition_evaluator(args)?;
        Ok(Box::new(Counted { inner, name: self.name().to_owned(), bytes: 0 }))
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        self.0.inner().field(args)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.0.inner().coerce_types(types)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.0.inner().reverse_expr() {
            ReversedUDWF::Reversed(other) => {
                ReversedUDWF::Reversed(Arc::new(WindowUDF::new_from_impl(Self(other))))
            }
            other => other,
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.0.inner().limit_effect(args)
    }
}

/// Counts the answers of one partition.
#[derive(Debug)]
struct Counted {
    inner: Box<dyn PartitionEvaluator>,
    name: String,
    /// Bytes of the long ones.
    bytes: usize,
}

impl PartitionEvaluator for Counted {
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

    fn evaluate_all(&mut self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        self.inner.evaluate_all(columns, rows)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        self.inner.evaluate_all_with_rank(rows, ranks)
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
