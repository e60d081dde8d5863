//! A small database with files of every kind, and all that it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray, UInt16Array, UInt64Array,
};
use tidefall_simulation::MemDisk;
use tidefall_storage::store::{Disk, DiskEntry};
use tidefall_storage::{
    Ack, AggregateRequest, Db, IfExists, ReadStats, TableSnapshot, TagFilter, Unknown, WriteOptions,
};
use tidefall_types::{
    FieldColumn, FieldId, ManualClock, NS_PER_DAY, NS_PER_MINUTE, Result, TableId, TableSchema,
    TagColumn, TimeRange, WriteBatch,
};

use crate::asking::open;

/// 2024-03-10.
pub const NOW_NS: i64 = 19_792 * NS_PER_DAY;
pub const TABLES: [&str; 2] = ["plant", "yard"];
const SENSORS: usize = 3;
/// Commits of the manifest between its checkpoints, and some.
const COMMITS: usize = 70;
const LAST_COMMITS: usize = 20;

/// A stretch of time whose readings lie in one model.
pub struct Age {
    pub model: &'static str,
    pub time: TimeRange,
}

/// Of each age the file name's end and the times.
pub const AGES: [Age; 3] = [
    Age { model: "kv", time: TimeRange::new(NOW_NS - NS_PER_DAY / 2, NOW_NS) },
    Age { model: "short", time: TimeRange::new(NOW_NS - 5 * NS_PER_DAY, NOW_NS - 4 * NS_PER_DAY) },
    Age {
        model: "long",
        time: TimeRange::new(NOW_NS - 400 * NS_PER_DAY, NOW_NS - 200 * NS_PER_DAY),
    },
];

/// A question and its answer.
pub struct Answer {
    pub table: &'static str,
    pub sensor: usize,
    pub time: TimeRange,
    pub columns: Result<Vec<ArrayRef>>,
}

pub struct Image {
    pub files: BTreeMap<String, Vec<u8>>,
    /// The objects of each table.
    pub files_of: BTreeMap<&'static str, BTreeSet<String>>,
    pub answers: Vec<Answer>,
}

/// How the process that wrote a database ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Closed,
    Killed,
}

impl Image {
    /// A database with readings in objects and in files of the log.
    pub fn new(end: End) -> Self {
        let disk = MemDisk::new();
        let clock = Arc::new(ManualClock::new(NOW_NS));
        let mut files_of: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
        let mut db = open(disk.clone(), &clock).unwrap();
        for number in 0..COMMITS {
            let schema = TableSchema::new(TableId::default(), format!("t{number}"), "time");
            db.create_table(&schema, IfExists::Fail).unwrap();
            db.drop_table(&schema.name).unwrap();
        }
        for table in TABLES {
            let before: BTreeSet<String> = files(&disk).into_keys().collect();
            for (place, age) in AGES.iter().enumerate() {
                write(&db, table, age, SENSORS - place);
            }
            db.flush().unwrap();
            let after: BTreeSet<String> = files(&disk).into_keys().collect();
            files_of.insert(table, after.difference(&before).cloned().collect());
        }
        for offset_ns in [1, 2] {
            for (table, age) in TABLES.iter().zip(&AGES) {
                let first_ns = age.time.first_ns + offset_ns;
                write(&db, table, &Age { model: "", time: TimeRange::new(first_ns, first_ns) }, 1);
                db.delete(table, &TagFilter::All, TimeRange::new(first_ns, first_ns)).unwrap();
                write(&db, table, &Age { model: "", time: TimeRange::new(first_ns, first_ns) }, 2);
            }
            db.close().unwrap();
            db = open(disk.clone(), &clock).unwrap();
        }
        // Commits behind the last checkpoint.
        for number in 0..LAST_COMMITS {
            let schema = TableSchema::new(TableId::default(), format!("last{number}"), "time");
            db.create_table(&schema, IfExists::Fail).unwrap();
        }
        let (answers, found) = (answers(&db), disk.crash(0));
        drop(db);
        let disk = if end == End::Killed { found } else { disk };
        Self { files: files(&disk), files_of, answers }
    }
}

/// All files on a disk.
pub fn files(disk: &MemDisk) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for dir in ["manifest", "objects", "wal"] {
        for entry in disk.list(dir).unwrap() {
            if let DiskEntry::File { name, .. } = entry {
                let bytes = disk.contents(&name).unwrap();
                files.insert(name, bytes);
            }
        }
    }
    files
}

/// A reading every ten minutes or so.
fn write(db: &Db, table: &str, age: &Age, sensors: usize) {
    let span_ns = age.time.last_ns - age.time.first_ns;
    let step_ns = (span_ns / 40).max(10 * NS_PER_MINUTE);
    let (mut time, mut keys) = (Vec::new(), Vec::new());
    for row in 0..(span_ns / step_ns).max(1) {
        for sensor in 0..sensors {
            // Regular and irregular times.
            let late_ns = if sensor == 0 { 0 } else { row * row % 7 };
            time.push(age.time.first_ns + row * step_ns + late_ns);
            keys.push(sensor as u32);
        }
    }
    let rows = time.len() as u32;
    let names = (0..sensors).map(|sensor| format!("s{sensor}"));
    let column = |name: &str, values: ArrayRef| FieldColumn { name: name.into(), values };
    let floats = (0..rows).map(|row| (row % 5 > 0).then_some(f64::from(row * row % 997) / 8.0));
    let ints = (0..rows).map(|row| Some((row * 31 % 1_000) as u16));
    let texts = (0..rows).map(|row| Some(["dry", "wet", "very wet"][row as usize % 3]));
    let flags = (0..rows).map(|row| Some(row % 3 == 0));
    let batch = WriteBatch {
        time: time.into(),
        tags: vec![TagColumn {
            name: "sensor".into(),
            values: StringArray::from_iter_values(names),
            keys: keys.into(),
        }],
        fields: vec![
            column("value", Arc::new(floats.collect::<Float64Array>())),
            column("count", Arc::new(ints.collect::<UInt16Array>())),
            column("note", Arc::new(texts.collect::<StringArray>())),
            column("alarm", Arc::new(flags.collect::<BooleanArray>())),
        ],
    };
    let options =
        WriteOptions { ack: Ack::Durable, unknown: Unknown::Create, ..WriteOptions::default() };
    db.write(table, &batch, &options).unwrap();
}

/// Each sensor's readings and metrics in each of the ages.
pub fn answers(db: &Db) -> Vec<Answer> {
    let mut answers = Vec::new();
    for table in TABLES {
        let snapshot = db.snapshot(table);
        for sensor in 0..SENSORS {
            for time in AGES.map(|age| age.time) {
                let of =
                    |what: fn(&TableSnapshot, u32, TimeRange) -> Result<Vec<ArrayRef>>| Answer {
                        table,
                        sensor,
                        time,
                        columns: snapshot.as_ref().map_err(Clone::clone).and_then(|snapshot| {
                            let value = format!("s{sensor}");
                            let filter = TagFilter::Eq { tag: "sensor".into(), value };
                            let number = snapshot.resolve(&filter)?.min().unwrap_or_default();
                            what(snapshot, number, time)
                        }),
                    };
                answers.push(of(rows));
                answers.push(of(metrics));
            }
        }
    }
    answers
}

fn fields(snapshot: &TableSnapshot) -> Vec<FieldId> {
    (0..snapshot.schema().fields.len() as u16).map(FieldId).collect()
}

fn rows(snapshot: &TableSnapshot, sensor: u32, time: TimeRange) -> Result<Vec<ArrayRef>> {
    let series = snapshot.read_sensor(sensor, &time, &fields(snapshot))?;
    let mut columns = series.fields;
    columns.push(Arc::new(Int64Array::new(series.time, None)));
    Ok(columns)
}

fn metrics(snapshot: &TableSnapshot, sensor: u32, time: TimeRange) -> Result<Vec<ArrayRef>> {
    let request = AggregateRequest {
        sensors: vec![sensor].into(),
        groups: vec![0],
        group_count: 1,
        time,
        bin: None,
        fields: fields(snapshot),
        deviations: true,
        extremes: true,
        ends: true,
    };
    let found = snapshot.aggregate(&request, &Arc::new(ReadStats::default()))?;
    let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt64Array::from(found.rows))];
    for field in found.fields {
        columns.push(Arc::new(UInt64Array::from(field.count)));
        columns.push(Arc::new(Float64Array::from(field.m2)));
        columns.extend([field.min, field.max, field.sum, field.first, field.last]);
    }
    Ok(columns)
}
