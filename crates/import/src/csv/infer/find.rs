//! Which columns hold the time, and how it is written there.
//!
//! 1. Every column that may be the time is looked at: what its values are, seen as times.
//! 2. Dates are put together with the times of day beside them, years with months and days.
//! 3. A column that is called the time of its row, and whose values can be that, wins over others.
//! 4. Else what tells most about the moment of a row wins: text with a time of day, then numbers since
//!    1970, then dates, then parts of dates, then years. Names choose among equals.
//! 5. When a part of the time would be left over, equals cannot be told apart, or a column whose name fits
//!    better says something else, the caller is asked: rows with wrong times replace each other.

mod doubt;

use std::collections::HashSet;

use tidefall_types::{Error, NS_PER_DAY, Result};

use super::look::{Look, spread};
use super::names::{self, Beside, Fit};
use super::{Sample, list};
use crate::csv::plan::{ClockPlan, TimePlan};
use crate::csv::scalar::{self, quoted};
use crate::csv::time::{Clock, Digits, PARTS_MAX, TimeFormat};
use crate::options::Known;

/// Distinct hours from which on a column of small numbers that is only called a time is one of
/// hours.
const HOURS_MIN: usize = 12;

/// The time of a file.
pub(super) struct FoundTime {
    pub plan: TimePlan,
    /// How it is written, where it is one text.
    pub format: Option<TimeFormat>,
    /// What the caller should know about the choice.
    pub notes: Vec<String>,
}

/// How much a time says about the moment of a row, the most first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Instant,
    Epoch,
    Date,
    Parts,
    Year,
}

/// Whether something is called the time of its row; the least is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Called {
    /// It is, and its values can be nothing but times.
    Time,
    Otherwise,
}

/// Something that may be the time.
struct Candidate {
    known: Known,
    called: Called,
    kind: Kind,
    fit: Fit,
    columns: Vec<usize>,
    /// Why it cannot be read when it is the time, if so.
    time: Result<(TimePlan, Option<TimeFormat>)>,
    /// What its columns are taken for, where that is not plain.
    taken_for: Option<String>,
}

impl Candidate {
    /// The least is the best.
    fn rank(&self) -> (Known, Called, Kind, Fit) {
        (self.known, self.called, self.kind, self.fit)
    }
}

/// The time that the caller names.
pub(super) fn given(
    sample: &Sample<'_>,
    columns: &[usize],
    format: Option<&TimeFormat>,
) -> Result<FoundTime> {
    let found = |plan, format| FoundTime { plan, format, notes: Vec::new() };
    match (columns, format) {
        ([], _) => Err(Error::invalid("the time is at least one column")),
        (_, _) if columns.len() > PARTS_MAX => Err(Error::invalid(
            "the time is one column, a date and a time of day, or 2 to 6 of year, month, day, \
             hour, minute, second",
        )),
        ([column], Some(format)) => Ok(found(one(*column, format)?, Some(format.clone()))),
        ([first, second], Some(format)) => {
            let plan = TimePlan::Joined { columns: [*first, *second], parser: format.parser()? };
            Ok(found(plan, Some(format.clone())))
        }
        (_, Some(_)) => Err(Error::invalid("a time format is for one column, or for two")),
        ([column], None) => given_column(sample, *column),
        (_, None) if sample.records.len() == 0 => {
            Ok(found(TimePlan::Parts(columns.to_vec()), None))
        }
        (_, None) => given_columns(sample, columns),
    }
}

fn one(column: usize, format: &TimeFormat) -> Result<TimePlan> {
    Ok(TimePlan::One { column, parser: format.parser()? })
}

fn given_column(sample: &Sample<'_>, column: usize) -> Result<FoundTime> {
    let name = &sample.columns[column];
    let values: Vec<&[u8]> = sample.values(column).collect();
    let mut notes = Vec::new();
    let format = format_of(name, &values)?;
    if matches!(&format, TimeFormat::Pattern(pattern) if pattern == YEAR) {
        if names::part(name) != Some(0) {
            notes.push(format!("the numbers of {name:?} are taken for years"));
        }
        return Ok(FoundTime { plan: TimePlan::Parts(vec![column]), format: None, notes });
    }
    Ok(FoundTime { plan: one(column, &format)?, format: Some(format), notes })
}

/// The format of years alone.
const YEAR: &str = "%Y";

/// How the times are written of which `values` are some.
///
/// # Errors
/// `Invalid`, naming some of the values and what can be said about them, when that is not clear.
pub(crate) fn format_of(name: &str, values: &[&[u8]]) -> Result<TimeFormat> {
    let what = match Look::at(values) {
        Look::Instants(format) | Look::Dates(format) | Look::Digits(format) => return Ok(format),
        Look::Epochs(unit) => return Ok(TimeFormat::Unix(unit)),
        Look::Years => return Ok(TimeFormat::Pattern(YEAR.to_owned())),
        Look::Either(one, other) => return Err(either(name, values, &one, &other)),
        Look::Other if values.is_empty() => return Ok(TimeFormat::Iso),
        Look::SpreadsheetDays => "may be days as spreadsheets count them",
        Look::Other => "are no times in a form that is known",
    };
    Err(Error::invalid(format!(
        "{} {what}: say what they are with --time-format s, ms, us or ns (since 1970), excel (days \
         as in spreadsheets), or a pattern such as \"%d.%m.%Y %H:%M\", or name another column",
        show(name, values)
    )))
}

fn given_columns(sample: &Sample<'_>, columns: &[usize]) -> Result<FoundTime> {
    let (date, rest) = (columns[0], &columns[1..]);
    let found = |plan, format| FoundTime { plan, format, notes: Vec::new() };
    let reads = |plan: &TimePlan| share_read(sample, plan) >= 0.5;
    if let [clock] = *rest {
        let iso = TimePlan::Joined { columns: [date, clock], parser: TimeFormat::Iso.parser()? };
        if reads(&iso) {
            return Ok(found(iso, Some(TimeFormat::Iso)));
        }
    }
    let parts = TimePlan::Parts(columns.to_vec());
    let are_parts = rest.len() > 1 || names::part(&sample.columns[rest[0]]) == Some(1);
    if are_parts && reads(&parts) {
        return Ok(found(parts, None));
    }
    let values: Vec<&[u8]> = sample.values(date).collect();
    let format = match Look::at(&values) {
        Look::Instants(format) | Look::Dates(format) | Look::Digits(format) => Some(format),
        Look::Either(one, other) => {
            return Err(either(&sample.columns[date], &values, &one, &other));
        }
        _ => None,
    };
    let clock = match *rest {
        [column] => clock_of(sample, column).map(|clock| ClockPlan::One { column, clock }),
        _ => Some(ClockPlan::Parts(rest.to_vec())),
    };
    if let (Some(format), Some(clock)) = (format, clock) {
        let plan = TimePlan::WithClock { date: Box::new(one(date, &format)?), clock };
        if reads(&plan) {
            return Ok(found(plan, Some(format)));
        }
    }
    let shown: Vec<String> = columns.iter().map(|&column| show_column(sample, column)).collect();
    Err(Error::invalid(format!(
        "{} make no time together; expected a date and a time of day, or year, month, day and so \
         on; two columns may be read with a --time-format for both",
        shown.join(" and ")
    )))
}

/// The time of a file of which nobody says where it stands.
pub(super) fn find(
    sample: &Sample<'_>,
    format: Option<&TimeFormat>,
    free: &[usize],
    known: &dyn Fn(usize) -> Known,
) -> Result<FoundTime> {
    let finder = Finder { sample, free, known };
    let mut candidates = match format {
        Some(format) => finder.of_format(format)?,
        None if sample.records.len() == 0 => finder.by_name()?,
        None => finder.all()?,
    };
    candidates.sort_by_key(|found| {
        let columns = &found.columns;
        (found.rank(), columns.first().copied(), std::cmp::Reverse(columns.len()))
    });
    if candidates.is_empty() {
        return Err(finder.nothing(format));
    }
    let winner = candidates.remove(0);
    let (plan, format) = winner.time.clone()?;
    finder.check_left_over(&winner)?;
    finder.check_better_names(&winner, &candidates)?;
    let notes = finder.notes(&winner, &candidates)?;
    Ok(FoundTime { plan, format, notes })
}

struct Finder<'a> {
    sample: &'a Sample<'a>,
    /// Columns that may be the time.
    free: &'a [usize],
    /// What a column is in the table.
    known: &'a dyn Fn(usize) -> Known,
}

impl Finder<'_> {
    fn name(&self, column: usize) -> &str {
        &self.sample.columns[column]
    }

    fn fit(&self, column: usize) -> Fit {
        match self.sample.has_header {
            true => names::fit(self.name(column)),
            false => Fit::Unnamed,
        }
    }

    fn called(&self, columns: &[usize]) -> Called {
        let is_time = |&column: &usize| names::is_instant(self.name(column));
        match self.sample.has_header && columns.iter().any(is_time) {
            true => Called::Time,
            false => Called::Otherwise,
        }
    }

    fn single(&self, kind: Kind, column: usize, format: TimeFormat) -> Candidate {
        let time = one(column, &format).map(|plan| (plan, Some(format)));
        let (known, fit) = ((self.known)(column), self.fit(column));
        let called = self.called(&[column]);
        Candidate { known, called, kind, fit, columns: vec![column], time, taken_for: None }
    }

    /// Columns that a given format reads.
    fn of_format(&self, format: &TimeFormat) -> Result<Vec<Candidate>> {
        let mut candidates = Vec::new();
        for &column in self.free {
            let is_named = matches!(self.fit(column), Fit::Name(_));
            let reads = match self.sample.values(column).next() {
                Some(_) => share_read(self.sample, &one(column, format)?) >= 0.5,
                None => is_named,
            };
            if reads {
                candidates.push(self.single(Kind::Instant, column, format.clone()));
            }
        }
        Ok(candidates)
    }

    /// Columns that are called like times, in a file without rows.
    fn by_name(&self) -> Result<Vec<Candidate>> {
        let named = self.free.iter().filter(|&&column| matches!(self.fit(column), Fit::Name(_)));
        Ok(named.map(|&column| self.single(Kind::Instant, column, TimeFormat::Iso)).collect())
    }

    fn all(&self) -> Result<Vec<Candidate>> {
        let mut candidates = Vec::new();
        for &column in self.free {
            let values: Vec<&[u8]> = self.sample.values(column).collect();
            let look = Look::at(&values);
            let fit = self.fit(column);
            if look.is_weak() && !matches!(fit, Fit::Name(_) | Fit::Word) {
                continue;
            }
            let candidate = self.of_look(column, &look, &values);
            // Other things are written so, too.
            let called = |found: &Candidate| match look.is_weak() {
                true => Called::Otherwise,
                false => found.called,
            };
            candidates.extend(candidate.map(|found| Candidate { called: called(&found), ..found }));
        }
        candidates.extend(self.parts());
        let mut paired = Vec::new();
        for candidate in &candidates {
            paired.extend(self.with_clock(candidate));
        }
        candidates.extend(paired);
        Ok(candidates)
    }

    fn of_look(&self, column: usize, look: &Look, values: &[&[u8]]) -> Option<Candidate> {
        Some(match look {
            Look::Instants(format) => self.single(Kind::Instant, column, format.clone()),
            Look::Dates(format) => self.single(Kind::Date, column, format.clone()),
            Look::Digits(format) => {
                let has_clock = matches!(format, TimeFormat::Pattern(p) if p.contains("%H"));
                let kind = if has_clock { Kind::Instant } else { Kind::Date };
                self.single(kind, column, format.clone())
            }
            Look::Either(one, other) => {
                let has_clock = matches!(one, TimeFormat::Pattern(p) if p.contains("%M"));
                let kind = if has_clock { Kind::Instant } else { Kind::Date };
                let time = Err(either(self.name(column), values, one, other));
                Candidate { time, ..self.single(kind, column, one.clone()) }
            }
            // Numbers need a name that speaks for them, or no names at all and no doubt.
            Look::Epochs(unit) => {
                let numbers = || values.iter().filter_map(|text| scalar::parse_f64(text));
                match self.fit(column) {
                    Fit::Other => return None,
                    Fit::Unnamed if !numbers().all(|number| unit.is_plausible(number)) => {
                        return None;
                    }
                    _ => self.single(Kind::Epoch, column, TimeFormat::Unix(*unit)),
                }
            }
            Look::Years | Look::SpreadsheetDays | Look::Other => return None,
        })
    }

    /// Year, month, day and so on, as far as such columns are there and hold such numbers.
    fn parts(&self) -> Option<Candidate> {
        let named = |part: usize| {
            self.free.iter().copied().find(|&column| names::part(self.name(column)) == Some(part))
        };
        let mut columns: Vec<usize> = (0..PARTS_MAX).map_while(named).collect();
        while !columns.is_empty() {
            let plan = TimePlan::Parts(columns.clone());
            if share_read(self.sample, &plan) >= 0.5 {
                let kind = if columns.len() == 1 { Kind::Year } else { Kind::Parts };
                let (time, known) = (Ok((plan, None)), (self.known)(columns[0]));
                let (fit, called) = (Fit::Word, Called::Otherwise);
                return Some(Candidate {
                    known,
                    called,
                    kind,
                    fit,
                    columns,
                    time,
                    taken_for: None,
                });
            }
            columns.pop();
        }
        None
    }

    /// The columns that go with a date by their names, and hold something.
    fn beside(&self, date: &Candidate) -> Vec<(usize, Beside)> {
        let name = match (date.kind, date.columns.as_slice()) {
            (Kind::Parts, [_, _, _]) => "",
            (Kind::Date, [column]) => self.name(*column),
            // Programs write dates as midnights, too.
            (Kind::Instant, [column]) if self.are_midnights(date) => self.name(*column),
            _ => return Vec::new(),
        };
        let is_clock = |column: usize| {
            let values: Vec<&[u8]> = self.sample.values(column).collect();
            // What has dates is no time of day, whatever its name.
            !values.is_empty()
                && matches!(
                    Look::at(&values),
                    Look::Digits(_) | Look::Years | Look::SpreadsheetDays | Look::Other
                )
        };
        let free = self.free.iter().copied().filter(|column| !date.columns.contains(column));
        free.map(|column| (column, names::beside(self.name(column), name)))
            .filter(|&(column, beside)| beside != Beside::Nothing && is_clock(column))
            .collect()
    }

    /// A date, together with the time of day beside it.
    fn with_clock(&self, date: &Candidate) -> Option<Candidate> {
        self.beside(date).into_iter().find_map(|(column, beside)| {
            let (clock, taken_for) = self.clock_beside(column, beside)?;
            let plan = |(date, format): (TimePlan, Option<TimeFormat>)| {
                self.joined_iso(&date, column).unwrap_or_else(|| {
                    (TimePlan::WithClock { date: Box::new(date), clock: clock.clone() }, format)
                })
            };
            let columns = [date.columns.as_slice(), &clock.columns()].concat();
            Some(Candidate {
                known: date.known,
                called: self.called(&columns),
                kind: Kind::Instant,
                fit: date.fit,
                columns,
                time: date.time.clone().map(plan),
                taken_for,
            })
        })
    }

    /// Date and time of day as one ISO text, in which a zone may follow.
    fn joined_iso(&self, date: &TimePlan, clock: usize) -> Option<(TimePlan, Option<TimeFormat>)> {
        let TimePlan::One { column, .. } = date else { return None };
        let parser = TimeFormat::Iso.parser().ok()?;
        let plan = TimePlan::Joined { columns: [*column, clock], parser };
        (share_read(self.sample, &plan) >= 0.5).then_some((plan, Some(TimeFormat::Iso)))
    }

    fn are_midnights(&self, date: &Candidate) -> bool {
        let Ok((plan, _)) = &date.time else { return false };
        let mut plan = plan.clone();
        let times = rows(self.sample).filter_map(|row| plan.parse(self.sample.records, row).ok());
        let mut times = times.peekable();
        times.peek().is_some() && times.all(|time_ns| time_ns % NS_PER_DAY == 0)
    }

    /// How a column that goes with a date by its name makes a time of day, and what it is taken
    /// for where that is not plain.
    fn clock_beside(&self, column: usize, beside: Beside) -> Option<(ClockPlan, Option<String>)> {
        let clock = clock_of(self.sample, column)?;
        if let Clock::Digits(digits) = &clock {
            let distinct: HashSet<&[u8]> = self.sample.values(column).collect();
            let too_few = *digits == Digits::Hours && distinct.len() < HOURS_MIN;
            if beside != Beside::Hour && too_few {
                return None;
            }
            let part = |part| {
                let is = |column: &&usize| names::part(self.name(**column)) == Some(part);
                self.free.iter().find(is).copied()
            };
            let parts: Vec<usize> = (3..PARTS_MAX).map_while(part).collect();
            if parts.len() > 1 && parts[0] == column && *digits == Digits::Hours {
                return Some((ClockPlan::Parts(parts), None));
            }
        }
        let meaning = format!("{:?} as {}", self.name(column), clock.meaning());
        let is_plain = beside == Beside::Hour || matches!(clock, Clock::Pattern(..));
        Some((ClockPlan::One { column, clock }, (!is_plain).then_some(meaning)))
    }

    fn nothing(&self, format: Option<&TimeFormat>) -> Error {
        let columns = list(self.sample.columns);
        if let Some(format) = format {
            return Error::invalid(format!(
                "no column has times of the form {format}; the columns are {columns}"
            ));
        }
        let hints: Vec<String> = self.free.iter().filter_map(|&column| self.hint(column)).collect();
        let hints = match hints.is_empty() {
            true => String::new(),
            false => format!("; {}", hints.join("; ")),
        };
        Error::invalid(format!(
            "no column looks like a time; say which one it is with --time, and its --time-format; \
             the columns are {columns}{hints}{}",
            self.sample.head_hint
        ))
    }

    /// What a column may be that is not taken for the time.
    fn hint(&self, column: usize) -> Option<String> {
        let values: Vec<&[u8]> = self.sample.values(column).collect();
        let name = self.name(column);
        let named = matches!(self.fit(column), Fit::Name(_));
        match Look::at(&values) {
            Look::Epochs(unit) => {
                Some(format!("{name:?} may count {unit} since 1970: --time {name}"))
            }
            Look::SpreadsheetDays if named => Some(format!(
                "{} may be days as spreadsheets count them: --time-format excel",
                show(name, &values)
            )),
            Look::Years if named => Some(format!("{name:?} may be years: --time {name}")),
            look if look.is_weak() => {
                Some(format!("{} may be times: --time {name}", show(name, &values)))
            }
            _ if named => Some(format!("{} are no times", show(name, &values))),
            _ => None,
        }
    }
}

/// How a column makes a time of day by its values.
fn clock_of(sample: &Sample<'_>, column: usize) -> Option<Clock> {
    let values: Vec<&[u8]> = sample.values(column).collect();
    let numbers = || values.iter().filter_map(|text| scalar::parse_f64(text));
    if numbers().count() * 2 < values.len() {
        return Clock::of_texts(&spread(&values));
    }
    let clock = Clock::of_numbers(&values)?;
    // 45 alone is more likely to be a minute than 00:45.
    let has_hours = || numbers().any(|number| number >= 100.0);
    (clock == Clock::Digits(Digits::Hours) || has_hours()).then_some(clock)
}

/// Rows from all over the sample.
fn rows(sample: &Sample<'_>) -> impl Iterator<Item = usize> + use<> {
    const ROWS_MAX: usize = 200;
    let rows = sample.records.len();
    (0..rows).step_by(rows.div_ceil(ROWS_MAX).max(1))
}

/// The share of rows whose time can be read.
fn share_read(sample: &Sample<'_>, plan: &TimePlan) -> f64 {
    let mut plan = plan.clone();
    let has_text = |row: usize| {
        let mut columns = plan.columns().into_iter();
        columns.all(|column| !sample.nulls.contains(sample.records.field(row, column)))
    };
    let rows: Vec<usize> = rows(sample).filter(|&row| has_text(row)).collect();
    let read = rows.iter().filter(|&&row| plan.parse(sample.records, row).is_ok()).count();
    read as f64 / rows.len().max(1) as f64
}

/// A column and some of its values, for a message.
fn show(name: &str, values: &[&[u8]]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<String> = values.iter().take(SHOWN).map(|text| quoted(text)).collect();
    let more = if values.len() > SHOWN { ", ..." } else { "" };
    format!("{name:?} ({}{more})", shown.join(", "))
}

fn show_column(sample: &Sample<'_>, column: usize) -> String {
    let values: Vec<&[u8]> = sample.values(column).collect();
    show(&sample.columns[column], &values)
}

pub(super) fn either(name: &str, values: &[&[u8]], one: &TimeFormat, other: &TimeFormat) -> Error {
    Error::invalid(format!(
        "{} may be of the form {one} or {other}: say the time format with --time-format",
        show(name, values)
    ))
}
