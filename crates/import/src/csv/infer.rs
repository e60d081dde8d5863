//! What a file is, judged by its beginning.
//!
//! 1. The separator is the one that cuts the first records into the most equal pieces.
//! 2. The first record is a header when it does not look like the records below it. Remarks above
//!    it are passed over (`head.rs`).
//! 3. The time is found by the values of the columns, then by their names (`find.rs`).
//! 4. Fields of a table that exists keep their types. Others get the narrowest that nearly all
//!    sampled values fit. A few misfits among many numbers are wrong values, not a reason to store
//!    numbers as text.
//! 5. Where a file is longer than the sample and values further down could ask for a wider type,
//!    a [`Survey`] of all of it decides. A stream, which can be read only once, has no survey.

mod find;
mod head;
mod look;
mod marks;
mod names;
mod roles;
mod times;
mod types;

use tidefall_types::{Error, Field, FieldType, Result};

use super::plan::{FieldPlan, Plan, TagPlan};
use super::records::{Index, Records};
use super::scalar::{NullTexts, Numerals, quoted};
use super::time::TimeFormat;
use crate::{CsvOptions, Layout, WIDE_FIELD};
use head::Head;
use times::IsTime;
use types::Forms;
pub(super) use types::Seen;

pub(crate) use find::format_of;
pub(crate) use names::is_rather_time;
pub(crate) use types::SeenType;

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
    /// What was chosen where the file left a choice, in sentences for people.
    pub notes: Vec<String>,
}

/// The outcome of looking at a sample.
#[derive(Debug)]
pub(super) struct Inferred {
    pub schema: CsvSchema,
    pub plan: Plan,
    /// Where the first record of data starts in the sample.
    pub data_start: usize,
    /// For each field of the plan what its type is judged by.
    evidence: Vec<Evidence>,
    /// For each field the usual texts for missing values that the sample has there.
    usual_nulls: Vec<Vec<String>>,
    /// For each column of the file whether the header names it.
    are_named: Vec<bool>,
}

/// What the type of a field is judged by.
#[derive(Debug, Clone)]
enum Evidence {
    /// The caller says it.
    Told,
    /// The table has it; the values may call for another.
    Kept(Seen),
    /// The values.
    Seen(Seen),
}

impl Evidence {
    /// Whether there was no value, as far as it was looked for.
    fn is_empty(&self) -> bool {
        match self {
            Self::Told => false,
            Self::Kept(seen) | Self::Seen(seen) => seen.is_empty(),
        }
    }

    /// What a field of the type `ty` calls for beside others in a wide file.
    fn seen_type(&self, ty: FieldType) -> SeenType {
        match self {
            Self::Seen(seen) => match seen.seen_type() {
                whole @ SeenType::Whole(_) => whole,
                SeenType::Nothing | SeenType::Mixed | SeenType::Sure(_) => SeenType::Sure(ty),
            },
            Self::Told | Self::Kept(_) => SeenType::Sure(ty),
        }
    }
}

/// What is said of a field of whole numbers that no type of numbers has as they are.
pub(crate) fn beyond_numbers(name: &str) -> String {
    format!(
        "{name:?} has whole numbers that no number holds exactly and is kept as text, as names are; --type {name}=DOUBLE rounds them"
    )
}

/// What is said of a field of floats with whole numbers that no float is.
pub(crate) fn beside_decimals(name: &str) -> String {
    format!("{name:?} has whole numbers beyond 2^53 beside decimals, and DOUBLE rounds them")
}

impl Inferred {
    /// Decides types anew by what a survey saw of all of the file.
    pub fn decide(&mut self, survey: &Survey, seen: Vec<Seen>, options: &CsvOptions) {
        for (&field, seen) in survey.fields.iter().zip(seen) {
            let evidence = &mut self.evidence[field];
            *evidence = match evidence {
                Evidence::Kept(_) => Evidence::Kept(seen),
                Evidence::Told | Evidence::Seen(_) => Evidence::Seen(seen),
            };
        }
        settle_types(&mut self.plan, &self.evidence, options);
        self.settle_nulls(options);
        self.schema.fields = plan_fields(&self.plan);
    }

    /// Decides what stands for a missing text: what stands for a missing number, time or boolean somewhere.
    fn settle_nulls(&mut self, options: &CsvOptions) {
        let mut nulls = options.null_texts.clone();
        let fields = self.plan.fields.iter().zip(&self.evidence).zip(&self.usual_nulls);
        for ((field, evidence), usual) in fields {
            if field.ty != FieldType::Text && !evidence.is_empty() {
                nulls.extend(usual.iter().cloned());
            }
        }
        self.plan.text_nulls = NullTexts::new(&nulls);
    }

    /// Says of which columns the type may surprise.
    pub fn add_notes(&mut self) {
        let fields = self.plan.fields.iter().zip(&self.evidence);
        for (FieldPlan { name, ty, .. }, evidence) in fields {
            let is_kept_float = ty.is_numeric() && !ty.is_integer();
            if let Evidence::Kept(seen) = evidence
                && is_kept_float
                && seen.has_inexact()
            {
                self.schema.notes.push(format!(
                    "{name:?} has whole numbers beyond 2^53, and is {}, which rounds them",
                    ty.sql_name()
                ));
            }
            let Evidence::Seen(seen) = evidence else { continue };
            if seen.is_padded() {
                self.schema.notes.push(format!(
                    "{name:?} has numbers with zeros in front and is kept as text, as names are; \
                     --type {name}=BIGINT makes numbers of them"
                ));
            }
            if seen.is_beyond_numbers() {
                self.schema.notes.push(beyond_numbers(name));
            }
            if seen.has_inexact() && seen.field_type() == FieldType::F64 {
                self.schema.notes.push(beside_decimals(name));
            }
            if let Some(odd) = seen.odd_one() {
                let odd = quoted(odd);
                self.schema.notes.push(format!(
                    "{name:?} is text only because of {odd}: --null {odd} reads it as a missing \
                     value"
                ));
            }
        }
    }

    /// Leaves out columns without a value, of which nobody knows the type: later files may have one. All of the file must
    /// have been looked at. Lines that end with a separator have such a column without a name.
    pub fn leave_out_nothing(&mut self) {
        let fields = self.plan.fields.iter().zip(&self.evidence);
        let (kept, left_out): (Vec<_>, Vec<_>) = fields.partition(|(field, evidence)| {
            let is_known = matches!(evidence, Evidence::Kept(_)) && self.are_named[field.column];
            is_known || !evidence.is_empty()
        });
        if kept.is_empty() || left_out.is_empty() {
            return;
        }
        let named = left_out.iter().filter(|(field, _)| self.are_named[field.column]);
        let named: Vec<&str> = named.map(|(field, _)| field.name.as_str()).collect();
        if let ([first, ..], None) = (&named[..], &self.plan.wide_tag) {
            let note = match named.len() {
                1 => {
                    format!("{first:?} has no values and is left out; --type {first}=TEXT keeps it")
                }
                count => format!(
                    "{first:?} and {} more columns have no values and are left out; --type {first}=TEXT keeps the first",
                    count - 1
                ),
            };
            self.schema.notes.push(note);
        }
        let (fields, evidence) =
            kept.into_iter().map(|(field, evidence)| (field.clone(), evidence.clone())).unzip();
        (self.plan.fields, self.evidence) = (fields, evidence);
        self.schema.fields = plan_fields(&self.plan);
    }

    /// The fields whose values are so.
    pub fn fields_with(&self, are_so: impl Fn(&Seen) -> bool) -> Vec<String> {
        let fields = self.plan.fields.iter().zip(&self.evidence);
        let found = fields.filter(|(_, evidence)| match evidence {
            Evidence::Told => false,
            Evidence::Kept(seen) | Evidence::Seen(seen) => are_so(seen),
        });
        let names = found.map(|(field, _)| match self.plan.wide_tag {
            Some(_) => WIDE_FIELD.to_owned(),
            None => field.name.clone(),
        });
        names.collect()
    }

    /// The types that the values of the fields call for, also where the table has another.
    pub fn seen_types(&self) -> Vec<(String, SeenType)> {
        let fields = self.plan.fields.iter().zip(&self.evidence);
        let types = fields.map(|(field, evidence)| match evidence {
            Evidence::Told => (&field.name, SeenType::Sure(field.ty)),
            Evidence::Kept(seen) | Evidence::Seen(seen) => (&field.name, seen.seen_type()),
        });
        match self.plan.wide_tag {
            Some(_) => {
                let all = types.map(|(_, ty)| ty).fold(SeenType::Nothing, SeenType::with);
                vec![(WIDE_FIELD.to_owned(), all)]
            }
            None => types.map(|(name, ty)| (name.clone(), ty)).collect(),
        }
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
            .filter(|&field| match &inferred.evidence[field] {
                Evidence::Seen(seen) => seen.is_in_doubt(),
                // Others hold whatever numbers come, or take no other type.
                Evidence::Kept(seen) => {
                    inferred.plan.fields[field].ty.is_integer() && seen.is_in_doubt()
                }
                Evidence::Told => false,
            })
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
        index.fill(block, self.plan.dialect, self.plan.columns);
        let records = index.records(block);
        let mut found = self.nothing_seen();
        for (seen, &field) in found.iter_mut().zip(&self.fields) {
            let FieldPlan { column, times, .. } = &self.plan.fields[field];
            let mut forms = Forms { numerals: self.plan.numerals, times: times.clone() };
            records
                .column(*column)
                .map(<[u8]>::trim_ascii)
                .filter(|text| !text.is_empty() && !self.plan.nulls.contains(text))
                .for_each(|text| seen.add(text, &mut forms));
        }
        found
    }
}

/// Decides how to read a file of which `sample` holds the first records, whole.
pub(super) fn infer(sample: &[u8], options: &CsvOptions) -> Result<Inferred> {
    let everywhere = NullTexts::new(&options.null_texts);
    let nulls = NullTexts::new(&[&options.null_texts[..], &options.usual_nulls].concat());
    let Head { dialect, has_header, columns: names, data_start, hint, note } =
        Head::of(sample, options, &nulls)?;
    let (columns, are_named): (Vec<String>, Vec<bool>) = names.into_iter().unzip();
    let data = &sample[data_start..];
    let mut index = Index::default();
    index.fill(data, dialect, columns.len());
    let records = index.records(data);
    let head_hint = hint.as_str();
    let sample = Sample { columns: &columns, head_hint, has_header, records, nulls: &nulls };
    let roles = roles::assign(&sample, options)?;
    let (numerals, marks) = marks::find(&sample, &roles.fields, options);
    let time_format = roles.time.format.as_ref();
    let (fields, evidence) = field_plans(&sample, &roles.fields, (numerals, time_format), options)?;
    let mut plan = Plan {
        dialect,
        columns: columns.len(),
        time: roles.time.plan,
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
        text_nulls: everywhere.clone(),
        tag_nulls: everywhere,
        nulls: nulls.clone(),
        numerals,
        zone: options.zone,
    };
    settle_types(&mut plan, &evidence, options);
    let usual_of = |field: &FieldPlan| usual_nulls(records, field.column, &nulls, options);
    let usual_nulls = plan.fields.iter().map(usual_of).collect();
    let schema = CsvSchema {
        separator: dialect.separator,
        has_header,
        time_columns: plan.time.columns().iter().map(|&column| columns[column].clone()).collect(),
        time_format: roles.time.format,
        notes: roles.time.notes.into_iter().chain(note).chain(marks).collect(),
        tags: plan_tags(&plan),
        fields: plan_fields(&plan),
        columns,
    };
    check_names(&schema)?;
    let mut inferred = Inferred { schema, plan, data_start, evidence, usual_nulls, are_named };
    inferred.settle_nulls(options);
    Ok(inferred)
}

/// The sampled records and what is known of their columns.
pub(super) struct Sample<'a> {
    pub columns: &'a [String],
    /// What may be wrong if the columns are not those of the data.
    pub head_hint: &'a str,
    pub has_header: bool,
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

/// The fields with what is known of their types, which [`settle_types`] fills in.
fn field_plans(
    sample: &Sample<'_>,
    columns: &[usize],
    (numerals, time_format): (Numerals, Option<&TimeFormat>),
    options: &CsvOptions,
) -> Result<(Vec<FieldPlan>, Vec<Evidence>)> {
    let wide = options.layout != Layout::Long;
    let given: Vec<(usize, FieldType)> = options
        .types
        .iter()
        .filter(|(name, _)| !(wide && *name == WIDE_FIELD))
        .filter_map(|(name, ty)| Some((sample.find(name).ok()?, *ty)))
        .collect();
    let told_wide = options.types.contains_key(WIDE_FIELD);
    let describe = |&column: &usize| {
        let name = &sample.columns[column];
        let told = match wide {
            true => told_wide.then_some(FieldType::F64),
            false => given.iter().find(|(given, _)| *given == column).map(|(_, ty)| *ty),
        };
        let kept = options.table_type(if wide { WIDE_FIELD } else { name });
        let is_time = match told.or(kept) {
            Some(FieldType::Timestamp) => IsTime::Told,
            _ => IsTime::Open,
        };
        let times = match wide {
            true => None,
            false => times::format(sample, column, time_format, is_time)?,
        };
        let times = times.map(|format| format.parser()).transpose()?;
        let mut forms = Forms { numerals, times };
        let mut seen = || Seen::of(sample.values(column), &mut forms);
        let (ty, evidence) = match (told, kept) {
            (Some(ty), _) => (ty, Evidence::Told),
            (None, Some(ty)) => (ty, Evidence::Kept(seen())),
            (None, None) => (FieldType::F64, Evidence::Seen(seen())),
        };
        Ok((FieldPlan { name: name.clone(), column, ty, times: forms.times }, evidence))
    };
    let described: Result<Vec<_>> = columns.iter().map(describe).collect();
    Ok(described?.into_iter().unzip())
}

/// The type of the values of a wide file, if it is given.
fn wide_type(options: &CsvOptions) -> Option<FieldType> {
    options.types.get(WIDE_FIELD).copied().or_else(|| options.table_type(WIDE_FIELD))
}

/// Gives every field the type that the evidence calls for; in a wide file all have one type.
fn settle_types(plan: &mut Plan, evidence: &[Evidence], options: &CsvOptions) {
    for (field, evidence) in plan.fields.iter_mut().zip(evidence) {
        if let Evidence::Seen(seen) = evidence {
            field.ty = seen.field_type();
        }
    }
    if plan.wide_tag.is_some() {
        let of = |(field, evidence): (&FieldPlan, &Evidence)| evidence.seen_type(field.ty);
        let common = plan.fields.iter().zip(evidence).map(of).reduce(SeenType::with);
        let common = common.map(SeenType::field_type);
        let ty = wide_type(options).or(common).unwrap_or(FieldType::F64);
        plan.fields.iter_mut().for_each(|field| field.ty = ty);
    }
}

/// Those of the usual texts for missing values that a column of some records has.
fn usual_nulls(
    records: Records<'_>,
    column: usize,
    nulls: &NullTexts,
    options: &CsvOptions,
) -> Vec<String> {
    let mut unseen: Vec<&String> = options.usual_nulls.iter().collect();
    let texts = records.column(column).map(<[u8]>::trim_ascii);
    for text in texts.filter(|text| nulls.contains(text)) {
        unseen.retain(|usual| usual.as_bytes() != text);
    }
    options.usual_nulls.iter().filter(|usual| !unseen.contains(usual)).cloned().collect()
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
    let mut names: Vec<&str> = names.map(String::as_str).collect();
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
