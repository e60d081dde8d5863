//! Which columns are time, tags and fields.

use tidefall_types::{Error, Result, TableSchema};

use super::find::{self, FoundTime};
use super::{Sample, list};
use crate::tags::{Provided, skipped};
use crate::{CsvOptions, Layout, TimeSource};

/// What each column is for.
pub(super) struct Roles {
    pub time: FoundTime,
    pub tags: Vec<usize>,
    pub fields: Vec<usize>,
}

/// Gives every column its role.
pub(super) fn assign(sample: &Sample<'_>, options: &CsvOptions) -> Result<Roles> {
    let find_all = |names: &[String]| -> Result<Vec<usize>> {
        names.iter().map(|name| sample.find(name)).collect()
    };
    let is_column = |name: &str| sample.columns.iter().any(|column| column == name);
    let skip = skipped(&options.skip, options.table.as_deref(), is_column)
        .map(|name| sample.find(name))
        .collect::<Result<Vec<usize>>>()?;
    let fields = options.fields.as_deref().map(find_all).transpose()?;
    let tags = match &options.table {
        Some(table) if options.tags.is_empty() => {
            check_tags(sample, table, options)?;
            let time = match &options.time {
                TimeSource::Columns(names) => find_all(names)?,
                TimeSource::Auto => Vec::new(),
            };
            let others = [skip.as_slice(), fields.as_deref().unwrap_or_default(), &time].concat();
            tags_of_table(sample, table, &others)
        }
        _ => find_all(&options.tags)?,
    };
    let format = options.time_format.as_ref();
    let time = match &options.time {
        TimeSource::Columns(names) => find::given(sample, &find_all(names)?, format)?,
        TimeSource::Auto => {
            let is_free = |column: &usize| {
                let is_named = fields.as_ref().is_some_and(|fields| fields.contains(column));
                !tags.contains(column) && !skip.contains(column) && !is_named
            };
            let free: Vec<usize> = (0..sample.columns.len()).filter(is_free).collect();
            let known = |column: usize| options.known(&sample.columns[column]);
            find::find(sample, format, &free, &known)?
        }
    };
    let time_columns = time.plan.columns();
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
    Ok(Roles { time, tags, fields })
}

/// The columns called like tags of the table, but for those that have another role.
fn tags_of_table(sample: &Sample<'_>, table: &TableSchema, others: &[usize]) -> Vec<usize> {
    let column = |tag: &String| sample.columns.iter().position(|column| column == tag);
    table.tags.iter().filter_map(column).filter(|column| !others.contains(column)).collect()
}

/// Checks that the file has the tags of the table, as far as they do not come from elsewhere.
fn check_tags(sample: &Sample<'_>, table: &TableSchema, options: &CsvOptions) -> Result<()> {
    let constant = options.constant_tags.iter().map(|(name, _)| name);
    let wide = match &options.layout {
        Layout::Long => None,
        Layout::Wide { tag } => Some(tag),
    };
    let others = constant.chain(wide).chain(&options.skip).map(String::as_str).collect();
    let columns = sample.columns.iter().map(String::as_str).collect();
    Provided { columns, others }.check(table)
}
