//! From columns of one sensor to the bytes of a segment. Pure: many threads encode, one writes.
//!
//! A *piece* is a stretch of one sensor's rows, cut into *chunks* of at most [`CHUNK_ROWS`] rows, and fewer where
//! texts are long, that all columns share. Its bytes hold the times of all chunks (nothing for regular ones), then
//! each field's pages: one field over many chunks is one contiguous range.

use std::borrow::Cow;

use arrow_array::{Array, Int64Array};
use tidefall_codec::{MAX_PAGE_ROWS, Profile, encode_page};
use tidefall_ground::texts::{CHUNK_TEXT_BYTES, rows_within, text_bytes};
use tidefall_types::{Error, FieldId, FieldType, Result};

use super::filter;
use super::metrics::Blocks;
use crate::rows::SensorRows;

/// How a segment is encoded.
#[derive(Debug, Clone)]
pub struct EncodeParams {
    /// The fields of the segment.
    pub fields: Vec<(FieldId, FieldType)>,
    /// The interval of the metrics of this segment.
    pub block_ns: i64,
    /// How hard it is packed.
    pub profile: Profile,
    /// Whether it has filters.
    pub has_filters: bool,
}

impl EncodeParams {
    pub(crate) fn types(&self) -> Vec<FieldType> {
        self.fields.iter().map(|(_, ty)| *ty).collect()
    }
}

/// Rows of a chunk at most: what a page holds.
pub(crate) const CHUNK_ROWS: usize = MAX_PAGE_ROWS;

/// What a value takes in a page, about, ...
const VALUE_BYTES: usize = 3;
/// ... and what stands before the values, of small pages the most.
const HEAD_BYTES: usize = 64;

/// What the index knows of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkMeta {
    pub(crate) rows: u32,
    pub(crate) first_ns: i64,
    pub(crate) last_ns: i64,
    /// The bytes of the time page; 0 for times with one step from the first to the last.
    pub(crate) time_bytes: u32,
}

impl ChunkMeta {
    /// The step of regular times, from their ends and their count; 0 for a single one. Nothing when there is no whole step.
    pub(crate) fn step_ns(&self) -> Option<i64> {
        // Few readings may be further apart than i64 reaches; the step is not.
        let span_ns =
            (self.last_ns >= self.first_ns).then(|| self.last_ns.abs_diff(self.first_ns))?;
        match u64::from(self.rows).checked_sub(1)? {
            0 => (span_ns == 0).then_some(0),
            steps if span_ns < steps || span_ns % steps != 0 => None,
            steps => i64::try_from(span_ns / steps).ok(),
        }
    }
}

/// The time of a row of regular times. Its distance from the first one may be more than i64 holds.
#[inline]
pub(crate) fn regular_time(first_ns: i64, step_ns: i64, row: usize) -> i64 {
    first_ns.wrapping_add(step_ns.wrapping_mul(row as i64))
}

/// A stretch of one sensor's rows, encoded.
#[derive(Debug)]
pub struct Piece {
    pub(crate) sensor: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) chunks: Vec<ChunkMeta>,
    /// The bytes of each field's page in each chunk, chunk by chunk; 0 where all is null.
    pub(crate) page_bytes: Vec<u32>,
    /// The bytes of each field's texts before they were encoded.
    pub(crate) text_bytes: Vec<u64>,
    pub(crate) blocks: Blocks,
    /// The keys of its rows in the filters of the segment, if that has any.
    pub(crate) keys: Vec<u64>,
}

/// A stretch of one sensor's rows on its way into a segment, ordered by time without repeats.
#[derive(Debug)]
pub enum Stretch {
    /// Rows to encode; fields stand in the order of [`EncodeParams::fields`].
    Rows(SensorRows),
    /// A chunk that stays as it is in another segment.
    Chunk(WholeChunk),
}

/// A chunk with its pages as they are.
#[derive(Debug)]
pub struct WholeChunk {
    /// Its rows, from which the metrics are made.
    pub(crate) rows: SensorRows,
    /// Empty for regular times.
    pub(crate) time_page: Vec<u8>,
    /// A page for each field; empty where all is null.
    pub(crate) field_pages: Vec<Vec<u8>>,
}

impl Stretch {
    pub(crate) fn rows(&self) -> &SensorRows {
        match self {
            Self::Rows(rows) => rows,
            Self::Chunk(chunk) => &chunk.rows,
        }
    }
}

/// Rows that become one chunk, and where its pages come from.
struct ChunkSource<'a> {
    rows: Cow<'a, SensorRows>,
    whole: Option<&'a WholeChunk>,
}

impl ChunkSource<'_> {
    fn append_time_page(&self, profile: Profile, bytes: &mut Vec<u8>) -> Result<()> {
        match self.whole {
            Some(whole) => bytes.extend_from_slice(&whole.time_page),
            None if is_regular(&self.rows.times) => {}
            None => encode_page(&Int64Array::new(self.rows.times.clone(), None), profile, bytes)?,
        }
        Ok(())
    }

    fn append_field_page(&self, field: usize, profile: Profile, out: &mut Vec<u8>) -> Result<()> {
        match (self.whole, &self.rows.fields[field]) {
            (Some(whole), _) => out.extend_from_slice(&whole.field_pages[field]),
            (None, Some(values)) if values.null_count() < values.len() => {
                encode_page(&**values, profile, out)?;
            }
            (None, _) => {}
        }
        Ok(())
    }
}

/// Cuts a stretch into chunks of about equal size, so that none is so small that it would have to
/// be encoded anew when segments become one.
fn chunk_sources(stretch: &Stretch) -> Vec<ChunkSource<'_>> {
    match stretch {
        Stretch::Chunk(whole) => {
            vec![ChunkSource { rows: Cow::Borrowed(&whole.rows), whole: Some(whole) }]
        }
        Stretch::Rows(rows) => {
            let chunks = rows.len().div_ceil(CHUNK_ROWS);
            let chunk_rows = rows.len().div_ceil(chunks.max(1)).max(1);
            let mut sources = Vec::with_capacity(chunks);
            let mut first = 0;
            while first < rows.len() {
                let next = first..(first + chunk_rows).min(rows.len());
                let count = rows_within(&rows.fields, next, CHUNK_TEXT_BYTES);
                let of_chunk = match count == rows.len() {
                    true => Cow::Borrowed(rows),
                    false => Cow::Owned(rows.slice(first, count)),
                };
                sources.push(ChunkSource { rows: of_chunk, whole: None });
                first += count;
            }
            sources
        }
    }
}

/// Encodes stretches of rows of `sensor`, which follow each other in time.
///
/// # Errors
/// When a page cannot be encoded (a value over the limits of the codec).
pub fn encode_piece(sensor: u32, stretches: &[Stretch], params: &EncodeParams) -> Result<Piece> {
    let mut blocks = Blocks::new(&params.types());
    for rows in stretches.iter().map(Stretch::rows) {
        debug_assert!(rows.times.windows(2).all(|pair| pair[0] < pair[1]), "times out of order");
        debug_assert_eq!(rows.fields.len(), params.fields.len(), "a field is missing");
        blocks.append_rows(sensor, &rows.times, &rows.fields, params.block_ns);
    }
    let sources: Vec<ChunkSource<'_>> = stretches.iter().flat_map(chunk_sources).collect();
    let rows: usize = sources.iter().map(|source| source.rows.len()).sum();
    let mut bytes = Vec::with_capacity(rows * (params.fields.len() + 1) * VALUE_BYTES + HEAD_BYTES);
    let mut chunks = Vec::with_capacity(sources.len());
    for source in &sources {
        let before = bytes.len();
        source.append_time_page(params.profile, &mut bytes)?;
        let times = &source.rows.times;
        chunks.push(ChunkMeta {
            rows: times.len() as u32,
            first_ns: times[0],
            last_ns: times[times.len() - 1],
            time_bytes: length(bytes.len() - before)?,
        });
    }
    let fields = params.fields.len();
    let mut page_bytes = vec![0; chunks.len() * fields];
    for field in 0..fields {
        for (chunk, source) in sources.iter().enumerate() {
            let before = bytes.len();
            source.append_field_page(field, params.profile, &mut bytes)?;
            page_bytes[chunk * fields + field] = length(bytes.len() - before)?;
        }
    }
    let mut text_bytes_of = vec![0; fields];
    for rows in stretches.iter().map(Stretch::rows) {
        for (bytes, column) in text_bytes_of.iter_mut().zip(&rows.fields) {
            *bytes +=
                column.as_ref().map_or(0, |column| text_bytes(column, 0..column.len())) as u64;
        }
    }
    let times = stretches.iter().filter(|_| params.has_filters).flat_map(|rows| &rows.rows().times);
    let keys = times.map(|time_ns| filter::key(sensor, *time_ns)).collect();
    Ok(Piece { sensor, bytes, chunks, page_bytes, text_bytes: text_bytes_of, blocks, keys })
}

fn length(bytes: usize) -> Result<u32> {
    u32::try_from(bytes).map_err(|_| Error::limit("a page is over 4 GiB"))
}

/// Whether the times have one step, so that the first, the last and the count tell them all.
pub(crate) fn is_regular(times: &[i64]) -> bool {
    let [first, second, ..] = times else { return true };
    // Times that are further apart than i64 reaches are stored one by one.
    let Some(step) = second.checked_sub(*first) else { return false };
    times.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == step)
}

/// The interval of metrics that pays: the table's own where a block holds many rows, a multiple
/// where it would hold few, since metrics of a few readings are larger than the readings.
pub(crate) fn metrics_interval_ns(block_ns: i64, rows: u64, sensors: u64, span_ns: i64) -> i64 {
    /// Rows a block should hold on average, a little under the 60 of an hour of minutes. Below,
    /// metrics (some 18 bytes a field) are no longer small against rows (some 2.5 bytes a value).
    /// Beyond days the steps are large: between a day and a page of readings no bin is asked for
    /// that metrics could answer, and no page is left out.
    const ROWS_PER_BLOCK: u64 = 48;
    const LADDER: [i64; 4] = [1, 24, 24 * 32, 24 * 512];
    let fits = |interval_ns: i64| {
        let blocks = (span_ns / interval_ns).max(0) as u64 + 1;
        rows / sensors.max(1) >= blocks.saturating_mul(ROWS_PER_BLOCK)
    };
    let intervals = LADDER.iter().filter_map(|factor| block_ns.checked_mul(*factor));
    let last = intervals.clone().next_back().unwrap_or(block_ns);
    intervals.into_iter().find(|interval_ns| fits(*interval_ns)).unwrap_or(last)
}
