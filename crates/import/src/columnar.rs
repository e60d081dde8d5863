//! Parquet and Arrow: row groups of Parquet are decoded on several threads and handed out in the order of the file; an
//! Arrow file is one such group.

mod form;
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
use arrow_schema::{DataType, SchemaRef};
use arrow_select::filter::filter_record_batch;
pub use form::is_columnar;
use form::{Form, Parquet};
use int96::{Int96, outside};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Type;
use parquet::file::metadata::ColumnChunkMetaData;
use tidefall_types::{Error, FieldType, Result, RowError, TableSchema, WriteBatch, text_bytes};

use crate::arrow::{cast_plain, convert, time_column};
use crate::csv::{TimeParser, constant_tag, format_of};
use crate::ipc::IpcReader;
use crate::retype::retype;
use crate::tags::{Provided, skipped};
use crate::zone::moments;
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
    /// The zone of timestamps and texts that name none, other than UTC. Numbers since 1970 are moments in any zone.
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

/// The fields of a file and their types, those of the options included.
pub(crate) fn file_types(
    path: &Path,
    options: &ColumnarOptions,
) -> Result<Vec<(String, FieldType)>> {
    Source::open(path, options)?.0.fields()
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

    /// A reader of some columns of a Parquet file that is still to be told which rows.
    fn reader(
        &self,
        metadata: &ArrowReaderMetadata,
        columns: &[usize],
    ) -> Result<ParquetRecordBatchReaderBuilder<File>> {
        // Opened anew: copies of one file handle share their position, which threads would race for.
        let file = File::open(&self.path)
            .map_err(|error| Error::io(format!("opening {}", self.name), &error))?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone());
        let mask = ProjectionMask::roots(builder.parquet_schema(), columns.iter().copied());
        Ok(builder.with_projection(mask))
    }

    /// The error for rows of a group of a Parquet file that cannot be read.
    fn wrong(&self, group: usize, error: impl std::fmt::Display) -> Error {
        unreadable(&self.name, error).context(format!("row group {group}"))
    }

    /// Makes a write batch with the types that are asked for. The rows of the second part are bad,
    /// in their order, each once; the third part is how many times clocks showed twice.
    fn convert(&self, batch: &RecordBatch) -> Result<(WriteBatch, Vec<RowError>, u64)> {
        let (local, mut bad, mut twice) = match self.zone {
            Some(zone) => moments(batch, zone, &self.arrow, |name| self.is_text(name))?,
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

    /// The rows of a batch of a row group of a Parquet file, by what its columns of text take in the file when they are unpacked. Texts that
    /// are repeated may be longer than that tells, if the file does not note it.
    fn batch_rows(&self, metadata: &ArrowReaderMetadata, group: usize) -> usize {
        let group = metadata.metadata().row_group(group);
        let is_read = |column: &&ColumnChunkMetaData| {
            let name = column.column_path().parts().first();
            let place = name.and_then(|name| metadata.schema().index_of(name).ok());
            place.is_some_and(|place| self.columns.contains(&place))
        };
        let texts = group.columns().iter().filter(is_read);
        let texts = texts.filter(|column| column.column_type() == Type::BYTE_ARRAY);
        let bytes = texts.map(|column| {
            let noted = column.unencoded_byte_array_data_bytes().unwrap_or(0);
            u64::try_from(column.uncompressed_size().max(noted)).unwrap_or(0)
        });
        let rows = u64::try_from(group.num_rows()).unwrap_or(0).max(1);
        let row_bytes = bytes.sum::<u64>() / rows;
        (BATCH_BYTES as u64 / row_bytes.max(1)).clamp(1, BATCH_ROWS as u64) as usize
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

/// The batches of a row group of a Parquet file.
struct Batches<'a> {
    source: &'a Source,
    group: usize,
    batches: ParquetRecordBatchReader,
    /// Where in them times of 96 bits are, and their seconds.
    beside: Option<(Vec<usize>, ParquetRecordBatchReader)>,
}

impl<'a> Batches<'a> {
    fn open(
        source: &'a Source,
        Parquet { metadata, int96 }: &Parquet,
        (group, columns, rows_max): (usize, &[usize], usize),
    ) -> Result<Self> {
        let open = |metadata: &ArrowReaderMetadata, columns: &[usize]| {
            let reader = source.reader(metadata, columns)?.with_row_groups(vec![group]);
            let reader = reader.with_batch_size(rows_max).build();
            reader.map_err(|error| source.wrong(group, error))
        };
        let beside = |int96: &Int96| {
            let places = int96.places(columns);
            let columns: Vec<usize> = places.iter().map(|&place| columns[place]).collect();
            Ok::<_, Error>((places, open(&int96.seconds, &columns)?))
        };
        let beside = int96.as_ref().map(beside).transpose()?;
        Ok(Self { source, group, batches: open(metadata, columns)?, beside })
    }

    fn part(&mut self, batch: RecordBatch) -> Result<Part> {
        let wrong = |error: &dyn std::fmt::Display| self.source.wrong(self.group, error);
        let bad = match &mut self.beside {
            Some((places, seconds)) if !places.is_empty() => {
                let seconds = seconds.next().transpose().map_err(|error| wrong(&error))?;
                let seconds = seconds.filter(|seconds| seconds.num_rows() == batch.num_rows());
                let seconds = seconds.ok_or_else(|| wrong(&"its times are not all there"))?;
                outside(&batch, places, &seconds)
            }
            _ => Vec::new(),
        };
        Ok(Part { batch, bad })
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<Part>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batches.next()?;
        let batch = batch.map_err(|error| self.source.wrong(self.group, error));
        Some(batch.and_then(|batch| self.part(batch)))
    }
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

/// Why rows of a Parquet file cannot be read.
fn unreadable(name: &str, error: impl std::fmt::Display) -> Error {
    let error = error.to_string();
    let word_behind = |mark: &str| {
        let (_, rest) = error.split_once(mark)?;
        rest.split(|c: char| !c.is_alphanumeric()).next().map(str::to_owned)
    };
    // The library has no kinds of errors that would tell.
    let packing = word_behind("Disabled feature at compile time: ");
    match packing.or_else(|| word_behind("The codec type ")) {
        Some(packing) => Error::unsupported(format!(
            "{name} is packed with {packing}, which is not read here: write it with zstd, snappy, gzip or lz4"
        )),
        None if error.contains("NYI: ") => Error::unsupported(format!("{name}: {error}")),
        None => damaged(name, error),
    }
}

/// The tags that the options name, or else those of the table that are not something else here.
fn tags(schema: &SchemaRef, options: &ColumnarOptions) -> Result<Vec<String>> {
    let (Some(table), true) = (&options.table, options.tags.is_empty()) else {
        return Ok(options.tags.clone());
    };
    let constant = options.constant_tags.iter().map(|(name, _)| name);
    let others = constant.chain(&options.skip).map(String::as_str).collect();
    let columns = schema.fields().iter().map(|field| field.name().as_str()).collect();
    Provided { columns, others }.check(table)?;
    let others = || options.time.iter().chain(&options.skip).chain(options.fields.iter().flatten());
    let is_tag =
        |tag: &&String| schema.index_of(tag).is_ok() && !others().any(|other| other == *tag);
    Ok(table.tags.iter().filter(is_tag).cloned().collect())
}

/// The positions of the columns that are read, and the name of the one that is the time, which all batches share.
fn wanted_columns(
    schema: &SchemaRef,
    options: &ColumnarOptions,
    tags: &[String],
) -> Result<(Vec<usize>, String)> {
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let skip = skipped(&options.skip, options.table.as_deref(), |name| names.contains(&name));
    let given = options.time.iter().chain(tags).chain(skip);
    let missing =
        given.chain(options.fields.iter().flatten()).find(|name| !names.contains(&name.as_str()));
    if let Some(name) = missing {
        return Err(Error::invalid(format!(
            "there is no column {name:?}; the columns are {names:?}"
        )));
    }
    let has = |list: &[String], name: &str| list.iter().any(|listed| listed == name);
    let there = (0..names.len()).filter(|&column| !has(&options.skip, names[column]));
    let there: Vec<usize> = there.collect();
    let time = time_of(schema, &there, options, tags)?;
    let is_wanted = |name: &str| {
        name == time
            || has(tags, name)
            || options.fields.as_ref().is_none_or(|fields| has(fields, name))
    };
    Ok((there.into_iter().filter(|&column| is_wanted(names[column])).collect(), time))
}

/// The name of the column that is the time, one of those `there`.
fn time_of(
    schema: &SchemaRef,
    there: &[usize],
    options: &ColumnarOptions,
    tags: &[String],
) -> Result<String> {
    let is_field = |name: &String| {
        let mut told = options.fields.iter().flatten().chain(options.types.keys());
        let of_table = options.table.iter().flat_map(|table| &table.fields);
        told.any(|told| told == name) || of_table.into_iter().any(|field| field.name == *name)
    };
    let may_be_time = |column: &usize| {
        let field = schema.field(*column);
        let has_dates = matches!(
            field.data_type(),
            DataType::Timestamp(..) | DataType::Date32 | DataType::Date64
        );
        options.time.is_some() || has_dates || !is_field(field.name())
    };
    // Numbers and texts that are known to be a field are not asked about.
    let there: Vec<usize> = there.iter().copied().filter(may_be_time).collect();
    let left = schema.project(&there).map_err(|error| Error::invalid(error.to_string()))?;
    let arrow = ArrowOptions { time: options.time.clone(), tags: tags.to_vec() };
    Ok(left.field(time_column(&left, &arrow)?).name().clone())
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
