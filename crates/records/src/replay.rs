//! Records of the log come back into memory.

use tidefall_ground::manifest::TableState;
use tidefall_types::{Result, Seq};

use crate::change::{Change, apply};
use crate::record::{RecordKind, decode_delete, decode_rows};
use crate::table::{Rows, Table};

/// Applies a record of a table, of which `stored` is in objects. Returns the number of rows that came.
///
/// # Errors
/// `Corrupt` when the record is damaged, or of no [kind](RecordKind) that tables of records know.
pub fn replay(
    table: &Table,
    stored: Option<&TableState>,
    (seq, kind, body): (Seq, u8, &[u8]),
) -> Result<u64> {
    let schema = table.schema();
    let change = match RecordKind::from_byte(kind)? {
        // The manifest has it, and so has the table. The rows before it must still not become one chunk with those behind it, which would count as
        // written after it.
        RecordKind::Delete if stored.is_some_and(|stored| stored.has_delete(seq)) => Change::Mark,
        RecordKind::Delete => Change::Delete(decode_delete(&schema, body)?),
        RecordKind::Rows if stored.is_some_and(|stored| stored.has_flushed(seq)) => return Ok(0),
        RecordKind::Rows => Change::Rows(Rows::Loose(decode_rows(&schema, body, Err)?)),
    };
    let rows = match &change {
        Change::Rows(rows) => rows.len() as u64,
        Change::Mark | Change::Delete(_) => 0,
    };
    apply(table, seq, change)?;
    Ok(rows)
}
