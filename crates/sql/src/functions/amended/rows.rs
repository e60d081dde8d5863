//! The least and the greatest of structs and lists.

use std::cmp::Ordering;
use std::collections::VecDeque;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::{SortOptions, cast};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;

/// As `ORDER BY` has them: where a part is NULL, it is the greatest. DataFusion takes it for equal to every other.
const ASCENDING: SortOptions = SortOptions { descending: false, nulls_first: false };

/// The extreme of values that have parts.
#[derive(Debug)]
pub(super) struct ExtremeRow {
    /// How the extreme stands to the others.
    wanted: Ordering,
    /// Whether values leave again, the earliest first.
    slides: bool,
    converter: RowConverter,
    data_type: DataType,
    /// The values that are the extreme of those that came with or after them, and which in the row of all values each is.
    best: VecDeque<(usize, OwnedRow)>,
    best_bytes: usize,
    come: usize,
    left: usize,
}

impl ExtremeRow {
    pub(super) fn new(wanted: Ordering, slides: bool, data_type: &DataType) -> Result<Self> {
        let field = SortField::new_with_options(data_type.clone(), ASCENDING);
        Ok(Self {
            wanted,
            slides,
            converter: RowConverter::new(vec![field])?,
            data_type: data_type.clone(),
            best: VecDeque::new(),
            best_bytes: 0,
            come: 0,
            left: 0,
        })
    }

    /// Whether values of a type have parts that can be ordered.
    pub(super) fn is_of(data_type: &DataType) -> bool {
        let field = || SortField::new_with_options(data_type.clone(), ASCENDING);
        data_type.is_nested() && RowConverter::supports_fields(&[field()])
    }
}

impl Accumulator for ExtremeRow {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let values = &columns[0];
        let rows = self.converter.convert_columns(std::slice::from_ref(values))?;
        let nulls = values.logical_nulls();
        let is_there = |at: &usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*at));
        for row in (0..values.len()).filter(is_there).map(|at| rows.row(at)) {
            while let Some((_, other)) = self.best.back()
                && row.cmp(&other.row()) == self.wanted
            {
                self.best_bytes -= other.row().data().len();
                self.best.pop_back();
            }
            if self.slides || self.best.is_empty() {
                self.best_bytes += row.data().len();
                self.best.push_back((self.come, row.owned()));
            }
            self.come += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.left += columns[0].len() - columns[0].logical_null_count();
        while let Some((at, row)) = self.best.front()
            && *at < self.left
        {
            self.best_bytes -= row.row().data().len();
            self.best.pop_front();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        self.slides
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let Some((_, best)) = self.best.front() else {
            return ScalarValue::try_from(&self.data_type);
        };
        let columns = self.converter.convert_rows([best.row()])?;
        // Tags have come out as texts.
        ScalarValue::try_from_array(&cast(&columns[0], &self.data_type)?, 0)
    }

    fn size(&self) -> usize {
        let places = self.best.capacity() * size_of::<(usize, OwnedRow)>();
        size_of_val(self) + self.converter.size() + places + self.best_bytes
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}
