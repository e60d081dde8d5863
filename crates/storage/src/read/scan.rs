//! Rows for a question, sensor by sensor.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_buffer::ScalarBuffer;
use tidefall_types::{FieldId, FieldType, Result, TimeRange};

use super::fetch::Fetched;
use super::merge::SensorStream;
use super::near::NearMetrics;
use super::parts::{Near, Sources};
use super::prune;
use super::request::{BATCH_ROWS, BATCH_VALUES, LateCondition, ReadStats, RowBatch, ScanRequest};
use crate::rows::{SensorRows, arrow_error};
use crate::texts::{BATCH_TEXT_BYTES, rows_within};

/// Delivers the rows that a [`ScanRequest`] asks for, ordered by the place of their sensor in the
/// request and by time.
#[derive(Debug)]
pub struct Scan {
    sources: Arc<Sources>,
    request: ScanRequest,
    /// What became known of the wanted rows on the way.
    late: Vec<LateCondition>,
    fields: Arc<[(FieldId, FieldType)]>,
    stats: Arc<ReadStats>,
    fetched: Fetched,
    near: Near,
    near_metrics: NearMetrics,
    next_sensor: usize,
    current: Option<(u32, SensorStream)>,
    /// Rows that did not fit into the last batch.
    left: Option<(u32, SensorRows)>,
    delivered: usize,
}

impl Scan {
    pub(crate) fn new(
        sources: Arc<Sources>,
        request: ScanRequest,
        fields: Arc<[(FieldId, FieldType)]>,
        stats: Arc<ReadStats>,
    ) -> Self {
        let mut near_metrics = NearMetrics::default();
        near_metrics.want(request.conditions.iter().map(|condition| condition.field));
        Self {
            sources,
            request,
            late: Vec::new(),
            fields,
            stats,
            fetched: Fetched::default(),
            near: Near::default(),
            near_metrics,
            next_sensor: 0,
            current: None,
            left: None,
            delivered: 0,
        }
    }

    /// What the scan has touched so far.
    pub fn stats(&self) -> &Arc<ReadStats> {
        &self.stats
    }

    /// Rows outside of `time`, or that do not meet all of `conditions`, are not wanted any more: from here on they
    /// are left out where that spares work. Such rows may still come.
    pub fn narrow(&mut self, time: &TimeRange, conditions: Vec<LateCondition>) {
        self.request.time = self.request.time.intersect(time);
        self.near_metrics.want(conditions.iter().map(|late| late.condition.field));
        self.late = conditions;
    }

    fn next_batch(&mut self) -> Result<Option<RowBatch>> {
        let mut pending = Pending::default();
        let limit = self.request.limit.unwrap_or(usize::MAX);
        let rows_max = (BATCH_VALUES / (self.fields.len() + 1)).clamp(1, BATCH_ROWS);
        let wanted = rows_max.min(limit - self.delivered);
        while pending.rows < wanted && pending.text_bytes < BATCH_TEXT_BYTES {
            let Some((sensor, rows)) = self.take_rows()? else { break };
            let next = 0..rows.len().min(wanted - pending.rows);
            let room = rows_within(&rows.fields, next, BATCH_TEXT_BYTES - pending.text_bytes);
            if rows.len() > room {
                self.left = Some((sensor, rows.slice(room, rows.len() - room)));
                pending.push(sensor, rows.slice(0, room));
            } else {
                pending.push(sensor, rows);
            }
        }
        self.delivered += pending.rows;
        if pending.rows == 0 {
            return Ok(None);
        }
        ReadStats::add(&self.stats.rows, pending.rows as u64);
        pending.finish(&self.fields).map(Some)
    }

    /// The next rows, all of one sensor.
    fn take_rows(&mut self) -> Result<Option<(u32, SensorRows)>> {
        if let Some(left) = self.left.take() {
            return Ok(Some(left));
        }
        loop {
            if let Some((sensor, stream)) = &mut self.current {
                if !self.late.is_empty() {
                    let (sensor, late, near) = (*sensor, &self.late, &mut self.near_metrics);
                    stream.drop_front(|part| {
                        prune::is_ruled_out(sensor, late, part, near, &self.stats)
                    })?;
                }
                if let Some(rows) = stream.next(&mut self.fetched)? {
                    return Ok(Some((*sensor, rows)));
                }
            }
            let Some(&sensor) = self.request.sensors.get(self.next_sensor) else {
                return Ok(None);
            };
            self.next_sensor += 1;
            if self.request.time.is_empty() {
                self.current = None;
                continue;
            }
            let parts = self.sources.parts_near(sensor, &self.request.time, &mut self.near)?;
            let mut stream = SensorStream::of(parts, &self.fields, &self.stats);
            let (parts, near) = (stream.parts_mut(), &mut self.near_metrics);
            prune::drop_parts(sensor, &self.request.conditions, parts, near, &self.stats)?;
            self.current = Some((sensor, stream));
        }
    }
}

impl Iterator for Scan {
    type Item = Result<RowBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

/// Rows of several sensors that will be one batch.
#[derive(Debug, Default)]
struct Pending {
    rows: usize,
    text_bytes: usize,
    pieces: Vec<(u32, SensorRows)>,
}

impl Pending {
    fn push(&mut self, sensor: u32, rows: SensorRows) {
        self.rows += rows.len();
        self.text_bytes += rows.text_bytes();
        self.pieces.push((sensor, rows));
    }

    fn finish(self, fields: &[(FieldId, FieldType)]) -> Result<RowBatch> {
        let mut sensors = Vec::with_capacity(self.rows);
        for (sensor, piece) in &self.pieces {
            sensors.resize(sensors.len() + piece.len(), *sensor);
        }
        let time = match self.pieces.as_slice() {
            [(_, only)] => only.times.clone(),
            pieces => {
                let mut time = Vec::with_capacity(self.rows);
                for (_, piece) in pieces {
                    time.extend_from_slice(&piece.times);
                }
                ScalarBuffer::from(time)
            }
        };
        let columns = (0..fields.len())
            .map(|field| self.column(field, fields[field].1))
            .collect::<Result<_>>()?;
        Ok(RowBatch { sensors, time, fields: columns })
    }

    fn column(&self, field: usize, ty: FieldType) -> Result<ArrayRef> {
        let pieces: Vec<ArrayRef> = self
            .pieces
            .iter()
            .map(|(_, piece)| match &piece.fields[field] {
                Some(column) => Arc::clone(column),
                None => arrow_array::new_null_array(&ty.arrow(), piece.len()),
            })
            .collect();
        if let [only] = pieces.as_slice() {
            return Ok(Arc::clone(only));
        }
        let pieces: Vec<&dyn Array> = pieces.iter().map(|piece| &**piece).collect();
        arrow_select::concat::concat(&pieces).map_err(arrow_error)
    }
}
