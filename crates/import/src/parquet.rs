//! Parquet: row groups are decoded on several threads and handed out in the order of the file.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_schema::DataType;
use arrow_select::filter::filter_record_batch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Type;
use parquet::file::metadata::ColumnChunkMetaData;
use tidefall_types::{Error, FieldType, Result, RowError, TableSchema, WriteBatch};

use crate::arrow::{cast_plain, convert, time_column};
use crate::csv::{constant_tag, format_of};
use crate::retype::retype;
use crate::{ArrowOptions, BadLine, ParsedBatch, TimeFormat};

/// Rows of a batch, if their texts are not too long for that.
const BATCH_ROWS: usize = 32_768;

/// Bytes that a batch should have: numbers of that many rows and a dozen columns. It also bounds the texts of a batch that
/// is handed out.
const BATCH_BYTES: usize = 4 << 20;

/// Batches of a row group that may wait for the ones before it.
const BATCHES_WAITING: usize = 8;

/// Row groups that are decoded at the same time at most: each may hold its pages in memory.
const THREADS_MAX: usize = 4;

/// How to read a Parquet file.
#[derive(Debug, Clone, Default)]
pub struct ParquetOptions {
    /// The time column; `None` for the one called `time` if it is of a time type, else the first
    /// timestamp, else the first date.
    pub time: Option<String>,
    /// How the time is written if it is text or a number; `None` finds out.
    pub time_format: Option<TimeFormat>,
    /// The columns that name the sensor.
    pub tags: Vec<String>,
    /// Tags that every row gets, by name and value.
    pub constant_tags: Vec<(String, String)>,
    /// The table that the rows are for, if there is one: when no `tags` are named, the columns
    /// called like its tags are the tags.
    pub table: Option<Arc<TableSchema>>,
    /// The columns that are measured; `None` for all others. Others are not read at all.
    pub fields: Option<Vec<String>>,
    /// Columns to leave out.
    pub skip: Vec<String>,
    /// Types of fields, instead of the file's; names that the file does not have are of no
    /// meaning.
    pub types: BTreeMap<String, FieldType>,
    /// Threads that decode; 0 for as many as the machine has cores.
    pub threads: usize,
}

/// Opens a Parquet file.
///
/// # Errors
/// `NotFound` or `Io` when it cannot be read, `Corrupt` when it is no whole Parquet file,
/// `Invalid` when a column is missing or no time can be found.
pub fn open_parquet(path: &Path, options: &ParquetOptions) -> Result<ParquetReader> {
    let (source, stored_bytes) = Source::open(path, options)?;
    let source = Arc::new(source);
    let fields = source.fields()?;
    let groups = source.metadata.metadata().num_row_groups();
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let groups = start(&source, groups, threads.min(THREADS_MAX))
        .map_err(|error| Error::io("starting a thread", &error))?;
    Ok(ParquetReader {
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

/// Whether a file is read as Parquet: its name ends in `.parquet`.
pub fn is_parquet(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("parquet"))
}

/// The fields of a file and their types, those of the options included.
pub(crate) fn file_types(
    path: &Path,
    options: &ParquetOptions,
) -> Result<Vec<(String, FieldType)>> {
    Source::open(path, options)?.0.fields()
}

/// Batches of a Parquet file, in the order of the file. After an error there are no more.
#[derive(Debug)]
pub struct ParquetReader {
    source: Arc<Source>,
    stored_bytes: u64,
    fields: Vec<(String, FieldType)>,
    groups: Vec<Receiver<Result<RecordBatch>>>,
    group: usize,
    group_rows: u64,
    rows_before: u64,
    failed: bool,
}

impl ParquetReader {
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

    /// The number of rows of the file.
    pub fn rows(&self) -> u64 {
        u64::try_from(self.source.metadata.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    fn receive(&mut self) -> Option<Result<ParsedBatch>> {
        loop {
            match self.groups.get(self.group)?.recv() {
                Ok(Ok(batch)) => return Some(self.take(&batch)),
                Ok(Err(error)) => return Some(Err(error)),
                // The group is done, or its thread stopped half-way, which its rows show.
                Err(_) => {
                    let groups = self.source.metadata.metadata().row_groups();
                    let rows = u64::try_from(groups[self.group].num_rows()).unwrap_or(0);
                    if self.group_rows != rows {
                        let (group, found) = (self.group, self.group_rows);
                        return Some(Err(Error::corrupt(format!(
                            "{}: row group {group} has {found} of its {rows} rows",
                            self.source.name
                        ))));
                    }
                    self.group += 1;
                    self.group_rows = 0;
                }
            }
        }
    }

    fn take(&mut self, batch: &RecordBatch) -> Result<ParsedBatch> {
        let name = &self.source.name;
        let (mut converted, bad) = self
            .source
            .convert(batch)
            .map_err(|error| error.context(format!("{name}, behind row {}", self.rows_before)))?;
        if !bad.is_empty() {
            let mut keep = vec![true; batch.num_rows()];
            bad.iter().for_each(|bad| keep[bad.row] = false);
            let kept = filter_record_batch(batch, &BooleanArray::from(keep))
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
        // Where a row lies in the file is not known; the share of rows is what progress needs.
        let share = self.rows_before as f64 / self.rows().max(1) as f64;
        let bytes_read = (self.stored_bytes as f64 * share) as u64;
        Ok(ParsedBatch { batch: converted, bad, lines, bytes_read })
    }
}

impl Iterator for ParquetReader {
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
    metadata: ArrowReaderMetadata,
    /// The positions of the columns that are read.
    columns: Vec<usize>,
    arrow: ArrowOptions,
    time_format: Option<TimeFormat>,
    constant_tags: Vec<(String, String)>,
    types: BTreeMap<String, FieldType>,
}

impl Source {
    /// Opens a file; the second part is its length.
    fn open(path: &Path, options: &ParquetOptions) -> Result<(Self, u64)> {
        let name = path.display().to_string();
        let failed = |error| Error::io(format!("opening {name}"), &error);
        let file = File::open(path).map_err(failed)?;
        let stored_bytes = file.metadata().map_err(failed)?.len();
        let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())
            .map_err(|error| damaged(&name, error))?;
        let tags = tags(&metadata, options);
        let columns =
            wanted_columns(&metadata, options, &tags).map_err(|error| error.context(&name))?;
        let arrow = ArrowOptions { time: options.time.clone(), tags };
        let mut source = Self {
            name,
            path: path.to_owned(),
            metadata,
            columns,
            arrow,
            time_format: options.time_format.clone(),
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
        let schema = self.metadata.schema();
        let column = time_column(schema, &self.arrow)?;
        let field = schema.field(column);
        if field.data_type().is_temporal() {
            return Ok(None);
        }
        let wrong = |error: &dyn std::fmt::Display| damaged(&self.name, error);
        let batches =
            self.reader(&[column])?.with_batch_size(ROWS_MAX).with_limit(ROWS_MAX).build();
        let mut values = Vec::new();
        for batch in batches.map_err(|error| wrong(&error))? {
            let batch = batch.map_err(|error| wrong(&error))?;
            let text = cast_plain(field.name(), batch.column(0), &DataType::Utf8)?;
            values.extend(text.as_string::<i32>().iter().flatten().map(|t| t.as_bytes().to_vec()));
        }
        let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        format_of(field.name(), &values).map(Some)
    }

    /// A reader of some columns that is still to be told which rows.
    fn reader(&self, columns: &[usize]) -> Result<ParquetRecordBatchReaderBuilder<File>> {
        // Opened anew: copies of one file handle share their position, which threads would race for.
        let file = File::open(&self.path)
            .map_err(|error| Error::io(format!("opening {}", self.name), &error))?;
        let builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone());
        let mask = ProjectionMask::roots(builder.parquet_schema(), columns.iter().copied());
        Ok(builder.with_projection(mask))
    }

    /// Makes a write batch with the types that are asked for. The rows of the second part are bad,
    /// in their order, each once.
    fn convert(&self, batch: &RecordBatch) -> Result<(WriteBatch, Vec<RowError>)> {
        let (mut batch, mut bad) = convert(batch, &self.arrow, self.time_format.as_ref())?;
        let rows = batch.rows();
        let constant =
            self.constant_tags.iter().map(|(name, value)| constant_tag(name, value, rows));
        batch.tags.extend(constant);
        batch.check()?;
        for field in &mut batch.fields {
            if let Some(ty) = self.types.get(&field.name) {
                field.values = retype(&field.name, &field.values, *ty, &mut bad)?;
            }
        }
        bad.sort_by_key(|bad| bad.row);
        bad.dedup_by_key(|bad| bad.row);
        Ok((batch, bad))
    }

    /// The fields that batches of this file have; a conversion of no rows tells.
    fn fields(&self) -> Result<Vec<(String, FieldType)>> {
        let schema = self
            .metadata
            .schema()
            .project(&self.columns)
            .map_err(|error| damaged(&self.name, error))?;
        let empty = RecordBatch::new_empty(Arc::new(schema));
        let (WriteBatch { fields, .. }, _) =
            self.convert(&empty).map_err(|error| error.context(&self.name))?;
        let ty = |field: &tidefall_types::FieldColumn| {
            FieldType::from_arrow(field.values.data_type()).map(|ty| (field.name.clone(), ty))
        };
        Ok(fields.iter().filter_map(ty).collect())
    }

    /// The rows of a batch of a row group, by what its columns of text take in the file when they are unpacked. Texts that
    /// are repeated may be longer than that tells, if the file does not note it.
    fn batch_rows(&self, group: usize) -> usize {
        let group = self.metadata.metadata().row_group(group);
        let is_read = |column: &&ColumnChunkMetaData| {
            let name = column.column_path().parts().first();
            let place = name.and_then(|name| self.metadata.schema().index_of(name).ok());
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

    fn read_group(&self, group: usize, to: &SyncSender<Result<RecordBatch>>) -> Result<()> {
        let wrong = |error: &dyn std::fmt::Display| {
            damaged(&self.name, error).context(format!("row group {group}"))
        };
        let batches = self
            .reader(&self.columns)?
            .with_row_groups(vec![group])
            .with_batch_size(self.batch_rows(group))
            .build()
            .map_err(|error| wrong(&error))?;
        for batch in batches {
            if to.send(Ok(batch.map_err(|error| wrong(&error))?)).is_err() {
                // The reader was dropped.
                break;
            }
        }
        Ok(())
    }
}

fn damaged(name: &str, error: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("{name}: {error}"))
}

/// The tags that the options name, or else those of the table that are not something else here.
fn tags(metadata: &ArrowReaderMetadata, options: &ParquetOptions) -> Vec<String> {
    let (Some(table), true) = (&options.table, options.tags.is_empty()) else {
        return options.tags.clone();
    };
    let others = || options.time.iter().chain(&options.skip).chain(options.fields.iter().flatten());
    let is_tag = |tag: &&String| {
        metadata.schema().index_of(tag).is_ok() && !others().any(|other| other == *tag)
    };
    table.tags.iter().filter(is_tag).cloned().collect()
}

fn wanted_columns(
    metadata: &ArrowReaderMetadata,
    options: &ParquetOptions,
    tags: &[String],
) -> Result<Vec<usize>> {
    let schema = metadata.schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let given = options.time.iter().chain(tags).chain(&options.skip);
    let missing =
        given.chain(options.fields.iter().flatten()).find(|name| !names.contains(&name.as_str()));
    if let Some(name) = missing {
        return Err(Error::invalid(format!(
            "there is no column {name:?}; the columns are {names:?}"
        )));
    }
    let is_time = |name: &str| match &options.time {
        Some(time) => time == name,
        None => schema.field_with_name(name).is_ok_and(|field| field.data_type().is_temporal()),
    };
    let has = |list: &[String], name: &str| list.iter().any(|listed| listed == name);
    let wanted = |name: &str| {
        !has(&options.skip, name)
            && (has(tags, name)
                || is_time(name)
                || options.fields.as_ref().is_none_or(|fields| has(fields, name)))
    };
    Ok((0..names.len()).filter(|&column| wanted(names[column])).collect())
}

/// Starts the threads; the receivers are those of the row groups, in order.
fn start(
    source: &Arc<Source>,
    groups: usize,
    threads: usize,
) -> std::io::Result<Vec<Receiver<Result<RecordBatch>>>> {
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..groups).map(|_| sync_channel(BATCHES_WAITING)).unzip();
    let senders: Arc<Vec<Mutex<Option<_>>>> =
        Arc::new(senders.into_iter().map(|sender| Mutex::new(Some(sender))).collect());
    let next = Arc::new(AtomicUsize::new(0));
    for _ in 0..threads.min(groups) {
        let (source, senders, next) = (Arc::clone(source), Arc::clone(&senders), Arc::clone(&next));
        std::thread::Builder::new().name("parquet".to_owned()).spawn(move || {
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
