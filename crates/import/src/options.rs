//! What a caller can say about a CSV file. Everything has a default that looks at the file.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidefall_types::{FieldType, TableSchema};

use crate::{LocalZone, TimeFormat};

/// The field that holds the values of a wide file.
pub const WIDE_FIELD: &str = "value";

/// How to read a CSV file.
///
/// Columns are named as in the header, or by their position from 1 as `#3`. Without a header they
/// are called `column_1`, `column_2` and so on.
#[derive(Debug, Clone)]
pub struct CsvOptions {
    /// The byte between two fields; `None` finds out which of `,`, `;`, tab and `|` it is.
    pub separator: Option<u8>,
    /// Whether the first record names the columns.
    pub header: Header,
    /// Where the time of a row stands.
    pub time: TimeSource,
    /// How the time is written; `None` finds out.
    pub time_format: Option<TimeFormat>,
    /// The zone of times that name none, other than UTC. Numbers since 1970 are instants in any zone.
    pub zone: Option<LocalZone>,
    /// The columns that name the sensor.
    pub tags: Vec<String>,
    /// The columns that are measured; `None` for all that are nothing else.
    pub fields: Option<Vec<String>>,
    /// Columns to leave out, and tags of the table that the rows do not have.
    pub skip: Vec<String>,
    /// Texts that stand for a missing value in every column, quoted or not. Nothing between two separators always does,
    /// and two quotes with nothing between them do among numbers, times and booleans; in a tag or a text they are the empty
    /// text, unless the empty text is one of these.
    pub null_texts: Vec<String>,
    /// Texts that stand for a missing value among numbers, times and booleans, and among the texts of a file that has
    /// them there; elsewhere they are texts, as the code of Namibia is. They never stand for a missing tag.
    pub usual_nulls: Vec<String>,
    /// Types of fields, instead of the inferred ones; names that the file does not have are of no
    /// meaning.
    pub types: BTreeMap<String, FieldType>,
    /// The table that the rows are for, if there is one: its fields keep their types, and when no
    /// `tags` are named, the columns called like its tags are the tags. Then it is an error if one of them
    /// is neither a column, nor among the constant tags, nor among `skip`.
    pub table: Option<Arc<TableSchema>>,
    /// What a line holds.
    pub layout: Layout,
    /// Tags that every row gets, by name and value.
    pub constant_tags: Vec<(String, String)>,
    /// Lines to pass over before the header.
    pub skip_lines: usize,
    /// The byte with which lines begin that are remarks, anywhere in the file; `None` for `#`
    /// above the data, and none within.
    pub comment: Option<u8>,
    /// The byte before the decimals of a number, `.` or `,`; `None` finds out.
    pub decimal: Option<u8>,
    /// The byte between the thousands of a number; `None` finds out, together with `decimal`.
    pub thousands: Option<u8>,
    /// Threads that parse; 0 for as many as the machine has cores.
    pub threads: usize,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self {
            separator: None,
            header: Header::Auto,
            time: TimeSource::Auto,
            time_format: None,
            zone: None,
            tags: Vec::new(),
            fields: None,
            skip: Vec::new(),
            // NaN is a value, not a missing one, and stays NaN.
            null_texts: vec!["\\N".to_owned()],
            usual_nulls: ["NA", "N/A", "null", "NULL"].map(str::to_owned).to_vec(),
            types: BTreeMap::new(),
            table: None,
            layout: Layout::Long,
            constant_tags: Vec::new(),
            skip_lines: 0,
            comment: None,
            decimal: None,
            thousands: None,
            threads: 0,
        }
    }
}

impl CsvOptions {
    /// The type that a field has in the table that the rows are for.
    pub(crate) fn table_type(&self, name: &str) -> Option<FieldType> {
        let fields = &self.table.as_ref()?.fields;
        fields.iter().find(|field| field.name == name).map(|field| field.ty)
    }

    /// What a column is in the table that the rows are for.
    pub(crate) fn known(&self, name: &str) -> Known {
        match &self.table {
            Some(table) if table.time_name() == name => Known::Time,
            Some(_) if self.table_type(name).is_some() => Known::Field,
            _ => Known::Nothing,
        }
    }
}

/// What a column is in a table; the least is the likeliest to be the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Known {
    /// The time.
    Time,
    /// It is not there.
    Nothing,
    /// A field.
    Field,
}

/// Whether the first record names the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Header {
    /// Compares the first record with those below it.
    #[default]
    Auto,
    /// It does.
    Yes,
    /// It is data.
    No,
}

/// Where the time of a row stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TimeSource {
    /// The column called `time`, `timestamp`, `datetime`, `ts` or the like, if its values make sense as
    /// times; else text with date and time of day, or a date and a time of day side by side; else numbers
    /// since 1970, dates, columns called `year`, `month`, `day` and so on, or a year alone. It is an error
    /// if columns with such names disagree.
    #[default]
    Auto,
    /// One column: the time. Two and more: a date and the time of day, or year, month, day, hour,
    /// minute and second, as numbers.
    Columns(Vec<String>),
}

/// What a line holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Layout {
    /// A line is one row: every column is a tag or a field.
    #[default]
    Long,
    /// Every column beside the time and the tags is a sensor. Each of its values becomes a row
    /// whose tag `tag` is the column's name and whose field is [`WIDE_FIELD`]; empty cells become
    /// nothing.
    Wide {
        /// The tag that takes the names of the columns.
        tag: String,
    },
}
