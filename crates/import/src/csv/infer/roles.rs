//! Which columns are time, tags and fields.

use tidefall_types::{Error, Result, TableSchema};

use super::{Sample, list};
use crate::csv::plan::TimePlan;
use crate::csv::scalar;
use crate::csv::time::{TimeFormat, TimeUnit};
use crate::{CsvOptions, TimeSource};

/// Names that a time column has, the best first; case does not matter.
const TIME_NAMES: [&str; 7] = ["time", "timestamp", "datetime", "date", "ts", "date_time", "epoch"];

/// Names of the parts of a time, in the order of [`crate::csv::time::parse_parts`].
const PART_NAMES: [&str; 6] = ["year", "month", "day", "hour", "minute", "second"];

/// Forms that are tried after ISO 8601. Those that read the same text differently stand in one
/// group: if two of a group read a column equally well, the caller must choose.
const PATTERN_GROUPS: [&[&str]; 6] = [
    &["%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S"],
    &["%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M"],
    &["%m/%d/%Y %I:%M:%S %p", "%d/%m/%Y %I:%M:%S %p"],
    &["%d/%m/%Y", "%m/%d/%Y"],
    &["%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%d.%m.%Y"],
    &["%d-%b-%Y %H:%M:%S", "%d-%b-%Y", "%d %b %Y %H:%M:%S", "%d %b %Y", "%b %d, %Y"],
];

/// Forms that are all digits and would be taken for numbers otherwise.
const DIGIT_PATTERNS: [(&str, usize); 2] = [("%Y%m%d", 8), ("%Y%m%d%H%M%S", 14)];

/// Values by which a form is judged.
const VALUES_MAX: usize = 200;

/// What each column is for.
pub(super) struct Roles {
    pub time: TimePlan,
    pub time_format: Option<TimeFormat>,
    pub tags: Vec<usize>,
    pub fields: Vec<usize>,
}

/// Gives every column its role.
pub(super) fn assign(sample: &Sample<'_>, options: &CsvOptions) -> Result<Roles> {
    let find_all = |names: &[String]| -> Result<Vec<usize>> {
        names.iter().map(|name| sample.find(name)).collect()
    };
    let skip = find_all(&options.skip)?;
    let fields = options.fields.as_deref().map(find_all).transpose()?;
    let tags = match &options.table {
        Some(table) if options.tags.is_empty() => {
            let time = match &options.time {
                TimeSource::Columns(names) => find_all(names)?,
                TimeSource::Auto => Vec::new(),
            };
            let others = [skip.as_slice(), fields.as_deref().unwrap_or_default(), &time].concat();
            tags_of_table(sample, table, &others)
        }
        _ => find_all(&options.tags)?,
    };
    let (time, time_format) = match &options.time {
        TimeSource::Columns(names) => given_time(sample, &find_all(names)?, options)?,
        TimeSource::Auto => {
            let free = |column: usize| {
                !tags.contains(&column)
                    && !skip.contains(&column)
                    && !fields.as_ref().is_some_and(|fields| fields.contains(&column))
            };
            find_time(sample, options, free)?
        }
    };
    let time_columns = time.columns();
    let fields = fields.unwrap_or_else(|| {
        (0..sample.columns.len())
            .filter(|column| {
                !time_columns.contains(column) && !tags.contains(column) && !skip.contains(column)
            })
            .collect()
    });
    if fields.is_empty() {
        return Err(Error::invalid(format!(
            "no column is left to be a field; the columns are {} (is the separator right?)",
            list(sample.columns)
        )));
    }
    if let Some(&column) = tags.iter().chain(&fields).find(|column| time_columns.contains(column)) {
        return Err(Error::invalid(format!(
            "column {:?} cannot be the time and something else too",
            sample.columns[column]
        )));
    }
    Ok(Roles { time, time_format, tags, fields })
}

/// The columns called like tags of the table, but for those that have another role.
fn tags_of_table(sample: &Sample<'_>, table: &TableSchema, others: &[usize]) -> Vec<usize> {
    let column = |tag: &String| sample.columns.iter().position(|column| column == tag);
    table.tags.iter().filter_map(column).filter(|column| !others.contains(column)).collect()
}

type FoundTime = (TimePlan, Option<TimeFormat>);

fn given_time(sample: &Sample<'_>, columns: &[usize], options: &CsvOptions) -> Result<FoundTime> {
    match *columns {
        [column] => {
            let format = match &options.time_format {
                Some(format) => format.clone(),
                None => detect(&texts(sample, column), Numbers::AreTimes)
                    .map_err(|error| error.context(format!("column {:?}", sample.columns[column])))?
                    .unwrap_or(TimeFormat::Iso),
            };
            one_column(column, format)
        }
        [date, clock] => {
            let format = match &options.time_format {
                Some(format) => format.clone(),
                None => detect(&joined(sample, [date, clock]), Numbers::AreNumbers)?
                    .unwrap_or(TimeFormat::Iso),
            };
            let parser = format.parser()?;
            Ok((TimePlan::DateAndClock { date, clock, parser }, Some(format)))
        }
        [_, _, _, ..] if columns.len() <= PART_NAMES.len() => {
            Ok((TimePlan::Parts(columns.to_vec()), None))
        }
        _ => Err(Error::invalid(
            "the time is one column, date and time of day, or 3 to 6 of year, month, day, hour, \
             minute, second",
        )),
    }
}

fn one_column(column: usize, format: TimeFormat) -> Result<FoundTime> {
    let parser = format.parser()?;
    Ok((TimePlan::One { column, parser }, Some(format)))
}

fn find_time(
    sample: &Sample<'_>,
    options: &CsvOptions,
    free: impl Fn(usize) -> bool,
) -> Result<FoundTime> {
    let named = |name: &str| {
        (0..sample.columns.len())
            .find(|&column| free(column) && sample.columns[column].eq_ignore_ascii_case(name))
    };
    if let (Some(date), Some(clock)) = (named("date"), named("time"))
        && looks_like_clock(&texts(sample, clock))
    {
        return given_time(sample, &[date, clock], options);
    }
    let candidates: Vec<usize> = TIME_NAMES.iter().filter_map(|name| named(name)).collect();
    if let (Some(format), Some(&column)) = (&options.time_format, candidates.first()) {
        return one_column(column, format.clone());
    }
    for &column in &candidates {
        if let Some(format) = detect(&texts(sample, column), Numbers::AreTimes)
            .map_err(|error| error.context(format!("column {:?}", sample.columns[column])))?
        {
            return one_column(column, format);
        }
    }
    for column in (0..sample.columns.len()).filter(|&column| free(column)) {
        if let Ok(Some(format)) = detect(&texts(sample, column), Numbers::AreNumbers) {
            return one_column(column, format);
        }
    }
    let parts: Vec<usize> = PART_NAMES.iter().map_while(|name| named(name)).collect();
    if parts.len() >= 3 {
        return Ok((TimePlan::Parts(parts), None));
    }
    if sample.records.len() == 0
        && let Some(&column) = candidates.first()
    {
        return one_column(column, TimeFormat::Iso);
    }
    Err(Error::invalid(format!(
        "no column looks like a time; say which one it is, and its format; the columns are {}",
        list(sample.columns)
    )))
}

fn texts(sample: &Sample<'_>, column: usize) -> Vec<Vec<u8>> {
    sample.values(column).take(VALUES_MAX).map(<[u8]>::to_vec).collect()
}

fn joined(sample: &Sample<'_>, [date, clock]: [usize; 2]) -> Vec<Vec<u8>> {
    (0..sample.records.len().min(VALUES_MAX))
        .map(|record| {
            let text = |column| sample.records.field(record, column).trim_ascii();
            [text(date), b" ", text(clock)].concat()
        })
        .collect()
}

fn looks_like_clock(texts: &[Vec<u8>]) -> bool {
    let clocks = texts.iter().filter(|text| {
        matches!(text.as_slice(), [b'0'..=b'9', b':', ..] | [b'0'..=b'9', b'0'..=b'9', b':', ..])
    });
    clocks.count() * 2 > texts.len()
}

/// What to think of a column of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbers {
    AreTimes,
    AreNumbers,
}

/// The form in which at least half of the texts are times.
fn detect(texts: &[Vec<u8>], numbers: Numbers) -> Result<Option<TimeFormat>> {
    if texts.is_empty() {
        return Ok(None);
    }
    let read = |format: &TimeFormat| -> Result<usize> {
        let mut parser = format.parser()?;
        Ok(texts.iter().filter(|text| parser.parse(text).is_ok()).count())
    };
    if read(&TimeFormat::Iso)? * 2 >= texts.len() {
        return Ok(Some(TimeFormat::Iso));
    }
    if numbers == Numbers::AreTimes {
        for (pattern, digits) in DIGIT_PATTERNS {
            let format = TimeFormat::Pattern(pattern.to_owned());
            if texts.iter().all(|text| text.len() == digits) && read(&format)? * 2 >= texts.len() {
                return Ok(Some(format));
            }
        }
        let counts = texts.iter().filter_map(|text| scalar::parse_f64(text));
        let mut counts: Vec<f64> = counts.filter(|count| count.is_finite()).collect();
        if counts.len() * 2 >= texts.len() {
            // The median: neither a zero nor a slip of the pen decides the unit.
            counts.sort_by(f64::total_cmp);
            let unit = TimeUnit::of_magnitude(counts[counts.len() / 2] as i64);
            return Ok(Some(TimeFormat::Unix(unit)));
        }
    }
    if texts.iter().filter(|text| scalar::parse_f64(text).is_some()).count() * 2 >= texts.len() {
        return Ok(None);
    }
    for group in PATTERN_GROUPS {
        let mut best: Vec<(usize, TimeFormat)> = Vec::new();
        for pattern in group {
            let format = TimeFormat::Pattern((*pattern).to_owned());
            best.push((read(&format)?, format));
        }
        best.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        match best.as_slice() {
            [(count, one), (second, other), ..] if count == second && count * 2 >= texts.len() => {
                return Err(Error::invalid(format!(
                    "{} may be {one:?} or {other:?}: say the time format",
                    scalar::quoted(&texts[0])
                )));
            }
            [(count, format), ..] if count * 2 >= texts.len() => return Ok(Some(format.clone())),
            _ => {}
        }
    }
    Ok(None)
}
