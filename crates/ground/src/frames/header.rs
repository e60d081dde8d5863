//! What every object of data starts with.
//!
//! ```text
//! magic [8], version u16, 0 u16, table id u32, crc32c of the above u32, 0 u32
//! ```

use tidefall_types::{Error, Result, TableId};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;

/// What an object holds, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Readings.
    Segment,
    /// The tags of sensors.
    Sensors,
    /// Records.
    Records,
}

impl Content {
    /// The first bytes of such an object.
    pub const fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Segment => b"TDFSEGMT",
            Self::Sensors => b"TDFSENSR",
            Self::Records => b"TDFRECRD",
        }
    }

    /// The version that is written. All up to it are read.
    const fn version(self) -> u16 {
        match self {
            Self::Segment | Self::Records => 1,
            // 1 had the tags of each sensor in full.
            Self::Sensors => 2,
        }
    }
}

/// The header of an object of a table.
pub fn encode_header(content: Content, table: TableId) -> [u8; HEADER_BYTES] {
    header_of_version(content, content.version(), table)
}

fn header_of_version(content: Content, version: u16, table: TableId) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(content.magic());
    header[8..10].copy_from_slice(&version.to_le_bytes());
    header[12..16].copy_from_slice(&table.0.to_le_bytes());
    let crc = crc32c::crc32c(&header[..16]);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Reads the header at the start of an object, and returns the table that the object is of.
///
/// # Errors
/// `Corrupt` when it is none or damaged, `Unsupported` for another version.
pub fn decode_header(content: Content, header: &[u8; HEADER_BYTES]) -> Result<TableId> {
    let u32_at = |at: usize| {
        let mut number = [0; 4];
        number.copy_from_slice(&header[at..at + 4]);
        u32::from_le_bytes(number)
    };
    if header[..8] != *content.magic() {
        return Err(Error::corrupt("offset 0: the first bytes are not those of such an object"));
    }
    if crc32c::crc32c(&header[..16]) != u32_at(16) {
        return Err(Error::corrupt("offset 0: the checksum of its header is wrong"));
    }
    let version = u16::from_le_bytes([header[8], header[9]]);
    if !(1..=content.version()).contains(&version) {
        return Err(Error::unsupported(format!(
            "it has format {version}, this program reads formats up to {}",
            content.version()
        )));
    }
    let table = TableId(u32_at(12));
    // What is 0 in this version has a meaning in none.
    if header_of_version(content, version, table) != *header {
        return Err(Error::corrupt("offset 0: its header is damaged"));
    }
    Ok(table)
}
