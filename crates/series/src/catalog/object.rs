//! Sensors as an object: a header as every object has it, then the frame of
//! [`super::SensorDictionary::encode`].

use tidefall_ground::frames::{Content, HEADER_BYTES, decode_header};
use tidefall_ground::manifest::series::SensorObject;
use tidefall_store::{ObjectIo, of_needed_object};
use tidefall_types::{Error, Result, TableId};

/// The frame in the bytes of an object of `table`.
///
/// # Errors
/// `Corrupt` when it is damaged or of another table, `Unsupported` for another version.
pub fn frame_of_object(table: TableId, bytes: &[u8]) -> Result<&[u8]> {
    let (header, frame) = bytes
        .split_first_chunk::<HEADER_BYTES>()
        .ok_or_else(|| Error::corrupt(format!("it is cut short at offset {}", bytes.len())))?;
    let found = decode_header(Content::Sensors, header)?;
    if found != table {
        return Err(Error::corrupt(format!("it holds sensors of table {found}, not of {table}")));
    }
    Ok(frame)
}

/// Reads a stored part of a table's sensors and hands its frame to `take`. Every error names the
/// object.
pub(crate) fn read_sensors(
    io: &dyn ObjectIo,
    table: TableId,
    part: &SensorObject,
    take: impl FnOnce(&[u8]) -> Result<()>,
) -> Result<()> {
    let name = part.name();
    let bytes = io.read_range(&name, 0..part.bytes);
    // It is read once.
    io.let_go(&name);
    let bytes = bytes.map_err(|error| of_needed_object(&name, error))?;
    frame_of_object(table, &bytes).and_then(take).map_err(|error| error.context(&name))
}
