//! One sensor's rows from all places, in the order of time, later writes over earlier ones.
//!
//! Parts are opened in the order of their first times. Of the open parts, the one that ends first
//! bounds what is complete; all rows up to there are laid together and delivered. Where parts do
//! not overlap (the rule), each is delivered as it was read.

use std::collections::VecDeque;
use std::sync::Arc;

use tidefall_types::{FieldId, FieldType, Result, Seq, TimeRange};

use super::fetch::Fetched;
use super::parts::{self, Part, Sources};
use super::request::ReadStats;
use crate::rows::{SensorRows, merge};

/// Delivers the rows of one sensor.
#[derive(Debug)]
pub struct SensorStream {
    fields: Arc<[(FieldId, FieldType)]>,
    stats: Arc<ReadStats>,
    parts: VecDeque<Part>,
    open: Vec<(Seq, SensorRows)>,
}

impl SensorStream {
    /// The rows of a sensor within a range, with these fields.
    ///
    /// # Errors
    /// `Corrupt` and `Io` from storage.
    pub fn new(
        sources: &Sources,
        sensor: u32,
        range: &TimeRange,
        fields: &Arc<[(FieldId, FieldType)]>,
        stats: &Arc<ReadStats>,
    ) -> Result<Self> {
        Ok(Self::of(sources.parts(sensor, range)?, fields, stats))
    }

    /// The rows of some parts of a sensor, which are ordered by their first times.
    pub(crate) fn of(
        parts: Vec<Part>,
        fields: &Arc<[(FieldId, FieldType)]>,
        stats: &Arc<ReadStats>,
    ) -> Self {
        let (fields, stats) = (Arc::clone(fields), Arc::clone(stats));
        Self { fields, stats, parts: parts.into(), open: Vec::new() }
    }

    /// Announces all reads, on stores on which each takes long. Returns their bytes.
    ///
    /// # Errors
    /// `Corrupt` and `Io` when an object cannot be opened.
    pub(crate) fn announce(&self) -> Result<u64> {
        parts::announce(self.parts.iter(), &self.fields)
    }

    /// The parts that are not read yet, ordered by their first times.
    pub(crate) fn parts_mut(&mut self) -> &mut VecDeque<Part> {
        &mut self.parts
    }

    /// The rows that are left at most.
    pub(crate) fn rows_max(&self) -> usize {
        self.rows_up_to(usize::MAX)
    }

    /// As [`Self::rows_max`], without counting on when there are `enough`.
    pub(crate) fn rows_up_to(&self, enough: usize) -> usize {
        let mut rows = self.open.iter().map(|(_, rows)| rows.len()).sum();
        for part in &self.parts {
            if rows >= enough {
                break;
            }
            rows += part.rows_max();
        }
        rows
    }

    /// The rows that are left within `time`, at most; that many where times are regular and nothing
    /// overlaps.
    pub(crate) fn rows_within(&self, time: &TimeRange) -> usize {
        let open = self.open.iter().map(|(_, rows)| rows.len());
        open.chain(self.parts.iter().map(|part| part.rows_within(time))).sum()
    }

    /// The next part, if it is one that nothing overlaps and that `is_wanted`. The caller reads it.
    pub(crate) fn take_part(&mut self, is_wanted: impl FnOnce(&Part) -> bool) -> Option<Part> {
        if !self.open.is_empty() {
            return None;
        }
        let next = self.parts.get(1).map_or(i64::MAX, |next| next.time.first_ns);
        self.parts.pop_front_if(|part| part.time.last_ns < next && is_wanted(part))
    }

    /// Passes over the next parts as long as nothing overlaps them and `is_unwanted` says so.
    pub(crate) fn drop_front(
        &mut self,
        mut is_unwanted: impl FnMut(&Part) -> Result<bool>,
    ) -> Result<()> {
        // Whatever was opened before and begins earlier has been delivered.
        while self.open.is_empty() {
            let next = self.parts.get(1).map_or(i64::MAX, |next| next.time.first_ns);
            match self.parts.front() {
                Some(part) if part.time.last_ns < next && is_unwanted(part)? => {
                    self.parts.pop_front();
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// The fields that it delivers.
    pub(crate) fn fields(&self) -> &Arc<[(FieldId, FieldType)]> {
        &self.fields
    }

    /// What it has touched so far.
    pub(crate) fn stats(&self) -> &Arc<ReadStats> {
        &self.stats
    }

    /// The next rows; none at the end. Never empty.
    ///
    /// # Errors
    /// `Io` and `Corrupt` from storage.
    pub fn next(&mut self, fetched: &mut Fetched) -> Result<Option<SensorRows>> {
        loop {
            if self.open.is_empty() && !self.open_next(fetched)? {
                return Ok(None);
            }
            // Opening a part may bring the bound down, which may spare opening the next.
            while let (Some(bound), Some(next)) = (self.bound(), self.parts.front()) {
                if next.time.first_ns > bound {
                    break;
                }
                self.open_next(fetched)?;
            }
            let Some(bound) = self.bound() else { continue };
            let rows = self.take_until(bound)?;
            if !rows.is_empty() {
                return Ok(Some(rows));
            }
        }
    }

    /// The last time up to which the open parts are complete.
    fn bound(&self) -> Option<i64> {
        self.open.iter().filter_map(|(_, rows)| rows.times.last().copied()).min()
    }

    fn open_next(&mut self, fetched: &mut Fetched) -> Result<bool> {
        let Some(part) = self.parts.pop_front() else { return Ok(false) };
        let rows = part.read(&self.fields, fetched, &self.stats)?;
        if !rows.is_empty() {
            let at = self.open.partition_point(|(seq, _)| *seq <= part.seq);
            self.open.insert(at, (part.seq, rows));
        }
        Ok(true)
    }

    fn take_until(&mut self, bound: i64) -> Result<SensorRows> {
        let mut ready = Vec::with_capacity(self.open.len());
        self.open.retain_mut(|(_, rows)| {
            let count = rows.times.partition_point(|&time| time <= bound);
            if count > 0 {
                ready.push(rows.slice(0, count));
                *rows = rows.slice(count, rows.len() - count);
            }
            !rows.is_empty()
        });
        merge(&ready)
    }
}
