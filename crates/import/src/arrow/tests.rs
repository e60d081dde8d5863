use arrow_array::types::Int32Type;
use arrow_array::{
    BooleanArray, Date32Array, Decimal128Array, DictionaryArray, DurationMillisecondArray,
    DurationNanosecondArray, DurationSecondArray, Float64Array, Int32Array, StringViewArray,
    Time32SecondArray, TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
};
use tidefall_types::ErrorKind;

use super::*;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .unwrap()
}

fn options(tags: &[&str]) -> ArrowOptions {
    ArrowOptions { time: None, tags: tags.iter().map(|&tag| tag.to_owned()).collect() }
}

#[test]
fn columns_become_times_tags_and_fields() {
    let dictionary: DictionaryArray<Int32Type> =
        vec![Some("a"), None, Some("a")].into_iter().collect();
    let decimal =
        Decimal128Array::from(vec![Some(150), None, Some(-25)]).with_precision_and_scale(5, 2);
    let batch = batch(vec![
        ("s", Arc::new(dictionary)),
        ("n", Arc::new(Int32Array::from(vec![7, 8, 7]))),
        ("t", Arc::new(TimestampMillisecondArray::from(vec![1, -1, 2]).with_timezone("+01:00"))),
        ("d", Arc::new(decimal.unwrap())),
        ("day", Arc::new(Date32Array::from(vec![1, 0, -1]))),
        ("x", Arc::new(StringViewArray::from(vec![Some("p"), None, Some("q")]))),
    ]);
    let found = batch_from_arrow(&batch, &options(&["s", "n"])).unwrap();
    assert_eq!(found.time.as_ref(), [1_000_000, -1_000_000, 2_000_000]);
    assert_eq!(found.tags[0].keys.as_ref(), [0, NO_TAG, 0]);
    assert_eq!(found.tags[1].values, StringArray::from(vec!["7", "8"]));
    let values: Vec<String> = found.fields.iter().map(|f| format!("{:?}", f.values)).collect();
    assert_eq!(
        found.fields[0].values.as_ref(),
        &Float64Array::from(vec![Some(1.5), None, Some(-0.25)]) as &dyn Array
    );
    assert_eq!(
        found.fields[1].values.as_ref(),
        &TimestampNanosecondArray::from(vec![NS_PER_DAY, 0, -NS_PER_DAY]) as &dyn Array,
        "{values:?}"
    );
    assert_eq!(found.fields[2].values.data_type(), &DataType::Utf8);
}

#[test]
fn lengths_of_time_are_nanoseconds_whatever_their_unit() {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(DurationSecondArray::from(vec![Some(3), None, Some(-1)])),
        Arc::new(DurationMillisecondArray::from(vec![Some(3_000), None, Some(-1_000)])),
        Arc::new(DurationNanosecondArray::from(vec![
            Some(3 * NS_PER_SECOND),
            None,
            Some(-NS_PER_SECOND),
        ])),
    ];
    for column in columns {
        let found = field_values("d", &column, &mut Vec::new()).unwrap();
        let expected = Int64Array::from(vec![Some(3 * NS_PER_SECOND), None, Some(-NS_PER_SECOND)]);
        assert_eq!(found.as_ref(), &expected as &dyn Array, "{:?}", column.data_type());
    }
    let of_day: ArrayRef = Arc::new(Time32SecondArray::from(vec![60]));
    let found = field_values("d", &of_day, &mut Vec::new()).unwrap();
    assert_eq!(found.as_ref(), &Int64Array::from(vec![60 * NS_PER_SECOND]) as &dyn Array);
    let long: ArrayRef = Arc::new(DurationSecondArray::from(vec![i64::MAX]));
    let mut bad = Vec::new();
    assert!(field_values("d", &long, &mut bad).unwrap().is_null(0));
    assert!(bad[0].error.message().contains("more nanoseconds than 64 bits hold"), "{bad:?}");
}

#[test]
fn decimals_become_the_floats_that_are_nearest() {
    use rand::{Rng, SeedableRng};
    let mut random = rand::rngs::StdRng::seed_from_u64(1);
    for scale in [0_i8, 2, 17, 23, 30, 38] {
        let digits: Vec<i128> = (0..2_000)
            .map(|_| (random.random::<i128>() / 2) >> random.random_range(2..127))
            .filter(|digits| digits.unsigned_abs() < 10_u128.pow(38))
            .collect();
        let decimals = Decimal128Array::from(digits).with_precision_and_scale(38, scale).unwrap();
        let expected: Float64Array =
            (0..decimals.len()).map(|row| decimals.value_as_string(row).parse().ok()).collect();
        let decimals: ArrayRef = Arc::new(decimals);
        assert_eq!(
            field_values("d", &decimals, &mut Vec::new()).unwrap().as_ref(),
            &expected as &dyn Array
        );
        let wide = cast_plain("d", &decimals, &DataType::Decimal256(76, scale)).unwrap();
        assert_eq!(
            field_values("d", &wide, &mut Vec::new()).unwrap().as_ref(),
            &expected as &dyn Array
        );
    }
}

#[test]
fn timestamps_of_any_unit_and_zone_are_fields() {
    let time: ArrayRef = Arc::new(TimestampSecondArray::from(vec![0, 1]));
    let expected = TimestampNanosecondArray::from(vec![Some(1_500_000_000_000_000_000), None]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampSecondArray::from(vec![Some(1_500_000_000), None])),
        Arc::new(
            TimestampMillisecondArray::from(vec![Some(1_500_000_000_000), None])
                .with_timezone("Europe/Berlin"),
        ),
        Arc::new(expected.clone().with_timezone("+05:30")),
        Arc::new(expected.clone()),
    ];
    for column in columns {
        let found =
            batch_from_arrow(&batch(vec![("time", time.clone()), ("v", column)]), &options(&[]));
        assert_eq!(&*found.unwrap().fields[0].values, &expected as &dyn Array);
    }
    let far: ArrayRef = Arc::new(TimestampSecondArray::from(vec![0, 1 << 40]));
    let error =
        batch_from_arrow(&batch(vec![("time", time), ("v", far)]), &options(&[])).unwrap_err();
    assert!(error.message().contains("column \"v\""), "{error}");
}

#[test]
fn wrong_batches_are_refused() {
    let time: ArrayRef = Arc::new(TimestampSecondArray::from(vec![Some(0), None]));
    let late: ArrayRef = Arc::new(TimestampSecondArray::from(vec![0, 1 << 40]));
    let value: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0]));
    let check = |columns, tags: &[&str], expected: &str| {
        let error = batch_from_arrow(&batch(columns), &options(tags)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().contains(expected), "{error}");
    };
    check(vec![("t", Arc::clone(&time)), ("v", value.clone())], &[], "row 2: the time is missing");
    check(vec![("t", late), ("v", value.clone())], &[], "row 2");
    // Of 1500-01-01; it was shown as a number of an unknown unit.
    let early: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![0, -14_831_769_600_000]));
    let outside = "1500-01-01 00:00:00 lies outside of 1677-09-21 .. 2262-04-11";
    let expected = format!("row 2: the time {outside}");
    check(vec![("t", Arc::clone(&early)), ("v", value.clone())], &[], &expected);
    let there: ArrayRef = Arc::new(TimestampSecondArray::from(vec![0, 1]));
    check(vec![("t", there), ("v", early)], &[], &format!("row 2: column \"v\": {outside}"));
    let never: ArrayRef = Arc::new(TimestampSecondArray::from(vec![0, i64::MAX]));
    check(vec![("t", never), ("v", value.clone())], &[], "9223372036854775807 seconds from 1970");
    check(vec![("v", value.clone())], &[], "no column is a timestamp");
    check(vec![("t", time), ("v", value)], &["x"], "there is no column \"x\"");
}

#[test]
fn the_time_is_found_by_its_name_then_by_its_type() {
    let day: ArrayRef = Arc::new(Date32Array::from(vec![1]));
    let instant: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![2]));
    let value: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
    let check = |columns: &[(&'static str, &ArrayRef)], tags: &[&str], expected_ns: i64| {
        let columns = columns.iter().map(|(name, values)| (*name, Arc::clone(values))).collect();
        let found = batch_from_arrow(&batch(columns), &options(tags)).unwrap();
        assert_eq!(found.time.as_ref(), [expected_ns]);
    };
    let ms = NS_PER_MILLI;
    check(&[("d", &day), ("time", &instant), ("v", &value)], &[], 2 * ms);
    check(&[("d", &day), ("t", &instant), ("v", &value)], &[], 2 * ms);
    check(&[("t", &instant), ("time", &day), ("v", &value)], &[], NS_PER_DAY);
    check(&[("d", &day), ("v", &value)], &[], NS_PER_DAY);
    // A tag is never the time.
    check(&[("time", &instant), ("d", &day), ("v", &value)], &["time"], NS_PER_DAY);
    // Names that say less do not matter, nor do columns of neither numbers nor text.
    check(&[("ts", &value), ("time", &instant)], &[], 2 * ms);
    let flag: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
    check(&[("time", &flag), ("t", &instant)], &[], 2 * ms);
    let clock: ArrayRef = Arc::new(Time32SecondArray::from(vec![60]));
    check(&[("time", &clock), ("t", &instant)], &[], 2 * ms);
}

/// The time at which rows were stored was taken before numbers or texts that are called the time.
#[test]
fn a_column_called_time_of_another_type_is_asked_about() {
    let day: ArrayRef = Arc::new(Date32Array::from(vec![1]));
    let instant: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![2]));
    let number: ArrayRef = Arc::new(Int64Array::from(vec![1_700_000_000_000]));
    let text: ArrayRef = Arc::new(StringViewArray::from(vec!["2024-01-01"]));
    let clock: ArrayRef = Arc::new(Time32SecondArray::from(vec![60]));
    let tag: DictionaryArray<Int32Type> = vec![Some("2024-01-01")].into_iter().collect();
    let tag: ArrayRef = Arc::new(tag);
    let check = |(name, values): (&'static str, &ArrayRef),
                 (other, times): (&'static str, &ArrayRef)| {
        let columns = vec![(name, values.clone()), (other, times.clone()), ("v", number.clone())];
        let batch = batch(columns);
        let error = batch_from_arrow(&batch, &options(&[])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let asked = format!("the time may be {other:?} or {name:?}");
        assert!(error.message().contains(&asked), "{error}");
        assert!(error.message().contains("--time NAME"), "{error}");
        let tags = ArrowOptions { time: None, tags: vec![name.to_owned()] };
        batch_from_arrow(&batch, &tags).unwrap();
        batch_from_arrow(&batch, &ArrowOptions { time: Some(other.to_owned()), tags: vec![] })
            .unwrap();
    };
    for values in [&number, &text, &tag] {
        check(("time", values), ("ingested_at", &instant));
        check(("Time", values), ("timestamp", &instant));
        check(("ts", values), ("stored", &instant));
        check(("timestamp", values), ("date", &day));
    }
    check(("time", &clock), ("date", &day));
}
