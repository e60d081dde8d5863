//! From columns of one sensor to the bytes of a segment. Pure: many threads encode, one writes.
//!
//! A *piece* is a stretch of one sensor's rows, cut into *chunks* of at most `page_rows` rows that
//! all columns share. Its bytes hold the times of all chunks (nothing for regular ones), then
//! each field's pages: one field over many chunks is one contiguous range.

use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_buffer::ScalarBuffer;
use tidefall_codec::{MAX_PAGE_ROWS, Profile, encode_page};
use tidefall_types::{Error, FieldId, FieldType, Result};

use super::metrics::Blocks;

/// How a segment is encoded.
#[derive(Debug, Clone)]
pub(crate) struct EncodeParams {
    pub(crate) fields: Vec<(FieldId, FieldType)>,
    /// The interval of the metrics of this segment.
    pub(crate) block_ns: i64,
    pub(crate) profile: Profile,
}

impl EncodeParams {
    pub(crate) fn types(&self) -> Vec<FieldType> {
        self.fields.iter().map(|(_, ty)| *ty).collect()
    }
}

/// Rows of a chunk at most: what a page holds.
pub(crate) const CHUNK_ROWS: usize = MAX_PAGE_ROWS;

/// What the index knows of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkMeta {
    pub(crate) rows: u32,
    pub(crate) first_ns: i64,
    pub(crate) last_ns: i64,
    /// The bytes of the time page; 0 for times with one step from the first to the last.
    pub(crate) time_bytes: u32,
}

/// A stretch of one sensor's rows, encoded.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) sensor: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) chunks: Vec<ChunkMeta>,
    /// The bytes of each field's page in each chunk, chunk by chunk; 0 where all is null.
    pub(crate) page_bytes: Vec<u32>,
    pub(crate) blocks: Blocks,
}

/// Encodes rows of `sensor`, ordered by time without repeats. `fields` stand in the order of
/// `params.fields`; a missing one is null throughout.
///
/// # Errors
/// When a page cannot be encoded (a value over the limits of the codec).
pub(crate) fn encode_piece(
    sensor: u32,
    times: &ScalarBuffer<i64>,
    fields: &[Option<ArrayRef>],
    params: &EncodeParams,
) -> Result<Piece> {
    debug_assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "times are not in order");
    debug_assert_eq!(fields.len(), params.fields.len(), "a field is missing");
    let mut blocks = Blocks::new(&params.types());
    blocks.append_rows(sensor, times, fields, params.block_ns);
    let mut bytes = Vec::new();
    let mut chunks = Vec::with_capacity(times.len().div_ceil(CHUNK_ROWS));
    for first in (0..times.len()).step_by(CHUNK_ROWS) {
        let rows = CHUNK_ROWS.min(times.len() - first);
        let chunk = times.slice(first, rows);
        let before = bytes.len();
        if !is_regular(&chunk) {
            let page = Int64Array::new(chunk.clone(), None);
            encode_page(&page, params.profile, &mut bytes)?;
        }
        chunks.push(ChunkMeta {
            rows: rows as u32,
            first_ns: chunk[0],
            last_ns: chunk[rows - 1],
            time_bytes: length(bytes.len() - before)?,
        });
    }
    let mut page_bytes = vec![0; chunks.len() * fields.len()];
    for (field, values) in fields.iter().enumerate() {
        let Some(values) = values else { continue };
        for chunk in 0..chunks.len() {
            let first = chunk * CHUNK_ROWS;
            let page = values.slice(first, CHUNK_ROWS.min(times.len() - first));
            if page.null_count() == page.len() {
                continue;
            }
            let before = bytes.len();
            encode_page(&*page, params.profile, &mut bytes)?;
            page_bytes[chunk * fields.len() + field] = length(bytes.len() - before)?;
        }
    }
    Ok(Piece { sensor, bytes, chunks, page_bytes, blocks })
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
    /// Rows a block should hold on average; below, its metrics (some 18 bytes a field) are no
    /// longer small against the rows (some 2.5 bytes a value).
    const ROWS_PER_BLOCK: u64 = 16;
    const LADDER: [i64; 4] = [1, 24, 24 * 8, 24 * 64];
    let fits = |interval_ns: i64| {
        let blocks = (span_ns / interval_ns).max(0) as u64 + 1;
        rows / sensors.max(1) >= blocks.saturating_mul(ROWS_PER_BLOCK)
    };
    let intervals = LADDER.iter().filter_map(|factor| block_ns.checked_mul(*factor));
    let last = intervals.clone().next_back().unwrap_or(block_ns);
    intervals.into_iter().find(|interval_ns| fits(*interval_ns)).unwrap_or(last)
}
