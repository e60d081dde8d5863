use std::io::Write as _;
use std::path::PathBuf;

use arrow_array::{ArrayRef, Float64Array, Int64Array, StringArray, TimestampMicrosecondArray};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use super::*;

fn write(path: &Path, rows: i64, group_rows: usize) {
    let times: Vec<Option<i64>> = (0..rows).map(|row| (row != 5).then_some(row)).collect();
    let names: Vec<String> = (0..rows).map(|row| format!("s{}", row % 7)).collect();
    let values: Vec<f64> = (0..rows).map(|row| row as f64).collect();
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("time", Arc::new(TimestampMicrosecondArray::from(times)) as ArrayRef, true),
        ("s", Arc::new(StringArray::from(names)), true),
        ("v", Arc::new(Float64Array::from(values.clone())), true),
        ("w", Arc::new(Float64Array::from(values)), true),
    ])
    .unwrap();
    let properties =
        WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)).build();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn row_groups_come_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    write(&path, 100_000, 9_999);
    let options = ColumnarOptions {
        tags: vec!["s".to_owned()],
        skip: vec!["w".to_owned()],
        threads: 3,
        ..ColumnarOptions::default()
    };
    let reader = open_columnar(&path, &options).unwrap();
    assert_eq!(reader.rows(), Some(100_000));
    assert_eq!(reader.fields(), [("v".to_owned(), FieldType::F64)]);
    let (mut times, mut bad) = (Vec::new(), Vec::new());
    for batch in reader {
        let batch = batch.unwrap();
        times.extend_from_slice(&batch.batch.time);
        bad.extend(batch.bad);
    }
    let expected: Vec<i64> = (0..100_000).filter(|row| *row != 5).map(|row| row * 1_000).collect();
    assert_eq!(times, expected);
    assert_eq!((bad.len(), bad[0].line), (1, 6));
}

#[test]
fn a_table_gives_its_tags() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    write(&path, 10, 10);
    let mut table = TableSchema::new(tidefall_types::TableId(0), "t", "time");
    table.add_tag("room").unwrap();
    table.add_tag("s").unwrap();
    let options = ColumnarOptions {
        table: Some(Arc::new(table)),
        skip: vec!["room".to_owned()],
        ..ColumnarOptions::default()
    };
    let first = |options: &ColumnarOptions| {
        let batch = open_columnar(&path, options).unwrap().next().unwrap().unwrap().batch;
        batch.tags.iter().map(|tag| tag.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(first(&options), ["s"]);
    let skip = vec!["s".to_owned(), "room".to_owned()];
    assert!(first(&ColumnarOptions { skip, ..options }).is_empty());
}

/// The time at which rows were stored was taken before numbers that are called the time.
#[test]
fn a_column_called_time_of_another_type_is_asked_about() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    let batch = RecordBatch::try_from_iter([
        (
            "time",
            Arc::new(Int64Array::from(vec![1_700_000_000_000, 1_700_000_060_000])) as ArrayRef,
        ),
        ("ingested_at", Arc::new(TimestampMicrosecondArray::from(vec![7, 7]))),
        ("v", Arc::new(Float64Array::from(vec![1.0, 2.0]))),
    ])
    .unwrap();
    let mut writer =
        ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let asked = ColumnarOptions::default();
    let error = open_columnar(&path, &asked).unwrap_err();
    for part in ["x.parquet", "\"ingested_at\" or \"time\"", "--time NAME"] {
        assert!(error.message().contains(part), "{error}");
    }
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let first = |options: &ColumnarOptions| {
        open_columnar(&path, options).unwrap().next().unwrap().unwrap().batch.time[0]
    };
    let time = Some("time".to_owned());
    assert_eq!(first(&ColumnarOptions { time, ..asked.clone() }), 1_700_000_000_000_000_000);
    let time = Some("ingested_at".to_owned());
    assert_eq!(first(&ColumnarOptions { time, ..asked.clone() }), 7_000);
    assert_eq!(first(&ColumnarOptions { skip: names(&["time"]), ..asked.clone() }), 7_000);
    // It is known to be a field, by what is said or by the table.
    let fields = Some(names(&["v", "time"]));
    assert_eq!(first(&ColumnarOptions { fields, ..asked.clone() }), 7_000);
    let mut table = TableSchema::new(tidefall_types::TableId(0), "t", "at");
    table.add_field("time", FieldType::I64).unwrap();
    assert_eq!(first(&ColumnarOptions { table: Some(Arc::new(table)), ..asked }), 7_000);
}

/// Rows came in without their tag, and replaced each other.
#[test]
fn a_file_without_a_tag_of_the_table_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    write(&path, 10, 10);
    let mut table = TableSchema::new(tidefall_types::TableId(0), "t", "time");
    table.add_tag("S").unwrap();
    let options = ColumnarOptions { table: Some(Arc::new(table)), ..ColumnarOptions::default() };
    let error = open_columnar(&path, &options).unwrap_err();
    assert_eq!(error.kind(), tidefall_types::ErrorKind::Invalid);
    for part in ["x.parquet: ", "\"t\" has the tag \"S\"", "it has \"s\": rename it", "--skip S"] {
        assert!(error.message().contains(part), "{error}");
    }
    let constant_tags = vec![("S".to_owned(), "a".to_owned())];
    for options in [
        ColumnarOptions { constant_tags, ..options.clone() },
        ColumnarOptions { skip: vec!["S".to_owned()], ..options.clone() },
        ColumnarOptions { tags: vec!["s".to_owned()], ..options },
    ] {
        open_columnar(&path, &options).unwrap();
    }
}

#[test]
fn broken_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    write(&path, 1_000, 100);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let error = open_columnar(&path, &ColumnarOptions::default()).unwrap_err();
    assert_eq!(error.kind(), tidefall_types::ErrorKind::Corrupt);
    std::fs::write(&path, &whole).unwrap();
    let options = ColumnarOptions { tags: vec!["nope".to_owned()], ..ColumnarOptions::default() };
    let error = open_columnar(&path, &options).unwrap_err();
    assert!(error.message().contains("\"nope\""), "{error}");
}

#[test]
fn the_real_file_has_all_its_rows() {
    let data = std::env::var_os("TIDEFALL_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let path = data.join("flights/flights-3m.parquet");
    if !path.is_file() {
        // Not by eprintln, of which a test that passes shows nothing.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: {} is not there; set TIDEFALL_DATA",
            path.display()
        );
        return;
    }
    let tags = vec!["origin".to_owned(), "destination".to_owned()];
    let reader =
        open_columnar(&path, &ColumnarOptions { tags, ..ColumnarOptions::default() }).unwrap();
    let rows: usize = reader.map(|batch| batch.unwrap().batch.rows()).sum();
    assert_eq!(rows, 3_000_000);
}
