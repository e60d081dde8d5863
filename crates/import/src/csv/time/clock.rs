//! Times of day, which stand in a column beside the one of the date.

use tidefall_types::{Error, NS_PER_DAY, NS_PER_SECOND, Result};

use super::pattern::{self, Item};
use crate::csv::scalar::{parse_f64, quoted};

/// How times of day are written in letters and marks.
const PATTERNS: [&str; 6] =
    ["%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%I:%M:%S %p", "%I:%M %p", "%H.%M.%S"];

/// How a time of day is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::csv) enum Clock {
    Pattern(&'static str, Vec<Item>),
    /// A whole number.
    Digits(Digits),
}

/// What the decimal digits of a time of day are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::csv) enum Digits {
    Hours,
    HoursMinutes,
    HoursMinutesSeconds,
}

impl Clock {
    /// The form in which at least half of the texts are times of day, if they are no numbers.
    pub fn of_texts(texts: &[&[u8]]) -> Option<Self> {
        PATTERNS.into_iter().find_map(|text| {
            let clock = Self::Pattern(text, pattern::compile(text).ok()?);
            let read = texts.iter().filter(|text| clock.parse(text).is_ok()).count();
            (read > 0 && read * 2 >= texts.len()).then_some(clock)
        })
    }

    /// The form in which all numbers are times of day.
    pub fn of_numbers(texts: &[&[u8]]) -> Option<Self> {
        let hours = [Digits::Hours, Digits::HoursMinutes, Digits::HoursMinutesSeconds];
        hours
            .map(Self::Digits)
            .into_iter()
            .find(|clock| !texts.is_empty() && texts.iter().all(|text| clock.parse(text).is_ok()))
    }

    /// What it takes a column for.
    pub fn meaning(&self) -> &'static str {
        match self {
            Self::Pattern(pattern, _) => pattern,
            Self::Digits(Digits::Hours) => "the hour of the day",
            Self::Digits(Digits::HoursMinutes) => "HHMM",
            Self::Digits(Digits::HoursMinutesSeconds) => "HHMMSS",
        }
    }

    /// Nanoseconds since midnight; 24:00 is the end of the day.
    pub fn parse(&self, text: &[u8]) -> Result<i64> {
        let text = text.trim_ascii();
        let wrong =
            |why: &str| Error::invalid(format!("{} is not a time of day: {why}", quoted(text)));
        match self {
            Self::Pattern(_, items) => pattern::parse_clock(items, text).map_err(wrong),
            Self::Digits(digits) => {
                // Data frames with gaps write whole numbers as `7.0`.
                let number = parse_f64(text).filter(|number| number.fract() == 0.0);
                let number = number.filter(|number| (0.0..1e6).contains(number));
                let number = number.ok_or_else(|| wrong("expected a whole number"))? as i64;
                digits.ns(number).ok_or_else(|| wrong("hours go to 24, minutes and seconds to 59"))
            }
        }
    }
}

impl Digits {
    fn ns(self, number: i64) -> Option<i64> {
        let (hour, minute, second) = match self {
            Self::Hours => (number, 0, 0),
            Self::HoursMinutes => (number / 100, number % 100, 0),
            Self::HoursMinutesSeconds => (number / 10_000, number / 100 % 100, number % 100),
        };
        let clock_ns = ((hour * 60 + minute) * 60 + second) * NS_PER_SECOND;
        (minute < 60 && second < 60 && clock_ns <= NS_PER_DAY).then_some(clock_ns)
    }
}
