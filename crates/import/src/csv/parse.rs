//! One block of text into one batch of rows.

use arrow_array::{Array, ArrayRef, BooleanArray, StringArray};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, BooleanBufferBuilder, ScalarBuffer};
use arrow_schema::ArrowError;
use arrow_select::concat::concat;
use arrow_select::filter::filter;
use memchr::memchr;
use tidefall_types::{Error, FieldColumn, FieldType, Result, TagColumn, WriteBatch};

use super::columns::{BadRecords, TextColumn};
use super::plan::{Plan, TagPlan};
use super::records::{Fault, Index, Ragged, Records, count_lines};
use crate::{BadLine, WIDE_FIELD};

/// The longest text of a bad line that is kept.
const TEXT_BYTES_MAX: usize = 1_024;

/// What a block became.
#[derive(Debug)]
pub(super) struct ParsedBlock {
    pub batch: WriteBatch,
    /// With lines counted from the start of the block.
    pub bad: Vec<BadLine>,
    /// Line ends in the block.
    pub lines: u64,
    /// Rows whose time was shown twice.
    pub twice: u64,
}

/// Makes rows of blocks, one after the other.
#[derive(Debug)]
pub(super) struct BlockParser {
    plan: Plan,
    index: Index,
}

impl BlockParser {
    pub fn new(mut plan: Plan) -> Self {
        plan.use_zone();
        Self { plan, index: Index::default() }
    }

    /// Parses a block of whole records.
    pub fn parse(&mut self, block: &[u8]) -> Result<ParsedBlock> {
        self.index.fill(block, self.plan.dialect, self.plan.columns);
        let records = self.index.records(block);
        let mut bad = BadRecords::default();
        let mut rows = Rows::parse(&mut self.plan, records, &mut bad);
        let twice = rows.twice;
        let bad = if bad.is_empty() {
            Vec::new()
        } else {
            let bad = bad.into_sorted();
            rows.remove(&bad)?;
            bad
        };
        let batch = match &self.plan.wide_tag {
            Some(tag) => rows.into_wide(tag, &self.plan.constant_tags)?,
            None => rows.into_long(&self.plan.constant_tags),
        };
        let bad = self.bad_lines(block, bad);
        Ok(ParsedBlock { batch, bad, lines: count_lines(block), twice })
    }

    fn bad_lines(&self, block: &[u8], bad: Vec<(usize, Error)>) -> Vec<BadLine> {
        let columns = self.plan.columns;
        let mut starts: Vec<(u32, Error)> = bad
            .into_iter()
            .map(|(record, reason)| (self.index.line_start(record), reason))
            .chain(
                self.index
                    .ragged
                    .iter()
                    .map(|&Ragged { start, fault }| (start, ragged_reason(columns, fault))),
            )
            .collect();
        starts.sort_by_key(|(start, _)| *start);
        let (mut counted, mut lines) = (0, 1);
        starts
            .into_iter()
            .map(|(start, reason)| {
                let start = start as usize;
                lines += count_lines(&block[counted..start]);
                counted = start;
                BadLine { line: lines, text: line_text(&block[start..]), reason }
            })
            .collect()
    }
}

fn ragged_reason(columns: usize, fault: Fault) -> Error {
    match fault {
        Fault::Fields(found) => {
            Error::invalid(format!("expected {columns} columns, found {found}"))
        }
        Fault::OpenQuote => Error::invalid("a quoted field is not closed"),
    }
}

/// The line for a message; a record that goes over several lines is cut after its first.
fn line_text(from: &[u8]) -> String {
    let end = memchr(b'\n', from).unwrap_or(from.len());
    let line = from[..end].strip_suffix(b"\r").unwrap_or(&from[..end]);
    String::from_utf8_lossy(&line[..line.len().min(TEXT_BYTES_MAX)]).into_owned()
}

/// The columns of a block, one value for each record.
struct Rows {
    time: ScalarBuffer<i64>,
    tags: Vec<TagColumn>,
    fields: Vec<FieldColumn>,
    /// Times that clocks showed twice.
    twice: u64,
}

impl Rows {
    fn parse(plan: &mut Plan, records: Records<'_>, bad: &mut BadRecords) -> Self {
        let mut time = Vec::with_capacity(records.len());
        let twice = plan.time.parse_all(records, plan.zone, |record, parsed| {
            time.push(*parsed.as_ref().unwrap_or(&0));
            if let Err(reason) = parsed {
                bad.push(record, reason.context("time"));
            }
        });
        let numerals = plan.numerals;
        let text = |column, name, nulls| TextColumn { records, column, name, nulls, numerals };
        let mut tags = Vec::with_capacity(plan.tags.len());
        for TagPlan { column, name } in &plan.tags {
            tags.push(text(*column, name, &plan.tag_nulls).parse_tag(bad));
        }
        let nulls_of = |ty| match ty {
            FieldType::Text => &plan.text_nulls,
            _ => &plan.nulls,
        };
        let fields = plan
            .fields
            .iter()
            .map(|field| FieldColumn {
                name: field.name.clone(),
                values: text(field.column, &field.name, nulls_of(field.ty)).parse_field(
                    field.ty,
                    field.times.as_ref(),
                    bad,
                ),
            })
            .collect();
        Self { time: time.into(), tags, fields, twice }
    }

    fn remove(&mut self, bad: &[(usize, Error)]) -> Result<()> {
        let mut keep = BooleanBufferBuilder::new(self.time.len());
        keep.append_n(self.time.len(), true);
        for (record, _) in bad {
            keep.set_bit(*record, false);
        }
        let keep = BooleanArray::new(keep.finish(), None);
        self.time = filter_plain(&self.time, &keep);
        for tag in &mut self.tags {
            tag.keys = filter_plain(&tag.keys, &keep);
        }
        for field in &mut self.fields {
            field.values = filter(&field.values, &keep).map_err(internal)?;
        }
        Ok(())
    }

    fn into_long(mut self, constant_tags: &[(String, String)]) -> WriteBatch {
        let rows = self.time.len();
        self.tags.extend(constant_tags.iter().map(|(name, value)| constant_tag(name, value, rows)));
        WriteBatch { time: self.time, tags: self.tags, fields: self.fields }
    }

    /// Makes one row of every value, sensor after sensor.
    fn into_wide(self, wide_tag: &str, constant_tags: &[(String, String)]) -> Result<WriteBatch> {
        let mut time = Vec::new();
        let mut tag_keys: Vec<Vec<u32>> = vec![Vec::new(); self.tags.len()];
        let mut sensor_keys = Vec::new();
        let mut values: Vec<ArrayRef> = Vec::with_capacity(self.fields.len());
        for (sensor, field) in self.fields.iter().enumerate() {
            let present = match field.values.nulls() {
                None => BooleanArray::new(BooleanBuffer::new_set(self.time.len()), None),
                Some(nulls) => BooleanArray::new(nulls.inner().clone(), None),
            };
            time.extend_from_slice(&filter_plain(&self.time, &present));
            for (keys, tag) in tag_keys.iter_mut().zip(&self.tags) {
                keys.extend_from_slice(&filter_plain(&tag.keys, &present));
            }
            sensor_keys.resize(time.len(), sensor as u32);
            values.push(filter(&field.values, &present).map_err(internal)?);
        }
        let parts: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
        let values = concat(&parts).map_err(internal)?;
        let names: StringArray =
            self.fields.iter().map(|field| Some(field.name.as_str())).collect();
        let mut tags =
            vec![TagColumn { name: wide_tag.to_owned(), values: names, keys: sensor_keys.into() }];
        for (mut tag, keys) in self.tags.into_iter().zip(tag_keys) {
            tag.keys = keys.into();
            tags.push(tag);
        }
        let rows = time.len();
        tags.extend(constant_tags.iter().map(|(name, value)| constant_tag(name, value, rows)));
        let fields = vec![FieldColumn { name: WIDE_FIELD.to_owned(), values }];
        Ok(WriteBatch { time: time.into(), tags, fields })
    }
}

/// A tag that all rows have.
pub(crate) fn constant_tag(name: &str, value: &str, rows: usize) -> TagColumn {
    TagColumn {
        name: name.to_owned(),
        values: StringArray::from(vec![value]),
        keys: vec![0; rows].into(),
    }
}

fn filter_plain<T: ArrowNativeType>(
    values: &ScalarBuffer<T>,
    keep: &BooleanArray,
) -> ScalarBuffer<T> {
    keep.values().set_indices().map(|row| values[row]).collect()
}

fn internal(error: ArrowError) -> Error {
    Error::invalid(format!("putting the columns of a block together: {error}"))
}
