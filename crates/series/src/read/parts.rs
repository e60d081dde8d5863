//! Where the readings of a sensor lie: runs in memory and chunks of segments.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::UInt32Array;
use tidefall_ground::parallel::spread;
use tidefall_sync::atomic::{AtomicI64, Ordering};
use tidefall_types::{FieldId, FieldType, Result, Seq, TimeRange};

use super::chunk::PlacedChunk;
use super::fetch::{self, Fetched, pages_of};
use super::objects::LiveObject;
use super::request::ReadStats;
use super::sensors::SensorSlice;
use super::version::Version;
use crate::kv::{Run, Settling};
use crate::rows::{SensorRows, gather_all, values_at};
use crate::segment::{IndexBlock, wanted};

/// All places in which readings of a table may lie, at one moment.
#[derive(Debug, Clone)]
pub struct Sources {
    /// In the order of their writes.
    pub runs: Vec<Arc<Run>>,
    /// The objects in which rows may lie, the deletes that hide some, and the schema that all of it has.
    pub version: Arc<Version>,
    /// Whether rows replace others can be found out here: all places are here of which somebody may ask.
    pub(crate) settling: Option<Settling>,
}

/// A stretch of a sensor's rows in one place, ordered by time.
#[derive(Debug)]
pub struct Part {
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
    Chunk(PlacedChunk),
}

/// The frame of each object's index that was looked at last: those who ask for sensors in their order mostly find the next
/// sensor in it.
#[derive(Debug, Default)]
pub(crate) struct Near(Vec<Option<Arc<IndexBlock>>>);

/// Of more sensors, their indexes are not read ahead one by one: whoever reads them goes from frame to frame.
const OPENED_SINGLY_MAX: usize = 1024;

/// Objects that are opened at the same time. A disk, and all the more a network, answers several small reads
/// at once nearly as fast as one.
const OPENING_MAX: usize = 8;

/// Bytes of pages that a query asks for ahead: more might be gone before they are read.
pub(super) const AHEAD_BYTES: u64 = 32 << 20;

/// What a query will read beside footers and indexes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted<'a> {
    Nothing,
    /// The metrics of some fields.
    Metrics(&'a [(FieldId, FieldType)]),
    /// The pages of some fields.
    Pages(&'a [(FieldId, FieldType)]),
}

impl Sources {
    /// Some objects of a version alone.
    pub fn of(objects: &[Arc<LiveObject>], version: &Version) -> Self {
        let version = Arc::new(version.with_objects(objects.iter().cloned()));
        Self { runs: Vec::new(), version, settling: None }
    }

    /// Reads the footers and the index of all objects that may hold rows of `sensors` within `range`, unless they
    /// are in memory, and what is wanted beside them; pages are only asked for.
    pub(super) fn open(
        &self,
        sensors: &SensorSlice<'_>,
        range: &TimeRange,
        wanted: Wanted<'_>,
    ) -> Result<()> {
        let is_wanted = |object: &&Arc<LiveObject>| {
            !object.segment.is_open() && sensors.has_one_of(&object.sensors())
        };
        let closed: Vec<&Arc<LiveObject>> =
            self.version.objects.within(range).filter(is_wanted).collect();
        if closed.is_empty() || sensors.len() == 0 {
            return Ok(());
        }
        let left = AtomicI64::new(AHEAD_BYTES as i64);
        let open = |object: &Arc<LiveObject>, _: &mut ()| {
            if sensors.len() > OPENED_SINGLY_MAX {
                return object.segment.block_ns().map(drop);
            }
            let known = object.sensors();
            for sensor in sensors.clone().into_iter().filter(|sensor| known.contains(sensor)) {
                let indexes = object.segment.index_blocks(sensor, sensor)?;
                match wanted {
                    Wanted::Nothing => {}
                    Wanted::Metrics(fields) => {
                        let places = object.segment.places(fields)?;
                        let count = object.segment.field_count()?;
                        let wanted = wanted::Wanted::ALL.of_places(&places, count);
                        object.segment.metrics(sensor, sensor, &wanted)?;
                    }
                    Wanted::Pages(fields) => {
                        let places = object.segment.places(fields)?;
                        for index in indexes {
                            let chunks = index.chunks_within(sensor, range);
                            for pages in pages_of(&index, chunks, &places) {
                                let bytes = (pages.end - pages.start) as i64;
                                // Of slow stores whoever reads announces it.
                                let is_ahead = !object.segment.is_slow();
                                if is_ahead && left.fetch_sub(bytes, Ordering::Relaxed) > 0 {
                                    object.segment.will_read(pages);
                                }
                            }
                        }
                    }
                }
            }
            Ok(())
        };
        spread(OPENING_MAX, closed, open).map(drop)
    }

    /// Whether no two places have the same reading within `range`.
    pub(super) fn are_distinct(&self, range: &TimeRange) -> bool {
        self.version.objects.within(range).all(|object| object.entry.is_distinct)
            && self
                .runs
                .iter()
                .filter(|run| run.range.overlaps(range))
                .all(|run| run.is_distinct(range))
    }

    /// Those of the objects that have rows within `range` of which nothing else has one, one by one; and all that is left.
    pub(super) fn apart(&self, range: &TimeRange) -> (Vec<Self>, Self) {
        let objects: Vec<&Arc<LiveObject>> = self.version.objects.within(range).collect();
        let runs = self.runs.iter().filter(|run| run.range.overlaps(range));
        let runs: Vec<Arc<Run>> = runs.cloned().collect();
        let are_distinct = self.are_distinct(range);
        let meets_run = |object: &&Arc<LiveObject>| {
            let time = object.entry.time.intersect(range);
            !are_distinct && runs.iter().any(|run| run.range.overlaps(&time))
        };
        let mut meets: Vec<bool> = objects.iter().map(meets_run).collect();
        for (at, object) in objects.iter().enumerate().filter(|_| !are_distinct) {
            let time = object.entry.time.intersect(range);
            for (next, other) in objects.iter().enumerate().skip(at + 1) {
                if other.entry.time.first_ns > time.last_ns {
                    break;
                }
                if other.entry.time.overlaps(&time) && object.shares_sensors_with(other) {
                    (meets[at], meets[next]) = (true, true);
                }
            }
        }
        let (others, alone): (Vec<_>, Vec<_>) =
            objects.into_iter().cloned().zip(meets).partition(|one| one.1);
        let alone = alone.into_iter().map(|(object, _)| Self::of(&[object], &self.version));
        let others = self.version.with_objects(others.into_iter().map(|(object, _)| object));
        let others = Self { runs, version: Arc::new(others), settling: None };
        (alone.collect(), others)
    }

    /// Whether reads take so long that all that are to come should be announced.
    pub(super) fn are_slow(&self) -> bool {
        self.version.objects.first().is_some_and(|object| object.segment.is_slow())
    }

    /// Whether there is nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.version.objects.is_empty()
    }

    /// The parts that hold rows of `sensor` within `range`, ordered by their first time.
    pub(crate) fn parts(&self, sensor: u32, range: &TimeRange) -> Result<Vec<Part>> {
        self.parts_near(sensor, range, &mut Near::default())
    }

    /// As [`Sources::parts`], for those who ask for many sensors.
    pub(crate) fn parts_near(
        &self,
        sensor: u32,
        range: &TimeRange,
        near: &mut Near,
    ) -> Result<Vec<Part>> {
        let mut parts = Vec::new();
        near.0.resize(self.version.objects.len(), None);
        for place in self.version.objects.places_within(range) {
            let (object, near) = (&self.version.objects[place], &mut near.0[place]);
            self.object_parts(object, sensor, range, near, &mut parts)?;
        }
        self.run_parts(sensor, range, &mut parts);
        parts.sort_by_key(|part| (part.time.first_ns, part.seq));
        Ok(parts)
    }

    /// Adds the parts that lie in memory.
    pub(super) fn run_parts(&self, sensor: u32, range: &TimeRange, parts: &mut Vec<Part>) {
        for run in self.runs.iter().filter(|run| run.range.overlaps(range)) {
            let mut rest = run.find(sensor, range);
            while !rest.is_empty() {
                let place = run.readable(rest.clone());
                rest.start = place.end;
                let time = run.times_at(&place);
                let hidden = self.hidden(sensor, run.last_seq, &time);
                let place = Place::Run(Arc::clone(run), place);
                parts.push(Part { seq: run.last_seq, time, place, hidden });
            }
        }
    }

    /// Whether a sensor has rows, as far as the index and single deletes tell; the newest places are asked first.
    pub(crate) fn has_rows(&self, sensor: u32) -> Result<bool> {
        let is_covered = |time: &TimeRange, hidden: &[TimeRange]| {
            hidden.iter().any(|range| range.intersect(time) == *time)
        };
        for run in self.runs.iter().rev() {
            let place = run.find(sensor, &TimeRange::ALL);
            if !place.is_empty() {
                let time = run.times_at(&place);
                if !is_covered(&time, &self.hidden(sensor, run.last_seq, &time)) {
                    return Ok(true);
                }
            }
        }
        let mut parts = Vec::new();
        for object in self.version.objects.iter().rev() {
            self.object_parts(object, sensor, &TimeRange::ALL, &mut None, &mut parts)?;
            if parts.iter().any(|part| !is_covered(&part.time, &part.hidden)) {
                return Ok(true);
            }
            parts.clear();
        }
        Ok(false)
    }

    fn object_parts(
        &self,
        object: &Arc<LiveObject>,
        sensor: u32,
        range: &TimeRange,
        near: &mut Option<Arc<IndexBlock>>,
        parts: &mut Vec<Part>,
    ) -> Result<()> {
        if object.entry.time.overlaps(range) {
            let indexes = near_indexes(object, sensor, near)?;
            indexes.iter().for_each(|index| self.chunk_parts(object, index, sensor, range, parts));
        }
        Ok(())
    }

    fn chunk_parts(
        &self,
        object: &Arc<LiveObject>,
        index: &Arc<IndexBlock>,
        sensor: u32,
        range: &TimeRange,
        parts: &mut Vec<Part>,
    ) {
        let entry = &object.entry;
        let chunks = index.chunks_within(sensor, range);
        let end = chunks.end;
        for position in chunks {
            let time = index.chunk(position).time().intersect(range);
            let hidden = self.hidden(sensor, entry.deletes_upto(), &time);
            let (object, index) = (Arc::clone(object), Arc::clone(index));
            let place = Place::Chunk(PlacedChunk { object, index, position, end });
            parts.push(Part { seq: entry.last_seq, time, place, hidden });
        }
    }

    /// Whether a delete hides a row of a run.
    pub(super) fn hides(&self, run: &Run, sensor: u32, time_ns: i64) -> bool {
        let mut deletes = self.version.deletes.within(TimeRange::new(time_ns, time_ns));
        deletes.any(|delete| delete.seq > run.last_seq && delete.hides(sensor))
    }

    /// What deletes behind `seq` hide of a sensor.
    pub(crate) fn hidden(&self, sensor: u32, seq: Seq, time: &TimeRange) -> Vec<TimeRange> {
        self.version
            .deletes
            .within(*time)
            .filter(|delete| delete.seq > seq && delete.hides(sensor))
            .map(|delete| delete.time)
            .collect()
    }
}

/// The frames of an object's index that may know a sensor.
fn near_indexes(
    object: &LiveObject,
    sensor: u32,
    near: &mut Option<Arc<IndexBlock>>,
) -> Result<Vec<Arc<IndexBlock>>> {
    if !object.sensors().contains(&sensor) {
        return Ok(Vec::new());
    }
    if let Some(index) = near.as_ref().filter(|index| index.has_all_of(sensor)) {
        return Ok(vec![Arc::clone(index)]);
    }
    let indexes = object.segment.index_blocks(sensor, sensor)?;
    if let Some(last) = indexes.last() {
        *near = Some(Arc::clone(last));
    }
    Ok(indexes)
}

impl Near {
    /// The frames of the index of an object, which is at a place of its version, that may know a sensor.
    pub(super) fn indexes(
        &mut self,
        object: &LiveObject,
        place: usize,
        sensor: u32,
    ) -> Result<Vec<Arc<IndexBlock>>> {
        if self.0.len() <= place {
            self.0.resize(place + 1, None);
        }
        near_indexes(object, sensor, &mut self.0[place])
    }
}

impl Part {
    /// The chunk, if this is one of which nothing is hidden.
    pub(crate) fn bare_chunk(&self) -> Option<&PlacedChunk> {
        match &self.place {
            Place::Chunk(chunk) if self.hidden.is_empty() => Some(chunk),
            _ => None,
        }
    }

    /// Whether it lies in an object.
    pub(super) fn is_of(&self, object: &Arc<LiveObject>) -> bool {
        matches!(&self.place, Place::Chunk(chunk) if Arc::ptr_eq(chunk.object(), object))
    }

    /// The same for all parts of a run or an object, and for no others.
    pub(super) fn address(&self) -> *const () {
        match &self.place {
            Place::Run(run, _) => Arc::as_ptr(run).cast(),
            Place::Chunk(chunk) => Arc::as_ptr(chunk.object()).cast(),
        }
    }

    /// The number of its rows at most.
    pub(crate) fn rows_max(&self) -> usize {
        match &self.place {
            Place::Run(_, place) => place.len(),
            Place::Chunk(chunk) => chunk.rows(),
        }
    }

    /// The number of its rows within `time`, at most.
    pub(super) fn rows_within(&self, time: &TimeRange) -> usize {
        match &self.place {
            Place::Run(_, place) => place.len(),
            Place::Chunk(chunk) => chunk.rows_within(time),
        }
    }

    /// About the number of its rows within `time`.
    pub(super) fn rows_about(&self, time: &TimeRange) -> usize {
        match &self.place {
            Place::Run(_, place) => place.len(),
            Place::Chunk(chunk) => chunk.rows_about(time),
        }
    }

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
            Place::Chunk(chunk) => chunk.read(&self.time, fields, fetched, stats)?,
        };
        hide(rows, &self.hidden)
    }
}

/// Announces the reads of some parts of a sensor, on stores on which a read takes long. Returns the bytes.
///
/// # Errors
/// `Corrupt` and `Io` when an object cannot be opened.
pub(super) fn announce<'a>(
    parts: impl Iterator<Item = &'a Part>,
    fields: &[(FieldId, FieldType)],
) -> Result<u64> {
    let (mut bytes, mut upto) = (0, None);
    for part in parts {
        let Place::Chunk(PlacedChunk { object, index, position, end }) = &part.place else {
            continue;
        };
        // The first of its neighbours is for all of them.
        let chunks = (Arc::as_ptr(index), *end);
        if object.segment.is_slow() && upto.replace(chunks) != Some(chunks) {
            let places = object.segment.places(fields)?;
            bytes += fetch::announce(&object.segment, index, *position..*end, &places);
        }
    }
    Ok(bytes)
}

/// Leaves out rows that deletes hide.
fn hide(rows: SensorRows, hidden: &[TimeRange]) -> Result<SensorRows> {
    if hidden.is_empty() {
        return Ok(rows);
    }
    let keep: Vec<u32> = (0..rows.len() as u32)
        .filter(|&row| !hidden.iter().any(|range| range.contains(rows.times[row as usize])))
        .collect();
    let keep = UInt32Array::from(keep);
    let (times, fields) = (values_at(&rows.times, &keep), gather_all(&rows.fields, &keep)?);
    Ok(SensorRows { times, fields })
}
