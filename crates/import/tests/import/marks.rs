//! Marks in numbers, remarks, and columns that look like numbers and are none.

use std::fmt::Write as _;

use tidefall_import::{CsvOptions, read_csv};
use tidefall_types::{ErrorKind, FieldType};

use crate::{check, input, read_all, tagged};

fn types(text: &str, options: &CsvOptions) -> (Vec<(String, FieldType)>, Vec<String>) {
    let reader = read_csv(input(text), options).unwrap_or_else(|error| panic!("{error}"));
    let schema = reader.schema();
    let fields = schema.fields.iter().map(|field| (field.name.clone(), field.ty)).collect();
    (fields, schema.notes.clone())
}

#[test]
fn decimal_commas_are_found_where_nothing_else_fits() {
    let options = CsvOptions::default();
    check(
        "Date;Time;CO(GT);NOx;Status;;\n13/03/2004;18.00.00;2,6;1.166,5;7;;\n13/03/2004;19.00.00;2;131;8;;\n;;;;;;\n",
        &options,
        "2004-03-13T18:00:00Z CO(GT)=2.6 NOx=1166.5 Status=7
        2004-03-13T19:00:00Z CO(GT)=2.0 NOx=131.0 Status=8",
    );
    check("time;v\n2024-01-01;-2,5e1\n", &options, "2024-01-01T00:00:00Z v=-25.0");
    check("time,v\n2024-01-01,\"1,234.5\"\n", &options, "2024-01-01T00:00:00Z v=1234.5");
    check(
        "2024-01-01;1,5;2,5;3,5\n",
        &options,
        "2024-01-01T00:00:00Z column_2=1.5 column_3=2.5 column_4=3.5",
    );
    let (_, notes) = types("time;v;w\n2024-01-01;2,5;1\n", &options);
    assert_eq!(notes, ["the numbers of \"v\" have ',' before the decimals"]);
}

#[test]
fn marks_that_may_mean_two_things_are_asked_for() {
    let options = CsvOptions::default();
    let text = "time;v\n2024-01-01;1,234\n2024-01-02;5,678\n";
    let (fields, notes) = types(text, &options);
    assert_eq!(fields, [("v".to_owned(), FieldType::Text)]);
    assert!(notes[0].contains("--decimal , or --thousands ,"), "{notes:?}");
    let told = |decimal, thousands| CsvOptions { decimal, thousands, ..CsvOptions::default() };
    let thousands = "2024-01-01T00:00:00Z v=1234\n2024-01-02T00:00:00Z v=5678";
    check(text, &told(None, Some(b',')), thousands);
    check(text, &told(Some(b','), None), &thousands.replace("=1", "=1.").replace("=5", "=5."));
    // Points and commas before decimals in one file.
    let (fields, notes) = types("time;v;w\n2024-01-01;2,5;1.5\n", &options);
    assert_eq!(fields[0].1, FieldType::Text);
    assert_eq!(fields[1].1, FieldType::F64);
    assert!(notes[0].starts_with("\"v\" may be numbers"), "{notes:?}");
    let apart = told(Some(b','), Some(b'.'));
    check(
        "time;v\n2024-01-01;1.234\n2024-01-02;2,5\n",
        &apart,
        "2024-01-01T00:00:00Z v=1234.0\n2024-01-02T00:00:00Z v=2.5",
    );
    for (options, why) in [
        (told(Some(b';'), None), "a point or a comma"),
        (told(Some(b'.'), Some(b'.')), "the same mark"),
        (told(None, Some(b'1')), "part of a number"),
    ] {
        let error = read_all(text, &options).unwrap_err();
        assert!(error.message().contains(why), "{error}");
    }
}

#[test]
fn wrong_numbers_come_with_a_hint() {
    let typed =
        CsvOptions { types: [("v".to_owned(), FieldType::F64)].into(), ..CsvOptions::default() };
    let hint = |text: &str| {
        read_all(
            &format!("time;v\n2024-01-01;{text}\n"),
            &CsvOptions { decimal: Some(b'.'), ..typed.clone() },
        )
        .unwrap()
    };
    assert!(
        hint("2,5").ends_with("missing value; --decimal , reads such numbers\n"),
        "{}",
        hint("2,5")
    );
    assert!(hint("1.234,5").ends_with("--decimal , --thousands . reads such numbers\n"));
    assert!(hint("1,234,567").ends_with("--thousands , reads such numbers\n"));
    assert!(hint("1,234").ends_with("--decimal , or --thousands , reads such numbers\n"));
    assert!(hint("x").ends_with("name the text as a missing value\n"));
}

#[test]
fn remarks_above_the_data_are_passed_over() {
    let options = CsvOptions::default();
    let expected = "2024-01-01T00:00:00Z v=1
        2024-01-02T00:00:00Z v=2";
    let rows = "2024-01-01,1\n2024-01-02,2\n";
    check(&format!("# a logger, \"v1\n#\n\ntime,v\n{rows}"), &options, expected);
    check(&format!("# a logger\n# time, v\n{rows}"), &options, expected);
    check(&format!("#time,v\n{rows}"), &options, expected);
    let annotated = "#group,false,true\n#datatype,dateTime:RFC3339,double\n,_time,v\n,2024-01-01T00:00:00Z,1.5\n";
    check(annotated, &options, "2024-01-01T00:00:00Z v=1.5");
    // Within the data the caller must say so: a name may begin with it.
    check("time,s,v\n#2024-01-01,a,1\n2024-01-02,#b,2\n", &tagged(&["s"]), "2024-01-02T00:00:00Z s=#b v=2
        line 2: time: \"#2024-01-01\" is not a time: expected YYYY-MM-DD[ HH:MM[:SS[.fraction]]][Z or +HH:MM]");
    let within = CsvOptions { comment: Some(b'%'), ..options };
    check(
        &format!("% \"one\ntime,v\n{}% \"two\n", rows.replace("\n2", "\n% x, \"y\n2")),
        &within,
        expected,
    );
    let lines = read_all("% one\ntime,v\n% two\n2024-01-01,1\nnever,2\n", &within).unwrap();
    assert!(lines.contains("line 5: time"), "{lines}");
}

#[test]
fn numbers_with_zeros_in_front_are_names() {
    let options = CsvOptions::default();
    let (fields, notes) = types("time,id,v\n2024-01-01,00123,1\n2024-01-01,10000,2\n", &options);
    assert_eq!(fields[0].1, FieldType::Text);
    assert!(notes[0].contains("--type id=BIGINT"), "{notes:?}");
    let (fields, notes) = types("time,v,w\n2024-01-01,0,0.5\n2024-01-01,-0,00.5\n", &options);
    assert_eq!((fields[0].1, fields[1].1), (FieldType::I64, FieldType::F64));
    assert!(notes.is_empty(), "{notes:?}");
}

#[test]
fn a_text_that_stands_for_nothing_is_named() {
    let mut text = String::from("time,v,w\n");
    (0..100).for_each(|row| {
        let v = if row % 10 == 0 { "?" } else { "1.5" };
        writeln!(text, "2024-01-01,{v},{}", if row % 2 == 0 { "a" } else { "1" }).unwrap();
    });
    let (fields, notes) = types(&text, &CsvOptions::default());
    assert_eq!(fields[0].1, FieldType::Text);
    assert_eq!(
        notes,
        ["\"v\" is text only because of \"?\": --null \"?\" reads it as a missing value"]
    );
}

#[test]
fn columns_without_values_are_left_out() {
    let (fields, _) = types("time,v,\n2024-01-01,1,\n", &CsvOptions::default());
    assert_eq!(fields, [("v".to_owned(), FieldType::I64)]);
    let (fields, _) = types("time,v,\n2024-01-01,1,2\n", &CsvOptions::default());
    assert_eq!(fields.len(), 2);
    let (fields, notes) = types("time,v,w\n2024-01-01,1,\n", &CsvOptions::default());
    assert_eq!(fields.len(), 1);
    assert_eq!(notes, ["\"w\" has no values and is left out; --type w=TEXT keeps it"]);
}

#[test]
fn a_line_of_units_below_the_names_is_passed_over() {
    let options = CsvOptions::default();
    let rows = "2024-01-01T00:00:00Z temp=1.5 hum=40\n2024-01-02T00:00:00Z temp=2.5 hum=41";
    for units in [",\u{b0}C,%", "UTC,F,1/1", "yyyy-mm-dd,T,"] {
        let text = format!("time,temp,hum\n{units}\n2024-01-01,1.5,40\n2024-01-02,2.5,41\n");
        check(&text, &options, rows);
        let (_, notes) = types(&text, &options);
        assert!(notes[0].starts_with("the line below the names is taken for units"), "{notes:?}");
    }
    check(
        "time;temp;hum\n;K;%\n01.01.2024 00:00;1,5;40\n02.01.2024 00:00;2,5;41\n",
        &options,
        rows,
    );
    // Rows of data that lack something are none.
    for first in ["2024-01-01,x,y", ",1.5,%", "NA,NA,NA"] {
        let text = format!("time,temp,hum\n{first}\n2024-01-01,1.5,40\n2024-01-02,2.5,41\n");
        let (_, notes) = types(&text, &options);
        assert!(!notes.iter().any(|note| note.contains("units")), "{first}: {notes:?}");
    }
}

#[test]
fn apostrophes_between_thousands_are_found() {
    let options = CsvOptions::default();
    check(
        "time,v,w\n2024-01-01,1'234,1.5\n2024-01-02,12'345'678,2\n",
        &options,
        "2024-01-01T00:00:00Z v=1234 w=1.5\n2024-01-02T00:00:00Z v=12345678 w=2.0",
    );
    let (fields, notes) = types("time,v\n2024-01-01,1'234.5\n2024-01-02,7\n", &options);
    assert_eq!(fields, [("v".to_owned(), FieldType::F64)]);
    assert_eq!(notes, ["the numbers of \"v\" have '\\'' between thousands"]);
    // What is no number stays text.
    let (fields, _) = types("time,v\n2024-01-01,1'23\n2024-01-02,o'clock\n", &options);
    assert_eq!(fields, [("v".to_owned(), FieldType::Text)]);
}

#[test]
fn lines_without_text_end_a_file_and_are_wrong_within() {
    check(
        "time,v\n2024-01-01,\n,\n2024-01-02,2\r\n,\r\n,\n\n,",
        &CsvOptions::default(),
        "2024-01-01T00:00:00Z
        2024-01-02T00:00:00Z v=2
        line 3: time: \"\" is not a time: expected YYYY-MM-DD[ HH:MM[:SS[.fraction]]][Z or +HH:MM]",
    );
}

#[test]
fn lines_without_text_end_a_file_however_long_it_is() {
    let mut text = "time,s,v\n".to_owned();
    // More than what the file is judged by, and then more than what is read at once.
    for row in 0..150_000 {
        writeln!(
            text,
            "2024-01-01 {:02}:{:02}:{:02},s{},{row}.5",
            row / 3600 % 24,
            row / 60 % 60,
            row % 60,
            row / 86_400
        )
        .expect("a text");
        if row == 70_000 {
            text.push_str(",,\n,,\r\n");
        }
    }
    text.push_str(&",,\n".repeat(400_000));
    let options = tagged(&["s"]);
    for text in [text.clone(), text.replace(",s0,", ",\"s0\",")] {
        let reader = read_csv(input(&text), &options).unwrap_or_else(|error| panic!("{error}"));
        let (mut rows, mut bad) = (0, Vec::new());
        for batch in reader {
            let batch = batch.expect("a batch");
            rows += batch.batch.rows();
            bad.extend(batch.bad.iter().map(|bad| bad.line));
        }
        assert_eq!((rows, bad), (150_000, vec![70_003, 70_004]));
    }
}

/// It was said to have no column that looks like a time.
#[test]
fn json_is_told_from_csv() {
    for text in [
        "{\"time\":\"2024-01-01T00:00:00Z\",\"v\":1}\n",
        "\n { \"time\" : 1, \"v\": 2 }\n",
        "{\n  \"rows\": []\n}\n",
        "[{\"time\": 1}]\n",
    ] {
        let error = read_all(text, &CsvOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{text}");
        let says = |part: &str| error.message().contains(part);
        assert!(says("test.csv is JSON") && says("Parquet or CSV"), "{error}");
    }
    check("time,{v\n2024-01-01,1\n", &CsvOptions::default(), "2024-01-01T00:00:00Z {v=1");
    check("{\"x\",time\n1,2024-01-01\n", &CsvOptions::default(), "2024-01-01T00:00:00Z {\"x\"=1");
}
