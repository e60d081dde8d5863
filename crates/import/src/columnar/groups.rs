//! Row groups of Parquet files.

use std::fs::File;

use arrow_array::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Type;
use parquet::file::metadata::ColumnChunkMetaData;
use tidefall_types::{Error, Result};

use super::form::Parquet;
use super::int96::{Int96, outside};
use super::{BATCH_BYTES, BATCH_ROWS, Part, Source, damaged};

/// The batches of a row group of a Parquet file.
pub(super) struct Batches<'a> {
    source: &'a Source,
    group: usize,
    batches: ParquetRecordBatchReader,
    /// Where in them times of 96 bits are, and their seconds.
    beside: Option<(Vec<usize>, ParquetRecordBatchReader)>,
}

impl<'a> Batches<'a> {
    pub(super) fn open(
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

impl Source {
    /// The rows of a batch of a row group of a Parquet file, by what its columns of text take in the file when they are unpacked. Texts that
    /// are repeated may be longer than that tells, if the file does not note it.
    pub(super) fn batch_rows(&self, metadata: &ArrowReaderMetadata, group: usize) -> usize {
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
