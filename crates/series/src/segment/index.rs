//! The index of a segment: where each chunk of each sensor lies.
//!
//! It is cut into frames of about a thousand chunks, so that finding one sensor reads the footer
//! and one frame, however many sensors there are.

use std::ops::Range;

use tidefall_codec::Profile;
use tidefall_ground::frames::{FrameReader, FrameWriter};
use tidefall_types::{Error, Result, TimeRange};

use super::encode::{ChunkMeta, Piece};

/// Chunks after which an index frame is closed: some 10 KiB, decoded in tens of microseconds.
const CHUNKS_PER_FRAME: usize = 1024;
/// Bytes of a frame of index or metrics before it is packed, unless one piece or one block has more: a table may have
/// thousands of fields, and whoever wants a few of them reads the frame as a whole. Tests, which run with assertions, have less.
pub(super) const FRAME_BYTES_MAX: usize = if cfg!(debug_assertions) { 32 << 10 } else { 4 << 20 };

/// Where a frame lies and what it covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// The first sensor in it.
    pub first_sensor: u32,
    /// The last sensor in it.
    pub last_sensor: u32,
    /// The times in it.
    pub time: TimeRange,
    /// Where it begins.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl Fence {
    /// Adds fences to a footer.
    ///
    /// # Errors
    /// `Limit` when there are too many.
    pub fn encode(fences: &[Self], footer: &mut FrameWriter) -> Result<()> {
        let column = |get: fn(&Self) -> i64| fences.iter().map(get).collect::<Vec<_>>();
        footer.put_i64s(column(|fence| i64::from(fence.first_sensor)))?;
        footer.put_i64s(column(|fence| i64::from(fence.last_sensor)))?;
        footer.put_i64s(column(|fence| fence.time.first_ns))?;
        footer.put_i64s(column(|fence| fence.time.last_ns))?;
        footer.put_i64s(column(|fence| fence.offset as i64))?;
        footer.put_i64s(column(|fence| fence.bytes as i64))
    }

    /// Reads fences whose frames must lie within the first `end` bytes of the segment.
    pub(super) fn decode(footer: &mut FrameReader<'_>, end: u64) -> Result<Vec<Self>> {
        let mut columns = Vec::with_capacity(6);
        for _ in 0..6 {
            columns.push(footer.take_i64s()?);
        }
        let len = columns[0].len();
        if columns.iter().any(|column| column.len() != len) {
            return Err(Error::corrupt("the columns of the fences differ in length"));
        }
        (0..len)
            .map(|row| {
                let number = |column: usize| columns[column][row];
                let fence = Self {
                    first_sensor: sensor(number(0))?,
                    last_sensor: sensor(number(1))?,
                    time: TimeRange::new(number(2), number(3)),
                    offset: number(4) as u64,
                    bytes: number(5) as u64,
                };
                if fence.first_sensor > fence.last_sensor {
                    return Err(Error::corrupt("a fence ends before it begins"));
                }
                match fence.offset.checked_add(fence.bytes) {
                    Some(behind) if behind <= end => Ok(fence),
                    _ => Err(Error::corrupt("a fence points outside of the segment")),
                }
            })
            .collect()
    }

    pub(super) fn extend(&mut self, sensor: u32, time: TimeRange) {
        self.last_sensor = sensor;
        self.time = self.time.union(&time);
    }
}

fn sensor(number: i64) -> Result<u32> {
    u32::try_from(number).map_err(|_| Error::corrupt("an index names an impossible sensor"))
}

/// Builds an index frame.
#[derive(Debug, Default)]
pub(super) struct IndexBuilder {
    data_offset: u64,
    sensor: Vec<i64>,
    /// Chunks of the piece that begins here; 0 for the chunks behind its first.
    piece_chunks: Vec<i64>,
    rows: Vec<i64>,
    first_ns: Vec<i64>,
    last_ns: Vec<i64>,
    time_bytes: Vec<i64>,
    page_bytes: Vec<Vec<i64>>,
}

impl IndexBuilder {
    pub(super) fn new(data_offset: u64, fields: usize) -> Self {
        Self { data_offset, page_bytes: vec![Vec::new(); fields], ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.sensor.len()
    }

    /// Chunks after which the frame is closed, where others are to follow.
    pub(super) fn chunks_max(&self) -> usize {
        let chunk_bytes = (self.page_bytes.len() + 6) * size_of::<i64>();
        (FRAME_BYTES_MAX / chunk_bytes).clamp(1, CHUNKS_PER_FRAME)
    }

    pub(super) fn append(&mut self, piece: &Piece) {
        let fields = self.page_bytes.len();
        for (position, chunk) in piece.chunks.iter().enumerate() {
            self.sensor.push(i64::from(piece.sensor));
            self.piece_chunks.push(if position == 0 { piece.chunks.len() as i64 } else { 0 });
            self.rows.push(i64::from(chunk.rows));
            self.first_ns.push(chunk.first_ns);
            self.last_ns.push(chunk.last_ns);
            self.time_bytes.push(i64::from(chunk.time_bytes));
            for (field, column) in self.page_bytes.iter_mut().enumerate() {
                column.push(i64::from(piece.page_bytes[position * fields + field]));
            }
        }
    }

    pub(super) fn encode(self, profile: Profile) -> Result<Vec<u8>> {
        let mut frame = FrameWriter::new(profile);
        frame.put_bytes(&self.data_offset.to_le_bytes())?;
        frame.put_i64s(self.sensor)?;
        frame.put_i64s(self.piece_chunks)?;
        frame.put_i64s(self.rows)?;
        frame.put_i64s(self.first_ns)?;
        frame.put_i64s(self.last_ns)?;
        frame.put_i64s(self.time_bytes)?;
        for column in self.page_bytes {
            frame.put_i64s(column)?;
        }
        frame.finish()
    }
}

/// An index frame, decoded: chunks ordered by sensor and time.
#[derive(Debug)]
pub struct IndexBlock {
    sensor: Vec<u32>,
    chunks: Vec<ChunkMeta>,
    /// For each chunk where its time page lies, then each field's page: offset and bytes.
    pages: Vec<(u64, u32)>,
    columns: usize,
}

/// One chunk as the index knows it.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    /// Its rows and times.
    pub(crate) meta: ChunkMeta,
    pages: &'a [(u64, u32)],
}

impl Chunk<'_> {
    /// Where the time page lies; empty for regular times.
    pub fn time_page(&self) -> Range<u64> {
        self.page(0)
    }

    /// Where the page of the segment's field at `position` lies; empty when all is null.
    pub fn field_page(&self, position: usize) -> Range<u64> {
        self.page(position + 1)
    }

    fn page(&self, column: usize) -> Range<u64> {
        let (offset, bytes) = self.pages[column];
        offset..offset + u64::from(bytes)
    }

    /// The first and the last time.
    pub(crate) fn time(&self) -> TimeRange {
        TimeRange::new(self.meta.first_ns, self.meta.last_ns)
    }
}

impl IndexBlock {
    /// Decodes a frame of a segment with `fields` fields whose pieces end at `data_end`.
    ///
    /// # Errors
    /// `Corrupt` when it is damaged, or names pages that are not there.
    pub fn decode(frame: &[u8], fields: usize, data_end: u64) -> Result<Self> {
        let mut frame = FrameReader::new(frame)?;
        let offset: [u8; 8] = frame
            .take_bytes()?
            .try_into()
            .map_err(|_| Error::corrupt("an index frame has no data offset"))?;
        let sensors = frame.take_i64s()?;
        let piece_chunks = frame.take_i64s()?;
        let mut columns = Vec::with_capacity(fields + 4);
        for _ in 0..fields + 4 {
            columns.push(frame.take_i64s()?);
        }
        let len = sensors.len();
        if piece_chunks.len() != len || columns.iter().any(|column| column.len() != len) {
            return Err(Error::corrupt("the columns of an index frame differ in length"));
        }
        let of_all = |column: &[i64], holds: fn(i64) -> bool| column.iter().all(|one| holds(*one));
        if !of_all(&sensors, |number| u32::try_from(number).is_ok()) {
            return Err(Error::corrupt("an index names an impossible sensor"));
        }
        if !of_all(&columns[0], |rows| (1..=super::encode::CHUNK_ROWS as i64).contains(&rows)) {
            return Err(Error::corrupt("a chunk has no or too many rows"));
        }
        let sensor: Vec<u32> = sensors.into_iter().map(|number| number as u32).collect();
        let byte_columns = &columns[3..];
        let pages = place_pages(u64::from_le_bytes(offset), &piece_chunks, byte_columns, data_end)?;
        let (ends, bytes) = (columns[1].iter().zip(&columns[2]), &columns[3]);
        let chunks: Vec<ChunkMeta> = columns[0]
            .iter()
            .zip(ends.zip(bytes))
            .map(|(rows, ((first_ns, last_ns), bytes))| ChunkMeta {
                rows: *rows as u32,
                first_ns: *first_ns,
                last_ns: *last_ns,
                time_bytes: *bytes as u32,
            })
            .collect();
        chunks.iter().try_for_each(check_times)?;
        Ok(Self { sensor, chunks, pages, columns: fields + 1 })
    }

    /// The chunks of a sensor, as positions.
    pub(crate) fn chunks_of(&self, sensor: u32) -> Range<usize> {
        let first = self.sensor.partition_point(|&other| other < sensor);
        let length = self.sensor[first..].partition_point(|&other| other == sensor);
        first..first + length
    }

    /// The chunk at a position.
    pub fn chunk(&self, position: usize) -> Chunk<'_> {
        Chunk {
            meta: self.chunks[position],
            pages: &self.pages[position * self.columns..(position + 1) * self.columns],
        }
    }

    /// The chunks of a sensor with rows within `time`.
    pub(crate) fn chunks_within(&self, sensor: u32, time: &TimeRange) -> Range<usize> {
        let all = self.chunks_of(sensor);
        // They are ordered by time and do not overlap.
        let chunks = &self.chunks[all.clone()];
        let first = chunks.partition_point(|chunk| chunk.last_ns < time.first_ns);
        let end = chunks.partition_point(|chunk| chunk.first_ns <= time.last_ns);
        all.start + first..all.start + end.max(first)
    }

    /// Whether all chunks of a sensor are surely here: those of the first and the last sensor may lie in the frames
    /// beside this one, too.
    pub(crate) fn has_all_of(&self, sensor: u32) -> bool {
        let ends = self.sensor.first().zip(self.sensor.last());
        ends.is_some_and(|(first, last)| *first < sensor && sensor < *last)
    }

    /// The sensors, once for each chunk.
    pub fn sensors(&self) -> &[u32] {
        &self.sensor
    }

    /// The memory that it takes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.sensor.len() * 4 + self.chunks.len() * 24 + self.pages.len() * 16
    }
}

/// Checks that the times of a chunk can be what its index says.
fn check_times(chunk: &ChunkMeta) -> Result<()> {
    if chunk.first_ns > chunk.last_ns {
        return Err(Error::corrupt("a chunk ends before it begins"));
    }
    if chunk.time_bytes == 0 && chunk.step_ns().is_none() {
        return Err(Error::corrupt("regular times without a whole step"));
    }
    Ok(())
}

/// Walks the pieces as they lie in the file and notes where each page begins.
fn place_pages(
    data_offset: u64,
    piece_chunks: &[i64],
    byte_columns: &[Vec<i64>],
    data_end: u64,
) -> Result<Vec<(u64, u32)>> {
    let columns = byte_columns.len();
    let mut pages = vec![(0, 0); piece_chunks.len() * columns];
    let mut offset = data_offset;
    let mut piece = 0;
    while piece < piece_chunks.len() {
        let chunks = usize::try_from(piece_chunks[piece])
            .ok()
            .filter(|chunks| *chunks > 0 && *chunks <= piece_chunks.len() - piece)
            .ok_or_else(|| Error::corrupt("a piece does not fit its index frame"))?;
        for (column, bytes) in byte_columns.iter().enumerate() {
            for chunk in piece..piece + chunks {
                let bytes = u32::try_from(bytes[chunk])
                    .map_err(|_| Error::corrupt("a page has an impossible size"))?;
                pages[chunk * columns + column] = (offset, bytes);
                offset = offset
                    .checked_add(u64::from(bytes))
                    .filter(|behind| *behind <= data_end)
                    .ok_or_else(|| Error::corrupt("an index frame points behind the pieces"))?;
            }
        }
        piece += chunks;
    }
    Ok(pages)
}
