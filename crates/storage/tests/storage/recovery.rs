//! What a database is after it was opened again.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array};
use tidefall_storage::{
    CascadeRequest, Db, DbOptions, ScanRequest, TagFilter, Target, Unknown, WriteOptions,
};
use tidefall_types::{FieldColumn, FieldId, TimeRange, WriteBatch};

fn open(dir: &tempfile::TempDir) -> Db {
    Db::open(dir.path(), DbOptions { memory_bytes: 64 << 20, ..DbOptions::default() }).unwrap()
}

fn write(db: &Db, table: &str, times: &[i64]) {
    let values = Arc::new(Int64Array::from(times.to_vec())) as ArrayRef;
    let fields = vec![FieldColumn { name: "value".into(), values }];
    let batch = WriteBatch { time: times.to_vec().into(), tags: Vec::new(), fields };
    let options = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
    db.write(table, &batch, &options).unwrap();
}

fn times(db: &Db, table: &str) -> Vec<i64> {
    let snapshot = db.snapshot(table).unwrap();
    let sensors = snapshot.sort_sensors(&snapshot.resolve(&TagFilter::All).unwrap());
    let (time, fields) = (TimeRange::ALL, vec![FieldId(0)]);
    let request = ScanRequest { sensors, time, fields, conditions: Vec::new(), limit: None };
    let batches = snapshot.scan(&request).unwrap();
    batches.flat_map(|batch| batch.unwrap().time.to_vec()).collect()
}

#[test]
fn a_delete_that_the_manifest_and_the_log_hold_hides_what_it_hid() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    write(&db, "plant", &[1, 2, 3]);
    db.delete("plant", &TagFilter::All, TimeRange::new(2, 2)).unwrap();
    write(&db, "plant", &[4]);
    // The manifest takes in all deletes with the rows of the other table; those of this one stay
    // in the log only.
    write(&db, "other", &[1]);
    let other = CascadeRequest { table: Some("other".into()), target: Target::Long };
    db.cascade(&other).unwrap();
    assert_eq!(times(&db, "plant"), [1, 3, 4]);
    drop(db);
    let db = open(&dir);
    assert_eq!(times(&db, "plant"), [1, 3, 4]);
}
