use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::Array;
use arrow_cast::display::array_value_to_string;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidefall_types::{FieldType, NO_TAG, TableId, TableSchema, WriteBatch, format_time};

use super::*;
use crate::{BadLine, Header, Layout, TimeSource};

fn input(bytes: &[u8]) -> Input {
    let length = Some(bytes.len() as u64);
    Input::from_reader("test.csv", Box::new(std::io::Cursor::new(bytes.to_vec())), length).unwrap()
}

/// Rows as `time tag=value field=value`, without missing values, and then the bad lines.
fn rows_of(batch: &WriteBatch, into: &mut String) {
    batch.check().unwrap();
    for row in 0..batch.rows() {
        into.push_str(&format_time(batch.time[row]));
        for tag in batch.tags.iter().filter(|tag| tag.keys[row] != NO_TAG) {
            write!(into, " {}={}", tag.name, tag.values.value(tag.keys[row] as usize)).unwrap();
        }
        for field in batch.fields.iter().filter(|field| field.values.is_valid(row)) {
            let value = array_value_to_string(&field.values, row).unwrap();
            write!(into, " {}={value}", field.name).unwrap();
        }
        into.push('\n');
    }
}

fn read_all(text: &[u8], options: &CsvOptions) -> Result<String> {
    let mut found = String::new();
    let mut bad = String::new();
    for batch in read_csv(input(text), options)? {
        let batch = batch?;
        rows_of(&batch.batch, &mut found);
        for BadLine { line, reason, .. } in batch.bad {
            writeln!(bad, "line {line}: {reason}").unwrap();
        }
    }
    Ok(found + &bad)
}

fn check(text: &str, options: &CsvOptions, expected: &str) {
    let found = read_all(text.as_bytes(), options).unwrap_or_else(|error| panic!("{error}"));
    let expected: String = expected.lines().map(|line| line.trim().to_owned() + "\n").collect();
    assert_eq!(found.trim(), expected.trim(), "in {text:?}");
}

fn check_error(text: &[u8], options: &CsvOptions, expected: &str) {
    let error = read_all(text, options).expect_err("it was read");
    assert!(error.message().contains(expected), "{error}");
}

fn tagged(tags: &[&str]) -> CsvOptions {
    CsvOptions { tags: tags.iter().map(|&tag| tag.to_owned()).collect(), ..CsvOptions::default() }
}

#[test]
fn plain_files_are_read() {
    let expected = "2024-01-01T00:00:00Z s=a v=1.5
        2024-01-01T00:00:01Z s=b v=-2.0";
    let rows = "2024-01-01 00:00:00,a,1.5\n2024-01-01 00:00:01,b,-2";
    let with = |header: &str| format!("{header}{rows}");
    check(&with("time,s,v\n"), &tagged(&["s"]), expected);
    check(&with("time,s,v\n").replace(',', ";"), &tagged(&["s"]), expected);
    check(&with("time,s,v\n").replace(',', "\t"), &tagged(&["#2"]), expected);
    check(&with("time,s,v\n").replace('\n', "\r\n"), &tagged(&["s"]), expected);
    check(&with("\u{feff}time,s,v\n\n"), &tagged(&["s"]), expected);
    let skip = CsvOptions { skip_lines: 2, ..tagged(&["s"]) };
    check(&with("written by a logger, \"v1\nx\ntime,s,v\n"), &skip, expected);
    let without = expected.replace("s=", "column_2=").replace("v=", "column_3=");
    check(rows, &tagged(&["#2"]), &without);
}

#[test]
fn quotes_hold_separators_and_lines() {
    check(
        "time,\"the \"\"s\"\"\",v\n2024-01-01,\"a, \"\"b\"\"\nc\",\"1\"\n2024-01-02,5\" pipe,2\n",
        &tagged(&["the \"s\""]),
        "2024-01-01T00:00:00Z the \"s\"=a, \"b\"
        c v=1
        2024-01-02T00:00:00Z the \"s\"=5\" pipe v=2",
    );
}

/// The second stray quote closed the first, and the rows between them were a part of its field.
#[test]
fn two_stray_quotes_spoil_their_lines_alone() {
    let rows = "time,note,v\n2024-01-01 00:00,\"open,1\n2024-01-01 00:01,fine,2\n\
                2024-01-01 00:02,\"open,3\n";
    let expected = "2024-01-01T00:01:00Z note=fine v=2
        line 2: a quoted field is not closed
        line 4: a quoted field is not closed";
    check(rows, &CsvOptions::default(), expected);
    check(rows.trim_end(), &CsvOptions::default(), expected);
    check(&rows.replace('\n', "\r\n"), &CsvOptions::default(), expected);
    check(&rows.replace(',', ";"), &CsvOptions::default(), expected);
    // What a field of several lines ends with, and junk within a line.
    check(
        "time,v,note\n2024-01-01,1,\"a\nb\"\r\n2024-01-02,2,\"c\"d\n2024-01-03,\"\n3\",\"e\n\"",
        &CsvOptions::default(),
        "2024-01-01T00:00:00Z v=1 note=a
        b
        2024-01-02T00:00:00Z v=2 note=cd
        2024-01-03T00:00:00Z v=3 note=e",
    );
}

#[test]
fn types_and_missing_values_are_inferred() {
    check(
        "time,i,f,b,t,n,big\n\
         2024-01-01,1,1.5,true,x,,18446744073709551615\n\
         2024-01-02,NA, NaN ,False,\"\",,0\n\
         2024-01-03,null,-inf,,7,,3\n",
        &CsvOptions::default(),
        "2024-01-01T00:00:00Z i=1 f=1.5 b=true t=x big=18446744073709551615
        2024-01-02T00:00:00Z f=NaN b=false t= big=0
        2024-01-03T00:00:00Z f=-inf t=7 big=3",
    );
    // NA is Namibia where it is not among numbers, and nothing where it is; tags are what they are.
    let options = CsvOptions { tags: vec!["s".to_owned()], ..CsvOptions::default() };
    check(
        "time,s,country,v\n2024-01-01,NA,NA,1\n2024-01-02,null,NULL,2\n2024-01-03,,DE,\\N\n",
        &options,
        "2024-01-01T00:00:00Z s=NA country=NA v=1
        2024-01-02T00:00:00Z s=null country=NULL v=2
        2024-01-03T00:00:00Z country=DE",
    );
    check(
        "time,s,wind,v\n2024-01-01,NA,NA,1\n2024-01-02,null,NULL,NA\n2024-01-03,,NW,3\n",
        &options,
        "2024-01-01T00:00:00Z s=NA v=1
        2024-01-02T00:00:00Z s=null wind=NULL
        2024-01-03T00:00:00Z wind=NW v=3",
    );
    // A column of nothing else says nothing of others.
    check(
        "time,country,remark,v\n2024-01-01,NA,NA,1\n2024-01-02,DE,NA,2\n",
        &CsvOptions::default(),
        "2024-01-01T00:00:00Z country=NA v=1
        2024-01-02T00:00:00Z country=DE v=2",
    );
    let types = [("v".to_owned(), FieldType::U8)].into();
    let options = CsvOptions { types, null_texts: vec!["-9".to_owned()], ..CsvOptions::default() };
    check(
        "time,v,w\n2024-01-01,255,-9\n2024-01-02,256,4\n",
        &options,
        "2024-01-01T00:00:00Z v=255
        line 3: column \"v\": \"256\" is not a whole number from 0 to 255, and the column is \
        TINYINT UNSIGNED; correct it, or name the text as a missing value; a DOUBLE takes it, by \
        --type v=DOUBLE",
    );
}

#[test]
fn a_table_gives_its_types_and_tags() {
    let mut table = TableSchema::new(TableId(0), "t", "time");
    table.add_tag("s").unwrap();
    table.add_tag("room").unwrap();
    for (name, ty) in [("i", FieldType::I64), ("t", FieldType::Text), ("value", FieldType::I32)] {
        table.add_field(name, ty).unwrap();
    }
    let options = CsvOptions { table: Some(Arc::new(table)), ..CsvOptions::default() };
    check(
        "time,s,i,t,new\n2024-01-01,7,1,1.50,1.5\n2024-01-02,7,2.0,2,2\n2024-01-03,7,oops,3,3\n\
         2024-01-04,7,4,,4\n",
        &CsvOptions { skip: vec!["room".to_owned()], ..options.clone() },
        "2024-01-01T00:00:00Z s=7 i=1 t=1.50 new=1.5
        2024-01-04T00:00:00Z s=7 i=4 new=4.0
        line 3: column \"i\": \"2.0\" is not a whole number, and the column is BIGINT; correct it, \
        or name the text as a missing value; a DOUBLE takes it, by --type i=DOUBLE
        line 4: column \"i\": \"oops\" is not a whole number, and the column is BIGINT; correct it, \
        or name the text as a missing value",
    );
    let wide = Layout::Wide { tag: "s".to_owned() };
    check(
        "time,room,t,102\n2024-01-01,north,1,2\n2024-01-02,north,1.5,2\n",
        &CsvOptions { layout: wide, ..options.clone() },
        "2024-01-01T00:00:00Z s=t room=north value=1
        2024-01-01T00:00:00Z s=102 room=north value=2
        line 3: column \"t\": \"1.5\" is not a whole number of 32 bits, and the column is INTEGER; \
        correct it, or name the text as a missing value; a DOUBLE takes it, by --type t=DOUBLE",
    );
    let fields = Some(vec!["s".to_owned()]);
    check(
        "time,s,room\n2024-01-01,7,8\n",
        &CsvOptions { fields, ..options.clone() },
        "2024-01-01T00:00:00Z room=8 s=7",
    );
    let tags = vec!["room".to_owned()];
    check(
        "time,s,room\n2024-01-01,7,8\n",
        &CsvOptions { tags, ..options },
        "2024-01-01T00:00:00Z room=8 s=7",
    );
}

#[test]
fn times_are_found_and_combined() {
    let options = CsvOptions::default();
    let expected = "2013-03-01T05:00:00Z v=1";
    check("v,when\n1,2013-03-01T05:00:00Z\n", &options, expected);
    check("v,ts\n1,1362114000\n", &options, expected);
    check("v,ts\n1,1362114000000.0\n", &options, expected);
    check("v,ts\n1,1362114000000000000\n", &options, expected);
    check("year,month,day,hour,v\n2013,3,1,5,1\n", &options, expected);
    check("date,time,v\n2013-03-01,05:00,1\n", &options, expected);
    check("v,date\n1,31/01/2013 05:00\n", &options, "2013-01-31T05:00:00Z v=1");
    check("v,date\n1,20130131\n", &options, "2013-01-31T00:00:00Z v=1");
    let given = CsvOptions {
        time: TimeSource::Columns(vec!["d".into(), "t".into()]),
        time_format: Some(TimeFormat::from_name("%d.%m.%y %I:%M %p").unwrap()),
        ..CsvOptions::default()
    };
    check("d,t,v\n1.3.13,5:00 am,1\n", &given, expected);
    check_error(b"date,v\n03/04/2020,1\n", &options, "say the time format");
    check_error(b"a,b\nx,1\n", &options, "no column looks like a time");
}

#[test]
fn wide_files_become_one_row_a_value() {
    let layout = Layout::Wide { tag: "sensor".to_owned() };
    let constant_tags = vec![("site".to_owned(), "north".to_owned())];
    check(
        "time,101,102\n2024-01-01,1,\n2024-01-02,2,3.5\n2024-01-03,,x\n",
        &CsvOptions {
            layout,
            constant_tags,
            types: [(crate::WIDE_FIELD.to_owned(), FieldType::F64)].into(),
            ..CsvOptions::default()
        },
        "2024-01-01T00:00:00Z sensor=101 site=north value=1.0
        2024-01-02T00:00:00Z sensor=101 site=north value=2.0
        2024-01-02T00:00:00Z sensor=102 site=north value=3.5
        line 4: column \"102\": \"x\" is not a number, and the column is DOUBLE; correct it, or \
        name the text as a missing value",
    );
}

#[test]
fn bad_rows_are_set_aside_with_their_lines() {
    check(
        "time,s,v\n2024-01-01,a,1\n\n2024-01-02,b\nbroken,c,1\n2024-01-03,\"d\nd\",2\n\
         2600-01-01,e,1\n2024-01-04,f,3,4\n2024-01-05,\"g,5\n",
        &CsvOptions { header: Header::Yes, ..tagged(&["s"]) },
        "2024-01-01T00:00:00Z s=a v=1
        2024-01-03T00:00:00Z s=d
        d v=2
        line 4: expected 3 columns, found 2
        line 5: time: \"broken\" is not a time: expected YYYY-MM-DD[ HH:MM[:SS[.fraction]]][Z or \
        +HH:MM]
        line 8: time: \"2600-01-01\" is not a time: it lies outside of 1677-09-21 .. 2262-04-11
        line 9: expected 3 columns, found 4
        line 10: a quoted field is not closed",
    );
    let found = read_all(b"time,s,v\n2024-01-01,a\xff,1\n2024-01-02,b,2\n", &tagged(&["s"]));
    let found = found.unwrap();
    assert!(found.starts_with("2024-01-02T00:00:00Z s=b v=2\nline 2: column \"s\""), "{found}");
    assert!(found.contains("not UTF-8 from its byte 2 on"), "{found}");
}

#[test]
fn hopeless_files_are_refused() {
    let options = CsvOptions::default();
    check_error(b"", &options, "is empty");
    check_error(b"\n\n", &options, "is empty");
    check_error(
        b"# a remark\n\n",
        &CsvOptions { comment: Some(b'#'), ..options.clone() },
        "no line with data",
    );
    check_error(b"time,a,b,a\n2024-01-01,1,2,3\n", &options, "names \"a\" more than once");
    check_error(b"time,v\n2024-01-01,1\n", &tagged(&["x"]), "there is no column \"x\"");
    check_error(
        b"time;v\n2024-01-01;1\n",
        &CsvOptions { separator: Some(b','), ..options.clone() },
        "no column",
    );
    check("time,v\n", &options, "");
    for (magic, what) in
        [(&b"PAR1\x15"[..], "Parquet"), (b"\xff\xfet\0", "UTF-16"), (b"PK\x03\x04", "zip")]
    {
        let error = Input::from_reader("x", Box::new(magic), None).unwrap_err();
        assert!(error.message().contains(what), "{error}");
    }
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_files_are_read_and_cuts_are_told() {
    let mut text = String::from("time,v\n");
    for row in 0..100_000 {
        writeln!(text, "{},{row}", format_time(row * 1_000_000_000)).unwrap();
    }
    let options = CsvOptions::default();
    let plain = read_all(text.as_bytes(), &options).unwrap();
    let (head, tail) = text.as_bytes().split_at(text.len() / 3);
    let members = [gzip(head), gzip(tail)].concat();
    assert_eq!(read_all(&members, &options).unwrap(), plain);
    let frames = [zstd::encode_all(head, 1).unwrap(), zstd::encode_all(tail, 1).unwrap()].concat();
    assert_eq!(read_all(&frames, &options).unwrap(), plain);
    for cut in [&members[..members.len() - 1_000], &frames[..frames.len() - 1_000]] {
        let (mut rows, mut failure) = (0, None);
        for batch in read_csv(input(cut), &options).unwrap() {
            match batch {
                Ok(batch) => rows += batch.batch.rows(),
                Err(error) => failure = Some(error),
            }
        }
        let failure = failure.expect("the cut is noticed");
        assert!(failure.message().contains("cut short"), "{failure}");
        assert!(failure.message().contains(&format!("after line {}", rows + 1)), "{failure}");
        assert!(rows > 50_000 && rows < 100_000, "{rows} rows came before the cut");
    }
}

/// Records by the rules at the head of `records.rs`, one byte after the other: where each starts,
/// and its fields unless a quoted field is not closed.
fn naive(text: &[u8]) -> Vec<(u64, Option<Vec<Vec<u8>>>)> {
    let mut text = text.to_vec();
    if text.last().is_some_and(|&byte| byte != b'\n') {
        text.push(b'\n');
    }
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < text.len() {
        let record = naive_record(&text[at..]);
        let end = match &record {
            Some((_, length)) => at + length,
            None => at + text[at..].iter().position(|&byte| byte == b'\n').unwrap() + 1,
        };
        if text[at..end] != *b"\n" && text[at..end] != *b"\r\n" {
            found.push((line, record.map(|(fields, _)| fields)));
        }
        line += text[at..end].iter().filter(|&&byte| byte == b'\n').count() as u64;
        at = end;
    }
    found
}

fn naive_record(text: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let (mut fields, mut field, mut at) = (Vec::new(), Vec::new(), 0);
    loop {
        if text.get(at) == Some(&b'"') {
            at += 1;
            let start = at;
            loop {
                match (text.get(at)?, text.get(at + 1)) {
                    (b'"', Some(b'"')) => {
                        field.push(b'"');
                        at += 2;
                    }
                    (b'"', _) => break,
                    (byte, _) => {
                        field.push(*byte);
                        at += 1;
                    }
                }
            }
            at += 1;
            let is_long = text[start..at].contains(&b'\n');
            if is_long && !matches!(text.get(at)?, b',' | b'\r' | b'\n') {
                return None;
            }
        }
        let plain = field.len();
        while *text.get(at)? != b',' && text[at] != b'\n' {
            field.push(text[at]);
            at += 1;
        }
        at += 1;
        if text[at - 1] == b'\n' && field.len() > plain && field.last() == Some(&b'\r') {
            field.pop();
        }
        fields.push(std::mem::take(&mut field));
        if text[at - 1] == b'\n' {
            return Some((fields, at));
        }
    }
}

#[test]
fn blocks_of_any_size_give_what_a_naive_parser_gives() {
    let pieces = [
        "a",
        "b",
        "1",
        ",",
        "\"",
        "\"\"",
        "\n",
        "\r\n",
        "\r",
        " ",
        "\"x,\ny\"",
        "long text",
        "\n,\"",
    ];
    for seed in 0..400 {
        let mut random = StdRng::seed_from_u64(seed);
        let quotes = seed % 3 != 0;
        let mut text = String::from("time,a,b\n");
        for row in 0..random.random_range(0..60) {
            write!(text, "{row},").unwrap();
            for _ in 0..random.random_range(0..4) {
                let piece = pieces[random.random_range(0..pieces.len())];
                text.push_str(if quotes || !piece.contains('"') { piece } else { "q" });
            }
            text.push_str(if random.random_bool(0.9) { ",x\n" } else { "" });
        }
        let types = [("a", FieldType::Text), ("b", FieldType::Text)];
        let options = CsvOptions {
            separator: Some(b','),
            header: Header::Yes,
            time: TimeSource::Columns(vec!["time".to_owned()]),
            time_format: Some(TimeFormat::Unix(TimeUnit::Nanoseconds)),
            types: types.map(|(name, ty)| (name.to_owned(), ty)).into(),
            null_texts: Vec::new(),
            threads: 2,
            ..CsvOptions::default()
        };
        let sizes =
            Sizes { sample: random.random_range(1..300), block: random.random_range(1..300) };
        let (mut found, mut bad) = (Vec::new(), Vec::new());
        for batch in read_in_blocks(input(text.as_bytes()), &options, sizes).unwrap() {
            let batch = batch.unwrap();
            for row in 0..batch.batch.rows() {
                let value = |f: usize| {
                    array_value_to_string(&batch.batch.fields[f].values, row).unwrap().into_bytes()
                };
                found.push((batch.batch.time[row], value(0), value(1)));
            }
            bad.extend(batch.bad.iter().map(|bad| bad.line));
        }
        let (mut expected, mut expected_bad) = (Vec::new(), Vec::new());
        let mut parser = TimeFormat::Unix(TimeUnit::Nanoseconds).parser().unwrap();
        for (line, record) in naive(text.as_bytes()).into_iter().skip(1) {
            match record.as_deref() {
                Some([time, a, b]) if parser.parse(time).is_ok() => {
                    expected.push((parser.parse(time).unwrap(), a.clone(), b.clone()));
                }
                _ => expected_bad.push(line),
            }
        }
        assert_eq!((found, bad), (expected, expected_bad), "seed {seed}, {sizes:?}, {text:?}");
    }
}

#[test]
fn a_reader_may_be_dropped_early() {
    let mut text = String::from("time,v\n");
    for row in 0..300_000 {
        writeln!(text, "{},{row}", format_time(row * 1_000_000_000)).unwrap();
    }
    let mut reader = read_csv(input(text.as_bytes()), &CsvOptions::default()).unwrap();
    assert!(reader.next().unwrap().unwrap().batch.rows() > 0);
    drop(reader);
}

/// The folder of real files, if this machine has it.
fn data() -> Option<PathBuf> {
    let path = std::env::var_os("TIDEFALL_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    if !path.is_dir() {
        // Not by eprintln, of which a test that passes shows nothing.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: {} has no data; set TIDEFALL_DATA",
            path.display()
        );
        return None;
    }
    Some(path)
}

#[test]
fn real_files_have_all_their_rows() {
    let Some(data) = data() else { return };
    let files = [
        ("london_air/marylebone_1998_2005.csv.gz", "", "", 65_533, 0),
        ("weather/nyc_2013.csv.gz", "origin", "", 26_115, 0),
        ("weather/noaa_daily_1990_1993.csv.gz", "station,element", "", 729_410, 0),
        ("machine/temperature.csv", "", "", 22_695, 0),
        ("aircraft/quickstart.csv.gz", "icao24", "", 284_505, 0),
        ("aircraft/clock_faults.csv.gz", "icao24", "", 8_294, 0),
        ("crypto/trades.csv.gz", "market,symbol", "local_ns", 78_638, 0),
        ("crypto/trades.csv.gz", "market,symbol", "event_ms", 78_638, 0),
        ("crypto/book_ticker.csv.gz", "market,symbol", "local_ns", 335_931, 0),
        // One market gives no time of the event.
        ("crypto/book_ticker.csv.gz", "market,symbol", "event_ms", 335_931 - 131_932, 131_932),
        ("flights/nyc_2013.csv.gz", "carrier", "", 336_776, 0),
        ("taxi/2013_sample.csv.gz", "medallion", "", 10_004, 0),
        ("taxi/2013_all_fields_dirty.csv.gz", "medallion", "", 5_386 - 154, 154),
        ("taxi/2015_01.csv.gz", "", "", 32_615, 0),
        ("taxi/2016_01_yellow.csv.gz", "", "", 10_000, 0),
        ("ghcn/central_park_1869_2020.csv.gz", "station,element", "", 391_566, 0),
        ("ghcn/hawaii_2010_2017.csv.gz", "station", "", 19_549, 0),
    ];
    for (file, tags, time, rows, bad) in files {
        let tags: Vec<&str> = tags.split(',').filter(|tag| !tag.is_empty()).collect();
        let mut options = tagged(&tags);
        if !time.is_empty() {
            options.time = TimeSource::Columns(vec![time.to_owned()]);
        }
        assert_eq!(count(&data.join(file), &options), (rows, bad), "{file}");
    }
    let mut nulls = 0;
    for entry in std::fs::read_dir(data.join("beijing_air")).unwrap() {
        let path = entry.unwrap().path();
        for batch in open_csv(&path, &tagged(&["station"])).unwrap() {
            let batch = batch.unwrap();
            assert!(batch.bad.is_empty(), "{:?}", batch.bad.first());
            nulls += batch.batch.fields.iter().map(|f| f.values.null_count()).sum::<usize>();
        }
        assert_eq!(count(&path, &tagged(&["station"])), (35_064, 0), "{}", path.display());
    }
    // One cell is a lone blank, the others are NA.
    assert_eq!(nulls, 74_026 + 1, "missing cells of Beijing");
}

fn count(path: &Path, options: &CsvOptions) -> (usize, usize) {
    let reader = open_csv(path, options).unwrap_or_else(|error| panic!("{error}"));
    reader.map(|batch| batch.unwrap()).fold((0, 0), |(rows, bad), batch| {
        batch.batch.check().unwrap();
        (rows + batch.batch.rows(), bad + batch.bad.len())
    })
}

#[test]
fn any_bytes_give_rows_or_an_error() {
    let seed_text = b"time,s,v\n2024-01-01,a,1.5\n2024-01-02 03:04:05.6Z,\"b\"\"\",NA\n\n1,2,3\n";
    let pieces: [&[u8]; 10] = [
        b",",
        b"\"",
        b"\n",
        b"\r\n",
        b"\xff",
        b"\0",
        b"99999999999999999999",
        b";",
        b"-",
        b"\xef\xbb\xbf",
    ];
    let (mut read, mut refused) = (0, 0);
    for seed in 0..3_000 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut text = seed_text.to_vec();
        for _ in 0..random.random_range(0..12) {
            let at = random.random_range(0..=text.len());
            let until = (at + random.random_range(0..3)).min(text.len());
            let piece = pieces[random.random_range(0..pieces.len())];
            text.splice(at..until, piece.iter().copied());
        }
        let layout = match seed % 4 {
            0 => Layout::Wide { tag: "sensor".to_owned() },
            _ => Layout::Long,
        };
        let tags = if seed % 3 == 0 { vec!["#2".to_owned()] } else { Vec::new() };
        let options = CsvOptions { layout, tags, threads: 1, ..CsvOptions::default() };
        let length = Some(text.len() as u64);
        let input = Input::from_reader("x", Box::new(std::io::Cursor::new(text)), length);
        match input.and_then(|input| read_csv(input, &options)) {
            Ok(reader) => {
                read += 1;
                for batch in reader {
                    batch.unwrap().batch.check().unwrap();
                }
            }
            Err(_) => refused += 1,
        }
    }
    assert!(read > 500 && refused > 100, "{read} were read, {refused} refused");
}

#[test]
fn what_is_missing_among_texts_does_not_depend_on_the_sample() {
    let head = "time,country,other,v\n";
    let rows: Vec<String> = (0..40)
        .map(|row| {
            let country = if row < 30 { "NA" } else { "DE" };
            let other = if row % 3 == 0 { "NA" } else { "x" };
            format!("{row},{country},{other},{row}.5\n")
        })
        .collect();
    // A file, which can be looked through before it is read.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("countries.csv");
    std::fs::write(&path, format!("{head}{}", rows.concat())).unwrap();
    let options = CsvOptions {
        time: TimeSource::Columns(vec!["time".to_owned()]),
        time_format: Some(TimeFormat::Unix(TimeUnit::Seconds)),
        ..CsvOptions::default()
    };
    for sample in [60, 200, 4000] {
        let sizes = Sizes { sample, block: 100 };
        let (mut countries, mut others) = (0, 0);
        for batch in read_in_blocks(Input::open(&path).unwrap(), &options, sizes).unwrap() {
            for field in batch.unwrap().batch.fields {
                let present = field.values.len() - field.values.null_count();
                match field.name.as_str() {
                    "country" => countries += present,
                    "other" => others += present,
                    _ => {}
                }
            }
        }
        assert_eq!((countries, others), (40, 40), "a sample of {sample} bytes");
    }
}
