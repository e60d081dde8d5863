//! Files of Arrow and Parquet, whatever they are called.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{
    ArrayRef, Date32Array, DictionaryArray, DurationSecondArray, Float64Array, Int64Array,
    RecordBatch, StringArray, StringViewArray, TimestampMicrosecondArray, UInt32Array,
};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use parquet::arrow::ArrowWriter;
use parquet::data_type::{Int64Type, Int96, Int96Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use tidefall_import::{
    BadLine, ColumnarOptions, CsvOptions, LocalZone, ParsedBatch, is_columnar, open_columnar,
    open_csv,
};
use tidefall_types::{Error, ErrorKind, FieldType, format_time, parse_time};

use crate::rows_of;

const ROWS: i64 = 40_000;

fn batches() -> Vec<RecordBatch> {
    let part = |rows: std::ops::Range<i64>| {
        let names: Vec<String> = rows.clone().map(|row| format!("s{}", row % 5)).collect();
        let tags: DictionaryArray<arrow_array::types::Int32Type> =
            names.iter().map(|name| Some(name.as_str())).collect();
        let text = StringViewArray::from_iter(
            rows.clone().map(|row| (row % 3 > 0).then_some("a text of some length")),
        );
        RecordBatch::try_from_iter_with_nullable([
            (
                "at",
                Arc::new(TimestampMicrosecondArray::from_iter_values(rows.clone())) as ArrayRef,
                true,
            ),
            ("s", Arc::new(tags), true),
            ("v", Arc::new(Float64Array::from_iter_values(rows.map(|row| row as f64))), true),
            ("note", Arc::new(text), true),
        ])
        .unwrap()
    };
    vec![part(0..7), part(7..ROWS)]
}

fn write(path: &Path, packing: Option<CompressionType>, is_stream: bool) {
    let batches = batches();
    let options = IpcWriteOptions::default().try_with_compression(packing).unwrap();
    let (file, schema) = (File::create(path).unwrap(), batches[0].schema());
    if is_stream {
        let mut writer = StreamWriter::try_new_with_options(file, &schema, options).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.finish().unwrap();
    } else {
        let mut writer = FileWriter::try_new_with_options(file, &schema, options).unwrap();
        // A file may have one dictionary for each column only.
        let whole = arrow_select::concat::concat_batches(&schema, &batches).unwrap();
        writer.write(&whole.slice(0, 7)).unwrap();
        writer.write(&whole.slice(7, whole.num_rows() - 7)).unwrap();
        writer.finish().unwrap();
    }
}

fn options() -> ColumnarOptions {
    ColumnarOptions { tags: vec!["s".to_owned()], ..ColumnarOptions::default() }
}

fn check(path: &Path) {
    assert!(is_columnar(path), "{path:?}");
    let (mut times, mut last) = (Vec::new(), 0);
    for batch in open_columnar(path, &options()).unwrap() {
        let batch = batch.unwrap();
        assert_eq!(*batch.lines.start(), last + 1);
        last = *batch.lines.end();
        assert!(batch.bytes_read > 0);
        let batch = batch.batch;
        let row = batch.rows() - 1;
        let names: Vec<&str> = batch.fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["v", "note"]);
        let name = batch.tags[0].values.value(batch.tags[0].keys[row] as usize);
        assert_eq!(name, format!("s{}", batch.time[row] / 1_000 % 5));
        times.extend_from_slice(&batch.time);
    }
    assert_eq!(times, (0..ROWS).map(|row| row * 1_000).collect::<Vec<_>>());
}

#[test]
fn arrow_files_and_streams_are_read_by_any_name() {
    let folder = tempfile::tempdir().unwrap();
    let packings = [None, Some(CompressionType::ZSTD), Some(CompressionType::LZ4_FRAME)];
    for (number, packing) in packings.into_iter().enumerate() {
        for (is_stream, ending) in
            [(false, "csv"), (true, "csv"), (false, "feather"), (true, "parquet")]
        {
            let path = folder.path().join(format!("{number}.{ending}"));
            write(&path, packing, is_stream);
            check(&path);
        }
    }
}

/// Streams behind the first were left out without a word.
#[test]
fn streams_that_are_laid_behind_each_other_are_read_on() {
    let folder = tempfile::tempdir().unwrap();
    let stream = |name: &str, columns: Vec<(&str, ArrayRef)>| {
        let path = folder.path().join(name);
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut writer =
            StreamWriter::try_new(File::create(&path).unwrap(), &batch.schema()).unwrap();
        // One without rows is a stream, too.
        (0..batch.num_rows().min(1)).for_each(|_| writer.write(&batch).unwrap());
        writer.finish().unwrap();
        std::fs::read(&path).unwrap()
    };
    let of = |times: &[i64], name: &str| {
        let at: ArrayRef = Arc::new(TimestampMicrosecondArray::from(times.to_vec()));
        let tags: DictionaryArray<arrow_array::types::Int32Type> =
            times.iter().map(|_| Some(name)).collect();
        let values: ArrayRef = Arc::new(Int64Array::from(times.to_vec()));
        vec![("at", at), ("s", Arc::new(tags) as ArrayRef), ("v", values)]
    };
    let (mon, tue, none) = (
        stream("mon", of(&[1, 2], "a")),
        stream("tue", of(&[3], "b")),
        stream("none", of(&[], "c")),
    );
    let read = |parts: &[&[u8]]| {
        let path = folder.path().join("all.arrows");
        std::fs::write(&path, parts.concat()).unwrap();
        let batches = open_columnar(&path, &options())?.collect::<Result<Vec<_>, _>>()?;
        Ok::<_, Error>(batches.iter().map(|batch| rows_of(&batch.batch)).collect::<String>())
    };
    let expected = "1970-01-01T00:00:00.000001Z s=a v=1\n1970-01-01T00:00:00.000002Z s=a v=2\n\
                    1970-01-01T00:00:00.000003Z s=b v=3\n";
    assert_eq!(read(&[&mon, &tue]).unwrap(), expected);
    assert_eq!(read(&[&none, &mon, &none, &none, &tue, &none]).unwrap(), expected);
    let mut other = of(&[3], "b");
    other.remove(2);
    let other = stream("other", other);
    let (columns, left) = ("has other columns", "bytes are left behind the end of the stream");
    let refused: [(&[&[u8]], ErrorKind, &str); 5] = [
        (&[&mon, &other], ErrorKind::Invalid, columns),
        (&[&none, &other], ErrorKind::Invalid, columns),
        (&[&mon, b"what is this?"], ErrorKind::Corrupt, left),
        (&[&mon, &[0; 8]], ErrorKind::Corrupt, left),
        (&[&mon, &tue[..tue.len() / 2]], ErrorKind::Corrupt, "cut short"),
    ];
    for (parts, kind, expected) in refused {
        let error = read(parts).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(
            error.message().contains(expected) && error.message().contains("all.arrows"),
            "{error}"
        );
    }
}

#[test]
fn parquet_is_read_by_any_name_and_a_column_may_be_called_like_its_mark() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.csv");
    let mut writer =
        ArrowWriter::try_new(File::create(&path).unwrap(), batches()[0].schema(), None).unwrap();
    batches().iter().for_each(|batch| writer.write(batch).unwrap());
    writer.close().unwrap();
    check(&path);
    let path = folder.path().join("light.csv");
    std::fs::write(&path, "PAR1,time\n1.5,2024-01-01\n").unwrap();
    assert!(!is_columnar(&path));
    assert_eq!(open_csv(&path, &CsvOptions::default()).unwrap().schema().fields[0].name, "PAR1");
}

/// They were taken for CSV, of one column with a strange name.
#[test]
fn packed_and_other_files_that_are_no_text_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let arrow = folder.path().join("x.arrow");
    write(&arrow, None, false);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&std::fs::read(&arrow).unwrap()).unwrap();
    let packed = packed.finish().unwrap();
    let mut twice = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    twice.write_all(&packed).unwrap();
    let twice = twice.finish().unwrap();
    let files: [(&str, &[u8], &str); 6] = [
        ("f.csv.gz", &twice, "unpacked, is compressed with gzip"),
        ("a.csv.gz", &packed, "unpacked, is an Arrow file"),
        ("b.csv", b"Obj\x01\x04\x14avro.codec", "Avro"),
        ("c.csv", b"\x89HDF\r\n\x1a\n\0\0", "HDF5"),
        ("d.csv", b"SQLite format 3\0", "SQLite"),
        ("e.csv", b"FEA1\0\0\0\0", "version 2"),
    ];
    for (name, bytes, what) in files {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let error = open_csv(&path, &CsvOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains(what) && error.message().contains(name), "{error}");
    }
}

#[test]
fn times_in_arrow_files_that_are_numbers_or_text_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.arrow");
    let columns: [(ArrayRef, i64); 2] = [
        (Arc::new(Int64Array::from(vec![1_700_000_000, 1_700_000_060])), 1_700_000_000_000_000_000),
        (
            Arc::new(StringArray::from(vec!["14.11.2023 22:13", "14.11.2023 22:14"])),
            1_699_999_980_000_000_000,
        ),
    ];
    for (times, first) in columns {
        let value: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let batch = RecordBatch::try_from_iter([("ts", times), ("v", value)]).unwrap();
        let mut writer =
            FileWriter::try_new(File::create(&path).unwrap(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let options = ColumnarOptions { time: Some("ts".to_owned()), ..ColumnarOptions::default() };
        let batch = open_columnar(&path, &options).unwrap().next().unwrap().unwrap();
        assert_eq!(batch.batch.time[..], [first, first + 60_000_000_000]);
    }
}

/// Polars writes no message for the schema in front, and dictionaries behind what needs them.
#[test]
fn the_footer_of_an_arrow_file_says_where_everything_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.arrow");
    write(&path, None, false);
    let mut bytes = std::fs::read(&path).unwrap();
    let first = u32::from_le_bytes(bytes[68..72].try_into().unwrap()) as usize;
    bytes[64..72 + first].fill(0xee);
    std::fs::write(&path, bytes).unwrap();
    check(&path);
}

#[test]
fn arrow_files_without_rows_have_columns_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let schema = batches()[0].schema();
    for is_stream in [false, true] {
        let path = folder.path().join("x.arrow");
        let file = File::create(&path).unwrap();
        match is_stream {
            true => StreamWriter::try_new(file, &schema).unwrap().finish().unwrap(),
            false => FileWriter::try_new(file, &schema).unwrap().finish().unwrap(),
        }
        let reader = open_columnar(&path, &options()).unwrap();
        assert_eq!(reader.fields().len(), 2);
        assert_eq!(reader.count(), 0);
    }
}

#[test]
fn times_without_a_zone_are_those_of_the_zone_that_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.arrow");
    let local = ["2024-01-15 12:00", "2024-03-31 02:30", "2024-10-27 02:30"]
        .map(|text| parse_time(text).unwrap() / 1_000);
    let naive = TimestampMicrosecondArray::from(local.to_vec());
    let batch = RecordBatch::try_from_iter([
        ("at", Arc::new(naive.clone()) as ArrayRef),
        ("seen", Arc::new(TimestampMicrosecondArray::from(vec![local[0]; 3])) as ArrayRef),
        ("sent", Arc::new(naive.with_timezone("UTC")) as ArrayRef),
    ])
    .unwrap();
    let mut writer = FileWriter::try_new(File::create(&path).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let zone = Some(LocalZone::from_name("Europe/Berlin").unwrap());
    let options = ColumnarOptions { zone, ..ColumnarOptions::default() };
    let parsed = open_columnar(&path, &options).unwrap().next().unwrap().unwrap();
    let times = parsed.batch.time.iter().map(|time| format_time(*time)).collect::<Vec<_>>();
    assert_eq!(times, ["2024-01-15T11:00:00Z", "2024-10-27T00:30:00Z"]);
    assert_eq!((parsed.bad.len(), parsed.bad[0].line, parsed.twice), (1, 2, 1));
    let reason = &parsed.bad[0].reason;
    assert!(
        reason.message().contains("\"at\"") && reason.message().contains("never showed"),
        "{reason}"
    );
    let field = |place: usize, row: usize| {
        let values = parsed.batch.fields[place].values.as_primitive::<TimestampNanosecondType>();
        format_time(values.value(row))
    };
    assert_eq!(
        (field(0, 1), field(1, 1)),
        ("2024-01-15T11:00:00Z".into(), "2024-10-27T02:30:00Z".into())
    );
}

/// Every cut and flipped byte gives rows or an error that names the file.
#[test]
fn damaged_arrow_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("x.arrow");
    let read = |path: &Path| {
        let rows = |reader: tidefall_import::ColumnarReader| {
            reader.map(|batch| batch.map(|batch| batch.batch.rows())).sum::<Result<usize, _>>()
        };
        open_columnar(path, &options()).and_then(rows)
    };
    for packing in [None, Some(CompressionType::LZ4_FRAME)] {
        write(&path, packing, false);
        let whole = std::fs::read(&path).unwrap();
        let mut damaged =
            vec![whole[..whole.len() / 2].to_vec(), whole[..200].to_vec(), whole[..9].to_vec()];
        for at in (8..2_500).step_by(7).chain([whole.len() / 2, whole.len() * 2 / 3]) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            damaged.push(bytes);
        }
        let mut errors = 0;
        for bytes in damaged {
            std::fs::write(&path, &bytes).unwrap();
            if let Err(error) = read(&path) {
                assert_ne!(error.kind(), ErrorKind::Internal, "{error}");
                assert!(error.message().contains("x.arrow"), "{error}");
                errors += 1;
            }
        }
        assert!(errors > 3, "only {errors} were noticed");
    }
}

/// A file of one batch, read with `options`: its times, the texts of its first tag, its fields by name, and its bad rows.
fn read_one(columns: Vec<(&str, ArrayRef)>, options: &ColumnarOptions) -> ParsedBatch {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.arrow");
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = FileWriter::try_new(File::create(&path).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    open_columnar(&path, options).unwrap().next().unwrap().unwrap()
}

/// The times of a field, empty where it has none.
fn times_of(parsed: &ParsedBatch, name: &str) -> Vec<String> {
    let field = parsed.batch.fields.iter().find(|field| field.name == name).unwrap();
    let values = field.values.as_primitive::<TimestampNanosecondType>();
    values.iter().map(|time| time.map_or_else(String::new, format_time)).collect()
}

fn in_berlin(types: &[(&str, FieldType)], tags: &[&str]) -> ColumnarOptions {
    ColumnarOptions {
        zone: Some(LocalZone::from_name("Europe/Berlin").unwrap()),
        types: types.iter().map(|(name, ty)| ((*name).to_owned(), *ty)).collect(),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..ColumnarOptions::default()
    }
}

/// Dates and dictionaries among the fields were taken for UTC, and tags for times.
#[test]
fn all_times_without_a_zone_are_those_of_the_zone_but_tags() {
    let at = TimestampMicrosecondArray::from(vec![
        parse_time("2024-01-15 12:00").unwrap() / 1_000,
        parse_time("2024-07-15 12:00").unwrap() / 1_000,
    ]);
    let day = Date32Array::from(vec![19_737, 19_919]);
    let keys = UInt32Array::from(vec![1, 0]);
    let seen = DictionaryArray::new(keys, Arc::new(at.clone()));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("batch", Arc::new(day.clone())),
        ("day", Arc::new(day)),
        ("at", Arc::new(at)),
        ("seen", Arc::new(seen)),
    ];
    let parsed = read_one(columns.clone(), &in_berlin(&[], &["batch"]));
    let times: Vec<String> = parsed.batch.time.iter().map(|time| format_time(*time)).collect();
    assert_eq!(times, ["2024-01-15T11:00:00Z", "2024-07-15T10:00:00Z"]);
    assert_eq!(times_of(&parsed, "day"), ["2024-01-14T23:00:00Z", "2024-07-14T22:00:00Z"]);
    assert_eq!(times_of(&parsed, "seen"), ["2024-07-15T10:00:00Z", "2024-01-15T11:00:00Z"]);
    // What becomes text is what the file says; the time never does.
    let types = ["day", "seen", "at"].map(|name| (name, FieldType::Text));
    let texts = read_one(columns, &in_berlin(&types, &["batch"]));
    let text =
        |field: usize| texts.batch.fields[field].values.as_string::<i32>().value(0).to_owned();
    assert_eq!([text(0), text(1)], ["2024-01-15T00:00:00", "2024-07-15T12:00:00"]);
    assert_eq!(texts.batch.time, parsed.batch.time);
    let tag = &parsed.batch.tags[0];
    assert_eq!(tag.values.value(tag.keys[0] as usize), "2024-01-15");
}

/// The fields that are asked for had all other times beside them.
#[test]
fn times_that_are_not_asked_for_are_no_fields() {
    let at: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![7]));
    let columns = |names: [&'static str; 3]| -> Vec<(&str, ArrayRef)> {
        let values: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        vec![(names[0], at.clone()), (names[1], at.clone()), (names[2], values)]
    };
    let fields = Some(vec!["v".to_owned()]);
    let options = ColumnarOptions { fields, ..ColumnarOptions::default() };
    let parsed = read_one(columns(["sent", "time", "v"]), &options);
    assert_eq!(parsed.batch.fields.len(), 1);
    let options = ColumnarOptions { skip: vec!["time".to_owned()], ..ColumnarOptions::default() };
    let parsed = read_one(columns(["time", "sent", "v"]), &options);
    assert_eq!((parsed.batch.time[0], parsed.batch.fields.len()), (7_000, 1));
}

/// One time out of range among the fields, or in another zone the time itself, ended the import.
#[test]
fn times_out_of_range_are_bad_rows() {
    let far = |at: i64| -> ArrayRef {
        Arc::new(TimestampMicrosecondArray::from(vec![Some(0), Some(at), None, Some(1)]))
    };
    let at: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![0, 1, 2, 3]));
    let (early, late) = (-62_135_596_800_000_000, 253_402_214_400_000_000);
    let seen = DictionaryArray::new(UInt32Array::from(vec![0, 0, 1, 0]), far(late));
    let length = DurationSecondArray::from(vec![1, 1, 1, i64::MAX]);
    let reasons = |columns: Vec<(&str, ArrayRef)>, options: &ColumnarOptions| {
        let parsed = read_one(columns, options);
        let of = |bad: &BadLine| format!("{}: {}", bad.line, bad.reason.message());
        (parsed.batch.rows(), parsed.bad.iter().map(of).collect::<Vec<_>>())
    };
    let outside = |time: &str| format!("{time} lies outside of 1677-09-21 .. 2262-04-11");
    for options in [ColumnarOptions::default(), in_berlin(&[], &[])] {
        let columns = vec![
            ("at", at.clone()),
            ("first", far(late)),
            ("seen", Arc::new(seen.clone()) as ArrayRef),
            ("length", Arc::new(length.clone())),
        ];
        let (rows, bad) = reasons(columns, &options);
        assert_eq!((rows, bad.len()), (1, 3), "{bad:?}");
        assert_eq!(bad[0], format!("2: column \"first\": {}", outside("9999-12-31 00:00:00")));
        assert!(bad[1].starts_with("3: column \"seen\""), "{bad:?}");
        assert!(bad[1].contains("9999-12-31"), "{bad:?}");
        assert!(bad[2].starts_with("4: column \"length\""), "{bad:?}");
    }
    let columns = || vec![("at", far(early)), ("v", Arc::new(Int64Array::from(vec![1; 4])) as _)];
    for options in [ColumnarOptions::default(), in_berlin(&[], &[])] {
        let (rows, bad) = reasons(columns(), &options);
        assert_eq!((rows, bad.len()), (2, 2), "{bad:?}");
        assert!(bad[0].contains(&outside("0001-01-01 00:00:00")), "{bad:?}");
        assert!(bad[1].contains("the time is missing"), "{bad:?}");
    }
}

/// A Parquet file as Spark and Hive write times by default: of one group for each list of rows, where a row is a day since
/// 1970 and the nanoseconds of it, for `at` and for `seen`.
fn write_int96(path: &Path, groups: &[&[[(i64, u64); 2]]]) {
    const DAY_OF_1970: i64 = 2_440_588;
    let schema = "message m { required int96 at; optional int96 seen; required int64 v; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer =
        SerializedFileWriter::new(File::create(path).unwrap(), schema, Arc::default()).unwrap();
    let int96 = |&(day, ns): &(i64, u64)| {
        let mut time = Int96::new();
        time.set_data(ns as u32, (ns >> 32) as u32, (day + DAY_OF_1970) as u32);
        time
    };
    for rows in groups {
        let mut group = writer.next_row_group().unwrap();
        for column in 0..2 {
            let times: Vec<Int96> = rows.iter().map(|row| int96(&row[column])).collect();
            let levels = vec![1; rows.len()];
            let levels = (column == 1).then_some(levels.as_slice());
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<Int96Type>().write_batch(&times, levels, None).unwrap();
            column.close().unwrap();
        }
        let mut column = group.next_column().unwrap().unwrap();
        let values: Vec<i64> = (0..rows.len() as i64).collect();
        column.typed::<Int64Type>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
}

/// Such times out of range became others, without a word.
#[test]
fn times_of_96_bits_out_of_range_are_bad_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spark.parquet");
    let (early, late, last_ns) = (-719_162, 2_932_896, 86_399_999_999_999);
    let good = [(19_723, 1), (-1, last_ns)];
    // The first and the last moment that 64 bits reach, and their neighbours.
    let edges = [
        [(106_751, 85_636_854_775_807), (-106_752, 763_145_224_192)],
        [(106_751, 85_636_854_775_808), (0, 0)],
        [(0, 0), (-106_752, 763_145_224_191)],
    ];
    let first = [good, [(late, 0), (0, 0)], [(0, 0), (early, 0)], good];
    write_int96(&path, &[&first, &edges]);
    let columns = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    let read = |options: ColumnarOptions| {
        let (mut rows, mut bad) = (String::new(), Vec::new());
        for batch in open_columnar(&path, &options).unwrap() {
            let batch = batch.unwrap();
            rows.push_str(&rows_of(&batch.batch));
            bad.extend(batch.bad.iter().map(|b| format!("{}: {}", b.line, b.reason.message())));
        }
        (rows, bad)
    };
    let (rows, bad) = read(ColumnarOptions::default());
    let good = "2024-01-01T00:00:00.000000001Z seen=1969-12-31T23:59:59.999999999 v=";
    let edge = "2262-04-11T23:47:16.854775807Z seen=1677-09-21T00:12:43.145224192 v=0\n";
    assert_eq!(rows, format!("{good}0\n{good}3\n{edge}"));
    let outside = "lies outside of 1677-09-21 .. 2262-04-11";
    assert_eq!(bad[0], format!("2: column \"at\": 9999-12-31 00:00:00 {outside}"));
    assert_eq!(bad[1], format!("3: column \"seen\": 0001-01-01 00:00:00 {outside}"));
    assert!(bad[2].starts_with("6: column \"at\"") && bad[3].starts_with("7: column \"seen\""));
    assert_eq!(bad.len(), 4);
    // What is not read is not wrong; a tag is.
    let fields = |names: &[&str]| ColumnarOptions { fields: columns(names), ..Default::default() };
    assert_eq!(read(fields(&["v"])).1.len(), 2);
    assert_eq!(read(ColumnarOptions { tags: vec!["seen".into()], ..fields(&["v"]) }).1.len(), 4);
    let time = Some("seen".to_owned());
    assert_eq!(read(ColumnarOptions { time, ..fields(&["v"]) }).1.len(), 2);
    assert_eq!(read(in_berlin(&[], &[])).1.len(), 5);
}

/// Texts were read as UTC, in the forms of another library, and large numbers became infinite.
#[test]
fn texts_of_fields_are_read_as_those_of_other_files() {
    let at: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![0, 1, 2, 3]));
    let sent = ["2024-01-15 12:00", "2024-07-15", "2024-01-15T11:00Z", "soon"];
    let columns: Vec<(&str, ArrayRef)> =
        vec![("at", at.clone()), ("sent", Arc::new(StringArray::from(sent.to_vec())))];
    let parsed = read_one(columns, &in_berlin(&[("sent", FieldType::Timestamp)], &[]));
    assert_eq!(
        times_of(&parsed, "sent"),
        ["2024-01-15T11:00:00Z", "2024-07-14T22:00:00Z", "2024-01-15T11:00:00Z"]
    );
    assert_eq!((parsed.bad.len(), parsed.bad[0].line), (1, 4));
    let reason = parsed.bad[0].reason.message();
    assert!(reason.contains("\"sent\"") && reason.contains("soon"), "{reason}");

    let numbers = ["1e400", "-inf", "NaN", "1.5"];
    let columns: Vec<(&str, ArrayRef)> =
        vec![("at", at), ("v", Arc::new(StringArray::from(numbers.to_vec())))];
    for ty in [FieldType::F64, FieldType::F32] {
        let parsed = read_one(columns.clone(), &in_berlin(&[("v", ty)], &[]));
        assert_eq!((parsed.bad.len(), parsed.bad[0].line), (1, 1), "{ty:?}");
        let reason = parsed.bad[0].reason.message();
        assert!(reason.contains("\"v\": \"1e400\" does not fit"), "{reason}");
    }
}

/// It was said to be damaged. The file is pyarrow's, of one row, since the codec is left out here.
#[test]
fn a_packing_that_is_left_out_is_unsupported() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/brotli.parquet");
    let read = open_columnar(&path, &ColumnarOptions::default())
        .and_then(|mut reader| reader.next().transpose());
    let error = read.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(
        error.message().contains("packed with brotli, which is not read here: write it with zstd"),
        "{error}"
    );
}
