//! Prints answers.

use std::io::{self, BufWriter, Write};

use arrow_array::RecordBatch;
use arrow_cast::display::FormatOptions;
use arrow_cast::pretty::pretty_format_batches_with_options;
use arrow_schema::SchemaRef;
use futures::StreamExt;
use tidefall_sql::{QueryStream, Reads};
use tidefall_types::{Error, Result};

use crate::args::Format;
use crate::size::{show_bytes, show_count};

/// Rows that a table for people shows; more scroll past anyway, and they must all be in memory to
/// be aligned.
const TABLE_ROWS_MAX: usize = 1_000;

/// Prints an answer as it arrives, and returns its rows.
pub(crate) async fn print(answer: &mut QueryStream, format: Format) -> Result<u64> {
    let schema = answer.schema();
    let out = BufWriter::new(io::stdout().lock());
    let mut printer = Printer::new(format, schema, out);
    let mut rows = 0;
    while let Some(batch) = answer.next().await {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        if !printer.write(&batch)? {
            break;
        }
    }
    printer.finish()?;
    Ok(rows)
}

enum Printer<W: Write> {
    Table { schema: SchemaRef, batches: Vec<RecordBatch>, rows: usize, is_cut: bool, out: W },
    Csv(Box<arrow_csv::Writer<W>>),
    Json(Box<arrow_json::ArrayWriter<W>>),
}

impl<W: Write> Printer<W> {
    fn new(format: Format, schema: SchemaRef, out: W) -> Self {
        match format {
            Format::Table => {
                Self::Table { schema, batches: Vec::new(), rows: 0, is_cut: false, out }
            }
            Format::Csv => {
                Self::Csv(Box::new(arrow_csv::WriterBuilder::new().with_header(true).build(out)))
            }
            Format::Json => Self::Json(Box::new(
                arrow_json::WriterBuilder::new()
                    .with_explicit_nulls(true)
                    .build::<_, arrow_json::writer::JsonArray>(out),
            )),
        }
    }

    /// Takes a batch, and says whether more are wanted.
    fn write(&mut self, batch: &RecordBatch) -> Result<bool> {
        match self {
            Self::Table { batches, rows, is_cut, .. } => {
                let room = TABLE_ROWS_MAX - *rows;
                *is_cut |= batch.num_rows() > room;
                batches.push(batch.slice(0, batch.num_rows().min(room)));
                *rows += batch.num_rows().min(room);
                Ok(!*is_cut)
            }
            Self::Csv(writer) => writer.write(batch).map(|()| true).map_err(|e| failed(&e)),
            Self::Json(writer) => writer.write(batch).map(|()| true).map_err(|e| failed(&e)),
        }
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Table { schema, mut batches, is_cut, mut out, .. } => {
                if batches.is_empty() {
                    batches.push(RecordBatch::new_empty(schema));
                }
                let options = FormatOptions::default().with_null("");
                let table = pretty_format_batches_with_options(&batches, &options)
                    .map_err(|e| failed(&e))?;
                let note = match is_cut {
                    true => format!("(the first {TABLE_ROWS_MAX} rows; --format csv prints all)\n"),
                    false => String::new(),
                };
                write!(out, "{table}\n{note}").and_then(|()| out.flush()).map_err(|e| output(&e))
            }
            Self::Csv(writer) => writer.into_inner().flush().map_err(|e| output(&e)),
            Self::Json(mut writer) => {
                writer.finish().map_err(|e| failed(&e))?;
                let mut out = writer.into_inner();
                writeln!(out).and_then(|()| out.flush()).map_err(|e| output(&e))
            }
        }
    }
}

fn failed(error: &arrow_schema::ArrowError) -> Error {
    Error::invalid(format!("the answer cannot be printed: {error}"))
}

fn output(error: &io::Error) -> Error {
    Error::io("writing to standard output", error)
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
