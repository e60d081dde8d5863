//! How times are written in files.

mod clock;
mod pattern;

use std::fmt;

use tidefall_types::{
    Error, Month, NS_PER_DAY, NS_PER_MICRO, NS_PER_MILLI, NS_PER_SECOND, Result, parse_zoned_time,
};

use pattern::Item;

pub(super) use clock::{Clock, Digits};

use super::scalar::{self, quoted};
use crate::LocalZone;

/// The unit of times that are written as numbers since 1970 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it all.
pub enum TimeUnit {
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

impl TimeUnit {
    /// From the longest to the shortest.
    pub(super) const ALL: [Self; 4] =
        [Self::Seconds, Self::Milliseconds, Self::Microseconds, Self::Nanoseconds];

    const fn ns(self) -> i64 {
        match self {
            Self::Seconds => NS_PER_SECOND,
            Self::Milliseconds => NS_PER_MILLI,
            Self::Microseconds => NS_PER_MICRO,
            Self::Nanoseconds => 1,
        }
    }

    /// Whether a count of this unit since 1970 is a time between 1900 and 2200, and not so near to
    /// 1970 that it may as well be a number of any other kind. In 1966-11 .. 1973-02 times are
    /// such numbers; they must be told.
    pub(super) fn is_plausible(self, count: f64) -> bool {
        let seconds = count * (self.ns() as f64 / NS_PER_SECOND as f64);
        // 1e8 seconds are three years. No number is plausible in two units.
        (1e8..7.26e9).contains(&seconds.abs()) && seconds > -2.21e9
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
            Self::Microseconds => "microseconds",
            Self::Nanoseconds => "nanoseconds",
        })
    }
}

/// How a time is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimeFormat {
    /// As [`tidefall_types::parse_time`] reads it: `2021-10-07`, `2021-10-07 12:00:00.5+02:00`.
    Iso,
    /// A number since 1970 UTC, whole or with decimals.
    Unix(TimeUnit),
    /// Days since 1899-12-30, with the time of day as decimals, as spreadsheets store them.
    Spreadsheet,
    /// A pattern in the manner of `strftime`: `%Y %y %m %b %B %d %e %j %G %V %u %H %I %p %M %S %f
    /// %z %Z %a %A %F %T %s %%`. Numbers need no leading zeros, a blank stands for any number of
    /// blanks, and times are UTC, or of the zone that the file has, unless they name one: by `%z`, by `%Z`, which is
    /// `UTC`, `GMT`, `Z` or a place such as `Europe/Berlin`, or by `UTC`, `GMT` or `Z` at the end of the pattern.
    Pattern(String),
}

/// The name that [`TimeFormat::from_name`] reads.
impl fmt::Display for TimeFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iso => f.write_str("iso"),
            Self::Unix(TimeUnit::Seconds) => f.write_str("s"),
            Self::Unix(TimeUnit::Milliseconds) => f.write_str("ms"),
            Self::Unix(TimeUnit::Microseconds) => f.write_str("us"),
            Self::Unix(TimeUnit::Nanoseconds) => f.write_str("ns"),
            Self::Spreadsheet => f.write_str("excel"),
            Self::Pattern(pattern) => write!(f, "{pattern:?}"),
        }
    }
}

impl TimeFormat {
    /// Reads the name of a format: `iso`, `s`, `ms`, `us`, `ns`, `excel`, or a pattern with `%`.
    ///
    /// # Errors
    /// `Invalid` when it is neither.
    pub fn from_name(name: &str) -> Result<Self> {
        Ok(match name {
            "iso" => Self::Iso,
            "s" => Self::Unix(TimeUnit::Seconds),
            "ms" => Self::Unix(TimeUnit::Milliseconds),
            "us" => Self::Unix(TimeUnit::Microseconds),
            "ns" => Self::Unix(TimeUnit::Nanoseconds),
            "excel" => Self::Spreadsheet,
            pattern if pattern.contains('%') => {
                pattern::compile(pattern)?;
                Self::Pattern(pattern.to_owned())
            }
            _ => {
                return Err(Error::invalid(format!(
                    "{name:?} is not a time format: write iso, s, ms, us, ns, excel or a pattern \
                     such as \"%d.%m.%Y %H:%M\""
                )));
            }
        })
    }

    /// Makes a reader of times in this format.
    ///
    /// # Errors
    /// `Invalid` when a pattern cannot be understood.
    pub(crate) fn parser(&self) -> Result<TimeParser> {
        let form = match self {
            Self::Iso => Form::Iso,
            Self::Unix(unit) => Form::Unix(unit.ns()),
            Self::Spreadsheet => Form::Spreadsheet,
            Self::Pattern(text) => {
                Form::Pattern { items: pattern::compile(text)?, text: text.clone() }
            }
        };
        Ok(TimeParser { form, ..TimeParser::default() })
    }
}

#[derive(Debug, Clone)]
enum Form {
    Iso,
    Unix(i64),
    Spreadsheet,
    Pattern { items: Vec<Item>, text: String },
}

/// Reads times of one format. It remembers the last date, since neighbouring rows mostly share
/// it.
#[derive(Debug, Clone)]
pub(crate) struct TimeParser {
    form: Form,
    date: [u8; 10],
    midnight_ns: i64,
    /// Of texts that name none.
    zone: Option<LocalZone>,
    twice: u64,
}

/// One of ISO 8601.
impl Default for TimeParser {
    fn default() -> Self {
        Self { form: Form::Iso, date: *b"1970-01-01", midnight_ns: 0, zone: None, twice: 0 }
    }
}

impl TimeParser {
    /// The same with the zone of texts that name none.
    pub fn with_zone(self, zone: Option<LocalZone>) -> Self {
        Self { zone, ..self }
    }

    /// How many times were read since the last call that clocks showed twice.
    pub fn take_twice(&mut self) -> u64 {
        std::mem::take(&mut self.twice)
    }

    /// The nanoseconds since 1970 UTC that `text` says.
    #[inline]
    pub fn parse(&mut self, text: &[u8]) -> Result<i64> {
        match self.zone {
            None => self.parse_in_utc(text),
            Some(zone) => self.parse_in(zone, text),
        }
    }

    fn parse_in(&mut self, zone: LocalZone, text: &[u8]) -> Result<i64> {
        let (time_ns, is_instant) = match &self.form {
            Form::Iso => parse_iso_slow(text)?,
            Form::Unix(_) => (self.parse_in_utc(text)?, true),
            Form::Spreadsheet => (self.parse_in_utc(text)?, false),
            Form::Pattern { items, .. } => {
                let are_instants = pattern::are_instants(items);
                (self.parse_in_utc(text)?, are_instants)
            }
        };
        if is_instant { Ok(time_ns) } else { zone.instant(time_ns, &mut self.twice) }
    }

    #[inline]
    fn parse_in_utc(&mut self, text: &[u8]) -> Result<i64> {
        match &self.form {
            Form::Iso => match self.parse_iso(text) {
                Some(time_ns) => Ok(time_ns),
                None => parse_iso_slow(text).map(|(time_ns, _)| time_ns),
            },
            Form::Unix(unit_ns) => parse_unix(text, *unit_ns),
            Form::Spreadsheet => parse_spreadsheet(text),
            Form::Pattern { items, text: pattern } => {
                let parsed = pattern::parse(items, text.trim_ascii()).map_err(|why| {
                    Error::invalid(format!(
                        "{} is not a time of the form {pattern:?}: {why}",
                        quoted(text)
                    ))
                });
                match parsed? {
                    (local_ns, Some(zone)) => zone.instant(local_ns, &mut self.twice),
                    (time_ns, None) => Ok(time_ns),
                }
            }
        }
    }

    /// The form that nearly all files have: `YYYY-MM-DD?HH:MM:SS` with an optional fraction, in
    /// UTC. `None` means that the reference parser must decide.
    #[inline]
    fn parse_iso(&mut self, text: &[u8]) -> Option<i64> {
        let (date, rest) = text.split_first_chunk::<10>()?;
        let (mark, rest) = rest.split_first()?;
        let (clock, rest) = rest.split_first_chunk::<8>()?;
        if *mark != b' ' && *mark != b'T' {
            return None;
        }
        if *date != self.date {
            self.midnight_ns = midnight_ns(date)?;
            self.date = *date;
        }
        let time_ns = self.midnight_ns + i64::from(seconds_of_day(*clock)?) * NS_PER_SECOND;
        match rest {
            [] | [b'Z'] | b"+00:00" => Some(time_ns),
            [b'.', fraction @ ..] => Some(time_ns + fraction_ns(fraction)?),
            _ => None,
        }
    }
}

#[cold]
fn parse_iso_slow(text: &[u8]) -> Result<(i64, bool)> {
    match std::str::from_utf8(text) {
        Ok(text) if text.len() <= 64 => parse_zoned_time(text),
        _ => Err(Error::invalid(format!("{} is not a time", quoted(text)))),
    }
}

/// Seconds since midnight of `HH:MM:SS`; all eight bytes are checked at once.
#[inline]
fn seconds_of_day(clock: [u8; 8]) -> Option<u32> {
    let value = u64::from_le_bytes(clock) ^ u64::from_le_bytes(*b"00:00:00");
    // Adding this lifts what is no digit, and what is no colon, to the top bit of its byte.
    let limits = u64::from_le_bytes([0x76, 0x76, 0x7f, 0x76, 0x76, 0x7f, 0x76, 0x76]);
    if (value.wrapping_add(limits) | value) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let digit = |at: u32| (value >> (8 * at)) as u32 & 0xff;
    let (hour, minute) = (digit(0) * 10 + digit(1), digit(3) * 10 + digit(4));
    let second = digit(6) * 10 + digit(7);
    (hour < 24 && minute < 60 && second < 60).then_some(hour * 3_600 + minute * 60 + second)
}

/// The first nanosecond of `YYYY-MM-DD`; `None` also for the years at the ends of what 64 bits
/// reach, which the reference parser checks.
fn midnight_ns(date: &[u8; 10]) -> Option<i64> {
    if date[4] != b'-' || date[7] != b'-' {
        return None;
    }
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0_u32, |value, byte| {
            byte.is_ascii_digit().then(|| value * 10 + u32::from(byte - b'0'))
        })
    };
    let (year, month, day) = (number(&date[..4])?, number(&date[5..7])?, number(&date[8..])?);
    day_start_ns(i64::from(year), month, day).filter(|_| (1678..2262).contains(&year))
}

/// The first nanosecond of a day; `None` when there is no such day, or 64 bits do not reach it.
fn day_start_ns(year: i64, month: u32, day: u32) -> Option<i64> {
    if !(1600..2400).contains(&year) || !(1..=12).contains(&month) || day < 1 {
        return None;
    }
    let month = Month((year * 12 + i64::from(month) - 1) as i32);
    let first = i64::from(month.first_day().0);
    let behind = i64::from(Month(month.0 + 1).first_day().0);
    let day = first + i64::from(day) - 1;
    if day >= behind {
        return None;
    }
    day.checked_mul(NS_PER_DAY)
}

/// The fraction of a second behind the dot, with `Z` or `+00:00` behind it.
#[inline]
fn fraction_ns(text: &[u8]) -> Option<i64> {
    let mut value = 0;
    let mut count = 0;
    for &byte in text.iter().take(9) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = value * 10 + i64::from(digit);
        count += 1;
    }
    matches!(&text[count..], [] | [b'Z'] | b"+00:00").then_some(())?;
    (count > 0).then(|| value * 10_i64.pow(9 - count as u32))
}

/// A count of units, whole or with decimals. Decimals below a nanosecond are cut off.
fn parse_unix(text: &[u8], unit_ns: i64) -> Result<i64> {
    let text = text.trim_ascii();
    let range =
        || Error::invalid(format!("{} lies outside of 1677-09-21 .. 2262-04-11", quoted(text)));
    let (whole, decimals) = match memchr::memchr(b'.', text) {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &[][..]),
    };
    let decimals_fit = decimals.iter().all(u8::is_ascii_digit);
    match scalar::parse_i64(whole) {
        Some(count) if decimals_fit => {
            let part = decimals_ns(decimals, unit_ns);
            let part = if whole.starts_with(b"-") { -part } else { part };
            count
                .checked_mul(unit_ns)
                .and_then(|time_ns| time_ns.checked_add(part))
                .ok_or_else(range)
        }
        _ => match scalar::parse_f64(text) {
            // 1.7e9, as spreadsheets write large numbers.
            Some(count) if count.is_finite() => {
                let time_ns = (count * unit_ns as f64).round();
                if time_ns.abs() < i64::MAX as f64 { Ok(time_ns as i64) } else { Err(range()) }
            }
            _ => Err(Error::invalid(format!(
                "{} is not a time: expected a number since 1970",
                quoted(text)
            ))),
        },
    }
}

fn decimals_ns(decimals: &[u8], unit_ns: i64) -> i64 {
    let mut part = 0;
    let mut place_ns = unit_ns;
    for digit in decimals {
        place_ns /= 10;
        part += i64::from(digit - b'0') * place_ns;
    }
    part
}

/// Days as spreadsheets count them. Their decimals are those of a float, so that only whole
/// milliseconds are meant.
fn parse_spreadsheet(text: &[u8]) -> Result<i64> {
    /// 1970-01-01.
    const UNIX_DAY: f64 = 25_569.0;
    /// In March 1900; below, spreadsheets have a leap day that never was.
    const DAY_MIN: f64 = 61.0;
    let days = scalar::parse_f64(text.trim_ascii()).filter(|days| *days >= DAY_MIN);
    let millis = days.map(|days| (days - UNIX_DAY) * (NS_PER_DAY / NS_PER_MILLI) as f64);
    let time_ns = millis.and_then(|millis| {
        let reached = millis.abs() < (i64::MAX / NS_PER_MILLI) as f64;
        reached.then(|| millis.round() as i64 * NS_PER_MILLI)
    });
    time_ns.ok_or_else(|| {
        Error::invalid(format!(
            "{} is not a time: expected days since 1899-12-30, from 61 on",
            quoted(text)
        ))
    })
}

/// Year, month, day, hour, minute, second.
pub(super) const PARTS_MAX: usize = 6;

/// The time of a date in numbers, as files with columns `year`, `month`, `day`, ... have it;
/// missing parts at the end are the least ones. The month may be a name, seconds may have
/// decimals, and 24:00 is the end of the day.
pub(super) fn parse_parts(parts: &[&[u8]]) -> Result<i64> {
    let mut numbers: [i64; PARTS_MAX] = [0, 1, 1, 0, 0, 0];
    for (place, (number, part)) in numbers.iter_mut().zip(parts).take(5).enumerate() {
        *number = match month_name(part).filter(|_| place == 1) {
            Some(month) => month,
            None => whole_part(part)?,
        };
    }
    let second_ns = match parts.get(5) {
        Some(second) => parse_unix(second, NS_PER_SECOND)?,
        None => 0,
    };
    let [year, month, day, hour, minute, _] = numbers;
    let none = || Error::invalid(format!("there is no day {year}-{month}-{day}"));
    let small = |value: i64| u32::try_from(value).map_err(|_| none());
    let is_end = (hour, minute, second_ns) == (24, 0, 0);
    if !(0..24).contains(&hour) && !is_end || !(0..60).contains(&minute) {
        return Err(Error::invalid("hours go from 0 to 23 and minutes to 59"));
    }
    if !(0..60 * NS_PER_SECOND).contains(&second_ns) {
        return Err(Error::invalid("seconds go from 0 to 59"));
    }
    let midnight = day_start_ns(year, small(month)?, small(day)?).ok_or_else(none)?;
    midnight.checked_add((hour * 3_600 + minute * 60) * NS_PER_SECOND + second_ns).ok_or_else(none)
}

fn month_name(text: &[u8]) -> Option<i64> {
    let mut rest = text.trim_ascii();
    let month = pattern::name(&mut rest, &pattern::MONTHS)?;
    rest.is_empty().then_some(month as i64 + 1)
}

fn whole_part(text: &[u8]) -> Result<i64> {
    let text = text.trim_ascii();
    // Data frames with gaps write whole numbers as `7.0`.
    let whole = text.strip_suffix(b".0").unwrap_or(text);
    scalar::parse_i64(whole).ok_or_else(|| {
        Error::invalid(format!("{} is not a part of a time: expected a whole number", quoted(text)))
    })
}

#[cfg(test)]
mod tests;
