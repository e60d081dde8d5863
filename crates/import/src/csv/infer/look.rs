//! What the values of a column are, seen as times.

use std::fmt::Write as _;
use std::sync::LazyLock;

use crate::csv::scalar;
use crate::csv::time::{TimeFormat, TimeParser, TimeUnit};

/// Values by which most forms are judged, from all over the sample.
const VALUES_MAX: usize = 200;

/// A form of which none of so many values is, is not tried on others.
const PROBES: usize = 8;

/// Forms of dates that are tried after ISO 8601, with each of [`CLOCKS`] behind them. Those that
/// read the same text differently stand in one group: if two of them read a column equally well,
/// somebody has to choose.
const DATES: [&[&str]; 14] = [
    &["%d/%m/%Y", "%m/%d/%Y"],
    &["%d-%m-%Y", "%m-%d-%Y"],
    &["%d.%m.%Y"],
    &["%Y/%m/%d"],
    &["%Y.%m.%d"],
    &["%Y-%m-%d"],
    &["%d-%b-%Y", "%d %b %Y"],
    &["%d/%b/%Y"],
    &["%b %d, %Y", "%b %d %Y"],
    &["%a, %d %b %Y", "%a %d %b %Y"],
    &["%d/%m/%y", "%m/%d/%y", "%y/%m/%d"],
    &["%d-%m-%y", "%m-%d-%y", "%y-%m-%d"],
    &["%d.%m.%y"],
    &["%d-%b-%y", "%d %b %y", "%y-%b-%d"],
];

/// Forms of times of day behind a date.
const CLOCKS: [&str; 9] = [
    "",
    " %H:%M:%S",
    " %H:%M",
    " %H:%M:%S.%f",
    " %I:%M:%S %p",
    " %I:%M %p",
    " %H.%M.%S",
    " %H.%M",
    "T%H:%M",
];

/// Zones behind a time of day.
const ZONES: [&str; 3] = ["", " %z", " %Z"];

/// Forms that are no date with a time of day behind it.
const OTHERS: [&str; 12] = [
    "%Y%m%dT%H%M%S%z",
    "%Y%m%dT%H%M%S",
    "%Y%m%dT%H%M",
    "%d/%b/%Y:%H:%M:%S %z",
    "%a %b %d %H:%M:%S %Y",
    "%a %b %d %H:%M:%S %Z %Y",
    "%G-W%V-%u",
    "%G-W%V",
    "%Y-%m",
    "%Y-%j",
    "%b %Y",
    "%b-%Y",
];

/// Forms that are all digits, and their number. Ten digits are seconds since 1970 as a rule, so
/// that they must all be dates, too.
const DIGITS: [(&str, usize); 6] = [
    ("%Y%m%d", 8),
    ("%Y%m%d%H%M%S", 14),
    ("%Y%m%d%H%M", 12),
    ("%Y%m%d%H", 10),
    ("%Y%j", 7),
    ("%Y%m", 6),
];

/// What the values of a column are, seen as times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Look {
    /// Text with a date and a time of day.
    Instants(TimeFormat),
    /// Text with a date alone.
    Dates(TimeFormat),
    /// Text in either of two forms, which read it differently.
    Either(TimeFormat, TimeFormat),
    /// Numbers whose digits are a date, some with a time of day.
    Digits(TimeFormat),
    /// Numbers that count from 1970 to a time between 1900 and 2200.
    Epochs(TimeUnit),
    /// Whole numbers that may be years.
    Years,
    /// Numbers that may be days as spreadsheets count them.
    SpreadsheetDays,
    /// Nothing of the kind.
    Other,
}

impl Look {
    /// Looks at values that are not missing, from all over a column.
    pub fn at(values: &[&[u8]]) -> Self {
        let texts = spread(values);
        if texts.is_empty() {
            return Self::Other;
        }
        if let Some(read) = half(&TimeFormat::Iso, &texts) {
            let clocks = read.iter().filter(|text| text.contains(&b':')).count();
            return match clocks * 2 >= read.len() {
                true => Self::Instants(TimeFormat::Iso),
                false => Self::Dates(TimeFormat::Iso),
            };
        }
        let numbers: Vec<f64> = texts.iter().filter_map(|text| scalar::parse_f64(text)).collect();
        match numbers.len() * 2 >= texts.len() {
            true => Self::at_numbers(&texts, &numbers),
            false => Self::at_texts(&texts, values),
        }
    }

    fn at_numbers(texts: &[&[u8]], numbers: &[f64]) -> Self {
        let most = |count: usize| count * 20 >= texts.len() * 19;
        for (pattern, digits) in DIGITS {
            let format = TimeFormat::Pattern(pattern.to_owned());
            let has_digits =
                |text: &&[u8]| text.len() == digits && text.iter().all(u8::is_ascii_digit);
            if texts.iter().all(has_digits) && half(&format, texts).is_some_and(|t| most(t.len())) {
                return Self::Digits(format);
            }
        }
        let plausible = |unit: &TimeUnit| {
            let count = numbers.iter().filter(|number| unit.is_plausible(**number)).count();
            // Neither a zero nor a slip of the pen decides.
            count * 2 >= texts.len()
        };
        if let Some(unit) = TimeUnit::ALL.into_iter().find(plausible) {
            return Self::Epochs(unit);
        }
        let whole = numbers.iter().filter(|number| number.fract() == 0.0);
        if most(whole.filter(|number| (1678.0..2262.0).contains(*number)).count()) {
            return Self::Years;
        }
        // 1954 .. 2119.
        match most(numbers.iter().filter(|days| (20_000.0..80_000.0).contains(*days)).count()) {
            true => Self::SpreadsheetDays,
            false => Self::Other,
        }
    }

    fn at_texts(texts: &[&[u8]], all: &[&[u8]]) -> Self {
        let has_digits =
            |text: &&&[u8]| text.iter().filter(|byte| byte.is_ascii_digit()).count() > 2;
        if texts.iter().filter(has_digits).count() * 2 < texts.len() {
            return Self::Other;
        }
        for group in FORMS.iter() {
            let mut read: Vec<(usize, &Form)> = Vec::new();
            for form in group {
                let mut parser = form.parser.clone();
                let mut fits = |text: &&&[u8]| parser.parse(text).is_ok();
                let probes = texts.iter().step_by(texts.len().div_ceil(PROBES));
                if probes.filter(&mut fits).count() > 0
                    && texts.iter().filter(&mut fits).count() * 2 >= texts.len()
                {
                    read.push((0, form));
                }
            }
            if read.len() > 1 {
                // One value may tell them apart, so all are asked.
                for (count, form) in &mut read {
                    let mut parser = form.parser.clone();
                    *count = all.iter().filter(|text| parser.parse(text).is_ok()).count();
                }
                let best = read.iter().map(|(count, _)| *count).max();
                // A date that only one of them has may stand before another clock, as in a file some of whose times have seconds.
                for (count, form) in read.iter_mut().filter(|(count, _)| Some(*count) == best) {
                    let Some(mut date) = form.date.clone() else { continue };
                    *count += all.iter().filter(|text| date.parse(date_of(text)).is_ok()).count();
                }
                read.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
            }
            match read.as_slice() {
                [(count, one), (second, other), ..] if count == second => {
                    return Self::Either(one.format.clone(), other.format.clone());
                }
                [(_, Form { format, has_clock: true, .. }), ..] => {
                    return Self::Instants(format.clone());
                }
                [(_, form), ..] => return Self::Dates(form.format.clone()),
                [] => {}
            }
        }
        Self::Other
    }

    /// Whether other things than times are often written so, such as 1.2.24: then the column must be
    /// called a time, too.
    pub fn is_weak(&self) -> bool {
        match self {
            Self::Instants(format) | Self::Dates(format) | Self::Either(format, _) => {
                match format {
                    TimeFormat::Pattern(pattern) => {
                        pattern.contains("%y")
                            || !["%d", "%u", "%V"].iter().any(|day| pattern.contains(day))
                    }
                    _ => false,
                }
            }
            Self::Digits(TimeFormat::Pattern(pattern)) => {
                DIGITS.iter().any(|(known, digits)| known == pattern && *digits < 8)
            }
            _ => false,
        }
    }
}

/// The texts that a format reads, if it reads at least half of them.
fn half<'a>(format: &TimeFormat, texts: &[&'a [u8]]) -> Option<Vec<&'a [u8]>> {
    let mut parser = format.parser().ok()?;
    let read: Vec<&[u8]> =
        texts.iter().copied().filter(|text| parser.parse(text).is_ok()).collect();
    (!read.is_empty() && read.len() * 2 >= texts.len()).then_some(read)
}

/// At most [`VALUES_MAX`] values, from first to last.
pub(super) fn spread<'a>(values: &[&'a [u8]]) -> Vec<&'a [u8]> {
    values.iter().copied().step_by(values.len().div_ceil(VALUES_MAX).max(1)).collect()
}

/// What stands before the time of day.
fn date_of(text: &[u8]) -> &[u8] {
    text.split(|byte| matches!(byte, b' ' | b'T')).next().unwrap_or(text)
}

struct Form {
    format: TimeFormat,
    parser: TimeParser,
    /// Reads the date alone, where it ends with the first blank.
    date: Option<TimeParser>,
    has_clock: bool,
}

/// All forms, in groups as in [`DATES`].
static FORMS: LazyLock<Vec<Vec<Form>>> = LazyLock::new(|| {
    let form = |pattern: &str, date: &str| {
        let format = TimeFormat::Pattern(pattern.to_owned());
        let parser = format.parser().ok()?;
        let has_clock = pattern.contains("%M");
        let date =
            TimeFormat::Pattern(date.to_owned()).parser().ok().filter(|_| !date.contains(' '));
        Some(Form { format, parser, date, has_clock })
    };
    let mut groups: Vec<Vec<Form>> = Vec::new();
    for group in DATES {
        for clock in CLOCKS {
            for zone in ZONES.iter().filter(|zone| zone.is_empty() || !clock.is_empty()) {
                let mut pattern = String::new();
                let forms = group.iter().filter_map(|date| {
                    pattern.clear();
                    write!(pattern, "{date}{clock}{zone}").ok()?;
                    form(&pattern, date)
                });
                groups.push(forms.collect());
            }
        }
    }
    groups.extend(OTHERS.iter().map(|pattern| form(pattern, pattern).into_iter().collect()));
    groups
});
