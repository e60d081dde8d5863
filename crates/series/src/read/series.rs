//! One sensor's readings as contiguous columns: the direct path for a data frame, without batches
//! in between. Chunks that nothing overlaps are decoded straight into the place where their values
//! stay.

use arrow_array::ArrayRef;
use arrow_buffer::ScalarBuffer;
use tidefall_codec::ColumnBuilder;
use tidefall_types::{Result, TimeRange};

use super::fetch::Fetched;
use super::merge::SensorStream;
use crate::rows::SensorRows;

/// The readings of one sensor, as contiguous columns.
#[derive(Debug, Clone)]
pub struct SensorSeries {
    /// The times in nanoseconds since 1970 UTC, ascending.
    pub time: ScalarBuffer<i64>,
    /// The requested fields.
    pub fields: Vec<ArrayRef>,
}

/// Reads all that a stream over `time` has.
pub(super) fn read_series(mut stream: SensorStream, time: &TimeRange) -> Result<SensorSeries> {
    let (fields, stats) = (stream.fields().clone(), stream.stats().clone());
    let rows_max = stream.rows_max();
    let mut times: Vec<i64> = Vec::with_capacity(rows_max);
    let mut columns: Vec<ColumnBuilder> =
        fields.iter().map(|(_, ty)| ColumnBuilder::new(*ty, rows_max)).collect();
    let mut fetched = Fetched::default();
    loop {
        let part = stream.take_part(|part| part.bare_chunk().is_some());
        if let Some(chunk) = part.as_ref().and_then(|part| part.bare_chunk()) {
            let to = (Some(&mut times), &mut columns[..]);
            chunk.append_to(time, &fields, to, &mut fetched, &stats)?;
        } else if let Some(rows) = stream.next(&mut fetched)? {
            times.extend_from_slice(&rows.times);
            append_fields(&rows, &mut columns)?;
        } else {
            let fields = columns.into_iter().map(ColumnBuilder::finish).collect();
            return Ok(SensorSeries { time: times.into(), fields });
        }
    }
}

/// Appends the values of rows to columns.
pub(super) fn append_fields(rows: &SensorRows, columns: &mut [ColumnBuilder]) -> Result<()> {
    for (column, values) in columns.iter_mut().zip(&rows.fields) {
        match values {
            Some(values) => column.append_array(values)?,
            None => column.append_nulls(rows.len()),
        }
    }
    Ok(())
}
