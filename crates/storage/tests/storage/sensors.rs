//! Sensors and their first rows: whatever becomes of the write that brought a sensor, rows of it that are
//! acknowledged later are found again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::{ArrayRef, Int64Array, StringArray};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tidefall_simulation::{Fault, FaultDisk, MemDisk, Times};
use tidefall_storage::{
    Ack, BadRows, CascadeRequest, Db, DbOptions, Existing, FieldTypes, MEMORY_BYTES_MIN,
    TAG_BYTES_MAX, TAGS_BYTES_MAX, TagFilter, Target, Unknown, WriteOptions,
};
use tidefall_types::{
    ErrorKind, FieldColumn, FieldId, Result, Series, SeriesBatch, TagColumn, TimeRange, WriteBatch,
};

use crate::hooks::{Does, HookDisk};
use crate::image::files;
use crate::small;

const DURABLE: WriteOptions = WriteOptions {
    ack: Ack::Durable,
    bad_rows: BadRows::Reject,
    unknown: Unknown::Create,
    existing: Existing::Replace,
    field_types: FieldTypes::Keep,
};
const MEMORY: WriteOptions = WriteOptions { ack: Ack::Memory, ..DURABLE };

fn options() -> DbOptions {
    DbOptions { memory_bytes: 4 * MEMORY_BYTES_MIN, ..DbOptions::default() }
}

fn open(disk: &MemDisk) -> Db {
    Db::open_on(Arc::new(disk.clone()), options()).unwrap()
}

/// One row of each sensor.
fn batch(sensors: &[impl AsRef<str>], time: i64) -> WriteBatch {
    let values = Arc::new(Int64Array::from(vec![time; sensors.len()])) as ArrayRef;
    WriteBatch {
        time: vec![time; sensors.len()].into(),
        tags: vec![TagColumn {
            name: "sensor".into(),
            values: StringArray::from_iter_values(sensors),
            keys: (0..sensors.len() as u32).collect(),
        }],
        fields: vec![FieldColumn { name: "value".into(), values }],
    }
}

fn write(db: &Db, sensors: &[&str], time: i64, options: &WriteOptions) -> Result<()> {
    db.write("plant", &batch(sensors, time), options).map(drop)
}

/// The times of a sensor; none when it is not known.
fn times(db: &Db, sensor: &str) -> Vec<i64> {
    let filter = TagFilter::Eq { tag: "sensor".into(), value: sensor.into() };
    let snapshot = db.snapshot("plant").unwrap();
    let sensors = snapshot.sort_sensors(&snapshot.resolve(&filter).unwrap());
    let request = tidefall_storage::ScanRequest {
        sensors,
        time: TimeRange::ALL,
        fields: vec![FieldId(0)],
        conditions: Vec::new(),
        limit: None,
    };
    snapshot.scan(&request).unwrap().flat_map(|batch| batch.unwrap().time.to_vec()).collect()
}

/// The database as it is found when the process was killed, and when the power went, too.
fn killed(disk: &MemDisk) -> impl Iterator<Item = Db> {
    (0..4).map(|seed| open(&disk.crash(seed)))
}

#[test]
fn a_write_of_many_new_sensors_with_long_tags_is_taken_and_found_again() {
    const SENSORS: usize = 120_000;
    let mut rng = SmallRng::seed_from_u64(1);
    let letters = |rng: &mut SmallRng| (0..600).map(|_| rng.random_range('a'..='z')).collect();
    let names: Vec<String> = (0..SENSORS).map(|_| letters(&mut rng)).collect();
    let disk = MemDisk::new();
    let db = open(&disk);
    db.write("plant", &batch(&names, 1), &DURABLE).unwrap();
    write(&db, &[&names[77_777]], 2, &DURABLE).unwrap();
    let found = open(&disk.crash(1));
    let snapshot = found.snapshot("plant").unwrap();
    assert_eq!(snapshot.resolve(&TagFilter::All).unwrap().len(), SENSORS as u64);
    for number in [0, 1, SENSORS - 1] {
        assert_eq!(times(&found, &names[number]), [1]);
    }
    assert_eq!(times(&found, &names[77_777]), [1, 2]);
    write(&found, &["another"], 3, &DURABLE).unwrap();
    assert_eq!(times(&found, "another"), [3]);
}

#[test]
fn sensors_of_a_refused_write_are_logged_with_the_next_one() {
    let disk = MemDisk::new();
    let db = open(&disk);
    write(&db, &["old"], 1, &DURABLE).unwrap();
    let refuse = WriteOptions { existing: Existing::Refuse, ..DURABLE };
    let error = write(&db, &["new", "newer", "old"], 1, &refuse).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    write(&db, &["newer"], 2, &DURABLE).unwrap();
    write(&db, &["newest", "new"], 3, &DURABLE).unwrap();
    for found in killed(&disk) {
        for (sensor, wanted) in [("old", 1), ("newer", 2), ("newest", 3), ("new", 3)] {
            assert_eq!(times(&found, sensor), [wanted], "{sensor}");
        }
    }
}

#[test]
fn sensors_of_a_load_that_failed_are_logged_with_the_next_write() {
    let disk = MemDisk::new();
    let faulty = FaultDisk::new(Arc::new(disk.clone()), 1);
    let db = Db::open_on(Arc::new(faulty.clone()), options()).unwrap();
    write(&db, &["old"], 1, &DURABLE).unwrap();
    let rows = batch(&["new", "newer"], 2);
    let value = Arc::new(Int64Array::from(vec![2])) as ArrayRef;
    let one = Series { time: vec![2].into(), fields: vec![value] };
    let load = SeriesBatch {
        fields: vec!["value".into()],
        series: vec![one.clone(), one],
        tags: rows.tags,
    };
    faulty.arm(Fault::WriteError, 0, Times::Once);
    assert_eq!(db.load("plant", &load, Unknown::Create).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(faulty.fired(), 1);
    write(&db, &["newer"], 3, &DURABLE).unwrap();
    for found in killed(&disk) {
        assert_eq!((times(&found, "old"), times(&found, "newer")), (vec![1], vec![3]));
    }
    db.load("plant", &load, Unknown::Create).unwrap();
    write(&db, &["new"], 4, &DURABLE).unwrap();
    for found in killed(&disk) {
        assert_eq!((times(&found, "new"), times(&found, "newer")), (vec![2, 4], vec![2, 3]));
    }
}

#[test]
fn sensors_that_were_only_in_memory_are_logged_with_the_next_durable_write() {
    let disk = MemDisk::new();
    let db = open(&disk);
    write(&db, &["a", "b", "c"], 1, &MEMORY).unwrap();
    write(&db, &["b"], 2, &DURABLE).unwrap();
    for found in killed(&disk) {
        assert_eq!(times(&found, "b"), [2]);
    }
    // Then they are in objects, and no more rows of them bring them.
    write(&db, &["d", "e"], 3, &MEMORY).unwrap();
    db.flush().unwrap();
    write(&db, &["e", "f"], 4, &DURABLE).unwrap();
    write(&db, &["c"], 5, &DURABLE).unwrap();
    for found in killed(&disk) {
        let wanted: [(&str, &[i64]); 6] =
            [("a", &[1]), ("b", &[1, 2]), ("c", &[1, 5]), ("d", &[3]), ("e", &[3, 4]), ("f", &[4])];
        for (sensor, wanted) in wanted {
            assert_eq!(times(&found, sensor), wanted, "{sensor}");
        }
    }
}

#[test]
fn writers_of_the_same_new_sensors_may_come_in_any_order() {
    const WRITERS: i64 = 4;
    const ROUNDS: i64 = 60;
    let disk = MemDisk::new();
    let db = open(&disk);
    write(&db, &["old"], 0, &DURABLE).unwrap();
    std::thread::scope(|scope| {
        for writer in 1..=WRITERS {
            let db = &db;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let shared = format!("s{round}");
                    let own = format!("w{writer}-{round}");
                    let options = if (round + writer) % 3 == 0 { &MEMORY } else { &DURABLE };
                    write(db, &[&shared, &own], writer, options).unwrap();
                }
            });
        }
    });
    for found in killed(&disk) {
        for round in 0..ROUNDS {
            let durable = (1..=WRITERS).filter(|writer| (round + writer) % 3 > 0);
            let shared = times(&found, &format!("s{round}"));
            for writer in durable {
                assert!(shared.contains(&writer), "round {round}, writer {writer}: {shared:?}");
                assert_eq!(times(&found, &format!("w{writer}-{round}")), [writer]);
            }
        }
    }
}

#[test]
fn a_reader_beside_a_writer_finds_sensors_that_are_only_in_objects() {
    let disk = MemDisk::new();
    let db = open(&disk);
    // It keeps the log from being cut.
    small::write(&db, "anchor", &[(1, 1)]);
    write(&db, &["old"], 1, &DURABLE).unwrap();
    let plant = CascadeRequest { table: Some("plant".into()), target: Target::Long };
    db.cascade(&plant).unwrap();
    let writer = db.clone();
    let is_first = AtomicBool::new(true);
    // The reader has read the manifest, and not yet the log.
    let hooked = HookDisk::new(disk.clone(), move |does, name| {
        if does == Does::List && name == "wal" && is_first.swap(false, Ordering::SeqCst) {
            write(&writer, &["new"], 2, &MEMORY).unwrap();
            writer.cascade(&plant).unwrap();
            write(&writer, &["new"], 3, &DURABLE).unwrap();
        }
    });
    let reader = Db::open_read_only_on(Arc::new(hooked), options()).unwrap();
    assert_eq!((times(&reader, "old"), times(&reader, "new")), (vec![1], vec![2, 3]));
}

#[test]
fn tags_that_are_too_long_are_bad_rows_that_name_tag_length_and_limit() {
    let disk = MemDisk::new();
    let db = open(&disk);
    let longest = "x".repeat(TAG_BYTES_MAX);
    let too_long = "y".repeat(TAG_BYTES_MAX + 1);
    write(&db, &[&longest], 1, &DURABLE).unwrap();
    let error = write(&db, &["a", &too_long], 2, &DURABLE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    for part in ["row 2", "tag \"sensor\"", "16385 bytes", "up to 16384", "\"yyy"] {
        assert!(error.message().contains(part), "{error}");
    }
    assert_eq!(times(&db, "a"), [0; 0]);
    let aside = WriteOptions { bad_rows: BadRows::SetAside, ..DURABLE };
    let report = db.write("plant", &batch(&["a", &too_long, "b"], 3), &aside).unwrap();
    assert_eq!(report.bad.iter().map(|bad| bad.row).collect::<Vec<_>>(), [1]);
    assert_eq!((times(&db, "a"), times(&db, "b")), (vec![3], vec![3]));
    assert_eq!(times(&db, &too_long), [0; 0]);

    let rows = batch(&["c", &too_long], 4);
    let value = Arc::new(Int64Array::from(vec![4])) as ArrayRef;
    let one = Series { time: vec![4].into(), fields: vec![value] };
    let (fields, tags) = (vec!["value".into()], rows.tags);
    let load = SeriesBatch { fields, series: vec![one.clone(), one], tags };
    let error = db.load("plant", &load, Unknown::Create).unwrap_err();
    assert!(error.message().contains("series 1") && error.message().contains("16384"), "{error}");
    assert_eq!(times(&db, "c"), [0; 0]);
    for found in killed(&disk) {
        assert_eq!((times(&found, &longest), times(&found, "b")), (vec![1], vec![3]));
    }
}

#[test]
fn all_tags_of_a_sensor_together_have_a_limit() {
    const TAGS: usize = 5;
    let db = open(&MemDisk::new());
    let write = |bytes: usize| {
        let tags = (0..TAGS).map(|tag| TagColumn {
            name: format!("tag{tag}"),
            values: StringArray::from_iter_values([&"z".repeat(bytes + tag)]),
            keys: vec![0].into(),
        });
        let value = Arc::new(Int64Array::from(vec![1])) as ArrayRef;
        let fields = vec![FieldColumn { name: "value".into(), values: value }];
        let batch = WriteBatch { time: vec![1].into(), tags: tags.collect(), fields };
        db.write("plant", &batch, &DURABLE)
    };
    let most = (TAGS_BYTES_MAX - 10) / TAGS;
    write(most).unwrap();
    let error = write(most + 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    for part in ["65540 bytes together", "\"tag4\" has 13110", "up to 65536"] {
        assert!(error.message().contains(part), "{error}");
    }
}

/// As many sensors as names, with one row each, which all have one value of another tag.
fn sharing(names: &[String], note: &str) -> WriteBatch {
    let mut rows = batch(names, 1);
    rows.tags.push(TagColumn {
        name: "note".into(),
        values: StringArray::from(vec![note]),
        keys: vec![0; names.len()].into(),
    });
    rows
}

/// Values of a tag that sensors share were laid out once for each sensor, which panicked beyond two gigabytes: in the
/// thread that commits, and in each flush, also after the next open.
#[test]
fn sensors_that_share_a_long_value_are_logged_stored_and_found_again() {
    const SENSORS: usize = (i32::MAX as usize) / TAG_BYTES_MAX + 1_000;
    let names: Vec<String> = (0..SENSORS).map(|sensor| format!("s{sensor}")).collect();
    let disk = MemDisk::new();
    let db = open(&disk);
    db.write("plant", &sharing(&names, &"x".repeat(TAG_BYTES_MAX)), &DURABLE).unwrap();
    drop(db);
    let again = open(&disk.crash(1));
    again.flush().unwrap();
    again.close().unwrap();
    drop(again);
    let found = open(&disk);
    let snapshot = found.snapshot("plant").unwrap();
    assert_eq!(snapshot.resolve(&TagFilter::All).unwrap().len(), SENSORS as u64);
    assert_eq!(times(&found, &names[SENSORS - 1]), [1]);
}

/// Sensors of writes that were refused must be brought to the log by those behind them, however many they are.
#[test]
fn more_new_tags_than_the_log_takes_at_once_go_to_objects() {
    const SENSORS: usize = 3_000;
    let filler = "y".repeat(TAG_BYTES_MAX - 6);
    let names: Vec<String> = (0..SENSORS).map(|sensor| format!("{sensor:06}{filler}")).collect();
    let disk = MemDisk::new();
    let small = DbOptions { memory_bytes: MEMORY_BYTES_MIN, ..DbOptions::default() };
    let db = Db::open_on(Arc::new(disk.clone()), small).unwrap();
    write(&db, &["first"], 1, &DURABLE).unwrap();
    let objects = |disk| files(disk).keys().filter(|name| name.ends_with(".sensors")).count();
    assert_eq!(objects(&disk), 0);
    db.write("plant", &batch(&names, 2), &DURABLE).unwrap();
    assert!(objects(&disk) > 0);
    write(&db, &["last"], 3, &DURABLE).unwrap();
    for found in killed(&disk) {
        assert_eq!(times(&found, &names[SENSORS - 1]), [2]);
        assert_eq!((times(&found, "first"), times(&found, "last")), (vec![1], vec![3]));
    }
}
