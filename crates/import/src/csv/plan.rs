//! What is done with each column of a file, decided once before the first row.

use tidefall_types::{FieldType, Result};

use super::scalar::NullTexts;
use super::time::{TimeParser, parse_parts};

/// How to make rows of the records of one file.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub separator: u8,
    /// The number of fields of a record.
    pub columns: usize,
    pub time: TimePlan,
    pub tags: Vec<TagPlan>,
    pub constant_tags: Vec<(String, String)>,
    pub fields: Vec<FieldPlan>,
    /// The tag that takes the names of `fields`, when each of them is a sensor.
    pub wide_tag: Option<String>,
    pub nulls: NullTexts,
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
}

/// Which columns the time is made of.
#[derive(Debug, Clone)]
pub(super) enum TimePlan {
    One { column: usize, parser: TimeParser },
    DateAndClock { date: usize, clock: usize, parser: TimeParser },
    Parts(Vec<usize>),
}

impl TimePlan {
    /// The columns, in the order of their meaning.
    pub fn columns(&self) -> Vec<usize> {
        match self {
            Self::One { column, .. } => vec![*column],
            Self::DateAndClock { date, clock, .. } => vec![*date, *clock],
            Self::Parts(columns) => columns.clone(),
        }
    }

    /// Reads the time of each record and hands it to `take`.
    pub fn parse_all(
        &mut self,
        records: super::records::Records<'_>,
        mut take: impl FnMut(usize, Result<i64>),
    ) {
        match self {
            Self::One { column, parser } => {
                for (record, text) in records.column(*column).enumerate() {
                    take(record, parser.parse(text));
                }
            }
            Self::DateAndClock { date, clock, parser } => {
                let mut joined = Vec::new();
                for record in 0..records.len() {
                    joined.clear();
                    joined.extend_from_slice(records.field(record, *date).trim_ascii());
                    joined.push(b' ');
                    joined.extend_from_slice(records.field(record, *clock).trim_ascii());
                    take(record, parser.parse(&joined));
                }
            }
            Self::Parts(columns) => {
                let mut parts: Vec<&[u8]> = Vec::with_capacity(columns.len());
                for record in 0..records.len() {
                    parts.clear();
                    parts.extend(columns.iter().map(|&column| records.field(record, column)));
                    take(record, parse_parts(&parts));
                }
            }
        }
    }
}
