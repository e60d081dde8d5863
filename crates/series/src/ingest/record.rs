//! The records of the log, behind the table that they are for ([`split_table`]).
//!
//! ```text
//! rows     a frame: sensors, times, field ids, one column for each field
//! sensors  a frame of SensorDictionary::encode; no longer written
//! delete   a tombstone as JSON
//! rows with new sensors
//!          the length of the frame of sensors u32, that frame, then the frame of rows
//! ```
//!
//! New sensors are logged in one record with the first rows that need them, so that the log never has rows of
//! a sensor that it does not know. Which those are is known only when the record is appended: a write that was
//! to bring them may have failed, or may not have been one for the log. So the committing thread has the last
//! word ([`LogRecord::complete`]).
//!
//! [`split_table`]: tidefall_ground::wal::split_table

use std::ops::Range;
use std::sync::PoisonError;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, Int64Array, UInt32Array};
use tidefall_codec::Profile;
use tidefall_ground::frames::{FrameReader, FrameWriter};
use tidefall_ground::manifest::Tombstone;
use tidefall_ground::wal::{Wal, check_record_bytes, table_head};
use tidefall_types::{Error, FieldType, Result, Seq, TableId, TableSchema};

use super::Prepared;
use crate::table::Table;

/// What a record of a series table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// Rows of sensors that the log knows.
    Rows = 1,
    /// New sensors.
    Sensors = 2,
    /// A delete.
    Delete = 3,
    /// New sensors, and rows of theirs.
    RowsWithSensors = 4,
}

impl RecordKind {
    /// The kind of a record in the log, of a series table.
    ///
    /// # Errors
    /// `Corrupt` for one that is not known.
    pub fn from_byte(byte: u8) -> Result<Self> {
        match byte {
            1 => Ok(Self::Rows),
            2 => Ok(Self::Sensors),
            3 => Ok(Self::Delete),
            4 => Ok(Self::RowsWithSensors),
            other => Err(Error::corrupt(format!(
                "the log holds a record of kind {other}, which this version does not know"
            ))),
        }
    }
}

/// Bytes of a record in front of its frames.
const HEAD_BYTES_MAX: usize = 8;

/// A record before it is in the log.
#[derive(Debug)]
pub enum LogRecord {
    /// Rows, with the sensors that the log does not know.
    Rows {
        /// All sensors of the rows are below.
        upto: u32,
        /// Those that the log may not know yet.
        new: Option<NewSensors>,
        /// The frame of the rows.
        rows: Vec<u8>,
    },
    /// A delete as JSON.
    Delete(Vec<u8>),
}

/// Sensors on their way into the log.
#[derive(Debug)]
pub struct NewSensors {
    sensors: Range<u32>,
    frame: Vec<u8>,
}

impl NewSensors {
    fn of(table: &Table, sensors: Range<u32>) -> Result<Self> {
        let dictionary = table.sensors.read().unwrap_or_else(PoisonError::into_inner);
        Ok(Self { frame: dictionary.encode(sensors.clone())?, sensors })
    }
}

impl LogRecord {
    /// The record of rows that are to be written to a table, with the sensors that nobody has sent to the log.
    ///
    /// # Errors
    /// `Limit` when rows or sensors are more than a frame holds.
    pub fn of_rows(table: &Table, rows: &Prepared) -> Result<Self> {
        let mut record = Self::alone(rows)?;
        if let Self::Rows { upto, new, .. } = &mut record {
            let unsent = table.known.send(*upto);
            *new = (!unsent.is_empty()).then(|| NewSensors::of(table, unsent)).transpose()?;
        }
        Ok(record)
    }

    /// The record of rows alone, which is to be [completed](Self::complete).
    ///
    /// # Errors
    /// `Limit` when the rows are more than a frame holds.
    pub fn alone(rows: &Prepared) -> Result<Self> {
        Ok(Self::Rows { upto: rows.upto(), new: None, rows: encode_rows(rows)? })
    }

    /// Its bytes.
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Rows { new, rows, .. } => {
                rows.len() + new.as_ref().map_or(0, |new| new.frame.len())
            }
            Self::Delete(json) => json.len(),
        }
    }

    /// Gives the record exactly the sensors that the log needs in front of its rows, when all records up to now
    /// have brought those below `known`. Returns up to where the log knows them behind this record.
    ///
    /// # Errors
    /// `Limit` when the record is too large.
    pub fn complete(&mut self, table: &Table, known: u32) -> Result<u32> {
        let mut end = known;
        if let Self::Rows { upto, new, .. } = self {
            let brings = new.as_ref().map_or(known..known, |new| new.sensors.clone());
            end = known.max(brings.end).max(*upto);
            if end == known {
                *new = None;
            } else if brings.start > known || brings.end < end {
                *new = Some(NewSensors::of(table, known..end)?);
            }
        }
        check_record_bytes(self.size_bytes() + HEAD_BYTES_MAX)?;
        Ok(end)
    }

    /// Appends the record to the log.
    ///
    /// # Errors
    /// As [`Wal::append`].
    pub fn append(&self, wal: &mut Wal, seq: Seq, table: TableId) -> Result<()> {
        let table = table_head(table);
        match self {
            Self::Rows { new: None, rows, .. } => {
                wal.append(seq, RecordKind::Rows as u8, &[&table, rows])
            }
            Self::Rows { new: Some(new), rows, .. } => {
                let length = (new.frame.len() as u32).to_le_bytes();
                let kind = RecordKind::RowsWithSensors as u8;
                wal.append(seq, kind, &[&table, &length, &new.frame, rows])
            }
            Self::Delete(json) => wal.append(seq, RecordKind::Delete as u8, &[&table, json]),
        }
    }
}

/// The frame of sensors in front of the frame of rows, behind the table, and that.
///
/// # Errors
/// `Corrupt` when it is too short.
pub fn split_sensors(body: &[u8]) -> Result<(&[u8], &[u8])> {
    let split = body
        .split_first_chunk::<4>()
        .and_then(|(length, rest)| rest.split_at_checked(u32::from_le_bytes(*length) as usize));
    split.ok_or_else(|| Error::corrupt("the sensors of a record of the log are cut short"))
}

/// The frame of rows.
///
/// # Errors
/// `Limit` when it is too long.
pub fn encode_rows(rows: &Prepared) -> Result<Vec<u8>> {
    let mut frame = FrameWriter::new(Profile::Fast);
    frame.put_column(&UInt32Array::new(rows.sensor.clone(), None))?;
    frame.put_column(&Int64Array::new(rows.time.clone(), None))?;
    let present = || rows.fields.iter().enumerate().filter_map(|(id, f)| Some((id, f.as_ref()?)));
    frame.put_i64s(present().map(|(id, _)| id as i64).collect())?;
    for (_, column) in present() {
        frame.put_column(column)?;
    }
    frame.finish()
}

/// The rows of a frame, of a table with this schema. `unfit` is told of each field that the schema does not have so, and gives the error if rows
/// must not do without it.
///
/// # Errors
/// That, and `Corrupt` when all of it is damaged.
pub fn decode_rows(
    schema: &TableSchema,
    frame: &[u8],
    mut unfit: impl FnMut(Error) -> Result<()>,
) -> Result<Prepared> {
    let mut frame = FrameReader::new(frame)?;
    let sensor = frame.take_column(FieldType::U32)?;
    let sensor = sensor.as_primitive::<UInt32Type>().values().clone();
    let time = frame.take_i64s()?;
    let mut fields = vec![None; schema.fields.len()];
    for id in frame.take_i64s()? {
        let known = usize::try_from(id).ok().and_then(|id| Some((id, schema.fields.get(id)?)));
        let Some((id, field)) = known else {
            unfit(Error::corrupt("a record of the log names a field that does not exist"))?;
            frame.pass_over(1)?;
            continue;
        };
        match frame.take_column(field.ty) {
            Ok(column) => fields[id] = Some(column),
            Err(error) => unfit(error.context(format_args!("field {}", field.name)))?,
        }
    }
    let same = fields.iter().flatten().all(|column| column.len() == time.len());
    if sensor.len() != time.len() || !same {
        return Err(Error::corrupt("the columns of a record of the log differ in length"));
    }
    Ok(Prepared::new(sensor, time.into(), fields))
}

/// A delete as JSON.
///
/// # Errors
/// None that is known.
pub fn encode_delete(tombstone: &Tombstone) -> Result<Vec<u8>> {
    serde_json::to_vec(tombstone)
        .map_err(|error| Error::invalid(format!("a delete cannot be logged: {error}")))
}

/// A delete of JSON.
///
/// # Errors
/// `Corrupt` when it is damaged.
pub fn decode_delete(json: &[u8]) -> Result<Tombstone> {
    serde_json::from_slice(json)
        .map_err(|error| Error::corrupt(format!("a delete in the log is damaged: {error}")))
}
