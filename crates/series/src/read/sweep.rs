//! Blocks of many sensors at once: the metrics of an object are gone through frame by frame, and what all blocks of a
//! frame say is added column by column. It is what makes a sensor with few readings cost a few nanoseconds.

use std::borrow::Cow;
use std::ops::{Range, RangeInclusive};

use tidefall_ground::search::leading;
use tidefall_types::{Result, TimeRange};

use super::accumulate::{Accumulator, Chosen, ChosenEnd};
use super::bin::Bins;
use super::deletes::LiveTombstone;
use super::parts::Sources;
use super::prune::blocks_within;
use super::shares::Share;
use super::split::Asked;
use super::sums::TimedBlocks;
use super::totals::total_of;
use super::walk::hides_one;
use crate::segment::Segment;
use crate::segment::metrics::Blocks;
use crate::segment::wanted::Wanted;

/// What came of the blocks of an object.
#[derive(Debug, Default)]
pub(super) struct Swept {
    /// Blocks that were added.
    pub(super) blocks: u64,
    /// What they do not answer for.
    pub(super) left: Vec<Left>,
}

/// A sensor of which rows have to be looked at, and when these are.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) sensor: u32,
    pub(super) group: u32,
    pub(super) time: TimeRange,
}

/// So many blocks of one sensor are added by themselves: bins that come in order are found faster so.
const BLOCKS_TOGETHER: usize = 16;

/// Where a frame has more blocks for each sensor that is asked for, these are looked up.
const BLOCKS_PER_SENSOR_MAX: usize = 8;

/// Adds the blocks of an object for the sensors of a share, which ascend; nothing else may have rows of them at the times of
/// the object. `alone` has this object only.
pub(super) fn sweep(
    alone: &Sources,
    share: &Share<'_>,
    asked: Asked<'_>,
    wanted: Wanted,
    accumulator: &mut Accumulator,
) -> Result<Swept> {
    let mut swept = Swept::default();
    for object in alone.version.objects.iter() {
        let share = share.within(&object.sensors());
        let (Some(first), Some(last)) = (share.sensors.first(), share.sensors.last()) else {
            continue;
        };
        let deletes = alone.version.deletes.within(object.entry.time);
        let places = object.segment.places(asked.fields)?;
        let mut sweep = Sweep {
            asked,
            bins: asked.bin.map(Bins::new),
            block_ns: object.segment.block_ns()?,
            wanted: wanted.of_places(&places, object.segment.field_count()?),
            places,
            is_within: asked.time.covers(&object.entry.time),
            deletes: deletes.filter(|delete| delete.may_hide_in(&object.entry)).collect(),
            chosen: Vec::new(),
            ends: Vec::new(),
            accumulator: &mut *accumulator,
            swept: &mut swept,
        };
        for (position, known) in object.segment.metrics_frames(first, last)? {
            let share = share.within(&known);
            if share.sensors.len() > 0
                && !sweep.add_total(&object.segment, (position, &known), &share)?
            {
                sweep.frame(&object.segment, position, &share)?;
            }
        }
    }
    Ok(swept)
}

struct Sweep<'s> {
    asked: Asked<'s>,
    bins: Option<Bins>,
    block_ns: i64,
    /// Where among the fields of the object each of the wanted ones is.
    places: Vec<Option<usize>>,
    /// What is wanted of each field of the object.
    wanted: Vec<Wanted>,
    /// Whether all rows of the object are at times that are asked for.
    is_within: bool,
    /// The deletes that may hide some of its rows.
    deletes: Vec<&'s LiveTombstone>,
    /// Memory for what is added of a frame.
    chosen: Vec<Chosen>,
    ends: Vec<ChosenEnd>,
    accumulator: &'s mut Accumulator,
    swept: &'s mut Swept,
}

impl Sweep<'_> {
    /// Whether all rows of all sensors count, each in the line of its group.
    fn takes_all(&self) -> bool {
        self.is_within && self.bins.is_none() && self.deletes.is_empty()
    }

    /// Adds what a frame comes to, where all of it counts into one group and it answers for its rows; returns whether.
    fn add_total(
        &mut self,
        segment: &Segment,
        (position, known): (usize, &RangeInclusive<u32>),
        share: &Share<'_>,
    ) -> Result<bool> {
        let has_all = share.sensors.len() as u64 == u64::from(known.end() - known.start()) + 1;
        if !has_all || !self.takes_all() {
            return Ok(false);
        }
        let Some(group) = share.only_group() else { return Ok(false) };
        let total = segment.metrics_total_at(position, &self.places, total_of)?;
        let Some((all, places)) = total.all.as_ref().zip(total.places(&self.places)) else {
            return Ok(false);
        };
        let is_exact = places.iter().flatten().all(|place| all.fields[*place].are_exact());
        if is_exact {
            // Its times are counted from the beginning of time.
            let timed = TimedBlocks { blocks: all, block_ns: self.block_ns };
            self.accumulator.add_chosen(&timed, &[Chosen { block: 0, group }], &places);
            self.swept.blocks += total.blocks;
        }
        Ok(is_exact)
    }

    /// Adds the blocks of a frame for sensors that it reaches over.
    fn frame(&mut self, segment: &Segment, position: usize, share: &Share<'_>) -> Result<()> {
        let sensors = &*share.sensors.clone().into_list();
        let groups = match share.groups {
            [] => Cow::Owned(vec![0; sensors.len()]),
            groups => Cow::Borrowed(groups),
        };
        let groups = &*groups;
        if self.takes_all() {
            let blocks = segment.metrics_block_at(position, &self.wanted)?;
            if self.places.iter().flatten().all(|place| blocks.fields[*place].are_exact()) {
                if sensors.len() > blocks.len() / BLOCKS_PER_SENSOR_MAX {
                    self.choose_all(&blocks, sensors, groups);
                } else {
                    self.choose_each(&blocks, sensors, groups);
                }
                self.add_chosen(&blocks);
                return Ok(());
            }
        }
        let wanted = Wanted::ALL.of_places(&self.places, self.wanted.len());
        let blocks = segment.metrics_block_at(position, &wanted)?;
        self.choose_some(&blocks, sensors, groups);
        self.add_chosen(&blocks);
        Ok(())
    }

    /// Takes all blocks of the sensors, which are looked up one by one: few are found faster so.
    fn choose_each(&mut self, blocks: &Blocks, sensors: &[u32], groups: &[u32]) {
        let (ids, mut end) = (&blocks.sensor, 0);
        for (sensor, group) in sensors.iter().zip(groups) {
            let start = end + leading(&ids[end..], |other| other < *sensor);
            end = start + leading(&ids[start..], |other| other == *sensor);
            let chosen = (start..end).map(|block| Chosen { block: block as u32, group: *group });
            self.chosen.extend(chosen);
        }
    }

    /// Takes all blocks of the sensors.
    fn choose_all(&mut self, blocks: &Blocks, sensors: &[u32], groups: &[u32]) {
        let mut at = 0;
        for (block, of) in (0..).zip(&blocks.sensor) {
            while sensors.get(at).is_some_and(|sensor| sensor < of) {
                at += 1;
            }
            match sensors.get(at) {
                None => return,
                Some(sensor) if sensor == of => {
                    self.chosen.push(Chosen { block, group: groups[at] });
                }
                Some(_) => {}
            }
        }
    }

    /// Takes the blocks of the sensors for which they answer, and leaves the other sensors.
    fn choose_some(&mut self, blocks: &Blocks, sensors: &[u32], groups: &[u32]) {
        let (ids, mut start) = (&blocks.sensor, 0);
        for (&sensor, &group) in sensors.iter().zip(groups) {
            start += leading(&ids[start..], |other| other < sensor);
            if start == ids.len() {
                return;
            }
            let end = start + leading(&ids[start..], |other| other == sensor);
            let found = blocks_within(blocks, start..end, &self.asked.time, self.block_ns);
            start = end;
            if found.is_empty() {
                continue;
            }
            let is_hidden = hides_one(&self.deletes, sensor);
            let is_clear = !is_hidden && found.clone().all(|block| self.is_whole(blocks, block));
            if !is_clear && !is_hidden && found.clone().all(|block| self.is_its_ends(blocks, block))
            {
                self.choose_ends(blocks, found, group);
            } else if !is_clear {
                let first_ns = blocks.time(found.start, self.block_ns).first_ns;
                let last_ns = blocks.time(found.end - 1, self.block_ns).last_ns;
                let time = TimeRange::new(first_ns, last_ns).intersect(&self.asked.time);
                self.swept.left.push(Left { sensor, group, time });
            } else if found.len() < BLOCKS_TOGETHER {
                let chosen = found.map(|block| Chosen { block: block as u32, group });
                self.chosen.extend(chosen);
            } else {
                self.add_chosen(blocks);
                self.swept.blocks += found.len() as u64;
                self.accumulator.reserve(found.len());
                let timed = TimedBlocks { blocks, block_ns: self.block_ns };
                self.accumulator.add_blocks(group, &timed, found, &self.places);
            }
        }
    }

    /// Whether a block answers for all of its rows.
    fn is_whole(&mut self, blocks: &Blocks, block: usize) -> bool {
        let rows = blocks.time(block, self.block_ns);
        let is_exact = |place: &usize| blocks.fields[*place].is_exact(block);
        self.asked.time.covers(&rows)
            && self.places.iter().flatten().all(is_exact)
            && self.bins.as_mut().is_none_or(|bins| bins.are_together(rows.first_ns, rows.last_ns))
    }

    /// Whether all rows of a block are known, as there are no others than the first and the last.
    fn is_its_ends(&self, blocks: &Blocks, block: usize) -> bool {
        let rows = blocks.rows[block];
        let is_known = |place: &usize| {
            let values = blocks.fields[*place].count[block];
            values == 0 || values == rows
        };
        rows <= 2 && self.places.iter().flatten().all(is_known)
    }

    /// Takes those rows of such blocks that are at a time that is asked for.
    fn choose_ends(&mut self, blocks: &Blocks, range: Range<usize>, group: u32) {
        let timed = TimedBlocks { blocks, block_ns: self.block_ns };
        for block in range {
            for is_last in [false, true].into_iter().take(blocks.rows[block] as usize) {
                if self.asked.time.contains(timed.time_of(block, is_last)) {
                    self.ends.push(ChosenEnd { block: block as u32, group, is_last });
                }
            }
            self.swept.blocks += 1;
        }
    }

    fn add_chosen(&mut self, blocks: &Blocks) {
        let timed = TimedBlocks { blocks, block_ns: self.block_ns };
        self.accumulator.add_ends(&timed, &self.ends, &self.places);
        self.ends.clear();
        self.accumulator.add_chosen(&timed, &self.chosen, &self.places);
        self.swept.blocks += self.chosen.len() as u64;
        self.chosen.clear();
    }
}
