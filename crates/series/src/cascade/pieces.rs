//! Cuts the rows of one sensor into pieces of a segment.

use std::sync::Arc;

use tidefall_ground::texts::{CHUNK_TEXT_BYTES, PIECE_TEXT_BYTES};
use tidefall_types::{FieldId, FieldType, Result, TimeRange};

use crate::read::{Fetched, LiveObject, Part, SensorStream};
use crate::rows::SensorRows;
use crate::segment::encode::{CHUNK_ROWS, Stretch, WholeChunk};

/// Rows after which a piece ends, if its texts are not too long before: bounds the memory of a merge. Tests, which run with assertions,
/// have fewer rows.
pub(super) const PIECE_ROWS: usize = if cfg!(debug_assertions) { 1 << 11 } else { 1 << 17 };

/// Chunks with fewer rows are laid together with their neighbours when a segment is rewritten.
const WHOLE_ROWS_MIN: usize = CHUNK_ROWS / 2;
/// Unless their texts take so much, encoded.
const WHOLE_TEXT_BYTES_MIN: u64 = CHUNK_TEXT_BYTES as u64 / 4;

/// Gives the rows of a stream within `time` to `each`, piece by piece, so that one of them is in memory. Chunks that nothing else overlaps stay as they are where
/// `may_stay` says so of their object: their pages need not be encoded again.
pub(super) fn take_pieces(
    mut stream: SensorStream,
    time: &TimeRange,
    may_stay: impl Fn(&LiveObject) -> bool,
    each: &mut dyn FnMut(&[Stretch]) -> Result<()>,
) -> Result<()> {
    let mut fetched = Fetched::default();
    let mut cutter = Cutter::new(each);
    let (fields, stats) = (Arc::clone(stream.fields()), Arc::clone(stream.stats()));
    loop {
        let part = stream.take_part(|part| is_whole(part, &fields, &may_stay));
        if let Some(chunk) = part.as_ref().and_then(|part| part.bare_chunk()) {
            cutter.push_chunk(chunk.read_whole(&fields, &mut fetched, &stats)?)?;
        } else if let Some(rows) = stream.next(&mut fetched)? {
            cutter.push_rows(cut(&rows, time))?;
        } else {
            return cutter.finish();
        }
    }
}

/// Whether a part is a chunk that stays as it is: none of its rows is left out, and it is large
/// enough.
fn is_whole(
    part: &Part,
    fields: &[(FieldId, FieldType)],
    may_stay: impl Fn(&LiveObject) -> bool,
) -> bool {
    part.bare_chunk().is_some_and(|chunk| {
        part.time == chunk.time()
            && (chunk.rows() >= WHOLE_ROWS_MIN
                // What cannot be told now is met when the chunk is read.
                || chunk.text_bytes(fields).is_ok_and(|bytes| bytes >= WHOLE_TEXT_BYTES_MIN))
            && may_stay(chunk.object())
    })
}

struct Cutter<'a> {
    each: &'a mut dyn FnMut(&[Stretch]) -> Result<()>,
    piece: Vec<Stretch>,
    piece_rows: usize,
    piece_text_bytes: usize,
    /// Rows that will be one stretch.
    pending: Vec<SensorRows>,
}

impl<'a> Cutter<'a> {
    fn new(each: &'a mut dyn FnMut(&[Stretch]) -> Result<()>) -> Self {
        Self { each, piece: Vec::new(), piece_rows: 0, piece_text_bytes: 0, pending: Vec::new() }
    }

    fn push_chunk(&mut self, chunk: WholeChunk) -> Result<()> {
        self.end_stretch()?;
        self.piece_rows += chunk.rows.len();
        self.piece_text_bytes += chunk.rows.text_bytes();
        self.piece.push(Stretch::Chunk(chunk));
        self.end_piece_if_full()
    }

    fn push_rows(&mut self, rows: SensorRows) -> Result<()> {
        self.piece_rows += rows.len();
        self.piece_text_bytes += rows.text_bytes();
        self.pending.push(rows);
        self.end_piece_if_full()
    }

    fn end_stretch(&mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        if !pending.is_empty() {
            self.piece.push(Stretch::Rows(crate::rows::merge(&pending)?));
        }
        Ok(())
    }

    fn end_piece_if_full(&mut self) -> Result<()> {
        let is_full = self.piece_rows >= PIECE_ROWS || self.piece_text_bytes >= PIECE_TEXT_BYTES;
        if is_full { self.end_piece() } else { Ok(()) }
    }

    fn end_piece(&mut self) -> Result<()> {
        self.end_stretch()?;
        if self.piece_rows > 0 {
            (self.each)(&self.piece)?;
        }
        self.piece.clear();
        (self.piece_rows, self.piece_text_bytes) = (0, 0);
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.end_piece()
    }
}

/// The rows within a stretch of time.
fn cut(rows: &SensorRows, time: &TimeRange) -> SensorRows {
    let first = rows.times.partition_point(|&t| t < time.first_ns);
    let end = rows.times.partition_point(|&t| t <= time.last_ns);
    rows.slice(first, end.saturating_sub(first))
}
