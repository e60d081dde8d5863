//! Parquet and Arrow: row groups of Parquet are decoded on several threads and handed out in the order of the file; an
//! Arrow file is one such group.

mod choice;
mod form;
mod groups;
mod int96;

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch};
use arrow_schema::DataType;
use arrow_select::filter::filter_record_batch;
use choice::{tags, wanted_columns};
use form::Form;
pub use form::is_columnar;
use groups::Batches;
use tidefall_types::{Error, FieldType, Result, RowError, TableSchema, WriteBatch, text_bytes};

use crate::arrow::{cast_plain, convert, time_column};
use crate::csv::{SeenFields, SeenType, TimeParser, constant_tag, format_of};
use crate::ipc::IpcReader;
use crate::local::instants;
use crate::retype::retype;
use crate::{ArrowOptions, BadLine, LocalZone, ParsedBatch, TimeFormat};

/// Rows of a batch, if their texts are not too long for that.
const BATCH_ROWS: usize = 32_768;

/// Bytes that a batch should have: numbers of that many rows and a dozen columns. It also bounds the texts of a batch that
/// is handed out.
const BATCH_BYTES: usize = 4 << 20;

/// Batches of a row group that may wait for the ones before it.
const BATCHES_WAITING: usize = 8;

/// Row groups that are decoded at the same time at most: each may hold its pages in memory.
const THREADS_MAX: usize = 4;

/// How to read a Parquet or Arrow file.
#[derive(Debug, Clone, Default)]
pub struct ColumnarOptions {
    /// The time column; `None` for the one called `time` if it is of a time type, else the first
    /// timestamp, else the first date. It is an error if numbers or texts beside it are called `time`,
    /// `timestamp` or the like, it is not, and nothing says that they are something else.
    pub time: Option<String>,
    /// How the time is written if it is text or a number; `None` finds out.
    pub time_format: Option<TimeFormat>,
    /// The zone of timestamps and texts that name none, other than UTC. Numbers since 1970 are instants in any zone.
    pub zone: Option<LocalZone>,
    /// The columns that name the sensor.
    pub tags: Vec<String>,
    /// Tags that every row gets, by name and value.
    pub constant_tags: Vec<(String, String)>,
    /// The table that the rows are for, if there is one: when no `tags` are named, the columns
    /// called like its tags are the tags, and it is an error if one of them is neither a column,
    /// nor among the constant tags, nor among `skip`.
    pub table: Option<Arc<TableSchema>>,
    /// The columns that are measured; `None` for all others. Others are not read at all.
    pub fields: Option<Vec<String>>,
    /// Columns to leave out, and tags of the table that the rows do not have.
    pub skip: Vec<String>,
    /// Types of fields, instead of the file's; names that the file does not have are of no
    /// meaning.
    pub types: BTreeMap<String, FieldType>,
    /// Threads that decode; 0 for as many as the machine has cores.
    pub threads: usize,
}

/// Opens a Parquet or Arrow file.
///
/// # Errors
/// `NotFound` or `Io` when it cannot be read, `Corrupt` when it is no whole such file,
/// `Invalid` when a column or a tag of the table is missing or no time can be found.
pub fn open_columnar(path: &Path, options: &ColumnarOptions) -> Result<ColumnarReader> {
    let (source, stored_bytes) = Source::open(path, options)?;
    let source = Arc::new(source);
    let fields = source.fields()?;
    let groups = source.form.groups();
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let groups = start(&source, groups, threads.min(THREADS_MAX))
        .map_err(|error| Error::io("starting a thread", &error))?;
    Ok(ColumnarReader {
        source,
        stored_bytes,
        fields,
        groups,
        group: 0,
        group_rows: 0,
        rows_before: 0,
        failed: false,
    })
}

/// The fields of a file and their types, those of the options included, and what is to be said of them.
pub(crate) fn seen_fields(path: &Path, options: &ColumnarOptions) -> Result<SeenFields> {
    let (source, _) = Source::open(path, options)?;
    let fields = source.fields()?;
    let is_field = |name: &str| fields.iter().any(|(field, _)| field == name);
    let schema = source.form.schema();
    let columns = schema.fields().iter().filter(|column| is_field(column.name()));
    let notes = columns.filter_map(|column| match *column.data_type() {
        DataType::Decimal64(digits, _)
        | DataType::Decimal128(digits, _)
        | DataType::Decimal256(digits, _)
            if u32::from(digits) > f64::DIGITS =>
        {
            Some(format!(
                "{:?} has decimals of up to {digits} digits, which are read as DOUBLE: those with more than {} are rounded",
                column.name(),
                f64::DIGITS
            ))
        }
        _ => None,
    });
    let notes = notes.collect();
    let types = fields.into_iter().map(|(name, ty)| (name, SeenType::Sure(ty))).collect();
    Ok(SeenFields { types, inexact: Vec::new(), fractions: Vec::new(), notes })
}

/// Batches of a Parquet or Arrow file, in the order of the file. After an error there are no more.
#[derive(Debug)]
pub struct ColumnarReader {
    source: Arc<Source>,
    stored_bytes: u64,
    fields: Vec<(String, FieldType)>,
    groups: Vec<Receiver<Result<Part>>>,
    group: usize,
    group_rows: u64,
    rows_before: u64,
    failed: bool,
}

impl ColumnarReader {
    /// The fields that the batches have, by name and type.
    pub fn fields(&self) -> &[(String, FieldType)] {
        &self.fields
    }

    /// The tags that the batches have.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        let constant = self.source.constant_tags.iter().map(|(name, _)| name);
        self.source.arrow.tags.iter().chain(constant).map(String::as_str)
    }

    /// The length of the file.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// The number of rows of the file, if it tells.
    pub fn rows(&self) -> Option<u64> {
        let Form::Parquet(parquet) = &self.source.form else { return None };
        u64::try_from(parquet.metadata.metadata().file_metadata().num_rows()).ok()
    }

    fn receive(&mut self) -> Option<Result<ParsedBatch>> {
        loop {
            match self.groups.get(self.group)?.recv() {
                Ok(Ok(part)) => return Some(self.take(part)),
                Ok(Err(error)) => return Some(Err(error)),
                // The group is done, or its thread stopped half-way, which its rows show.
                Err(_) => {
                    if let Err(error) = self.check_group() {
                        return Some(Err(error));
                    }
                    self.group += 1;
                    self.group_rows = 0;
                }
            }
        }
    }

    /// Checks, at the end of a group, that all of it has come.
    fn check_group(&self) -> Result<()> {
        let (name, group, found) = (&self.source.name, self.group, self.group_rows);
        match &self.source.form {
            Form::Parquet(parquet) => {
                let groups = parquet.metadata.metadata().row_groups();
                let rows = u64::try_from(groups[group].num_rows()).unwrap_or(0);
                if found == rows {
                    return Ok(());
                }
                Err(Error::corrupt(format!(
                    "{name}: row group {group} has {found} of its {rows} rows"
                )))
            }
            Form::Arrow { is_read, .. } if is_read.load(Ordering::Acquire) => Ok(()),
            Form::Arrow { .. } => {
                Err(Error::corrupt(format!("{name}: its reader stopped behind row {found}")))
            }
        }
    }

    fn take(&mut self, Part { batch, mut bad }: Part) -> Result<ParsedBatch> {
        let name = &self.source.name;
        let (mut converted, more_bad, twice) = self
            .source
            .convert(&batch)
            .map_err(|error| error.context(format!("{name}, behind row {}", self.rows_before)))?;
        bad.extend(more_bad);
        each_once(&mut bad);
        if !bad.is_empty() {
            let mut keep = vec![true; batch.num_rows()];
            bad.iter().for_each(|bad| keep[bad.row] = false);
            let kept = filter_record_batch(&batch, &BooleanArray::from(keep))
                .map_err(|error| Error::invalid(format!("{name}: {error}")))?;
            converted = self.source.convert(&kept)?.0;
        }
        let bad = bad
            .into_iter()
            .map(|bad| BadLine {
                line: self.rows_before + bad.row as u64 + 1,
                text: String::new(),
                reason: bad.error,
            })
            .collect();
        let before = self.rows_before;
        self.rows_before += batch.num_rows() as u64;
        let lines = before + 1..=self.rows_before;
        self.group_rows += batch.num_rows() as u64;
        let bytes_read = match &self.source.form {
            Form::Arrow { bytes_read, .. } => bytes_read.load(Ordering::Relaxed),
            // Where a row lies in the file is not known; the share of rows is what progress needs.
            Form::Parquet(_) => {
                let share = self.rows_before as f64 / self.rows().unwrap_or(0).max(1) as f64;
                (self.stored_bytes as f64 * share) as u64
            }
        };
        Ok(ParsedBatch { batch: converted, bad, lines, twice, bytes_read })
    }
}

impl Iterator for ColumnarReader {
    type Item = Result<ParsedBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let item = self.receive();
        self.failed = matches!(item, Some(Err(_)));
        item
    }
}

#[derive(Debug)]
struct Source {
    name: String,
    path: PathBuf,
    form: Form,
    /// The positions of the columns that are read.
    columns: Vec<usize>,
    arrow: ArrowOptions,
    time_format: Option<TimeFormat>,
    zone: Option<LocalZone>,
    constant_tags: Vec<(String, String)>,
    types: BTreeMap<String, FieldType>,
}

impl Source {
    /// Opens a file; the second part is its length.
    fn open(path: &Path, options: &ColumnarOptions) -> Result<(Self, u64)> {
        let name = path.display().to_string();
        let failed = |error| Error::io(format!("opening {name}"), &error);
        let file = File::open(path).map_err(failed)?;
        let stored_bytes = file.metadata().map_err(failed)?.len();
        let form = Form::of(path, &file)?;
        let tags = tags(form.schema(), options).map_err(|error| error.context(&name))?;
        let (columns, time) =
            wanted_columns(form.schema(), options, &tags).map_err(|error| error.context(&name))?;
        let arrow = ArrowOptions { time: Some(time), tags };
        let mut source = Self {
            name,
            path: path.to_owned(),
            form,
            columns,
            arrow,
            time_format: options.time_format.clone(),
            zone: options.zone,
            constant_tags: options.constant_tags.clone(),
            types: options.types.clone(),
        };
        if source.time_format.is_none() {
            let found = source.find_time_format();
            source.time_format = found.map_err(|error| error.context(&source.name))?;
        }
        Ok((source, stored_bytes))
    }

    /// How the times at the beginning of the file are written, if they are text or numbers.
    fn find_time_format(&self) -> Result<Option<TimeFormat>> {
        const ROWS_MAX: usize = 10_000;
        let schema = self.form.schema();
        let column = time_column(schema, &self.arrow)?;
        let field = schema.field(column);
        if field.data_type().is_temporal() {
            return Ok(None);
        }
        let mut values = Vec::new();
        let mut left = ROWS_MAX;
        let mut take = |Part { batch, .. }: Part| {
            let batch = batch.slice(0, batch.num_rows().min(left));
            left -= batch.num_rows();
            let text = cast_plain(field.name(), batch.column(0), &DataType::Utf8)?;
            values.extend(text.as_string::<i32>().iter().flatten().map(|t| t.as_bytes().to_vec()));
            Ok(if left > 0 { More::Wanted } else { More::Enough })
        };
        for group in 0..self.form.groups() {
            if self.read_columns(group, &[column], ROWS_MAX, &mut take)? == More::Enough {
                break;
            }
        }
        let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        format_of(field.name(), &values).map(Some)
    }

    /// Makes a write batch with the types that are asked for. The rows of the second part are bad,
    /// in their order, each once; the third part is how many times clocks showed twice.
    fn convert(&self, batch: &RecordBatch) -> Result<(WriteBatch, Vec<RowError>, u64)> {
        let (local, mut bad, mut twice) = match self.zone {
            Some(zone) => instants(batch, zone, &self.arrow, |name| self.is_text(name))?,
            None => (batch.clone(), Vec::new(), 0),
        };
        let parser = self.time_format.as_ref().map(TimeFormat::parser).transpose()?;
        let mut parser = parser.map(|parser| parser.with_zone(self.zone));
        let (mut batch, more_bad) = convert(&local, &self.arrow, parser.as_mut())?;
        // Behind those of the same row that tell why it has no time.
        bad.extend(more_bad);
        twice += parser.as_mut().map_or(0, TimeParser::take_twice);
        let rows = batch.rows();
        let constant =
            self.constant_tags.iter().map(|(name, value)| constant_tag(name, value, rows));
        batch.tags.extend(constant);
        batch.check()?;
        for field in &mut batch.fields {
            if let Some(ty) = self.types.get(&field.name) {
                field.values = retype(&field.name, &field.values, *ty, self.zone, &mut bad)?;
            }
        }
        each_once(&mut bad);
        Ok((batch, bad, twice))
    }

    /// Whether a column, whatever it is in the file, becomes text.
    fn is_text(&self, name: &str) -> bool {
        let is_tag = self.arrow.tags.iter().any(|tag| tag == name);
        is_tag || self.types.get(name) == Some(&FieldType::Text)
    }

    /// The fields that batches of this file have; a conversion of no rows tells.
    fn fields(&self) -> Result<Vec<(String, FieldType)>> {
        let schema = self
            .form
            .schema()
            .project(&self.columns)
            .map_err(|error| damaged(&self.name, error))?;
        let empty = RecordBatch::new_empty(Arc::new(schema));
        let (WriteBatch { fields, .. }, _, _) =
            self.convert(&empty).map_err(|error| error.context(&self.name))?;
        let ty = |field: &tidefall_types::FieldColumn| {
            FieldType::from_arrow(field.values.data_type()).map(|ty| (field.name.clone(), ty))
        };
        Ok(fields.iter().filter_map(ty).collect())
    }

    fn read_group(&self, group: usize, to: &SyncSender<Result<Part>>) -> Result<()> {
        let rows = match &self.form {
            Form::Parquet(parquet) => self.batch_rows(&parquet.metadata, group),
            Form::Arrow { .. } => BATCH_ROWS,
        };
        self.read_columns(group, &self.columns, rows, |part| {
            // When nobody takes it the reader was dropped.
            Ok(if to.send(Ok(part)).is_ok() { More::Wanted } else { More::Enough })
        })?;
        Ok(())
    }

    /// Hands out some columns of a group in batches of at most so many rows, as long as more are wanted.
    fn read_columns(
        &self,
        group: usize,
        columns: &[usize],
        rows_max: usize,
        mut take: impl FnMut(Part) -> Result<More>,
    ) -> Result<More> {
        match &self.form {
            Form::Parquet(parquet) => {
                let mut batches = Batches::open(self, parquet, (group, columns, rows_max))?;
                while let Some(part) = batches.next().transpose()? {
                    if take(part)? == More::Enough {
                        return Ok(More::Enough);
                    }
                }
            }
            Form::Arrow { bytes_read, is_read, .. } => {
                let mut batches = IpcReader::open(&self.path)?;
                let bytes = batches.bytes_left();
                while let Some(batch) = batches.next().transpose()? {
                    let batch = batch.project(columns).map_err(|e| damaged(&self.name, e))?;
                    let mut first = 0;
                    while first < batch.num_rows() {
                        let part = part_of(&batch, first, rows_max);
                        first += part.num_rows();
                        let read = bytes.saturating_sub(batches.bytes_left());
                        bytes_read.store(read, Ordering::Relaxed);
                        if take(Part { batch: part, bad: Vec::new() })? == More::Enough {
                            return Ok(More::Enough);
                        }
                    }
                }
                is_read.store(true, Ordering::Release);
            }
        }
        Ok(More::Wanted)
    }
}

/// Rows of a file, and which of them it has otherwise than the library reads them; a row may be named several times.
#[derive(Debug)]
struct Part {
    batch: RecordBatch,
    bad: Vec<RowError>,
}

/// The rows in order, each once, with its first error.
fn each_once(bad: &mut Vec<RowError>) {
    bad.sort_by_key(|bad| bad.row);
    bad.dedup_by_key(|bad| bad.row);
}

/// The bytes of texts in any of the forms that files have.
fn bytes_of_texts(column: &ArrayRef, rows: Range<usize>) -> usize {
    if let Some(texts) = column.as_string_opt::<i64>() {
        let ends = texts.value_offsets();
        return (ends[rows.end] - ends[rows.start]) as usize;
    }
    if let Some(texts) = column.as_string_view_opt() {
        return rows.map(|row| texts.value(row).len()).sum();
    }
    text_bytes(column, rows)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum More {
    Wanted,
    Enough,
}

/// Rows of a batch from `first` on, as many as stay within the bytes of a batch, one at least.
fn part_of(batch: &RecordBatch, first: usize, rows_max: usize) -> RecordBatch {
    let mut rows = rows_max.min(batch.num_rows() - first);
    let texts = |rows: usize| -> usize {
        batch.columns().iter().map(|column| bytes_of_texts(column, first..first + rows)).sum()
    };
    while rows > 1 && texts(rows) > BATCH_BYTES {
        rows /= 2;
    }
    batch.slice(first, rows)
}

fn damaged(name: &str, error: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("{name}: {error}"))
}

/// Starts the threads; the receivers are those of the row groups, in order.
fn start(
    source: &Arc<Source>,
    groups: usize,
    threads: usize,
) -> std::io::Result<Vec<Receiver<Result<Part>>>> {
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..groups).map(|_| sync_channel(BATCHES_WAITING)).unzip();
    let senders: Arc<Vec<Mutex<Option<_>>>> =
        Arc::new(senders.into_iter().map(|sender| Mutex::new(Some(sender))).collect());
    let next = Arc::new(AtomicUsize::new(0));
    for _ in 0..threads.min(groups) {
        let (source, senders, next) = (Arc::clone(source), Arc::clone(&senders), Arc::clone(&next));
        std::thread::Builder::new().name("columnar".to_owned()).spawn(move || {
            loop {
                let group = next.fetch_add(1, Ordering::Relaxed);
                // Taken out, so that the receiver sees the end of the group when it is dropped.
                let Some(sender) = senders.get(group).and_then(take_sender) else { return };
                if let Err(error) = source.read_group(group, &sender) {
                    let _ = sender.send(Err(error));
                }
            }
        })?;
    }
    Ok(receivers)
}

fn take_sender<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[cfg(test)]
mod tests;
