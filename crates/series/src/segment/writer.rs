//! Writes a segment in one pass.

use tidefall_codec::Profile;
use tidefall_ground::frames::{Content, FrameWriter, encode_header, encode_tail};
use tidefall_store::ObjectWriter;
use tidefall_types::{Error, FieldType, Result, TableId, TimeRange};

use super::Description;
use super::encode::{EncodeParams, Piece};
use super::filter::{self, ROWS_PER_FILTER};
use super::index::{FRAME_BYTES_MAX, Fence, IndexBuilder};
use super::metrics::Blocks;

/// Blocks after which a metrics frame is closed at the next sensor, or earlier where it would have too many bytes. Small enough that one
/// sensor's metrics are decoded without many of its neighbours', large enough to pack well.
const BLOCKS_PER_FRAME: usize = 2048;

/// Bytes of encoded frames after which those that were kept are written between two pieces. A month of many sensors has
/// more than a gigabyte of them, and eight segments may be written at once; in a small segment all frames lie at its end, where
/// one read finds them. Tests, which run with assertions, have less.
pub(super) const KEPT_BYTES_MAX: usize = if cfg!(debug_assertions) { 1 << 10 } else { 4 << 20 };

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentSummary {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) first_sensor: u32,
    pub(crate) last_sensor: u32,
    pub(crate) time: TimeRange,
}

/// A segment on its way to storage. Dropped before [`SegmentWriter::finish`], it leaves nothing.
#[derive(Debug)]
pub struct SegmentWriter {
    out: Box<dyn ObjectWriter>,
    offset: u64,
    params: EncodeParams,
    rows: u64,
    sensors: u32,
    text_bytes: Vec<u64>,
    last_sensor: Option<u32>,
    index: IndexBuilder,
    index_fence: Option<Fence>,
    metrics: Blocks,
    metrics_fence: Option<Fence>,
    /// What the next filter will have.
    keys: Vec<u64>,
    filter_fence: Option<Fence>,
    index_frames: Frames,
    metrics_frames: Frames,
    filter_frames: Frames,
    /// Where the last piece ends.
    data_end: u64,
}

/// Frames of index, of metrics or of filters.
#[derive(Debug, Default)]
struct Frames {
    /// Of those that are written.
    fences: Vec<Fence>,
    /// Those that are encoded and kept for later, so that few places between the pieces have frames.
    kept: Vec<(Fence, Vec<u8>)>,
    kept_bytes: usize,
}

impl Frames {
    fn keep(&mut self, fence: Fence, frame: Vec<u8>) {
        self.kept_bytes += frame.len();
        self.kept.push((fence, frame));
    }

    /// Writes those that are kept at `offset`. Returns where they end.
    fn write(&mut self, out: &mut dyn ObjectWriter, mut offset: u64) -> Result<u64> {
        for (mut fence, frame) in self.kept.drain(..) {
            fence.offset = offset;
            fence.bytes = frame.len() as u64;
            out.append(&frame)?;
            offset += fence.bytes;
            self.fences.push(fence);
        }
        self.kept_bytes = 0;
        Ok(offset)
    }
}

impl SegmentWriter {
    /// Begins a segment of a table with these fields.
    ///
    /// # Errors
    /// `Io` and `Full` from the disk.
    pub fn new(
        mut out: Box<dyn ObjectWriter>,
        table: TableId,
        params: EncodeParams,
    ) -> Result<Self> {
        let header = encode_header(Content::Segment, table);
        out.append(&header)?;
        let offset = header.len() as u64;
        Ok(Self {
            out,
            offset,
            rows: 0,
            sensors: 0,
            text_bytes: vec![0; params.fields.len()],
            last_sensor: None,
            index: IndexBuilder::new(offset, params.fields.len()),
            index_fence: None,
            metrics: Blocks::new(&params.types()),
            metrics_fence: None,
            keys: Vec::new(),
            filter_fence: None,
            index_frames: Frames::default(),
            metrics_frames: Frames::default(),
            filter_frames: Frames::default(),
            data_end: offset,
            params,
        })
    }

    /// Appends a piece. Pieces come ordered by sensor, then by time.
    ///
    /// # Errors
    /// `Io` and `Full` from the store, `Limit` for a frame that is too long; there is no segment then.
    pub fn append(&mut self, piece: Piece) -> Result<()> {
        let (Some(first), Some(last)) = (piece.chunks.first(), piece.chunks.last()) else {
            return Ok(());
        };
        debug_assert!(self.last_sensor <= Some(piece.sensor), "pieces are not ordered by sensor");
        let time = TimeRange::new(first.first_ns, last.last_ns);
        let is_new_sensor = self.last_sensor != Some(piece.sensor);
        if is_new_sensor {
            self.sensors += 1;
            self.last_sensor = Some(piece.sensor);
            if self.metrics.len() >= BLOCKS_PER_FRAME {
                self.close_metrics()?;
            }
        }
        let chunks_max = self.index.chunks_max();
        if self.index.len() >= chunks_max {
            self.close_index()?;
        }
        self.write_frames_if_many()?;
        self.out.append(&piece.bytes)?;
        self.offset += piece.bytes.len() as u64;
        self.data_end = self.offset;
        self.rows += piece.chunks.iter().map(|chunk| u64::from(chunk.rows)).sum::<u64>();
        for (all, bytes) in self.text_bytes.iter_mut().zip(&piece.text_bytes) {
            *all += bytes;
        }
        self.index.append(&piece);
        let (first_sensor, last_sensor) = (piece.sensor, piece.sensor);
        let fence = Fence { first_sensor, last_sensor, time, offset: 0, bytes: 0 };
        self.index_fence.get_or_insert(fence).extend(piece.sensor, time);
        if !piece.keys.is_empty() {
            self.filter_fence.get_or_insert(fence).extend(piece.sensor, time);
            self.keys.extend(&piece.keys);
            if self.keys.len() >= ROWS_PER_FILTER {
                self.close_filter()?;
            }
        }
        self.append_blocks(&piece.blocks, fence)
    }

    /// Appends the blocks of a piece to the frame of metrics, and to others when that is full.
    fn append_blocks(&mut self, blocks: &Blocks, fence: Fence) -> Result<()> {
        let blocks_max = (FRAME_BYTES_MAX / blocks.bytes_per_block()).max(1);
        let mut first = 0;
        while first < blocks.len() {
            if self.metrics.len() >= blocks_max {
                self.close_metrics()?;
                self.write_frames_if_many()?;
            }
            let next = blocks.len().min(first + blocks_max - self.metrics.len());
            self.metrics_fence.get_or_insert(fence).extend(fence.last_sensor, fence.time);
            self.metrics.extend_from(blocks, first..next);
            first = next;
        }
        Ok(())
    }

    /// Writes index, metrics, filters and footer; the segment is durable and readable on return.
    ///
    /// # Errors
    /// `Io` and `Full` from the store, `Limit` for a frame that is too long; there is no segment then.
    pub fn finish(mut self) -> Result<SegmentSummary> {
        self.close_index()?;
        self.close_metrics()?;
        self.close_filter()?;
        let mut footer = FrameWriter::new(Profile::Dense);
        let description = Description {
            fields: self.params.fields.clone(),
            block_ns: self.params.block_ns,
            rows: self.rows,
            sensors: self.sensors,
            text_bytes: match self.params.fields.iter().any(|(_, ty)| *ty == FieldType::Text) {
                true => std::mem::take(&mut self.text_bytes),
                false => Vec::new(),
            },
        };
        let json = serde_json::to_vec(&description)
            .map_err(|error| Error::invalid(format!("a segment's description: {error}")))?;
        footer.put_bytes(&json)?;
        footer.put_bytes(&self.data_end.to_le_bytes())?;
        self.write_frames()?;
        let mut all: Option<Fence> = None;
        for frames in [&self.index_frames, &self.metrics_frames] {
            for fence in &frames.fences {
                all.get_or_insert(*fence).extend(fence.last_sensor, fence.time);
            }
            Fence::encode(&frames.fences, &mut footer)?;
        }
        if self.params.has_filters {
            Fence::encode(&self.filter_frames.fences, &mut footer)?;
        }
        let footer = footer.finish()?;
        let tail = encode_tail(Content::Segment, self.offset, footer.len())?;
        self.out.append(&footer)?;
        self.out.append(&tail)?;
        self.out.finish()?;
        let bytes = self.offset + (footer.len() + tail.len()) as u64;
        let all = all.ok_or_else(|| Error::invalid("a segment without rows was written"))?;
        Ok(SegmentSummary {
            rows: self.rows,
            bytes,
            first_sensor: all.first_sensor,
            last_sensor: self.last_sensor.unwrap_or(all.last_sensor),
            time: all.time,
        })
    }

    /// The bytes of frames that are kept.
    pub(super) fn kept_bytes(&self) -> usize {
        let of = |frames: &Frames| frames.kept_bytes;
        of(&self.index_frames) + of(&self.metrics_frames) + of(&self.filter_frames)
    }

    fn write_frames_if_many(&mut self) -> Result<()> {
        if self.kept_bytes() < KEPT_BYTES_MAX { Ok(()) } else { self.write_frames() }
    }

    /// Writes the frames that are kept; filters first, so that index and metrics are near the end of a small segment. What the index says of pieces ends here,
    /// as the next piece comes behind it.
    fn write_frames(&mut self) -> Result<()> {
        self.close_index()?;
        let behind_filters = self.filter_frames.write(&mut *self.out, self.offset)?;
        let behind_index = self.index_frames.write(&mut *self.out, behind_filters)?;
        self.offset = self.metrics_frames.write(&mut *self.out, behind_index)?;
        self.index = IndexBuilder::new(self.offset, self.params.fields.len());
        Ok(())
    }

    fn close_index(&mut self) -> Result<()> {
        let next = IndexBuilder::new(self.offset, self.params.fields.len());
        let index = std::mem::replace(&mut self.index, next);
        if let Some(fence) = self.index_fence.take() {
            self.index_frames.keep(fence, index.encode(self.params.profile)?);
        }
        Ok(())
    }

    fn close_filter(&mut self) -> Result<()> {
        if let Some(fence) = self.filter_fence.take() {
            self.filter_frames.keep(fence, filter::encode(&self.keys)?);
            self.keys.clear();
        }
        Ok(())
    }

    fn close_metrics(&mut self) -> Result<()> {
        let next = Blocks::new(&self.params.types());
        let blocks = std::mem::replace(&mut self.metrics, next);
        if let Some(fence) = self.metrics_fence.take() {
            let profile = match self.params.profile {
                Profile::Fast => Profile::Fast,
                Profile::Medium | Profile::Dense => Profile::Medium,
            };
            self.metrics_frames.keep(fence, blocks.encode(profile)?);
        }
        Ok(())
    }
}
