//! Records of the log, which is written by nobody else but may be damaged before its checksums are
//! made.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray, TimestampNanosecondArray,
};
use tidefall_ground::wal::split_table;
use tidefall_series::catalog::SensorDictionary;
use tidefall_series::change::{Change, apply};
use tidefall_series::ingest::Prepared;
use tidefall_series::ingest::record::{
    RecordKind, decode_delete, decode_rows, encode_delete, encode_rows, split_sensors,
};
use tidefall_series::read::{Fetched, LiveTombstone, ReadStats, SensorStream};
use tidefall_series::table::Table;
use tidefall_types::{FieldId, FieldType, Result, Seq, TableId, TableSchema, TimeRange};

use crate::check_error;
use crate::checksums::repair_frame;

/// Sensors that the table has.
const SENSORS: u32 = 20;
const TYPES: [FieldType; 5] =
    [FieldType::F64, FieldType::I64, FieldType::Text, FieldType::Bool, FieldType::Timestamp];

/// A record of arbitrary bytes, with its checksums as they are or repaired: it becomes a part of a
/// table that can be read, or an error.
pub fn record(data: &[u8]) {
    let Some(([mode, kind], data)) = data.split_first_chunk() else { return };
    let mut payload = data.to_vec();
    if mode & 1 == 1 {
        repair_frames(*kind, &mut payload);
    }
    if let Err(error) = replay(*kind, &payload) {
        check_error(&error);
    }
}

fn repair_frames(kind: u8, payload: &mut [u8]) {
    let frames = match RecordKind::from_byte(kind) {
        Ok(RecordKind::RowsWithSensors) => {
            payload.get_mut(4..).and_then(|body| body.split_first_chunk_mut::<4>()).and_then(
                |(length, body)| body.split_at_mut_checked(u32::from_le_bytes(*length) as usize),
            )
        }
        _ => payload.get_mut(4..).map(|frame| (frame, <&mut [u8]>::default())),
    };
    if let Some((one, other)) = frames {
        repair_frame(one, 0);
        repair_frame(other, 0);
    }
}

fn replay(kind: u8, payload: &[u8]) -> Result<()> {
    let table = table()?;
    let (_, body) = split_table(payload)?;
    match RecordKind::from_byte(kind)? {
        RecordKind::Sensors => SensorDictionary::default().decode(body),
        RecordKind::Delete => {
            let tombstone = LiveTombstone::of_stored(&decode_delete(body)?)?;
            let stored = tombstone.to_stored()?;
            assert_eq!(
                LiveTombstone::of_stored(&stored)?.sensors,
                tombstone.sensors,
                "a delete has changed"
            );
            apply(&table, Seq(1), Change::Delete(tombstone), None).map(drop)
        }
        RecordKind::Rows => take_rows(&table, body),
        RecordKind::RowsWithSensors => {
            let (sensors, rows) = split_sensors(body)?;
            SensorDictionary::default().decode(sensors)?;
            take_rows(&table, rows)
        }
    }
}

fn take_rows(table: &Table, frame: &[u8]) -> Result<()> {
    let rows = decode_rows(&table.schema(), frame, Err)?;
    if rows.sensor.iter().any(|sensor| *sensor >= SENSORS) {
        return Ok(());
    }
    apply(table, Seq(1), Change::Rows(rows), None)?;
    read(table)
}

fn table() -> Result<Table> {
    let mut schema = TableSchema::new(TableId(0), "fuzz", "time");
    for ty in TYPES {
        schema.add_field(ty.sql_name(), ty)?;
    }
    Ok(Table::new(schema))
}

fn read(table: &Table) -> Result<()> {
    let sources = table.sources()?;
    let fields: Arc<[(FieldId, FieldType)]> =
        TYPES.iter().enumerate().map(|(id, ty)| (FieldId(id as u16), *ty)).collect();
    let stats = Arc::new(ReadStats::default());
    for sensor in 0..SENSORS {
        let time = TimeRange::ALL;
        let mut stream = SensorStream::new(&sources, sensor, &time, &fields, &stats)?;
        let mut fetched = Fetched::default();
        while let Some(rows) = stream.next(&mut fetched)? {
            assert!(rows.times.is_sorted_by(|a, b| a < b), "times are out of order");
        }
    }
    Ok(())
}

/// Inputs of [`record`] that are whole records.
pub fn record_seeds() -> Vec<Vec<u8>> {
    let payloads = [
        (RecordKind::Rows, rows_payload()),
        (RecordKind::Sensors, sensors_payload()),
        (RecordKind::Delete, delete_payload()),
        (RecordKind::RowsWithSensors, rows_with_sensors_payload()),
    ];
    let seeds = payloads.into_iter().filter_map(|(kind, payload)| {
        let mut seed = vec![1, kind as u8];
        seed.extend(payload.ok()?);
        Some(seed)
    });
    seeds.collect()
}

fn rows_payload() -> Result<Vec<u8>> {
    Ok([&[0; 4], &rows_frame()?[..]].concat())
}

fn rows_with_sensors_payload() -> Result<Vec<u8>> {
    let sensors = sensors_payload()?;
    let length = (sensors.len() as u32 - 4).to_le_bytes();
    Ok([&sensors[..4], &length, &sensors[4..], &rows_frame()?[..]].concat())
}

fn rows_frame() -> Result<Vec<u8>> {
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.25), None, Some(-7.5)]));
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![3, 1 << 40, -5]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("dry"), Some(""), None]));
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true, true, false]));
    let times: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![
        Some(1_709_251_200_000_000_000),
        None,
        Some(-1),
    ]));
    let rows = Prepared::new(
        vec![0, 7, 0].into(),
        vec![1_709_251_200_000_000_000, 5, 1_709_251_260_000_000_000].into(),
        vec![Some(floats), Some(ints), Some(texts), Some(flags), Some(times)],
    );
    encode_rows(&rows)
}

fn sensors_payload() -> Result<Vec<u8>> {
    let mut sensors = SensorDictionary::default();
    for name in ["a", "b", "c"] {
        let keys = [sensors.intern_key(0, name)?, sensors.intern_key(1, "all")?];
        sensors.intern(&keys)?;
    }
    let mut payload = vec![0; 4];
    payload.extend(sensors.encode(0..sensors.count())?);
    Ok(payload)
}

fn delete_payload() -> Result<Vec<u8>> {
    let sensors = Some(Arc::new([1_u32, 5, 9, 70_000].into_iter().collect()));
    let tombstone = LiveTombstone { seq: Seq(3), time: TimeRange::new(-5, 5), sensors };
    Ok([&[0; 4], &encode_delete(&tombstone.to_stored()?)?[..]].concat())
}
