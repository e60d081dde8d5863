//! What is done with each column of a file, decided once before the first row.

use tidefall_types::{Error, FieldType, Result};

use super::records::{Dialect, Records};
use super::scalar::{NullTexts, Numerals};
use super::time::{Clock, PARTS_MAX, TimeParser, parse_parts};
use crate::LocalZone;

/// How to make rows of the records of one file.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub dialect: Dialect,
    /// The number of fields of a record.
    pub columns: usize,
    pub time: TimePlan,
    pub tags: Vec<TagPlan>,
    pub constant_tags: Vec<(String, String)>,
    pub fields: Vec<FieldPlan>,
    /// The tag that takes the names of `fields`, when each of them is a sensor.
    pub wide_tag: Option<String>,
    /// What stands for a missing number, time or boolean.
    pub nulls: NullTexts,
    /// What stands for a missing text.
    pub text_nulls: NullTexts,
    /// What stands for a missing tag.
    pub tag_nulls: NullTexts,
    pub numerals: Numerals,
    /// The zone of times that name none, other than UTC.
    pub zone: Option<LocalZone>,
}

impl Plan {
    /// Lets the times of texts that name no zone be in that of the plan.
    pub fn use_zone(&mut self) {
        if let TimePlan::One { parser, .. } | TimePlan::Joined { parser, .. } = &mut self.time {
            *parser = parser.clone().with_zone(self.zone);
        }
        if self.zone.is_some() {
            for field in &mut self.fields {
                field.times = Some(field.times.take().unwrap_or_default().with_zone(self.zone));
            }
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct TagPlan {
    pub name: String,
    pub column: usize,
}

#[derive(Debug, Clone)]
pub(super) struct FieldPlan {
    pub name: String,
    pub column: usize,
    pub ty: FieldType,
    /// How its values are written if they are times.
    pub times: Option<TimeParser>,
}

/// Which columns the time is made of.
#[derive(Debug, Clone)]
pub(super) enum TimePlan {
    One {
        column: usize,
        parser: TimeParser,
    },
    /// The texts of two columns, with a blank between them.
    Joined {
        columns: [usize; 2],
        parser: TimeParser,
    },
    /// Year, month, day and so on.
    Parts(Vec<usize>),
    /// A date and the time of day beside it.
    WithClock {
        date: Box<Self>,
        clock: ClockPlan,
    },
}

/// Which columns the time of day is made of.
#[derive(Debug, Clone)]
pub(super) enum ClockPlan {
    One {
        column: usize,
        clock: Clock,
    },
    /// Hour, minute and so on.
    Parts(Vec<usize>),
}

impl TimePlan {
    /// The columns, in the order of their meaning.
    pub fn columns(&self) -> Vec<usize> {
        match self {
            Self::One { column, .. } => vec![*column],
            Self::Joined { columns, .. } => columns.to_vec(),
            Self::Parts(columns) => columns.clone(),
            Self::WithClock { date, clock } => [date.columns(), clock.columns()].concat(),
        }
    }

    /// Reads the time of each record and hands it to `take`. Returns how many of them clocks in `zone` showed twice.
    pub fn parse_all(
        &mut self,
        records: Records<'_>,
        zone: Option<LocalZone>,
        mut take: impl FnMut(usize, Result<i64>),
    ) -> u64 {
        match self {
            Self::One { column, parser } => {
                for (record, text) in records.column(*column).enumerate() {
                    take(record, parser.parse(text));
                }
                parser.take_twice()
            }
            Self::Joined { .. } => {
                (0..records.len()).for_each(|record| take(record, self.parse(records, record)));
                let Self::Joined { parser, .. } = self else { return 0 };
                parser.take_twice()
            }
            // Their parts together are what clocks showed.
            Self::Parts(_) | Self::WithClock { .. } => {
                let mut twice = 0;
                for record in 0..records.len() {
                    let time = self.parse(records, record);
                    take(
                        record,
                        match zone {
                            Some(zone) => {
                                time.and_then(|local_ns| zone.instant(local_ns, &mut twice))
                            }
                            None => time,
                        },
                    );
                }
                twice
            }
        }
    }

    /// Reads the time of one record.
    pub fn parse(&mut self, records: Records<'_>, record: usize) -> Result<i64> {
        let text = |column: usize| records.field(record, column);
        match self {
            Self::One { column, parser } => parser.parse(text(*column)),
            Self::Joined { columns, parser } => {
                let [first, second] = columns.map(|column| text(column).trim_ascii());
                parser.parse(&[first, b" ", second].concat())
            }
            Self::Parts(columns) => parse_parts_of(&[], columns, text),
            Self::WithClock { date, clock } => {
                let midnight_ns = date.parse(records, record)?;
                let clock_ns = match clock {
                    ClockPlan::One { column, clock } => clock.parse(text(*column))?,
                    ClockPlan::Parts(columns) => parse_parts_of(&NO_DATE, columns, text)?,
                };
                midnight_ns.checked_add(clock_ns).ok_or_else(|| {
                    Error::invalid("the time lies outside of 1677-09-21 .. 2262-04-11")
                })
            }
        }
    }
}

impl ClockPlan {
    pub fn columns(&self) -> Vec<usize> {
        match self {
            Self::One { column, .. } => vec![*column],
            Self::Parts(columns) => columns.clone(),
        }
    }
}

/// The date in front of parts that are a time of day alone.
const NO_DATE: [&[u8]; 3] = [b"1970", b"1", b"1"];

fn parse_parts_of<'a>(
    date: &[&'a [u8]],
    columns: &[usize],
    text: impl Fn(usize) -> &'a [u8],
) -> Result<i64> {
    let mut parts = [&b""[..]; PARTS_MAX];
    let all = date.iter().copied().chain(columns.iter().map(|&column| text(column)));
    parts.iter_mut().zip(all).for_each(|(part, text)| *part = text);
    parse_parts(&parts[..(date.len() + columns.len()).min(PARTS_MAX)])
}
