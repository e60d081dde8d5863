//! Fields that hold times.

use tidefall_types::Result;

use super::Sample;
use super::find::either;
use super::look::Look;
use crate::csv::time::TimeFormat;

/// Whether a field is known to hold times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IsTime {
    /// The caller or the table says so.
    Told,
    /// Its values may say so.
    Open,
}

/// How the times of a field are written, if it looks as if it held some. `time_format` is the form of the time itself, which
/// decides where day and month may be either.
///
/// # Errors
/// `Invalid` when it must hold times and may be read in two ways.
pub(super) fn format(
    sample: &Sample<'_>,
    column: usize,
    time_format: Option<&TimeFormat>,
    is_time: IsTime,
) -> Result<Option<TimeFormat>> {
    let values: Vec<&[u8]> = sample.values(column).collect();
    let look = Look::at(&values);
    let is_told = is_time == IsTime::Told;
    if look.is_weak() && !is_told {
        return Ok(None);
    }
    Ok(match look {
        Look::Instants(format) | Look::Dates(format) => Some(format),
        Look::Either(one, other) => match time_format {
            Some(format) if *format == one || *format == other => Some(format.clone()),
            _ if is_told => return Err(either(&sample.columns[column], &values, &one, &other)),
            _ => None,
        },
        Look::Digits(format) if is_told => Some(format),
        Look::Epochs(unit) if is_told => Some(TimeFormat::Unix(unit)),
        _ => None,
    })
}
