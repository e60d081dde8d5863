//! A question as a client sends it, in JSON.

use serde::Deserialize;
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

/// A number, or one that JSON does not know, as text: `nan`, `inf`, `-inf`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Bound {
    /// A number.
    Finite(f64),
    /// Another one.
    Other(OtherBound),
}

/// Numbers that JSON does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum OtherBound {
    /// No number.
    #[serde(rename = "nan")]
    NaN,
    /// More than all others.
    #[serde(rename = "inf")]
    Infinity,
    /// Less than all others.
    #[serde(rename = "-inf")]
    MinusInfinity,
}

impl Bound {
    fn value(self) -> f64 {
        match self {
            Self::Finite(value) => value,
            Self::Other(OtherBound::NaN) => f64::NAN,
            Self::Other(OtherBound::Infinity) => f64::INFINITY,
            Self::Other(OtherBound::MinusInfinity) => f64::NEG_INFINITY,
        }
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
        let low = self.low.map_or(f64::NEG_INFINITY, Bound::value);
        let high = self.high.map_or(f64::INFINITY, Bound::value);
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
        let kept = Kept { between: true, low: Some(Bound::Finite(1.5)), high: None };
        assert_eq!(asked.ask, Ask::Frame(Some(kept)));
        assert_eq!(asked.start, Some(5));
        let text = r#"{"table": "t", "ask": {"resample": [{"width": 1, "months": true, "origin": 0}, ["mean"]]}}"#;
        let bins = BinsAsked { width: 1, months: true, origin: 0 };
        assert_eq!(read(text).unwrap().ask, Ask::Resample(bins, vec!["mean".into()]));
        for wrong in ["{}", r#"{"table": "t"}"#, r#"{"table": "t", "ask": "all"}"#, "[]"] {
            read(wrong).unwrap_err();
        }
    }
}
