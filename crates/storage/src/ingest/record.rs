//! The records of the log.
//!
//! ```text
//! rows     table id u32, then a frame: sensors, times, field ids, one column for each field
//! sensors  table id u32, then the frame of SensorDictionary::encode_from
//! delete   table id u32, then a tombstone as JSON
//! ```

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, Int64Array, UInt32Array};
use tidefall_codec::Profile;
use tidefall_types::{Error, FieldType, Result, TableId, TableSchema};

use super::Prepared;
use crate::manifest::Tombstone;
use crate::segment::frame::{FrameReader, FrameWriter};

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordKind {
    Rows = 1,
    Sensors = 2,
    Delete = 3,
}

impl RecordKind {
    pub(crate) fn from_byte(byte: u8) -> Result<Self> {
        match byte {
            1 => Ok(Self::Rows),
            2 => Ok(Self::Sensors),
            3 => Ok(Self::Delete),
            other => Err(Error::corrupt(format!(
                "the log holds a record of kind {other}, which this version does not know"
            ))),
        }
    }
}

/// Splits a record into the table it is for and the rest.
pub(crate) fn split_table(payload: &[u8]) -> Result<(TableId, &[u8])> {
    let (table, rest) = payload
        .split_first_chunk::<4>()
        .ok_or_else(|| Error::corrupt("a record of the log is too short"))?;
    Ok((TableId(u32::from_le_bytes(*table)), rest))
}

pub(crate) fn encode_rows(table: TableId, rows: &Prepared) -> Result<Vec<u8>> {
    let mut frame = FrameWriter::new(Profile::Fast);
    frame.put_column(&UInt32Array::new(rows.sensor.clone(), None))?;
    frame.put_column(&Int64Array::new(rows.time.clone(), None))?;
    let present = || rows.fields.iter().enumerate().filter_map(|(id, f)| Some((id, f.as_ref()?)));
    frame.put_i64s(present().map(|(id, _)| id as i64).collect())?;
    for (_, column) in present() {
        frame.put_column(column)?;
    }
    with_table(table, &frame.finish()?)
}

pub(crate) fn decode_rows(schema: &TableSchema, frame: &[u8]) -> Result<Prepared> {
    let mut frame = FrameReader::new(frame)?;
    let sensor = frame.take_column(FieldType::U32)?;
    let sensor = sensor.as_primitive::<UInt32Type>().values().clone();
    let time = frame.take_i64s()?;
    let mut fields = vec![None; schema.fields.len()];
    for id in frame.take_i64s()? {
        let wrong = || Error::corrupt("a record of the log names a field that does not exist");
        let id = usize::try_from(id).map_err(|_| wrong())?;
        let field = schema.fields.get(id).ok_or_else(wrong)?;
        fields[id] = Some(frame.take_column(field.ty)?);
    }
    let same = fields.iter().flatten().all(|column| column.len() == time.len());
    if sensor.len() != time.len() || !same {
        return Err(Error::corrupt("the columns of a record of the log differ in length"));
    }
    Ok(Prepared { sensor, time: time.into(), fields })
}

pub(crate) fn encode_sensors(table: TableId, sensors: &[u8]) -> Result<Vec<u8>> {
    with_table(table, sensors)
}

pub(crate) fn encode_delete(table: TableId, tombstone: &Tombstone) -> Result<Vec<u8>> {
    let json = serde_json::to_vec(tombstone)
        .map_err(|error| Error::invalid(format!("a delete cannot be logged: {error}")))?;
    with_table(table, &json)
}

pub(crate) fn decode_delete(json: &[u8]) -> Result<Tombstone> {
    serde_json::from_slice(json)
        .map_err(|error| Error::corrupt(format!("a delete in the log is damaged: {error}")))
}

fn with_table(table: TableId, rest: &[u8]) -> Result<Vec<u8>> {
    let mut payload = Vec::with_capacity(rest.len() + 4);
    payload.extend_from_slice(&table.0.to_le_bytes());
    payload.extend_from_slice(rest);
    Ok(payload)
}
