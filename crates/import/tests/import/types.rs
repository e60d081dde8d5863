//! Types of fields, in one file and over several.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use parquet::arrow::ArrowWriter;
use tempfile::TempDir;
use tidefall_import::{
    ColumnarOptions, CsvOptions, TimeFormat, look_together, open_columnar, open_csv,
};
use tidefall_types::{FieldType, TableId, TableSchema};

use crate::{rows_of, tagged};

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn csv(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A Parquet file with times from 0 on, a microsecond apart.
    fn parquet(&self, name: &str, fields: &[(&str, ArrayRef)]) -> PathBuf {
        let path = self.0.path().join(name);
        let rows = fields[0].1.len() as i64;
        let time: ArrayRef = Arc::new(TimestampMicrosecondArray::from_iter_values(0..rows));
        let fields = fields.iter().map(|(name, values)| (*name, Arc::clone(values), true));
        let columns = [("time", time, true)].into_iter().chain(fields);
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let file = std::fs::File::create(&path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        path
    }
}

fn common(files: &[PathBuf], csv: &CsvOptions) -> Vec<(String, FieldType)> {
    look_together(files, csv, &ColumnarOptions::default()).unwrap().types.into_iter().collect()
}

#[track_caller]
fn check_common(files: &[PathBuf], expected: &[(&str, FieldType)]) {
    let expected: Vec<_> = expected.iter().map(|(name, ty)| ((*name).to_owned(), *ty)).collect();
    assert_eq!(common(files, &CsvOptions::default()), expected);
}

#[test]
fn all_files_have_a_say_in_the_types() {
    let folder = Folder::new();
    let jan = folder.csv("jan.csv", "time,v,n,only\n2024-01-01,1,,7\n");
    let feb = folder.csv("feb.csv", "time,v,n,note\n2024-02-01,1.5,true,8\n");
    let mar = folder.csv("mar.csv", "time,v,note\n2024-03-01,2,x\n");
    let (whole, number, flag) = (FieldType::I64, FieldType::F64, FieldType::Bool);
    check_common(std::slice::from_ref(&jan), &[("only", whole), ("v", whole)]);
    let files = [jan, feb, mar];
    check_common(&files, &[("n", flag), ("note", FieldType::Text), ("only", whole), ("v", number)]);
    let told =
        CsvOptions { types: [("v".to_owned(), FieldType::F32)].into(), ..CsvOptions::default() };
    assert_eq!(common(&files, &told)[3], ("v".to_owned(), FieldType::F32));
    // What the table has does not count: it may have to become wider.
    let mut table = TableSchema::new(TableId(0), "t", "time");
    table.add_field("v", whole).unwrap();
    let kept = CsvOptions { table: Some(Arc::new(table)), ..CsvOptions::default() };
    assert_eq!(common(&files, &kept)[3], ("v".to_owned(), number));
    let wrong = CsvOptions { types: [("x".to_owned(), whole)].into(), ..CsvOptions::default() };
    let error = look_together(&files, &wrong, &ColumnarOptions::default()).unwrap_err();
    assert!(error.message().contains("no file has a field \"x\""), "{error}");
    // The types are those of the rows, too.
    let types =
        look_together(&files, &CsvOptions::default(), &ColumnarOptions::default()).unwrap().types;
    let options = CsvOptions { types, ..CsvOptions::default() };
    let rows: String = files
        .iter()
        .flat_map(|file| open_csv(file, &options).unwrap())
        .map(|batch| rows_of(&batch.unwrap().batch))
        .collect();
    assert_eq!(
        rows,
        "2024-01-01T00:00:00Z v=1.0 only=7\n2024-02-01T00:00:00Z v=1.5 n=true note=8\n\
         2024-03-01T00:00:00Z v=2.0 note=x\n"
    );
}

#[test]
fn a_late_decimal_counts_in_each_file() {
    let folder = Folder::new();
    let mut text = String::from("time,v\n");
    // More than a sample holds.
    (0..400_000).for_each(|_| text.push_str("2024-01-01 00:00,7\n"));
    let whole = folder.csv("whole.csv", "time,v\n2024-01-01,1\n");
    let late = folder.csv("late.csv", &(text + "2024-01-01 00:00,7.5\n"));
    check_common(&[whole, late], &[("v", FieldType::F64)]);
}

/// Two files had whole numbers of different signs, and were read as floats that hold neither.
#[test]
fn whole_numbers_of_several_files_stay_whole() {
    let folder = Folder::new();
    let csv = |name: &str, value: &str| folder.csv(name, &format!("time,v\n2024-01-01,{value}\n"));
    let (small, large) = (csv("small.csv", "5"), csv("large.csv", "18446744073709551615"));
    let negative = csv("negative.csv", "-5");
    let (decimal, long) = (csv("decimal.csv", "1.5"), csv("long.csv", "89490012345678901234"));
    let check = |files: &[&PathBuf], ty: FieldType| {
        let files: Vec<PathBuf> = files.iter().map(|file| (*file).clone()).collect();
        check_common(&files, &[("v", ty)]);
    };
    check(&[&small, &large], FieldType::U64);
    check(&[&large, &negative], FieldType::Text);
    check(&[&small, &long], FieldType::Text);
    check(&[&long, &decimal, &small], FieldType::F64);
}

/// What a sample calls for may be another type for all of the file.
#[test]
fn late_values_count_for_whole_numbers_that_no_float_holds() {
    let folder = Folder::new();
    let rows = |value: &str| format!("2024-01-01 00:00,{value}\n");
    let check = |name: &str, often: &str, last: &str, ty: FieldType| {
        let text = "time,v\n".to_owned() + &rows(often).repeat(200_000) + &rows(last);
        check_common(&[folder.csv(name, &text)], &[("v", ty)]);
    };
    check("a.csv", "100000000000000000000", "89490012345678901234", FieldType::Text);
    check("b.csv", "89490012345678901234", "1.5", FieldType::F64);
}

#[test]
fn wide_files_have_one_type() {
    let folder = Folder::new();
    let files = [
        folder.csv("a.csv", "time,101,102\n2024-01-01,1,2\n"),
        folder.csv("b.csv", "time,101,103\n2024-01-01,1,2.5\n"),
    ];
    let layout = tidefall_import::Layout::Wide { tag: "sensor".to_owned() };
    let wide = CsvOptions { layout, ..CsvOptions::default() };
    assert_eq!(common(&files, &wide), [("value".to_owned(), FieldType::F64)]);
    let large = folder.csv("c.csv", "time,101,102\n2024-01-01,18446744073709551615,5\n");
    let read = open_csv(&large, &wide).unwrap().map(|batch| rows_of(&batch.unwrap().batch));
    assert!(read.collect::<String>().contains("value=18446744073709551615"));
}

#[test]
fn parquet_files_of_different_types_come_together() {
    let folder = Folder::new();
    let whole: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(1 << 60)]));
    let decimal: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.5), None]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x", "7"]));
    let files = [
        folder.parquet("a.parquet", &[("v", Arc::clone(&whole)), ("w", whole)]),
        folder.parquet("b.parquet", &[("v", decimal), ("w", text)]),
        folder.csv("c.csv", "time,v,w\n2024-01-01,3,4\n"),
    ];
    check_common(&files, &[("v", FieldType::F64), ("w", FieldType::Text)]);
    let csv = CsvOptions::default();
    let types = look_together(&files, &csv, &ColumnarOptions::default()).unwrap().types;
    let options = ColumnarOptions { types, ..ColumnarOptions::default() };
    let batch = open_columnar(&files[0], &options).unwrap().next().unwrap().unwrap();
    assert_eq!(
        rows_of(&batch.batch),
        "1970-01-01T00:00:00Z v=1.0 w=1\n1970-01-01T00:00:00.000001Z\n\
         1970-01-01T00:00:00.000002Z v=1.152921504606847e18 w=1152921504606846976\n"
    );
}

#[test]
fn decimals_that_floats_round_are_told() {
    let folder = Folder::new();
    let of = |digits, behind| -> ArrayRef {
        let decimals = Decimal128Array::from(vec![123_456_789]);
        Arc::new(decimals.with_precision_and_scale(digits, behind).unwrap())
    };
    let fields = [("long", of(20, 2)), ("short", of(15, 2)), ("told", of(18, 0))];
    let files = [folder.parquet("a.parquet", &fields)];
    let types = [("told".to_owned(), FieldType::Text)].into();
    let options = ColumnarOptions { types, ..ColumnarOptions::default() };
    let found = look_together(&files, &CsvOptions::default(), &options).unwrap();
    let note = |name, digits| {
        let what =
            format!("{name:?} has decimals of up to {digits} digits, which are read as DOUBLE");
        (files[0].clone(), format!("{what}: those with more than 15 are rounded"))
    };
    assert_eq!(found.notes, [note("long", 20), note("told", 18)]);
}

#[test]
fn a_value_that_does_not_fit_a_told_type_is_a_bad_row() {
    let folder = Folder::new();
    let decimal: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 1.5, f64::NAN, 1e300]));
    let file = folder.parquet("a.parquet", &[("v", decimal)]);
    for (ty, bad) in
        [(FieldType::I64, vec![2, 3, 4]), (FieldType::F32, vec![4]), (FieldType::Text, vec![])]
    {
        let types = [("v".to_owned(), ty)].into();
        let options = ColumnarOptions { types, ..ColumnarOptions::default() };
        let batch = open_columnar(&file, &options).unwrap().next().unwrap().unwrap();
        assert_eq!(batch.bad.iter().map(|bad| bad.line).collect::<Vec<_>>(), bad, "{ty:?}");
        assert_eq!(batch.batch.rows(), 4 - bad.len());
    }
}

#[test]
fn carried_files_have_all_their_rows() {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/data");
    let files = [
        ("london_air", "", 17_520),
        ("weather_nyc", "origin", 26_115),
        ("machine_temperature", "", 22_695),
        ("aircraft", "icao24", 18_698),
        ("aircraft_clock_faults", "icao24", 8_294),
    ];
    for (name, tags, rows) in files {
        let tags: Vec<&str> = tags.split(',').filter(|tag| !tag.is_empty()).collect();
        let reader = open_csv(&data.join(format!("{name}.csv.gz")), &tagged(&tags)).unwrap();
        let counts = reader.map(|batch| batch.map(|b| (b.batch.rows(), b.bad.len())).unwrap());
        let found = counts.fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
        assert_eq!(found, (rows, 0), "{name}");
    }
    // Three clocks count since 1970: somebody has to say which.
    let error = open_csv(&data.join("crypto_trades.csv.gz"), &tagged(&["market", "symbol"]));
    let error = error.unwrap_err();
    assert!(error.message().contains("say which with --time"), "{error}");
}

#[test]
fn times_of_parquet_that_are_numbers_are_told_by_their_size() {
    let folder = Folder::new();
    let epochs: ArrayRef = Arc::new(Int64Array::from(vec![1_704_067_200, 1_704_067_260]));
    let small: ArrayRef = Arc::new(Int64Array::from(vec![0, 60]));
    let value: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let file = folder.parquet("a.parquet", &[("ts", epochs), ("n", small), ("v", value)]);
    let by = |time: &str, format: Option<&str>| ColumnarOptions {
        time: Some(time.to_owned()),
        time_format: format.map(|name| TimeFormat::from_name(name).unwrap()),
        fields: Some(vec!["v".to_owned()]),
        ..ColumnarOptions::default()
    };
    let rows = |options: &ColumnarOptions| {
        let batch = open_columnar(&file, options)?.next().unwrap()?;
        Ok::<_, tidefall_types::Error>(rows_of(&batch.batch))
    };
    let found = rows(&by("ts", None)).unwrap();
    assert_eq!(found, "2024-01-01T00:00:00Z v=1\n2024-01-01T00:01:00Z v=2\n");
    let error = rows(&by("n", None)).unwrap_err();
    assert!(error.message().contains("\"n\" (\"0\", \"60\") are no times"), "{error}");
    let found = rows(&by("n", Some("s"))).unwrap();
    assert_eq!(found, "1970-01-01T00:00:00Z v=1\n1970-01-01T00:01:00Z v=2\n");
}

#[test]
fn further_columns_of_times_are_timestamps() {
    let options = CsvOptions::default();
    let check = |text: &str, expected: &str| crate::check(text, &options, expected);
    // The time is found as ever, the other keeps what it is.
    check(
        "time,started,v\n2024-01-01 10:00,2024-01-01T09:00:00.5+01:00,1\n2024-01-02 10:00,,2\n",
        "2024-01-01T10:00:00Z started=2024-01-01T08:00:00.500 v=1
        2024-01-02T10:00:00Z v=2",
    );
    check(
        "time,day,v\n2024-01-01 10:00,2023-12-31,1\n",
        "2024-01-01T10:00:00Z day=2023-12-31T00:00:00 v=1",
    );
    // Days and months stand as in the time.
    check(
        "time;changed;v\n13.01.2024 10:00;01.02.2024 11:30;1\n",
        "2024-01-13T10:00:00Z changed=2024-02-01T11:30:00 v=1",
    );
    check(
        "time;changed;v\n01/13/2024 10:00;01/02/2024 11:30;1\n",
        "2024-01-13T10:00:00Z changed=2024-01-02T11:30:00 v=1",
    );
    // What is not a time in every row, or may be something else, is text or a number.
    check(
        "time,note,code,n\n2024-01-01 00:00,2024-01-01 12:00,1.2.24,20240101\n2024-01-02 00:00,later,2.3.24,20240102\n",
        "2024-01-01T00:00:00Z note=2024-01-01 12:00 code=1.2.24 n=20240101
        2024-01-02T00:00:00Z note=later code=2.3.24 n=20240102",
    );
    // All of a file decides, not its beginning alone.
    let mut text = "time,seen\n".to_owned();
    for row in 0..120_000 {
        text.push_str(&format!("2024-01-01 00:00:00.{row:06},2024-01-01 00:00:00\n"));
    }
    let folder = Folder::new();
    let schema = |text: &str| {
        let file = folder.csv("long.csv", text);
        open_csv(&file, &CsvOptions::default()).unwrap().schema().fields.clone()
    };
    assert_eq!(schema(&text)[0].ty, FieldType::Timestamp);
    assert_eq!(schema(&format!("{text}2024-01-02 00:00,never\n"))[0].ty, FieldType::Text);
}

#[test]
fn a_type_of_timestamp_reads_numbers_and_says_what_is_none() {
    let types = [("x".to_owned(), FieldType::Timestamp)].into();
    let options = CsvOptions { types, ..CsvOptions::default() };
    crate::check(
        "time,x\n2024-01-01,1704067200\n2024-01-02,1704067260\n2024-01-03,soon\n",
        &options,
        "2024-01-01T00:00:00Z x=2024-01-01T00:00:00
        2024-01-02T00:00:00Z x=2024-01-01T00:01:00
        line 4: column \"x\": \"soon\" is not a time as the first ones are written, and the column is \
        TIMESTAMP; correct it, or name the text as a missing value",
    );
    crate::check(
        "time,x\n2024-01-01,20240101\n",
        &options,
        "2024-01-01T00:00:00Z x=2024-01-01T00:00:00",
    );
    let mut table = TableSchema::new(TableId(0), "t", "time");
    table.add_field("x", FieldType::Timestamp).unwrap();
    table.add_field("old", FieldType::Text).unwrap();
    let options = CsvOptions { table: Some(Arc::new(table)), ..CsvOptions::default() };
    crate::check(
        "time,x,old\n2024-01-01,2024-01-01 12:00,2024-01-01 12:00\n",
        &options,
        "2024-01-01T00:00:00Z x=2024-01-01T12:00:00 old=2024-01-01 12:00",
    );
}

#[test]
fn timestamps_of_parquet_are_such_fields() {
    let folder = Folder::new();
    let seen: ArrayRef = Arc::new(
        TimestampMicrosecondArray::from(vec![Some(1_500_000), None]).with_timezone("Europe/Berlin"),
    );
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let file = folder.parquet("a.parquet", &[("seen", seen), ("n", numbers)]);
    check_common(
        std::slice::from_ref(&file),
        &[("n", FieldType::I64), ("seen", FieldType::Timestamp)],
    );
    let reader = open_columnar(&file, &ColumnarOptions::default()).unwrap();
    let rows: String = reader.map(|batch| rows_of(&batch.unwrap().batch)).collect();
    assert_eq!(
        rows,
        "1970-01-01T00:00:00Z seen=1970-01-01T00:00:01.500 n=1\n1970-01-01T00:00:00.000001Z n=2\n"
    );
    // A table in which they were numbers keeps those; numbers become no times.
    let text = folder.csv("b.csv", "time,seen\n2024-01-01 00:00,2024-01-01 12:00\n");
    check_common(&[file.clone(), text], &[("n", FieldType::I64), ("seen", FieldType::Timestamp)]);
    let types = [("n".to_owned(), FieldType::Timestamp)].into();
    let error = open_columnar(&file, &ColumnarOptions { types, ..ColumnarOptions::default() })
        .and_then(|mut reader| reader.next().transpose())
        .unwrap_err();
    assert!(error.message().contains("nobody knows what they count"), "{error}");
}
