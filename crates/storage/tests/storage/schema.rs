//! Fields that come while rows are on their way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, StringArray};
use tidefall_simulation::MemDisk;
use tidefall_storage::{
    BadRows, CascadeRequest, Db, DbOptions, Existing, ScanRequest, TagFilter, Target, Unknown,
    WriteOptions,
};
use tidefall_types::{
    ErrorKind, FieldColumn, FieldId, NO_TAG, Result, Series, SeriesBatch, TagColumn, TimeRange,
    WriteBatch,
};

use crate::hooks::{Does, HookDisk};
use crate::rounds;
use crate::small::{open, read, write};

const FIELDS: i64 = 60;
const ROWS: i64 = 20_000;

/// Writes one row with a field that the table does not have yet.
pub fn write_field(db: &Db, number: i64) {
    try_write_field(db, number).unwrap();
}

fn try_write_field(db: &Db, number: i64) -> Result<()> {
    let values = Arc::new(Int64Array::from(vec![number])) as ArrayRef;
    let fields = vec![FieldColumn { name: format!("field{number}"), values }];
    let batch = WriteBatch { time: vec![-1 - number].into(), tags: Vec::new(), fields };
    let options = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
    db.write("plant", &batch, &options).map(drop)
}

#[test]
fn fields_may_come_while_rows_move() {
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

/// Fields that come while many read, and readers beside their writer.
const FIELDS_READ: i64 = 100;
const READERS: usize = 12;

/// Ends the readers, also when a test fails beside them.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The one value that each field but the first has.
fn values_of_fields(db: &Db) -> Vec<Vec<i64>> {
    let snapshot = db.snapshot("plant").unwrap();
    let fields = 1..snapshot.schema().fields.len() as u16;
    let sensors = snapshot.sort_sensors(&snapshot.resolve(&TagFilter::All).unwrap());
    let values = |field| {
        let (time, fields) = (TimeRange::ALL, vec![FieldId(field)]);
        let sensors = sensors.clone();
        let request = ScanRequest { sensors, time, fields, conditions: Vec::new(), limit: None };
        let mut found = Vec::new();
        for batch in snapshot.scan(&request).unwrap() {
            let column = batch.unwrap().fields[0].clone();
            let column = column.as_primitive::<Int64Type>();
            found.extend(column.iter().flatten());
        }
        found
    };
    fields.map(values).collect()
}

#[test]
fn a_reader_does_not_lose_a_field_that_comes_meanwhile() {
    for round in 0..rounds(3) {
        let disk = MemDisk::new();
        let open = || Db::open_on(Arc::new(disk.clone()), DbOptions::default()).unwrap();
        let db = open();
        write(&db, "plant", &[(0, 0)]);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ends = Ends(&is_over);
            for _ in 0..READERS {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Acquire) {
                        drop(db.snapshot("plant").unwrap());
                    }
                });
            }
            for number in 0..FIELDS_READ {
                // Small writes, which the next reader lays together.
                write(&db, "plant", &[(2 * number + 1, 0)]);
                write(&db, "plant", &[(2 * number + 2, 0)]);
                write_field(&db, number);
            }
        });
        let wanted: Vec<Vec<i64>> = (0..FIELDS_READ).map(|number| vec![number]).collect();
        assert_eq!(values_of_fields(&db), wanted, "round {round}, in memory");
        db.flush().unwrap();
        assert_eq!(values_of_fields(&db), wanted, "round {round}, in objects");
        db.close().unwrap();
        assert_eq!(values_of_fields(&open()), wanted, "round {round}, opened again");
    }
}

#[test]
fn a_dropped_table_does_not_come_back_with_a_field_that_comes_meanwhile() {
    let disk = MemDisk::new();
    let writer: Arc<Mutex<Option<JoinHandle<_>>>> = Arc::default();
    let (db, late) = (Arc::new(OnceLock::<Db>::new()), Arc::clone(&writer));
    let writing = Arc::clone(&db);
    let is_armed = Arc::new(AtomicBool::new(false));
    let armed = Arc::clone(&is_armed);
    let hooked = HookDisk::new(disk.clone(), move |does, name| {
        let is_commit = does == Does::Link && name.starts_with("manifest/");
        if is_commit && armed.swap(false, Ordering::SeqCst) {
            let db = writing.get().unwrap().clone();
            *late.lock().unwrap() = Some(std::thread::spawn(move || try_write_field(&db, 1)));
            // Long enough to find the table and wait for its turn to change it.
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    db.set(Db::open_on(Arc::new(hooked), DbOptions::default()).unwrap()).unwrap();
    let db = db.get().unwrap();
    write(db, "plant", &[(0, 0)]);
    is_armed.store(true, Ordering::SeqCst);
    db.drop_table("plant").unwrap();
    let writer = writer.lock().unwrap().take().unwrap();
    let written = writer.join().unwrap();
    let is_there = |db: &Db| db.schema("plant").is_ok();
    assert_eq!(written.map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    assert!(!is_there(db));
    db.close().unwrap();
    let db = Db::open_on(Arc::new(disk), DbOptions::default()).unwrap();
    assert!(!is_there(&db), "the table is back");
}

#[test]
fn refused_writes_leave_no_columns_behind() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    write(&db, "plant", &[(0, 0), (1, 1)]);
    let texts = |values: &[&str]| Arc::new(StringArray::from(values.to_vec())) as ArrayRef;
    let numbers = |values: &[i64]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
    let field = |name: &str, values| FieldColumn { name: name.into(), values };
    let room = |keys: &[u32]| TagColumn {
        name: "room".into(),
        values: StringArray::from(vec!["a"]),
        keys: keys.to_vec().into(),
    };
    let write = |time: &[i64], tags, fields, existing| {
        let options =
            WriteOptions { unknown: Unknown::Create, existing, ..WriteOptions::default() };
        db.write("plant", &WriteBatch { time: time.to_vec().into(), tags, fields }, &options)
    };
    let names = || {
        let schema = db.schema("plant").unwrap();
        schema.columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>()
    };
    let before = names();
    // A value does not fit its field.
    let wrong = vec![field("value", texts(&["x", "y"])), field("other", numbers(&[1, 2]))];
    let error = write(&[5, 6], vec![room(&[0, 0])], wrong, Existing::Replace).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(names(), before);
    // A field is a tag there.
    let tag = TagColumn { name: "value".into(), ..room(&[0]) };
    let other = vec![field("other", texts(&["x"]))];
    write(&[7], vec![tag], other, Existing::Replace).unwrap_err();
    assert_eq!(names(), before);
    // A reading is there already, also that of the sensor without the new tag.
    let other = || vec![field("other", numbers(&[3, 4]))];
    for tags in [Vec::new(), vec![room(&[0, NO_TAG])]] {
        let error = write(&[1, 1], tags, other(), Existing::Refuse).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert_eq!(names(), before);
    }
    write(&[1, 2], vec![room(&[0, NO_TAG])], other(), Existing::Refuse).unwrap();
    assert_eq!(names().len(), before.len() + 2);
}

#[test]
fn refused_loads_leave_no_columns_behind() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    write(&db, "plant", &[(0, 0), (1, 1)]);
    let numbers = |values: &[i64]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
    let texts = |values: &[&str]| Arc::new(StringArray::from(values.to_vec())) as ArrayRef;
    let load =
        |table: &str, rooms: &[&str], time: &[i64], fields: &[(&str, ArrayRef)], existing| {
            let keys: Vec<u32> = (0..rooms.len() as u32).collect();
            let room = TagColumn {
                name: "room".into(),
                values: StringArray::from(rooms.to_vec()),
                keys: keys.into(),
            };
            let series = Series {
                time: time.to_vec().into(),
                fields: fields.iter().map(|(_, values)| Arc::clone(values)).collect(),
            };
            let batch = SeriesBatch {
                tags: vec![room],
                fields: fields.iter().map(|(name, _)| (*name).to_owned()).collect(),
                series: vec![series; rooms.len()],
            };
            let options =
                WriteOptions { unknown: Unknown::Create, existing, ..WriteOptions::default() };
            db.load_with(table, &batch, &options)
        };
    let names = || {
        let schema = db.schema("plant").unwrap();
        schema.columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>()
    };
    let before = names();
    let other = || ("other", numbers(&[1, 2]));
    // Two rows have the same time.
    let error = load("plant", &["a"], &[5, 5], &[other()], Existing::Refuse).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    // A sensor has two series.
    load("plant", &["a", "a"], &[5, 6], &[other()], Existing::Replace).unwrap_err();
    // A value does not fit its field.
    let wrong = ("value", texts(&["x", "y"]));
    load("plant", &["a"], &[5, 6], &[other(), wrong], Existing::Replace).unwrap_err();
    assert_eq!(names(), before);
    // The same of a table that is not there.
    load("fresh", &["a"], &[5, 5], &[other()], Existing::Refuse).unwrap_err();
    load("fresh", &["a", "a"], &[5, 6], &[other()], Existing::Refuse).unwrap_err();
    db.schema("fresh").unwrap_err();
    load("plant", &["a", "b"], &[5, 6], &[other()], Existing::Refuse).unwrap();
    assert_eq!(names().len(), before.len() + 2);
    let error = load("plant", &["b"], &[6, 7], &[("more", numbers(&[1, 2]))], Existing::Refuse);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(names().len(), before.len() + 2);
}

/// Of writes that are prepared together, one that does not fit what those before it make gets no columns, which would be of its
/// types.
#[test]
fn writes_that_do_not_fit_those_before_make_no_columns() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let batch = |fields: &[(&str, ArrayRef)]| WriteBatch {
        time: vec![5].into(),
        tags: Vec::new(),
        fields: fields
            .iter()
            .map(|(name, values)| FieldColumn {
                name: (*name).to_owned(),
                values: Arc::clone(values),
            })
            .collect(),
    };
    let number: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    let first = batch(&[("v", Arc::clone(&number))]);
    let wrong = batch(&[("v", Arc::clone(&text)), ("other", text)]);
    let last = batch(&[("v", Arc::clone(&number)), ("other", number)]);
    let options = WriteOptions {
        unknown: Unknown::Create,
        bad_rows: BadRows::SetAside,
        ..WriteOptions::default()
    };
    db.prepare(&[("plant", &first), ("plant", &wrong), ("plant", &last)], &options).unwrap();
    let written = [&first, &wrong, &last].map(|batch| db.write("plant", batch, &options));
    let rows = written.map(|report| report.map_or(0, |report| report.rows));
    assert_eq!(rows, [1, 0, 1]);
}

/// Rows that are all set aside make nothing.
#[test]
fn rows_that_are_set_aside_make_no_columns() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    write(&db, "plant", &[(0, 0)]);
    let long = "a".repeat(20_000);
    let room = TagColumn {
        name: "room".into(),
        values: StringArray::from(vec![long.as_str(), "b"]),
        keys: vec![0].into(),
    };
    let field = FieldColumn { name: "other".into(), values: Arc::new(Int64Array::from(vec![1])) };
    let options = WriteOptions {
        unknown: Unknown::Create,
        bad_rows: BadRows::SetAside,
        ..WriteOptions::default()
    };
    let batch = WriteBatch { time: vec![5].into(), tags: vec![room], fields: vec![field] };
    let columns = db.schema("plant").unwrap().columns.len();
    for table in ["plant", "fresh"] {
        db.prepare(&[(table, &batch)], &options).unwrap();
        let report = db.write(table, &batch, &options).unwrap();
        assert_eq!((report.rows, report.bad.len()), (0, 1));
    }
    assert_eq!(db.schema("plant").unwrap().columns.len(), columns);
    db.schema("fresh").unwrap_err();
    // A good row beside it makes all.
    let mut two = WriteBatch { time: vec![5, 6].into(), ..batch };
    two.tags[0].keys = vec![0, 1].into();
    two.fields[0].values = Arc::new(Int64Array::from(vec![1, 2]));
    let report = db.write("fresh", &two, &options).unwrap();
    assert_eq!((report.rows, report.bad.len()), (1, 1));
    assert_eq!(db.schema("fresh").unwrap().columns.len(), 3);
}
