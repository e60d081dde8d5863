//! Patterns in the manner of `strftime`.

use tidefall_types::{Day, Error, NS_PER_DAY, NS_PER_SECOND, Result};

use super::day_start_ns;
use crate::LocalZone;

pub(super) const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

const DAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// The names of zones that mean one distance from UTC everywhere: none.
const ZONES: [&str; 3] = ["utc", "gmt", "z"];

/// One piece of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::csv) enum Item {
    Literal(u8),
    Blanks,
    Year,
    YearOfCentury,
    Month,
    MonthName,
    Day,
    DayOfYear,
    DayName,
    YearOfWeek,
    Week,
    DayOfWeek,
    Hour,
    HourOfHalfDay,
    HalfDay,
    Minute,
    Second,
    Fraction,
    Zone,
    ZoneName,
    UnixSeconds,
}

/// What `%F` stands for.
const DATE: [Item; 5] =
    [Item::Year, Item::Literal(b'-'), Item::Month, Item::Literal(b'-'), Item::Day];

/// What `%T` stands for.
const CLOCK: [Item; 5] =
    [Item::Hour, Item::Literal(b':'), Item::Minute, Item::Literal(b':'), Item::Second];

/// Takes a pattern apart.
///
/// # Errors
/// `Invalid` when a letter behind `%` has no meaning here.
pub(super) fn compile(pattern: &str) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    let mut bytes = pattern.bytes();
    while let Some(byte) = bytes.next() {
        if byte.is_ascii_whitespace() {
            items.push(Item::Blanks);
            continue;
        }
        if byte != b'%' {
            items.push(Item::Literal(byte));
            continue;
        }
        let letter = bytes.next();
        if let Some(b'F' | b'T') = letter {
            items.extend(if letter == Some(b'F') { DATE } else { CLOCK });
            continue;
        }
        items.push(match letter {
            Some(b'Y') => Item::Year,
            Some(b'y') => Item::YearOfCentury,
            Some(b'm') => Item::Month,
            Some(b'b' | b'B' | b'h') => Item::MonthName,
            Some(b'd' | b'e') => Item::Day,
            Some(b'j') => Item::DayOfYear,
            Some(b'a' | b'A') => Item::DayName,
            Some(b'G') => Item::YearOfWeek,
            Some(b'V') => Item::Week,
            Some(b'u') => Item::DayOfWeek,
            Some(b'H' | b'k') => Item::Hour,
            Some(b'I' | b'l') => Item::HourOfHalfDay,
            Some(b'p' | b'P') => Item::HalfDay,
            Some(b'M') => Item::Minute,
            Some(b'S') => Item::Second,
            Some(b'f') => Item::Fraction,
            Some(b'z') => Item::Zone,
            Some(b'Z') => Item::ZoneName,
            Some(b's') => Item::UnixSeconds,
            Some(b'%') => Item::Literal(b'%'),
            other => {
                let letter = other.map(char::from).map_or(String::new(), String::from);
                return Err(Error::invalid(format!(
                    "time format {pattern:?}: %{letter} has no meaning; known are %Y %y %m %b %d \
                     %j %a %G %V %u %H %I %p %M %S %f %z %Z %s %F %T %%"
                )));
            }
        });
    }
    Ok(items)
}

/// Whether what a pattern reads are instants: they name a zone, the pattern ends with one, or they count from an instant.
pub(super) fn are_instants(items: &[Item]) -> bool {
    let names_instant = |item| matches!(item, &Item::Zone | &Item::ZoneName | &Item::UnixSeconds);
    items.iter().any(names_instant) || ends_with_utc(items)
}

/// Whether the last word of a pattern is a name of UTC.
fn ends_with_utc(items: &[Item]) -> bool {
    let letter = |item: &Item| match item {
        Item::Literal(byte) => Some(*byte).filter(u8::is_ascii_alphabetic),
        _ => None,
    };
    let mut word: Vec<u8> = items.iter().rev().map_while(letter).collect();
    word.reverse();
    ZONES.iter().any(|zone| word.eq_ignore_ascii_case(zone.as_bytes()))
}

#[derive(Debug, Default)]
struct Found {
    year: Option<i64>,
    month: Option<u32>,
    day: Option<u32>,
    day_of_year: Option<u32>,
    year_of_week: Option<i64>,
    week: Option<u32>,
    day_of_week: Option<u32>,
    hour: u32,
    minute: u32,
    second: u32,
    fraction_ns: i64,
    afternoon: Option<bool>,
    zone_s: Option<i64>,
    /// The zone that is named, if it is not UTC.
    zone: Option<LocalZone>,
    /// Whether they have a minus, which 0 cannot tell, and the seconds.
    unix_s: Option<(bool, i64)>,
}

/// Reads `text` by the pattern: the time, and the zone that it names whose clocks showed it.
pub(super) fn parse(items: &[Item], text: &[u8]) -> Result<(i64, Option<LocalZone>), &'static str> {
    let found = Found::of(items, text)?;
    // A distance from UTC says it all.
    let zone = found.zone.filter(|_| found.zone_s.is_none() && found.unix_s.is_none());
    Ok((found.time_ns()?, zone))
}

/// Nanoseconds since midnight of `text` by a pattern that has only parts of the day.
pub(super) fn parse_clock(items: &[Item], text: &[u8]) -> Result<i64, &'static str> {
    Found::of(items, text)?.clock_ns()
}

impl Found {
    fn of(items: &[Item], text: &[u8]) -> Result<Self, &'static str> {
        let mut rest = text;
        let mut found = Self::default();
        for item in items {
            found.take(*item, &mut rest)?;
        }
        match rest.is_empty() {
            true => Ok(found),
            false => Err("there is more text behind it"),
        }
    }

    fn take(&mut self, item: Item, rest: &mut &[u8]) -> Result<(), &'static str> {
        match item {
            Item::Literal(byte) => {
                *rest = rest.strip_prefix(&[byte]).ok_or("a mark between two parts is missing")?;
            }
            Item::Blanks => *rest = rest.trim_ascii_start(),
            Item::Year => self.year = Some(digits(rest, 4).ok_or("the year is missing")?.into()),
            Item::YearOfCentury => {
                // POSIX: 69..99 are of the last century.
                let year = i64::from(digits(rest, 2).ok_or("the year is missing")?);
                self.year = Some(if year < 69 { 2000 + year } else { 1900 + year });
            }
            Item::YearOfWeek => {
                self.year_of_week = Some(digits(rest, 4).ok_or("the year is missing")?.into());
            }
            Item::Week => self.week = Some(digits(rest, 2).ok_or("the week is missing")?),
            Item::DayOfWeek => {
                self.day_of_week = Some(digits(rest, 1).ok_or("the day of the week is missing")?);
            }
            Item::Month => self.month = Some(digits(rest, 2).ok_or("the month is missing")?),
            Item::MonthName => {
                let month = name(rest, &MONTHS).ok_or("the name of the month is missing")?;
                self.month = Some(month as u32 + 1);
            }
            Item::Day => self.day = Some(digits(rest, 2).ok_or("the day is missing")?),
            Item::DayOfYear => {
                self.day_of_year = Some(digits(rest, 3).ok_or("the day of the year is missing")?);
            }
            Item::DayName => {
                name(rest, &DAYS).ok_or("the name of the day is missing")?;
            }
            Item::Hour | Item::HourOfHalfDay => {
                self.hour = digits(rest, 2).ok_or("the hour is missing")?;
            }
            Item::HalfDay => {
                let half = name(rest, &["am", "pm"]).ok_or("AM or PM is missing")?;
                self.afternoon = Some(half == 1);
            }
            Item::Minute => self.minute = digits(rest, 2).ok_or("the minute is missing")?,
            Item::Second => self.second = digits(rest, 2).ok_or("the second is missing")?,
            Item::Fraction => self.fraction_ns = fraction(rest).ok_or("the fraction is missing")?,
            Item::Zone => self.zone_s = Some(zone(rest).ok_or("the zone is missing")?),
            Item::ZoneName => {
                self.zone = zone_name(rest).ok_or(
                    "the zone is not UTC, GMT, Z or a place such as Europe/Berlin; of other names \
                     nobody knows which zone they mean",
                )?;
            }
            Item::UnixSeconds => {
                let is_negative = rest.starts_with(b"-");
                let sign = usize::from(is_negative);
                let digits = rest[sign..].iter().take_while(|byte| byte.is_ascii_digit());
                let (number, tail) = rest.split_at(sign + digits.count());
                let seconds = crate::csv::scalar::parse_i64(number).ok_or("no number")?;
                self.unix_s = Some((is_negative, seconds));
                *rest = tail;
            }
        }
        Ok(())
    }

    fn time_ns(&self) -> Result<i64, &'static str> {
        const RANGE: &str = "it lies outside of 1677-09-21 .. 2262-04-11";
        if let Some((is_negative, seconds)) = self.unix_s {
            // The fraction goes on from zero, in either direction.
            let fraction_ns = if is_negative { -self.fraction_ns } else { self.fraction_ns };
            return seconds
                .checked_mul(NS_PER_SECOND)
                .and_then(|ns| ns.checked_add(fraction_ns))
                .ok_or(RANGE);
        }
        let clock_ns = self.clock_ns()? - self.zone_s.unwrap_or(0) * NS_PER_SECOND;
        self.midnight_ns()?.checked_add(clock_ns).ok_or(RANGE)
    }

    /// Nanoseconds since midnight; 24:00 is the end of the day.
    fn clock_ns(&self) -> Result<i64, &'static str> {
        let hour = match self.afternoon {
            None => self.hour,
            Some(_) if !(1..=12).contains(&self.hour) => return Err("the hour is not in 1..12"),
            Some(afternoon) => self.hour % 12 + if afternoon { 12 } else { 0 },
        };
        let seconds = i64::from(hour * 3_600 + self.minute * 60 + self.second);
        let clock_ns = seconds * NS_PER_SECOND + self.fraction_ns;
        if self.minute > 59 || self.second > 59 || clock_ns > NS_PER_DAY {
            return Err("hours go to 24, minutes and seconds to 59");
        }
        Ok(clock_ns)
    }

    fn midnight_ns(&self) -> Result<i64, &'static str> {
        const NO_DAY: &str = "there is no such day";
        if let Some(year) = self.year_of_week {
            let week = (year, self.week.unwrap_or(1), self.day_of_week.unwrap_or(1));
            return day_of_week_ns(week).ok_or("the year has no such week");
        }
        let year = self.year.ok_or("the form has no year")?;
        match self.day_of_year {
            Some(day) => {
                let days = if day_start_ns(year, 2, 29).is_some() { 366 } else { 365 };
                if !(1..=days).contains(&day) {
                    return Err("the year has no such day");
                }
                day_start_ns(year, 1, 1)
                    .and_then(|ns| ns.checked_add(i64::from(day - 1) * NS_PER_DAY))
            }
            None => day_start_ns(year, self.month.unwrap_or(1), self.day.unwrap_or(1)),
        }
        .ok_or(NO_DAY)
    }
}

/// The first nanosecond of a day that is named by year, week and day of the week, as ISO 8601 has
/// it: weeks begin on Mondays, and the first one is that of January 4.
fn day_of_week_ns((year, week, day): (i64, u32, u32)) -> Option<i64> {
    const DAYS: i64 = 7;
    // 1970-01-01 was a Thursday.
    let monday_of = |day: i64| day - (day + 3).rem_euclid(DAYS);
    let first_of = |year: i64| Some(i64::from(Day::of(day_start_ns(year, 1, 4)?).0));
    let monday = monday_of(first_of(year)?) + i64::from(week.checked_sub(1)?) * DAYS;
    let in_year = monday < monday_of(first_of(year + 1)?);
    (in_year && (1..=DAYS).contains(&i64::from(day)))
        .then(|| (monday + i64::from(day) - 1) * NS_PER_DAY)
}

/// Reads 1 to `count_max` digits.
fn digits(rest: &mut &[u8], count_max: usize) -> Option<u32> {
    let count = rest.iter().take(count_max).take_while(|byte| byte.is_ascii_digit()).count();
    let (number, tail) = rest.split_at(count);
    *rest = tail;
    (count > 0).then(|| number.iter().fold(0, |value, byte| value * 10 + u32::from(byte - b'0')))
}

fn fraction(rest: &mut &[u8]) -> Option<i64> {
    let before = rest.len();
    let value = digits(rest, 9)?;
    let count = before - rest.len();
    Some(i64::from(value) * 10_i64.pow(9 - count as u32))
}

/// Reads a name, or at least its first three letters, whatever the case.
pub(super) fn name(rest: &mut &[u8], names: &[&str]) -> Option<usize> {
    let count = rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let (word, tail) = rest.split_at(count);
    *rest = tail;
    names.iter().position(|name| {
        let name = name.as_bytes();
        word.eq_ignore_ascii_case(name)
            || (word.len() >= 3
                && name.get(..word.len()).is_some_and(|start| word.eq_ignore_ascii_case(start)))
    })
}

/// Reads the name of a zone, which is `None` if it is UTC.
fn zone_name(rest: &mut &[u8]) -> Option<Option<LocalZone>> {
    let letters = rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    if rest.get(letters) != Some(&b'/') {
        return name(rest, &ZONES).map(|_| None);
    }
    // As in America/Port-au-Prince and Etc/GMT+5.
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"/_-+".contains(byte);
    let (place, tail) = rest.split_at(rest.iter().take_while(is_part).count());
    *rest = tail;
    LocalZone::of_place(std::str::from_utf8(place).ok()?).map(Some)
}

/// Seconds east of UTC of `Z`, `+HH`, `+HHMM` or `+HH:MM`.
fn zone(rest: &mut &[u8]) -> Option<i64> {
    let (&sign, tail) = rest.split_first()?;
    *rest = tail;
    let sign = match sign {
        b'Z' | b'z' => return Some(0),
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hours = digits(rest, 2)?;
    *rest = rest.strip_prefix(b":").unwrap_or(rest);
    let minutes = digits(rest, 2).unwrap_or(0);
    (hours < 24 && minutes < 60).then(|| sign * i64::from(hours * 3_600 + minutes * 60))
}
