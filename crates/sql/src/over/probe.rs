//! A function of a window node that answers nothing: it sees which rows the node keeps of each partition, and charges
//! them to the memory of queries.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StructArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::{ColumnarValue, LimitEffect, PartitionEvaluator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::window::{
    StandardWindowExpr, StandardWindowFunctionExpr, WindowExpr,
};

use super::watch;

/// The name of its column, which nobody sees.
const NAME: &str = "rows kept";

/// Texts of so many bytes stand in their view.
const VIEW_BYTES: u32 = 12;

/// Rows wait for their answers in one place, and for those of later rows in another.
const COPIES: usize = 2;

/// The function, beside one that the node has.
pub(super) fn probe(beside: &Arc<dyn WindowExpr>) -> Arc<dyn WindowExpr> {
    let (keys, order) = (beside.partition_by(), beside.order_by());
    let frame = Arc::clone(beside.get_window_frame());
    Arc::new(StandardWindowExpr::new(Arc::new(Probe), keys, order, frame))
}

#[derive(Debug)]
struct Probe;

impl StandardWindowFunctionExpr for Probe {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn field(&self) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(NAME, DataType::Null, true)))
    }

    fn expressions(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        vec![Arc::new(WholeRow)]
    }

    fn name(&self) -> &str {
        NAME
    }

    fn create_evaluator(&self) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Kept { reservation: watch::reservation(), rows: 0 }))
    }

    fn limit_effect(&self) -> LimitEffect {
        LimitEffect::None
    }
}

/// What is kept of a partition.
#[derive(Debug)]
struct Kept {
    reservation: Option<MemoryReservation>,
    /// Rows when they were charged last.
    rows: usize,
}

impl PartitionEvaluator for Kept {
    /// It needs no row for long.
    fn get_range(&self, row: usize, _: usize) -> Result<Range<usize>> {
        Ok(row..row + 1)
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn evaluate(&mut self, columns: &[ArrayRef], _: &Range<usize>) -> Result<ScalarValue> {
        if let (Some(reservation), [rows, ..]) = (&self.reservation, columns) {
            let count = rows.len();
            // Looking at all columns for each row would take longer than the window.
            if count > self.rows + self.rows / 4 || count < self.rows / 2 {
                watch::check()?;
                reservation.try_resize(COPIES.saturating_mul(bytes_of(rows)))?;
                self.rows = count;
            }
        }
        Ok(ScalarValue::Null)
    }

    fn supports_bounded_execution(&self) -> bool {
        true
    }
}

/// Bytes of the rows that an array shows, of buffers that it may share. Of a dictionary, which others have, too, as many
/// values count as there are rows.
pub(crate) fn bytes_of(array: &dyn Array) -> usize {
    if let Some(rows) = array.as_struct_opt() {
        return rows.columns().iter().map(|column| bytes_of(&**column)).sum();
    }
    if let Some(dictionary) = array.as_any_dictionary_opt() {
        let values = dictionary.values();
        let shown = array.len().min(values.len());
        let mine = bytes_of(&**values).saturating_mul(shown) / values.len().max(1);
        return bytes_of(dictionary.keys()).saturating_add(mine);
    }
    if let Some(texts) = array.as_string_view_opt() {
        let long = texts.lengths().filter(|bytes| *bytes > VIEW_BYTES).map(|bytes| bytes as usize);
        return long.sum::<usize>() + size_of_val(&texts.views()[..]);
    }
    array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size())
}

/// All columns of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct WholeRow;

impl fmt::Display for WholeRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("*")
    }
}

impl PhysicalExpr for WholeRow {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        Ok(DataType::Struct(schema.fields().clone()))
    }

    fn nullable(&self, _: &Schema) -> Result<bool> {
        Ok(false)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let fields = batch.schema().fields().clone();
        let columns = batch.columns().to_vec();
        let rows = StructArray::try_new_with_length(fields, columns, None, batch.num_rows())?;
        Ok(ColumnarValue::Array(Arc::new(rows)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        Vec::new()
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(self)
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("*")
    }
}
