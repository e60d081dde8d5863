//! What the name of a column says about its role. Values decide; names only choose among columns
//! whose values would do.

/// Names that a time column has, without marks and in lower case, the best first.
const TIME_NAMES: [&str; 10] = [
    "time",
    "timestamp",
    "datetime",
    "date",
    "ts",
    "epoch",
    "datetimeutc",
    "zeitstempel",
    "datum",
    "fecha",
];

/// Those of them that name the time of a row as a whole, and not its date alone.
const INSTANT_NAMES: [&str; 7] =
    ["time", "timestamp", "datetime", "ts", "epoch", "datetimeutc", "zeitstempel"];

/// Words in names of columns with times. Numbers are times only in such columns.
const TIME_WORDS: [&str; 25] = [
    "time",
    "timestamp",
    "datetime",
    "date",
    "day",
    "ts",
    "dt",
    "epoch",
    "unix",
    "unixtime",
    "utc",
    "s",
    "sec",
    "secs",
    "seconds",
    "ms",
    "millis",
    "milliseconds",
    "us",
    "micros",
    "microseconds",
    "ns",
    "nanos",
    "nanoseconds",
    "zeit",
];

const DATE_WORDS: [&str; 5] = ["date", "day", "datum", "fecha", "data"];
const HOUR_WORDS: [&str; 4] = ["hour", "stunde", "heure", "hora"];
/// Other things are called so, too: they are hours only if their values are.
const MAYBE_HOUR_WORDS: [&str; 2] = ["hr", "hrs"];
const CLOCK_WORDS: [&str; 6] = ["time", "clock", "tod", "zeit", "uhrzeit", "ora"];

/// Names of the parts of a time, in the order of [`crate::csv::time::parse_parts`].
const PART_NAMES: [&[&str]; 6] =
    [&["year", "yr"], &["month", "mo"], &["day"], &["hour", "hr"], &["minute"], &["second"]];

/// Words for parts of a year that are none of [`PART_NAMES`], or that are useless without them.
const YEAR_PART_WORDS: [&str; 11] =
    ["month", "mo", "day", "hour", "week", "quarter", "doy", "yday", "dayofyear", "julian", "jday"];

/// The words of a name in lower case; marks, blanks and capitals begin new ones.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_small = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || after_small && c.is_uppercase() {
            words.push(String::new());
        }
        if c.is_alphanumeric() {
            words.iter_mut().last().into_iter().for_each(|word| word.extend(c.to_lowercase()));
        }
        after_small = c.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// How well a name fits a time column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// It is one of the names that such columns have; the smaller, the better.
    Name(usize),
    /// It has a word for times.
    Word,
    /// There is no header.
    Unnamed,
    /// It says nothing of times.
    Other,
}

/// How well a name fits a time column.
pub(super) fn fit(name: &str) -> Fit {
    let words = words(name);
    let whole = words.concat();
    match TIME_NAMES.iter().position(|known| **known == whole) {
        Some(place) => Fit::Name(place),
        None if words.iter().any(|word| TIME_WORDS.contains(&&**word)) => Fit::Word,
        None => Fit::Other,
    }
}

/// Whether a column is called the time of its row.
pub(super) fn is_instant(name: &str) -> bool {
    INSTANT_NAMES.contains(&&*words(name).concat())
}

/// Whether a column is called the time of its row, and `other` is not, or by a name that such columns have less often.
pub(crate) fn is_rather_time(name: &str, other: &str) -> bool {
    is_instant(name) && (!is_instant(other) || fit(name) < fit(other))
}

/// Which part of a time a column holds by its name, from 0 for years.
pub(super) fn part(name: &str) -> Option<usize> {
    let whole = words(name).concat();
    PART_NAMES.iter().position(|names| names.contains(&&*whole))
}

/// Whether a column tells where in its year a row belongs.
pub(super) fn is_part_of_year(name: &str) -> bool {
    YEAR_PART_WORDS.contains(&&*words(name).concat())
}

/// What a column is to a column of dates, by the names of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// It is called an hour.
    Hour,
    /// It is called a time of day.
    Clock,
    /// It may be called an hour.
    Perhaps,
    /// It has nothing to do with it.
    Nothing,
}

/// Whether `name` goes with the dates called `date`, as `Time` goes with `Date`, `start_time` with
/// `start_date`, and `hour` with any of them.
pub(super) fn beside(name: &str, date: &str) -> Beside {
    let others = |name: &str, list: &[&str]| {
        let words = words(name);
        let (known, others): (Vec<_>, Vec<_>) =
            words.into_iter().partition(|word| list.contains(&&**word));
        (!known.is_empty()).then_some(others)
    };
    let date = others(date, &DATE_WORDS).unwrap_or_default();
    let fits = |rest: Option<Vec<String>>| rest.is_some_and(|rest| rest.is_empty() || rest == date);
    if fits(others(name, &HOUR_WORDS)) {
        Beside::Hour
    } else if fits(others(name, &CLOCK_WORDS)) {
        Beside::Clock
    } else if fits(others(name, &MAYBE_HOUR_WORDS)) {
        Beside::Perhaps
    } else {
        Beside::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        assert_eq!(words("Date_Time"), ["date", "time"]);
        assert_eq!(words("startTime (UTC)"), ["start", "time", "utc"]);
        assert_eq!(words("PM2.5"), ["pm2", "5"]);
        assert_eq!(fit("Date_Time"), Fit::Name(2));
        assert_eq!(fit("DATE"), Fit::Name(3));
        assert_eq!(fit("local_ns"), Fit::Word);
        assert_eq!(fit("population"), Fit::Other);
        assert!(is_instant("Date_Time") && is_instant("TIME") && !is_instant("Date"));
        assert!(is_rather_time("Time", "ts") && is_rather_time("ts", "date"));
        assert!(!is_rather_time("ts", "time") && !is_rather_time("time", "TIME"));
        assert_eq!(part("Year"), Some(0));
        assert_eq!(beside("Time", "Date"), Beside::Clock);
        assert_eq!(beside("start_time", "start_date"), Beside::Clock);
        assert_eq!(beside("end_time", "start_date"), Beside::Nothing);
        assert_eq!(beside("hour", "date_utc"), Beside::Hour);
        assert_eq!(beside("hr", "dteday"), Beside::Perhaps);
        assert_eq!(beside("lifetime", "date"), Beside::Nothing);
    }
}
