//! How an object of the manifest is laid out.
//!
//! ```text
//! object = magic[8] format:u32 crc:u32 kind:u32 writer:u32 version:u64 body_bytes:u64 body
//! body   = JSON: of a delta the array of its edits, of a checkpoint the state
//! ```
//!
//! Numbers are little-endian; the checksum (CRC-32C) covers everything but itself.

use tidefall_types::{Error, Result};

const MAGIC: [u8; 8] = *b"TIDEFman";
/// Since 5 there are tables of records.
pub(super) const FORMAT: u32 = 5;
pub(super) const HEADER_BYTES: usize = 40;

/// What an object of the manifest holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The edits from one version to the next.
    Delta = 1,
    /// The state at a version.
    Checkpoint = 2,
}

/// A whole object.
pub fn encode(kind: Kind, writer: u32, version: u64, body: &[u8]) -> Vec<u8> {
    [&header(kind, writer, version, body)[..], body].concat()
}

/// The checksum in the head of an object, if that is there.
pub(super) fn checksum_in(object: &[u8]) -> Option<u32> {
    object.get(12..16).and_then(|crc| crc.try_into().ok()).map(u32::from_le_bytes)
}

/// What stands before a body.
pub(super) fn header(kind: Kind, writer: u32, version: u64, body: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[0..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[16..20].copy_from_slice(&(kind as u32).to_le_bytes());
    header[20..24].copy_from_slice(&writer.to_le_bytes());
    header[24..32].copy_from_slice(&version.to_le_bytes());
    header[32..40].copy_from_slice(&(body.len() as u64).to_le_bytes());
    let crc = checksum(&header, body);
    header[12..16].copy_from_slice(&crc.to_le_bytes());
    header
}

pub(super) fn checksum(header: &[u8; HEADER_BYTES], body: &[u8]) -> u32 {
    let head = crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..]);
    crc32c::crc32c_append(head, body)
}

/// The body of an object of the manifest, if these bytes are the object of this kind and version.
///
/// # Errors
/// `Corrupt` or `Unsupported`, with the reason but without the name.
pub(super) fn body_of(bytes: &[u8], kind: Kind, version: u64) -> Result<&[u8]> {
    let Some((head, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(Error::corrupt(format!("it is cut short at offset {}", bytes.len())));
    };
    if head[0..8] != MAGIC {
        return Err(Error::corrupt("offset 0: it is no object of a manifest"));
    }
    // The header that belongs here, but for its checksum, format and writer, leaves nothing to interpret.
    let mut wanted = header(kind, 0, version, body);
    wanted[8..16].copy_from_slice(&head[8..16]);
    wanted[20..24].copy_from_slice(&head[20..24]);
    if checksum(head, body).to_le_bytes() != head[12..16] {
        return Err(Error::corrupt("offset 12: its checksum is wrong"));
    }
    let format = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
    if !(1..=FORMAT).contains(&format) {
        return Err(Error::unsupported(format!(
            "it was written in format {format}; this program reads up to {FORMAT}"
        )));
    }
    if *head != wanted {
        return Err(Error::corrupt("offset 16: it is another object under this name"));
    }
    Ok(body)
}
