//! Floats are kept in their one form: one NaN, greater than every number, and one zero.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{ArrayRef, Float32Array, Float64Array};
use tidefall_storage::{
    AggregateRequest, CascadeRequest, Db, IfExists, ReadStats, ScanRequest, Target, Unknown,
    WriteOptions,
};
use tidefall_types::{
    ErrorKind, FieldColumn, FieldId, FieldType, Series, SeriesBatch, TableSchema, TimeRange,
    WriteBatch,
};

use crate::asking::in_one_group;
use crate::small::open;

/// A NaN with a sign, one with other bits, -0.0, and numbers around them.
const ODD: [f64; 6] = [-f64::NAN, 5.0, -0.0, f64::INFINITY, 0.0, -1.5];

fn columns() -> Vec<(&'static str, ArrayRef)> {
    let narrow = ODD.map(|value| value as f32);
    vec![
        ("x", Arc::new(Float64Array::from(ODD.to_vec())) as ArrayRef),
        ("f", Arc::new(Float32Array::from(narrow.to_vec())) as ArrayRef),
    ]
}

fn times(first: i64) -> Vec<i64> {
    (first..first + ODD.len() as i64).collect()
}

fn write(db: &Db, first: i64) {
    let column = |(name, values): (&str, ArrayRef)| FieldColumn { name: name.into(), values };
    let fields = columns().into_iter().map(column).collect();
    let batch = WriteBatch { time: times(first).into(), tags: Vec::new(), fields };
    let options = WriteOptions { unknown: Unknown::Create, ..WriteOptions::default() };
    db.write("odd", &batch, &options).unwrap();
}

fn load(db: &Db, first: i64) {
    let (fields, values): (Vec<String>, Vec<ArrayRef>) =
        columns().into_iter().map(|(name, values)| (name.to_owned(), values)).unzip();
    let series = vec![Series { time: times(first).into(), fields: values }];
    let batch = SeriesBatch { tags: Vec::new(), fields, series };
    db.load("odd", &batch, Unknown::Create).unwrap();
}

/// All values of both fields as bits, and their extremes by metrics.
fn check(db: &Db, writes: usize) {
    let snapshot = db.snapshot("odd").unwrap();
    let request = ScanRequest {
        sensors: vec![0],
        time: TimeRange::ALL,
        fields: vec![FieldId(0), FieldId(1)],
        conditions: Vec::new(),
        limit: None,
    };
    let (mut wide, mut narrow) = (Vec::new(), Vec::new());
    for rows in snapshot.scan(&request).unwrap() {
        let rows = rows.unwrap();
        let values = rows.fields[0].as_primitive::<Float64Type>().values().iter();
        wide.extend(values.map(|value| value.to_bits()));
        let values = rows.fields[1].as_primitive::<Float32Type>().values().iter();
        narrow.extend(values.map(|value| value.to_bits()));
    }
    let expected = [
        0x7ff8_0000_0000_0000,
        5.0_f64.to_bits(),
        0,
        f64::INFINITY.to_bits(),
        0,
        (-1.5_f64).to_bits(),
    ];
    assert_eq!(wide, expected.repeat(writes));
    let expected =
        [0x7fc0_0000, 5.0_f32.to_bits(), 0, f32::INFINITY.to_bits(), 0, (-1.5_f32).to_bits()];
    assert_eq!(narrow, expected.repeat(writes));
    let request = AggregateRequest { deviations: true, ends: true, ..in_one_group(1) };
    let found = snapshot.aggregate(&request, &Arc::new(ReadStats::default())).unwrap();
    let field = &found.fields[0];
    assert_eq!(field.min.as_primitive::<Float64Type>().value(0), -1.5);
    assert_eq!(field.max.as_primitive::<Float64Type>().value(0).to_bits(), 0x7ff8_0000_0000_0000);
}

#[test]
fn there_is_one_nan_and_one_zero_wherever_readings_are() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    write(&db, 0);
    check(&db, 1);
    for (writes, target) in [(1, Target::Short), (2, Target::Long)] {
        db.cascade(&CascadeRequest { table: None, target }).unwrap();
        check(&db, writes);
        write(&db, 100 * writes as i64);
        check(&db, writes + 1);
    }
    load(&db, 1000);
    check(&db, 4);
}

/// Writes one value to the field of integers "n", alone or as whole columns.
fn write_to_integers(db: &Db, value: f64) -> [tidefall_types::Result<()>; 2] {
    let values = Arc::new(Float64Array::from(vec![Some(value), None])) as ArrayRef;
    let batch = WriteBatch {
        time: vec![1, 2].into(),
        tags: Vec::new(),
        fields: vec![FieldColumn { name: "n".into(), values: Arc::clone(&values) }],
    };
    let series = vec![Series { time: vec![3, 4].into(), fields: vec![values] }];
    let whole = SeriesBatch { tags: Vec::new(), fields: vec!["n".into()], series };
    let written = db.write("integers", &batch, &WriteOptions::default()).map(drop);
    [written, db.load("integers", &whole, Unknown::Refuse).map(drop)]
}

#[test]
fn whole_floats_go_into_fields_of_integers() {
    for (ty, good, bad) in [
        (FieldType::I64, [1.0, -9_007_199_254_740_992.0], [1.5, 9_007_199_254_740_994.0]),
        (FieldType::I8, [-128.0, 127.0], [128.0, f64::NAN]),
        (FieldType::U64, [0.0, 9_007_199_254_740_992.0], [-1.0, f64::INFINITY]),
        (FieldType::U16, [-0.0, 65_535.0], [65_536.0, 0.1]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let mut schema = TableSchema::new(Default::default(), "integers", "time");
        schema.add_field("n", ty).unwrap();
        db.create_table(&schema, IfExists::Fail).unwrap();
        for value in good {
            write_to_integers(&db, value).into_iter().for_each(|written| written.unwrap());
            let found = db.snapshot("integers").unwrap();
            let found = found.read_sensor(0, &TimeRange::ALL, &[FieldId(0)]).unwrap();
            let found = arrow_cast::cast(&found.fields[0], &FieldType::F64.arrow()).unwrap();
            let found = found.as_primitive::<Float64Type>();
            assert!(found.iter().flatten().eq([value, value]), "{value} as {ty:?}: {found:?}");
        }
        for value in bad {
            for written in write_to_integers(&db, value) {
                let error = written.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Conflict);
                let message = error.message();
                assert!(message.contains("row 1") && message.contains("field \"n\""), "{message}");
                let advice = if value.abs() > 2_f64.powi(53) { "Int64" } else { "TYPE DOUBLE" };
                assert!(message.contains(advice), "{message}");
            }
        }
    }
}
