//! Rows in kd order with their leaves, ready to be asked or written.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_select::take::take;
use serde::{Deserialize, Serialize};
use tidefall_ground::kept::arrow_error;
use tidefall_types::{DIMENSIONS_MAX, Error, FieldId, FieldType, Result, TableSchema};

use crate::leaves::Leaves;
use crate::metrics::Metrics;
use crate::order::kd_order;
use crate::ordinal::ordinals;

/// The columns of some rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// All of them, ascending by id.
    pub columns: Vec<(FieldId, FieldType)>,
    /// The places among them of those that are dimensions, in the order of the declaration. These have no nulls.
    pub dimensions: Vec<usize>,
}

impl Layout {
    /// That of a table.
    pub fn of(schema: &TableSchema) -> Self {
        // Ids of fields are their places.
        let dimensions = schema.dimensions.iter().map(|id| id.index()).collect();
        Self { columns: schema.typed_fields(), dimensions }
    }

    /// Checks that it can be one: from one dimension to [`DIMENSIONS_MAX`], which are columns of numbers or times.
    ///
    /// # Errors
    /// `Corrupt` when it cannot: declarations are checked where they are made.
    pub fn check(&self) -> Result<()> {
        let is_dimension =
            |place: &usize| self.columns.get(*place).is_some_and(|(_, ty)| ty.is_dimension());
        let are_ordered = self.columns.is_sorted_by(|(a, _), (b, _)| a < b);
        let mut places = self.dimensions.clone();
        places.sort_unstable();
        places.dedup();
        match (1..=DIMENSIONS_MAX).contains(&self.dimensions.len())
            && places.len() == self.dimensions.len()
            && are_ordered
            && self.dimensions.iter().all(is_dimension)
        {
            true => Ok(()),
            false => Err(Error::corrupt("its columns cannot be those of records")),
        }
    }

    /// The place of a column.
    pub fn place(&self, id: FieldId) -> Option<usize> {
        self.columns.binary_search_by_key(&id, |(id, _)| *id).ok()
    }
}

/// Rows put into kd order.
///
/// # Errors
/// `Invalid` when a dimension has a null.
pub(crate) fn in_order(layout: &Layout, columns: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    let order = UInt32Array::from(kd_order(&dimensions_of(layout, columns)?));
    columns.iter().map(|column| take(&**column, &order, None).map_err(arrow_error)).collect()
}

/// The ordinals of the dimensions.
fn dimensions_of(layout: &Layout, columns: &[ArrayRef]) -> Result<Vec<Vec<i64>>> {
    let of_dimension = |place: &usize| match columns[*place].null_count() {
        0 => ordinals(&*columns[*place]).ok_or_else(|| Error::invalid("a dimension is no number")),
        _ => Err(Error::invalid("a row lacks the value of a dimension")),
    };
    layout.dimensions.iter().map(of_dimension).collect()
}

/// Rows in kd order.
#[derive(Debug)]
pub struct Packed {
    layout: Arc<Layout>,
    columns: Vec<ArrayRef>,
    leaves: Leaves,
    metrics: Vec<Metrics>,
}

impl Packed {
    /// Puts rows into order, which have the columns of the layout, as many of each.
    ///
    /// # Errors
    /// `Invalid` when a dimension has a null.
    pub fn new(layout: &Arc<Layout>, columns: &[ArrayRef]) -> Result<Self> {
        Self::of_ordered(layout, in_order(layout, columns)?)
    }

    /// Of rows that are in order already.
    ///
    /// # Errors
    /// As [`Packed::new`].
    pub fn of_ordered(layout: &Arc<Layout>, columns: Vec<ArrayRef>) -> Result<Self> {
        let leaves = Leaves::of(&dimensions_of(layout, &columns)?);
        let metrics = layout
            .columns
            .iter()
            .zip(&columns)
            .map(|((_, ty), column)| Metrics::of(*ty, &**column));
        Ok(Self { layout: Arc::clone(layout), metrics: metrics.collect(), columns, leaves })
    }

    /// Its columns.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// What its columns hold, each as many rows.
    pub fn columns(&self) -> &[ArrayRef] {
        &self.columns
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.leaves.all_rows()
    }

    /// Its leaves.
    pub fn leaves(&self) -> &Leaves {
        &self.leaves
    }

    /// What the leaves of each column come to.
    pub fn metrics(&self) -> &[Metrics] {
        &self.metrics
    }

    /// Bytes of memory.
    pub fn size_bytes(&self) -> usize {
        let metrics: usize = self.metrics.iter().map(Metrics::size_bytes).sum();
        let columns: usize = self.columns.iter().map(|column| column.get_array_memory_size()).sum();
        columns + metrics + self.leaves.len() * self.layout.dimensions.len() * 2 * size_of::<i64>()
    }
}
