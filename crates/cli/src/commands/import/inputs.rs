//! How the files of an import are read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::TimestampNanosecondArray;
use regex::Regex;
use tidefall_import::{
    ColumnarOptions, CsvOptions, Header, Layout, LocalZone, TimeFormat, TimeSource, Together,
    is_columnar, look_together,
};
use tidefall_storage::{Db, Rewriting, WriteOptions, WriteReport};
use tidefall_types::{
    Error, ErrorKind, Field, FieldColumn, FieldType, Result, TableKind, TableSchema, WriteBatch,
};

use crate::args::{ImportArgs, all_of};

/// The files of an import, and what is said and known about them.
pub(super) struct Inputs<'a> {
    pub(super) args: &'a ImportArgs,
    csv: CsvOptions,
    columnar: ColumnarOptions,
    file_tags: Vec<FileTag>,
    /// Types of new fields, which hold the values of all files.
    types: BTreeMap<String, FieldType>,
    /// The types in which texts of fields are read that the table has.
    known_types: BTreeMap<String, FieldType>,
    /// Fields of text, most of whose values are numbers.
    mixed: BTreeSet<String>,
    /// Where the rows are records the column of the table that is read as the time.
    time_of_records: Option<String>,
}

impl<'a> Inputs<'a> {
    /// Takes the command line apart.
    pub(super) fn new(args: &'a ImportArgs) -> Result<Self> {
        let time_format = args.time_format.as_deref().map(TimeFormat::from_name).transpose()?;
        let zone = args.timezone.as_deref().map(LocalZone::from_name).transpose()?;
        let file_tags = args.tag_from_file.iter().map(|text| FileTag::parse(text));
        let inputs = Self {
            args,
            csv: CsvOptions { zone, ..csv_options(args, time_format.clone())? },
            columnar: ColumnarOptions { zone, ..columnar_options(args, time_format) },
            file_tags: file_tags.collect::<Result<_>>()?,
            types: BTreeMap::new(),
            known_types: BTreeMap::new(),
            mixed: BTreeSet::new(),
            time_of_records: None,
        };
        for file in &args.files {
            inputs.check(file)?;
        }
        Ok(inputs)
    }

    /// What can be known of a file before it is opened.
    fn check(&self, file: &Path) -> Result<()> {
        self.tags_of(file)?;
        if !is_columnar(file) {
            return Ok(());
        }
        let args = self.args;
        let csv_only = [
            ("--wide", args.wide.is_some(), "import the columns as they are, as fields"),
            ("--time-columns", !args.time_columns.is_empty(), "name one column with --time"),
        ];
        // Of no meaning beside a CSV file, for which it may be.
        let text_only = [
            ("--separator", args.separator.is_some()),
            ("--decimal", args.decimal.is_some()),
            ("--thousands", args.thousands.is_some()),
            ("--comment", args.comment.is_some()),
            ("--no-header", args.no_header),
            ("--skip-lines", args.skip_lines > 0),
            ("--null", !args.null_texts.is_empty()),
        ];
        let text_only = text_only.into_iter().filter(|_| args.files.iter().all(|f| is_columnar(f)));
        let text_only = text_only.map(|(option, is_given)| (option, is_given, "leave it out"));
        match csv_only.into_iter().chain(text_only).find(|(_, is_given, _)| *is_given) {
            None => Ok(()),
            Some((option, _, advice)) => Err(Error::unsupported(format!(
                "{}: {option} is for CSV files, and this is Parquet or Arrow; {advice}",
                file.display()
            ))),
        }
    }

    /// Looks at all files for the types of their fields, and returns what there is to be said about them.
    pub(super) fn settle_types(&mut self, db: &Db) -> Result<Vec<(PathBuf, String)>> {
        let table = db.schema(&self.args.table).ok();
        if let Some(records) = table.as_ref().filter(|table| table.kind == TableKind::Records) {
            self.read_records(records)?;
            return Ok(Vec::new());
        }
        let mut csv = CsvOptions { table: table.clone(), ..self.csv.clone() };
        let mut columnar = ColumnarOptions { table: table.clone(), ..self.columnar.clone() };
        // Each file has another value there, of which the types of fields know nothing.
        let file_tags = self.file_tags.iter().map(|tag| (tag.name.clone(), String::new()));
        csv.constant_tags.extend(file_tags.clone());
        columnar.constant_tags.extend(file_tags);
        let Together { types, mixed, inexact, fractions, empty, notes } =
            look_together(&self.args.files, &csv, &columnar)?;
        self.mixed = mixed;
        for (name, seen) in types {
            let mut fields = table.iter().flat_map(|table| &table.fields);
            let Some(field) = fields.find(|field| field.name == name) else {
                self.types.insert(name, seen);
                continue;
            };
            let told = self.args.types.iter().find(|(told, _)| *told == name);
            if let Some(told) = told {
                db.retype(&self.args.table, std::slice::from_ref(told), Rewriting::All)?;
            }
            let ty = match told {
                Some((_, told)) => *told,
                // They would be rounded for a decimal beside them.
                None if empty.contains(&name) || inexact.contains(&name) => field.ty,
                // Once, rather than when the first of them comes.
                None if field.ty.is_integer() && fractions.contains(&name) => {
                    self.widen(db, field, FieldType::F64)?
                }
                None => self.type_to_read(db, field, seen)?,
            };
            self.known_types.insert(name, ty);
        }
        Ok(notes)
    }

    /// Reads columns as those of a table of records, in their types: all are fields but one, which the files are read by as their time.
    fn read_records(&mut self, table: &TableSchema) -> Result<()> {
        let args = self.args;
        let of_series = [
            ("--tags", !args.tags.is_empty()),
            ("--constant-tag", !args.constant_tags.is_empty()),
            ("--tag-from-file", !args.tag_from_file.is_empty()),
            ("--time-columns", !args.time_columns.is_empty()),
            ("--type", !args.types.is_empty()),
            ("--wide", args.wide.is_some()),
            ("--replace", args.replace),
            ("--no-replace", args.no_replace),
            ("--cascade", args.cascade.is_some()),
        ];
        if let Some((option, _)) = of_series.into_iter().find(|(_, is_given)| *is_given) {
            return Err(Error::unsupported(format!(
                "{option} is for tables of series, and {} is of records; leave it out",
                table.name
            )));
        }
        let mut times = table.fields.iter().filter(|field| field.ty == FieldType::Timestamp);
        let is_told = |field: &&Field| args.time.as_ref().is_none_or(|told| *told == field.name);
        let Some(time) = times.find(is_told).map(|field| field.name.clone()) else {
            return Err(Error::unsupported(match &args.time {
                Some(told) => format!("--time: table {} has no TIMESTAMP {told:?}", table.name),
                None => format!(
                    "table {} has no TIMESTAMP, by which files of records are read; write them in SQL, as Arrow over HTTP, or from Python",
                    table.name
                ),
            }));
        };
        self.csv.time = TimeSource::Columns(vec![time.clone()]);
        self.columnar.time = Some(time.clone());
        for chosen in [&mut self.csv.fields, &mut self.columnar.fields].into_iter().flatten() {
            chosen.retain(|name| *name != time);
        }
        let fields = table.fields.iter().filter(|field| field.name != time);
        self.types = fields.map(|field| (field.name.clone(), field.ty)).collect();
        self.time_of_records = Some(time);
        Ok(())
    }

    /// Writes rows to the table.
    pub(super) fn write(
        &self,
        db: &Db,
        batch: &WriteBatch,
        options: &WriteOptions,
    ) -> Result<WriteReport> {
        let Some(time) = &self.time_of_records else {
            return db.write(&self.args.table, batch, options);
        };
        let is_other = |field: &&FieldColumn| !self.types.contains_key(&field.name);
        let others = batch.fields.iter().filter(is_other).map(|field| field.name.as_str());
        let others = others.collect::<Vec<_>>().join(",");
        if !others.is_empty() {
            return Err(Error::invalid(format!(
                "table {}, of records, has no columns {others}: leave them out with --skip {others}",
                self.args.table
            )));
        }
        let times = TimestampNanosecondArray::new(batch.time.clone(), None);
        let times = FieldColumn { name: time.clone(), values: Arc::new(times) };
        let columns: Vec<FieldColumn> =
            std::iter::once(times).chain(batch.fields.iter().cloned()).collect();
        db.write_records(&self.args.table, &columns, options)
    }

    /// The table, as far as a file that is read for it must know it.
    fn known(&self, table: Option<Arc<TableSchema>>) -> Option<Arc<TableSchema>> {
        table.filter(|_| self.time_of_records.is_none())
    }

    /// Makes a field of the table wider. Where it cannot be, what does not fit is set aside, if that is wished for. Returns its type.
    fn widen(&self, db: &Db, field: &Field, ty: FieldType) -> Result<FieldType> {
        let types = [(field.name.clone(), ty)];
        let sets_aside = self.args.skip_bad_rows || self.args.bad_rows.is_some();
        match db.retype(&self.args.table, &types, Rewriting::All) {
            Err(error) if sets_aside && error.kind() == ErrorKind::Conflict => Ok(field.ty),
            widened => widened.map(|()| ty),
        }
    }

    /// The type in which the texts of a field are read that the table has: one that is as wide as its values call for. What fits
    /// into the type of the table goes there, and else that becomes wider.
    fn type_to_read(&self, db: &Db, field: &Field, seen: FieldType) -> Result<FieldType> {
        let ty = field.ty;
        let is_wider = match ty.is_numeric() && seen.is_numeric() {
            true => ty.is_integer() && ty.wider(seen).is_some(),
            // Texts hold whatever stands in a file. A few among numbers are bad rows of a field of numbers, also of one that is empty.
            false => {
                ty != seen
                    && ty != FieldType::Text
                    && !(ty.is_numeric() && self.is_mixed(&field.name))
                    && db.is_field_empty(&self.args.table, &field.name)?
            }
        };
        Ok(if is_wider { seen } else { ty })
    }

    /// Whether a field is text although most of its values are numbers, so that it names nothing.
    pub(super) fn is_mixed(&self, field: &str) -> bool {
        self.mixed.contains(field)
    }

    /// How to read a CSV file.
    pub(super) fn csv(&self, file: &Path, table: Option<Arc<TableSchema>>) -> Result<CsvOptions> {
        let (table, types) = (self.known(table), self.types.clone());
        let mut options = CsvOptions { table, types, ..self.csv.clone() };
        options.types.extend(self.known_types.clone());
        options.constant_tags.extend(self.tags_of(file)?);
        Ok(options)
    }

    /// How to read a Parquet or Arrow file.
    pub(super) fn columnar(
        &self,
        file: &Path,
        table: Option<Arc<TableSchema>>,
    ) -> Result<ColumnarOptions> {
        let (table, types) = (self.known(table), self.types.clone());
        let mut options = ColumnarOptions { table, types, ..self.columnar.clone() };
        options.constant_tags.extend(self.tags_of(file)?);
        Ok(options)
    }

    /// The tags that the name of a file gives.
    fn tags_of(&self, file: &Path) -> Result<Vec<(String, String)>> {
        self.file_tags.iter().map(|tag| Ok((tag.name.clone(), tag.value(file)?))).collect()
    }
}

/// A tag whose values are in the names of the files.
#[derive(Debug)]
struct FileTag {
    name: String,
    pattern: Option<Regex>,
}

impl FileTag {
    fn parse(text: &str) -> Result<Self> {
        let (name, pattern) = match text.split_once('=') {
            Some((name, pattern)) => (name, Some(pattern)),
            None => (text, None),
        };
        let wrong =
            |error: regex::Error| Error::invalid(format!("--tag-from-file {text}: {error}"));
        let pattern = pattern.map(Regex::new).transpose().map_err(wrong)?;
        match name.is_empty() {
            true => Err(Error::invalid("--tag-from-file needs the name of a tag")),
            false => Ok(Self { name: name.to_owned(), pattern }),
        }
    }

    fn value(&self, file: &Path) -> Result<String> {
        let stem = stem(file);
        let Some(pattern) = &self.pattern else { return Ok(stem.to_owned()) };
        let found = pattern.captures(stem).and_then(|found| found.get(1).or_else(|| found.get(0)));
        match found.map(|text| text.as_str()).filter(|text| !text.is_empty()) {
            Some(value) => Ok(value.to_owned()),
            None => Err(Error::invalid(format!(
                "--tag-from-file {}: {pattern} is not in the name {stem:?}",
                self.name
            ))),
        }
    }
}

/// The name of a file without its endings: `a.csv.gz` is `a`.
fn stem(file: &Path) -> &str {
    const ENDINGS: [&str; 12] = [
        ".gz", ".zst", ".csv", ".tsv", ".txt", ".dat", ".parquet", ".pq", ".arrow", ".feather",
        ".ipc", ".arrows",
    ];
    let mut name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    for ending in ENDINGS {
        let length = name.len().saturating_sub(ending.len());
        if length > 0 && name.get(length..).is_some_and(|end| end.eq_ignore_ascii_case(ending)) {
            name = &name[..length];
        }
    }
    name
}

fn csv_options(args: &ImportArgs, time_format: Option<TimeFormat>) -> Result<CsvOptions> {
    let ascii = |what: &'static str, c: Option<char>| c.map(|c| ascii(what, c)).transpose();
    let mut options = CsvOptions {
        separator: ascii("separator", args.separator)?,
        header: if args.no_header { Header::No } else { Header::Auto },
        time_format,
        tags: all_of(&args.tags),
        fields: (!args.fields.is_empty()).then(|| all_of(&args.fields)),
        skip: all_of(&args.skip),
        types: args.types.iter().cloned().collect(),
        constant_tags: args.constant_tags.clone(),
        skip_lines: args.skip_lines,
        comment: ascii("mark of remarks", args.comment)?,
        decimal: ascii("decimal mark", args.decimal)?,
        thousands: ascii("mark between thousands", args.thousands)?,
        threads: args.db.threads,
        ..CsvOptions::default()
    };
    options.null_texts.extend(args.null_texts.iter().cloned());
    if let Some(time) = &args.time {
        options.time = TimeSource::Columns(vec![time.clone()]);
    } else if !args.time_columns.is_empty() {
        options.time = TimeSource::Columns(all_of(&args.time_columns));
    }
    if let Some(tag) = &args.wide {
        options.layout = Layout::Wide { tag: tag.clone() };
    }
    Ok(options)
}

fn ascii(what: &str, c: char) -> Result<u8> {
    u8::try_from(c)
        .ok()
        .filter(u8::is_ascii)
        .ok_or_else(|| Error::invalid(format!("the {what} {c:?} is not an ASCII character")))
}

fn columnar_options(args: &ImportArgs, time_format: Option<TimeFormat>) -> ColumnarOptions {
    ColumnarOptions {
        time: args.time.clone(),
        time_format,
        tags: all_of(&args.tags),
        constant_tags: args.constant_tags.clone(),
        fields: (!args.fields.is_empty()).then(|| all_of(&args.fields)),
        skip: all_of(&args.skip),
        types: args.types.iter().cloned().collect(),
        threads: args.db.threads,
        ..ColumnarOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_give_tags() {
        let value = |tag: &str, file: &str| FileTag::parse(tag)?.value(Path::new(file));
        let check = |tag: &str, file: &str, expected: &str| {
            assert_eq!(value(tag, file).as_deref(), Ok(expected), "{tag} {file}");
        };
        check("site", "data/north.csv", "north");
        check("site", "north.2024.CSV.gz", "north.2024");
        check("site", "north", "north");
        check("site", ".csv", ".csv");
        check("site=^([a-z]+)_", "data/north_2024.csv", "north");
        check("year=[0-9]{4}", "north_2024.parquet", "2024");
        for (tag, why) in [
            ("site=([0-9]+)", "is not in the name \"north\""),
            ("site=(", "unclosed group"),
            ("=x", "needs the name of a tag"),
        ] {
            let error = value(tag, "north.csv").unwrap_err();
            assert!(error.message().contains(why), "{error}");
        }
    }
}
