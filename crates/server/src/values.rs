//! Values for parameters of statements, in JSON.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tidefall_sql::Parameter;
use tidefall_types::parse_time;

/// As many as a statement may have.
const VALUES_MAX: usize = 65_535;
const KINDS: &str = r#"null, true, false, a number, a text, {"timestamp": "..."}, {"date": "..."}, {"interval": "..."} or {"double": "NaN"}"#;

/// A list of values: what JSON knows, `{"timestamp": "2024-01-31T12:00:00Z"}`, `{"date": "2024-01-31"}`, `{"interval": "90 seconds"}`, and
/// `{"double": "NaN"}` for floats that it does not know.
#[derive(Debug, Default)]
pub(crate) struct Values(pub Vec<Parameter>);

struct One(Parameter);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(List)
    }
}

struct List;

impl<'de> Visitor<'de> for List {
    type Value = Values;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Values, A::Error> {
        let mut values = Vec::new();
        while let Some(One(value)) = list.next_element()? {
            if values.len() == VALUES_MAX {
                return Err(de::Error::custom(format_args!("more than {VALUES_MAX} values")));
            }
            values.push(value);
        }
        Ok(Values(values))
    }
}

impl<'de> Deserialize<'de> for One {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = <&RawValue>::deserialize(deserializer)?.get();
        parameter(written).map(Self).map_err(de::Error::custom)
    }
}

/// What is not written as a value of its own.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Named {
    Timestamp(String),
    Date(String),
    Interval(String),
    Double(String),
}

/// One value as JSON has it.
fn parameter(written: &str) -> Result<Parameter, String> {
    match written.as_bytes() {
        b"null" => Ok(Parameter::Null),
        b"true" => Ok(Parameter::Bool(true)),
        b"false" => Ok(Parameter::Bool(false)),
        [b'"', ..] => {
            serde_json::from_str(written).map(Parameter::Text).map_err(|error| error.to_string())
        }
        [b'[', ..] => Err(format!("a list, expected {KINDS}")),
        [b'{', ..] => match serde_json::from_str(written) {
            Ok(Named::Timestamp(time)) => {
                parse_time(&time).map(Parameter::Time).map_err(|error| error.to_string())
            }
            Ok(Named::Date(date)) => Ok(Parameter::Date(date)),
            Ok(Named::Interval(interval)) => Ok(Parameter::Interval(interval)),
            Ok(Named::Double(number)) => float(&number),
            Err(_) => Err(format!("an object of another kind, expected {KINDS}")),
        },
        _ => number(written),
    }
}

/// A number, all digits of which count: serde_json reads those with a point to within the last of their bits.
fn number(written: &str) -> Result<Parameter, String> {
    if written.contains(['.', 'e', 'E']) {
        return match float(written)? {
            Parameter::Float(number) if number.is_infinite() => Err(format!(
                "{written} is beyond the range of DOUBLE; infinity is written {{\"double\": \"inf\"}}"
            )),
            number => Ok(number),
        };
    }
    let whole = written.parse().map(Parameter::Int);
    whole.or_else(|_| written.parse().map(Parameter::UInt)).map_err(|_| {
        format!("the whole number {written} has more than 64 bits; write {{\"double\": \"...\"}} for a DOUBLE")
    })
}

fn float(written: &str) -> Result<Parameter, String> {
    written.parse().map(Parameter::Float).map_err(|_| format!("{written:?} is no number"))
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn values(json: &str) -> Result<Vec<Parameter>, String> {
        let values: Result<Values, _> = serde_json::from_str(json);
        values.map(|Values(values)| values).map_err(|error| error.to_string())
    }

    #[test]
    fn floats_are_those_that_are_written() {
        let mut rng = SmallRng::seed_from_u64(1);
        for _ in 0..100_000 {
            let number = f64::from_bits(rng.random());
            let near = rng.random_range(-100.0..100.0);
            for number in [number, near].into_iter().filter(|number| number.is_finite()) {
                let found = values(&format!("[{number:?}]"));
                assert_eq!(found, Ok(vec![Parameter::Float(number)]), "{number:?}");
            }
        }
    }

    #[test]
    fn values_are_what_json_says() {
        let json = r#"[null, true, 1, -1, 9223372036854775807, 18446744073709551615, 1.0, -2e3, "1.5 \" 2.5", "\\", {"timestamp": "1970-01-01T00:00:01Z"}, {"date": "1970-01-02"}, {"interval": "1 month"}, {"double": "-inf"}]"#;
        let text = |text: &str| Parameter::Text(text.to_owned());
        let expected = [
            Parameter::Null,
            Parameter::Bool(true),
            Parameter::Int(1),
            Parameter::Int(-1),
            Parameter::Int(i64::MAX),
            Parameter::UInt(u64::MAX),
            Parameter::Float(1.0),
            Parameter::Float(-2000.0),
            text("1.5 \" 2.5"),
            text("\\"),
            Parameter::Time(1_000_000_000),
            Parameter::Date("1970-01-02".to_owned()),
            Parameter::Interval("1 month".to_owned()),
            Parameter::Float(f64::NEG_INFINITY),
        ];
        assert_eq!(values(json).as_deref(), Ok(&expected[..]));
        for (json, told) in [
            ("1", "a list of values"),
            ("[[]]", "expected null, true"),
            ("[{}]", "expected null, true"),
            (r#"[{"double": "1", "timestamp": "1970-01-01"}]"#, "expected null, true"),
            (r#"[{"other": "1"}]"#, "expected null, true"),
            ("[1e400]", "beyond the range of DOUBLE"),
            ("[-1.7976931348623159e308]", "beyond the range of DOUBLE"),
            (r#"[{"double": "x"}]"#, "\"x\" is no number"),
            (r#"[{"timestamp": "noon"}]"#, "noon"),
            ("[18446744073709551616]", "more than 64 bits"),
            ("[1..2]", "invalid number"),
        ] {
            let error = values(json).unwrap_err();
            assert!(error.contains(told), "{json}: {error}");
        }
        let many = format!("[{}0]", "0,".repeat(VALUES_MAX));
        assert!(values(&many).unwrap_err().contains("more than 65535 values"));
    }
}
