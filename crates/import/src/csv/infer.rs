//! What a file is, judged by its beginning.
//!
//! 1. The separator is the one that cuts the first records into the most equal pieces.
//! 2. The first record is a header when it does not look like the records below it.
//! 3. The time is found by the names of the columns, then by their values.
//! 4. Fields of a table that exists keep their types. Others get the narrowest that nearly all
//!    sampled values fit. A few misfits among many numbers are wrong values, not a reason to store
//!    numbers as text.
//! 5. Where a file is longer than the sample and values further down could ask for a wider type,
//!    a [`Survey`] of all of it decides. A stream, which can be read only once, has no survey.

mod roles;
mod types;

use tidefall_types::{Error, Field, FieldType, Result};

use super::plan::{FieldPlan, Plan, TagPlan};
use super::records::{Index, Records, first_record};
use super::scalar::{self, NullTexts};
use super::time::TimeFormat;
use crate::{CsvOptions, Header, Layout, WIDE_FIELD};
use types::Seen;

/// Values of a column that are looked at. Where the sample holds more rows, every n-th is taken,
/// so that they come from all of it.
const VALUES_SAMPLED_MAX: usize = 50_000;

/// What was found out about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvSchema {
    /// The byte between two fields.
    pub separator: u8,
    /// Whether the first record names the columns.
    pub has_header: bool,
    /// All columns of the file.
    pub columns: Vec<String>,
    /// The columns that make the time.
    pub time_columns: Vec<String>,
    /// How the time is written; `None` when its parts stand in columns of their own.
    pub time_format: Option<TimeFormat>,
    /// The tags that the batches have, in their order.
    pub tags: Vec<String>,
    /// The fields that the batches have, in their order.
    pub fields: Vec<Field>,
}

impl CsvSchema {
    /// The name for the time column of a table made from this file.
    pub fn time_name(&self) -> &str {
        match self.time_columns.as_slice() {
            [one] => one,
            _ => "time",
        }
    }
}

/// The outcome of looking at a sample.
#[derive(Debug)]
pub(super) struct Inferred {
    pub schema: CsvSchema,
    pub plan: Plan,
    /// Where the first record of data starts in the sample.
    pub data_start: usize,
    /// For each field of the plan what was seen of it; `None` when its type is given.
    evidence: Vec<Option<Seen>>,
}

impl Inferred {
    /// Decides types anew by what a survey saw of all of the file.
    pub fn decide(&mut self, survey: &Survey, seen: Vec<Seen>, options: &CsvOptions) {
        for (&field, seen) in survey.fields.iter().zip(seen) {
            self.evidence[field] = Some(seen);
        }
        settle_types(&mut self.plan, &self.evidence, options);
        self.schema.fields = plan_fields(&self.plan);
    }
}

/// A look at those columns of a whole file whose type a sample leaves in doubt.
#[derive(Debug, Clone)]
pub(super) struct Survey {
    plan: Plan,
    /// Positions among the fields of the plan.
    fields: Vec<usize>,
}

impl Survey {
    /// The survey that a file needs, if it needs one.
    pub fn of(inferred: &Inferred) -> Option<Self> {
        let fields: Vec<usize> = (0..inferred.evidence.len())
            .filter(|&field| inferred.evidence[field].as_ref().is_some_and(Seen::is_in_doubt))
            .collect();
        (!fields.is_empty()).then(|| Self { plan: inferred.plan.clone(), fields })
    }

    /// The state before the first block.
    pub fn nothing_seen(&self) -> Vec<Seen> {
        vec![Seen::default(); self.fields.len()]
    }

    /// What the columns hold in a block.
    pub fn look_at(&mut self, block: &[u8]) -> Vec<Seen> {
        let mut index = Index::default();
        index.fill(block, self.plan.separator, self.plan.columns);
        let records = index.records(block);
        let mut found = self.nothing_seen();
        for (seen, &field) in found.iter_mut().zip(&self.fields) {
            records
                .column(self.plan.fields[field].column)
                .map(<[u8]>::trim_ascii)
                .filter(|text| !text.is_empty() && !self.plan.nulls.contains(text))
                .for_each(|text| seen.add(text));
        }
        found
    }
}

/// Decides how to read a file of which `sample` holds the first records, whole.
pub(super) fn infer(sample: &[u8], options: &CsvOptions) -> Result<Inferred> {
    let separator = options.separator.unwrap_or_else(|| sniff_separator(sample));
    if matches!(separator, b'"' | b'\n' | b'\r') {
        return Err(Error::invalid("the separator cannot be a quote or a line end"));
    }
    let (first, first_end) = first_record(sample, separator)
        .ok_or_else(|| Error::invalid("there is no line with data in it"))?;
    let mut index = Index::default();
    index.fill(&sample[first_end..], separator, first.len());
    let records = index.records(&sample[first_end..]);
    let nulls = NullTexts::new(&options.null_texts);
    let has_header = match options.header {
        Header::Yes => true,
        Header::No => false,
        Header::Auto => looks_like_header(&first, records, &nulls),
    };
    if !has_header {
        index.fill(sample, separator, first.len());
    }
    let records = index.records(if has_header { &sample[first_end..] } else { sample });
    let columns = column_names(&first, has_header)?;
    let sample = Sample { columns: &columns, records, nulls: &nulls };
    let roles = roles::assign(&sample, options)?;
    let (fields, evidence) = field_plans(&sample, &roles.fields, options)?;
    let mut plan = Plan {
        separator,
        columns: columns.len(),
        time: roles.time,
        tags: roles
            .tags
            .iter()
            .map(|&column| TagPlan { name: columns[column].clone(), column })
            .collect(),
        constant_tags: options.constant_tags.clone(),
        fields,
        wide_tag: match &options.layout {
            Layout::Long => None,
            Layout::Wide { tag } => Some(tag.clone()),
        },
        nulls,
    };
    settle_types(&mut plan, &evidence, options);
    let schema = CsvSchema {
        separator,
        has_header,
        time_columns: plan.time.columns().iter().map(|&column| columns[column].clone()).collect(),
        time_format: roles.time_format,
        tags: plan_tags(&plan),
        fields: plan_fields(&plan),
        columns,
    };
    check_names(&schema)?;
    let data_start = if has_header { first_end } else { 0 };
    Ok(Inferred { schema, plan, data_start, evidence })
}

/// The sampled records and what is known of their columns.
pub(super) struct Sample<'a> {
    pub columns: &'a [String],
    pub records: Records<'a>,
    pub nulls: &'a NullTexts,
}

impl<'a> Sample<'a> {
    /// Values of a column that are not missing, from all over the sample.
    pub fn values(&self, column: usize) -> impl Iterator<Item = &'a [u8]> {
        let (records, nulls) = (self.records, self.nulls);
        let stride = (records.len() / VALUES_SAMPLED_MAX).max(1);
        (0..records.len())
            .step_by(stride)
            .map(move |record| records.field(record, column).trim_ascii())
            .filter(move |text| !text.is_empty() && !nulls.contains(text))
    }

    /// The column that a caller means by its name, or by its position as in `#3`.
    pub fn find(&self, name: &str) -> Result<usize> {
        if let Some(column) = self.columns.iter().position(|column| column == name) {
            return Ok(column);
        }
        let position = name.strip_prefix('#').and_then(|text| text.parse::<usize>().ok());
        match position {
            Some(position) if (1..=self.columns.len()).contains(&position) => Ok(position - 1),
            _ => Err(Error::invalid(format!(
                "there is no column {name:?}; the columns are {}",
                list(self.columns)
            ))),
        }
    }
}

/// Names for a message, not too many.
fn list(names: &[String]) -> String {
    const NAMES_MAX: usize = 30;
    let shown: Vec<String> = names.iter().take(NAMES_MAX).map(|name| format!("{name:?}")).collect();
    let more = if names.len() > NAMES_MAX { ", ..." } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// The candidate that cuts most of the first records into the same number of fields; of equals
/// the one that makes more fields.
fn sniff_separator(sample: &[u8]) -> u8 {
    const RECORDS_MAX: usize = 50;
    let score = |separator: u8| {
        let mut counts = Vec::new();
        let mut rest = sample;
        while counts.len() < RECORDS_MAX
            && let Some((fields, end)) = first_record(rest, separator)
        {
            counts.push(fields.len());
            rest = &rest[end..];
        }
        counts
            .iter()
            .filter(|&&count| count > 1)
            .map(|count| (counts.iter().filter(|other| *other == count).count(), *count))
            .max()
            .unwrap_or((0, 0))
    };
    let mut best = (b',', (0, 0));
    for separator in [b',', b';', b'\t', b'|'] {
        let score = score(separator);
        if score > best.1 {
            best = (separator, score);
        }
    }
    best.0
}

/// A column whose values are numbers, times or booleans speaks for a header when the first record
/// has something else there, and against one when it has the same. One that speaks for it is
/// enough when it is the time, or when no fewer speak for it than against it: sensors may be
/// called by numbers.
fn looks_like_header(first: &[Vec<u8>], records: Records<'_>, nulls: &NullTexts) -> bool {
    const RECORDS_MAX: usize = 100;
    let typed = |text: &[u8]| {
        let text = text.trim_ascii();
        let time = std::str::from_utf8(text).is_ok_and(|t| tidefall_types::parse_time(t).is_ok());
        (time || scalar::parse_f64(text).is_some() || scalar::parse_bool(text).is_some(), time)
    };
    if records.len() == 0 {
        return !first.iter().any(|text| typed(text).0);
    }
    let (mut header, mut data, mut time_is_named) = (0, 0, false);
    for (column, name) in first.iter().enumerate() {
        let rows = 0..records.len().min(RECORDS_MAX);
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
        _ => time_is_named || header >= data.max(1),
    }
}

fn has_duplicates(names: &[Vec<u8>]) -> bool {
    let mut sorted: Vec<&Vec<u8>> = names.iter().collect();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

fn column_names(first: &[Vec<u8>], has_header: bool) -> Result<Vec<String>> {
    let mut names = Vec::with_capacity(first.len());
    for (column, text) in first.iter().enumerate() {
        let text = std::str::from_utf8(text).map_err(|_| {
            Error::invalid(format!(
                "the name of column {}, {}, is not UTF-8; convert the file to UTF-8",
                column + 1,
                scalar::quoted(text)
            ))
        })?;
        let named = has_header && !text.trim().is_empty();
        names.push(if named { text.trim().to_owned() } else { format!("column_{}", column + 1) });
    }
    let mut sorted: Vec<&String> = names.iter().collect();
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

/// The fields with what is known of their types, which [`settle_types`] fills in.
fn field_plans(
    sample: &Sample<'_>,
    columns: &[usize],
    options: &CsvOptions,
) -> Result<(Vec<FieldPlan>, Vec<Option<Seen>>)> {
    let wide = options.layout != Layout::Long;
    let mut given = Vec::new();
    for (name, ty) in &options.types {
        if !(wide && name == WIDE_FIELD) {
            given.push((sample.find(name)?, *ty));
        }
    }
    let all_given = wide && wide_type(options).is_some();
    let describe = |&column: &usize| {
        let name = &sample.columns[column];
        let given = given.iter().find(|(given, _)| *given == column).map(|(_, ty)| *ty);
        let given = given.or_else(|| options.table_type(name).filter(|_| !wide));
        let evidence = (given.is_none() && !all_given).then(|| Seen::of(sample.values(column)));
        let ty = given.unwrap_or(FieldType::F64);
        (FieldPlan { name: name.clone(), column, ty }, evidence)
    };
    Ok(columns.iter().map(describe).unzip())
}

/// The type of the values of a wide file, if it is given.
fn wide_type(options: &CsvOptions) -> Option<FieldType> {
    options.types.get(WIDE_FIELD).copied().or_else(|| options.table_type(WIDE_FIELD))
}

/// Gives every field the type that the evidence calls for; in a wide file all have one type.
fn settle_types(plan: &mut Plan, evidence: &[Option<Seen>], options: &CsvOptions) {
    for (field, seen) in plan.fields.iter_mut().zip(evidence) {
        if let Some(seen) = seen {
            field.ty = seen.field_type();
        }
    }
    if plan.wide_tag.is_some() {
        let common = plan.fields.iter().map(|field| field.ty).reduce(types::common);
        let ty = wide_type(options).or(common).unwrap_or(FieldType::F64);
        plan.fields.iter_mut().for_each(|field| field.ty = ty);
    }
}

fn plan_tags(plan: &Plan) -> Vec<String> {
    plan.wide_tag
        .iter()
        .chain(plan.tags.iter().map(|tag| &tag.name))
        .chain(plan.constant_tags.iter().map(|(name, _)| name))
        .cloned()
        .collect()
}

fn plan_fields(plan: &Plan) -> Vec<Field> {
    let field = |name: &str, ty| Field { name: name.to_owned(), ty };
    match plan.wide_tag {
        Some(_) => {
            plan.fields.first().map(|first| field(WIDE_FIELD, first.ty)).into_iter().collect()
        }
        None => plan.fields.iter().map(|plan| field(&plan.name, plan.ty)).collect(),
    }
}

fn check_names(schema: &CsvSchema) -> Result<()> {
    let names = schema.tags.iter().chain(schema.fields.iter().map(|field| &field.name));
    let mut names: Vec<&str> = names.map(String::as_str).chain([schema.time_name()]).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::invalid(format!(
            "two columns would be called {:?}: choose another name, or skip one",
            pair[0]
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
