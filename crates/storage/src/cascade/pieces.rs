//! Cuts the rows of one sensor into pieces of a segment.

use std::sync::Arc;

use tidefall_types::{Result, TimeRange};

use crate::read::{Fetched, LiveObject, Part, SensorStream};
use crate::rows::SensorRows;
use crate::segment::encode::{CHUNK_ROWS, Stretch, WholeChunk};

/// Rows after which a piece ends: bounds the memory of a merge. Tests, which run with assertions,
/// have fewer rows.
pub(super) const PIECE_ROWS: usize = if cfg!(debug_assertions) { 1 << 11 } else { 1 << 17 };

/// Chunks with fewer rows are laid together with their neighbours when a segment is rewritten.
const WHOLE_ROWS_MIN: usize = CHUNK_ROWS / 2;

/// The rows of a stream within `time`. Chunks that nothing else overlaps stay as they are where
/// `may_stay` says so of their object: their pages need not be encoded again.
pub(super) fn take_pieces(
    mut stream: SensorStream,
    time: &TimeRange,
    may_stay: impl Fn(&LiveObject) -> bool,
) -> Result<Vec<Vec<Stretch>>> {
    let mut fetched = Fetched::default();
    let mut cutter = Cutter::default();
    loop {
        let part = stream.take_part(|part| is_whole(part, &may_stay));
        if let Some(chunk) = part.as_ref().and_then(|part| part.bare_chunk()) {
            let (fields, stats) = (Arc::clone(stream.fields()), Arc::clone(stream.stats()));
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
fn is_whole(part: &Part, may_stay: impl Fn(&LiveObject) -> bool) -> bool {
    part.bare_chunk().is_some_and(|chunk| {
        part.time == chunk.time() && chunk.rows() >= WHOLE_ROWS_MIN && may_stay(chunk.object())
    })
}

#[derive(Default)]
struct Cutter {
    done: Vec<Vec<Stretch>>,
    piece: Vec<Stretch>,
    piece_rows: usize,
    /// Rows that will be one stretch.
    pending: Vec<SensorRows>,
}

impl Cutter {
    fn push_chunk(&mut self, chunk: WholeChunk) -> Result<()> {
        self.end_stretch()?;
        self.piece_rows += chunk.rows.len();
        self.piece.push(Stretch::Chunk(chunk));
        self.end_piece_if_full()
    }

    fn push_rows(&mut self, rows: SensorRows) -> Result<()> {
        self.piece_rows += rows.len();
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
        if self.piece_rows >= PIECE_ROWS {
            self.end_stretch()?;
            self.done.push(std::mem::take(&mut self.piece));
            self.piece_rows = 0;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Vec<Stretch>>> {
        self.end_stretch()?;
        self.done.push(self.piece);
        Ok(self.done)
    }
}

/// The rows within a stretch of time.
fn cut(rows: &SensorRows, time: &TimeRange) -> SensorRows {
    let first = rows.times.partition_point(|&t| t < time.first_ns);
    let end = rows.times.partition_point(|&t| t <= time.last_ns);
    rows.slice(first, end.saturating_sub(first))
}
