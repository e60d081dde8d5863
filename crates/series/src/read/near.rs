//! Frames of metrics kept at hand by those who ask for one sensor after the other: the next sensor mostly has its blocks in
//! the frame of the last one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use tidefall_ground::search::leading;
use tidefall_types::{FieldId, FieldType, ObjectId, Result};

use super::objects::LiveObject;
use crate::segment::Segment;
use crate::segment::metrics::Blocks;
use crate::segment::wanted::Wanted;

/// The frame of an object's metrics that was looked at last.
#[derive(Debug)]
pub(super) struct NearFrame {
    frame: Option<Arc<Blocks>>,
    /// The sensors whose blocks are all in the frame.
    known: RangeInclusive<u32>,
    /// The place in the frame of the sensor that was asked for last.
    at: usize,
}

impl Default for NearFrame {
    fn default() -> Self {
        Self { frame: None, known: RangeInclusive::new(1, 0), at: 0 }
    }
}

impl NearFrame {
    /// The frame that was found last.
    pub(super) fn frame(&self) -> Option<&Blocks> {
        self.frame.as_deref()
    }

    /// Where in the frame, which is then at hand, the blocks of a sensor are; none where they lie in several frames.
    /// The frame has what is wanted of each field, which is always the same.
    pub(super) fn find(
        &mut self,
        segment: &Segment,
        sensor: u32,
        wanted: &[Wanted],
    ) -> Result<Option<Range<usize>>> {
        if !self.known.contains(&sensor) && !self.load(segment, sensor, wanted)? {
            return Ok(None);
        }
        let Some(blocks) = &self.frame else { return Ok(Some(0..0)) };
        let is_ahead = blocks.sensor.get(self.at).is_some_and(|other| *other <= sensor);
        let start = if is_ahead { self.at } else { 0 };
        let start = start + leading(&blocks.sensor[start..], |other| other < sensor);
        let end = start + leading(&blocks.sensor[start..], |other| other == sensor);
        self.at = start;
        Ok(Some(start..end))
    }

    /// Takes the frame that has the blocks of a sensor; not where they lie in several.
    fn load(&mut self, segment: &Segment, sensor: u32, wanted: &[Wanted]) -> Result<bool> {
        let mut frames = segment.metrics(sensor, sensor, wanted)?;
        if frames.len() > 1 {
            *self = Self::default();
            return Ok(false);
        }
        (self.frame, self.known, self.at) = (frames.pop(), RangeInclusive::new(sensor, sensor), 0);
        // The first and the last sensor of a frame may have blocks in the frames beside it.
        let ends = self.frame.as_ref();
        let ends = ends
            .and_then(|blocks| blocks.sensor.first().copied().zip(blocks.sensor.last().copied()));
        if let Some((first, last)) = ends
            && first < sensor
            && sensor < last
        {
            self.known = RangeInclusive::new(first + 1, last - 1);
        }
        Ok(true)
    }
}

/// What is at hand of the metrics of some objects, by which conditions on fields rule blocks out.
#[derive(Debug, Default)]
pub(crate) struct NearMetrics {
    /// The fields of the conditions.
    fields: Vec<FieldId>,
    objects: HashMap<ObjectId, ObjectMetrics>,
}

/// What is at hand of the metrics of an object.
#[derive(Debug)]
pub(super) struct ObjectMetrics {
    pub(super) fields: Vec<(FieldId, FieldType)>,
    pub(super) block_ns: i64,
    /// What is wanted of each field.
    pub(super) wanted: Vec<Wanted>,
    pub(super) near: NearFrame,
}

impl NearMetrics {
    /// Lets conditions be about some fields, too.
    pub(super) fn want(&mut self, fields: impl Iterator<Item = FieldId>) {
        for field in fields {
            if !self.fields.contains(&field) {
                self.fields.push(field);
                self.objects.clear();
            }
        }
    }

    pub(super) fn of(&mut self, object: &LiveObject) -> Result<&mut ObjectMetrics> {
        Ok(match self.objects.entry(object.entry.id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => {
                let fields = object.segment.fields()?;
                let wanted = |(id, _): &(FieldId, FieldType)| match self.fields.contains(id) {
                    true => Wanted::RANGE,
                    false => Wanted::default(),
                };
                vacant.insert(ObjectMetrics {
                    wanted: fields.iter().map(wanted).collect(),
                    fields,
                    block_ns: object.segment.block_ns()?,
                    near: NearFrame::default(),
                })
            }
        })
    }
}
