//! Segments and objects of sensors.

use std::sync::Arc;

use tidefall_ground::frames::{Content, HEADER_BYTES};
use tidefall_ground::manifest::series::{Model, ObjectEntry};
use tidefall_ground::options::VerifyReport;
use tidefall_series::catalog::SensorDictionary;
use tidefall_series::catalog::object::frame_of_object;
use tidefall_series::read::{
    AggregateRequest, Bin, Comparison, LiveObject, ReadStats, ScanRequest, Sources, TableSnapshot,
    ValueCondition, Version,
};
use tidefall_series::segment::{Segment, SegmentCaches, verify_segment};
use tidefall_simulation::MemDisk;
use tidefall_store::{LocalIo, names};
use tidefall_types::{
    FieldId, FieldType, NS_PER_HOUR, ObjectId, Result, Seq, TableId, TableSchema, TimeRange,
};

use crate::check_error;
use crate::checksums::{repair_frame, repair_header, repair_segment};

/// Sensors and fields that are read; a segment may well name others.
const SENSORS: u32 = 40;
const FIELDS: u16 = 12;

/// A segment of arbitrary bytes, with its checksums as they are or repaired: all ways to read it give
/// rows in order or an error.
pub fn segment(data: &[u8]) {
    let Some((&mode, data)) = data.split_first() else { return };
    let mut bytes = data.to_vec();
    if mode & 1 == 1 {
        repair_segment(&mut bytes);
    }
    read_segment(&bytes, middle(mode));
}

/// Reads a segment in all ways.
pub(super) fn read_segment(bytes: &[u8], some_time: TimeRange) {
    let object = live_object(bytes);
    verify_segment(TableId(0), &object.entry, &object.segment, &mut VerifyReport::default());
    let fields = match object.segment.fields() {
        Ok(fields) => fields,
        Err(error) => return check_error(&error),
    };
    let Some(snapshot) = snapshot(object, &fields) else { return };
    let outcome = [TimeRange::ALL, TimeRange::new(0, 3 * NS_PER_HOUR), some_time]
        .into_iter()
        .try_for_each(|time| read(&snapshot, time));
    outcome.unwrap_or_else(|error| check_error(&error));
}

/// Some hours of the first half of 2024, where the seeds have readings.
fn middle(mode: u8) -> TimeRange {
    let first_ns = 1_704_067_200_000_000_000 + i64::from(mode) * 17 * NS_PER_HOUR;
    TimeRange::new(first_ns, first_ns + 50 * NS_PER_HOUR)
}

fn live_object(bytes: &[u8]) -> LiveObject {
    let id = ObjectId(1);
    let name = names::object(id, 0, Model::Long.name());
    let disk = MemDisk::new();
    disk.place(&name, bytes);
    let io = Arc::new(LocalIo::open_read_only(Arc::new(disk)));
    let caches = Arc::new(SegmentCaches::new(1 << 20));
    let entry = ObjectEntry {
        since_ns: 0,
        id,
        writer: 0,
        model: Model::Long,
        last_seq: Seq(1),
        last_delete: Seq(0),
        is_distinct: false,
        time: TimeRange::ALL,
        first_sensor: 0,
        last_sensor: u32::MAX,
        rows: 1,
        bytes: bytes.len() as u64,
    };
    let segment = Segment::new(io, caches, id, name.into(), entry.bytes);
    LiveObject { entry, segment, since_ns: 0 }
}

/// A table that holds the segment, with fields of the types that the segment names.
fn snapshot(object: LiveObject, fields: &[(FieldId, FieldType)]) -> Option<TableSnapshot> {
    let mut schema = TableSchema::new(TableId(0), "fuzz", "time");
    schema.add_tag("sensor").ok()?;
    for id in (0..FIELDS).map(FieldId) {
        let held = fields.iter().find(|(other, _)| *other == id);
        schema.add_field(&format!("f{id}"), held.map_or(FieldType::F64, |(_, ty)| *ty)).ok()?;
    }
    let mut sensors = SensorDictionary::default();
    for sensor in 0..SENSORS {
        let key = sensors.intern_key(0, &format!("s{sensor}")).ok()?;
        sensors.intern(&[key]).ok()?;
    }
    let sources = Sources::of(&[Arc::new(object)], &Version::new(schema));
    Some(TableSnapshot::new(Seq(0), sensors.view(), sources))
}

fn read(snapshot: &TableSnapshot, time: TimeRange) -> Result<()> {
    let fields: Vec<FieldId> = (0..FIELDS).map(FieldId).collect();
    for sensor in 0..SENSORS {
        let series = snapshot.read_sensor(sensor, &time, &fields);
        let series = match series {
            Ok(series) => series,
            Err(error) => {
                check_error(&error);
                continue;
            }
        };
        assert!(series.time.is_sorted_by(|a, b| a < b), "times are out of order");
        assert!(series.time.iter().all(|&at| time.contains(at)), "a time that nobody asked for");
        assert!(series.fields.iter().all(|column| column.len() == series.time.len()));
    }
    let sensors: Vec<u32> = (0..SENSORS).collect();
    let condition = ValueCondition { field: FieldId(0), op: Comparison::Gt, value: 20.0 };
    for conditions in [Vec::new(), vec![condition]] {
        let (sensors, fields) = (sensors.clone(), fields.clone());
        let request = ScanRequest { sensors, time, fields, conditions, limit: Some(100_000) };
        for batch in snapshot.scan(&request)? {
            let batch = batch?;
            assert!(batch.fields.iter().all(|column| column.len() == batch.rows()));
        }
    }
    for bin in [None, Some(Bin { width_ns: NS_PER_HOUR, origin_ns: 7 })] {
        let request = AggregateRequest {
            groups: sensors.iter().map(|sensor| sensor % 2).collect(),
            group_count: 2,
            sensors: sensors.clone().into(),
            time,
            bin,
            fields: fields.clone(),
            deviations: true,
            extremes: true,
            ends: true,
        };
        snapshot.plan_aggregate(&request)?;
        snapshot.aggregate(&request, &Arc::new(ReadStats::default()))?;
    }
    Ok(())
}

/// An object of sensors of arbitrary bytes, with its checksums as they are or repaired: it gives
/// sensors that are the same after they were written and read once more, or an error.
pub fn sensors(data: &[u8]) {
    let Some((&mode, data)) = data.split_first() else { return };
    let mut bytes = data.to_vec();
    if mode & 1 == 1 {
        repair_header(Content::Sensors, &mut bytes);
        if let Some(frame) = bytes.get_mut(HEADER_BYTES..) {
            repair_frame(frame, 0);
        }
    }
    if let Err(error) = decode_twice(&bytes) {
        check_error(&error);
    }
}

fn decode_twice(bytes: &[u8]) -> Result<()> {
    let frame = frame_of_object(TableId(0), bytes)?;
    let mut sensors = SensorDictionary::default();
    sensors.decode(frame)?;
    let count = sensors.count();
    let again = sensors.decode(frame);
    assert!(again.is_ok() && sensors.count() == count, "known sensors are passed over");
    let mut other = SensorDictionary::default();
    other.decode(&sensors.encode(0..count)?)?;
    assert_eq!(other.count(), count, "sensors are lost on the way");
    let half = count / 2..count;
    assert_eq!(other.encode(half.clone())?, sensors.encode(half)?);
    Ok(())
}
