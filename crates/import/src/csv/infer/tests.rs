use super::*;

fn schema(text: &str) -> CsvSchema {
    infer(text.as_bytes(), &CsvOptions::default()).unwrap_or_else(|error| panic!("{error}")).schema
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
