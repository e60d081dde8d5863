//! One consistent view of a table.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::StringArray;
use roaring::RoaringBitmap;
use tidefall_codec::PageValue;
use tidefall_types::{
    Error, FieldId, FieldType, NO_TAG, Result, Seq, TableSchema, TagId, TimeRange,
};

use super::aggregate::{AggregatePlan, aggregate, plan};
use super::align::union_of_times;
use super::estimate::rows_about;
use super::extreme::{Extreme, extreme};
use super::frame::{Frame, Keep, read_frame};
use super::merge::SensorStream;
use super::parts::Sources;
use super::point::{self, SensorValues};
use super::request::{AggregateRequest, AggregateResult, ReadStats, ScanRequest, TimeOrder};
use super::scan::Scan;
use super::sensors::SensorSlice;
use super::series::{SensorSeries, read_series};
use super::stretches::stretches;
use crate::catalog::{SensorTag, SensorsView, TagFilter};

/// Fewer sensors are ordered by comparing texts; more by ranks, which look at all values of a tag.
const FEW_SENSORS: usize = 64;

/// A table at one moment: what is written, deleted or moved later does not change it.
#[derive(Debug, Clone)]
pub struct TableSnapshot {
    /// All that was written before this is in it.
    applied: Seq,
    sensors: Arc<SensorsView>,
    sources: Arc<Sources>,
}

impl TableSnapshot {
    /// One view of a table: its sensors, and where rows of theirs lie, in which all is that was written before `applied`.
    pub fn new(applied: Seq, sensors: Arc<SensorsView>, sources: Sources) -> Self {
        Self { applied, sensors, sources: Arc::new(sources) }
    }

    /// The place among the writes of the database before which all are in it, and perhaps some behind.
    pub fn applied(&self) -> Seq {
        self.applied
    }

    /// The schema.
    pub fn schema(&self) -> &Arc<TableSchema> {
        &self.sources.version.schema
    }

    /// The number of sensors; their ids are below it.
    pub fn sensor_count(&self) -> u32 {
        self.sensors.count
    }

    /// About how many rows `sensors` of its sensors have within `time`: cheap, and far off where sensors differ a lot.
    pub fn rows_about(&self, sensors: usize, time: &TimeRange) -> usize {
        let share = sensors as f64 / f64::from(self.sensors.count.max(1));
        (rows_about(&self.sources, time) * share).ceil() as usize
    }

    /// The sensors for which a condition on tags is true.
    ///
    /// # Errors
    /// `NotFound` for a tag that the table does not have, `Invalid` for a wrong pattern.
    pub fn resolve(&self, filter: &TagFilter) -> Result<RoaringBitmap> {
        self.sensors.resolve(self.schema(), filter)
    }

    /// A tag of the sensors.
    pub fn tag(&self, tag: TagId) -> SensorTag<'_> {
        SensorTag::new(self.sensors.tag(tag.index()))
    }

    /// The distinct values of a tag, and for each sensor the place of its value among them or
    /// [`NO_TAG`]; no places for a tag that no sensor has a value for. All is copied: [`TableSnapshot::tag`] serves those
    /// who look at some sensors.
    pub fn tag_keys(&self, tag: TagId) -> (StringArray, Vec<u32>) {
        match self.sensors.tag(tag.index()) {
            Some(tag) => (StringArray::from_iter_values(tag.values()), tag.keys().collect()),
            None => (StringArray::from(Vec::<&str>::new()), Vec::new()),
        }
    }

    /// Sensors ordered by their tag values, tag by tag in the order of the schema, those without
    /// a value last.
    pub fn sort_sensors(&self, sensors: &RoaringBitmap) -> Vec<u32> {
        let mut sorted: Vec<u32> = sensors.iter().collect();
        if sorted.len() < FEW_SENSORS {
            sorted.sort_by(|one, other| self.compare_tags(*one, *other));
            return sorted;
        }
        // From the last tag to the first with a stable sort; ranks are found once for each value.
        for tag in (0..self.schema().tags.len()).rev() {
            let Some(tag) = self.sensors.tag(tag) else { continue };
            let order = tag.order();
            let rank = |sensor: &u32| order.rank(tag.key_of(*sensor));
            if !sorted.is_sorted_by_key(rank) {
                sorted.sort_by_cached_key(rank);
            }
        }
        sorted
    }

    fn compare_tags(&self, one: u32, other: u32) -> Ordering {
        let tags = (0..self.schema().tags.len()).filter_map(|tag| self.sensors.tag(tag));
        let orders = tags.map(|tag| match [one, other].map(|sensor| tag.key_of(sensor)) {
            [one, other] if one == other => Ordering::Equal,
            [NO_TAG, _] => Ordering::Greater,
            [_, NO_TAG] => Ordering::Less,
            [one, other] => tag.value(one).cmp(&tag.value(other)),
        });
        orders.fold(Ordering::Equal, Ordering::then)
    }

    /// Rows.
    ///
    /// # Errors
    /// `Invalid` when the request names a sensor or field that does not exist.
    pub fn scan(&self, request: &ScanRequest) -> Result<Scan> {
        self.check_sensors(&request.sensors[..])?;
        let fields = self.typed(&request.fields)?;
        let stats = Arc::new(ReadStats::default());
        Ok(Scan::new(Arc::clone(&self.sources), request.clone(), fields, stats))
    }

    /// The rows of all sensors at all times, at most: as long as they are not laid together, some may be repeats.
    pub fn rows_max(&self) -> u64 {
        let objects = self.sources.version.objects.iter().map(|object| object.entry.rows);
        objects.chain(self.sources.runs.iter().map(|run| run.rows() as u64)).sum()
    }

    /// About how many bytes a row has in the texts of `fields`, where they are longest; 0 when none of them is a text. It
    /// tells how many rows may be held at once.
    pub fn text_bytes_per_row(&self, fields: &[FieldId]) -> u64 {
        let is_text = |id: &&FieldId| {
            let field = self.schema().fields.get(id.index());
            field.is_some_and(|field| field.ty == FieldType::Text)
        };
        let texts: Vec<FieldId> = fields.iter().filter(is_text).copied().collect();
        if texts.is_empty() { 0 } else { self.sources.text_bytes_per_row(&texts) }
    }

    /// Metrics. `stats` counts what it took.
    ///
    /// # Errors
    /// `Invalid` for a request that does not fit the table, `Corrupt` and `Io` from storage.
    pub fn aggregate(
        &self,
        request: &AggregateRequest,
        stats: &Arc<ReadStats>,
    ) -> Result<AggregateResult> {
        self.aggregate_on(1, request, stats)
    }

    /// As [`TableSnapshot::aggregate`], on up to `threads` threads.
    ///
    /// # Errors
    /// As [`TableSnapshot::aggregate`].
    pub fn aggregate_on(
        &self,
        threads: usize,
        request: &AggregateRequest,
        stats: &Arc<ReadStats>,
    ) -> Result<AggregateResult> {
        let fields = self.check_aggregate(request)?;
        aggregate(&self.sources, request, &fields, threads, stats)
    }

    /// A stretch of time that holds all readings, from the list of objects alone; nothing when there are none.
    pub fn time_bounds(&self) -> Option<TimeRange> {
        let runs = self.sources.runs.iter().map(|run| run.range);
        let all = runs.chain(self.sources.version.objects.iter().map(|object| object.entry.time));
        all.reduce(|one, other| one.union(&other))
    }

    /// What [`TableSnapshot::aggregate`] would read, from the index alone.
    ///
    /// # Errors
    /// As [`TableSnapshot::aggregate`].
    pub fn plan_aggregate(&self, request: &AggregateRequest) -> Result<AggregatePlan> {
        let fields = self.check_aggregate(request)?;
        plan(&self.sources, request, &fields)
    }

    /// All readings of one sensor within a stretch of time, as contiguous columns: the direct
    /// path for a data frame, without batches in between.
    ///
    /// # Errors
    /// As [`TableSnapshot::scan`], and `Corrupt` and `Io` from storage.
    pub fn read_sensor(
        &self,
        sensor: u32,
        time: &TimeRange,
        fields: &[FieldId],
    ) -> Result<SensorSeries> {
        self.read_sensor_counted(sensor, time, fields, &Arc::new(ReadStats::default()))
    }

    /// As [`TableSnapshot::read_sensor`]; what is read is counted in `stats`.
    ///
    /// # Errors
    /// As [`TableSnapshot::read_sensor`].
    pub fn read_sensor_counted(
        &self,
        sensor: u32,
        time: &TimeRange,
        fields: &[FieldId],
        stats: &Arc<ReadStats>,
    ) -> Result<SensorSeries> {
        self.check_sensors(&[sensor][..])?;
        let fields = self.typed(fields)?;
        let stream = SensorStream::new(&self.sources, sensor, time, &fields, stats)?;
        stream.announce()?;
        let series = read_series(stream, time)?;
        ReadStats::add(&stats.rows, series.time.len() as u64);
        Ok(series)
    }

    /// The time within `time` in which all readings of `sensors` lie, and the most that one of them has,
    /// from the index alone: neither is less than it is, both may be more. Nothing when there are none.
    ///
    /// # Errors
    /// As [`TableSnapshot::read_sensor`].
    pub fn extent(&self, sensors: &[u32], time: &TimeRange) -> Result<Option<(TimeRange, usize)>> {
        self.check_sensors(sensors)?;
        if time.is_empty() {
            return Ok(None);
        }
        let mut extent: Option<(TimeRange, usize)> = None;
        for sensor in sensors {
            let parts = self.sources.parts(*sensor, time)?;
            let rows = parts.iter().map(|part| part.rows_within(time)).sum();
            for part in &parts {
                let (all, most) = extent.get_or_insert((part.time, rows));
                all.first_ns = all.first_ns.min(part.time.first_ns);
                all.last_ns = all.last_ns.max(part.time.last_ns);
                *most = (*most).max(rows);
            }
        }
        Ok(extent)
    }

    /// The last nanosecond up to which a frame of `sensors` from the start of `time` on has at most `rows_max` rows, at least 1;
    /// the end of `time` where all of it has no more. Times alone are read.
    ///
    /// # Errors
    /// As [`TableSnapshot::read_sensor`].
    pub fn frame_end(&self, sensors: &[u32], time: &TimeRange, rows_max: usize) -> Result<i64> {
        let (mut rows, mut time) = (Vec::new(), *time);
        for sensor in sensors {
            let times = self.read_sensor(*sensor, &time, &[])?.time;
            rows = union_of_times(&[&rows, &times]);
            if rows.len() > rows_max.max(1) {
                rows.truncate(rows_max.max(1));
                time.last_ns = rows[rows.len() - 1];
            }
        }
        Ok(time.last_ns)
    }

    /// About how many readings a sensor has within `time`, from the index alone.
    ///
    /// # Errors
    /// As [`TableSnapshot::read_sensor`].
    pub fn sensor_rows_about(&self, sensor: u32, time: &TimeRange) -> Result<usize> {
        self.check_sensors(&[sensor][..])?;
        let parts = self.sources.parts(sensor, time)?;
        Ok(parts.iter().map(|part| part.rows_about(time)).sum())
    }

    /// Those of `sensors` that have readings, be they of any time: without those of which all are deleted or dropped.
    /// From the index alone, so that one of which several deletes together hide all may still be there.
    ///
    /// # Errors
    /// As [`TableSnapshot::read_sensor`].
    pub fn with_readings(&self, sensors: Vec<u32>) -> Result<Vec<u32>> {
        self.check_sensors(&sensors[..])?;
        let mut found = Vec::with_capacity(sensors.len());
        for sensor in sensors {
            if self.sources.has_rows(sensor)? {
                found.push(sensor);
            }
        }
        Ok(found)
    }

    /// Stretches of time that together are `time` and overlap nowhere, in the given order. The first ones hold few
    /// rows of `sensors`, the next ones ever more: for a reader who may have enough at any time.
    ///
    /// # Errors
    /// As [`TableSnapshot::read_sensor`].
    pub fn stretches(
        &self,
        sensors: &[u32],
        time: &TimeRange,
        order: TimeOrder,
    ) -> Result<Vec<TimeRange>> {
        self.check_sensors(sensors)?;
        stretches(&self.sources, sensors, time, order)
    }

    /// A numeric field of several sensors side by side: a row for each time at which one of them
    /// has a reading, a column for each sensor in the order of `sensors`.
    ///
    /// # Errors
    /// As [`TableSnapshot::read_sensor`]; `Invalid` when `T` is not the native type of the field.
    pub fn read_frame<T: PageValue>(
        &self,
        sensors: &[u32],
        time: &TimeRange,
        field: FieldId,
    ) -> Result<Frame<T>> {
        self.frame(sensors, time, field, None)
    }

    /// As [`TableSnapshot::read_frame`], with the values that `keep` keeps alone: a row for each time at
    /// which one of the sensors has such a value.
    ///
    /// # Errors
    /// As [`TableSnapshot::read_frame`].
    pub fn read_frame_where<T: PageValue>(
        &self,
        sensors: &[u32],
        time: &TimeRange,
        field: FieldId,
        keep: &Keep,
    ) -> Result<Frame<T>> {
        self.frame(sensors, time, field, Some(keep))
    }

    fn frame<T: PageValue>(
        &self,
        sensors: &[u32],
        time: &TimeRange,
        field: FieldId,
        keep: Option<&Keep>,
    ) -> Result<Frame<T>> {
        self.check_sensors(sensors)?;
        let field = self.typed_as::<T>(field)?;
        read_frame(&self.sources, sensors, time, field, keep)
    }

    /// The values of `sensors`, none twice, at exactly `time_ns`; those without are left out.
    ///
    /// # Errors
    /// As [`TableSnapshot::read_sensor`].
    pub fn at(&self, sensors: &[u32], time_ns: i64, field: FieldId) -> Result<SensorValues> {
        self.check_sensors(sensors)?;
        point::at(&self.sources, sensors, time_ns, self.typed_one(field)?)
    }

    /// The latest values of `sensors`, none twice; those without any are left out.
    ///
    /// # Errors
    /// As [`TableSnapshot::read_sensor`].
    pub fn latest(&self, sensors: &[u32], field: FieldId) -> Result<SensorValues> {
        self.check_sensors(sensors)?;
        point::latest(&self.sources, sensors, self.typed_one(field)?)
    }

    /// The least or greatest value of each of `sensors` within `time`, with its time; none where a sensor
    /// has no value there.
    ///
    /// # Errors
    /// As [`TableSnapshot::read_frame`].
    pub fn extremes<T: PageValue>(
        &self,
        sensors: &[u32],
        time: &TimeRange,
        field: FieldId,
        which: Extreme,
    ) -> Result<Vec<Option<(i64, T)>>> {
        self.check_sensors(sensors)?;
        let field = self.typed_as::<T>(field)?;
        sensors.iter().map(|sensor| extreme(&self.sources, *sensor, time, field, which)).collect()
    }

    /// The field, if its native type is `T`.
    fn typed_as<T: PageValue>(&self, field: FieldId) -> Result<(FieldId, FieldType)> {
        let (field, ty) = self.typed_one(field)?;
        match ty == T::TYPE {
            true => Ok((field, ty)),
            false => Err(Error::invalid(format!(
                "field {:?} holds {ty:?}, not {:?}",
                self.schema().fields[field.index()].name,
                T::TYPE
            ))),
        }
    }

    fn typed_one(&self, field: FieldId) -> Result<(FieldId, FieldType)> {
        self.typed(&[field]).map(|typed| typed[0])
    }

    fn check_sensors<'a>(&self, sensors: impl Into<SensorSlice<'a>>) -> Result<()> {
        match sensors.into().max() {
            Some(sensor) if sensor >= self.sensors.count => Err(Error::invalid(format!(
                "table {} has {} sensors, none has the number {sensor}",
                self.schema().name,
                self.sensors.count
            ))),
            _ => Ok(()),
        }
    }

    fn check_aggregate(&self, request: &AggregateRequest) -> Result<Arc<[(FieldId, FieldType)]>> {
        self.check_sensors(request.sensors.as_slice())?;
        let (groups, sensors) = (request.groups.len(), request.sensors.len());
        let is_whole = (groups == sensors || groups == 0)
            && (sensors == 0 || request.group_count > 0)
            && request.groups.iter().max().is_none_or(|group| *group < request.group_count)
            && request.bin.is_none_or(|bin| bin.width_ns > 0);
        if !is_whole {
            return Err(Error::invalid(
                "an aggregate needs a group below the group count for each sensor or none at all, and bins above 0 wide",
            ));
        }
        self.typed(&request.fields)
    }

    fn typed(&self, fields: &[FieldId]) -> Result<Arc<[(FieldId, FieldType)]>> {
        fields
            .iter()
            .map(|id| match self.schema().fields.get(id.index()) {
                Some(field) => Ok((*id, field.ty)),
                None => Err(Error::invalid(format!(
                    "table {} has no field with the number {id}",
                    self.schema().name
                ))),
            })
            .collect()
    }
}
