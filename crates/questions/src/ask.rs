//! A question as a client sends it, in JSON.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tidefall_storage::Keep;
use tidefall_types::{Result, TimeRange};

use crate::question::Chosen;
use crate::resample::{Aggregate, Bins};

/// A question of a client.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// Of which table.
    pub table: String,
    /// Of which sensors; all where nothing is said.
    #[serde(default)]
    pub sensors: Chosen,
    /// Of which field; of the only one where nothing is said.
    #[serde(default)]
    pub field: Option<String>,
    /// From when on, in nanoseconds since 1970 UTC.
    #[serde(default)]
    pub start: Option<i64>,
    /// Before when.
    #[serde(default)]
    pub end: Option<i64>,
    /// What.
    pub ask: Ask,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    /// The tags of those that have readings.
    Sensors,
    /// The first and the last time, the most rows of a sensor, and how many sensors there are, from the index: no less than there is.
    Extent,
    /// The last nanosecond up to which a frame has at most so many rows.
    FrameEnd(usize),
    /// The sensors side by side, all values or those that are kept.
    Frame(Option<Kept>),
    /// Each sensor by itself.
    Series,
    /// The values at exactly this time, in nanoseconds since 1970 UTC.
    At(i64),
    /// The latest values.
    Latest,
    /// The least values.
    Lowest,
    /// The greatest values.
    Highest,
    /// Bins, and what is made of each.
    Resample(BinsAsked, Vec<String>),
}

/// Which values are kept.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// Those from the one up to the other, or else those up to the one and from the other on.
    pub between: bool,
    /// Nothing where there is no bound.
    pub low: Option<Bound>,
    /// Nothing where there is no bound.
    pub high: Option<Bound>,
}

/// A number. Also as text, which says all of its digits, and knows `nan`, `inf` and `-inf`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound(pub f64);

impl<'de> Deserialize<'de> for Bound {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        // serde_json reads numbers to the last digit but one or so.
        let written = <&RawValue>::deserialize(from)?.get();
        let number = written.trim_matches('"').parse().map(Self);
        number.map_err(|_| D::Error::custom(format!("{written} is no number")))
    }
}

/// How time is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BinsAsked {
    /// In nanoseconds, or in months.
    pub width: i64,
    /// Whether it is in months.
    pub months: bool,
    /// Where a bin of so many nanoseconds begins, in nanoseconds since 1970 UTC.
    pub origin: i64,
}

impl Kept {
    pub(crate) fn keep(self) -> Keep {
        // Beyond no bound lies nothing.
        let none =
            if self.between { (f64::NEG_INFINITY, f64::INFINITY) } else { (f64::NAN, f64::NAN) };
        let low = self.low.map_or(none.0, |bound| bound.0);
        let high = self.high.map_or(none.1, |bound| bound.0);
        if self.between { Keep::Between(low, high) } else { Keep::Outside(low, high) }
    }
}

impl BinsAsked {
    pub(crate) fn bins(self) -> Result<Bins> {
        Bins::new(self.width, self.months, self.origin)
    }
}

/// The aggregates of these names.
pub(crate) fn aggregates(names: &[String]) -> Result<Vec<Aggregate>> {
    names.iter().map(|name| Aggregate::parse(name)).collect()
}

/// From a time on and before another; all where nothing is said.
pub fn range_of(start_ns: Option<i64>, end_ns: Option<i64>) -> TimeRange {
    // Before the first nanosecond of time there is nothing.
    let last = end_ns.map_or(i64::MAX, |end| end.saturating_sub(1));
    TimeRange::new(start_ns.unwrap_or(i64::MIN), last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read() {
        let read = |text: &str| serde_json::from_str::<Asked>(text);
        let asked = read(r#"{"table": "t", "ask": "latest"}"#).unwrap();
        assert_eq!((asked.sensors.len(), asked.field, asked.ask), (0, None, Ask::Latest));
        let text = r#"{"table": "t", "sensors": [["s", ["a", "b"]]], "field": "v", "start": 5, "end": null,
                       "ask": {"frame": {"between": true, "low": 1.5, "high": null}}}"#;
        let asked = read(text).unwrap();
        let kept = Kept { between: true, low: Some(Bound(1.5)), high: None };
        assert_eq!(asked.ask, Ask::Frame(Some(kept)));
        assert_eq!(asked.start, Some(5));
        let text = r#"{"table": "t", "ask": {"resample": [{"width": 1, "months": true, "origin": 0}, ["mean"]]}}"#;
        let bins = BinsAsked { width: 1, months: true, origin: 0 };
        assert_eq!(read(text).unwrap().ask, Ask::Resample(bins, vec!["mean".into()]));
        for low in ["109.23929501845593", "\"109.23929501845593\""] {
            let exact = format!(r#"{{"between": true, "low": {low}, "high": "inf"}}"#);
            let kept: Kept = serde_json::from_str(&exact).unwrap();
            assert_eq!(kept.keep(), Keep::Between(109.239_295_018_455_93, f64::INFINITY));
        }
        for wrong in ["{}", r#"{"table": "t"}"#, r#"{"table": "t", "ask": "all"}"#, "[]"] {
            read(wrong).unwrap_err();
        }
    }
}
