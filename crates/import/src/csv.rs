//! CSV: a thread reads and cuts the input into blocks of whole records, others parse them, and
//! the reader hands the batches out in the order of the file.
//!
//! ```text
//! input ─ decompress ─ cut ──┬─ block ─ parse ─ batch ─┐
//!                            ├─ block ─ parse ─ batch ─┼─ in order ─ next()
//!                            └─ block ─ parse ─ batch ─┘
//! ```
//! For every block a one-place channel for its outcome is put into a bounded queue in the order
//! of the file; this keeps the order, and lets a slow consumer hold up the reading.

mod blocks;
mod columns;
mod infer;
mod parse;
mod plan;
mod records;
mod scalar;
mod time;

use std::path::Path;
use std::sync::mpsc::Receiver;

use tidefall_types::{Error, Result};

use crate::input::{binary, is_json};
use crate::{CsvOptions, Input, ParsedBatch};
use blocks::{Division, End, Outcome, Sample, start};
use infer::{Inferred, Survey};
use parse::{BlockParser, ParsedBlock};

pub use infer::CsvSchema;
use infer::Seen;
pub(crate) use infer::{SeenType, beside_decimals, beyond_numbers, format_of, is_rather_time};
pub(crate) use parse::constant_tag;
pub(crate) use scalar::quoted;
pub(crate) use time::TimeParser;
pub use time::{TimeFormat, TimeUnit};

/// Bytes of text from which everything is inferred: enough for some 100,000 rows, and read in
/// under 50 ms.
const SAMPLE_BYTES: usize = 4 << 20;

/// Bytes of text of a block: some ten thousand rows, and small enough for the second-level cache.
const BLOCK_BYTES: usize = 512 << 10;

/// More threads than this wait for the one that reads.
const THREADS_MAX: usize = 16;

/// Opens a CSV file and infers what `options` leave open.
///
/// # Errors
/// `NotFound` or `Io` when the file cannot be read, `Invalid` when it is empty, has doubled column
/// names, lacks a column that `options` name or a tag of their table, or no time can be found in it, `Corrupt` when its
/// compressed data is damaged before the first record, `Unsupported` for other kinds of files.
pub fn open_csv(path: &Path, options: &CsvOptions) -> Result<CsvReader> {
    read_csv(Input::open(path)?, options)
}

/// Reads CSV from a stream; see [`open_csv`].
///
/// # Errors
/// As [`open_csv`].
pub fn read_csv(input: Input, options: &CsvOptions) -> Result<CsvReader> {
    read_in_blocks(input, options, Sizes { sample: SAMPLE_BYTES, block: BLOCK_BYTES })
}

/// Bytes of text that are taken together; smaller in tests.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    sample: usize,
    block: usize,
}

fn read_in_blocks(mut input: Input, options: &CsvOptions, sizes: Sizes) -> Result<CsvReader> {
    let name = input.name().to_owned();
    let Looked { inferred, mut sample, division } = look(&mut input, options, sizes)?;
    sample.skip_bytes(inferred.data_start);
    let lines_before = sample.lines_skipped;
    let stored_bytes = input.stored_bytes();
    let outcomes = start(input, sample, division, || {
        let mut parser = BlockParser::new(inferred.plan.clone());
        move |block: &[u8]| parser.parse(block)
    })?;
    let schema = inferred.schema;
    Ok(CsvReader { name, schema, stored_bytes, outcomes: Some(outcomes), lines_before })
}

/// What a look at a file tells of its fields.
pub(crate) struct SeenFields {
    /// By name what the values call for.
    pub types: Vec<(String, SeenType)>,
    /// Those with whole numbers that a float does not hold.
    pub inexact: Vec<String>,
    /// Those with numbers that have fractions.
    pub fractions: Vec<String>,
    /// As in [`CsvSchema::notes`].
    pub notes: Vec<String>,
}

/// Looks at the fields of a file.
pub(crate) fn seen_fields(path: &Path, options: &CsvOptions) -> Result<SeenFields> {
    let sizes = Sizes { sample: SAMPLE_BYTES, block: BLOCK_BYTES };
    let Looked { inferred, .. } = look(&mut Input::open(path)?, options, sizes)?;
    Ok(SeenFields {
        types: inferred.seen_types(),
        inexact: inferred.fields_with(Seen::has_inexact),
        fractions: inferred.fields_with(Seen::has_fraction),
        notes: inferred.schema.notes,
    })
}

/// What is known of a file before its rows are read.
struct Looked {
    inferred: Inferred,
    sample: Sample,
    division: Division,
}

fn look(input: &mut Input, options: &CsvOptions, sizes: Sizes) -> Result<Looked> {
    let name = input.name().to_owned();
    let in_file = |error: Error| error.context(&name);
    check_marks(options).map_err(in_file)?;
    let sample = Sample::read(input, options, sizes.sample);
    if sample.bytes.is_empty() {
        return Err(sample.end.failure().unwrap_or_else(|| {
            Error::invalid(format!("{name} is empty: there is nothing to import"))
        }));
    }
    let magic = &sample.bytes[..sample.bytes.len().min(8)];
    if let Some(what) = binary(magic) {
        return Err(Error::unsupported(format!("{name}, unpacked, is {what}")));
    }
    if is_json(&sample.bytes) {
        return Err(Error::unsupported(format!(
            "{name} is JSON, which is not imported: write it as Parquet or CSV first, as DuckDB does with \
             COPY (FROM 'file.jsonl') TO 'file.parquet', and pandas with read_json(..., lines=True).to_parquet(...)"
        )));
    }
    let inferred = infer::infer(&sample.bytes[..sample.whole_records(options)], options);
    let mut inferred = match (inferred, sample.end.failure()) {
        (Ok(inferred), _) => inferred,
        // What is wrong with so little of the file is that there is no more of it.
        (Err(_), Some(failure)) => return Err(failure),
        (Err(error), None) => return Err(in_file(error)),
    };
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let threads = threads.min(THREADS_MAX);
    let division = Division { dialect: inferred.plan.dialect, threads, block_bytes: sizes.block };
    let is_whole = match sample.end {
        End::Open => match input.reopen()? {
            Some(again) => {
                survey(again, options, sizes, division, &mut inferred)?;
                true
            }
            None => false,
        },
        End::Reached => true,
        End::Failed(_) => false,
    };
    if is_whole {
        inferred.leave_out_nothing();
    }
    inferred.add_notes();
    Ok(Looked { inferred, sample, division })
}

/// Marks that cannot be told from each other, or from numbers.
fn check_marks(options: &CsvOptions) -> Result<()> {
    let wrong = |what: &str| Err(Error::invalid(what));
    match (options.decimal, options.thousands) {
        (Some(decimal), _) if !matches!(decimal, b'.' | b',') => {
            wrong("the decimals of a number begin with a point or a comma")
        }
        (Some(decimal), Some(thousands)) if decimal == thousands => {
            wrong("decimals and thousands cannot have the same mark")
        }
        (_, Some(mark)) if mark.is_ascii_alphanumeric() || matches!(mark, b'-' | b'+') => {
            wrong("the mark between thousands cannot be a part of a number")
        }
        _ => Ok(()),
    }
}

/// Reads all of the file for the columns whose type the sample leaves in doubt: whole numbers may
/// become decimal ones further down, and a column that was empty may turn out to be text.
fn survey(
    mut input: Input,
    options: &CsvOptions,
    sizes: Sizes,
    division: Division,
    inferred: &mut Inferred,
) -> Result<()> {
    let Some(survey) = Survey::of(inferred) else { return Ok(()) };
    let mut sample = Sample::read(&mut input, options, sizes.sample);
    sample.skip_bytes(inferred.data_start.min(sample.bytes.len()));
    let outcomes = start(input, sample, division, || {
        let mut survey = survey.clone();
        move |block: &[u8]| survey.look_at(block)
    })?;
    let mut seen = survey.nothing_seen();
    for outcome in outcomes {
        // What cannot be read is reported when the rows are.
        let Outcome::Block { done, .. } = outcome else { break };
        if let Ok(found) = done.recv() {
            seen.iter_mut().zip(found).for_each(|(seen, found)| seen.merge(&found));
        }
    }
    inferred.decide(&survey, seen, options);
    Ok(())
}

/// Batches of a CSV file, in the order of the file. After an error there are no more.
#[derive(Debug)]
pub struct CsvReader {
    name: String,
    schema: CsvSchema,
    stored_bytes: Option<u64>,
    outcomes: Option<Receiver<Outcome<Result<ParsedBlock>>>>,
    lines_before: u64,
}

impl CsvReader {
    /// What was found out about the file.
    pub fn schema(&self) -> &CsvSchema {
        &self.schema
    }

    /// The length of the file as stored, if it has one; beside
    /// [`ParsedBatch::bytes_read`] it gives the progress.
    pub fn stored_bytes(&self) -> Option<u64> {
        self.stored_bytes
    }

    fn receive(&mut self) -> Option<Result<ParsedBatch>> {
        let outcome = self.outcomes.as_ref()?.recv().ok()?;
        let (parsed, bytes_read) = match outcome {
            Outcome::Block { done, bytes_read } => (done.recv(), bytes_read),
            Outcome::Failure(error) => {
                let line = self.lines_before;
                return Some(Err(error.context(format!("after line {line}"))));
            }
        };
        Some(match parsed {
            Ok(Ok(ParsedBlock { batch, mut bad, lines, twice })) => {
                let before = self.lines_before;
                bad.iter_mut().for_each(|bad| bad.line += before);
                self.lines_before += lines;
                let lines = before + 1..=before + lines;
                Ok(ParsedBatch { batch, bad, lines, twice, bytes_read })
            }
            Ok(Err(error)) => Err(error.context(&self.name)),
            Err(_) => Err(Error::closed(format!("{}: a parsing thread stopped", self.name))),
        })
    }
}

impl Iterator for CsvReader {
    type Item = Result<ParsedBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.receive();
        if !matches!(item, Some(Ok(_))) {
            self.outcomes = None;
        }
        item
    }
}

#[cfg(test)]
mod tests;
