//! Reads segments: footer, index and metrics through a cache, pages as ranges.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use tidefall_ground::cache::{Cache, Weight};
use tidefall_ground::frames::{
    Content, FrameReader, HEADER_BYTES, TAIL_BYTES, decode_header, decode_tail,
};
use tidefall_store::{ObjectIo, check_size, of_needed_object};
use tidefall_types::{Error, FieldId, FieldType, ObjectId, Result, TableId, TimeRange};

use super::Description;
use super::filter::Filter;
use super::index::{Fence, IndexBlock};
use super::metrics::Blocks;
use super::wanted::Wanted;

/// Bytes read from the end of a segment in the hope that the footer is among them.
const FOOTER_GUESS_BYTES: u64 = 32 << 10;
/// Bytes at the end of a segment in which its footer, its index and some metrics probably lie: a disk reads them at
/// once in about the time that it takes to read less.
const END_BYTES: u64 = 128 << 10;
/// Frames that are announced where one is read after the other, on a store on which a read takes long, ...
const FRAMES_AHEAD: usize = 16;
/// ... and their bytes at most.
const FRAMES_AHEAD_BYTES: u64 = 16 << 20;

/// The caches that all segments of a database share.
#[derive(Debug)]
pub struct SegmentCaches {
    footers: Cache<Footer>,
    indexes: Cache<IndexBlock>,
    metrics: Cache<Blocks>,
    totals: Cache<FrameTotal>,
}

impl SegmentCaches {
    /// Caches that together keep to `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self {
            footers: Cache::new(bytes / 4),
            indexes: Cache::new(bytes / 4),
            metrics: Cache::new(bytes / 16 * 7),
            totals: Cache::new(bytes / 16),
        }
    }

    /// Forgets objects that nobody reads any more.
    pub fn forget(&self, is_gone: impl Fn(ObjectId) -> bool + Copy) {
        self.footers.forget(is_gone);
        self.indexes.forget(is_gone);
        self.metrics.forget(is_gone);
        self.totals.forget(is_gone);
    }
}

/// The footer of a segment, decoded.
#[derive(Debug)]
pub struct Footer {
    table: TableId,
    /// What it says of the whole segment.
    pub description: Description,
    /// Where the pieces end.
    pub data_end: u64,
    /// The frames of the index.
    pub index: Vec<Fence>,
    /// The frames of metrics.
    pub metrics: Vec<Fence>,
    /// The frames of filters, if it has any: all of its rows are in them.
    pub filters: Option<Vec<Fence>>,
}

impl Weight for Footer {
    fn weight_bytes(&self) -> usize {
        let filters = self.filters.as_ref().map_or(0, Vec::len);
        (self.index.len() + self.metrics.len() + filters) * size_of::<Fence>() + 256
    }
}

impl Weight for IndexBlock {
    fn weight_bytes(&self) -> usize {
        self.size_bytes()
    }
}

impl Weight for Blocks {
    fn weight_bytes(&self) -> usize {
        self.size_bytes()
    }
}

/// What a frame of metrics comes to.
#[derive(Debug)]
pub(crate) struct FrameTotal {
    /// How many blocks it has.
    pub(crate) blocks: u64,
    /// The places of the fields of which it is, ascending.
    of: Vec<usize>,
    /// All of them as one, with these fields, if that can be.
    pub(crate) all: Option<Blocks>,
}

impl FrameTotal {
    /// Where among its fields those at some places of the segment are, if it is of all of them.
    pub(crate) fn places(&self, places: &[Option<usize>]) -> Option<Vec<Option<usize>>> {
        let place = |place: &Option<usize>| {
            place
                .map(|place| self.of.binary_search(&place).ok())
                .map_or(Some(None), |at| at.map(Some))
        };
        places.iter().map(place).collect()
    }
}

impl Weight for FrameTotal {
    fn weight_bytes(&self) -> usize {
        size_of::<Self>()
            + self.of.len() * size_of::<usize>()
            + self.all.as_ref().map_or(0, Blocks::size_bytes)
    }
}

/// A segment that can be read. Cheap to clone; nothing is read before it is asked for.
#[derive(Debug, Clone)]
pub struct Segment {
    io: Arc<dyn ObjectIo>,
    caches: Arc<SegmentCaches>,
    id: ObjectId,
    name: Arc<str>,
    bytes: u64,
}

impl Segment {
    /// A segment of so many bytes under a name, which is opened when it is first read.
    pub fn new(
        io: Arc<dyn ObjectIo>,
        caches: Arc<SegmentCaches>,
        id: ObjectId,
        name: Arc<str>,
        bytes: u64,
    ) -> Self {
        Self { io, caches, id, name, bytes }
    }

    /// The name of its object.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its footer is in memory, and with it probably its index.
    pub(crate) fn is_open(&self) -> bool {
        self.caches.footers.contains(self.id, 0)
    }

    /// The fields that it holds, in the order of its pages.
    ///
    /// # Errors
    /// `NotFound`, `Io` and `Corrupt` from storage.
    pub fn fields(&self) -> Result<Vec<(FieldId, FieldType)>> {
        Ok(self.footer()?.description.fields.clone())
    }

    /// The number of its fields.
    pub(crate) fn field_count(&self) -> Result<usize> {
        Ok(self.footer()?.description.fields.len())
    }

    /// Where among the fields of its pages some fields are; none for those that it does not hold.
    pub(crate) fn places(&self, fields: &[(FieldId, FieldType)]) -> Result<Vec<Option<usize>>> {
        let footer = self.footer()?;
        let held = &footer.description.fields;
        let place = |id: &FieldId| held.iter().position(|(other, _)| other == id);
        Ok(fields.iter().map(|(id, _)| place(id)).collect())
    }

    /// The bytes of the texts of some fields, before they were encoded; nothing when it does not say.
    pub(crate) fn text_bytes(&self, fields: &[FieldId]) -> Result<Option<u64>> {
        let footer = self.footer()?;
        let Description { fields: held, text_bytes, .. } = &footer.description;
        if text_bytes.len() != held.len() {
            return Ok(None);
        }
        let wanted = held.iter().zip(text_bytes).filter(|((id, _), _)| fields.contains(id));
        Ok(Some(wanted.fold(0, |all, (_, bytes)| all.saturating_add(*bytes))))
    }

    /// The interval of its metrics.
    pub(crate) fn block_ns(&self) -> Result<i64> {
        Ok(self.footer()?.description.block_ns)
    }

    /// The index frames that may know `first..=last`, with nothing else decoded.
    pub(crate) fn index_blocks(&self, first: u32, last: u32) -> Result<Vec<Arc<IndexBlock>>> {
        let footer = self.footer()?;
        let frames = overlapping(&footer.index, first, last);
        self.announce(&footer.index, frames.clone(), &self.caches.indexes);
        frames.map(|position| self.index_block(&footer, position)).collect()
    }

    /// The number of index frames; each is read by [`Segment::index_block_at`].
    ///
    /// # Errors
    /// `NotFound`, `Io` and `Corrupt` from storage.
    pub fn index_block_count(&self) -> Result<usize> {
        Ok(self.footer()?.index.len())
    }

    /// The index frame at a position.
    ///
    /// # Errors
    /// `NotFound`, `Io` and `Corrupt` from storage.
    pub fn index_block_at(&self, position: usize) -> Result<Arc<IndexBlock>> {
        let footer = self.footer()?;
        self.announce(&footer.index, position..position + FRAMES_AHEAD, &self.caches.indexes);
        self.index_block(&footer, position)
    }

    /// The metrics frames that may know `first..=last`, with what is wanted of each field at least.
    pub(crate) fn metrics(
        &self,
        first: u32,
        last: u32,
        wanted: &[Wanted],
    ) -> Result<Vec<Arc<Blocks>>> {
        let footer = self.footer()?;
        let frames = overlapping(&footer.metrics, first, last);
        self.announce(&footer.metrics, frames.clone(), &self.caches.metrics);
        frames.map(|position| self.metrics_block(&footer, position, wanted)).collect()
    }

    /// The positions of the metrics frames that may know `first..=last`, and from which sensor to which each one reaches.
    pub(crate) fn metrics_frames(
        &self,
        first: u32,
        last: u32,
    ) -> Result<Vec<(usize, RangeInclusive<u32>)>> {
        let footer = self.footer()?;
        let reach = |position: usize| {
            let fence = &footer.metrics[position];
            (position, fence.first_sensor..=fence.last_sensor)
        };
        Ok(overlapping(&footer.metrics, first, last).map(reach).collect())
    }

    /// The number of metrics frames.
    pub(crate) fn metrics_block_count(&self) -> Result<usize> {
        Ok(self.footer()?.metrics.len())
    }

    /// The metrics frame at a position, with what is wanted of each field at least.
    pub(crate) fn metrics_block_at(
        &self,
        position: usize,
        wanted: &[Wanted],
    ) -> Result<Arc<Blocks>> {
        let footer = self.footer()?;
        self.announce(&footer.metrics, position..position + FRAMES_AHEAD, &self.caches.metrics);
        self.metrics_block(&footer, position, wanted)
    }

    /// What the metrics frame at a position comes to, of the fields at some places at least; found by `total_of` its blocks,
    /// fields and their places, and the interval.
    pub(crate) fn metrics_total_at(
        &self,
        position: usize,
        places: &[Option<usize>],
        total_of: impl Fn(&Blocks, &[(FieldId, FieldType)], &[usize], i64) -> Option<Blocks>,
    ) -> Result<Arc<FrameTotal>> {
        let is_enough = |total: &FrameTotal| total.places(places).is_some();
        self.caches.totals.get_enough(self.id, position as u32, is_enough, |known| {
            let footer = self.footer()?;
            let Description { fields, block_ns, .. } = &footer.description;
            let known = known.iter().flat_map(|known| &known.of);
            let of: BTreeSet<usize> = known.chain(places.iter().flatten()).copied().collect();
            let of: Vec<usize> = of.into_iter().collect();
            let wanted: Vec<Option<usize>> = of.iter().copied().map(Some).collect();
            let wanted = Wanted::ALL.of_places(&wanted, fields.len());
            let blocks = self.metrics_block(&footer, position, &wanted)?;
            let of_fields: Vec<_> = of.iter().map(|place| fields[*place]).collect();
            let all = total_of(&blocks, &of_fields, &of, *block_ns);
            Ok(FrameTotal { blocks: blocks.len() as u64, of, all })
        })
    }

    /// Whether it has filters.
    pub(crate) fn has_filters(&self) -> Result<bool> {
        Ok(self.footer()?.filters.is_some())
    }

    /// The filters that may know some sensors within a stretch of time; nothing where it has none.
    pub(crate) fn filters(
        &self,
        sensors: RangeInclusive<u32>,
        time: &TimeRange,
    ) -> Result<Option<Vec<Fence>>> {
        let footer = self.footer()?;
        let Some(all) = &footer.filters else { return Ok(None) };
        let of_sensors = &all[overlapping(all, *sensors.start(), *sensors.end())];
        let found = of_sensors.iter().filter(|fence| fence.time.overlaps(time));
        Ok(Some(found.copied().collect()))
    }

    /// Says that a filter will be read soon, on a store on which that takes long.
    pub(crate) fn will_read_filter(&self, fence: &Fence) {
        if self.is_slow() {
            self.will_read(fence.offset..fence.offset + fence.bytes);
        }
    }

    /// Reads the filter of a fence; the memory of `bytes` is used again.
    pub(crate) fn filter<'a>(&self, fence: &Fence, bytes: &'a mut Vec<u8>) -> Result<Filter<'a>> {
        self.read_to(fence.offset..fence.offset + fence.bytes, bytes)?;
        Filter::decode(bytes).map_err(|error| self.locate(fence.offset, error))
    }

    /// Bytes of the segment.
    pub(crate) fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let read = self.io.read_range(&self.name, range);
        read.map_err(|error| of_needed_object(&self.name, error))
    }

    /// Bytes of the segment in place of what `out` has, whose memory is used again.
    pub(crate) fn read_to(&self, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        if range.start > range.end || range.end > self.bytes {
            let why = "a page that reaches over the end of the segment";
            return Err(self.locate(range.start, Error::corrupt(why)));
        }
        out.resize((range.end - range.start) as usize, 0);
        let read = self.io.read_into(&self.name, range.start, out);
        read.map_err(|error| of_needed_object(&self.name, error))
    }

    /// Whether reads take so long that all that are to come should be announced.
    pub(crate) fn is_slow(&self) -> bool {
        self.io.is_slow()
    }

    /// Says that these bytes will be read soon.
    pub(crate) fn will_read(&self, range: Range<u64>) {
        self.io.will_read(&self.name, range);
    }

    /// The table that the segment says it is of.
    ///
    /// # Errors
    /// `NotFound`, `Io` and `Corrupt` from storage.
    pub fn table(&self) -> Result<TableId> {
        Ok(self.footer()?.table)
    }

    /// Checks that the object has as many bytes as the manifest says.
    ///
    /// # Errors
    /// As [`tidefall_store::check_size`].
    pub fn check_size(&self) -> Result<()> {
        check_size(&*self.io, &self.name, self.bytes)
    }

    /// `error` with the name of this segment and the offset in front.
    pub(crate) fn locate(&self, offset: u64, error: Error) -> Error {
        error.context(format_args!("{} at byte {offset}", self.name))
    }

    /// Announces the reads of frames that are not in memory, on a store on which each takes long.
    fn announce<T: Weight>(&self, fences: &[Fence], frames: Range<usize>, cache: &Cache<T>) {
        if !self.is_slow() || frames.is_empty() {
            return;
        }
        let mut bytes = 0;
        let fences = fences.get(frames.start..frames.end.min(fences.len())).unwrap_or_default();
        for (position, Fence { offset, bytes: length, .. }) in (frames.start..).zip(fences) {
            bytes += length;
            if bytes > FRAMES_AHEAD_BYTES {
                break;
            }
            if !cache.contains(self.id, position as u32) {
                self.will_read(*offset..offset + length);
            }
        }
    }

    fn index_block(&self, footer: &Footer, position: usize) -> Result<Arc<IndexBlock>> {
        self.caches.indexes.get(self.id, position as u32, || {
            let fence = footer.index[position];
            let frame = self.read(fence.offset..fence.offset + fence.bytes)?;
            IndexBlock::decode(&frame, footer.description.fields.len(), footer.data_end)
                .map_err(|error| self.locate(fence.offset, error))
        })
    }

    /// A metrics frame with what is wanted of each field.
    fn metrics_block(
        &self,
        footer: &Footer,
        position: usize,
        wanted: &[Wanted],
    ) -> Result<Arc<Blocks>> {
        let Description { fields, block_ns, .. } = &footer.description;
        let load = |known: Option<&Blocks>| {
            let mut wanted = wanted.to_vec();
            for (wanted, known) in
                wanted.iter_mut().zip(known.iter().flat_map(|known| &known.fields))
            {
                *wanted = wanted.or(known.read);
            }
            let fence = footer.metrics[position];
            let frame = self.read(fence.offset..fence.offset + fence.bytes)?;
            let types: Vec<FieldType> = fields.iter().map(|(_, ty)| *ty).collect();
            Blocks::decode(&frame, &types, &wanted, *block_ns)
                .map_err(|error| self.locate(fence.offset, error))
        };
        let metrics = &self.caches.metrics;
        metrics.get_enough(self.id, position as u32, |blocks| blocks.have(wanted), load)
    }

    fn footer(&self) -> Result<Arc<Footer>> {
        self.caches.footers.get(self.id, 0, || self.read_footer())
    }

    fn read_footer(&self) -> Result<Footer> {
        self.will_read(self.bytes.saturating_sub(END_BYTES)..self.bytes);
        self.will_read(0..HEADER_BYTES as u64);
        let end_offset = self.bytes.saturating_sub(FOOTER_GUESS_BYTES);
        let end = self.read(end_offset..self.bytes)?;
        let damaged = |why: &str| self.locate(self.bytes, Error::corrupt(why));
        let (rest, tail) = end
            .split_last_chunk::<TAIL_BYTES>()
            .ok_or_else(|| damaged("the segment is too short to be one"))?;
        // A small object has been read as a whole.
        let table = match end.first_chunk().filter(|_| end_offset == 0) {
            Some(header) => self.decode_header(header)?,
            None => self.read_header()?,
        };
        let (offset, bytes) =
            decode_tail(Content::Segment, tail).ok_or_else(|| damaged("its tail is damaged"))?;
        if offset.checked_add(bytes) != Some(self.bytes - TAIL_BYTES as u64) {
            return Err(damaged("its tail does not fit its length"));
        }
        let footer = match offset.checked_sub(end_offset) {
            Some(start) => rest[start as usize..].to_vec(),
            None => self.read(offset..offset + bytes)?,
        };
        decode_footer(table, &footer, offset).map_err(|error| self.locate(offset, error))
    }

    fn read_header(&self) -> Result<TableId> {
        let mut header = [0; HEADER_BYTES];
        let read = self.io.read_into(&self.name, 0, &mut header);
        read.map_err(|error| of_needed_object(&self.name, error))?;
        self.decode_header(&header)
    }

    fn decode_header(&self, header: &[u8; HEADER_BYTES]) -> Result<TableId> {
        decode_header(Content::Segment, header).map_err(|error| error.context(&self.name))
    }
}

/// The footer of a segment, which begins at `footer_offset`.
///
/// # Errors
/// `Corrupt` when it is damaged.
pub fn decode_footer(table: TableId, footer: &[u8], footer_offset: u64) -> Result<Footer> {
    let mut frame = FrameReader::new(footer)?;
    let description: Description = serde_json::from_slice(frame.take_bytes()?)
        .map_err(|error| Error::corrupt(format!("its description: {error}")))?;
    if description.block_ns <= 0 {
        return Err(Error::corrupt("its metrics have an impossible interval"));
    }
    let data_end: [u8; 8] = frame
        .take_bytes()?
        .try_into()
        .map_err(|_| Error::corrupt("the end of its pieces is missing"))?;
    let data_end = u64::from_le_bytes(data_end);
    if data_end > footer_offset {
        return Err(Error::corrupt("its pieces end behind its footer"));
    }
    let index = Fence::decode(&mut frame, footer_offset)?;
    let metrics = Fence::decode(&mut frame, footer_offset)?;
    let has_filters = frame.parts_left() > 0;
    let filters = has_filters.then(|| Fence::decode(&mut frame, footer_offset)).transpose()?;
    if filters.as_ref().is_some_and(Vec::is_empty) {
        return Err(Error::corrupt("it has filters, and none of them"));
    }
    Ok(Footer { table, description, data_end, index, metrics, filters })
}

/// The positions of the fences that overlap `first..=last`; fences are ordered, and neighbours may
/// share a sensor.
fn overlapping(fences: &[Fence], first: u32, last: u32) -> Range<usize> {
    let start = fences.partition_point(|fence| fence.last_sensor < first);
    let length = fences[start..].partition_point(|fence| fence.first_sensor <= last);
    start..start + length
}
