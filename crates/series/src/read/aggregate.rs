//! Metrics for a question: from block metrics where a block lies whole in a bin and nothing else
//! speaks for its time, from rows at the ragged edges.
//!
//! Each page is decoded once, however many bins or edges lie in it: all stretches of a sensor's rows that are wanted
//! come from one stream, whose batches are dealt to their bins.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use tidefall_ground::parallel::spread;
use tidefall_types::{FieldId, FieldType, Result, TimeRange};

use super::accumulate::{Accumulator, Chosen};
use super::estimate::{rows_about, share_of_sensors};
use super::fetch::Fetched;
use super::merge::SensorStream;
use super::parts::{Near, Part, Place, Sources, Wanted};
use super::request::{AggregateRequest, AggregateResult, ReadStats};
use super::shares::{Share, shares};
use super::split::{Asked, overlaps_any, split};
use super::sums::TimedBlocks;
use super::sweep::{Left, sweep};
use super::walk::{Clear, ClearBlocks, Walk};
use super::whole_runs::{TOTAL_NS, of_whole_runs};
use crate::segment::IndexBlock;

/// What an aggregate will read, found from the index alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AggregatePlan {
    /// Blocks that are answered from their metrics.
    pub blocks_from_metrics: u64,
    /// Pages that will be decoded.
    pub pages: u64,
    /// Rows that will be taken from the key-value model in memory.
    pub rows_from_memory: u64,
}

/// Answers a request on up to `threads` threads.
pub(crate) fn aggregate(
    sources: &Sources,
    request: &AggregateRequest,
    fields: &Arc<[(FieldId, FieldType)]>,
    threads: usize,
    stats: &Arc<ReadStats>,
) -> Result<AggregateResult> {
    sources.open(&request.sensors.as_slice(), &request.time, Wanted::Metrics(fields))?;
    let request = &*in_order(request);
    if let Some(settling) = &sources.settling
        && is_worth_settling(sources, request)
    {
        sources.settle_in_turn(&request.time, settling, threads);
    }
    let (totals, sources) = &of_whole_runs(sources, request, fields);
    let are_distinct = sources.are_distinct(&request.time);
    let shares = shares(sources, request, fields, threads)?;
    let gather = |share, _: &mut ()| {
        let mut gathering = Gathering::new(request, fields, are_distinct, stats);
        gathering.gather(sources, &share)?;
        Ok(gathering.finish())
    };
    let mut gathered = spread(shares.len(), shares, gather)?.into_iter();
    let mut all = gathered.next().unwrap_or_else(|| Accumulator::new(request, fields));
    gathered.for_each(|share| all.absorb(share));
    let places: Vec<Option<usize>> = (0..fields.len()).map(Some).collect();
    for (rows, blocks) in totals {
        let chosen = Chosen { block: 0, group: request.groups.first().copied().unwrap_or(0) };
        all.add_chosen(&TimedBlocks { blocks, block_ns: TOTAL_NS }, &[chosen], &places);
        ReadStats::add(&stats.rows_from_memory, *rows);
    }
    all.finish()
}

/// Whether what can be answered from metrics once it is known that late rows replace nothing is more than looking these up.
fn is_worth_settling(sources: &Sources, request: &AggregateRequest) -> bool {
    if request.sensors.len() < SENSORS_TO_SWEEP {
        return false;
    }
    let runs = sources.runs.iter().filter(|run| run.range.overlaps(&request.time));
    let late: usize = runs.map(|run| run.unsettled_rows(&request.time)).sum();
    let share = share_of_sensors(sources, request.sensors.len());
    late > 0 && late as f64 <= rows_about(sources, &request.time) * share
}

/// What one thread puts together.
struct Gathering<'a> {
    request: &'a AggregateRequest,
    fields: &'a Arc<[(FieldId, FieldType)]>,
    /// Whether no two places have the same reading: each answers for its own rows.
    are_distinct: bool,
    stats: &'a Arc<ReadStats>,
    accumulator: Accumulator,
    fetched: Fetched,
    blocks_from_metrics: u64,
    rows_from_memory: u64,
}

impl<'a> Gathering<'a> {
    fn new(
        request: &'a AggregateRequest,
        fields: &'a Arc<[(FieldId, FieldType)]>,
        are_distinct: bool,
        stats: &'a Arc<ReadStats>,
    ) -> Self {
        Self {
            request,
            fields,
            are_distinct,
            stats,
            accumulator: Accumulator::new(request, fields),
            fetched: Fetched::default(),
            blocks_from_metrics: 0,
            rows_from_memory: 0,
        }
    }

    fn finish(self) -> Accumulator {
        ReadStats::add(&self.stats.blocks_from_metrics, self.blocks_from_metrics);
        ReadStats::add(&self.stats.rows_from_memory, self.rows_from_memory);
        ReadStats::add(&self.stats.rows, self.rows_from_memory);
        self.accumulator
    }

    /// Puts all together that a share asks for.
    fn gather(&mut self, sources: &Sources, share: &Share<'_>) -> Result<()> {
        let asked = Asked { time: share.time, bin: self.request.bin, fields: self.fields };
        if share.sensors.len() < SENSORS_TO_SWEEP || !share.sensors.is_sorted() {
            return self.walk(sources, share, asked);
        }
        let (alone, others) = sources.apart(&share.time);
        // Bins are found fastest where they come in order, sensor by sensor.
        if asked.bin.is_some() && (alone.len() > 1 || !others.is_empty()) {
            return self.walk(sources, share, asked);
        }
        for object in &alone {
            let swept = sweep(object, share, asked, self.request.wanted(), &mut self.accumulator)?;
            self.blocks_from_metrics += swept.blocks;
            let mut near = Near::default();
            for Left { sensor, group, time } in swept.left {
                let asked = Asked { time, ..asked };
                self.look_at_parts(object, sensor, group, asked, &mut near)?;
            }
        }
        if others.is_empty() { Ok(()) } else { self.walk(&others, share, asked) }
    }

    /// Goes from sensor to sensor.
    fn walk(&mut self, sources: &Sources, share: &Share<'_>, asked: Asked<'_>) -> Result<()> {
        let mut walk = Walk::new(sources, &self.request.fields, asked, self.are_distinct);
        let mut near = Near::default();
        for (sensor, group) in share.grouped() {
            if walk.find(sensor)? {
                self.add_clear(group, &walk);
            } else {
                self.look_at_parts(sources, sensor, group, asked, &mut near)?;
            }
        }
        Ok(())
    }

    /// Adds what a walk has found of a sensor.
    fn add_clear(&mut self, group: u32, walk: &Walk<'_>) {
        let blocks = walk.blocks();
        if blocks > 1 {
            self.accumulator.reserve(blocks);
        }
        self.blocks_from_metrics += blocks as u64;
        for clear in walk.found() {
            match clear {
                Clear::Blocks(ClearBlocks { blocks, range, places, block_ns }) => {
                    let blocks = TimedBlocks { blocks, block_ns };
                    self.accumulator.add_blocks(group, &blocks, range, places);
                }
                Clear::Rows(rows, range) => {
                    self.rows_from_memory += range.len() as u64;
                    self.accumulator.add_rows(group, rows, range);
                }
            }
        }
    }

    /// Adds what the parts of a sensor have.
    fn look_at_parts(
        &mut self,
        sources: &Sources,
        sensor: u32,
        group: u32,
        asked: Asked<'_>,
        near: &mut Near,
    ) -> Result<()> {
        let parts = sources.parts_near(sensor, &asked.time, near)?;
        if !self.are_distinct {
            return self.add_parts(parts, sensor, group, asked);
        }
        by_place(parts).try_for_each(|parts| self.add_parts(parts, sensor, group, asked))
    }

    /// Adds what some parts of a sensor have, of which no others share a reading.
    fn add_parts(
        &mut self,
        parts: Vec<Part>,
        sensor: u32,
        group: u32,
        asked: Asked<'_>,
    ) -> Result<()> {
        if parts.is_empty() {
            return Ok(());
        }
        let split = split(sensor, &parts, asked)?;
        self.accumulator.reserve(split.blocks.iter().map(|(.., range)| range.len()).sum());
        for (object, blocks, range) in &split.blocks {
            self.blocks_from_metrics += range.len() as u64;
            let places = object.segment.places(self.fields)?;
            let blocks = TimedBlocks { blocks, block_ns: object.segment.block_ns()? };
            self.accumulator.add_blocks(group, &blocks, range.clone(), &places);
        }
        // One stream for all stretches, as several of them may lie in one page.
        let parts = parts_within(parts, &split.rows);
        let mut stream = SensorStream::of(parts, self.fields, self.stats);
        while let Some(rows) = stream.next(&mut self.fetched)? {
            for wanted in rows_within(&rows.times, &split.rows) {
                ReadStats::add(&self.stats.rows, wanted.len() as u64);
                self.accumulator.add_rows(group, &rows, wanted);
            }
        }
        Ok(())
    }
}

/// The parts of each place.
fn by_place(parts: Vec<Part>) -> impl Iterator<Item = Vec<Part>> {
    let (mut places, mut known): (Vec<Vec<Part>>, _) = (Vec::new(), HashMap::new());
    for part in parts {
        let at = *known.entry(part.address()).or_insert(places.len());
        if at == places.len() {
            places.push(Vec::new());
        }
        places[at].push(part);
    }
    places.into_iter()
}

/// From so many sensors on, those of a question are looked at in their own order instead of that of their groups, as they
/// lie in objects.
const SENSORS_TO_ORDER: usize = if cfg!(debug_assertions) { 6 } else { 4096 };
/// From so many sensors on, objects are swept.
const SENSORS_TO_SWEEP: usize = if cfg!(debug_assertions) { 3 } else { 256 };

/// A question with its sensors in their order, if they are many.
fn in_order(request: &AggregateRequest) -> Cow<'_, AggregateRequest> {
    if request.sensors.len() < SENSORS_TO_ORDER || request.sensors.as_slice().is_sorted() {
        return Cow::Borrowed(request);
    }
    let fields = request.fields.clone();
    if request.groups.is_empty() {
        let mut sensors = request.sensors.to_list().into_owned();
        sensors.sort_unstable();
        let (sensors, groups) = (sensors.into(), Vec::new());
        return Cow::Owned(AggregateRequest { sensors, groups, fields, ..*request });
    }
    let sensors = request.sensors.iter().zip(request.groups.iter().copied());
    let mut sensors: Vec<(u32, u32)> = sensors.collect();
    // They come in order within each group, which this sort makes use of.
    sensors.sort();
    let (sensors, groups): (Vec<u32>, Vec<u32>) = sensors.into_iter().unzip();
    let sensors = sensors.into();
    Cow::Owned(AggregateRequest { sensors, groups, fields, ..*request })
}

/// The parts that have rows at some times, which are ordered, cut to these times.
fn parts_within(mut parts: Vec<Part>, times: &[TimeRange]) -> Vec<Part> {
    parts.retain_mut(|part| {
        let first = times.partition_point(|time| time.last_ns < part.time.first_ns);
        let behind = times.partition_point(|time| time.first_ns <= part.time.last_ns);
        if first >= behind {
            return false;
        }
        if let Place::Chunk(_) = part.place {
            let all = TimeRange::new(times[first].first_ns, times[behind - 1].last_ns);
            part.time = part.time.intersect(&all);
        }
        true
    });
    parts.sort_by_key(|part| (part.time.first_ns, part.seq));
    read_ahead_of(&mut parts);
    parts
}

/// Lets the chunks among some parts be read ahead as far as the next of their object are among them, too.
fn read_ahead_of(parts: &mut [Part]) {
    let mut next: Vec<(Arc<IndexBlock>, usize, usize)> = Vec::new();
    for part in parts.iter_mut().rev() {
        let Place::Chunk(chunk) = &mut part.place else { continue };
        let found = next.iter_mut().find(|(index, ..)| Arc::ptr_eq(index, &chunk.index));
        match found {
            Some((_, position, end)) => {
                chunk.end = if *position == chunk.position + 1 { *end } else { chunk.position + 1 };
                (*position, *end) = (chunk.position, chunk.end);
            }
            None => {
                chunk.end = chunk.position + 1;
                next.push((Arc::clone(&chunk.index), chunk.position, chunk.end));
            }
        }
    }
}

/// The rows of which the times are wanted, in stretches: as few as possible, since times between two of which
/// there are no rows do not part them.
fn rows_within(times: &[i64], wanted: &[TimeRange]) -> Vec<Range<usize>> {
    let (Some(first_ns), Some(last_ns)) = (times.first(), times.last()) else { return Vec::new() };
    let next = wanted.partition_point(|range| range.last_ns < *first_ns);
    let mut found: Vec<Range<usize>> = Vec::new();
    for range in wanted[next..].iter().take_while(|range| range.first_ns <= *last_ns) {
        let start = times.partition_point(|time| *time < range.first_ns);
        let end = times.partition_point(|time| *time <= range.last_ns);
        match found.last_mut() {
            Some(before) if before.end == start => before.end = end,
            _ if start < end => found.push(start..end),
            _ => {}
        }
    }
    found
}

/// What [`aggregate`] would do.
pub(crate) fn plan(
    sources: &Sources,
    request: &AggregateRequest,
    fields: &Arc<[(FieldId, FieldType)]>,
) -> Result<AggregatePlan> {
    let mut plan = AggregatePlan::default();
    let asked = Asked { time: request.time, bin: request.bin, fields };
    for sensor in request.sensors.iter() {
        let parts = sources.parts(sensor, &request.time)?;
        let split = split(sensor, &parts, asked)?;
        plan.blocks_from_metrics += split.blocks.iter().map(|b| b.2.len() as u64).sum::<u64>();
        let is_read = |part: &&Part| overlaps_any(&split.rows, &part.time);
        for part in parts.iter().filter(is_read) {
            match &part.place {
                Place::Run(_, place) => plan.rows_from_memory += place.len() as u64,
                Place::Chunk(placed) => {
                    let held = placed.object().segment.fields()?;
                    let chunk = placed.meta();
                    plan.pages += u64::from(!chunk.time_page().is_empty());
                    plan.pages += fields
                        .iter()
                        .filter_map(|(id, _)| held.iter().position(|(other, _)| other == id))
                        .filter(|place| !chunk.field_page(*place).is_empty())
                        .count() as u64;
                }
            }
        }
    }
    Ok(plan)
}

#[cfg(test)]
mod tests;
