//! Which marks stand in the numbers of a file: decimal commas, and marks between thousands.

use super::look::spread;
use super::{Sample, list};
use crate::CsvOptions;
use crate::csv::scalar::{Numerals, parse_f64};

/// Marks that are tried beside plain ones, the simplest first.
const TRIED: [Numerals; 4] = [
    Numerals { decimal: b',', thousands: None },
    Numerals { decimal: b',', thousands: Some(b'.') },
    Numerals { decimal: b'.', thousands: Some(b',') },
    Numerals { decimal: b'.', thousands: Some(APOSTROPHE) },
];

/// What stands between thousands in Switzerland, and nowhere before decimals.
const APOSTROPHE: u8 = b'\'';

/// The marks of the numbers in `columns`, and what the caller should know about them.
///
/// Other marks than plain ones are taken only if nearly all numbers of the file have them, and if
/// some number can be read in no other way: 1,234 alone may be one or a thousand.
pub(super) fn find(
    sample: &Sample<'_>,
    columns: &[usize],
    options: &CsvOptions,
) -> (Numerals, Option<String>) {
    if options.decimal.is_some() || options.thousands.is_some() {
        let decimal = options.decimal.unwrap_or(match options.thousands {
            Some(b'.') => b',',
            _ => b'.',
        });
        return (Numerals { decimal, thousands: options.thousands }, None);
    }
    let (marked, texts) = marked(sample, columns);
    if marked.is_empty() {
        return (Numerals::PLAIN, None);
    }
    let reads = |numerals: Numerals| move |text: &&&[u8]| numerals.read(text, parse_f64).is_some();
    let reads_all = |numerals| nearly(texts.iter().filter(reads(numerals)).count(), texts.len());
    let all: Vec<Numerals> = TRIED.into_iter().filter(|numerals| reads_all(*numerals)).collect();
    let names = list(&marked);
    // Of two ways, each must be the only one for some number, or somebody has to choose.
    let is_proven = |numerals: &Numerals| {
        let is_other = |other: &Numerals| other.decimal != numerals.decimal;
        texts.iter().any(|text| {
            reads(*numerals)(&text)
                && !TRIED.into_iter().filter(is_other).any(|other| reads(other)(&text))
                && parse_f64(text).is_none()
        })
    };
    let has_both = |numerals: &Numerals| match numerals.thousands {
        None | Some(APOSTROPHE) => true,
        Some(mark) => {
            texts.iter().any(|text| text.contains(&mark) && text.contains(&numerals.decimal))
        }
    };
    match all.iter().find(|numerals| is_proven(numerals) && has_both(numerals)) {
        Some(numerals) => {
            let decimal = match numerals.decimal {
                b'.' => None,
                mark => Some(format!("{:?} before the decimals", char::from(mark))),
            };
            let thousands =
                numerals.thousands.map(|mark| format!("{:?} between thousands", char::from(mark)));
            let marks: Vec<String> = decimal.into_iter().chain(thousands).collect();
            let note = format!("the numbers of {names} have {}", marks.join(" and "));
            (*numerals, Some(note))
        }
        None => {
            let note = format!(
                "{names} may be numbers with decimal commas or commas between thousands: \
                 --decimal , or --thousands , reads them as numbers"
            );
            (Numerals::PLAIN, Some(note))
        }
    }
}

/// The columns of numbers with commas or apostrophes, and all numbers with marks.
fn marked<'a>(sample: &Sample<'a>, columns: &[usize]) -> (Vec<String>, Vec<&'a [u8]>) {
    let mut marked = Vec::new();
    let mut texts: Vec<&[u8]> = Vec::new();
    for &column in columns {
        let values: Vec<&[u8]> = sample.values(column).collect();
        let has_mark = |text: &&[u8]| text.iter().any(|&byte| matches!(byte, b',' | APOSTROPHE));
        let values = if spread(&values).iter().any(has_mark) { values } else { spread(&values) };
        let numbers: Vec<&[u8]> = values.iter().copied().filter(|text| is_marked(text)).collect();
        let plain = values.iter().filter(|text| parse_f64(text).is_some()).count();
        if numbers.iter().any(has_mark) && nearly(plain + numbers.len(), values.len()) {
            marked.push(sample.columns[column].clone());
        }
        texts.extend(numbers);
    }
    (marked, texts)
}

/// Whether a text is a number but for marks, or has a decimal point.
fn is_marked(text: &[u8]) -> bool {
    let has_mark = text.iter().any(|&byte| matches!(byte, b',' | b'.' | APOSTROPHE));
    has_mark
        && (parse_f64(text).is_some()
            || TRIED.iter().any(|numerals| numerals.read(text, parse_f64).is_some()))
}

fn nearly(count: usize, all: usize) -> bool {
    all > 0 && count * 100 >= all * 99
}
