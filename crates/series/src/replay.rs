//! Records of the log come back into memory.

use std::sync::PoisonError;

use arrow_array::UInt32Array;
use tidefall_ground::manifest::TableState;
use tidefall_types::{Error, Result, Seq};

use crate::change::{Change, Mark, apply};
use crate::ingest::Prepared;
use crate::ingest::record::{RecordKind, decode_delete, decode_rows, split_sensors};
use crate::read::LiveTombstone;
use crate::rows::{gather_all, values_at};
use crate::table::Table;

/// Applies a record of a table, of which `stored` is in objects. Returns the number of rows that came.
///
/// # Errors
/// `Corrupt` when the record is damaged, or of no [kind](RecordKind) that series tables know.
pub fn replay(
    table: &Table,
    stored: Option<&TableState>,
    (seq, kind, body): (Seq, u8, &[u8]),
) -> Result<u64> {
    match RecordKind::from_byte(kind)? {
        RecordKind::Sensors => take_sensors(table, body).map(|()| 0),
        RecordKind::Delete => {
            let change = match stored.is_some_and(|stored| stored.has_delete(seq)) {
                // The rows before it must still not become one run with those behind it, which
                // would count as written after it.
                true => Change::Mark(Mark::default()),
                false => Change::Delete(LiveTombstone::of_stored(&decode_delete(body)?)?),
            };
            apply(table, seq, change, None)?;
            Ok(0)
        }
        RecordKind::Rows => take_rows(table, stored, (seq, body)),
        RecordKind::RowsWithSensors => {
            let (sensors, rows) = split_sensors(body)?;
            take_sensors(table, sensors)?;
            take_rows(table, stored, (seq, rows))
        }
    }
}

/// Takes note that all records were applied: storage knows the sensors that they brought.
pub fn replayed(table: &Table) {
    let sensors = table.sensors.read().unwrap_or_else(PoisonError::into_inner);
    table.known.keep(sensors.count());
}

fn take_sensors(table: &Table, frame: &[u8]) -> Result<()> {
    table.sensors.write().unwrap_or_else(PoisonError::into_inner).decode(frame)
}

fn take_rows(
    table: &Table,
    stored: Option<&TableState>,
    (seq, frame): (Seq, &[u8]),
) -> Result<u64> {
    if stored.is_some_and(|stored| stored.has_flushed(seq)) {
        return Ok(0);
    }
    let rows = decode_rows(&table.schema(), frame, Err)?;
    let count = table.sensors.read().unwrap_or_else(PoisonError::into_inner).count();
    if rows.sensor.iter().any(|sensor| *sensor >= count) {
        return Err(Error::corrupt("a row belongs to a sensor that does not exist"));
    }
    let rows = match stored {
        Some(stored) => not_flushed(stored, seq, rows)?,
        None => rows,
    };
    let added = rows.time.len() as u64;
    apply(table, seq, Change::Rows(rows), None)?;
    Ok(added)
}

/// The rows that are still only in the log.
fn not_flushed(stored: &TableState, seq: Seq, rows: Prepared) -> Result<Prepared> {
    let is_gone = |time: i64| stored.flushed.iter().any(|flushed| flushed.covers(seq, time));
    if !rows.time.iter().any(|&time| is_gone(time)) {
        return Ok(rows);
    }
    pick_rows(&rows, |row| !is_gone(rows.time[row]))
}

/// The rows for which `keep` holds.
pub fn pick_rows(rows: &Prepared, keep: impl Fn(usize) -> bool) -> Result<Prepared> {
    let keep: UInt32Array = (0..rows.time.len() as u32).filter(|&row| keep(row as usize)).collect();
    let (sensor, time) = (values_at(&rows.sensor, &keep), values_at(&rows.time, &keep));
    Ok(Prepared::new(sensor, time, gather_all(&rows.fields, &keep)?))
}
