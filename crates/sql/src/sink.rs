//! `INSERT`: record batches on their way into the storage.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, AsArray, RecordBatch, StringArray};
use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::datatypes::{
    DataType, Field, Schema, SchemaRef, TimestampNanosecondType, UInt32Type,
};
use datafusion::datasource::sink::DataSink;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use futures::StreamExt;
use tidefall_storage::{Db, WriteOptions};
use tidefall_types::{
    ColumnKind, FieldColumn, NO_TAG, TableSchema, TagColumn, WriteBatch, text_bytes,
};

use crate::error::{from_datafusion, to_datafusion};
use crate::fit::{Slot, fit};
use crate::table::View;

/// Rows that one write takes at most. All rows of an `INSERT ... VALUES` up to here are written
/// whole or not at all; an `INSERT ... SELECT` of more is written in pieces of this size, so that
/// its memory stays bounded.
const ROWS_PER_WRITE: usize = 256 * 1024;

/// Bytes of texts that one write takes at most; all rows of an `INSERT ... VALUES` within it are written whole or not
/// at all, too. The log takes as much at once with the least memory budget.
const TEXT_BYTES_PER_WRITE: usize = 16 << 20;

/// Where inserted rows go.
pub(crate) struct Sink {
    db: Db,
    view: Arc<View>,
    slots: Vec<Slot>,
    /// The columns, of which all may be null until the rows are looked at.
    arrow: SchemaRef,
}

impl Sink {
    /// A sink into the table of `view`.
    pub(crate) fn new(db: Db, view: Arc<View>) -> Self {
        let slots = view.slots();
        let field = |slot: &Slot| Field::new(&slot.column, slot.data_type.clone(), true);
        let arrow = Arc::new(Schema::new(slots.iter().map(field).collect::<Vec<_>>()));
        Self { db, view, slots, arrow }
    }

    /// The rows of a batch in the types of the columns; the first of them is `row`.
    fn fit(&self, batch: &RecordBatch, row: usize) -> tidefall_types::Result<RecordBatch> {
        let mut columns = Vec::with_capacity(self.slots.len());
        for (values, slot) in batch.columns().iter().zip(&self.slots) {
            columns.push(fit(values, slot, row)?);
        }
        RecordBatch::try_new(Arc::clone(&self.arrow), columns)
            .map_err(|error| from_datafusion(error.into()))
    }

    async fn write(&self, batches: Vec<RecordBatch>) -> Result<u64> {
        let all = concat_batches(&self.arrow, &batches)?;
        let write = to_write_batch(&all, self.view.schema())?;
        drop((all, batches));
        let (db, table) = (self.db.clone(), self.view.schema().name.clone());
        let written = tokio::task::spawn_blocking(move || {
            // A batch may have many long texts alone.
            let parts = write.parts(TEXT_BYTES_PER_WRITE).into_iter();
            let rows =
                parts.map(|part| Ok(db.write(&table, &part, &WriteOptions::default())?.rows));
            rows.sum::<tidefall_types::Result<usize>>()
        });
        let rows = written
            .await
            .map_err(|error| DataFusionError::External(Box::new(error)))?
            .map_err(to_datafusion)?;
        Ok(rows as u64)
    }
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink").field("view", &self.view).finish_non_exhaustive()
    }
}

impl DisplayAs for Sink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TidefallInsert: table={}", self.view.schema().name)
    }
}

#[async_trait]
impl DataSink for Sink {
    fn schema(&self) -> &SchemaRef {
        &self.arrow
    }

    async fn write_all(
        &self,
        mut data: SendableRecordBatchStream,
        _context: &Arc<TaskContext>,
    ) -> Result<u64> {
        let (mut waiting, mut rows, mut bytes, mut written, mut row) = (Vec::new(), 0, 0, 0, 1);
        while let Some(batch) = data.next().await.transpose()? {
            let fitted = self.fit(&batch, row).map_err(|error| {
                to_datafusion(error.context(format_args!("table {}", self.view.schema().name)))
            })?;
            row += batch.num_rows();
            let more: usize = fitted.columns().iter().map(|c| text_bytes(c, 0..c.len())).sum();
            if rows > 0 && bytes + more > TEXT_BYTES_PER_WRITE {
                written += self.write(std::mem::take(&mut waiting)).await?;
                (rows, bytes) = (0, 0);
            }
            rows += batch.num_rows();
            bytes += more;
            waiting.push(fitted);
            if rows >= ROWS_PER_WRITE {
                written += self.write(std::mem::take(&mut waiting)).await?;
                (rows, bytes) = (0, 0);
            }
        }
        if rows > 0 {
            written += self.write(waiting).await?;
        }
        Ok(written)
    }
}

fn to_write_batch(batch: &RecordBatch, schema: &TableSchema) -> Result<WriteBatch> {
    let mut write = WriteBatch::default();
    for (column, values) in schema.columns.iter().zip(batch.columns()) {
        match column.kind {
            ColumnKind::Time => {
                write.time = values.as_primitive::<TimestampNanosecondType>().values().clone();
            }
            ColumnKind::Tag(_) => write.tags.push(tag_column(&column.name, values.as_ref())?),
            // A field of which nothing is said needs no column.
            ColumnKind::Field(_) if values.null_count() == values.len() => {}
            ColumnKind::Field(_) => write
                .fields
                .push(FieldColumn { name: column.name.clone(), values: Arc::clone(values) }),
        }
    }
    Ok(write)
}

fn tag_column(name: &str, values: &dyn Array) -> Result<TagColumn> {
    let dictionary = values.as_dictionary::<UInt32Type>();
    let texts = cast(dictionary.values(), &DataType::Utf8)?;
    let texts: &StringArray = texts.as_string();
    let keys = dictionary.keys();
    let keys: Vec<u32> = keys.iter().map(|key| key.unwrap_or(NO_TAG)).collect();
    Ok(TagColumn { name: name.to_owned(), values: texts.clone(), keys: keys.into() })
}
