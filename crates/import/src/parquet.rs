//! Parquet: row groups are decoded on several threads and handed out in the order of the file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use tidefall_types::{Error, FieldType, Result, TableSchema, WriteBatch};

use crate::arrow::convert;
use crate::{ArrowOptions, BadLine, ParsedBatch};

/// Rows of a batch.
const BATCH_ROWS: usize = 32_768;

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
    /// The columns that name the sensor.
    pub tags: Vec<String>,
    /// The table that the rows are for, if there is one: when no `tags` are named, the columns
    /// called like its tags are the tags.
    pub table: Option<Arc<TableSchema>>,
    /// The columns that are measured; `None` for all others. Others are not read at all.
    pub fields: Option<Vec<String>>,
    /// Columns to leave out.
    pub skip: Vec<String>,
    /// Threads that decode; 0 for as many as the machine has cores.
    pub threads: usize,
}

/// Opens a Parquet file.
///
/// # Errors
/// `NotFound` or `Io` when it cannot be read, `Corrupt` when it is no whole Parquet file,
/// `Invalid` when a column is missing or no time can be found.
pub fn open_parquet(path: &Path, options: &ParquetOptions) -> Result<ParquetReader> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| Error::io(format!("opening {name}"), &error))?;
    let stored_bytes =
        file.metadata().map_err(|error| Error::io(format!("opening {name}"), &error))?.len();
    let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())
        .map_err(|error| damaged(&name, error))?;
    let tags = tags(&metadata, options);
    let columns =
        wanted_columns(&metadata, options, &tags).map_err(|error| error.context(&name))?;
    let arrow = ArrowOptions { time: options.time.clone(), tags };
    let source = Arc::new(Source { name, path: path.to_owned(), metadata, columns, arrow });
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
        let (mut converted, bad) = convert(batch, &self.source.arrow)
            .map_err(|error| error.context(format!("{name}, behind row {}", self.rows_before)))?;
        if !bad.is_empty() {
            let mut keep = vec![true; batch.num_rows()];
            bad.iter().for_each(|bad| keep[bad.row] = false);
            let kept = filter_record_batch(batch, &BooleanArray::from(keep))
                .map_err(|error| Error::invalid(format!("{name}: {error}")))?;
            converted = convert(&kept, &self.source.arrow)?.0;
        }
        let bad = bad
            .into_iter()
            .map(|bad| BadLine {
                line: self.rows_before + bad.row as u64 + 1,
                text: String::new(),
                reason: bad.error,
            })
            .collect();
        self.rows_before += batch.num_rows() as u64;
        self.group_rows += batch.num_rows() as u64;
        // Where a row lies in the file is not known; the share of rows is what progress needs.
        let share = self.rows_before as f64 / self.rows().max(1) as f64;
        let bytes_read = (self.stored_bytes as f64 * share) as u64;
        Ok(ParsedBatch { batch: converted, bad, bytes_read })
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
}

impl Source {
    /// The fields that batches of this file have; a conversion of no rows tells.
    fn fields(&self) -> Result<Vec<(String, FieldType)>> {
        let schema = self
            .metadata
            .schema()
            .project(&self.columns)
            .map_err(|error| damaged(&self.name, error))?;
        let empty = RecordBatch::new_empty(Arc::new(schema));
        let (WriteBatch { fields, .. }, _) =
            convert(&empty, &self.arrow).map_err(|error| error.context(&self.name))?;
        let ty = |field: &tidefall_types::FieldColumn| {
            FieldType::from_arrow(field.values.data_type()).map(|ty| (field.name.clone(), ty))
        };
        Ok(fields.iter().filter_map(ty).collect())
    }

    fn read_group(&self, group: usize, to: &SyncSender<Result<RecordBatch>>) -> Result<()> {
        // Opened anew: copies of one file handle share their position, which threads would race for.
        let file = File::open(&self.path)
            .map_err(|error| Error::io(format!("opening {}", self.name), &error))?;
        let wrong = |error: &dyn std::fmt::Display| {
            damaged(&self.name, error).context(format!("row group {group}"))
        };
        let builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone());
        let mask = ProjectionMask::roots(builder.parquet_schema(), self.columns.iter().copied());
        let batches = builder
            .with_projection(mask)
            .with_row_groups(vec![group])
            .with_batch_size(BATCH_ROWS)
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
