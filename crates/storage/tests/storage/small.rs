//! A table with one sensor and one field, for tests that need a certain history.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array};
use tidefall_storage::{Db, DbOptions, ScanRequest, TagFilter, Unknown, WriteOptions, WriteReport};
use tidefall_types::{FieldColumn, FieldId, Series, SeriesBatch, TimeRange, WriteBatch};

pub fn open(dir: &tempfile::TempDir) -> Db {
    Db::open(dir.path(), DbOptions { memory_bytes: 64 << 20, ..DbOptions::default() }).unwrap()
}

/// Times whose values are the same numbers.
pub fn batch(rows: std::ops::Range<i64>) -> WriteBatch {
    batch_of(&rows.map(|row| (row, row)).collect::<Vec<_>>())
}

/// These times with their values.
pub fn batch_of(rows: &[(i64, i64)]) -> WriteBatch {
    let (times, values): (Vec<i64>, Vec<i64>) = rows.iter().copied().unzip();
    let values = Arc::new(Int64Array::from(values)) as ArrayRef;
    let fields = vec![FieldColumn { name: "value".into(), values }];
    WriteBatch { time: times.into(), tags: Vec::new(), fields }
}

/// Writes times with their values.
pub fn write(db: &Db, table: &str, rows: &[(i64, i64)]) {
    let batch = batch_of(rows);
    let options = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
    db.write(table, &batch, &options).unwrap();
}

/// Loads times, which are in order, with their values.
pub fn load(db: &Db, table: &str, rows: &[(i64, i64)]) -> WriteReport {
    let batch = batch_of(rows);
    let series = Series {
        time: batch.time,
        fields: batch.fields.iter().map(|field| Arc::clone(&field.values)).collect(),
    };
    let fields = batch.fields.into_iter().map(|field| field.name).collect();
    let batch = SeriesBatch { tags: Vec::new(), fields, series: vec![series] };
    db.load(table, &batch, Unknown::Create).unwrap()
}

/// All times with their values.
pub fn read(db: &Db, table: &str) -> Vec<(i64, i64)> {
    let snapshot = db.snapshot(table).unwrap();
    let sensors = snapshot.sort_sensors(&snapshot.resolve(&TagFilter::All).unwrap());
    let (time, fields) = (TimeRange::ALL, vec![FieldId(0)]);
    let request = ScanRequest { sensors, time, fields, conditions: Vec::new(), limit: None };
    let mut rows = Vec::new();
    for batch in snapshot.scan(&request).unwrap() {
        let batch = batch.unwrap();
        let values = batch.fields[0].as_primitive::<Int64Type>().values().to_vec();
        rows.extend(batch.time.iter().copied().zip(values));
    }
    rows
}

/// Copies a folder with all that is in it.
pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in from.read_dir().unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}
