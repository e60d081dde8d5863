//! Rows on their way in.

use arrow_array::{Array, ArrayRef, StringArray};
use arrow_buffer::ScalarBuffer;

use crate::{Error, Result};

/// The key in [`TagColumn::keys`] of a row that has no value for the tag.
pub const NO_TAG: u32 = u32::MAX;

/// A tag of every row of a batch, dictionary-encoded.
#[derive(Debug, Clone)]
pub struct TagColumn {
    /// The name of the tag.
    pub name: String,
    /// The distinct values that `keys` point to; repeats are allowed, nulls mean no value.
    pub values: StringArray,
    /// For each row the position of its value in `values`, or [`NO_TAG`].
    pub keys: ScalarBuffer<u32>,
}

/// A field of every row of a batch. A null means that the row says nothing about this field.
#[derive(Debug, Clone)]
pub struct FieldColumn {
    /// The name of the field.
    pub name: String,
    /// One value a row, of a type that [`crate::FieldType::from_arrow`] knows.
    pub values: ArrayRef,
}

/// Rows for one table, before their sensors are looked up. Every way in (line protocol, SQL, CSV,
/// data frames) builds these, and `ingest` takes nothing else.
#[derive(Debug, Clone, Default)]
pub struct WriteBatch {
    /// The time of each row in nanoseconds since 1970 UTC, in any order.
    pub time: ScalarBuffer<i64>,
    /// The tags; a tag of the table that is missing here has no value in any row.
    pub tags: Vec<TagColumn>,
    /// The fields; a field of the table that is missing here is null in every row.
    pub fields: Vec<FieldColumn>,
}

impl WriteBatch {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.time.len()
    }

    /// Checks that all columns have the same length, that names are unique and that tag keys
    /// point into their dictionaries.
    ///
    /// # Errors
    /// `Invalid`, naming the column.
    pub fn check(&self) -> Result<()> {
        let rows = self.rows();
        let mut names: Vec<&str> = Vec::with_capacity(self.tags.len() + self.fields.len());
        for tag in &self.tags {
            check_length(&tag.name, tag.keys.len(), rows)?;
            let values = tag.values.len();
            if tag.keys.iter().any(|&key| key != NO_TAG && key as usize >= values) {
                return Err(Error::invalid(format!(
                    "tag {:?}: a key points outside of its {values} values",
                    tag.name
                )));
            }
            names.push(&tag.name);
        }
        for field in &self.fields {
            check_length(&field.name, field.values.len(), rows)?;
            names.push(&field.name);
        }
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                Err(Error::invalid(format!("column {:?} appears twice in one batch", pair[0])))
            }
            None => Ok(()),
        }
    }
}

fn check_length(name: &str, found: usize, rows: usize) -> Result<()> {
    if found == rows {
        return Ok(());
    }
    Err(Error::invalid(format!("column {name:?} has {found} values, the batch has {rows} rows")))
}

/// Why one row of a batch was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowError {
    /// The row, counted from 0 in its batch.
    pub row: usize,
    /// The reason.
    pub error: Error,
}
