//! What tables of all kinds have at the start of the payload of a record:
//!
//! ```text
//! table id u32, then what the kind of the table makes of it
//! ```
//!
//! What the kind of a record means is for the kind of the table to say, too.

use tidefall_types::{Error, Result, TableId};

/// The head of records of a table.
pub fn table_head(table: TableId) -> [u8; 4] {
    table.0.to_le_bytes()
}

/// Splits the payload of a record into the table it is for and the rest.
///
/// # Errors
/// `Corrupt` when it is too short.
pub fn split_table(payload: &[u8]) -> Result<(TableId, &[u8])> {
    let (table, rest) = payload
        .split_first_chunk::<4>()
        .ok_or_else(|| Error::corrupt("a record of the log is too short"))?;
    Ok((TableId(u32::from_le_bytes(*table)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_of_the_table_in_its_head() {
        let payload = [&table_head(TableId(70_000))[..], b"rest"].concat();
        assert_eq!(split_table(&payload).unwrap(), (TableId(70_000), &b"rest"[..]));
        assert!(split_table(&payload[..3]).unwrap_err().message().contains("too short"));
    }
}
