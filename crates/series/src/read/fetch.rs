//! Bytes of pages, read some chunks ahead.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::ArrayRef;
use tidefall_codec::decode_page;
use tidefall_types::{Error, FieldType, Result};

use super::request::ReadStats;
use crate::segment::{IndexBlock, Segment};

/// Bytes read ahead: the pages of neighbouring chunks lie side by side, so one read serves many.
#[derive(Debug, Default)]
pub struct Fetched {
    name: String,
    buffers: Vec<(u64, Vec<u8>)>,
    /// Memory of earlier buffers: fresh memory would have to be cleared first.
    spare: Vec<Vec<u8>>,
    /// The chunks whose pages are in `buffers`.
    chunks: Option<(Arc<IndexBlock>, Range<usize>)>,
}

/// Bytes read ahead at once: large enough that a read's fixed cost vanishes, small enough that many scans at a time keep to their
/// share of the memory.
const READ_AHEAD_BYTES: u64 = 1 << 20;
/// As [`READ_AHEAD_BYTES`], on a store on which a read takes long.
const READ_AHEAD_SLOW_BYTES: u64 = 4 << 20;
/// Unwanted bytes that are read along rather than starting another read.
const READ_GAP_BYTES: u64 = 64 << 10;

/// Where one sensor after the other is read, up to so many bytes of the next are read along: sensors with a reading or
/// two would cost a read each.
const NEXT_BYTES: u64 = 256 << 10;

fn total(pages: &[Range<u64>]) -> u64 {
    pages.iter().map(|page| page.end - page.start).sum()
}

/// The ranges of the wanted pages of some chunks, joined where they lie close together.
pub(super) fn pages_of(
    index: &IndexBlock,
    chunks: Range<usize>,
    places: &[Option<usize>],
) -> Vec<Range<u64>> {
    let mut pages: Vec<Range<u64>> = Vec::new();
    for position in chunks {
        let chunk = index.chunk(position);
        pages.push(chunk.time_page());
        pages.extend(places.iter().flatten().map(|place| chunk.field_page(*place)));
    }
    pages.retain(|page| !page.is_empty());
    pages.sort_unstable_by_key(|page| page.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for page in pages {
        match joined.last_mut() {
            Some(last) if page.start <= last.end + READ_GAP_BYTES => {
                last.end = last.end.max(page.end);
            }
            _ => joined.push(page),
        }
    }
    joined
}

/// What is read at once of some chunks from the first one on: the wanted pages of as many as are a read, and the end of these.
fn next_read(
    segment: &Segment,
    index: &IndexBlock,
    chunks: Range<usize>,
    places: &[Option<usize>],
) -> (Vec<Range<u64>>, usize) {
    let bytes_max = if segment.is_slow() { READ_AHEAD_SLOW_BYTES } else { READ_AHEAD_BYTES };
    let Range { start, mut end } = chunks;
    let mut wanted = pages_of(index, start..end, places);
    while total(&wanted) > bytes_max && end > start + 1 {
        end = start + (end - start) / 2;
        wanted = pages_of(index, start..end, places);
    }
    (wanted, end)
}

/// Announces the reads of the wanted pages of some chunks, as [`Fetched::want`] makes them. Returns their bytes.
pub(super) fn announce(
    segment: &Segment,
    index: &IndexBlock,
    chunks: Range<usize>,
    places: &[Option<usize>],
) -> u64 {
    let (mut bytes, mut start) = (0, chunks.start);
    while start < chunks.end {
        let (wanted, end) = next_read(segment, index, start..chunks.end, places);
        bytes += total(&wanted);
        wanted.into_iter().for_each(|range| segment.will_read(range));
        start = end;
    }
    bytes
}

impl Fetched {
    /// Makes sure that the wanted pages of the first of some chunks of a sensor are here, and reads
    /// those of the others along.
    pub(super) fn want(
        &mut self,
        segment: &Segment,
        index: &Arc<IndexBlock>,
        wanted: Range<usize>,
        places: &[Option<usize>],
        stats: &ReadStats,
    ) -> Result<()> {
        if let Some((block, chunks)) = &self.chunks
            && Arc::ptr_eq(block, index)
            && chunks.contains(&wanted.start)
        {
            return Ok(());
        }
        if self.name != segment.name() {
            segment.name().clone_into(&mut self.name);
            ReadStats::add(&stats.objects, 1);
        }
        let position = wanted.start;
        let (alone, end_alone) = next_read(segment, index, wanted, places);
        let (mut wanted, mut end) = (alone.clone(), end_alone);
        // In growing steps, as nobody knows how many will be wanted. On a slow store they are announced.
        if let Some((block, before)) = &self.chunks
            && Arc::ptr_eq(block, index)
            && before.end == position
            && !segment.is_slow()
        {
            let further = (end + before.len()).min(index.sensors().len());
            let pages = pages_of(index, position..further, places);
            if total(&pages) <= NEXT_BYTES {
                (wanted, end) = (pages, further);
            }
        }
        self.chunks = None;
        if let Err(error) = self.read(segment, wanted, stats) {
            if end <= end_alone {
                return Err(error);
            }
            // What would have been read along may be what cannot be read.
            self.read(segment, alone, stats)?;
            end = end_alone;
        }
        self.chunks = Some((Arc::clone(index), position..end));
        Ok(())
    }

    fn read(
        &mut self,
        segment: &Segment,
        wanted: Vec<Range<u64>>,
        stats: &ReadStats,
    ) -> Result<()> {
        self.spare.extend(self.buffers.drain(..).map(|(_, bytes)| bytes));
        for range in wanted {
            ReadStats::add(&stats.bytes, range.end - range.start);
            let mut bytes = self.spare.pop().unwrap_or_default();
            segment.read_to(range.clone(), &mut bytes)?;
            self.buffers.push((range.start, bytes));
        }
        // A scan that reads little from here on keeps no memory of what it has read.
        self.spare.clear();
        Ok(())
    }

    /// The bytes of a page that was wanted.
    pub(super) fn page(&self, segment: &Segment, page: &Range<u64>) -> Result<&[u8]> {
        self.buffers
            .iter()
            .find(|(start, bytes)| *start <= page.start && page.end <= start + bytes.len() as u64)
            .and_then(|(start, bytes)| {
                bytes.get((page.start - start) as usize..(page.end - start) as usize)
            })
            .ok_or_else(|| segment.locate(page.start, Error::corrupt("a page was not read")))
    }

    /// Decodes a page that was wanted.
    pub(super) fn decode(
        &self,
        segment: &Segment,
        page: &Range<u64>,
        ty: FieldType,
        stats: &ReadStats,
    ) -> Result<ArrayRef> {
        ReadStats::add(&stats.pages, 1);
        decode_page(self.page(segment, page)?, ty)
            .map_err(|error| segment.locate(page.start, error))
    }
}
