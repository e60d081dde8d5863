//! Rows for a question, sensor by sensor.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::new_null_array;
use tidefall_codec::ColumnBuilder;
use tidefall_ground::texts::{BATCH_TEXT_BYTES, rows_within};
use tidefall_types::{FieldId, FieldType, Result, TimeRange};

use super::fetch::Fetched;
use super::merge::SensorStream;
use super::near::NearMetrics;
use super::parts::{AHEAD_BYTES, Near, Part, Sources};
use super::prune;
use super::request::{BATCH_ROWS, BATCH_VALUES, LateCondition, ReadStats, RowBatch, ScanRequest};
use super::series::append_fields;
use crate::rows::SensorRows;

/// Sensors whose reads are announced at most before the first of them is read.
const PLANNED_MAX: usize = 1024;

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
    /// What comes next, with the bytes that were announced of each.
    planned: VecDeque<(u32, SensorStream, u64)>,
    planned_bytes: u64,
    /// Rows that did not fit into the last batch.
    left: Option<(u32, SensorRows)>,
    delivered: usize,
    with_times: bool,
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
            planned: VecDeque::new(),
            planned_bytes: 0,
            left: None,
            delivered: 0,
            with_times: true,
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

    /// Batches then come without times, which need not be laid out, nor decoded where all of a chunk is wanted.
    #[must_use]
    pub fn without_times(mut self) -> Self {
        self.with_times = false;
        self
    }

    fn next_batch(&mut self) -> Result<Option<RowBatch>> {
        let fields = Arc::clone(&self.fields);
        let mut pending = Pending::new(&fields, self.with_times);
        let limit = self.request.limit.unwrap_or(usize::MAX);
        let rows_max = (BATCH_VALUES / (fields.len() + 1)).clamp(1, BATCH_ROWS);
        let wanted = rows_max.min(limit - self.delivered);
        while pending.rows() < wanted && pending.text_bytes < BATCH_TEXT_BYTES {
            let rows_left = wanted - pending.rows();
            // A batch that is more than half full ends rather than cut a chunk in two.
            let Some((sensor, piece)) = self.take_piece(rows_left, rows_left < wanted / 2)? else {
                break;
            };
            match piece {
                Piece::Chunk(part) => self.append_chunk(sensor, &part, wanted, &mut pending)?,
                Piece::Rows(rows) => {
                    let next = 0..rows.len().min(rows_left);
                    let text_left = BATCH_TEXT_BYTES - pending.text_bytes;
                    let count = rows_within(&rows.fields, next, text_left);
                    if rows.len() > count {
                        self.left = Some((sensor, rows.slice(count, rows.len() - count)));
                    }
                    pending.push(sensor, rows.slice(0, count.min(rows.len())))?;
                }
            }
        }
        self.delivered += pending.rows();
        if pending.rows() == 0 {
            return Ok(None);
        }
        ReadStats::add(&self.stats.rows, pending.rows() as u64);
        Ok(Some(pending.finish()))
    }

    /// What comes next, all of one sensor. Chunks of more rows than `rows_left` are read as rows, or, if `is_enough`, left
    /// for later.
    fn take_piece(&mut self, rows_left: usize, is_enough: bool) -> Result<Option<(u32, Piece)>> {
        if let Some((sensor, rows)) = self.left.take() {
            return Ok(Some((sensor, Piece::Rows(rows))));
        }
        // Texts are cut by their bytes, which are known once they are read.
        let has_texts = self.fields.iter().any(|(_, ty)| *ty == FieldType::Text);
        loop {
            if let Some((sensor, stream)) = &mut self.current {
                let sensor = *sensor;
                if !self.late.is_empty() {
                    let (late, near) = (&self.late, &mut self.near_metrics);
                    stream.drop_front(|part| {
                        prune::is_ruled_out(sensor, late, part, near, &self.stats)
                    })?;
                }
                let mut is_too_long = false;
                let part = stream.take_part(|part| {
                    let rows = part.bare_chunk().map(|chunk| chunk.rows_within(&self.request.time));
                    is_too_long = rows.is_some_and(|rows| rows > rows_left);
                    rows.is_some_and(|rows| rows <= rows_left) && !has_texts
                });
                if let Some(part) = part {
                    return Ok(Some((sensor, Piece::Chunk(part))));
                }
                if is_too_long && is_enough {
                    return Ok(None);
                }
                if let Some(rows) = stream.next(&mut self.fetched)? {
                    return Ok(Some((sensor, Piece::Rows(rows))));
                }
            }
            self.current = self.next_stream()?;
            if self.current.is_none() {
                return Ok(None);
            }
        }
    }

    /// The rows of the next sensor. On stores on which a read takes long those of the sensors behind it are announced before it is read.
    fn next_stream(&mut self) -> Result<Option<(u32, SensorStream)>> {
        let is_slow = self.sources.are_slow();
        while self.planned.is_empty()
            || (is_slow && self.planned_bytes < AHEAD_BYTES && self.planned.len() < PLANNED_MAX)
        {
            let Some(&sensor) = self.request.sensors.get(self.next_sensor) else { break };
            self.next_sensor += 1;
            if self.request.time.is_empty() {
                continue;
            }
            let parts = self.sources.parts_near(sensor, &self.request.time, &mut self.near)?;
            let mut stream = SensorStream::of(parts, &self.fields, &self.stats);
            let (parts, near) = (stream.parts_mut(), &mut self.near_metrics);
            prune::drop_parts(sensor, &self.request.conditions, parts, near, &self.stats)?;
            let bytes = if is_slow { stream.announce()? } else { 0 };
            self.planned_bytes += bytes;
            self.planned.push_back((sensor, stream, bytes));
        }
        let Some((sensor, stream, bytes)) = self.planned.pop_front() else { return Ok(None) };
        self.planned_bytes -= bytes;
        Ok(Some((sensor, stream)))
    }

    /// Decodes the wanted rows of a chunk straight into a batch.
    fn append_chunk(
        &mut self,
        sensor: u32,
        part: &Part,
        wanted: usize,
        pending: &mut Pending<'_>,
    ) -> Result<()> {
        let Some(chunk) = part.bare_chunk() else { return Ok(()) };
        let further = || self.current.as_ref().map_or(0, |(_, stream)| stream.rows_up_to(wanted));
        let to = pending.columns(|| wanted.min(chunk.rows().saturating_add(further())))?;
        let time = &self.request.time;
        let rows = chunk.append_to(time, &self.fields, to, &mut self.fetched, &self.stats)?;
        pending.sensors.resize(pending.sensors.len() + rows, sensor);
        Ok(())
    }
}

impl Iterator for Scan {
    type Item = Result<RowBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

/// What a batch is made of.
#[derive(Debug)]
enum Piece {
    /// A chunk of which nothing is hidden.
    Chunk(Part),
    Rows(SensorRows),
}

/// Rows of several sensors that will be one batch.
#[derive(Debug)]
struct Pending<'a> {
    fields: &'a [(FieldId, FieldType)],
    text_bytes: usize,
    /// Rows that are delivered as they are, unless others come to them.
    only: Option<(u32, SensorRows)>,
    /// The sensors of the rows in the columns.
    sensors: Vec<u32>,
    times: Option<Vec<i64>>,
    columns: Vec<ColumnBuilder>,
}

impl<'a> Pending<'a> {
    fn new(fields: &'a [(FieldId, FieldType)], with_times: bool) -> Self {
        Self {
            fields,
            text_bytes: 0,
            only: None,
            sensors: Vec::new(),
            times: with_times.then(Vec::new),
            columns: Vec::new(),
        }
    }

    fn rows(&self) -> usize {
        self.sensors.len() + self.only.as_ref().map_or(0, |(_, rows)| rows.len())
    }

    /// The times and columns, to append to. The first to ask knows how many rows may come.
    fn columns(
        &mut self,
        rows: impl FnOnce() -> usize,
    ) -> Result<(Option<&mut Vec<i64>>, &mut [ColumnBuilder])> {
        if self.columns.is_empty() {
            let rows = rows();
            let column = |(_, ty): &(FieldId, FieldType)| ColumnBuilder::new(*ty, rows);
            self.columns = self.fields.iter().map(column).collect();
        }
        if let Some((sensor, rows)) = self.only.take() {
            self.append(sensor, &rows)?;
        }
        Ok((self.times.as_mut(), &mut self.columns))
    }

    fn push(&mut self, sensor: u32, rows: SensorRows) -> Result<()> {
        self.text_bytes += rows.text_bytes();
        if self.rows() == 0 {
            self.only = Some((sensor, rows));
            return Ok(());
        }
        let all = self.rows() + rows.len();
        self.columns(|| all)?;
        self.append(sensor, &rows)
    }

    fn append(&mut self, sensor: u32, rows: &SensorRows) -> Result<()> {
        append_fields(rows, &mut self.columns)?;
        if let Some(times) = &mut self.times {
            times.extend_from_slice(&rows.times);
        }
        self.sensors.resize(self.sensors.len() + rows.len(), sensor);
        Ok(())
    }

    fn finish(self) -> RowBatch {
        let Some((sensor, rows)) = self.only else {
            let fields = self.columns.into_iter().map(ColumnBuilder::finish).collect();
            let time = self.times.unwrap_or_default().into();
            return RowBatch { sensors: self.sensors, time, fields };
        };
        let sensors = vec![sensor; rows.len()];
        let columns = rows.fields.iter().zip(self.fields);
        let fields = columns.map(|(column, (_, ty))| match column {
            Some(column) => Arc::clone(column),
            None => new_null_array(&ty.arrow(), sensors.len()),
        });
        let fields = fields.collect();
        let time = self.times.map_or_else(|| Vec::new().into(), |_| rows.times);
        RowBatch { sensors, time, fields }
    }
}
