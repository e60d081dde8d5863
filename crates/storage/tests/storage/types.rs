//! Fields that get other types.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, StringArray, new_null_array};
use arrow_cast::cast;
use arrow_schema::DataType;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::MemDisk;
use tidefall_storage::{
    Ack, BadRows, CascadeRequest, Db, DbOptions, FieldTypes, Rewriting, ScanRequest, TagFilter,
    Target, Unknown, WriteOptions, WriteReport,
};
use tidefall_types::{
    ErrorKind, FieldColumn, FieldId, FieldType, ManualClock, NS_PER_DAY, Result, Series,
    SeriesBatch, TimeRange, WriteBatch,
};

use crate::history::START_NS;
use crate::hooks::{Does, HookDisk};
use crate::rounds;
use crate::schema::Ends;

const TABLE: &str = "plant";

fn columns(values: &ArrayRef, first: i64) -> WriteBatch {
    let time = (first..first + values.len() as i64).collect();
    let fields = vec![FieldColumn { name: "v".into(), values: Arc::clone(values) }];
    WriteBatch { time, tags: Vec::new(), fields }
}

fn write(db: &Db, first: i64, values: &ArrayRef, field_types: FieldTypes) -> Result<WriteReport> {
    let options = WriteOptions { unknown: Unknown::Create, field_types, ..WriteOptions::default() };
    db.write(TABLE, &columns(values, first), &options)
}

fn load(db: &Db, first: i64, values: &ArrayRef, field_types: FieldTypes) -> Result<WriteReport> {
    let WriteBatch { time, .. } = columns(values, first);
    let series = vec![Series { time, fields: vec![Arc::clone(values)] }];
    let batch = SeriesBatch { tags: Vec::new(), fields: vec!["v".into()], series };
    let options = WriteOptions { unknown: Unknown::Create, field_types, ..WriteOptions::default() };
    db.load_with(TABLE, &batch, &options)
}

fn ints(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn floats(values: &[f64]) -> ArrayRef {
    Arc::new(Float64Array::from(values.to_vec()))
}

/// So many whole numbers that they are more than may be written anew while writers wait.
fn noise(rows: usize) -> ArrayRef {
    let mut rng = SmallRng::seed_from_u64(1);
    ints(&(0..rows).map(|_| rng.random_range(0..1 << 52)).collect::<Vec<_>>())
}

fn retype(db: &Db, ty: FieldType) -> Result<()> {
    db.retype(TABLE, &[("v".into(), ty)], Rewriting::All)
}

fn type_of(db: &Db) -> FieldType {
    db.schema(TABLE).unwrap().fields[0].ty
}

/// The times and values of the field, which all are numbers.
fn read(db: &Db) -> Vec<(i64, f64)> {
    let snapshot = db.snapshot(TABLE).unwrap();
    let ty = snapshot.schema().fields[0].ty;
    let sensors = snapshot.sort_sensors(&snapshot.resolve(&TagFilter::All).unwrap());
    let (time, fields) = (TimeRange::ALL, vec![FieldId(0)]);
    let request = ScanRequest { sensors, time, fields, conditions: Vec::new(), limit: None };
    let mut rows = Vec::new();
    for batch in snapshot.scan(&request).unwrap() {
        let batch = batch.unwrap();
        assert_eq!(*batch.fields[0].data_type(), ty.arrow());
        let values = cast(&batch.fields[0], &DataType::Float64).unwrap();
        let values = values.as_primitive::<Float64Type>().values().to_vec();
        rows.extend(batch.time.iter().copied().zip(values));
    }
    rows
}

fn open(disk: &MemDisk) -> Db {
    Db::open_on(Arc::new(disk.clone()), DbOptions::default()).unwrap()
}

fn cascade(db: &Db) {
    db.cascade(&CascadeRequest { table: None, target: Target::Long }).unwrap();
}

fn flush(db: &Db) {
    db.flush().unwrap();
}

/// Where the rows are that came before.
const PLACES: [fn(&Db); 3] = [|_| {}, flush, cascade];

#[test]
fn a_field_gets_a_type_that_holds_all_that_came() {
    let max = 1_i64 << 53;
    for place in PLACES {
        for put in [write, load] {
            let disk = MemDisk::new();
            let db = open(&disk);
            write(&db, 0, &ints(&[1, -2, max]), FieldTypes::Keep).unwrap();
            place(&db);
            let error = put(&db, 3, &floats(&[1.5]), FieldTypes::Keep).unwrap_err();
            assert!(error.message().contains("is of type BIGINT"), "{error}");
            assert_eq!(type_of(&db), FieldType::I64);
            // Whole numbers fit as they are.
            put(&db, 3, &floats(&[7.0]), FieldTypes::Widen).unwrap();
            assert_eq!(type_of(&db), FieldType::I64);
            put(&db, 4, &floats(&[1.5]), FieldTypes::Widen).unwrap();
            assert_eq!(type_of(&db), FieldType::F64);
            write(&db, 5, &ints(&[9]), FieldTypes::Keep).unwrap();
            let expected =
                [(0, 1.0), (1, -2.0), (2, max as f64), (3, 7.0), (4, 1.5), (5, 9.0)].to_vec();
            assert_eq!(read(&db), expected);
            // Also after a loss of power.
            std::mem::forget(db);
            let db = open(&disk.crash(1));
            assert_eq!((read(&db), type_of(&db)), (expected.clone(), FieldType::F64));
            cascade(&db);
            assert_eq!(read(&db), expected);
            assert_eq!(db.verify().unwrap().damages, Vec::new());
        }
    }
}

#[test]
fn rows_in_the_log_of_the_type_before_are_not_read_again() {
    // Another table keeps the log, and the rows that were in it have left the memory before, by age.
    let disk = MemDisk::new();
    let db = open(&disk);
    let options = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
    db.write("yard", &columns(&ints(&[1]), i64::MAX - 1), &options).unwrap();
    write(&db, 0, &ints(&[1, 2]), FieldTypes::Keep).unwrap();
    db.cascade(&CascadeRequest { table: Some(TABLE.into()), target: Target::ByAge }).unwrap();
    write(&db, 2, &ints(&[3]), FieldTypes::Keep).unwrap();
    write(&db, 3, &floats(&[0.5]), FieldTypes::Widen).unwrap();
    write(&db, 4, &ints(&[4]), FieldTypes::Keep).unwrap();
    let expected = [(0, 1.0), (1, 2.0), (2, 3.0), (3, 0.5), (4, 4.0)];
    assert_eq!(read(&db), expected);
    std::mem::forget(db);
    let disk = disk.crash(3);
    let db = open(&disk);
    assert_eq!(read(&db), expected);
    // And all is as before in memory, too.
    db.retype(TABLE, &[("v".into(), FieldType::F32)], Rewriting::All).unwrap();
    assert_eq!((read(&db), type_of(&db)), (expected.to_vec(), FieldType::F32));
}

#[test]
fn what_does_not_fit_stays_as_it_was() {
    for place in PLACES {
        let disk = MemDisk::new();
        let db = open(&disk);
        let odd = (1_i64 << 53) + 1;
        write(&db, 0, &ints(&[1, odd]), FieldTypes::Keep).unwrap();
        place(&db);
        let error = write(&db, 2, &floats(&[1.5]), FieldTypes::Widen).unwrap_err();
        let what = "table plant: field \"v\" cannot become DOUBLE: it is BIGINT, and holds 9007199254740993, which is not \
                    the same there (what is deleted or replaced counts until it is cascaded)";
        assert_eq!((error.kind(), error.message()), (ErrorKind::Conflict, what));
        let error = db.retype(TABLE, &[("v".into(), FieldType::I16)], Rewriting::All).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let error = db.retype(TABLE, &[("v".into(), FieldType::Text)], Rewriting::All).unwrap_err();
        assert!(error.message().contains("it is BIGINT, and holds values ("), "{error}");
        let error = db.retype(TABLE, &[("w".into(), FieldType::F64)], Rewriting::All).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let objects =
            db.inspect().unwrap()[0].models.iter().map(|model| model.objects).sum::<u64>();
        assert!(objects <= 1, "{objects} objects");
        // Text comes for numbers, and is refused as ever.
        let text: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        write(&db, 2, &text, FieldTypes::Widen).unwrap_err();
        assert_eq!(type_of(&db), FieldType::I64);
        assert_eq!(read(&db).len(), 2);
        // A float near to another one is not the same.
        let db = open(&MemDisk::new());
        write(&db, 0, &floats(&[0.5, 0.1, f64::NAN]), FieldTypes::Keep).unwrap();
        place(&db);
        let error = db.retype(TABLE, &[("v".into(), FieldType::F32)], Rewriting::All).unwrap_err();
        assert!(error.message().contains("holds 0.1, which"), "{error}");
    }
}

#[test]
fn a_field_that_holds_nothing_takes_any_type() {
    for place in PLACES {
        for put in [write, load] {
            let db = open(&MemDisk::new());
            write(&db, 0, &ints(&[1]), FieldTypes::Keep).unwrap();
            // Rows of another field, so that the first one has no value in them.
            let options = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
            let none = |first: i64| WriteBatch {
                fields: vec![
                    FieldColumn { name: "v".into(), values: new_null_array(&DataType::Int64, 2) },
                    FieldColumn { name: "w".into(), values: ints(&[5, 6]) },
                ],
                ..columns(&ints(&[0, 0]), first)
            };
            db.write("empty", &none(0), &options).unwrap();
            place(&db);
            db.write("empty", &none(2), &options).unwrap();
            let text: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
            let batch = columns(&text, 10);
            let widen = WriteOptions { field_types: FieldTypes::Widen, ..options };
            let is_load =
                std::ptr::fn_addr_eq(put, load as fn(&Db, i64, &ArrayRef, FieldTypes) -> _);
            if is_load {
                let WriteBatch { time, fields, .. } = batch;
                let series = vec![Series { time, fields: vec![Arc::clone(&fields[0].values)] }];
                let batch = SeriesBatch { tags: Vec::new(), fields: vec!["v".into()], series };
                db.load_with("empty", &batch, &widen).unwrap();
            } else {
                db.write("empty", &batch, &widen).unwrap();
            }
            let schema = db.schema("empty").unwrap();
            assert_eq!(
                (schema.fields[0].ty, schema.fields[1].ty),
                (FieldType::Text, FieldType::I64)
            );
            cascade(&db);
            assert_eq!(db.verify().unwrap().damages, Vec::new());
            let snapshot = db.snapshot("empty").unwrap();
            let request = ScanRequest {
                sensors: snapshot.sort_sensors(&snapshot.resolve(&TagFilter::All).unwrap()),
                time: TimeRange::ALL,
                fields: vec![FieldId(0)],
                conditions: Vec::new(),
                limit: None,
            };
            let texts: Vec<Option<String>> = snapshot
                .scan(&request)
                .unwrap()
                .flat_map(|batch| {
                    let values = batch.unwrap().fields[0].clone();
                    values
                        .as_string::<i32>()
                        .iter()
                        .map(|t| t.map(str::to_owned))
                        .collect::<Vec<_>>()
                })
                .collect();
            let expected: Vec<Option<String>> = [None, None, None, None, Some("a"), Some("b")]
                .map(|text| text.map(str::to_owned))
                .into();
            assert_eq!(texts, expected);
        }
    }
}

#[test]
fn types_that_hold_more_are_those_of_both() {
    let (small, wide): (ArrayRef, ArrayRef) =
        (Arc::new(arrow_array::UInt8Array::from(vec![200])), ints(&[-300]));
    let db = open(&MemDisk::new());
    write(&db, 0, &small, FieldTypes::Keep).unwrap();
    write(&db, 1, &wide, FieldTypes::Widen).unwrap();
    assert_eq!(type_of(&db), FieldType::I64);
    let huge: ArrayRef = Arc::new(arrow_array::UInt64Array::from(vec![u64::MAX]));
    // There is a negative one.
    write(&db, 2, &huge, FieldTypes::Widen).unwrap_err();
    db.delete(TABLE, &TagFilter::All, TimeRange::new(1, 1)).unwrap();
    // Also when it is only hidden, while it is there.
    write(&db, 2, &huge, FieldTypes::Widen).unwrap_err();
    cascade(&db);
    write(&db, 2, &huge, FieldTypes::Widen).unwrap();
    assert_eq!(type_of(&db), FieldType::U64);
    assert_eq!(read(&db), [(0, 200.0), (2, u64::MAX as f64)]);
}

#[test]
fn too_much_is_not_written_anew_while_a_write_waits() {
    let db = open(&MemDisk::new());
    let mut state = 1_u64;
    let noise: Vec<i64> = (0..1_000_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 20) as i64
        })
        .collect();
    load(&db, 0, &ints(&noise), FieldTypes::Keep).unwrap();
    let error = write(&db, -1, &floats(&[0.5]), FieldTypes::Widen).unwrap_err();
    assert!(error.message().contains("ALTER TABLE plant ALTER COLUMN v TYPE DOUBLE"), "{error}");
    assert_eq!(type_of(&db), FieldType::I64);
    db.retype(TABLE, &[("v".into(), FieldType::F64)], Rewriting::All).unwrap();
    write(&db, -1, &floats(&[0.5]), FieldTypes::Keep).unwrap();
    let values = read(&db);
    assert_eq!(values[0], (-1, 0.5));
    assert!(values[1..].iter().map(|row| row.1).eq(noise.iter().map(|value| *value as f64)));
}

/// Writers of all kinds, cascades and readers, while the field goes from whole numbers to floats and back.
#[test]
fn types_change_while_others_write_and_read() {
    for round in 0..rounds(3) as i64 {
        let disk = MemDisk::new();
        let db = open(&disk);
        write(&db, -1, &ints(&[0]), FieldTypes::Keep).unwrap();
        let is_over = AtomicBool::new(false);
        let rows = 300 * (round + 1);
        std::thread::scope(|scope| {
            let _ends = Ends(&is_over);
            let writers: Vec<_> = (0..3_i64)
                .map(|writer| {
                    let db = &db;
                    scope.spawn(move || {
                        for row in 0..rows {
                            let time = row * 3 + writer;
                            let values = match writer {
                                0 => ints(&[time]),
                                1 => floats(&[time as f64]),
                                _ => Arc::new(arrow_array::Int32Array::from(vec![time as i32]))
                                    as ArrayRef,
                            };
                            match row % 7 {
                                0 => load(db, time, &values, FieldTypes::Widen).map(drop).unwrap(),
                                1..4 => {
                                    write(db, time, &values, FieldTypes::Keep).map(drop).unwrap()
                                }
                                _ => {
                                    let options = WriteOptions {
                                        ack: Ack::Memory,
                                        ..WriteOptions::default()
                                    };
                                    db.write(TABLE, &columns(&values, time), &options)
                                        .map(drop)
                                        .unwrap();
                                }
                            }
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    let found = read(&db);
                    assert!(found.iter().all(|(time, value)| *time < 0 || *value == *time as f64));
                }
            });
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    cascade(&db);
                }
            });
            let mut changes = 0;
            while !writers.iter().all(|writer| writer.is_finished()) {
                let ty = [FieldType::F64, FieldType::I32, FieldType::I64][changes % 3];
                db.retype(TABLE, &[("v".into(), ty)], Rewriting::All).unwrap();
                changes += 1;
            }
            is_over.store(true, Ordering::Release);
            assert!(changes > 2, "{changes} changes");
        });
        db.flush().unwrap();
        let expected: Vec<(i64, f64)> =
            std::iter::once((-1, 0.0)).chain((0..3 * rows).map(|t| (t, t as f64))).collect();
        assert_eq!(read(&db), expected);
        std::mem::forget(db);
        assert_eq!(read(&open(&disk.crash(round as u64))), expected);
    }
}

#[test]
fn a_row_of_tomorrow_is_of_the_new_type() {
    // Short columns of the days to come, and rows that are not of age, are written anew as well.
    let now_ns = START_NS;
    let clock = Arc::new(ManualClock::new(now_ns));
    let options = DbOptions { clock, ..DbOptions::default() };
    let db = Db::open_on(Arc::new(MemDisk::new()), options).unwrap();
    for day in -40..3 {
        write(&db, now_ns + day * NS_PER_DAY, &ints(&[day]), FieldTypes::Keep).unwrap();
    }
    db.cascade(&CascadeRequest { table: None, target: Target::ByAge }).unwrap();
    write(&db, now_ns + 5 * NS_PER_DAY, &floats(&[0.5]), FieldTypes::Widen).unwrap();
    let values: Vec<f64> = read(&db).into_iter().map(|row| row.1).collect();
    let expected: Vec<f64> = (-40..3).map(f64::from).chain([0.5]).collect();
    assert_eq!(values, expected);
}

/// Holds the first object that is made once it is armed, until it is released.
#[derive(Clone, Default)]
struct Brake {
    armed: Arc<AtomicBool>,
    reached: Arc<AtomicBool>,
    released: Arc<AtomicBool>,
}

impl Brake {
    fn open(&self) -> Db {
        let brake = self.clone();
        open_with(move |does, name| {
            if does == Does::Create && name.starts_with("objects/") {
                brake.hold();
            }
        })
    }

    fn hold(&self) {
        if self.armed.swap(false, Ordering::SeqCst) {
            self.reached.store(true, Ordering::SeqCst);
            wait_for(&self.released);
        }
    }
}

fn open_with(hook: impl Fn(Does, &str) + Send + Sync + 'static) -> Db {
    Db::open_on(Arc::new(HookDisk::new(MemDisk::new(), hook)), DbOptions::default()).unwrap()
}

fn wait_for(flag: &AtomicBool) {
    let start = Instant::now();
    while !flag.load(Ordering::SeqCst) {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn writers_go_on_while_a_change_waits_for_others_and_writes_objects() {
    for is_cascade in [true, false] {
        let brake = Brake::default();
        let db = brake.open();
        write(&db, 0, &ints(&[1]), FieldTypes::Keep).unwrap();
        db.flush().unwrap();
        let options = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
        for _ in 0..2 {
            db.write("yard", &columns(&ints(&[1, 2]), 0), &options).unwrap();
            db.flush().unwrap();
        }
        brake.armed.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            // Either the cascade of another table, or the change itself is held.
            if is_cascade {
                let table = Some("yard".to_owned());
                let request = CascadeRequest { table, target: Target::Long };
                let db = &db;
                scope.spawn(move || db.cascade(&request).unwrap());
                wait_for(&brake.reached);
            }
            let change = scope.spawn(|| write(&db, 1, &floats(&[1.5]), FieldTypes::Widen));
            wait_for(&brake.reached);
            std::thread::sleep(Duration::from_millis(100));
            let (send, done) = mpsc::channel();
            let other = db.clone();
            std::thread::spawn(move || {
                let written = write(&other, 2, &ints(&[2]), FieldTypes::Keep);
                let loaded = load(&other, 3, &ints(&[3]), FieldTypes::Keep);
                send.send((written, loaded)).unwrap();
            });
            let came = done.recv_timeout(Duration::from_secs(20));
            brake.released.store(true, Ordering::SeqCst);
            let (written, loaded) = came.unwrap();
            written.unwrap();
            loaded.unwrap();
            change.join().unwrap().unwrap();
        });
        let expected = [(0, 1.0), (1, 1.5), (2, 2.0), (3, 3.0)];
        assert_eq!((read(&db), type_of(&db)), (expected.to_vec(), FieldType::F64));
    }
}

#[test]
fn a_load_that_began_before_a_change_gets_the_types_behind_it() {
    let brake = Brake::default();
    let db = brake.open();
    write(&db, 0, &ints(&[1]), FieldTypes::Keep).unwrap();
    brake.armed.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| load(&db, 1, &ints(&[2, 3]), FieldTypes::Keep));
        wait_for(&brake.reached);
        write(&db, 3, &floats(&[1.5]), FieldTypes::Widen).unwrap();
        brake.released.store(true, Ordering::SeqCst);
        loading.join().unwrap().unwrap();
    });
    let expected = [(0, 1.0), (1, 2.0), (2, 3.0), (3, 1.5)];
    assert_eq!((read(&db), type_of(&db)), (expected.to_vec(), FieldType::F64));
    assert_eq!(db.verify().unwrap().damages, Vec::new());
}

/// Between the look at the table and the gate the field has got a type that is too narrow again.
#[test]
fn what_comes_while_a_type_gets_narrower_widens_it_again() {
    for is_load in [false, true] {
        let brake = Brake::default();
        let db = brake.open();
        write(&db, 0, &floats(&[1.0]), FieldTypes::Keep).unwrap();
        brake.armed.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let narrow = scope.spawn(|| retype(&db, FieldType::I64));
            // The gate is shut, and the schema is still the one before.
            wait_for(&brake.reached);
            let wide = scope.spawn(|| match is_load {
                true => load(&db, 1, &floats(&[1.5]), FieldTypes::Widen),
                false => write(&db, 1, &floats(&[1.5]), FieldTypes::Widen),
            });
            std::thread::sleep(Duration::from_millis(100));
            brake.released.store(true, Ordering::SeqCst);
            narrow.join().unwrap().unwrap();
            wide.join().unwrap().unwrap();
        });
        assert_eq!(type_of(&db), FieldType::F64);
        assert_eq!(read(&db).len(), 2);
    }
}

#[test]
fn a_change_that_is_refused_writes_nothing() {
    let db = open(&MemDisk::new());
    write(&db, 0, &ints(&[1, (1 << 53) + 1]), FieldTypes::Keep).unwrap();
    for round in 0..10 {
        write(&db, 10 + round, &ints(&[round]), FieldTypes::Keep).unwrap();
        write(&db, 100, &floats(&[1.5]), FieldTypes::Widen).unwrap_err();
    }
    let report = db.inspect().unwrap();
    assert!(report[0].models.iter().all(|model| model.objects == 0), "{report:?}");
    // And the rows that fit are taken where bad ones are set aside.
    let options = WriteOptions {
        bad_rows: BadRows::SetAside,
        field_types: FieldTypes::Widen,
        ..WriteOptions::default()
    };
    let report = db.write(TABLE, &columns(&floats(&[2.0, 1.5, 3.0]), 20), &options).unwrap();
    assert_eq!((report.rows, report.bad.len(), type_of(&db)), (2, 1, FieldType::I64));
}

#[test]
fn numbers_without_a_sign_that_fit_get_one_beside_others() {
    let db = open(&MemDisk::new());
    let small: ArrayRef = Arc::new(arrow_array::Int32Array::from(vec![-1]));
    write(&db, 0, &small, FieldTypes::Keep).unwrap();
    let large: ArrayRef = Arc::new(arrow_array::UInt64Array::from(vec![3_000_000_000]));
    write(&db, 1, &large, FieldTypes::Widen).unwrap();
    assert_eq!((read(&db), type_of(&db)), (vec![(0, -1.0), (1, 3e9)], FieldType::I64));
    let error = db.retype(
        TABLE,
        &[("v".into(), FieldType::F64), ("v".into(), FieldType::I64)],
        Rewriting::All,
    );
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid);
}

/// Changes of one table by several at once, beside a compaction that has objects.
#[test]
fn several_change_types_at_once() {
    let db = open(&MemDisk::new());
    for row in 0..200 {
        write(&db, row, &ints(&[row]), FieldTypes::Keep).unwrap();
        if row % 3 == 0 {
            db.flush().unwrap();
        }
    }
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let db = &db;
            scope.spawn(move || {
                write(db, 200 + writer, &floats(&[0.5]), FieldTypes::Widen).unwrap();
            });
        }
        scope.spawn(|| cascade(&db));
    });
    let found = read(&db);
    assert_eq!((found.len(), type_of(&db)), (204, FieldType::F64));
    assert!(found[200..].iter().all(|row| row.1 == 0.5));
}

#[test]
fn times_are_no_whole_numbers_in_a_field_that_holds_nothing() {
    let db = open(&MemDisk::new());
    let options = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
    let none = columns(&new_null_array(&DataType::Int64, 1), 0);
    db.write(TABLE, &none, &options).unwrap();
    let times: ArrayRef = Arc::new(arrow_array::TimestampNanosecondArray::from(vec![7]));
    write(&db, 1, &times, FieldTypes::Widen).unwrap();
    assert_eq!(type_of(&db), FieldType::Timestamp);
    // Where there are numbers they are taken as such, as ever.
    let db = open(&MemDisk::new());
    write(&db, 0, &ints(&[5]), FieldTypes::Keep).unwrap();
    write(&db, 1, &times, FieldTypes::Widen).unwrap();
    assert_eq!((type_of(&db), read(&db)), (FieldType::I64, vec![(0, 5.0), (1, 7.0)]));
}

/// Each waits for the one before, however many come while others write.
#[test]
fn many_changes_beside_writers_come_to_an_end() {
    let db = open(&MemDisk::new());
    write(&db, -1, &ints(&[0]), FieldTypes::Keep).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&is_over);
        for writer in 0..3 {
            let (db, is_over) = (&db, &is_over);
            scope.spawn(move || {
                let mut time = writer;
                while !is_over.load(Ordering::Acquire) {
                    write(db, time, &ints(&[time % 100]), FieldTypes::Keep).unwrap();
                    time += 3;
                }
            });
        }
        let db = &db;
        let change = move |changer: usize| {
            for round in 0..5 {
                let ty = [FieldType::F64, FieldType::I32, FieldType::I64][(changer + round) % 3];
                db.retype(TABLE, &[("v".into(), ty)], Rewriting::All).unwrap();
            }
        };
        let changers: Vec<_> = (0..8).map(|changer| scope.spawn(move || change(changer))).collect();
        changers.into_iter().for_each(|changer| changer.join().unwrap());
    });
}

/// A field that came while objects were written anew was not read from those that came with it.
#[test]
fn a_field_that_comes_while_another_changes_keeps_its_values() {
    let brake = Brake::default();
    let db = brake.open();
    write(&db, 0, &noise(300_000), FieldTypes::Keep).unwrap();
    db.flush().unwrap();
    brake.armed.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let db = &db;
        let change = scope.spawn(|| retype(db, FieldType::F64));
        wait_for(&brake.reached);
        let (first, mut batch) = (1_000_000, columns(&ints(&[5, 6]), 1_000_000));
        batch.fields.push(FieldColumn { name: "extra".into(), values: ints(&[77, 78]) });
        let options = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
        db.write("plant", &batch, &options).unwrap();
        db.flush().unwrap();
        brake.released.store(true, Ordering::SeqCst);
        change.join().unwrap().unwrap();
        let snapshot = db.snapshot("plant").unwrap();
        let (sensors, fields) = (vec![0], vec![FieldId(1)]);
        let time = TimeRange::new(first, i64::MAX);
        let request = ScanRequest { sensors, time, fields, conditions: Vec::new(), limit: None };
        let found: Vec<_> = snapshot.scan(&request).unwrap().map(|batch| batch.unwrap()).collect();
        let values = found.iter().flat_map(|batch| batch.fields[0].as_primitive::<Int64Type>());
        assert_eq!(values.collect::<Vec<_>>(), [Some(77), Some(78)]);
    });
}

/// What a cascade had when the change began was written anew while writers waited.
#[test]
fn writers_go_on_while_what_others_had_is_written_anew() {
    const CASCADE: &str = "cascade";
    const CHANGE: &str = "change";
    let (cascades, changes) = (Brake::default(), Brake::default());
    let (first, then) = (cascades.clone(), changes.clone());
    let db = open_with(move |does, name| {
        if does == Does::Create && name.starts_with("objects/") {
            match std::thread::current().name() {
                Some(CASCADE) => first.hold(),
                Some(CHANGE) => then.hold(),
                _ => {}
            }
        }
    });
    for part in 0..2 {
        write(&db, part * 150_000, &noise(150_000), FieldTypes::Keep).unwrap();
        db.flush().unwrap();
    }
    for brake in [&cascades, &changes] {
        brake.armed.store(true, Ordering::SeqCst);
    }
    std::thread::scope(|scope| {
        let db = &db;
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let request = CascadeRequest { table: Some(TABLE.into()), target: Target::Long };
        let cascade = named(CASCADE).spawn_scoped(scope, move || db.cascade(&request)).unwrap();
        wait_for(&cascades.reached);
        let change = named(CHANGE).spawn_scoped(scope, || retype(db, FieldType::F64)).unwrap();
        // It finds nothing that is free, and waits for the cascade, which lets it go first once its step has ended.
        std::thread::sleep(Duration::from_millis(100));
        assert!(!changes.reached.load(Ordering::SeqCst));
        cascades.released.store(true, Ordering::SeqCst);
        wait_for(&changes.reached);
        write(db, 1_000_000, &ints(&[5]), FieldTypes::Keep).unwrap();
        changes.released.store(true, Ordering::SeqCst);
        change.join().unwrap().unwrap();
        cascade.join().unwrap().unwrap();
        assert_eq!((type_of(db), read(db).len()), (FieldType::F64, 300_001));
    });
}

/// Of two first writes of a table or a field, the second one was refused where it wanted the wider type.
#[test]
fn first_writes_of_several_types_meet() {
    let db = Db::open_on(Arc::new(MemDisk::new()), DbOptions::default()).unwrap();
    let start = std::sync::Barrier::new(2);
    let put = |table: &str, first: i64, fields: Vec<(&str, ArrayRef)>| {
        let fields =
            fields.into_iter().map(|(name, values)| FieldColumn { name: name.into(), values });
        let batch =
            WriteBatch { time: vec![first].into(), tags: Vec::new(), fields: fields.collect() };
        let (unknown, field_types) = (Unknown::Create, FieldTypes::Widen);
        start.wait();
        db.write(table, &batch, &WriteOptions { unknown, field_types, ..WriteOptions::default() })
    };
    for round in 0..rounds(200) {
        let (new, known) = (format!("new{round}"), format!("known{round}"));
        std::thread::scope(|scope| {
            let ints_first = scope.spawn(|| {
                put(&new, 0, vec![("v", ints(&[1]))]).unwrap();
                put(&known, 0, vec![("v", ints(&[1]))]).unwrap();
                put(&known, 2, vec![("w", ints(&[1]))]).unwrap();
            });
            put(&new, 1, vec![("v", floats(&[1.5]))]).unwrap();
            put(&known, 1, vec![("v", ints(&[1]))]).unwrap();
            put(&known, 3, vec![("v", floats(&[1.5])), ("w", floats(&[2.5]))]).unwrap();
            ints_first.join().unwrap();
        });
        for (table, fields) in [(&new, 1), (&known, 2)] {
            let types =
                db.schema(table).unwrap().fields.iter().map(|field| field.ty).collect::<Vec<_>>();
            assert_eq!(types, vec![FieldType::F64; fields], "{table}");
        }
    }
}
