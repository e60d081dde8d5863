//! What a repair keeps of tables of records: every record of the log that can be read.

use std::sync::Arc;

use tidefall_ground::manifest::TableState;
use tidefall_ground::wal::Wal;
use tidefall_records::Table;
use tidefall_records::record::{LogRecord, RecordKind, decode_delete, decode_rows};
use tidefall_records::table::Rows;
use tidefall_types::{ErrorKind, Result, Seq};

use super::{Kept, LostObject};

/// A table of which the log is read.
#[derive(Debug)]
pub(super) struct Mended(pub(super) Arc<Table>);

impl Mended {
    /// Finds out what recovery would take of a record of the table, and writes that to another log.
    ///
    /// # Errors
    /// `Corrupt` when nothing of it is left, those of the disk.
    pub(super) fn keep(
        &mut self,
        stored: Option<&TableState>,
        (seq, kind, body): (Seq, u8, &[u8]),
        new: Option<&mut Wal>,
        kept: &mut Kept,
    ) -> Result<()> {
        let schema = self.0.schema();
        let record = match RecordKind::from_byte(kind)? {
            RecordKind::Delete => LogRecord::of_delete(&decode_delete(&schema, body)?)?,
            // The log need not have rows that are in objects.
            RecordKind::Rows if stored.is_some_and(|stored| stored.has_flushed(seq)) => {
                return Ok(());
            }
            RecordKind::Rows => {
                let mut unfit = Vec::new();
                let rows = decode_rows(&schema, body, |error| {
                    unfit.push(error);
                    Ok(())
                });
                let rows = Rows::Loose(rows.map_err(|error| {
                    error.context(format_args!("rows of table {}", schema.name))
                })?);
                kept.lost.extend(unfit.iter().map(|error| {
                    format!(
                        "the values of a column in {} rows of table {}: {error}",
                        rows.len(),
                        schema.name
                    )
                }));
                kept.rows += rows.len() as u64;
                LogRecord::of_rows(&rows)?
            }
        };
        kept.records += 1;
        new.map_or(Ok(()), |new| record.append(new, seq, self.0.id))
    }
}

/// The segments of a table that cannot be opened.
///
/// # Errors
/// Those of the disk.
pub(super) fn lost_objects(table: &Table) -> Result<Vec<LostObject>> {
    let mut lost = Vec::new();
    for live in table.version().segments.iter() {
        let opened = live.segment.check_size().and_then(|()| live.segment.index().map(drop));
        match opened {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let (entry, name) = (&live.entry, &table.schema().name);
                let what = format!("{} rows of table {name}: {error}", entry.rows);
                lost.push(LostObject { table: table.id, id: entry.id, name: entry.name(), what });
            }
            opened => opened?,
        }
    }
    Ok(lost)
}
