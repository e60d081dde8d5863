//! Values for parameters of statements, in JSON.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use tidefall_sql::Parameter;
use tidefall_types::parse_time;

/// As many as a statement may have.
const VALUES_MAX: usize = 65_535;

/// A list of values: what JSON knows, `{"timestamp": "2024-01-31T12:00:00Z"}`, and `{"double": "NaN"}` for floats that it does not know.
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
        deserializer.deserialize_any(Single)
    }
}

struct Single;

impl<'de> Visitor<'de> for Single {
    type Value = One;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            r#"null, true, false, a number, a text, {"timestamp": "..."} or {"double": "NaN"}"#,
        )
    }

    fn visit_unit<E>(self) -> Result<One, E> {
        Ok(One(Parameter::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<One, E> {
        Ok(One(Parameter::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<One, E> {
        Ok(One(Parameter::Int(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<One, E> {
        Ok(One(i64::try_from(value).map_or(Parameter::UInt(value), Parameter::Int)))
    }

    /// Those with a point or an exponent are texts by now.
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<One, E> {
        Err(E::custom(format_args!(
            "the whole number {value} has more than 64 bits; write {{\"double\": \"...\"}} for a DOUBLE"
        )))
    }

    fn visit_str<E>(self, value: &str) -> Result<One, E> {
        Ok(One(Parameter::Text(value.to_owned())))
    }

    fn visit_string<E>(self, value: String) -> Result<One, E> {
        Ok(One(Parameter::Text(value)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<One, A::Error> {
        let wrong = || de::Error::invalid_value(de::Unexpected::Map, &self);
        let Some((kind, text)) = map.next_entry::<Cow<'_, str>, String>()? else {
            return Err(wrong());
        };
        let value = match &*kind {
            "timestamp" => parse_time(&text).map(Parameter::Time).map_err(de::Error::custom)?,
            "double" => {
                let number = text.parse();
                let wrong = |_| de::Error::custom(format_args!("{text:?} is no number"));
                Parameter::Float(number.map_err(wrong)?)
            }
            _ => return Err(wrong()),
        };
        match map.next_key::<Cow<'_, str>>()? {
            Some(_) => Err(wrong()),
            None => Ok(One(value)),
        }
    }
}

/// JSON whose numbers with a point or an exponent are written as `{"double": "1.5"}`: serde_json reads them to within the last of their bits.
pub(crate) fn with_exact_floats(json: &str) -> Cow<'_, str> {
    let (mut exact, mut copied) = (String::new(), 0);
    let bytes = json.as_bytes();
    let (mut at, mut is_text) = (0, false);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if is_text => at += 1,
            b'"' => is_text = !is_text,
            b'-' | b'0'..=b'9' if !is_text => {
                let is_part =
                    |byte: &&u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                let end = at + bytes[at..].iter().take_while(is_part).count();
                let number = &json[at..end];
                if number.contains(['.', 'e', 'E']) {
                    exact.push_str(&json[copied..at]);
                    exact.push_str(&format!("{{\"double\":\"{number}\"}}"));
                    copied = end;
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    exact.push_str(&json[copied..]);
    Cow::Owned(exact)
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn values(json: &str) -> Result<Vec<Parameter>, String> {
        let values: Result<Values, _> = serde_json::from_str(&with_exact_floats(json));
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
        let json = r#"[null, true, 1, -1, 9223372036854775807, 18446744073709551615, 1.0, -2e3, "1.5 \" 2.5", "\\", {"timestamp": "1970-01-01T00:00:01Z"}, {"double": "-inf"}]"#;
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
            Parameter::Float(f64::NEG_INFINITY),
        ];
        assert_eq!(values(json).as_deref(), Ok(&expected[..]));
        for (json, told) in [
            ("1", "a list of values"),
            ("[[]]", "expected null, true"),
            ("[{}]", "expected null, true"),
            (r#"[{"double": "1", "timestamp": "1970-01-01"}]"#, "expected null, true"),
            (r#"[{"other": "1"}]"#, "expected null, true"),
            (r#"[{"double": "x"}]"#, "\"x\" is no number"),
            (r#"[{"timestamp": "noon"}]"#, "noon"),
            ("[18446744073709551616]", "more than 64 bits"),
            ("[1..2]", "\"1..2\" is no number"),
        ] {
            let error = values(json).unwrap_err();
            assert!(error.contains(told), "{json}: {error}");
        }
        let many = format!("[{}0]", "0,".repeat(VALUES_MAX));
        assert!(values(&many).unwrap_err().contains("more than 65535 values"));
    }
}
