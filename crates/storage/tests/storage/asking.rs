//! Putting requests to a database, and reading all that it holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, StringArray};
use arrow_cast::cast;
use arrow_schema::DataType;
use tidefall_storage::store::Disk;
use tidefall_storage::{
    AggregateRequest, Bin, CascadeRequest, Db, DbOptions, IfExists, MEMORY_BYTES_MIN, ReadStats,
    Rewriting, ScanRequest, TableSnapshot, TagFilter, Unknown, WriteOptions,
};
use tidefall_types::{
    Error, FieldColumn, FieldId, FieldType, ManualClock, NS_PER_DAY, Result, Series, SeriesBatch,
    TableId, TableSchema, TagColumn, TagId, TimeRange, WriteBatch,
};

use crate::history::{Forgets, Op, RETENTION_NS, Rows, Values};

pub fn options(clock: &Arc<ManualClock>) -> DbOptions {
    let clock: Arc<ManualClock> = Arc::clone(clock);
    // One thread, so that the steps of the disk come in the same order each time.
    DbOptions { clock, memory_bytes: MEMORY_BYTES_MIN, threads: 1, ..DbOptions::default() }
}

pub fn open(disk: impl Disk + 'static, clock: &Arc<ManualClock>) -> Result<Db> {
    Db::open_on(Arc::new(disk), options(clock))
}

/// A question about the first field of the first sensors at all times, as one group.
pub fn in_one_group(sensors: u32) -> AggregateRequest {
    AggregateRequest {
        sensors: (0..sensors).into(),
        groups: Vec::new(),
        group_count: 1,
        time: TimeRange::ALL,
        bin: None,
        fields: vec![FieldId(0)],
        deviations: false,
        extremes: true,
        ends: false,
    }
}

/// The whole numbers of the first field, by sensor and time, row by row.
pub fn whole_numbers(snapshot: &TableSnapshot) -> BTreeMap<(u32, i64), i64> {
    let sensors = (0..snapshot.sensor_count()).collect();
    let (time, fields) = (TimeRange::ALL, vec![FieldId(0)]);
    let request = ScanRequest { sensors, time, fields, conditions: Vec::new(), limit: None };
    let mut rows = BTreeMap::new();
    for batch in snapshot.scan(&request).unwrap() {
        let batch = batch.unwrap();
        let values = batch.fields[0].as_primitive::<Int64Type>().values();
        let keys = batch.sensors.iter().copied().zip(batch.time.iter().copied());
        rows.extend(keys.zip(values.iter().copied()));
    }
    rows
}

/// Puts a request that changes the database; `None` when there is nothing that it could change.
pub fn ask(db: &Db, op: &Op) -> Option<Result<()>> {
    let has_table = |table: &str| db.schema(table).is_ok();
    let has_sensors = |table: &str| db.schema(table).is_ok_and(|schema| !schema.tags.is_empty());
    Some(match op {
        Op::Create(table, _) if has_table(table) => return None,
        Op::Drop(table) if !has_table(table) => return None,
        // A write that failed may have made a table without columns.
        Op::Delete(table, ..) if !has_sensors(table) => return None,
        Op::Create(table, forgets) => {
            let mut schema = TableSchema::new(TableId::default(), *table, "time");
            let columns = schema
                .add_tag("sensor")
                .and_then(|_| schema.add_field("value", FieldType::F64))
                .and_then(|_| schema.add_field("count", FieldType::I64));
            schema.options.retention_ns =
                (*forgets == Forgets::OldReadings).then_some(RETENTION_NS);
            columns.and_then(|_| db.create_table(&schema, IfExists::Fail))
        }
        Op::Drop(table) => db.drop_table(table),
        Op::Write(table, rows, ack) => {
            let options =
                WriteOptions { ack: *ack, unknown: Unknown::Create, ..WriteOptions::default() };
            db.write(table, &batch(rows), &options).map(drop)
        }
        Op::Load(table, rows) => db.load(table, &series(rows), Unknown::Create).map(drop),
        Op::Delete(table, sensor, time) => {
            let filter = match sensor {
                None => TagFilter::All,
                Some(sensor) => TagFilter::Eq { tag: "sensor".into(), value: name(*sensor) },
            };
            db.delete(table, &filter, *time)
        }
        Op::Flush => db.flush().map(drop),
        Op::FreeMemory => db.free_memory().map(drop),
        Op::Cascade(target) => {
            db.cascade(&CascadeRequest { table: None, target: *target }).map(drop)
        }
        Op::Retype(table, ty) => {
            let schema = db.schema(table).ok()?;
            let field = schema.fields.iter().find(|field| field.name == "count")?;
            if field.ty == *ty {
                return None;
            }
            db.retype(table, &[("count".into(), *ty)], Rewriting::All)
        }
        Op::Wait(_) | Op::Reopen => return None,
    })
}

fn name(sensor: u8) -> String {
    format!("s{sensor}")
}

fn columns(values: &[&Values]) -> [ArrayRef; 2] {
    [
        Arc::new(Float64Array::from_iter(values.iter().map(|values| values.0))),
        Arc::new(Int64Array::from_iter(values.iter().map(|values| values.1))),
    ]
}

fn sensor_tag(keys: impl Iterator<Item = u8>) -> TagColumn {
    let values = StringArray::from_iter_values((0..=u8::MAX).map(name));
    TagColumn { name: "sensor".into(), values, keys: keys.map(u32::from).collect() }
}

/// Rows as a write has them.
pub fn batch(rows: &Rows) -> WriteBatch {
    let [float, int] = columns(&rows.values().collect::<Vec<_>>());
    WriteBatch {
        time: rows.keys().map(|(_, time)| *time).collect(),
        tags: vec![sensor_tag(rows.keys().map(|(sensor, _)| *sensor))],
        fields: vec![
            FieldColumn { name: "value".into(), values: float },
            FieldColumn { name: "count".into(), values: int },
        ],
    }
}

fn series(rows: &Rows) -> SeriesBatch {
    let mut sensors: Vec<u8> = rows.keys().map(|(sensor, _)| *sensor).collect();
    sensors.dedup();
    let series = sensors.iter().map(|&sensor| {
        let of_sensor = || rows.range((sensor, i64::MIN)..=(sensor, i64::MAX));
        Series {
            time: of_sensor().map(|((_, time), _)| *time).collect(),
            fields: columns(&of_sensor().map(|(_, values)| values).collect::<Vec<_>>()).into(),
        }
    });
    SeriesBatch {
        fields: vec!["value".into(), "count".into()],
        series: series.collect(),
        tags: vec![sensor_tag(sensors.iter().copied())],
    }
}

/// All readings of all tables, also asked for in other ways, which must give the same.
pub fn read_all(db: &Db, tables: &[&'static str]) -> Result<BTreeMap<&'static str, Rows>> {
    let mut found = BTreeMap::new();
    for &table in tables {
        if db.schema(table).is_ok() {
            let rows = read(db, table)?;
            compare_aggregates(db, table, &rows)?;
            found.insert(table, rows);
        }
    }
    Ok(found)
}

/// All readings of a table.
pub fn read(db: &Db, table: &str) -> Result<Rows> {
    let snapshot = db.snapshot(table)?;
    let request = ScanRequest {
        sensors: snapshot.resolve(&TagFilter::All)?.iter().collect(),
        time: TimeRange::ALL,
        fields: fields(&snapshot),
        conditions: Vec::new(),
        limit: None,
    };
    let mut rows = Rows::new();
    for batch in snapshot.scan(&request)? {
        let batch = batch?;
        // Whatever type it has by now.
        let ints = batch.fields.get(1).map(|field| cast(field, &DataType::Int64).unwrap());
        for row in 0..batch.rows() {
            let key = (sensor_number(&snapshot, batch.sensors[row])?, batch.time[row]);
            let float = batch.fields.first().map(|field| field.as_primitive::<Float64Type>());
            let int = ints.as_ref().map(|field| field.as_primitive::<Int64Type>());
            let float = float.filter(|field| field.is_valid(row)).map(|field| field.value(row));
            let int = int.filter(|field| field.is_valid(row)).map(|field| field.value(row));
            if rows.insert(key, (float, int)).is_some() {
                return Err(Error::invalid(format!("{key:?} came twice")));
            }
        }
    }
    Ok(rows)
}

fn fields(snapshot: &TableSnapshot) -> Vec<FieldId> {
    (0..snapshot.schema().fields.len() as u16).map(FieldId).collect()
}

fn sensor_number(snapshot: &TableSnapshot, sensor: u32) -> Result<u8> {
    let (names, keys) = snapshot.tag_keys(TagId(0));
    let name = names.value(keys[sensor as usize] as usize);
    name[1..].parse().map_err(|_| Error::invalid(format!("there is no sensor {name}")))
}

/// Metrics by sensor and day must be those of the rows.
fn compare_aggregates(db: &Db, table: &str, rows: &Rows) -> Result<()> {
    let snapshot = db.snapshot(table)?;
    let sensors: Vec<u32> = snapshot.resolve(&TagFilter::All)?.iter().collect();
    let bin = Bin { width_ns: NS_PER_DAY, origin_ns: 0 };
    let request = AggregateRequest {
        groups: (0..sensors.len() as u32).collect(),
        group_count: sensors.len().max(1) as u32,
        sensors: sensors.clone().into(),
        time: TimeRange::ALL,
        bin: Some(bin),
        fields: fields(&snapshot),
        deviations: true,
        extremes: true,
        ends: true,
    };
    let found = snapshot.aggregate(&request, &Arc::new(ReadStats::default()))?;
    let mut expected: BTreeMap<(u8, i64), Vec<Values>> = BTreeMap::new();
    for ((sensor, time), values) in rows {
        expected.entry((*sensor, bin.start_of(*time))).or_default().push(*values);
    }
    let mut lines = 0;
    for line in 0..found.rows.len() {
        let sensor = sensor_number(&snapshot, sensors[found.group[line] as usize])?;
        let Some(values) = expected.get(&(sensor, found.bin_start_ns[line])) else {
            panic!("{table}: a line of metrics without rows");
        };
        lines += 1;
        assert_eq!(found.rows[line], values.len() as u64, "{table}: rows of a day");
        let floats: Vec<f64> = values.iter().filter_map(|values| values.0).collect();
        let Some(field) = found.fields.first() else { continue };
        assert_eq!(field.count[line], floats.len() as u64, "{table}: values of a day");
        let of = |array: &ArrayRef| {
            let array = array.as_primitive::<Float64Type>();
            array.is_valid(line).then(|| array.value(line))
        };
        assert_eq!(of(&field.min), floats.iter().copied().reduce(f64::min));
        assert_eq!(of(&field.max), floats.iter().copied().reduce(f64::max));
        let sum = of(&field.sum).unwrap_or_default();
        assert!((sum - floats.iter().sum::<f64>()).abs() < 1e-6, "{table}: sum of a day");
    }
    assert_eq!(lines, expected.len(), "{table}: days with rows");
    Ok(())
}
