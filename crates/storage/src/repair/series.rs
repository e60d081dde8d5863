//! What a repair keeps of series tables.
//!
//! Rows are kept when their sensors are known; sensors get other numbers when those before them are lost. The records of sensors alone are
//! not: they are written with the rows that need them.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use tidefall_ground::manifest::TableState;
use tidefall_ground::manifest::series::Stored;
use tidefall_ground::wal::Wal;
use tidefall_series::Table;
use tidefall_series::ingest::record::{
    LogRecord, RecordKind, decode_delete, decode_rows, encode_delete, split_sensors,
};
use tidefall_series::read::LiveTombstone;
use tidefall_series::replay::pick_rows;
use tidefall_types::{Error, ErrorKind, Result, Seq, TimeRange};

use super::{Kept, LostObject};

/// A table of which the log is read: its sensors by the numbers that they have in the damaged log, and those that they get.
#[derive(Debug)]
pub(super) struct Mended {
    table: Arc<Table>,
    /// Those below are in objects, and keep their numbers.
    stored: u32,
    renamed: HashMap<u32, u32>,
    /// Those below, by their new numbers, are in objects or in the new log.
    known: u32,
}

impl Mended {
    pub(super) fn new(table: Arc<Table>, stored: &Stored) -> Self {
        let stored = stored.sensor_count();
        Self { table, stored, renamed: HashMap::new(), known: stored }
    }

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
        // The log need not have rows that are in objects.
        let has_flushed = || stored.is_some_and(|stored| stored.has_flushed(seq));
        let mut record = match RecordKind::from_byte(kind)? {
            RecordKind::Sensors => return self.take_sensors(body),
            RecordKind::Delete => self.delete(body)?,
            RecordKind::Rows if has_flushed() => return Ok(()),
            RecordKind::Rows => self.rows(body, kept)?,
            RecordKind::RowsWithSensors => {
                let rows = self.sensors_before_rows(body, kept)?;
                if has_flushed() {
                    return Ok(());
                }
                self.rows(rows, kept)?
            }
        };
        kept.records += 1;
        let Some(new) = new else { return Ok(()) };
        self.known = record.complete(&self.table, self.known)?;
        record.append(new, seq, self.table.id)
    }

    fn renamed(&self, sensor: u32) -> Option<u32> {
        if sensor < self.stored { Some(sensor) } else { self.renamed.get(&sensor).copied() }
    }

    fn delete(&self, json: &[u8]) -> Result<LogRecord> {
        let mut delete = LiveTombstone::of_stored(&decode_delete(json)?)?;
        if let Some(sensors) = &mut delete.sensors {
            // What is lost needs no delete.
            *sensors = Arc::new(sensors.iter().filter_map(|s| self.renamed(s)).collect());
        }
        Ok(LogRecord::Delete(encode_delete(&delete.to_stored()?)?))
    }

    fn take_sensors(&mut self, frame: &[u8]) -> Result<()> {
        let mut dictionary = self.table.sensors.write().unwrap_or_else(PoisonError::into_inner);
        self.renamed.extend(dictionary.adopt(frame)?);
        Ok(())
    }

    /// The frame of rows behind that of sensors, also when that is damaged.
    fn sensors_before_rows<'a>(&mut self, body: &'a [u8], kept: &mut Kept) -> Result<&'a [u8]> {
        let (sensors, rows) = split_sensors(body)?;
        match self.take_sensors(sensors) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let name = &self.table.schema().name;
                kept.lost.push(format!("new sensors of table {name}: {error}"));
            }
            taken => taken?,
        }
        Ok(rows)
    }

    /// The rows whose sensors are known.
    fn rows(&self, frame: &[u8], kept: &mut Kept) -> Result<LogRecord> {
        let schema = self.table.schema();
        let of_table = |error: Error| error.context(format_args!("rows of table {}", schema.name));
        let mut unfit = Vec::new();
        let rows = decode_rows(&schema, frame, |error| {
            unfit.push(error);
            Ok(())
        });
        let rows = rows.map_err(of_table)?;
        if rows.fields.iter().all(Option::is_none)
            && let Some(error) = unfit.pop()
        {
            return Err(of_table(error));
        }
        kept.lost.extend(unfit.iter().map(|error| {
            let rows = rows.time.len();
            format!("the values of a field in {rows} rows of table {}: {error}", schema.name)
        }));
        let renamed: Vec<Option<u32>> =
            rows.sensor.iter().map(|sensor| self.renamed(*sensor)).collect();
        let lost: Vec<i64> = renamed
            .iter()
            .zip(rows.time.iter())
            .filter_map(|(sensor, time)| sensor.is_none().then_some(*time))
            .collect();
        let mut left = pick_rows(&rows, |row| renamed[row].is_some())?;
        left.sensor = renamed.iter().flatten().copied().collect::<Vec<_>>().into();
        kept.rows += left.time.len() as u64;
        let (Some(first), Some(last)) = (lost.iter().min(), lost.iter().max()) else {
            return LogRecord::alone(&left);
        };
        let what = format!(
            "{} of {} rows of table {}, of times in {}: they belong to sensors that nothing names",
            lost.len(),
            rows.time.len(),
            schema.name,
            TimeRange::new(*first, *last),
        );
        if lost.len() == rows.time.len() {
            return Err(Error::corrupt(what));
        }
        kept.lost.push(what);
        LogRecord::alone(&left)
    }
}

/// The objects of a table that cannot be opened.
///
/// # Errors
/// Those of the disk.
pub(super) fn lost_objects(table: &Table) -> Result<Vec<LostObject>> {
    let mut lost = Vec::new();
    for object in table.version().objects.iter() {
        let opened = object.segment.check_size().and_then(|()| {
            object.segment.table()?;
            object.segment.index_block_count().map(drop)
        });
        match opened {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let entry = &object.entry;
                let name = &table.schema().name;
                let what = format!(
                    "{} rows of table {name}, of times in {}: {error}",
                    entry.rows, entry.time
                );
                lost.push(LostObject { table: table.id, id: entry.id, name: entry.name(), what });
            }
            opened => opened?,
        }
    }
    Ok(lost)
}
