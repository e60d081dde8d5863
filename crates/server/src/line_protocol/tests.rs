use std::collections::BTreeMap;
use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tidefall_types::NO_TAG;

use super::*;

mod naive;

const NOW_NS: i64 = 1_700_000_000_123_456_789;

#[derive(Debug, Clone, PartialEq)]
enum Val {
    F64(f64),
    I64(i64),
    U64(u64),
    Bool(bool),
    Text(String),
}

/// A line as one would describe it.
#[derive(Debug, Clone, PartialEq)]
struct Point {
    table: String,
    tags: BTreeMap<String, String>,
    fields: BTreeMap<String, Val>,
    time_ns: i64,
}

fn value_at(values: &ArrayRef, row: usize) -> Option<Val> {
    if values.is_null(row) {
        return None;
    }
    Some(match values.data_type() {
        DataType::Float64 => Val::F64(values.as_primitive::<Float64Type>().value(row)),
        DataType::Int64 => Val::I64(values.as_primitive::<Int64Type>().value(row)),
        DataType::UInt64 => Val::U64(values.as_primitive::<UInt64Type>().value(row)),
        DataType::Boolean => Val::Bool(values.as_boolean().value(row)),
        _ => Val::Text(values.as_string::<i32>().value(row).to_owned()),
    })
}

/// The rows of all batches by line; checks the batches on the way.
fn points(parsed: &Parsed) -> BTreeMap<u32, Point> {
    let mut points = BTreeMap::new();
    for table in &parsed.batches {
        let batch = &table.batch;
        batch.check().unwrap();
        assert!(batch.rows() > 0);
        assert_eq!(table.lines.len(), batch.rows());
        assert!(table.lines.is_sorted());
        for field in &batch.fields {
            assert!(field.values.null_count() < batch.rows(), "{} is all null", field.name);
        }
        for row in 0..batch.rows() {
            let tags = batch.tags.iter().filter(|tag| tag.keys[row] != NO_TAG);
            let tags = tags
                .map(|tag| (tag.name.clone(), tag.values.value(tag.keys[row] as usize).to_owned()))
                .collect();
            let fields = batch
                .fields
                .iter()
                .filter_map(|f| value_at(&f.values, row).map(|v| (f.name.clone(), v)))
                .collect();
            let point =
                Point { table: table.table.clone(), tags, fields, time_ns: batch.time[row] };
            assert!(points.insert(table.lines[row], point).is_none());
        }
    }
    points
}

fn read(body: &str) -> Vec<Point> {
    let parsed = parse(body.as_bytes(), Precision::Nanosecond, NOW_NS).unwrap();
    assert_eq!(parsed.errors, [], "{body}");
    points(&parsed).into_values().collect()
}

fn point(table: &str, tags: &[(&str, &str)], fields: &[(&str, Val)], time_ns: i64) -> Point {
    Point {
        table: table.to_owned(),
        tags: tags.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        fields: fields.iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
        time_ns,
    }
}

fn reason(line: &[u8]) -> String {
    let parsed = parse(line, Precision::Nanosecond, NOW_NS).unwrap();
    assert_eq!(parsed.rows(), 0, "{:?}", String::from_utf8_lossy(line));
    assert_eq!(parsed.lines_bad, 1);
    parsed.errors[0].reason.clone()
}

#[test]
fn the_parts_of_a_line_are_read() {
    assert_eq!(
        read("cpu,host=a,region=eu usage=12.5,cores=4i,up=7u,name=\"x y\",on=t -5"),
        [point(
            "cpu",
            &[("host", "a"), ("region", "eu")],
            &[
                ("usage", Val::F64(12.5)),
                ("cores", Val::I64(4)),
                ("up", Val::U64(7)),
                ("name", Val::Text("x y".into())),
                ("on", Val::Bool(true)),
            ],
            -5
        )]
    );
}

#[test]
fn escapes_are_resolved() {
    assert_eq!(
        read(r#"my\ cpu\,x,a\ b=c\,d\=e\f f\=g\,h\ i="a\"b\\c\d",j=1 1"#),
        [point(
            "my cpu,x",
            &[("a b", r"c,d=e\f")],
            &[("f=g,h i", Val::Text(r#"a"b\c\d"#.into())), ("j", Val::F64(1.0))],
            1
        )]
    );
}

#[test]
fn numbers_are_read_exactly() {
    for text in [
        "0",
        "-0",
        "1",
        "-1",
        "1.",
        ".5",
        "-.5",
        "0.1",
        "123456789.123456789",
        "9007199254740993",
        "1e3",
        "1E-3",
        "1.5e+300",
        "-2.2250738585072014e-308",
        "5e-324",
        "1.7976931348623157e308",
        "123456789012345678901234567890",
        "0.000000000000000000000000000001",
        "00012.50",
    ] {
        let rows = read(&format!("m f={text} 1"));
        assert_eq!(rows[0].fields["f"], Val::F64(text.parse().unwrap()), "{text}");
    }
    for number in [i64::MIN, -1, 0, i64::MAX] {
        assert_eq!(read(&format!("m f={number}i 1"))[0].fields["f"], Val::I64(number));
    }
    assert_eq!(read("m f=18446744073709551615u 1")[0].fields["f"], Val::U64(u64::MAX));
}

#[test]
fn booleans_have_ten_spellings() {
    for (text, value) in [("t", true), ("f", false), ("true", true), ("false", false)] {
        let title = text[..1].to_uppercase() + &text[1..];
        for text in [text.to_owned(), text.to_uppercase(), title] {
            assert_eq!(read(&format!("m f={text}"))[0].fields["f"], Val::Bool(value), "{text}");
        }
    }
}

#[test]
fn times_are_scaled_and_default_to_now() {
    let time = |text: &str, precision: &str| {
        let precision = Precision::parse(precision).unwrap();
        let parsed = parse(format!("m f=1 {text}").as_bytes(), precision, NOW_NS).unwrap();
        parsed.batches.first().map(|table| table.batch.time[0])
    };
    assert_eq!(time("17", ""), Some(17));
    assert_eq!(time("17", "n"), Some(17));
    assert_eq!(time("17", "u"), Some(17_000));
    assert_eq!(time("-17", "us"), Some(-17_000));
    assert_eq!(time("17", "ms"), Some(17_000_000));
    assert_eq!(time("17", "s"), Some(17_000_000_000));
    assert_eq!(time("17", "m"), Some(1_020_000_000_000));
    assert_eq!(time("17", "h"), Some(61_200_000_000_000));
    assert_eq!(time("", "ns"), Some(NOW_NS));
    assert_eq!(time("", "s"), Some(1_700_000_000_000_000_000));
    assert_eq!(time("9223372036854775806", "ns"), Some(i64::MAX - 1));
    assert_eq!(time("9223372036854775807", "ns"), None);
    assert_eq!(time("-9223372036854775807", "ns"), None);
    assert_eq!(time("9223372037", "s"), None);
    assert_eq!(time("18446744073709551617", "ns"), None);
    assert!(Precision::parse("fortnight").is_err());
}

#[test]
fn blank_lines_comments_and_carriage_returns_are_passed_over() {
    let body = "\r\n# a comment, with v=1\n  \t\n m,t=a v=1 1\r\n\nm,t=a v=2\r\nm,t=b v=3 3";
    let parsed = parse(body.as_bytes(), Precision::Nanosecond, NOW_NS).unwrap();
    assert_eq!(parsed.errors, []);
    let found: Vec<_> = points(&parsed).into_iter().map(|(n, p)| (n, p.time_ns)).collect();
    assert_eq!(found, [(4, 1), (6, NOW_NS), (7, 3)]);
    for body in ["", "\n\n", "# only\n", " "] {
        assert_eq!(parse(body.as_bytes(), Precision::Second, 0).unwrap().lines_bad, 0);
    }
}

#[test]
fn wrong_lines_are_refused_for_the_reasons_influxdb_gives() {
    for (line, expected) in [
        ("cpu", "missing fields"),
        ("cpu,host=a", "missing fields"),
        ("cpu,host=a ", "missing fields"),
        (",host=b value=1 5", "missing measurement"),
        ("cpu,host value=1", "missing tag value"),
        ("cpu,host= value=1", "missing tag value"),
        ("cpu,=b value=1", "missing tag key"),
        ("cpu, value=1", "missing tag key"),
        ("cpu,host=a=b value=1", "invalid tag format"),
        ("cpu,host=a,host=b value=1", "duplicate tags"),
        ("cpu =1", "missing field key"),
        ("cpu v=", "missing field value"),
        ("cpu v= 5", "missing field value"),
        ("cpu v 5", "invalid field format"),
        ("cpu v=1, 5", "invalid field format"),
        ("cpu v=1,,b=2", "invalid field format"),
        ("cpu v=\"a\"b 5", "invalid field format"),
        ("cpu v=\"abc 5", "unbalanced quotes"),
        ("cpu v=\"abc\\", "unbalanced quotes"),
        ("cpu v=NaN", "invalid number"),
        ("cpu v=inf", "invalid number"),
        ("cpu v=-inf", "invalid number"),
        ("cpu v=+1", "invalid number"),
        ("cpu v=-", "invalid number"),
        ("cpu v=.", "invalid number"),
        ("cpu v=1e", "invalid number"),
        ("cpu v=1.5i", "invalid number"),
        ("cpu v=1.2.3", "invalid number"),
        ("cpu v=0x10", "invalid number"),
        ("cpu v=-1u", "unable to parse integer: value out of range"),
        ("cpu v=9223372036854775808i", "unable to parse integer: value out of range"),
        ("cpu v=1e999", "invalid float"),
        ("cpu v=tRue", "invalid boolean"),
        ("cpu v=abc", "invalid boolean"),
        ("cpu v=1 12x", "bad timestamp"),
        ("cpu v=1 1 2", "bad timestamp"),
        ("cpu v=1 -", "bad timestamp"),
        ("cpu v=1,v=2 5", "duplicate fields"),
        ("cpu,v=a v=2 5", "a name is both a tag and a field"),
        ("cpu,time=1 v=2 5", "\"time\" is the name of the time: give the tag another name"),
        ("cpu v=2,time=1 5", "\"time\" is the name of the time: give the field another name"),
    ] {
        assert_eq!(reason(line.as_bytes()), expected, "{line}");
    }
    assert_eq!(reason(b"cpu,host=\xff v=1"), "invalid UTF-8");
    assert_eq!(reason(b"cp\xc3 v=1"), "invalid UTF-8");
    assert_eq!(reason(b"cpu \xff=1"), "invalid UTF-8");
    assert_eq!(reason(b"cpu v=\"\xed\xa0\x80\""), "invalid UTF-8");
}

#[test]
fn a_wrong_line_leaves_its_neighbours_and_no_trace() {
    let body =
        "m,t=a v=1,w=2i 1\nm,t=b v=2,x=3,w=bad 2\nn z=1z\nm,t=a w=4i 4\nm,u=z v=\"open\nm v=1";
    let parsed = parse(body.as_bytes(), Precision::Nanosecond, NOW_NS).unwrap();
    let lines: Vec<_> =
        parsed.errors.iter().map(|error| (error.line, error.reason.as_str())).collect();
    assert_eq!(lines, [(2, "invalid boolean"), (3, "invalid number"), (5, "unbalanced quotes")]);
    assert_eq!(
        parsed.errors[2].to_string(),
        "unable to parse 'm,u=z v=\"open\nm v=1': unbalanced quotes (line 5)"
    );
    assert_eq!(parsed.batches.len(), 1);
    let batch = &parsed.batches[0].batch;
    assert_eq!(batch.tags.iter().map(|tag| tag.name.as_str()).collect::<Vec<_>>(), ["t"]);
    assert_eq!(batch.fields.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["v", "w"]);
    assert_eq!(parsed.batches[0].lines, [1, 4]);
}

#[test]
fn what_stands_in_quotes_never_becomes_a_line() {
    for wrong in [
        "m a=x,s=\"multi\ninjected v=666 1\n\" 5",
        "m s=\"multi\ninjected v=666 1\n\" bad",
        "m s=\"a\\\"b\ninjected v=666 1\n\",s=1 5",
        "m,t= s=\"multi\ninjected v=666 1\n\" 5",
        "m,t=a,t=b s=\"multi\ninjected v=666 1\n\" 5",
        "m a=1,s=\"multi\ninjected v=666 1\n\"x 5",
        "m s=\"multi\ninjected v=666 1\n",
        "m \\\ninjected v=666 1",
    ] {
        let newlines = wrong.matches('\n').count() as u32;
        let closed = !wrong.ends_with('\n');
        let body = format!("first v=1 1\n{wrong}\nlast v=2 2\n");
        let parsed = parse(body.as_bytes(), Precision::Nanosecond, NOW_NS).unwrap();
        let found: Vec<_> = points(&parsed).into_iter().map(|(n, p)| (n, p.table)).collect();
        let mut expected = vec![(1, "first".to_owned())];
        expected.extend(closed.then(|| (3 + newlines, "last".to_owned())));
        assert_eq!(found, expected, "{wrong}");
        let lines: Vec<_> = parsed.errors.iter().map(|error| error.line).collect();
        assert_eq!((lines, parsed.lines_bad), (vec![2], 1), "{wrong}");
    }
    // Quotes outside of values, and in comments, hold nothing together.
    for body in ["m,t=\"a v=x\nn v=1 1", "m \"a v=x\nn v=1 1", "# v=\"\nn v=1 1"] {
        let parsed = parse(body.as_bytes(), Precision::Nanosecond, NOW_NS).unwrap();
        assert_eq!(points(&parsed).keys().collect::<Vec<_>>(), [&2], "{body}");
    }
}

#[test]
fn a_change_of_type_or_role_begins_a_new_batch() {
    let body = "m,t=a v=1 1\nm,t=a v=2i 2\nm,t=a v=3i,w=t 3\nm,v=x t=1 4\nm,t=a v=9i 5\n";
    let parsed = parse(body.as_bytes(), Precision::Nanosecond, NOW_NS).unwrap();
    assert_eq!(parsed.errors, []);
    let lines: Vec<_> = parsed.batches.iter().map(|table| table.lines.clone()).collect();
    assert_eq!(lines, [vec![1], vec![2, 3], vec![4], vec![5]]);
    assert_eq!(points(&parsed)[&4], point("m", &[("v", "x")], &[("t", Val::F64(1.0))], 4));
}

#[test]
fn lines_that_share_no_column_do_not_cost_a_square() {
    let body: String = (0..20_000).map(|i| format!("m,t{i}=a f{i}=1 {i}\n")).collect();
    let parsed = parse(body.as_bytes(), Precision::Nanosecond, NOW_NS).unwrap();
    assert_eq!(parsed.rows() + parsed.lines_bad, 20_000);
    assert_eq!(parsed.lines_bad, 0);
    let cells: usize = parsed
        .batches
        .iter()
        .map(|t| t.batch.rows() * (t.batch.tags.len() + t.batch.fields.len()))
        .sum();
    assert!(cells < 20_000 * 200, "{cells} cells");
    assert_eq!(points(&parsed).len(), 20_000);
}

#[test]
fn a_body_cannot_make_batches_without_end() {
    let flip: String = (0..40_000).map(|i| format!("m f={}\n", ["1", "t"][i % 2])).collect();
    let parsed = parse(flip.as_bytes(), Precision::Nanosecond, NOW_NS).unwrap();
    assert_eq!(parsed.batches.len(), BATCHES_MAX);
    assert_eq!(parsed.rows() + parsed.lines_bad, 40_000);
    assert_eq!(parsed.errors.len(), ERRORS_KEPT);
    let tables: String = (0..20_000).map(|i| format!("m{i} f=1\n")).collect();
    let parsed = parse(tables.as_bytes(), Precision::Nanosecond, NOW_NS).unwrap();
    assert_eq!((parsed.batches.len(), parsed.lines_bad), (BATCHES_MAX, 20_000 - BATCHES_MAX));
}

const NAMES: [&str; 9] = ["a", "b", "c d", "e,f", "g=h", "ü", "quo\"te", "a\\b", "long name here"];

fn escaped(text: &str, escapable: &str) -> String {
    text.chars()
        .flat_map(|c| escapable.contains(c).then_some('\\').into_iter().chain([c]))
        .collect()
}

fn random_value(rng: &mut StdRng, kind: usize) -> Val {
    match kind {
        0 => Val::F64(f64::from(rng.random_range(-100_000..100_000)) / 1000.0),
        1 => Val::I64(rng.random_range(-5..5)),
        2 => Val::U64(rng.random()),
        3 => Val::Bool(rng.random()),
        _ => Val::Text(
            ["", "x", "a \"b\"", "back\\slash", "new\nline", "ü,=# "][rng.random_range(0..6)]
                .into(),
        ),
    }
}

fn random_point(rng: &mut StdRng, kinds: usize) -> Point {
    let mut names: Vec<&str> = NAMES.to_vec();
    let mut take =
        |rng: &mut StdRng| names.swap_remove(rng.random_range(0..names.len())).to_owned();
    let tags = (0..rng.random_range(0..4))
        .map(|_| (take(rng), NAMES.choose(rng).unwrap().to_string()))
        .collect();
    let fields = (0..rng.random_range(1..5))
        .map(|_| {
            let name = take(rng);
            let kind = (name.len() * 7 + rng.random_range(0..kinds)) % 5;
            (name, random_value(rng, kind))
        })
        .collect();
    let table = ["m", "n o", "p,q"].choose(rng).unwrap().to_string();
    Point { table, tags, fields, time_ns: rng.random_range(-50..50) }
}

fn write(point: &Point) -> String {
    let mut line = escaped(&point.table, ", ");
    for (name, value) in &point.tags {
        line += &format!(",{}={}", escaped(name, ",= "), escaped(value, ",= "));
    }
    for (at, (name, value)) in point.fields.iter().enumerate() {
        line += if at == 0 { " " } else { "," };
        line += &format!("{}=", escaped(name, ",= "));
        line += &match value {
            Val::F64(value) => format!("{value}"),
            Val::I64(value) => format!("{value}i"),
            Val::U64(value) => format!("{value}u"),
            Val::Bool(value) => format!("{value}"),
            Val::Text(value) => format!("\"{}\"", escaped(value, "\"\\")),
        };
    }
    line + &format!(" {}", point.time_ns)
}

#[test]
fn random_points_come_back_as_written() {
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        // With one kind a name always has the same type; with two, types clash now and then.
        let expected: Vec<Point> = (0..rng.random_range(1..200))
            .map(|_| random_point(&mut rng, 1 + seed as usize % 2))
            .collect();
        let body: Vec<String> = expected.iter().map(write).collect();
        assert_eq!(read(&body.join("\n")), expected, "seed {seed}");
    }
}

#[test]
fn damaged_lines_are_judged_as_by_the_naive_parser() {
    const SPICE: &[u8] = b",= \\\"#-.eiut019+\tnf";
    let (mut right, mut wrong) = (0, 0);
    for seed in 0..20_000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut line = write(&random_point(&mut rng, 5)).replace('\n', "N").into_bytes();
        for _ in 0..rng.random_range(0..4) {
            let at = rng.random_range(0..line.len());
            let spice = *SPICE.choose(&mut rng).unwrap();
            match rng.random_range(0..3) {
                0 => line[at] = spice,
                1 => line.insert(at, spice),
                _ => drop(line.remove(at)),
            }
        }
        let Ok(line) = String::from_utf8(line) else { continue };
        if line.trim_start().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let parsed = parse(line.as_bytes(), Precision::Nanosecond, NOW_NS).unwrap();
        let expected = naive::parse(&line, NOW_NS);
        let found = points(&parsed).into_values().next();
        assert_eq!(found, expected, "seed {seed}: {line:?} {:?}", parsed.errors);
        assert_eq!(parsed.lines_bad, usize::from(expected.is_none()));
        *if expected.is_some() { &mut right } else { &mut wrong } += 1;
    }
    assert!(right > 2_000 && wrong > 2_000, "{right} right, {wrong} wrong");
}

#[test]
fn random_bytes_are_survived() {
    for seed in 0..2_000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let body: Vec<u8> = (0..rng.random_range(0..300))
            .map(|_| *b"ab,= \\\"\n\r#1.e-iut\xff\0".choose(&mut rng).unwrap())
            .collect();
        let parsed = parse(&body, Precision::Hour, NOW_NS).unwrap();
        points(&parsed);
    }
}

/// Prints lines per second; run with `--release -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let bodies = [
        (
            "1 field, 1000 sensors",
            (0..200_000)
                .map(|i| {
                    format!(
                        "cpu,host=h{},region=r value=1.5 {}\n",
                        i % 1000,
                        1_700_000_000_000_000_000_i64 + i
                    )
                })
                .collect::<String>(),
        ),
        (
            "10 fields, 1000 sensors",
            (0..50_000)
                .map(|i| {
                    let fields: Vec<String> =
                        (0..10).map(|f| format!("usage_{f}={}.{f}", i % 97)).collect();
                    format!(
                        "cpu,host=h{},region=r {} {}\n",
                        i % 1000,
                        fields.join(","),
                        1_700_000_000_000_000_000_i64 + i
                    )
                })
                .collect(),
        ),
        (
            "1 field, every line another sensor",
            (0..200_000)
                .map(|i| {
                    format!(
                        "cpu,host=h{i},region=r value=1.5 {}\n",
                        1_700_000_000_000_000_000_i64 + i
                    )
                })
                .collect(),
        ),
    ];
    for (name, body) in &bodies {
        let mut seconds: Vec<f64> = (0..9)
            .map(|_| {
                let start = Instant::now();
                std::hint::black_box(parse(body.as_bytes(), Precision::Nanosecond, 0).unwrap());
                start.elapsed().as_secs_f64()
            })
            .collect();
        seconds.sort_by(f64::total_cmp);
        let lines = body.lines().count() as f64;
        println!(
            "{name}: {:.2} M lines/s, {:.0} MB/s (slowest {:.2} M lines/s)",
            lines / seconds[4] / 1e6,
            body.len() as f64 / seconds[4] / 1e6,
            lines / seconds[8] / 1e6
        );
    }
}
