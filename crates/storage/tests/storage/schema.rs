//! Fields that come while rows are on their way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::{ArrayRef, Int64Array};
use tidefall_storage::{CascadeRequest, Db, Target, Unknown, WriteOptions};
use tidefall_types::{FieldColumn, WriteBatch};

use crate::small::{open, read, write};

const FIELDS: i64 = 60;
const ROWS: i64 = 20_000;

/// Writes one row with a field that the table does not have yet.
fn write_field(db: &Db, number: i64) {
    let values = Arc::new(Int64Array::from(vec![number])) as ArrayRef;
    let fields = vec![FieldColumn { name: format!("field{number}"), values }];
    let batch = WriteBatch { time: vec![-1 - number].into(), tags: Vec::new(), fields };
    let options = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
    db.write("plant", &batch, &options).unwrap();
}

#[test]
fn fields_may_come_while_rows_fall() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    write(&db, "plant", &[(0, 0)]);
    let is_over = AtomicBool::new(false);
    let mut written = 1;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..FIELDS).for_each(|number| write_field(&db, number));
            is_over.store(true, Ordering::Release);
        });
        while !is_over.load(Ordering::Acquire) {
            let rows: Vec<(i64, i64)> =
                (written..written + ROWS).map(|time| (time, time)).collect();
            write(&db, "plant", &rows);
            written += ROWS;
            db.cascade(&CascadeRequest { table: None, target: Target::Long }).unwrap();
        }
    });
    assert_eq!(db.schema("plant").unwrap().fields.len() as i64, 1 + FIELDS);
    let rows = read(&db, "plant");
    assert_eq!(rows.len() as i64, written + FIELDS);
    let values = rows[FIELDS as usize..].iter();
    assert!(values.eq((0..written).map(|time| (time, time)).collect::<Vec<_>>().iter()));
}
