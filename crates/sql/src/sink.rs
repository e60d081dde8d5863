//! `INSERT`: record batches on their way into the storage. `inserted.rs` is the plan node around it.

use std::ops::AddAssign;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, StringArray, new_null_array,
};
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::{
    DataType, Field, Schema, SchemaRef, TimestampNanosecondType, UInt32Type,
};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::StreamExt;
use tidefall_storage::{Db, Existing, WriteOptions};
use tidefall_types::{
    ColumnKind, Error, FieldColumn, NO_TAG, TableKind, TableSchema, TagColumn, WriteBatch,
    text_bytes,
};

use crate::error::{from_datafusion, to_datafusion};
use crate::fit::{Slot, fit};
use crate::over::bytes_of;
use crate::view::slots_of;

/// Rows that one write takes at most. All rows of an `INSERT ... VALUES` up to here are written
/// whole or not at all; an `INSERT ... SELECT` of more is written in pieces of this size, so that
/// its memory stays bounded.
const ROWS_PER_WRITE: usize = 256 * 1024;

/// Bytes of texts that one write takes at most; all rows of an `INSERT ... VALUES` within it are written whole or not
/// at all, too. The log takes as much at once with the least memory budget.
const TEXT_BYTES_PER_WRITE: usize = 16 << 20;

/// Bytes of all columns that one write takes at most, as a table may have thousands of them.
const BYTES_PER_WRITE: usize = 64 << 20;

/// What an `INSERT` has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inserted {
    /// The rows written.
    pub rows: u64,
    /// How many of them took the place of readings with the same tags and time that were there, or of rows before them in
    /// the statement. None where a damaged object keeps it from being known.
    pub replaced: Option<u64>,
}

impl Inserted {
    /// Nothing yet.
    const NOTHING: Self = Self { rows: 0, replaced: Some(0) };
}

impl AddAssign for Inserted {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.replaced = self.replaced.zip(other.replaced).map(|(sum, more)| sum + more);
    }
}

/// Where inserted rows go.
pub(crate) struct Sink {
    db: Db,
    schema: Arc<TableSchema>,
    slots: Vec<Slot>,
    /// The columns, of which all may be null until the rows are looked at.
    arrow: SchemaRef,
}

impl Sink {
    /// A sink into a table.
    pub(crate) fn new(db: Db, schema: Arc<TableSchema>) -> Self {
        let slots = slots_of(&schema);
        let field = |slot: &Slot| Field::new(&slot.column, slot.data_type.clone(), true);
        let arrow = Arc::new(Schema::new(slots.iter().map(field).collect::<Vec<_>>()));
        Self { db, schema, slots, arrow }
    }

    /// The rows of a batch in the types of the columns; the first of them is `row`.
    fn fit(&self, batch: &RecordBatch, row: usize) -> tidefall_types::Result<RecordBatch> {
        if batch.num_columns() != self.slots.len() {
            return Err(Error::conflict(
                "it has got columns since the statement was planned; run it again",
            ));
        }
        let mut columns = Vec::with_capacity(self.slots.len());
        for (values, slot) in batch.columns().iter().zip(&self.slots) {
            columns.push(fit(values, slot, row)?);
        }
        RecordBatch::try_new(Arc::clone(&self.arrow), columns)
            .map_err(|error| from_datafusion(error.into()))
    }

    /// The table that it goes into.
    pub(crate) fn table(&self) -> &str {
        &self.schema.name
    }

    async fn write(&self, batches: Vec<Rows>) -> Result<Inserted> {
        let write = self.write_batch(&batches)?;
        drop(batches);
        let (db, table) = (self.db.clone(), self.schema.name.clone());
        let kind = self.schema.kind;
        let written = tokio::task::spawn_blocking(move || {
            if kind == TableKind::Records {
                let report = db.write_records(&table, &write.fields, &WriteOptions::default())?;
                return Ok(Inserted { rows: report.rows as u64, replaced: Some(0) });
            }
            let options = WriteOptions { existing: Existing::Count, ..WriteOptions::default() };
            let mut inserted = Inserted::NOTHING;
            // A batch may have many long texts alone.
            for part in write.parts(TEXT_BYTES_PER_WRITE) {
                let report = db.write(&table, &part, &options)?;
                inserted += Inserted { rows: report.rows as u64, replaced: report.replaced };
            }
            Ok(inserted)
        });
        let inserted = written.await.map_err(|error| DataFusionError::External(Box::new(error)))?;
        inserted.map_err(to_datafusion)
    }
}

impl Sink {
    /// All rows of some batches. A field of which none of them says anything needs no column.
    fn write_batch(&self, batches: &[Rows]) -> Result<WriteBatch> {
        let mut write = WriteBatch::default();
        for (place, column) in self.schema.columns.iter().enumerate() {
            let is_told = batches.iter().any(|batch| batch.columns[place].is_some());
            let may_lack = match column.kind {
                ColumnKind::Field(id) => !self.schema.dimensions.contains(&id),
                ColumnKind::Time | ColumnKind::Tag(_) => false,
            };
            if !is_told && may_lack {
                continue;
            }
            let data_type = &self.slots[place].data_type;
            let values = |batch: &Rows| match &batch.columns[place] {
                Some(values) => Arc::clone(values),
                None => new_null_array(data_type, batch.rows),
            };
            let parts: Vec<ArrayRef> = batches.iter().map(values).collect();
            let parts: Vec<&dyn Array> = parts.iter().map(|part| &**part).collect();
            let values = concat(&parts)?;
            match column.kind {
                ColumnKind::Time => {
                    write.time = values.as_primitive::<TimestampNanosecondType>().values().clone();
                }
                ColumnKind::Tag(_) => write.tags.push(tag_column(&column.name, values.as_ref())?),
                ColumnKind::Field(_) => {
                    write.fields.push(FieldColumn { name: column.name.clone(), values });
                }
            }
        }
        Ok(write)
    }
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink").field("table", &self.schema.name).finish_non_exhaustive()
    }
}

impl Sink {
    /// Writes all rows, piece by piece.
    pub(crate) async fn write_all(
        &self,
        mut data: SendableRecordBatchStream,
        context: &TaskContext,
    ) -> Result<Inserted> {
        let charged = MemoryConsumer::new("insert").register(context.memory_pool());
        let (mut waiting, mut rows, mut texts, mut row) = (Vec::new(), 0, 0, 1);
        let mut written = Inserted::NOTHING;
        while let Some(batch) = data.next().await.transpose()? {
            let fitted = self.fit(&batch, row).map_err(|error| {
                to_datafusion(error.context(format_args!("table {}", self.schema.name)))
            })?;
            row += batch.num_rows();
            let more = Rows::of(&fitted);
            drop((batch, fitted));
            let (more_texts, bytes) = (more.text_bytes(), more.bytes());
            let is_full = rows >= ROWS_PER_WRITE
                || texts + more_texts > TEXT_BYTES_PER_WRITE
                || charged.size() + bytes > BYTES_PER_WRITE;
            if rows > 0 && is_full {
                written += self.write(std::mem::take(&mut waiting)).await?;
                charged.free();
                (rows, texts) = (0, 0);
            }
            // What is written whole must not depend on what other queries hold.
            charged.grow(bytes);
            rows += more.rows;
            texts += more_texts;
            waiting.push(more);
        }
        if rows > 0 {
            written += self.write(waiting).await?;
        }
        Ok(written)
    }
}

/// Rows in the columns of the table, but for those that are null in all of them.
struct Rows {
    columns: Vec<Option<ArrayRef>>,
    rows: usize,
}

impl Rows {
    fn of(batch: &RecordBatch) -> Self {
        let told = |values: &ArrayRef| (values.null_count() < values.len()).then(|| values.clone());
        Self { columns: batch.columns().iter().map(told).collect(), rows: batch.num_rows() }
    }

    fn text_bytes(&self) -> usize {
        self.columns.iter().flatten().map(|values| text_bytes(values, 0..values.len())).sum()
    }

    fn bytes(&self) -> usize {
        self.columns.iter().flatten().map(|values| bytes_of(&**values)).sum()
    }
}

fn tag_column(name: &str, values: &dyn Array) -> Result<TagColumn> {
    let dictionary = values.as_dictionary::<UInt32Type>();
    let texts = cast(dictionary.values(), &DataType::Utf8)?;
    let texts: &StringArray = texts.as_string();
    let keys = dictionary.keys();
    let keys: Vec<u32> = keys.iter().map(|key| key.unwrap_or(NO_TAG)).collect();
    Ok(TagColumn { name: name.to_owned(), values: texts.clone(), keys: keys.into() })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Float64Array;

    use super::*;

    /// Every batch had an array of NULL for each field of the table.
    #[test]
    fn columns_of_which_nothing_is_said_take_no_memory() {
        let told: ArrayRef = Arc::new(Float64Array::from(vec![1.0; 8_192]));
        let null = new_null_array(&DataType::Float64, 8_192);
        let columns = (0..2_000).map(|place| {
            let values = if place == 7 { &told } else { &null };
            (format!("f{place}"), Arc::clone(values), true)
        });
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let rows = Rows::of(&batch);
        assert_eq!((rows.rows, rows.columns.iter().flatten().count()), (8_192, 1));
        assert_eq!(rows.bytes(), 8 * 8_192);
    }
}
