//! Puts metrics of blocks and of rows together, by group and bin.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use tidefall_types::{FieldId, FieldType, Result, TimeRange};

use super::bin::Bins;
use super::request::{AggregateRequest, AggregateResult};
use super::sums::{Dealt, DealtBlock, DealtEnd, FieldSums, TimedBlocks};
use crate::rows::SensorRows;
use crate::segment::metrics::Blocks;
use crate::segment::numbers::reorder;

/// Metrics by group and bin while they grow: columns, with one entry for each group and bin, a *line*.
#[derive(Debug)]
pub(crate) struct Accumulator {
    fields: Arc<[(FieldId, FieldType)]>,
    group_count: u32,
    bins: Option<Bins>,
    lines: Lines,
    /// The line used last: blocks and rows come in the order of time, so that the next is this one or the one
    /// behind it.
    last: usize,
    groups: Vec<u32>,
    bin_start_ns: Vec<i64>,
    rows: Vec<u64>,
    first_ns: Vec<i64>,
    last_ns: Vec<i64>,
    sums: Vec<FieldSums>,
    /// Whether the ends of time are wanted.
    ends: bool,
    /// Memory for the bins of a batch of rows.
    dealt: Vec<Dealt>,
    /// Memory for the lines of the blocks of a frame.
    dealt_blocks: Vec<DealtBlock>,
}

/// A block of metrics that answers for its rows, and the group that these are in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chosen {
    pub(super) block: u32,
    pub(super) group: u32,
}

/// Where the line of a key is.
#[derive(Debug)]
enum Lines {
    /// Keys have only grown so far, which they do where each sensor is a group of its own.
    Growing,
    /// By group, where time is not cut into bins; [`NO_LINE`] for groups without a line.
    ByGroup(Vec<u32>),
    ByKey(HashMap<(u32, i64), usize>),
}

const NO_LINE: u32 = u32::MAX;

/// The first or the last row of a block of metrics that has a value for each field or for none, and the group of the row.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChosenEnd {
    pub(super) block: u32,
    pub(super) group: u32,
    pub(super) is_last: bool,
}

impl Accumulator {
    pub(crate) fn new(request: &AggregateRequest, fields: &Arc<[(FieldId, FieldType)]>) -> Self {
        let wanted = request.wanted();
        Self {
            fields: Arc::clone(fields),
            group_count: request.group_count,
            bins: request.bin.map(Bins::new),
            lines: Lines::Growing,
            last: 0,
            groups: Vec::new(),
            bin_start_ns: Vec::new(),
            rows: Vec::new(),
            first_ns: Vec::new(),
            last_ns: Vec::new(),
            sums: fields.iter().map(|(_, ty)| FieldSums::new(*ty, wanted)).collect(),
            ends: request.ends,
            dealt: Vec::new(),
            dealt_blocks: Vec::new(),
        }
    }

    /// Makes room for so many blocks, if each may begin a line.
    pub(crate) fn reserve(&mut self, blocks: usize) {
        if self.bins.is_none() || !self.is_growing() {
            return;
        }
        self.groups.reserve(blocks);
        self.bin_start_ns.reserve(blocks);
        self.rows.reserve(blocks);
        self.first_ns.reserve(blocks);
        self.last_ns.reserve(blocks);
        self.sums.iter_mut().for_each(|sums| sums.reserve(blocks));
    }

    fn is_growing(&self) -> bool {
        matches!(self.lines, Lines::Growing)
    }

    /// Adds blocks of one sensor, each of which lies in one bin. `places` says where among the fields of `blocks`
    /// each of the wanted ones is.
    pub(crate) fn add_blocks(
        &mut self,
        group: u32,
        blocks: &TimedBlocks<'_>,
        mut range: Range<usize>,
        places: &[Option<usize>],
    ) {
        while !range.is_empty() {
            let new = self.append_keys(group, blocks, range.clone());
            if new.is_empty() {
                self.add_block(group, blocks, range.start, places);
                range.start += 1;
            } else {
                self.append_blocks(blocks, new.clone(), places);
                range.start = new.end;
            }
        }
    }

    /// Adds blocks of many sensors, each of which lies in one bin, column by column.
    pub(super) fn add_chosen(
        &mut self,
        blocks: &TimedBlocks<'_>,
        chosen: &[Chosen],
        places: &[Option<usize>],
    ) {
        let mut dealt = std::mem::take(&mut self.dealt_blocks);
        dealt.clear();
        self.deal_blocks(blocks, chosen, &mut dealt);
        self.grow();
        for DealtBlock { line, block } in &dealt {
            self.rows[*line as usize] += blocks.blocks.rows[*block as usize] as u64;
        }
        if self.ends {
            for DealtBlock { line, block } in &dealt {
                let (line, time) = (*line as usize, blocks.time(*block as usize));
                self.first_ns[line] = self.first_ns[line].min(time.first_ns);
                self.last_ns[line] = self.last_ns[line].max(time.last_ns);
            }
        }
        for (sums, place) in self.sums.iter_mut().zip(places) {
            if let Some(place) = place {
                sums.add_dealt(&dealt, blocks, &blocks.blocks.fields[*place]);
            }
        }
        self.dealt_blocks = dealt;
    }

    /// Adds rows that are the ends of blocks.
    pub(super) fn add_ends(
        &mut self,
        blocks: &TimedBlocks<'_>,
        ends: &[ChosenEnd],
        places: &[Option<usize>],
    ) {
        let deal = |end: &ChosenEnd| {
            let time_ns = blocks.time_of(end.block as usize, end.is_last);
            let line = self.line_at(end.group, time_ns);
            DealtEnd { line, block: end.block as usize, is_last: end.is_last, time_ns }
        };
        let dealt: Vec<DealtEnd> = ends.iter().map(deal).collect();
        self.grow();
        for DealtEnd { line, time_ns, .. } in &dealt {
            self.add_to(*line, 1, (*time_ns, *time_ns));
        }
        for (sums, place) in self.sums.iter_mut().zip(places) {
            if let Some(place) = place {
                sums.add_ends(&dealt, &blocks.blocks.fields[*place]);
            }
        }
    }

    /// Finds the line of each of some blocks.
    fn deal_blocks(
        &mut self,
        blocks: &TimedBlocks<'_>,
        chosen: &[Chosen],
        dealt: &mut Vec<DealtBlock>,
    ) {
        if let (None, Lines::ByGroup(lines)) = (self.bins, &self.lines) {
            let known = chosen.iter().map(|Chosen { block, group }| DealtBlock {
                line: lines[*group as usize],
                block: *block,
            });
            dealt.extend(known.take_while(|dealt| dealt.line != NO_LINE));
        }
        let known = dealt.len();
        dealt.extend(chosen[known..].iter().map(|Chosen { block, group }| {
            let time_ns = blocks.time_of(*block as usize, false);
            DealtBlock { line: self.line_at(*group, time_ns) as u32, block: *block }
        }));
    }

    /// Begins lines for the first of some blocks, as many as each begin a bin behind all that were before.
    fn append_keys(
        &mut self,
        group: u32,
        blocks: &TimedBlocks<'_>,
        range: Range<usize>,
    ) -> Range<usize> {
        if !self.is_growing() {
            return range.start..range.start;
        }
        let mut last = self.last_key();
        for block in range.clone() {
            let key = (group, self.bin_of(blocks.time(block).first_ns));
            if last.is_some_and(|last| last >= key) {
                return range.start..block;
            }
            self.groups.push(group);
            self.bin_start_ns.push(key.1);
            last = Some(key);
        }
        range
    }

    fn last_key(&self) -> Option<(u32, i64)> {
        self.groups.last().copied().zip(self.bin_start_ns.last().copied())
    }

    /// Adds blocks whose lines [`Self::append_keys`] has just begun.
    fn append_blocks(
        &mut self,
        blocks: &TimedBlocks<'_>,
        range: Range<usize>,
        places: &[Option<usize>],
    ) {
        self.rows.extend(range.clone().map(|block| blocks.blocks.rows[block] as u64));
        self.first_ns.extend(range.clone().map(|block| blocks.time(block).first_ns));
        self.last_ns.extend(range.clone().map(|block| blocks.time(block).last_ns));
        for (sums, place) in self.sums.iter_mut().zip(places) {
            match place {
                Some(place) => sums.append(blocks, &blocks.blocks.fields[*place], range.clone()),
                None => sums.resize(self.rows.len()),
            }
        }
    }

    fn add_block(
        &mut self,
        group: u32,
        blocks: &TimedBlocks<'_>,
        block: usize,
        places: &[Option<usize>],
    ) {
        let time = blocks.time(block);
        let bin_start_ns = self.bin_of(time.first_ns);
        let line = self.line(group, bin_start_ns);
        self.grow();
        self.add_to(line, blocks.blocks.rows[block] as u64, (time.first_ns, time.last_ns));
        for (sums, place) in self.sums.iter_mut().zip(places) {
            if let Some(place) = place {
                sums.add(line, blocks, &blocks.blocks.fields[*place], block);
            }
        }
    }

    /// Counts rows, of which the first and the last time are given.
    fn add_to(&mut self, line: usize, rows: u64, (first_ns, last_ns): (i64, i64)) {
        self.rows[line] += rows;
        self.first_ns[line] = self.first_ns[line].min(first_ns);
        self.last_ns[line] = self.last_ns[line].max(last_ns);
    }

    fn bin_of(&mut self, time_ns: i64) -> i64 {
        self.bins.as_mut().map_or(i64::MIN, |bins| bins.start_of(time_ns))
    }

    /// Adds some rows of a batch of one sensor, ordered by time. They are dealt to their bins once for all fields.
    pub(crate) fn add_rows(&mut self, group: u32, rows: &SensorRows, wanted: Range<usize>) {
        let mut dealt = std::mem::take(&mut self.dealt);
        self.deal(group, &rows.times, wanted, &mut dealt);
        self.grow();
        for Dealt { line, rows: part } in &dealt {
            let times = (rows.times[part.start], rows.times[part.end - 1]);
            self.add_to(*line, part.len() as u64, times);
        }
        for (sums, values) in self.sums.iter_mut().zip(&rows.fields) {
            if let Some(values) = values {
                sums.add_rows(&rows.times, values, &dealt);
            }
        }
        self.dealt = dealt;
    }

    /// Finds the line of each of some rows: rows of one bin lie side by side.
    fn deal(&mut self, group: u32, times: &[i64], wanted: Range<usize>, dealt: &mut Vec<Dealt>) {
        dealt.clear();
        let mut start = wanted.start;
        while start < wanted.end {
            let (bin_start_ns, rows) = match &mut self.bins {
                None => (i64::MIN, wanted.end - start),
                Some(bins) => bins.leading(&times[start..wanted.end]),
            };
            let line = self.line(group, bin_start_ns);
            dealt.push(Dealt { line, rows: start..start + rows });
            start += rows;
        }
    }

    /// Adds what another accumulator has for the same question.
    pub(crate) fn absorb(&mut self, other: Self) {
        let keys = other.groups.iter().zip(&other.bin_start_ns);
        let lines: Vec<usize> =
            keys.map(|(group, start_ns)| self.line(*group, *start_ns)).collect();
        self.grow();
        for (entry, line) in lines.iter().enumerate() {
            self.add_to(*line, other.rows[entry], (other.first_ns[entry], other.last_ns[entry]));
        }
        for (sums, others) in self.sums.iter_mut().zip(&other.sums) {
            sums.absorb(&lines, others);
        }
    }

    /// The line of a group at some time.
    fn line_at(&mut self, group: u32, time_ns: i64) -> usize {
        let bin_start_ns = self.bin_of(time_ns);
        self.line(group, bin_start_ns)
    }

    /// The line of a key, which is begun if it is new; its columns come with [`Self::grow`].
    fn line(&mut self, group: u32, bin_start_ns: i64) -> usize {
        let is_it = |line: &usize| {
            self.bin_start_ns.get(*line) == Some(&bin_start_ns) && self.groups[*line] == group
        };
        let near = (self.last..self.last + 2).find(is_it);
        let line = near.unwrap_or_else(|| self.find_line((group, bin_start_ns)));
        self.last = line;
        line
    }

    fn find_line(&mut self, key: (u32, i64)) -> usize {
        let (next, last) = (self.groups.len(), self.last_key());
        if self.is_growing() && last.is_some_and(|last| last > key) {
            self.lines = self.all_lines();
        }
        let line = match &mut self.lines {
            Lines::Growing if last == Some(key) => next - 1,
            Lines::Growing => next,
            Lines::ByGroup(lines) => {
                let line = &mut lines[key.0 as usize];
                *line = if *line == NO_LINE { next as u32 } else { *line };
                *line as usize
            }
            Lines::ByKey(lines) => *lines.entry(key).or_insert(next),
        };
        if line == next {
            self.groups.push(key.0);
            self.bin_start_ns.push(key.1);
        }
        line
    }

    /// Where all lines are that there are.
    fn all_lines(&self) -> Lines {
        if self.bins.is_none() {
            let mut lines = vec![NO_LINE; self.group_count as usize];
            self.groups.iter().zip(0..).for_each(|(group, line)| lines[*group as usize] = line);
            return Lines::ByGroup(lines);
        }
        let keys = self.groups.iter().copied().zip(self.bin_start_ns.iter().copied());
        Lines::ByKey(keys.zip(0..).collect())
    }

    /// Lets the columns have an entry for each line.
    fn grow(&mut self) {
        let lines = self.groups.len();
        if self.rows.len() == lines {
            return;
        }
        self.rows.resize(lines, 0);
        self.first_ns.resize(lines, i64::MAX);
        self.last_ns.resize(lines, i64::MIN);
        self.sums.iter_mut().for_each(|sums| sums.resize(lines));
    }

    pub(crate) fn finish(mut self) -> Result<AggregateResult> {
        if !self.is_growing() {
            self.sort();
        }
        let fields = self.sums.into_iter().zip(self.fields.iter());
        Ok(AggregateResult {
            group: self.groups,
            bin_start_ns: self.bin_start_ns,
            rows: self.rows,
            first_time_ns: self.first_ns,
            last_time_ns: self.last_ns,
            fields: fields.map(|(sums, (_, ty))| sums.finish(*ty)).collect::<Result<_>>()?,
        })
    }

    /// The only line as a block, whose times are counted from 1970; nothing where there is no line, or the times do not
    /// fit. `is_exact` tells whether the sums of a field are right.
    pub(super) fn into_block(self, is_exact: impl Fn(usize) -> bool) -> Option<Blocks> {
        let time = TimeRange::new(*self.first_ns.first()?, *self.last_ns.first()?);
        let fields = self.sums.into_iter().zip(0..);
        Some(Blocks {
            // Of whichever sensor.
            sensor: vec![0],
            block: vec![0].into(),
            rows: vec![i64::try_from(self.rows[0]).ok()?].into(),
            first_offset_ns: vec![time.first_ns].into(),
            last_offset_ns: vec![time.last_ns].into(),
            fields: fields
                .map(|(sums, place)| sums.into_block(&time, is_exact(place)))
                .collect::<Option<_>>()?,
        })
    }

    /// Puts the lines into the order of their keys, in which they often are already.
    fn sort(&mut self) {
        let key = |line: &usize| (self.groups[*line], self.bin_start_ns[*line]);
        let mut order: Vec<usize> = (0..self.groups.len()).collect();
        if order.is_sorted_by_key(key) {
            return;
        }
        if let Lines::ByGroup(lines) = &self.lines {
            let lines = lines.iter().filter(|line| **line != NO_LINE);
            order = lines.map(|line| *line as usize).collect();
        } else {
            order.sort_unstable_by_key(key);
        }
        self.groups = reorder(&self.groups, &order);
        self.bin_start_ns = reorder(&self.bin_start_ns, &order);
        self.rows = reorder(&self.rows, &order);
        self.first_ns = reorder(&self.first_ns, &order);
        self.last_ns = reorder(&self.last_ns, &order);
        self.sums.iter_mut().for_each(|sums| sums.reorder(&order));
    }
}
