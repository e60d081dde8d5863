use arrow_array::{ArrayRef, Float64Array};
use tidefall_ground::wal::table_head;
use tidefall_series::ingest::Prepared;
use tidefall_series::ingest::record::{LogRecord, RecordKind};
use tidefall_simulation::MemDisk;
use tidefall_types::{FieldColumn, TagColumn, WriteBatch};

use super::*;
use crate::options::{Unknown, WriteOptions};

fn open(disk: &MemDisk) -> Result<Db> {
    Db::open_on(Arc::new(disk.clone()), DbOptions::default())
}

/// Rows of sensors by their numbers, which need not exist.
fn rows(sensors: &[u32]) -> Prepared {
    let values = Arc::new(Float64Array::from(vec![1.5; sensors.len()])) as ArrayRef;
    let time: Vec<i64> = (0..sensors.len() as i64).map(|row| 100 + row).collect();
    Prepared::new(sensors.to_vec().into(), time.into(), vec![Some(values)])
}

#[test]
fn records_that_make_no_sense_are_given_up_and_the_others_kept() {
    let disk = MemDisk::new();
    let db = open(&disk).unwrap();
    let value = Arc::new(Float64Array::from(vec![1.0])) as ArrayRef;
    let batch = WriteBatch {
        time: vec![1].into(),
        tags: vec![TagColumn {
            name: "sensor".into(),
            values: arrow_array::StringArray::from(vec!["s0"]),
            keys: vec![0].into(),
        }],
        fields: vec![FieldColumn { name: "value".into(), values: value }],
    };
    let create = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
    db.write("plant", &batch, &create).unwrap();
    let table = db.schema("plant").unwrap().id;
    db.close().unwrap();
    drop(db);
    let (mut wal, _) = Wal::open(Arc::new(disk.clone()), Seq(0), 5).unwrap();
    let first = wal.next_seq().0;
    for (place, sensors) in [&[0][..], &[0, 99, 0, 98], &[99]].iter().enumerate() {
        let record = LogRecord::alone(&rows(sensors)).unwrap();
        record.append(&mut wal, Seq(first + place as u64), table).unwrap();
    }
    let head = table_head(table);
    wal.append(Seq(first + 3), 77, &[&head, b"what is this?"]).unwrap();
    wal.append(Seq(first + 4), RecordKind::Rows as u8, &[&head, b"no"]).unwrap();
    wal.append(Seq(first + 5), RecordKind::RowsWithSensors as u8, &[&[0; 3]]).unwrap();
    wal.append(Seq(first + 6), 77, &[b"what is this?"]).unwrap();
    LogRecord::alone(&rows(&[0, 0])).unwrap().append(&mut wal, Seq(first + 7), table).unwrap();
    wal.close().unwrap();

    let error = open(&disk).unwrap_err();
    assert!(error.message().contains("belongs to a sensor that does not exist"), "{error}");
    assert!(error.message().contains("tidefall repair"), "{error}");
    let repaired = Db::repair_on(Arc::new(disk.clone()), DbOptions::default(), Repair::Mend);
    let report = repaired.unwrap();
    let told: Vec<String> = report.losses.iter().map(Loss::to_string).collect();
    let parts = [
        "2 of 4 rows of table plant",
        "1 of 1 rows of table plant",
        "kind 77",
        "rows of table plant: a frame is cut short",
        "too short",
        "it is of table number 1952540791, of which the manifest knows nothing",
    ];
    assert_eq!(told.len(), parts.len(), "{told:#?}");
    for (place, (told, part)) in told.iter().zip(parts).enumerate() {
        let record = format!("record {} of the log: ", first + 1 + place as u64);
        assert!(told.starts_with(&record) && told.contains(part), "{told}");
    }
    assert_eq!((report.records, report.rows), (4, 1 + 1 + 2 + 2));
    let db = open(&disk).unwrap();
    let sources = db.engine().series_table("plant").unwrap().sources().unwrap();
    let mut times: Vec<i64> = sources.runs.iter().flat_map(|run| run.time.to_vec()).collect();
    times.sort_unstable();
    assert_eq!(times, [1, 100, 100, 100, 101, 102]);
}
