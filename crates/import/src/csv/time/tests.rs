use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidefall_types::{ErrorKind, format_time, parse_time};

use super::*;

fn read(format: &str, text: &str) -> Result<String> {
    let time_ns = TimeFormat::from_name(format)?.parser()?.parse(text.as_bytes())?;
    Ok(format_time(time_ns))
}

#[test]
fn the_fast_way_agrees_with_the_reference() {
    let mut random = StdRng::seed_from_u64(1);
    let mut parser = TimeFormat::Iso.parser().unwrap();
    for round in 0..200_000 {
        let mut text = format_time(random.random::<i64>()).into_bytes();
        if round % 2 == 0 {
            let at = random.random_range(0..text.len());
            text[at] = *b"0123456789:-./TZ +\xc3a".get(random.random_range(0..20)).unwrap();
        }
        if round % 5 == 0 {
            text.truncate(random.random_range(0..=text.len()));
        }
        let expected = std::str::from_utf8(&text).ok().and_then(|text| parse_time(text).ok());
        let found = parser.parse(&text).ok();
        assert_eq!(found, expected, "{:?}", String::from_utf8_lossy(&text));
    }
}

#[test]
fn numbers_since_1970_are_read() {
    let check = |format, text, expected: &str| {
        assert_eq!(read(format, text).as_deref(), Ok(expected), "{text}");
    };
    check("s", "0", "1970-01-01T00:00:00Z");
    check("s", "-1.5", "1969-12-31T23:59:58.500Z");
    check("s", "-0.5", "1969-12-31T23:59:59.500Z");
    check("ms", "1723161257465.0", "2024-08-08T23:54:17.465Z");
    check("ns", "1723161256419684465", "2024-08-08T23:54:16.419684465Z");
    check("s", "1.7e9", "2023-11-14T22:13:20Z");
    for text in ["99999999999", "", "NaN", "1.2.3", "1e30", "x"] {
        assert!(read("s", text).is_err(), "{text:?} was read");
    }
}

#[test]
fn patterns_are_read() {
    let check = |format, text, expected: &str| {
        assert_eq!(read(format, text).as_deref(), Ok(expected), "{text}");
    };
    check("%d/%m/%Y %H:%M", "31/1/2013  5:07", "2013-01-31T05:07:00Z");
    check("%m/%d/%y %I:%M:%S %p", "01/31/69 12:00:01 AM", "1969-01-31T00:00:01Z");
    check("%a, %d %b %Y %T %z", "Thu, 07 Oct 2021 12:00:00 +0200", "2021-10-07T10:00:00Z");
    check("%F %T.%f", "2021-10-07 12:00:00.25", "2021-10-07T12:00:00.250Z");
    check("%Y%m%d%H%M%S", "20211007120000", "2021-10-07T12:00:00Z");
    check("%Y-%j", "2020-366", "2020-12-31T00:00:00Z");
    check("%s.%f", "1.5", "1970-01-01T00:00:01.500Z");
    check("%s.%f", "-1.5", "1969-12-31T23:59:58.500Z");
    check("%s.%f", "-0.25", "1969-12-31T23:59:59.750Z");
    check("%d %B %Y", "7 Sept 2021", "2021-09-07T00:00:00Z");
    check("%F %T %Z", "2021-07-07 12:00:00 Europe/Berlin", "2021-07-07T10:00:00Z");
    check("%T [%Z] %F", "12:00:00 [America/Port-au-Prince] 2021-01-07", "2021-01-07T17:00:00Z");
    check("%F %T %z %Z", "2021-07-07 12:00:00 +0500 Europe/Berlin", "2021-07-07T07:00:00Z");
    check("%F %T %Z%z", "2021-07-07 12:00:00 GMT+0200", "2021-07-07T10:00:00Z");
    check("%s.%f", "-9223372036.854775808", "1677-09-21T00:12:43.145224192Z");
    for (format, text) in [
        ("%d/%m/%Y", "30/02/2013"),
        ("%d/%m/%Y", "30/01/2013 x"),
        ("%d/%m/%Y", "30-01-2013"),
        ("%Y-%j", "2021-366"),
        ("%I:%M %p", "13:00 pm"),
        ("%Y %I %p", "2020 13 pm"),
        ("%Y", "1500"),
        ("%H:%M", "12:00"),
        ("%F %T %Z", "2021-03-28 02:30:00 Europe/Berlin"),
        ("%s.%f", "-9223372036.854775809"),
    ] {
        assert!(read(format, text).is_err(), "{text:?} was read by {format}");
    }
    for zone in ["CST", "CET", "Europe/Berlim", "U", "+02:00", ""] {
        let error = read("%F %T %Z", &format!("2021-07-07 12:00:00 {zone}")).unwrap_err();
        assert!(error.message().contains(&format!(" {zone}\" is not a time")), "{error}");
    }
    assert_eq!(TimeFormat::from_name("%Q").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(TimeFormat::from_name("julian").unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn parts_make_a_time() {
    let parts = |texts: &[&str]| {
        let bytes: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        parse_parts(&bytes).map(format_time)
    };
    assert_eq!(parts(&["2013", "3", "1", "5"]).unwrap(), "2013-03-01T05:00:00Z");
    assert_eq!(
        parts(&["1869", "12", "31", "23", "59", "59.5"]).unwrap(),
        "1869-12-31T23:59:59.500Z"
    );
    assert_eq!(parts(&["2013.0", "3.0", "1"]).unwrap(), "2013-03-01T00:00:00Z");
    for wrong in [["2013", "2", "29"], ["2013", "13", "1"], ["9999", "1", "1"], ["", "1", "1"]] {
        assert!(parts(&wrong).is_err(), "{wrong:?} was read");
    }
}
