//! Times of 96 bits, a day and the nanoseconds of it, as Spark and Hive write them.
//!
//! The library makes 64 bits of nanoseconds of them, and wraps around where those do not reach. Seconds never do, so that
//! such columns are read twice, and the rows in which both differ are out of range.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampSecondType;
use arrow_schema::{DataType, Fields, Schema, TimeUnit};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::Type;
use parquet::errors::Result;
use tidefall_types::{NS_PER_SECOND, RowError};

use crate::arrow::{counts, out_of_range};

/// The times of 96 bits of a file.
#[derive(Debug)]
pub(super) struct Int96 {
    /// Has them in seconds.
    pub seconds: ArrowReaderMetadata,
    /// Their positions among the columns.
    columns: Vec<usize>,
}

impl Int96 {
    /// Those of a file, if it has some.
    pub(super) fn of(metadata: &ArrowReaderMetadata) -> Result<Option<Self>> {
        let roots = metadata.parquet_schema().root_schema().get_fields();
        let is_int96 = |&(column, root): &(usize, &Arc<parquet::schema::types::Type>)| {
            let is_time =
                matches!(metadata.schema().field(column).data_type(), DataType::Timestamp(..));
            is_time && root.is_primitive() && root.get_physical_type() == Type::INT96
        };
        let columns = roots.iter().enumerate().filter(is_int96).map(|(column, _)| column);
        let columns: Vec<usize> = columns.collect();
        match columns.is_empty() {
            true => Ok(None),
            false => Ok(Some(Self { seconds: in_seconds(metadata, &columns)?, columns })),
        }
    }

    /// Where among `columns` of the file such times are.
    pub(super) fn places(&self, columns: &[usize]) -> Vec<usize> {
        (0..columns.len()).filter(|&place| self.columns.contains(&columns[place])).collect()
    }
}

/// What a file says about itself, but that some columns are of seconds.
fn in_seconds(metadata: &ArrowReaderMetadata, columns: &[usize]) -> Result<ArrowReaderMetadata> {
    let open = |options| ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), options);
    let plain = open(ArrowReaderOptions::new().with_skip_arrow_metadata(true))?;
    let mut fields = plain.schema().fields().to_vec();
    for &column in columns {
        let seconds = DataType::Timestamp(TimeUnit::Second, None);
        fields[column] = Arc::new(fields[column].as_ref().clone().with_data_type(seconds));
    }
    let of_file = plain.schema().metadata().clone();
    let schema = Schema::new_with_metadata(Fields::from(fields), of_file);
    open(ArrowReaderOptions::new().with_schema(Arc::new(schema)))
}

/// The rows of a batch with times out of range, of which `seconds` has those at `places`; a row is named for each of them.
pub(super) fn outside(
    batch: &RecordBatch,
    places: &[usize],
    seconds: &RecordBatch,
) -> Vec<RowError> {
    let mut bad = Vec::new();
    for (&place, seconds) in places.iter().zip(seconds.columns()) {
        let Some((counts, unit_ns)) = counts(batch.column(place)) else { continue };
        let seconds = seconds.as_primitive::<TimestampSecondType>();
        let differs =
            |&(count, seconds): &(i64, i64)| count.div_euclid(NS_PER_SECOND / unit_ns) != seconds;
        let pairs = counts.iter().zip(seconds).enumerate();
        let wrong = pairs.filter_map(|(row, (count, seconds))| {
            let (_, seconds) = count.zip(seconds).filter(differs)?;
            Some((row, seconds))
        });
        let schema = batch.schema_ref();
        let what = format!("column {:?}:", schema.field(place).name());
        let error = |seconds| out_of_range(&what, (seconds, NS_PER_SECOND));
        bad.extend(wrong.map(|(row, seconds)| RowError { row, error: error(seconds) }));
    }
    bad
}
