//! Where the readings of a sensor lie: runs in memory and chunks of segments.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_buffer::ScalarBuffer;
use roaring::RoaringBitmap;
use tidefall_codec::decode_page;
use tidefall_types::{Error, FieldId, FieldType, Result, Seq, TimeRange};

use super::request::ReadStats;
use crate::kv::Run;
use crate::manifest::ObjectEntry;
use crate::rows::SensorRows;
use crate::segment::encode::{CHUNK_ROWS, WholeChunk};
use crate::segment::{Chunk, IndexBlock, Segment};

/// A segment of a table as readers see it.
#[derive(Debug, Clone)]
pub(crate) struct LiveObject {
    pub(crate) entry: ObjectEntry,
    pub(crate) segment: Segment,
}

/// A delete as readers apply it.
#[derive(Debug, Clone)]
pub(crate) struct LiveTombstone {
    pub(crate) seq: Seq,
    pub(crate) time: TimeRange,
    /// All sensors when absent.
    pub(crate) sensors: Option<Arc<RoaringBitmap>>,
}

impl LiveTombstone {
    pub(crate) fn hides(&self, sensor: u32) -> bool {
        self.sensors.as_ref().is_none_or(|sensors| sensors.contains(sensor))
    }
}

/// All places in which readings of a table may lie, at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    /// In the order of their writes.
    pub(crate) runs: Vec<Arc<Run>>,
    pub(crate) objects: Vec<Arc<LiveObject>>,
    pub(crate) tombstones: Arc<Vec<LiveTombstone>>,
}

/// A stretch of a sensor's rows in one place, ordered by time.
#[derive(Debug)]
pub(crate) struct Part {
    /// The order of writes among parts that overlap in time.
    pub(crate) seq: Seq,
    /// The first and the last time of its rows, cut to what was asked for.
    pub(crate) time: TimeRange,
    pub(crate) place: Place,
    /// What deletes hide in it.
    pub(crate) hidden: Vec<TimeRange>,
}

/// Where a part lies.
#[derive(Debug)]
pub(crate) enum Place {
    Run(Arc<Run>, Range<usize>),
    Chunk { object: Arc<LiveObject>, index: Arc<IndexBlock>, position: usize },
}

impl Sources {
    /// The parts that hold rows of `sensor` within `range`, ordered by their first time.
    pub(crate) fn parts(&self, sensor: u32, range: &TimeRange) -> Result<Vec<Part>> {
        let mut parts = Vec::new();
        for object in &self.objects {
            self.object_parts(object, sensor, range, &mut parts)?;
        }
        for run in self.runs.iter().filter(|run| run.range.overlaps(range)) {
            let place = run.find(sensor, range);
            if !place.is_empty() {
                let time = run.times_at(&place);
                let hidden = self.hidden(sensor, run.last_seq, &time);
                let place = Place::Run(Arc::clone(run), place);
                parts.push(Part { seq: run.last_seq, time, place, hidden });
            }
        }
        parts.sort_by_key(|part| (part.time.first_ns, part.seq));
        Ok(parts)
    }

    fn object_parts(
        &self,
        object: &Arc<LiveObject>,
        sensor: u32,
        range: &TimeRange,
        parts: &mut Vec<Part>,
    ) -> Result<()> {
        let entry = &object.entry;
        let is_known = (entry.first_sensor..=entry.last_sensor).contains(&sensor);
        if !is_known || !entry.time.overlaps(range) {
            return Ok(());
        }
        for index in object.segment.index_blocks(sensor, sensor)? {
            for position in index.chunks_of(sensor) {
                let time = index.chunk(position).time();
                if time.overlaps(range) {
                    let time = time.intersect(range);
                    let hidden = self.hidden(sensor, entry.last_seq, &time);
                    let index = Arc::clone(&index);
                    let place = Place::Chunk { object: Arc::clone(object), index, position };
                    parts.push(Part { seq: entry.last_seq, time, place, hidden });
                }
            }
        }
        Ok(())
    }

    /// What deletes hide of rows of a sensor written up to `seq`.
    pub(crate) fn hidden(&self, sensor: u32, seq: Seq, time: &TimeRange) -> Vec<TimeRange> {
        self.tombstones
            .iter()
            .filter(|tombstone| {
                tombstone.seq > seq && tombstone.time.overlaps(time) && tombstone.hides(sensor)
            })
            .map(|tombstone| tombstone.time)
            .collect()
    }
}

impl Part {
    /// Reads the rows.
    pub(crate) fn read(
        &self,
        fields: &[(FieldId, FieldType)],
        fetched: &mut Fetched,
        stats: &ReadStats,
    ) -> Result<SensorRows> {
        let rows = match &self.place {
            Place::Run(run, place) => {
                let ids: Vec<FieldId> = fields.iter().map(|(id, _)| *id).collect();
                ReadStats::add(&stats.rows_from_memory, place.len() as u64);
                run.read(place.clone(), &ids)?
            }
            Place::Chunk { object, index, position } => {
                let rows = read_chunk(&object.segment, index, *position, fields, fetched, stats)?;
                let first = rows.times.partition_point(|&time| time < self.time.first_ns);
                let end = rows.times.partition_point(|&time| time <= self.time.last_ns);
                if (first, end) == (0, rows.len()) { rows } else { rows.slice(first, end - first) }
            }
        };
        hide(rows, &self.hidden)
    }
}

/// Chunks with fewer rows are laid together with their neighbours when a segment is rewritten.
const WHOLE_ROWS_MIN: usize = CHUNK_ROWS / 2;

impl Part {
    /// Whether this is a chunk that may be taken over as it is.
    pub(crate) fn is_whole(&self, may_stay: impl Fn(&LiveObject) -> bool) -> bool {
        match &self.place {
            Place::Run(..) => false,
            Place::Chunk { object, index, position } => {
                let chunk = index.chunk(*position);
                self.hidden.is_empty()
                    && self.time == chunk.time()
                    && chunk.meta.rows as usize >= WHOLE_ROWS_MIN
                    && may_stay(object)
            }
        }
    }

    /// Reads a chunk with its pages.
    pub(crate) fn read_whole(
        &self,
        fields: &[(FieldId, FieldType)],
        fetched: &mut Fetched,
        stats: &ReadStats,
    ) -> Result<WholeChunk> {
        let Place::Chunk { object, index, position } = &self.place else {
            return Err(Error::invalid("rows in memory have no pages"));
        };
        let rows = read_chunk(&object.segment, index, *position, fields, fetched, stats)?;
        let chunk = index.chunk(*position);
        let held = object.segment.fields()?;
        let bytes = |page: Range<u64>| fetched.page(&page).unwrap_or_default().to_vec();
        let field_pages = fields.iter().map(|(id, _)| {
            let place = held.iter().position(|(other, _)| other == id);
            place.map_or_else(Vec::new, |place| bytes(chunk.field_page(place)))
        });
        Ok(WholeChunk {
            rows,
            time_page: bytes(chunk.time_page()),
            field_pages: field_pages.collect(),
        })
    }
}

/// Leaves out rows that deletes hide.
fn hide(rows: SensorRows, hidden: &[TimeRange]) -> Result<SensorRows> {
    if hidden.is_empty() {
        return Ok(rows);
    }
    let keep: Vec<u32> = (0..rows.len() as u32)
        .filter(|&row| !hidden.iter().any(|range| range.contains(rows.times[row as usize])))
        .collect();
    let times: Vec<i64> = keep.iter().map(|&row| rows.times[row as usize]).collect();
    let keep = arrow_array::UInt32Array::from(keep);
    let fields = rows
        .fields
        .iter()
        .map(|f| f.as_ref().map(|f| crate::rows::gather(f, &keep)).transpose())
        .collect::<Result<_>>()?;
    Ok(SensorRows { times: times.into(), fields })
}

/// Decodes a chunk.
fn read_chunk(
    segment: &Segment,
    index: &Arc<IndexBlock>,
    position: usize,
    fields: &[(FieldId, FieldType)],
    fetched: &mut Fetched,
    stats: &ReadStats,
) -> Result<SensorRows> {
    let chunk = index.chunk(position);
    let held = segment.fields()?;
    let rows = chunk.meta.rows as usize;
    let places: Vec<Option<usize>> =
        fields.iter().map(|(id, _)| held.iter().position(|(other, _)| other == id)).collect();
    fetched.want(segment, index, position, &places, stats)?;
    let times = match chunk.time_page() {
        page if page.is_empty() => regular_times(&chunk)?,
        page => {
            let times = fetched.decode(segment, page, FieldType::I64, stats)?;
            let times = times.as_primitive::<Int64Type>();
            let ends = (times.values().first(), times.values().last());
            if ends != (Some(&chunk.meta.first_ns), Some(&chunk.meta.last_ns)) {
                return Err(segment.locate(
                    chunk.time_page().start,
                    Error::corrupt("the times of a chunk are not those of the index"),
                ));
            }
            times.values().clone()
        }
    };
    let mut columns = Vec::with_capacity(fields.len());
    for ((_, ty), place) in fields.iter().zip(&places) {
        let page = place.map_or(0..0, |place| chunk.field_page(place));
        columns.push(if page.is_empty() {
            None
        } else {
            let start = page.start;
            let column = fetched.decode(segment, page, *ty, stats)?;
            if column.len() != rows {
                return Err(
                    segment.locate(start, Error::corrupt("a page has another number of rows"))
                );
            }
            Some(column)
        });
    }
    if times.len() != rows {
        return Err(segment.locate(0, Error::corrupt("a time page has another number of rows")));
    }
    Ok(SensorRows { times, fields: columns })
}

/// Times with one step, from their ends and their count.
pub(crate) fn regular_times(chunk: &Chunk<'_>) -> Result<ScalarBuffer<i64>> {
    let (first, last, rows) = (chunk.meta.first_ns, chunk.meta.last_ns, i64::from(chunk.meta.rows));
    if rows == 1 {
        return Ok(vec![first].into());
    }
    let span = last.checked_sub(first).filter(|span| span % (rows - 1) == 0);
    let step =
        span.ok_or_else(|| Error::corrupt("regular times without a whole step"))? / (rows - 1);
    Ok((0..rows).map(|row| first + row * step).collect::<Vec<i64>>().into())
}

/// Bytes read ahead: the pages of neighbouring chunks lie side by side, so one read serves many.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    name: String,
    buffers: Vec<(u64, Vec<u8>)>,
    /// The chunks whose pages are in `buffers`.
    chunks: Option<(Arc<IndexBlock>, Range<usize>)>,
}

/// Bytes read ahead at once: large enough that a read's fixed cost vanishes, small enough that a
/// scan keeps to its share of the memory.
const READ_AHEAD_BYTES: u64 = 4 << 20;
/// Unwanted bytes that are read along rather than starting another read.
const READ_GAP_BYTES: u64 = 64 << 10;

impl Fetched {
    /// Makes sure that the wanted pages of a chunk are here, and reads those of the chunks of the
    /// same sensor behind it along.
    fn want(
        &mut self,
        segment: &Segment,
        index: &Arc<IndexBlock>,
        position: usize,
        places: &[Option<usize>],
        stats: &ReadStats,
    ) -> Result<()> {
        if let Some((block, chunks)) = &self.chunks
            && Arc::ptr_eq(block, index)
            && chunks.contains(&position)
        {
            return Ok(());
        }
        if self.name != segment.name() {
            segment.name().clone_into(&mut self.name);
            ReadStats::add(&stats.objects, 1);
        }
        let sensor = index.sensors()[position];
        let mut end = index.chunks_of(sensor).end;
        let mut wanted = self.pages(index, position..end, places);
        let total = |pages: &[Range<u64>]| pages.iter().map(|p| p.end - p.start).sum::<u64>();
        while total(&wanted) > READ_AHEAD_BYTES && end > position + 1 {
            end = position + (end - position) / 2;
            wanted = self.pages(index, position..end, places);
        }
        self.buffers.clear();
        for range in wanted {
            ReadStats::add(&stats.bytes, range.end - range.start);
            self.buffers.push((range.start, segment.read(range)?));
        }
        self.chunks = Some((Arc::clone(index), position..end));
        Ok(())
    }

    /// The ranges of the wanted pages of some chunks, joined where they lie close together.
    fn pages(
        &self,
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

    /// The bytes of a page that was wanted.
    pub(crate) fn page(&self, page: &Range<u64>) -> Option<&[u8]> {
        let (start, bytes) = self.buffers.iter().find(|(start, bytes)| {
            *start <= page.start && page.end <= start + bytes.len() as u64
        })?;
        bytes.get((page.start - start) as usize..(page.end - start) as usize)
    }

    fn decode(
        &self,
        segment: &Segment,
        page: Range<u64>,
        ty: FieldType,
        stats: &ReadStats,
    ) -> Result<ArrayRef> {
        let bytes = self
            .page(&page)
            .ok_or_else(|| segment.locate(page.start, Error::corrupt("a page was not read")))?;
        ReadStats::add(&stats.pages, 1);
        decode_page(bytes, ty).map_err(|error| segment.locate(page.start, error))
    }
}
