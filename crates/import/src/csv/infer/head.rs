//! What stands above the data: remarks, and the names of the columns.

use tidefall_types::{Error, Result};

use super::list;
use super::look::Look;
use crate::csv::records::{Dialect, Index, Records, count_lines, first_record};
use crate::csv::scalar::{self, NullTexts, Numerals};
use crate::{CsvOptions, Header};

/// Records that the first one, or a line of units, is held against.
const COMPARED_MAX: usize = 100;

/// With what remarks above the data begin, unless the caller says otherwise.
const REMARK: u8 = b'#';

/// Numbers with a decimal comma.
const COMMAS: Numerals = Numerals { decimal: b',', thousands: None };

/// Where the data of a file begin, and what its columns are called.
pub(super) struct Head {
    pub dialect: Dialect,
    pub has_header: bool,
    /// The names of the columns, and whether each stands in the file.
    pub columns: Vec<(String, bool)>,
    /// Where the first record of data starts.
    pub data_start: usize,
    /// Advice for a file in which nothing can be found, if there is some.
    pub hint: String,
    /// What the caller should know about the choice.
    pub note: Option<String>,
}

impl Head {
    /// Looks at the first records of a file.
    pub fn of(sample: &[u8], options: &CsvOptions, nulls: &NullTexts) -> Result<Self> {
        let remarks = match options.comment {
            Some(_) => Vec::new(),
            None => remarks(sample),
        };
        let remarks_end = remarks.last().map_or(0, |(_, end)| *end);
        let rest = &sample[remarks_end..];
        let comment = options.comment;
        let separator = options.separator.unwrap_or_else(|| sniff_separator(rest, comment));
        if matches!(separator, b'"' | b'\n' | b'\r') {
            return Err(Error::invalid("the separator cannot be a quote or a line end"));
        }
        let dialect = Dialect { separator, comment };
        let no_data = || Error::invalid("there is no line with data in it");
        let (first, first_end) = match first_record(rest, dialect) {
            Some(first) => first,
            // Nothing but one line with a mark in front is a header, too.
            None => return Self::of_remark(sample, &remarks, dialect).ok_or_else(no_data),
        };
        let mut index = Index::default();
        index.fill(&rest[first_end..], dialect, first.len());
        let records = index.records(&rest[first_end..]);
        let has_header = match options.header {
            Header::Yes => true,
            Header::No => false,
            Header::Auto => looks_like_header(&first, records, nulls),
        };
        if !has_header
            && options.header == Header::Auto
            && let Some(head) = Self::of_remark(sample, &remarks, dialect)
            && head.columns.len() == first.len()
        {
            return Ok(head);
        }
        let columns = column_names(&first, has_header)?;
        let units = match has_header {
            true => units_below(&rest[first_end..], (dialect, first.len()), nulls),
            false => None,
        };
        let names_end = if has_header { first_end } else { 0 };
        let (units_end, note) = units.map_or((0, None), |(end, note)| (end, Some(note)));
        let data_start = remarks_end + names_end + units_end;
        let hint = lines_above(sample, dialect);
        Ok(Self { dialect, has_header, columns, data_start, hint, note })
    }

    /// Takes the last remark above the data for the names of the columns: `# time, value`.
    fn of_remark(sample: &[u8], remarks: &[(usize, usize)], dialect: Dialect) -> Option<Self> {
        let &(start, end) = remarks.last()?;
        let line = sample[start..end].strip_prefix(&[REMARK])?.trim_ascii_start();
        let (names, _) = first_record(line, dialect)?;
        let columns = column_names(&names, true).ok().filter(|columns| columns.len() > 1)?;
        let hint = String::new();
        Some(Self { dialect, has_header: true, columns, data_start: end, hint, note: None })
    }
}

/// Where a line of units below the names ends, and a remark about it: it has neither numbers nor times where all lines
/// below it have.
fn units_below(
    rest: &[u8],
    (dialect, columns): (Dialect, usize),
    nulls: &NullTexts,
) -> Option<(usize, String)> {
    /// One line may be as broken as the other.
    const RECORDS_MIN: usize = 2;
    let (units, end) = first_record(rest, dialect)?;
    let mut index = Index::default();
    index.fill(&rest[end..], dialect, columns);
    let records = index.records(&rest[end..]);
    if units.len() != columns || records.len() < RECORDS_MIN {
        return None;
    }
    let (mut times, mut named) = (0, Vec::new());
    for (column, unit) in units.iter().enumerate() {
        let texts: Vec<&[u8]> = (0..records.len().min(COMPARED_MAX))
            .map(|row| records.field(row, column).trim_ascii())
            .filter(|text| !nulls.contains(text))
            .collect();
        let is_time = is_time(&texts);
        let are_values = texts.iter().all(|text| kind(text) != Kind::Text);
        if texts.is_empty() || !is_time && !are_values {
            continue;
        }
        let unit = unit.trim_ascii();
        // F and T are units as well as truth values.
        if is_time_or_number(unit) {
            return None;
        }
        times += usize::from(is_time);
        if !unit.is_empty() && !nulls.contains(unit) {
            named.push(scalar::quoted(unit));
        }
    }
    // A row of data may lack numbers, but it has a time.
    (times > 0 && !named.is_empty()).then(|| {
        let note = format!(
            "the line below the names is taken for units ({}) and passed over",
            named.join(", ")
        );
        (end, note)
    })
}

/// Advice for a file most of whose first records have more columns than the first one.
fn lines_above(sample: &[u8], dialect: Dialect) -> String {
    const RECORDS_MAX: usize = 50;
    let mut records: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    while records.len() < RECORDS_MAX
        && let Some((fields, end)) = first_record(&sample[at..], dialect)
    {
        // Blank lines may stand before it.
        let above = count_lines(&sample[..at + end]) as usize - 1;
        records.push((above, fields.len()));
        at += end;
    }
    let most = records
        .iter()
        .map(|(_, columns)| *columns)
        .max_by_key(|columns| records.iter().filter(|(_, others)| others == columns).count());
    match (most, records.first(), records.iter().find(|(_, columns)| Some(*columns) == most)) {
        (Some(most), Some((_, first)), Some((above, _))) if most > *first => format!(
            "; most lines have {most} columns: --skip-lines {above} passes over what stands above \
             them"
        ),
        _ => String::new(),
    }
}

/// Where the lines above the data start and end that begin with the mark of remarks.
fn remarks(sample: &[u8]) -> Vec<(usize, usize)> {
    let mut remarks = Vec::new();
    let mut start = 0;
    for line in sample.split_inclusive(|byte| *byte == b'\n') {
        let end = start + line.len();
        match line.first() {
            Some(&REMARK) => remarks.push((start, end)),
            _ if line.trim_ascii().is_empty() => {}
            _ => break,
        }
        start = end;
    }
    remarks
}

/// The candidate that cuts most of the first records into the same number of fields; of equals
/// the one that makes more fields, but for commas between the digits of numbers.
fn sniff_separator(sample: &[u8], comment: Option<u8>) -> u8 {
    const RECORDS_MAX: usize = 50;
    let score = |separator: u8| {
        let (mut counts, mut has_commas) = (Vec::new(), false);
        let mut rest = sample;
        while counts.len() < RECORDS_MAX
            && let Some((fields, end)) = first_record(rest, Dialect { separator, comment })
        {
            counts.push(fields.len());
            has_commas |= fields.iter().any(|text| COMMAS.read(text, scalar::parse_f64).is_some());
            rest = &rest[end..];
        }
        let most = counts
            .iter()
            .filter(|&&count| count > 1)
            .map(|count| (counts.iter().filter(|other| *other == count).count(), *count))
            .max()
            .unwrap_or((0, 0));
        (most, has_commas)
    };
    let mut best = (b',', (0, 0));
    for separator in [b',', b';', b'\t', b'|'] {
        let (score, has_commas) = score(separator);
        if score > best.1 || best.0 == b',' && score.0 == best.1.0 && score.0 > 0 && has_commas {
            best = (separator, score);
        }
    }
    best.0
}

/// A column whose values are numbers, times or booleans speaks for a header when the first record
/// has something else there, and against one when it has the same. A time among times decides against
/// one. One that speaks for it is enough when it is the time, or when no fewer speak for it than against
/// it: sensors may be called by numbers.
fn looks_like_header(first: &[Vec<u8>], records: Records<'_>, nulls: &NullTexts) -> bool {
    let typed = |text: &[u8]| (kind(text) != Kind::Text, kind(text) == Kind::Time);
    if records.len() == 0 {
        return !first.iter().any(|text| typed(text).0 || is_time(&[text]));
    }
    let among_times = times_among_times(first, records, nulls);
    if among_times == Some(Written::Text) {
        return false;
    }
    let (mut header, mut data, mut time_is_named) = (0, 0, false);
    for (column, name) in first.iter().enumerate() {
        let rows = 0..records.len().min(COMPARED_MAX);
        let values: Vec<(bool, bool)> = rows
            .map(|record| records.field(record, column))
            .filter(|text| !nulls.contains(text))
            .map(typed)
            .collect();
        let (typed_values, times) = values.iter().fold((0, 0), |sum, value| {
            (sum.0 + usize::from(value.0), sum.1 + usize::from(value.1))
        });
        if values.is_empty() || typed_values * 2 < values.len() || nulls.contains(name) {
            continue;
        }
        if typed(name).0 {
            data += 1;
        } else {
            header += 1;
            // The first row of data may well have a broken time, but not one of a few letters.
            time_is_named |= times * 2 >= values.len() && !name.iter().any(u8::is_ascii_digit);
        }
    }
    match header + data {
        0 => !has_duplicates(first),
        _ => time_is_named || among_times.is_none() && header >= data.max(1),
    }
}

/// How times are written, the surest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Written {
    /// With marks between their parts.
    Text,
    /// As numbers.
    Number,
}

/// How the first record writes a time in a column most of whose values are times, if it does.
fn times_among_times(
    first: &[Vec<u8>],
    records: Records<'_>,
    nulls: &NullTexts,
) -> Option<Written> {
    let written = |texts: &[&[u8]]| match Look::at(texts) {
        Look::Instants(_) | Look::Dates(_) | Look::Either(..) => Some(Written::Text),
        Look::Digits(_) | Look::Epochs(_) => Some(Written::Number),
        Look::Years | Look::SpreadsheetDays | Look::Other => None,
    };
    let columns = first.iter().enumerate().filter_map(|(column, text)| {
        let of_first = written(&[text.trim_ascii()])?;
        let values: Vec<&[u8]> = (0..records.len().min(COMPARED_MAX))
            .map(|record| records.field(record, column).trim_ascii())
            .filter(|text| !nulls.contains(text))
            .collect();
        (written(&values) == Some(of_first)).then_some(of_first)
    });
    columns.min()
}

/// What a text is, at first sight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Time,
    /// A number or a truth value.
    Value,
    Text,
}

fn kind(text: &[u8]) -> Kind {
    let text = text.trim_ascii();
    let is_time = std::str::from_utf8(text).is_ok_and(|t| tidefall_types::parse_time(t).is_ok());
    match is_time {
        true => Kind::Time,
        false if scalar::parse_f64(text).is_some() => Kind::Value,
        false if scalar::parse_bool(text).is_some() => Kind::Value,
        false => Kind::Text,
    }
}

fn is_time(texts: &[&[u8]]) -> bool {
    matches!(Look::at(texts), Look::Instants(_) | Look::Dates(_) | Look::Either(..))
}

fn is_time_or_number(text: &[u8]) -> bool {
    scalar::parse_f64(text).is_some() || is_time(&[text])
}

fn has_duplicates(names: &[Vec<u8>]) -> bool {
    let mut sorted: Vec<&Vec<u8>> = names.iter().collect();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

fn column_names(first: &[Vec<u8>], has_header: bool) -> Result<Vec<(String, bool)>> {
    let mut names = Vec::with_capacity(first.len());
    for (column, text) in first.iter().enumerate() {
        let text = std::str::from_utf8(text).map_err(|_| {
            Error::invalid(format!(
                "the name of column {}, {}, is not UTF-8; convert the file to UTF-8",
                column + 1,
                scalar::quoted(text)
            ))
        })?;
        let is_named = has_header && !text.trim().is_empty();
        let name = if is_named { text.trim().to_owned() } else { format!("column_{}", column + 1) };
        names.push((name, is_named));
    }
    let mut sorted: Vec<&String> = names.iter().map(|(name, _)| name).collect();
    sorted.sort_unstable();
    let mut doubled: Vec<String> =
        sorted.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone()).collect();
    doubled.dedup();
    if doubled.is_empty() {
        return Ok(names);
    }
    Err(Error::invalid(format!(
        "the header names {} more than once; give each column its own name",
        list(&doubled)
    )))
}
