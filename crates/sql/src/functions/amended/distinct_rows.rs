//! `count(DISTINCT (a, b))`, and that of lists.
//!
//! DataFusion keeps a slice of a batch for each of them and counts all of the batch as its memory. Here each is kept as
//! the bytes by which it is told from others.

use std::mem::size_of;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::{HashSet, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;

use super::distinct::PLACE_BYTES;

/// Counts distinct structs or lists.
#[derive(Debug)]
pub(super) struct DistinctRows {
    data_type: DataType,
    converter: RowConverter,
    found: HashSet<Box<[u8]>>,
    bytes: usize,
}

impl DistinctRows {
    /// One for values of a type, if they can be told apart so.
    pub(super) fn new(data_type: &DataType) -> Result<Option<Self>> {
        let field = SortField::new(data_type.clone());
        if !data_type.is_nested() || !RowConverter::supports_fields(std::slice::from_ref(&field)) {
            return Ok(None);
        }
        let converter = RowConverter::new(vec![field])?;
        let (data_type, found) = (data_type.clone(), HashSet::default());
        Ok(Some(Self { data_type, converter, found, bytes: 0 }))
    }

    fn take(&mut self, values: &ArrayRef) -> Result<()> {
        let rows = self.converter.convert_columns(std::slice::from_ref(values))?;
        for (place, row) in rows.iter().enumerate() {
            let row = row.as_ref();
            if values.is_valid(place) && !self.found.contains(row) {
                self.bytes += row.len();
                self.found.insert(row.into());
            }
        }
        Ok(())
    }
}

impl Accumulator for DistinctRows {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        values.iter().try_for_each(|values| self.take(values))
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let lists = states.iter().flat_map(|lists| lists.as_list::<i32>().iter().flatten());
        lists.collect::<Vec<_>>().iter().try_for_each(|values| self.take(values))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let parser = self.converter.parser();
        let rows = self.found.iter().map(|row| parser.parse(row));
        let values = self.converter.convert_rows(rows)?.swap_remove(0);
        // Dictionaries come back as what is in them.
        let values = cast(&values, &self.data_type)?;
        let item = Arc::new(Field::new_list_field(self.data_type.clone(), true));
        let offsets = OffsetBuffer::from_lengths([values.len()]);
        let list = ListArray::try_new(item, offsets, values, None)?;
        Ok(vec![ScalarValue::List(Arc::new(list))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(i64::try_from(self.found.len()).ok()))
    }

    fn size(&self) -> usize {
        let place = size_of::<Box<[u8]>>() + PLACE_BYTES;
        size_of::<Self>() + self.converter.size() + self.bytes + self.found.capacity() * place
    }
}
