//! Time: nanoseconds since 1970 UTC, the days and months that the cascade moves, and how people
//! write times and durations.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Nanoseconds of a microsecond.
pub const NS_PER_MICRO: i64 = 1_000;
/// Nanoseconds of a millisecond.
pub const NS_PER_MILLI: i64 = 1_000_000;
/// Nanoseconds of a second.
pub const NS_PER_SECOND: i64 = 1_000_000_000;
/// Nanoseconds of a minute.
pub const NS_PER_MINUTE: i64 = 60 * NS_PER_SECOND;
/// Nanoseconds of an hour.
pub const NS_PER_HOUR: i64 = 60 * NS_PER_MINUTE;
/// Nanoseconds of a day; days have no leap seconds here, as in Unix time.
pub const NS_PER_DAY: i64 = 24 * NS_PER_HOUR;

/// A stretch of time with both ends included, so that it can reach to the last nanosecond that
/// an `i64` holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TimeRange {
    /// The first nanosecond inside.
    pub first_ns: i64,
    /// The last nanosecond inside; before `first_ns` when the range is empty.
    pub last_ns: i64,
}

impl TimeRange {
    /// All of time.
    pub const ALL: Self = Self { first_ns: i64::MIN, last_ns: i64::MAX };

    /// The range from `first_ns` to `last_ns`, both included.
    pub const fn new(first_ns: i64, last_ns: i64) -> Self {
        Self { first_ns, last_ns }
    }

    /// Whether nothing is inside.
    pub const fn is_empty(&self) -> bool {
        self.first_ns > self.last_ns
    }

    /// Whether `time_ns` is inside.
    pub const fn contains(&self, time_ns: i64) -> bool {
        self.first_ns <= time_ns && time_ns <= self.last_ns
    }

    /// Whether all of `other` is inside.
    pub const fn covers(&self, other: &Self) -> bool {
        self.first_ns <= other.first_ns && other.last_ns <= self.last_ns
    }

    /// Whether some nanosecond is in both.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.first_ns <= other.last_ns && other.first_ns <= self.last_ns
    }

    /// What is in both; empty when nothing is.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        Self {
            first_ns: self.first_ns.max(other.first_ns),
            last_ns: self.last_ns.min(other.last_ns),
        }
    }

    /// The smallest range that holds both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self {
            first_ns: self.first_ns.min(other.first_ns),
            last_ns: self.last_ns.max(other.last_ns),
        }
    }
}

impl fmt::Display for TimeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} .. {}", format_time(self.first_ns), format_time(self.last_ns))
    }
}

/// A day in UTC, counted from 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Day(pub i32);

impl Day {
    /// The day in which `time_ns` lies.
    pub const fn of(time_ns: i64) -> Self {
        Self(time_ns.div_euclid(NS_PER_DAY) as i32)
    }

    /// The nanoseconds of this day, cut where `i64` ends.
    pub const fn range(self) -> TimeRange {
        range_of_days(self, Self(self.0 + 1))
    }

    /// The month that holds this day.
    pub const fn month(self) -> Month {
        let (year, month, _) = civil_from_days(self.0 as i64);
        Month((year * 12 + month as i64 - 1) as i32)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(i64::from(self.0));
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

/// A calendar month in UTC: years times 12 plus the month from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Month(pub i32);

impl Month {
    /// The month in which `time_ns` lies.
    pub const fn of(time_ns: i64) -> Self {
        Day::of(time_ns).month()
    }

    /// The first day of this month.
    pub const fn first_day(self) -> Day {
        let year = self.0.div_euclid(12) as i64;
        let month = self.0.rem_euclid(12) as u32 + 1;
        Day(days_from_civil(year, month, 1) as i32)
    }

    /// The nanoseconds of this month, cut where `i64` ends.
    pub const fn range(self) -> TimeRange {
        range_of_days(self.first_day(), Self(self.0 + 1).first_day())
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.0.div_euclid(12), self.0.rem_euclid(12) + 1)
    }
}

const fn range_of_days(first: Day, behind: Day) -> TimeRange {
    // The first and the last day that an i64 reaches into are cut short.
    let first_ns = (first.0 as i64).saturating_mul(NS_PER_DAY);
    let behind_ns = behind.0 as i128 * NS_PER_DAY as i128;
    let last_ns = if behind_ns > i64::MAX as i128 { i64::MAX } else { behind_ns as i64 - 1 };
    TimeRange { first_ns, last_ns }
}

/// Days since 1970-01-01 of a date in the proleptic Gregorian calendar; counts eras of 400 years
/// that begin in March, so that the leap day is the last of its year.
const fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = ((month + 9) % 12) as i64;
    let day_of_year = (153 * month_from_march + 2) / 5 + day as i64 - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The inverse of [`days_from_civil`]: year, month 1..=12, day 1..=31.
const fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month as u32, day)
}

const fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Writes a time as `2021-10-07T12:00:00Z`, with as many decimals of the second as it needs.
pub fn format_time(time_ns: i64) -> String {
    let (year, month, day) = civil_from_days(time_ns.div_euclid(NS_PER_DAY));
    let in_day = time_ns.rem_euclid(NS_PER_DAY);
    let seconds = in_day / NS_PER_SECOND;
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let fraction = in_day % NS_PER_SECOND;
    let decimals = match fraction {
        0 => String::new(),
        f if f % NS_PER_MILLI == 0 => format!(".{:03}", f / NS_PER_MILLI),
        f if f % NS_PER_MICRO == 0 => format!(".{:06}", f / NS_PER_MICRO),
        f => format!(".{f:09}"),
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{decimals}Z")
}

/// Reads a time as people and programs write it: `2021-10-07`, `2021-10-07 12:00`,
/// `2021-10-07T12:00:00.123456789Z`, with `+02:00`, `+0200` or `+02` for other zones; UTC when no
/// zone is given.
///
/// # Errors
/// `Invalid` when the text has another form, names a day that does not exist, or lies outside of
/// 1677-09-21 .. 2262-04-11, which is what 64-bit nanoseconds reach.
pub fn parse_time(text: &str) -> Result<i64> {
    parse_zoned_time(text).map(|(time_ns, _)| time_ns)
}

/// Like [`parse_time`], and tells whether the text names a zone.
///
/// # Errors
/// Like [`parse_time`].
pub fn parse_zoned_time(text: &str) -> Result<(i64, bool)> {
    parse_time_bytes(text.trim().as_bytes())
        .map_err(|why| Error::invalid(format!("{text:?} is not a time: {why}")))
}

fn parse_time_bytes(text: &[u8]) -> Result<(i64, bool), &'static str> {
    const FORM: &str = "expected YYYY-MM-DD[ HH:MM[:SS[.fraction]]][Z or +HH:MM]";
    let mut rest = text;
    let year = i64::from(digits(&mut rest, 4).ok_or(FORM)?);
    let separator = *rest.first().ok_or(FORM)?;
    if separator != b'-' && separator != b'/' {
        return Err(FORM);
    }
    rest = &rest[1..];
    let month = digits(&mut rest, 2).ok_or(FORM)?;
    if rest.first() != Some(&separator) {
        return Err(FORM);
    }
    rest = &rest[1..];
    let day = digits(&mut rest, 2).ok_or(FORM)?;
    if !(1..=12).contains(&month) {
        return Err("the month is not in 1..12");
    }
    if day < 1 || day > days_in_month(year, month) {
        return Err("the month has no such day");
    }
    let mut seconds = days_from_civil(year, month, day) * 86_400;
    let (mut fraction_ns, mut has_zone) = (0, false);
    if let [b'T' | b't' | b' ', after @ ..] = rest {
        rest = after;
        let hour = digits(&mut rest, 2).ok_or(FORM)?;
        rest = rest.strip_prefix(b":").ok_or(FORM)?;
        let minute = digits(&mut rest, 2).ok_or(FORM)?;
        let mut second = 0;
        if let Some(after) = rest.strip_prefix(b":") {
            rest = after;
            second = digits(&mut rest, 2).ok_or(FORM)?;
            if let [b'.' | b',', after @ ..] = rest {
                rest = after;
                fraction_ns = fraction(&mut rest).ok_or("a fraction has 1 to 9 digits")?;
            }
        }
        if hour > 23 || minute > 59 || second > 59 {
            return Err("hours go to 23, minutes and seconds to 59");
        }
        seconds += i64::from(hour * 3_600 + minute * 60 + second);
        has_zone = !rest.is_empty();
        seconds -= zone_seconds(&mut rest).ok_or("the zone is not Z, +HH:MM, +HHMM or +HH")?;
    }
    if !rest.is_empty() {
        return Err("there is more text behind it");
    }
    let ns = i128::from(seconds) * i128::from(NS_PER_SECOND) + i128::from(fraction_ns);
    let ns = i64::try_from(ns).map_err(|_| "it lies outside of 1677-09-21 .. 2262-04-11")?;
    Ok((ns, has_zone))
}

fn digits(rest: &mut &[u8], count: usize) -> Option<u32> {
    let (head, tail) = rest.split_at_checked(count)?;
    let mut value = 0;
    for byte in head {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u32::from(byte - b'0');
    }
    *rest = tail;
    Some(value)
}

fn fraction(rest: &mut &[u8]) -> Option<i64> {
    let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=9).contains(&count) {
        return None;
    }
    let value = digits(rest, count)?;
    Some(i64::from(value) * 10_i64.pow(9 - count as u32))
}

fn zone_seconds(rest: &mut &[u8]) -> Option<i64> {
    let trimmed = rest.strip_prefix(b" ").unwrap_or(rest);
    let (sign, after) = match trimmed {
        [] => return Some(0),
        [b'Z' | b'z', after @ ..] => {
            *rest = after;
            return Some(0);
        }
        b"UTC" => {
            *rest = b"";
            return Some(0);
        }
        [b'+', after @ ..] => (1, after),
        [b'-', after @ ..] => (-1, after),
        _ => return None,
    };
    *rest = after;
    let hours = digits(rest, 2)?;
    let minutes = if rest.is_empty() {
        0
    } else {
        *rest = rest.strip_prefix(b":").unwrap_or(rest);
        digits(rest, 2)?
    };
    (hours <= 23 && minutes <= 59).then(|| sign * i64::from(hours * 3_600 + minutes * 60))
}

/// The units of [`parse_duration`], longest first, so that [`format_duration`] finds the shortest
/// text.
const UNITS: [(&str, i64); 9] = [
    ("y", 365 * NS_PER_DAY),
    ("w", 7 * NS_PER_DAY),
    ("d", NS_PER_DAY),
    ("h", NS_PER_HOUR),
    ("m", NS_PER_MINUTE),
    ("s", NS_PER_SECOND),
    ("ms", NS_PER_MILLI),
    ("us", NS_PER_MICRO),
    ("ns", 1),
];

/// What pandas, DuckDB and people call the units, too.
const SYNONYMS: [(&str, &str); 22] = [
    ("W", "w"),
    ("week", "w"),
    ("weeks", "w"),
    ("D", "d"),
    ("day", "d"),
    ("days", "d"),
    ("H", "h"),
    ("hour", "h"),
    ("hours", "h"),
    ("min", "m"),
    ("minute", "m"),
    ("minutes", "m"),
    ("S", "s"),
    ("sec", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("millisecond", "ms"),
    ("milliseconds", "ms"),
    ("microsecond", "us"),
    ("microseconds", "us"),
    ("nanosecond", "ns"),
    ("nanoseconds", "ns"),
];

/// Nanoseconds of a unit.
fn unit_ns(name: &str) -> Option<i64> {
    let synonym = SYNONYMS.iter().find(|(known, _)| *known == name);
    let name = synonym.map_or(name, |(_, unit)| unit);
    UNITS.iter().find(|(known, _)| *known == name).map(|(_, unit_ns)| *unit_ns)
}

/// Reads a duration such as `1h`, `30d`, `15m`, `500ms` or `1d 12h`; a year is 365 days. The units may also be called
/// as in pandas (`15min`, `1D`), and by whole words.
///
/// # Errors
/// `Invalid` when the text has another form, or the duration is negative or too long.
pub fn parse_duration(text: &str) -> Result<i64> {
    let wrong = || {
        Error::invalid(format!(
            "{text:?} is not a duration: write a number and a unit, as in 90s, 15m, 1h, 30d"
        ))
    };
    let mut rest = text.trim();
    let mut total = 0_i64;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(number_end);
        let tail = tail.trim_start();
        let unit_end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let number: i64 = number.parse().map_err(|_| wrong())?;
        if matches!(unit, "M" | "ME" | "MS" | "month" | "months") {
            return Err(Error::invalid(format!(
                "{text:?} is not a duration: months are not equally long; write days, or m for minutes"
            )));
        }
        let unit_ns = unit_ns(unit).ok_or_else(wrong)?;
        total =
            number.checked_mul(unit_ns).and_then(|ns| total.checked_add(ns)).ok_or_else(wrong)?;
        rest = tail.trim_start();
    }
    Ok(total)
}

/// Writes a duration with the largest unit that divides it, as [`parse_duration`] reads it.
pub fn format_duration(duration_ns: i64) -> String {
    let (unit, unit_ns) = UNITS
        .iter()
        .filter(|(unit, _)| !matches!(*unit, "y" | "w"))
        .find(|(_, unit_ns)| duration_ns % unit_ns == 0)
        .copied()
        .unwrap_or(("ns", 1));
    format!("{}{unit}", duration_ns / unit_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        let check = |text: &str, again: &str| {
            let ns = parse_time(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(format_time(ns), again);
            assert_eq!(parse_time(again), Ok(ns));
        };
        check("1970-01-01", "1970-01-01T00:00:00Z");
        check("1869-01-01", "1869-01-01T00:00:00Z");
        check("2021-10-07 12:12:53+00:00", "2021-10-07T12:12:53Z");
        check("2021-10-07T12:12:53.5-0130", "2021-10-07T13:42:53.500Z");
        check("2000/02/29 23:59", "2000-02-29T23:59:00Z");
        check("1969-12-31T23:59:59.999999999Z", "1969-12-31T23:59:59.999999999Z");
    }

    #[test]
    fn wrong_times_are_refused() {
        for text in [
            "",
            "2021",
            "2021-13-01",
            "2021-02-29",
            "2021-10-07T",
            "2021-10-07 25:00",
            "2013-01-13 04:36asdf",
            "2021-10-07 12:00:00.1234567890",
            "1500-01-01",
            "2300-01-01",
        ] {
            assert!(parse_time(text).is_err(), "{text:?} was read");
        }
    }

    #[test]
    fn days_and_months_tile_time() {
        let mut behind = i64::MIN;
        for month in Month::of(i64::MIN).0..=Month::of(i64::MAX).0 {
            let range = Month(month).range();
            if month > Month::of(i64::MIN).0 {
                assert_eq!(range.first_ns, behind);
            }
            assert_eq!(Month::of(range.last_ns), Month(month));
            behind = range.last_ns.saturating_add(1);
        }
        assert_eq!(Month::of(i64::MAX).range().last_ns, i64::MAX);
        assert_eq!(Day::of(-1), Day(-1));
        assert_eq!(Day(-1).to_string(), "1969-12-31");
    }

    #[test]
    fn durations_are_read_and_written() {
        assert_eq!(parse_duration("1h"), Ok(NS_PER_HOUR));
        assert_eq!(parse_duration("1d 12h"), Ok(36 * NS_PER_HOUR));
        for (text, same) in [
            ("15min", "15m"),
            ("1D", "1d"),
            ("2H", "2h"),
            ("1W", "7d"),
            ("1 day 2 hours", "26h"),
            ("3 minutes", "3m"),
            ("90 seconds", "90s"),
            ("5 milliseconds", "5ms"),
        ] {
            assert_eq!(parse_duration(text), parse_duration(same), "{text}");
        }
        assert_eq!(format_duration(36 * NS_PER_HOUR), "36h");
        assert_eq!(format_duration(30 * NS_PER_DAY), "30d");
        for text in ["", "h", "1", "1 fortnight", "-1h", "99999999999y", "1M", "2 months", "1T"] {
            assert!(parse_duration(text).is_err(), "{text:?} was read");
        }
    }
}
