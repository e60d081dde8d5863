//! Blocks and rows in memory that answer for all of their sensor, found in the order of sensors: each frame of metrics is
//! looked up once for all of its sensors, and the rows of many sensors in memory are laid side by side at once. It is what
//! makes a million sensors with few readings each cost little more than their metrics.
//!
//! 1. The objects that may hold rows of the question are looked at side by side, each with a frame at hand, and so are
//!    the runs in memory.
//! 2. A sensor is clear where no two of them have rows at the same times, or none has a reading of another, no delete hides one, and each block lies whole
//!    within a bin and the time asked for.
//! 3. Other sensors are left to those who look at their parts.

use std::ops::Range;
use std::sync::Arc;

use tidefall_types::{FieldId, FieldType, Result, TimeRange};

use super::bin::Bins;
use super::deletes::LiveTombstone;
use super::near::NearFrame;
use super::objects::LiveObject;
use super::parts::Sources;
use super::prune::blocks_within;
use super::split::Asked;
use crate::kv::{Known, Run, RunWalk};
use crate::rows::SensorRows;
use crate::segment::metrics::Blocks;
use crate::segment::wanted::Wanted;

/// Goes through sensors, best in their order.
pub(super) struct Walk<'a> {
    time: TimeRange,
    /// Whether places may have rows at the same times, as none of these is the same reading.
    are_distinct: bool,
    bins: Option<Bins>,
    objects: Vec<ObjectWalk<'a>>,
    runs: Vec<(RunWalk<'a>, Vec<&'a LiveTombstone>)>,
    found: Vec<Found>,
}

/// What an object or a run has of a sensor.
#[derive(Debug, Clone)]
struct Found {
    origin: Origin,
    range: Range<usize>,
    time: TimeRange,
}

#[derive(Debug, Clone, Copy)]
enum Origin {
    Object(usize),
    Run(usize),
}

/// What answers for a sensor.
pub(super) enum Clear<'w> {
    Blocks(ClearBlocks<'w>),
    /// Rows among those of other sensors.
    Rows(&'w SensorRows, Range<usize>),
}

/// Blocks that answer for their sensor.
pub(super) struct ClearBlocks<'w> {
    pub(super) blocks: &'w Blocks,
    pub(super) range: Range<usize>,
    /// Where among the fields of the blocks each of the wanted ones is.
    pub(super) places: &'w [Option<usize>],
    pub(super) block_ns: i64,
}

impl<'a> Walk<'a> {
    /// Goes through what `sources` have of a question about `fields`.
    pub(super) fn new(
        sources: &'a Sources,
        fields: &'a [FieldId],
        asked: Asked<'a>,
        are_distinct: bool,
    ) -> Self {
        let time = asked.time;
        let objects = sources.version.objects.within(&time);
        let runs = sources.runs.iter().filter(|run| run.range.overlaps(&time));
        let run_walk = |run: &'a Arc<Run>| {
            let deletes = sources.version.deletes.within(run.range);
            let deletes = deletes.filter(|delete| delete.seq > run.last_seq).collect();
            (RunWalk::new(run, fields), deletes)
        };
        Self {
            time,
            are_distinct,
            bins: asked.bin.map(Bins::new),
            objects: objects.map(|object| ObjectWalk::new(sources, object, asked.fields)).collect(),
            runs: runs.map(run_walk).collect(),
            found: Vec::new(),
        }
    }

    /// Looks a sensor up; returns whether what was found answers for all of it.
    pub(super) fn find(&mut self, sensor: u32) -> Result<bool> {
        let Self { time, objects, runs, found, .. } = self;
        found.clear();
        for (at, (run, deletes)) in runs.iter_mut().enumerate() {
            let range = match run.find(sensor, time)? {
                Known::Nothing => continue,
                Known::Rows(range) if !hides_one(deletes, sensor) => range,
                _ => return Ok(false),
            };
            let times = &run.rows().times;
            let time = TimeRange::new(times[range.start], times[range.end - 1]);
            found.push(Found { origin: Origin::Run(at), range, time });
        }
        for (at, object) in objects.iter_mut().enumerate() {
            let Some((range, time)) = object.find(sensor, time)? else { return Ok(false) };
            if !range.is_empty() {
                found.push(Found { origin: Origin::Object(at), range, time });
            }
        }
        found.sort_unstable_by_key(|found| found.time.first_ns);
        let is_apart = |pair: &[Found]| pair[0].time.last_ns < pair[1].time.first_ns;
        Ok((self.are_distinct || found.windows(2).all(is_apart)) && self.are_whole())
    }

    /// What was found last, in the order of time.
    pub(super) fn found(&self) -> impl Iterator<Item = Clear<'_>> {
        self.found.iter().filter_map(|Found { origin, range, .. }| {
            let range = range.clone();
            Some(match origin {
                Origin::Run(at) => Clear::Rows(self.runs[*at].0.rows(), range),
                Origin::Object(at) => {
                    let ObjectWalk { near, places, block_ns, .. } = &self.objects[*at];
                    let (blocks, block_ns) = (near.frame()?, *block_ns);
                    Clear::Blocks(ClearBlocks { blocks, range, places, block_ns })
                }
            })
        })
    }

    /// How many blocks were found last.
    pub(super) fn blocks(&self) -> usize {
        let is_of_object = |found: &&Found| matches!(found.origin, Origin::Object(_));
        self.found.iter().filter(is_of_object).map(|found| found.range.len()).sum()
    }

    fn are_whole(&mut self) -> bool {
        let Self { time, bins, objects, found, .. } = self;
        let mut is_whole = |object: &ObjectWalk<'_>, blocks: &Blocks, block: usize| {
            let rows = blocks.time(block, object.block_ns);
            time.covers(&rows)
                && bins.as_mut().is_none_or(|bins| bins.are_together(rows.first_ns, rows.last_ns))
                && object.places.iter().flatten().all(|at| blocks.fields[*at].is_exact(block))
        };
        found.iter().all(|found| {
            let Origin::Object(at) = found.origin else { return true };
            let object = &objects[at];
            let blocks = object.near.frame();
            blocks.is_some_and(|blocks| {
                found.range.clone().all(|block| is_whole(object, blocks, block))
            })
        })
    }
}

pub(super) fn hides_one(deletes: &[&LiveTombstone], sensor: u32) -> bool {
    deletes.iter().any(|delete| delete.hides(sensor))
}

/// An object, with the frame of metrics that was looked at last.
struct ObjectWalk<'a> {
    object: &'a Arc<LiveObject>,
    fields: &'a [(FieldId, FieldType)],
    /// Whether the three that follow are known: an object is opened for its own sensors alone.
    is_open: bool,
    block_ns: i64,
    places: Vec<Option<usize>>,
    /// What is wanted of each field of the object.
    wanted: Vec<Wanted>,
    /// The deletes that may hide some of its rows.
    deletes: Vec<&'a LiveTombstone>,
    near: NearFrame,
}

impl<'a> ObjectWalk<'a> {
    fn new(
        sources: &'a Sources,
        object: &'a Arc<LiveObject>,
        fields: &'a [(FieldId, FieldType)],
    ) -> Self {
        let deletes = sources.version.deletes.within(object.entry.time);
        Self {
            object,
            fields,
            is_open: false,
            block_ns: 0,
            places: Vec::new(),
            wanted: Vec::new(),
            deletes: deletes.filter(|delete| delete.may_hide_in(&object.entry)).collect(),
            near: NearFrame::default(),
        }
    }

    /// The blocks of a sensor that have rows at some time, and when these lie; none where it is not clear.
    fn find(&mut self, sensor: u32, time: &TimeRange) -> Result<Option<(Range<usize>, TimeRange)>> {
        let nothing = Some((0..0, *time));
        let entry = &self.object.entry;
        if !(entry.first_sensor..=entry.last_sensor).contains(&sensor) {
            return Ok(nothing);
        }
        if !self.is_open {
            self.block_ns = self.object.segment.block_ns()?;
            self.places = self.object.segment.places(self.fields)?;
            let fields = self.object.segment.field_count()?;
            self.wanted = Wanted::ALL.of_places(&self.places, fields);
            self.is_open = true;
        }
        let of_sensor = self.near.find(&self.object.segment, sensor, &self.wanted)?;
        let Some(of_sensor) = of_sensor else { return Ok(None) };
        let Some(blocks) = self.near.frame() else { return Ok(nothing) };
        let found = blocks_within(blocks, of_sensor, time, self.block_ns);
        if found.is_empty() {
            return Ok(nothing);
        }
        if hides_one(&self.deletes, sensor) {
            return Ok(None);
        }
        let first_ns = blocks.time(found.start, self.block_ns).first_ns;
        let last_ns = blocks.time(found.end - 1, self.block_ns).last_ns;
        Ok(Some((found, TimeRange::new(first_ns, last_ns))))
    }
}
