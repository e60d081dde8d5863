//! Times that clocks of a zone have shown.

use std::fmt;

use arrow_array::timezone::Tz;
use chrono::{DateTime, LocalResult, Offset, TimeZone};
use tidefall_types::{Error, NS_PER_SECOND, Result};

/// The zone of times that name none.
#[derive(Debug, Clone, Copy)]
pub struct LocalZone(Tz);

impl LocalZone {
    /// A zone by its name in the database of time zones, such as `Europe/Berlin`, or by its distance from UTC, such as
    /// `+01:00`.
    ///
    /// # Errors
    /// `Invalid` when there is none of that name.
    pub fn from_name(name: &str) -> Result<Self> {
        name.parse().map(Self).map_err(|_| {
            Error::invalid(format!(
                "{name:?} is not a time zone: write a name such as Europe/Berlin, or a distance from UTC such as +01:00"
            ))
        })
    }

    /// The zone of a place, such as `Europe/Berlin`. Names of other kinds may mean several: `CST` is one of America and one
    /// of China, and `CET` has summer time in the database of time zones, but not on clocks.
    pub(crate) fn of_place(name: &str) -> Option<Self> {
        name.contains('/').then(|| name.parse().ok()).flatten().map(Self)
    }

    /// The instant at which clocks showed a time, both in nanoseconds since 1970, and adds one to `twice` when they
    /// showed it twice, as they went back: then it is the first time that they did.
    ///
    /// # Errors
    /// `Invalid` when they never showed it, as they went forward, or when it is out of range.
    pub(crate) fn instant(self, local_ns: i64, twice: &mut u64) -> Result<i64> {
        let local = DateTime::from_timestamp_nanos(local_ns).naive_utc();
        let offset = match self.0.offset_from_local_datetime(&local) {
            LocalResult::Single(offset) => offset,
            LocalResult::Ambiguous(first, _) => {
                *twice += 1;
                first
            }
            LocalResult::None => {
                return Err(Error::invalid(format!(
                    "clocks never showed {local} in {self}, where they went forward then; is that the zone of the file?"
                )));
            }
        };
        let offset_ns = i64::from(offset.fix().local_minus_utc()) * NS_PER_SECOND;
        local_ns.checked_sub(offset_ns).ok_or_else(|| {
            Error::invalid(format!("{local} in {self} lies outside of 1677-09-21 .. 2262-04-11"))
        })
    }
}

impl fmt::Display for LocalZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use tidefall_types::{format_time, parse_time};

    use super::*;

    #[test]
    fn clocks_go_forward_and_back() {
        let instant = |zone: &str, local: &str| {
            let mut twice = 0;
            let ns = LocalZone::from_name(zone)?.instant(parse_time(local)?, &mut twice)?;
            Ok::<_, Error>((format_time(ns), twice))
        };
        for (zone, local, expected, twice) in [
            ("Europe/Berlin", "2024-01-15 12:00", "2024-01-15T11:00:00Z", 0),
            ("Europe/Berlin", "2024-07-15 12:00:00.25", "2024-07-15T10:00:00.250Z", 0),
            ("Europe/Berlin", "2024-10-27 02:30", "2024-10-27T00:30:00Z", 1),
            ("Europe/Berlin", "2024-10-27 03:00", "2024-10-27T02:00:00Z", 0),
            ("Europe/Berlin", "2024-03-31 03:00", "2024-03-31T01:00:00Z", 0),
            ("America/New_York", "1883-11-18 12:00", "1883-11-18T16:56:02Z", 1),
            ("Asia/Kolkata", "2024-01-01", "2023-12-31T18:30:00Z", 0),
            ("-03:30", "2024-01-01", "2024-01-01T03:30:00Z", 0),
        ] {
            assert_eq!(
                instant(zone, local).unwrap(),
                (expected.to_owned(), twice),
                "{zone} {local}"
            );
        }
        let error = instant("Europe/Berlin", "2024-03-31 02:30").unwrap_err();
        assert!(
            error.message().contains("never showed 2024-03-31 02:30:00 in Europe/Berlin"),
            "{error}"
        );
        assert!(
            instant("Asia/Tokyo", "1677-09-21 01:00").unwrap_err().message().contains("outside")
        );
        for name in ["Europe/Berlim", "", "CET+1", "local"] {
            assert!(LocalZone::from_name(name).is_err(), "{name}");
        }
    }
}
