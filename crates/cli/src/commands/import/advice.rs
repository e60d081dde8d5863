//! What to do about rows that replaced each other.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_cast::display::array_value_to_string;
use arrow_schema::DataType;
use tidefall_import::{ParsedBatch, is_columnar, open_columnar, open_csv};
use tidefall_types::{FieldColumn, NO_TAG, Result, TableSchema, WriteBatch, parse_time};

use super::inputs::Inputs;
use crate::args::as_argument;
use crate::size::show_count;

/// Rows that are kept to see what tells them apart: all of some times and tags.
const ROWS_KEPT: usize = 200_000;
/// Rows that are read once more to find them.
const ROWS_READ: u64 = 5_000_000;
/// Tags are few.
const COLUMNS_MAX: usize = 3;

impl Inputs<'_> {
    /// Whether a tag of a file is a column there, other than one that the command line makes.
    fn is_column(&self, tag: &str, constant_tags: &[(String, String)]) -> bool {
        let is_constant = constant_tags.iter().any(|(name, _)| name == tag);
        !is_constant && self.args.wide.as_deref() != Some(tag)
    }

    /// Advice to somebody of whose rows so many replaced others.
    pub(super) fn advice(&self, imported: &Imported, table: Option<&Arc<TableSchema>>) -> String {
        let (rows, apart) = self.look_again(imported.rows, table);
        let is_part = (rows.count as u64) < imported.rows;
        let advice = match apart {
            Apart::Unknown if rows.count == 0 => {
                "what comes through a pipe cannot be looked at again for what tells them apart".to_owned()
            }
            Apart::Unknown if is_part => {
                "none of those that were looked at again do so among themselves: others may, or the table had \
                 readings of their tags and times before"
                    .to_owned()
            }
            Apart::Unknown => "the table had readings of their tags and times before".to_owned(),
            Apart::Nothing => {
                "no column looks like a name that tells them apart, so the last value of each field stays".to_owned()
            }
            Apart::Files => {
                "they are in different files, which --tag-from-file NAME tells apart by \
                             their names"
                    .to_owned()
            }
            Apart::Columns(columns, which) => {
                rows.advice_to_tag(&columns, which, "import into another table with")
            }
        };
        let judged = match is_part && rows.count > 0 {
            true => format!(
                " (judged by {} of {} rows)",
                show_count(rows.count as u64),
                show_count(imported.rows)
            ),
            false => String::new(),
        };
        format!(
            "{} rows have the tags and time of earlier ones, and replaced what these have in the same fields; \
             {advice}{judged}",
            show_count(imported.replaced)
        )
    }

    /// Advice to somebody whose rows would replace each other in a new table that has no tags, as the first `rows` of them
    /// show.
    pub(super) fn advice_on_tags(&self, rows: u64) -> String {
        match self.look_again(rows, None) {
            (rows, Apart::Columns(columns, which)) => rows.advice_to_tag(&columns, which, "say"),
            (_, Apart::Nothing) => {
                "no column looks like a name that tells them apart: name what does with --tags"
                    .to_owned()
            }
            (_, Apart::Files) => "they are in different files: say --tag-from-file NAME".to_owned(),
            _ => "name what tells them apart with --tags, --constant-tag or --tag-from-file"
                .to_owned(),
        }
    }

    /// Reads some of about so many rows once more, and finds what tells those of the same tags and time apart.
    fn look_again(&self, about: u64, table: Option<&Arc<TableSchema>>) -> (Rows, Apart) {
        let one_of = about.min(ROWS_READ).div_ceil(ROWS_KEPT as u64).max(1);
        let mut rows = Rows { one_of, ..Rows::default() };
        // The files were read before, so that this fails only if they have changed since.
        let mut files = self.args.files.iter().filter(|file| file.is_file());
        let read = files.try_for_each(|file| rows.add_file(self, table.cloned(), file));
        let apart = read.map_or(Apart::Unknown, |()| rows.what_tells_apart());
        (rows, apart)
    }
}

/// How many rows an import wrote.
pub(super) struct Imported {
    pub(super) rows: u64,
    /// How many of them replaced others.
    pub(super) replaced: u64,
}

/// What rows of one identity differ in.
#[derive(Debug, PartialEq, Eq)]
enum Apart {
    /// There are no such rows where it was looked.
    Unknown,
    Nothing,
    Files,
    Columns(Vec<String>, Which),
}

/// How many of the rows that replaced others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    /// Nine in ten at least.
    Most,
}

impl Which {
    fn name(self) -> &'static str {
        match self {
            Self::All => "them",
            Self::Most => "most of them",
        }
    }
}

/// The place of a row among those that are looked at.
type Row = u32;

/// Rows, and what they have in their columns.
#[derive(Default)]
struct Rows {
    /// One of so many identities is kept, with all its rows.
    one_of: u64,
    read: u64,
    count: usize,
    hasher: RandomState,
    /// By hash of tags and time.
    by_identity: HashMap<u64, Vec<Row>>,
    /// For each row the number of its file.
    file: Vec<u32>,
    files: u32,
    /// For each column that may name something the hashes of its values; 0 where there is none.
    columns: BTreeMap<String, Vec<u64>>,
    /// Those of them that hold text.
    texts: HashSet<String>,
    /// The columns that are tags now.
    tags: Vec<String>,
}

impl Rows {
    /// Advice to make tags of some columns, beside those that are tags now.
    fn advice_to_tag(&self, columns: &[String], which: Which, how: &str) -> String {
        let tags = self.tags.iter().chain(columns).map(String::as_str);
        format!(
            "{} would tell {} apart: {how} --tags {}",
            columns.join(" and "),
            which.name(),
            as_argument(tags)
        )
    }

    fn add_file(
        &mut self,
        inputs: &Inputs<'_>,
        table: Option<Arc<TableSchema>>,
        file: &Path,
    ) -> Result<()> {
        self.files += 1;
        match is_columnar(file) {
            true => {
                let options = inputs.columnar(file, table)?;
                let reader = open_columnar(file, &options)?;
                self.add_tags(reader.tags(), |tag| inputs.is_column(tag, &options.constant_tags));
                self.add_batches(reader)
            }
            false => {
                let options = inputs.csv(file, table)?;
                let reader = open_csv(file, &options)?;
                let tags = reader.schema().tags.iter().map(String::as_str);
                self.add_tags(tags, |tag| inputs.is_column(tag, &options.constant_tags));
                self.add_batches(reader)
            }
        }
    }

    /// Notes the tags of a file that are columns of it, so that they can be named again.
    fn add_tags<'t>(
        &mut self,
        tags: impl Iterator<Item = &'t str>,
        is_column: impl Fn(&str) -> bool,
    ) {
        for tag in tags.filter(|tag| is_column(tag)) {
            if !self.tags.iter().any(|known| known == tag) {
                self.tags.push(tag.to_owned());
            }
        }
    }

    fn add_batches(
        &mut self,
        mut batches: impl Iterator<Item = Result<ParsedBatch>>,
    ) -> Result<()> {
        while self.read < ROWS_READ
            && self.count < 2 * ROWS_KEPT
            && let Some(batch) = batches.next().transpose()?
        {
            self.read += batch.batch.rows() as u64;
            self.add(&batch.batch);
        }
        Ok(())
    }

    fn add(&mut self, batch: &WriteBatch) {
        let first = self.count;
        let mut kept = Vec::new();
        for row in 0..batch.rows() {
            let tags = batch.tags.iter().map(|tag| {
                let key = tag.keys[row];
                (&tag.name, (key != NO_TAG).then(|| tag.values.value(key as usize)))
            });
            let identity = (batch.time[row], tags.collect::<Vec<_>>());
            let identity = self.hasher.hash_one(identity);
            if identity.is_multiple_of(self.one_of) {
                let place = (first + kept.len()) as Row;
                self.by_identity.entry(identity).or_default().push(place);
                kept.push(row);
            }
        }
        self.file.extend(std::iter::repeat_n(self.files, kept.len()));
        for field in batch.fields.iter().filter(|field| may_name(field)) {
            if field.values.data_type() == &DataType::Utf8 {
                self.texts.insert(field.name.clone());
            }
            let hashes = self.columns.entry(field.name.clone()).or_default();
            hashes.resize(first, 0);
            hashes.extend(kept.iter().map(|&row| match field.values.is_valid(row) {
                true => {
                    let text = array_value_to_string(&field.values, row).unwrap_or_default();
                    self.hasher.hash_one(text).max(1)
                }
                false => 0,
            }));
        }
        self.count += kept.len();
        self.columns.values_mut().for_each(|hashes| hashes.resize(self.count, 0));
    }

    /// The columns that tell rows of one identity apart, as few as will do; or the files.
    fn what_tells_apart(&self) -> Apart {
        let groups = self.by_identity.values().map(Vec::as_slice);
        let groups: Vec<&[Row]> = groups.filter(|rows| rows.len() > 1).collect();
        if groups.is_empty() {
            return Apart::Unknown;
        }
        let replaced: usize = groups.iter().map(|rows| rows.len() - 1).sum();
        let is_enough = |kept: usize| kept * 10 >= replaced * 9;
        // Text names things; a number does if it is enough by itself, or it would be measured.
        let names: Vec<&str> = self.columns.keys().map(String::as_str).collect();
        let names: Vec<&str> = names.into_iter().filter(|name| self.is_name(name)).collect();
        let texts: Vec<&str> = names.iter().copied().filter(|n| self.texts.contains(*n)).collect();
        let mut chosen: Vec<&str> = Vec::new();
        let mut kept = 0;
        while chosen.len() < COLUMNS_MAX && !is_enough(kept) {
            let with = |name: &str| {
                let columns: Vec<&str> = chosen.iter().copied().chain([name]).collect();
                self.kept(&groups, &columns)
            };
            let text = best(&texts, with).filter(|(_, count)| *count > kept);
            let number = best(&names, with).filter(|(_, count)| is_enough(*count));
            let text_is_enough = text.is_some_and(|(_, count)| is_enough(count));
            let Some((name, count)) = number.filter(|_| !text_is_enough).or(text) else { break };
            chosen.push(name);
            kept = count;
        }
        let by_file = |rows: &&[Row]| {
            rows.iter().map(|row| self.file[*row as usize]).collect::<HashSet<_>>().len() - 1
        };
        if is_enough(kept) {
            let which = if kept == replaced { Which::All } else { Which::Most };
            Apart::Columns(chosen.into_iter().map(str::to_owned).collect(), which)
        } else if is_enough(groups.iter().map(by_file).sum()) {
            Apart::Files
        } else {
            Apart::Nothing
        }
    }

    /// How many rows would not replace others if some columns were tags.
    fn kept(&self, groups: &[&[Row]], columns: &[&str]) -> usize {
        let values: Vec<&Vec<u64>> = columns.iter().map(|name| &self.columns[*name]).collect();
        let value = |row: &Row| -> Vec<u64> { values.iter().map(|v| v[*row as usize]).collect() };
        groups.iter().map(|rows| rows.iter().map(value).collect::<HashSet<_>>().len() - 1).sum()
    }

    /// Whether the values of a column come again and again, as names do.
    fn is_name(&self, name: &str) -> bool {
        let distinct = self.columns[name].iter().collect::<HashSet<_>>().len();
        distinct > 1 && distinct * 2 <= self.count
    }
}

/// The name with the most, the first of equals.
fn best<'a>(names: &[&'a str], with: impl Fn(&str) -> usize) -> Option<(&'a str, usize)> {
    names.iter().rev().map(|name| (*name, with(name))).max_by_key(|(_, count)| *count)
}

/// Whether the values of a field may name something: text that is no time, and numbers that are called
/// so. Other numbers are measured.
fn may_name(field: &FieldColumn) -> bool {
    match field.values.data_type() {
        DataType::Utf8 => {
            let texts = field.values.as_string::<i32>();
            texts.iter().flatten().next().is_none_or(|text| parse_time(text).is_err())
        }
        ty => ty.is_integer() && is_called_a_name(&field.name),
    }
}

fn is_called_a_name(column: &str) -> bool {
    const WORDS: [&str; 12] = [
        "code", "channel", "device", "host", "machine", "meter", "node", "number", "sensor",
        "site", "station", "unit",
    ];
    let column = column.to_lowercase();
    let mut words = column.split(|c: char| !c.is_alphanumeric());
    words.any(|word| word.ends_with("id") || word == "no" || WORDS.contains(&word))
}
