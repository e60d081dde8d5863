use super::*;

fn schema(text: &str) -> CsvSchema {
    let inferred = infer(text.as_bytes(), &CsvOptions::default());
    let mut inferred = inferred.unwrap_or_else(|error| panic!("{error}"));
    inferred.add_notes();
    inferred.schema
}

#[test]
fn headers_are_told_from_data() {
    let check = |text: &str, has_header: bool| {
        assert_eq!(schema(text).has_header, has_header, "{text:?}");
    };
    check("time,s,v\n2024-01-01,a,1\n", true);
    check("2024-01-01,a,1\n2024-01-02,b,2\n", false);
    check("time,1,2,3,4\n2024-01-01,1,2,3,4\n", true);
    check("2024-01-01 00:00asdf,a,1,2\n2024-01-02,b,2,3\n2024-01-03,b,2,3\n", false);
    check("time,v\n", true);
}

/// The first row had a text among its numbers, and was lost as a header.
#[test]
fn a_first_row_with_a_time_among_times_is_data() {
    let check = |text: &str| assert!(!schema(text).has_header, "{text:?}");
    check("2024-01-01,ERR\n2024-01-02,1\n2024-01-03,2\n");
    check(
        "2024-01-01 00:00:00,pump,ERR\n2024-01-01 00:01:00,pump,1.5\n2024-01-01 00:02:00,pump,2\n",
    );
    check("31.01.2024 10:00;ERR\n31.01.2024 10:01;1\n31.01.2024 10:02;2\n");
    check("2024-01-01,open,1\n2024-01-02,2024-01-05,2\n2024-01-03,2024-01-06,3\n");
    check("1704067200,ERR\n1704067260,1\n1704067320,2\n");
    check("20240101,ERR\n20240102,1\n20240103,2\n");
    check("31.01.2024 10:00;1,5\n");
    // Sensors that are called by numbers as large as their values.
    let wide = "time,1704067201\n2024-01-01,1704067262\n2024-01-02,1704067263\n";
    assert!(schema(wide).has_header);
}

#[test]
fn separators_are_found() {
    for separator in [',', ';', '\t', '|'] {
        let text =
            "time,v,w\n2024-01-01 00:00:00,\"1,5;|\t\",2\n".replace(',', &separator.to_string());
        assert_eq!(schema(&text).separator, separator as u8, "{separator:?}");
    }
}

#[test]
fn a_few_wrong_values_do_not_make_text() {
    let mut text = String::from("time,v,w\n");
    for row in 0..200 {
        let wrong = if row == 17 { "x" } else { "1" };
        let often = if row % 50 == 0 { "x" } else { "1" };
        text.push_str(&format!("2024-01-01,{wrong},{often}\n"));
    }
    let types: Vec<FieldType> = schema(&text).fields.iter().map(|field| field.ty).collect();
    assert_eq!(types, [FieldType::I64, FieldType::Text]);
}

/// Ids of twenty digits became floats, two of them the same one.
#[test]
fn whole_numbers_that_no_float_holds_are_text() {
    let seen = |values: &[&str]| {
        let text =
            values.iter().fold("time,v\n".to_owned(), |text, v| text + "2024-01-01," + v + "\n");
        let schema = schema(&text);
        (schema.fields[0].ty, !schema.notes.is_empty())
    };
    let check = |values: &[&str], ty: FieldType| {
        assert_eq!(seen(values), (ty, ty == FieldType::Text), "{values:?}");
    };
    check(&["89490012345678901234", "89490012345678901235"], FieldType::Text);
    check(&["18446744073709551615", "-1"], FieldType::Text);
    check(&["9223372036854775808", "9007199254740993", "-1"], FieldType::Text);
    check(&["-9223372036854775809", "1"], FieldType::Text);
    check(&["1", "+89490012345678901234"], FieldType::Text);
    check(&[&"9".repeat(400), "1"], FieldType::Text);
    // These are floats.
    check(&["9223372036854775808", "-1"], FieldType::F64);
    check(&["100000000000000000000", "-100000000000000000000"], FieldType::F64);
    // As are measured values, which are rounded to the nearest, and it is said.
    assert_eq!(seen(&["89490012345678901234", "1.5"]), (FieldType::F64, true));
    assert_eq!(seen(&["89490012345678901234", "1e3"]), (FieldType::F64, true));
    assert_eq!(seen(&["9007199254740992", "1.5"]), (FieldType::F64, false));
    check(&["18446744073709551615", "1"], FieldType::U64);
    check(&["9223372036854775807", "-1"], FieldType::I64);
}

/// Zeros in front of less than one number of a hundred were lost.
#[test]
fn a_single_number_with_zeros_in_front_makes_text() {
    let rows = |row: usize| format!("2024-01-01,{}\n", if row == 17 { "00071" } else { "71" });
    let schema = schema(&("time,v\n".to_owned() + &(0..200).map(rows).collect::<String>()));
    assert_eq!(schema.fields[0].ty, FieldType::Text);
    assert!(schema.notes[0].contains("zeros in front"), "{:?}", schema.notes);
}

/// A column without values was a DOUBLE for ever, and the first remark of a later file ended its import.
#[test]
fn columns_without_values_are_left_out() {
    let whole = |text: &str, options: &CsvOptions| {
        let mut inferred =
            infer(text.as_bytes(), options).unwrap_or_else(|error| panic!("{error}"));
        inferred.leave_out_nothing();
        let fields = inferred.schema.fields.iter().map(|field| field.name.clone());
        (fields.collect::<Vec<_>>().join(" "), inferred.schema.notes)
    };
    let text = "time,v,note,w,\n2024-01-01,1,,NA,\n2024-01-02,2,,,\n";
    let (fields, notes) = whole(text, &CsvOptions::default());
    assert_eq!(fields, "v");
    assert!(notes[0].starts_with("\"note\" and 1 more columns have no values"), "{notes:?}");
    let types = [("note".to_owned(), FieldType::Text)].into();
    let (fields, notes) = whole(text, &CsvOptions { types, ..CsvOptions::default() });
    assert_eq!(fields, "v note");
    assert!(notes[0].starts_with("\"w\" has no values"), "{notes:?}");
    // Without any there would be no row.
    let (fields, notes) = whole("time,v\n2024-01-01,\n", &CsvOptions::default());
    assert_eq!((fields.as_str(), notes.len()), ("v", 0));
}
