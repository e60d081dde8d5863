//! Prints answers and messages, and ends a command quietly when nobody reads them any more.

use std::fmt;
use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_cast::display::FormatOptions;
use arrow_cast::pretty::pretty_format_batches_with_options;
use arrow_schema::SchemaRef;
use futures::StreamExt;
use tidefall_sql::{
    Inserted, JsonRows, JsonShape, QueryStream, Reads, write_csv, write_csv_header,
};
use tidefall_types::{Error, ErrorKind, text_bytes};

use crate::args::Format;
use crate::size::{show_bytes, show_count, show_number_of};

/// Rows that a table for people shows; more scroll past anyway, and they must all be in memory to
/// be aligned.
const TABLE_ROWS_MAX: usize = 1_000;
/// Bytes of texts after which a table ends as well; aligned, they take several times as much.
const TABLE_TEXT_BYTES_MAX: usize = 4 << 20;

/// Why a command ended before it was done.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Nobody reads standard output any more, as behind `head`: nothing is wrong.
    Unread,
    /// It failed.
    Failed(Error),
}

/// How a command that prints ended.
pub(crate) type Outcome<T = ()> = Result<T, Stop>;

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Stop {
    fn of_output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Unread,
            // Also where that is full: it is not the database that needs room.
            _ => Self::Failed(
                Error::io("writing to standard output", error).with_kind(ErrorKind::Io),
            ),
        }
    }
}

/// Prints a line to standard output, like `println!`, but as an [`Outcome`].
macro_rules! say {
    ($($text:tt)*) => { $crate::output::say_line(format_args!($($text)*)) };
}
/// Prints a line to standard error, like `eprintln!`, if somebody reads it.
macro_rules! note {
    ($($text:tt)*) => { $crate::output::note_line(format_args!($($text)*)) };
}
pub(crate) use {note, say};

pub(crate) fn say_line(text: fmt::Arguments<'_>) -> Outcome {
    writeln!(io::stdout().lock(), "{text}").map_err(|error| Stop::of_output(&error))
}

pub(crate) fn note_line(text: fmt::Arguments<'_>) {
    // Nothing is left to do if it cannot be told.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints an answer as it arrives, and returns its rows.
pub(crate) async fn print(answer: &mut QueryStream, format: Format) -> Outcome<u64> {
    let mut printer = Printer::new(format, answer.schema())?;
    let mut rows = 0;
    while let Some(batch) = answer.next().await {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        if !printer.write(&batch)? {
            break;
        }
    }
    printer.finish()?;
    note_replaced(answer);
    Ok(rows)
}

/// Says of an `INSERT` how many of its rows took the place of others, if any did: its answer is easily passed over.
fn note_replaced(answer: &QueryStream) {
    if let Some(Inserted { rows, replaced: Some(replaced @ 1..) }) = answer.inserted() {
        let (rows, replaced) = (show_number_of(rows, "row"), show_count(replaced));
        note!("{rows} inserted, {replaced} of them replaced earlier ones");
    }
}

enum Printer {
    Table {
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
        rows: usize,
        text_bytes: usize,
        is_cut: bool,
    },
    Csv {
        schema: SchemaRef,
        has_header: bool,
    },
    Json {
        rows: JsonRows,
        /// A bracket, until there are rows behind it.
        text: Vec<u8>,
    },
}

impl Printer {
    fn new(format: Format, schema: SchemaRef) -> Result<Self, Error> {
        Ok(match format {
            Format::Table => {
                Self::Table { schema, batches: Vec::new(), rows: 0, text_bytes: 0, is_cut: false }
            }
            Format::Csv => Self::Csv { schema, has_header: false },
            Format::Json => {
                let rows = JsonRows::new(JsonShape::Objects, &schema, None)?;
                Self::Json { rows, text: b"[".to_vec() }
            }
        })
    }

    /// Takes a batch, and says whether more are wanted.
    fn write(&mut self, batch: &RecordBatch) -> Outcome<bool> {
        match self {
            Self::Table { batches, rows, text_bytes: texts, is_cut, .. } => {
                let left = if *texts > TABLE_TEXT_BYTES_MAX { 0 } else { TABLE_ROWS_MAX - *rows };
                *is_cut |= batch.num_rows() > left;
                let shown = batch.slice(0, batch.num_rows().min(left));
                *rows += shown.num_rows();
                *texts += shown.columns().iter().map(|c| text_bytes(c, 0..c.len())).sum::<usize>();
                batches.push(shown);
                return Ok(!*is_cut);
            }
            Self::Csv { has_header, .. } => put_csv(batch, has_header)?,
            Self::Json { rows, text } => {
                rows.write(text, batch)?;
                put(&std::mem::take(text))?;
            }
        }
        Ok(true)
    }

    fn finish(self) -> Outcome {
        match self {
            Self::Table { schema, mut batches, rows, is_cut, .. } => {
                if batches.is_empty() {
                    batches.push(RecordBatch::new_empty(schema));
                }
                let options = FormatOptions::default().with_null("");
                let table = pretty_format_batches_with_options(&batches, &options)
                    .map_err(|e| failed(&e))?;
                say!("{table}")?;
                match is_cut {
                    true => say!("(the first {rows} rows; --format csv prints all)"),
                    false => Ok(()),
                }
            }
            // An answer without batches has a header, too, but one without columns has none.
            Self::Csv { schema, mut has_header } => {
                match has_header || schema.fields().is_empty() {
                    true => Ok(()),
                    false => put_csv(&RecordBatch::new_empty(schema), &mut has_header),
                }
            }
            Self::Json { mut text, .. } => {
                text.extend(b"]\n");
                put(&text)
            }
        }
    }
}

/// Prints rows as CSV, behind a header when there is none yet.
fn put_csv(batch: &RecordBatch, has_header: &mut bool) -> Outcome {
    let mut text = Vec::new();
    if !std::mem::replace(has_header, true) {
        write_csv_header(&mut text, &batch.schema());
    }
    write_csv(&mut text, batch, None)?;
    put(&text)
}

fn put(text: &[u8]) -> Outcome {
    let mut out = io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush()).map_err(|error| Stop::of_output(&error))
}

fn failed(error: &arrow_schema::ArrowError) -> Error {
    Error::invalid(format!("the answer cannot be printed: {error}"))
}

/// Says in one line what an answer took.
pub(crate) fn show_reads(reads: &Reads) -> String {
    format!(
        "read {} in {} pages of {} objects, {} rows from memory, {} blocks from metrics, {} pages pruned",
        show_bytes(reads.bytes),
        show_count(reads.pages),
        show_count(reads.objects),
        show_count(reads.rows_from_memory),
        show_count(reads.blocks_from_metrics),
        show_count(reads.pages_pruned),
    )
}
