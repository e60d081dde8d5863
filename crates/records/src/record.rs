//! The records of the log, behind the table that they are for (`tidefall_ground::wal::split_table`).
//!
//! ```text
//! rows     a frame: field ids, one column for each of them
//! delete   boxes as JSON, as the manifest has them
//! ```

use arrow_array::{Array, ArrayRef, new_null_array};
use tidefall_codec::Profile;
use tidefall_ground::frames::{FrameReader, FrameWriter};
use tidefall_ground::manifest::Tombstone;
use tidefall_ground::wal::{Wal, table_head};
use tidefall_types::{Error, Result, Seq, TableId, TableSchema};

use crate::deletes::Delete;
use crate::region::Regions;
use crate::table::Rows;

/// What a record of a table of records is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// Rows.
    Rows = 1,
    /// A delete.
    Delete = 2,
}

impl RecordKind {
    /// The kind of a record in the log, of a table of records.
    ///
    /// # Errors
    /// `Corrupt` for one that is not known.
    pub fn from_byte(byte: u8) -> Result<Self> {
        match byte {
            1 => Ok(Self::Rows),
            2 => Ok(Self::Delete),
            other => Err(Error::corrupt(format!(
                "the log holds a record of kind {other} of a table of records, which this version does not know"
            ))),
        }
    }
}

/// A record before it is in the log.
#[derive(Debug)]
pub struct LogRecord {
    kind: RecordKind,
    body: Vec<u8>,
}

impl LogRecord {
    /// That of rows.
    ///
    /// # Errors
    /// `Limit` when they are more than a frame holds.
    pub fn of_rows(rows: &Rows) -> Result<Self> {
        Ok(Self { kind: RecordKind::Rows, body: encode_rows(rows.columns())? })
    }

    /// That of a delete.
    ///
    /// # Errors
    /// None that is known.
    pub fn of_delete(regions: &Regions) -> Result<Self> {
        let stored = Delete { seq: Seq::default(), regions: regions.clone() }.to_stored();
        let body = serde_json::to_vec(&stored)
            .map_err(|error| Error::invalid(format!("a delete cannot be logged: {error}")))?;
        Ok(Self { kind: RecordKind::Delete, body })
    }

    /// Its bytes.
    pub fn size_bytes(&self) -> usize {
        self.body.len()
    }

    /// Appends the record to the log.
    ///
    /// # Errors
    /// As [`Wal::append`].
    pub fn append(&self, wal: &mut Wal, seq: Seq, table: TableId) -> Result<()> {
        wal.append(seq, self.kind as u8, &[&table_head(table), &self.body])
    }
}

fn encode_rows(columns: &[ArrayRef]) -> Result<Vec<u8>> {
    let mut frame = FrameWriter::new(Profile::Fast);
    frame.put_i64s((0..columns.len() as i64).collect())?;
    columns.iter().try_for_each(|column| frame.put_column(&**column))?;
    frame.finish()
}

/// The rows of a record, of a table with this schema. `unfit` is told of each column that the schema does not have so, and gives the error if
/// rows must not do without it.
///
/// # Errors
/// That, and `Corrupt` when all of it is damaged, or a row lacks the value of a dimension.
pub fn decode_rows(
    schema: &TableSchema,
    body: &[u8],
    mut unfit: impl FnMut(Error) -> Result<()>,
) -> Result<Vec<ArrayRef>> {
    let mut frame = FrameReader::new(body)?;
    let mut columns: Vec<Option<ArrayRef>> = vec![None; schema.fields.len()];
    for id in frame.take_i64s()? {
        let known = usize::try_from(id).ok().and_then(|id| Some((id, schema.fields.get(id)?)));
        let Some((id, field)) = known else {
            unfit(Error::corrupt("a record of the log names a column that does not exist"))?;
            frame.pass_over(1)?;
            continue;
        };
        match frame.take_column(field.ty) {
            Ok(column) => columns[id] = Some(column),
            Err(error) => unfit(error.context(format_args!("column {}", field.name)))?,
        }
    }
    let rows = columns.iter().flatten().map(|column| column.len()).next().unwrap_or_default();
    if columns.iter().flatten().any(|column| column.len() != rows) {
        return Err(Error::corrupt("the columns of a record of the log differ in length"));
    }
    let columns: Vec<ArrayRef> = columns
        .into_iter()
        .zip(&schema.fields)
        .map(|(column, field)| column.unwrap_or_else(|| new_null_array(&field.ty.arrow(), rows)))
        .collect();
    let lacks = |id: &tidefall_types::FieldId| columns[id.index()].null_count() > 0;
    match schema.dimensions.iter().any(lacks) {
        true => Err(Error::corrupt("a row of the log lacks the value of a dimension")),
        false => Ok(columns),
    }
}

/// The boxes of a record.
///
/// # Errors
/// `Corrupt` when it is damaged.
pub fn decode_delete(schema: &TableSchema, body: &[u8]) -> Result<Regions> {
    let stored: Tombstone = serde_json::from_slice(body)
        .map_err(|error| Error::corrupt(format!("a delete in the log is damaged: {error}")))?;
    Ok(Delete::of_stored(&stored, schema.dimensions.len())?.regions)
}
