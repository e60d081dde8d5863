//! `rows.plant`: a row for each time, a column for each sensor, or one for each of its fields.
//!
//! A row is there for each time at which one of the columns that the query reads has a value, or any
//! column when it reads none. Time is read in windows whose rows fit into a share of the memory.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{
    Array, ArrayRef, RecordBatch, RecordBatchOptions, TimestampNanosecondArray, UInt32Array,
    new_null_array,
};
use datafusion::arrow::buffer::ScalarBuffer;
use datafusion::arrow::compute::{SortOptions, take};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use tidefall_storage::{
    Bin, ReadStats, SensorSeries, TagFilter, spread, threads_for, union_of_times,
};
use tidefall_types::{ColumnKind, FieldId, TimeRange, format_duration};

use super::labels::{Labels, make_unique};
use super::{LAYER, is_time_range, time_of, unsupported};
use crate::ahead::Batches;
use crate::error::to_datafusion;
use crate::reads::Tally;
use crate::source::{Source, SourceNode, sliced};
use crate::table::View;

/// The most columns of a layer: DataFusion looks at all of them several times for each query.
const COLUMNS_MAX: usize = 20_000;
/// The share of the memory that the rows of a window may take, and its least.
const MEMORY_SHARE: u64 = 16;
const WINDOW_BYTES_MIN: u64 = 4 << 20;

/// A table with a column for each sensor.
#[derive(Debug)]
pub(super) struct RowsTable {
    view: Arc<View>,
    /// What stands in the columns behind that of the time.
    columns: Vec<(u32, FieldId)>,
    arrow: SchemaRef,
    /// The bins at whose starts the rows stand, if they are aligned.
    every: Option<Bin>,
    window_bytes: u64,
}

impl RowsTable {
    /// All sensors of a table.
    pub(super) fn of_all(view: Arc<View>, memory_bytes: u64) -> Result<Self> {
        let sensors = view.snapshot().resolve(&TagFilter::All).map_err(to_datafusion)?;
        let sensors = view.snapshot().sort_sensors(&sensors);
        let labels = Labels::new(&view);
        let named = sensors.into_iter().map(|sensor| (sensor, labels.of(sensor))).collect();
        drop(labels);
        Self::of(view, named, None, memory_bytes)
    }

    /// Some sensors with their names; with `every` a row for each bin, which holds the latest values in it.
    pub(super) fn of(
        view: Arc<View>,
        sensors: Vec<(u32, String)>,
        every: Option<Bin>,
        memory_bytes: u64,
    ) -> Result<Self> {
        let schema = view.schema();
        let table = &schema.name;
        if sensors.len() * schema.fields.len().max(1) >= COLUMNS_MAX {
            return Err(unsupported(format!(
                "rows.{table} would have a column for each of {} sensors and {} fields; choose some of \
                 them with rows('{table}', sensors => [...])",
                sensors.len(),
                schema.fields.len()
            )));
        }
        let mut names = vec![schema.time_name().to_owned()];
        let mut columns = Vec::new();
        for (sensor, label) in sensors {
            for (at, field) in schema.fields.iter().enumerate() {
                let is_only = schema.fields.len() == 1;
                let name = if is_only { label.clone() } else { format!("{label}.{}", field.name) };
                names.push(name);
                columns.push((sensor, FieldId(at as u16)));
            }
        }
        make_unique(&mut names);
        let types = columns.iter().map(|(_, field)| schema.fields[field.index()].ty.arrow());
        let time = [(schema.arrow_type(ColumnKind::Time), false)];
        let types = time.into_iter().chain(types.map(|ty| (ty, true)));
        let fields = names.into_iter().zip(types);
        let fields = fields.map(|(name, (ty, nullable))| Field::new(name, ty, nullable));
        let arrow = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let window_bytes = (memory_bytes / MEMORY_SHARE).max(WINDOW_BYTES_MIN);
        Ok(Self { view, columns, arrow, every, window_bytes })
    }
}

#[async_trait]
impl TableProvider for RowsTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.arrow)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match is_time_range(filter, self.view.schema()) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let wanted: Vec<usize> =
            projection.cloned().unwrap_or_else(|| (0..self.arrow.fields().len()).collect());
        let arrow = Arc::new(self.arrow.project(&wanted)?);
        let mut read: Vec<usize> = wanted.iter().copied().filter(|at| *at > 0).collect();
        if read.is_empty() {
            read = (1..self.arrow.fields().len()).collect();
        }
        let mut time = time_of(filters, self.view.schema());
        if let Some(every) = self.every {
            time = whole_bins(&time, every);
        }
        let source = SideBySide {
            sensors: by_sensor(read.iter().map(|at| (*at, self.columns[at - 1]))),
            view: Arc::clone(&self.view),
            arrow: Arc::clone(&arrow),
            wanted: wanted.clone(),
            time,
            every: self.every,
            window_bytes: self.window_bytes,
        };
        let mut equivalence = EquivalenceProperties::new(Arc::clone(&arrow));
        if let Some(at) = wanted.iter().position(|at| *at == 0) {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(arrow.field(at).name(), at));
            let ascending = SortOptions { descending: false, nulls_first: false };
            equivalence.add_ordering([PhysicalSortExpr::new(column, ascending)]);
        }
        Ok(Arc::new(SourceNode::new(Arc::new(source), equivalence, limit)))
    }
}

/// The readings of the bins whose starts lie in `time`.
fn whole_bins(time: &TimeRange, every: Bin) -> TimeRange {
    let rest_ns = every.width_ns - 1;
    let first = match time.first_ns {
        i64::MIN => i64::MIN,
        at => every.start_of(at.saturating_add(rest_ns)),
    };
    if first < time.first_ns {
        // No bin starts between here and the end of time.
        return TimeRange::new(i64::MAX, i64::MIN);
    }
    TimeRange::new(first, every.start_of(time.last_ns).saturating_add(rest_ns))
}

/// What is read of a sensor: fields, and the columns of the table in which they stand.
#[derive(Debug)]
struct Wanted {
    sensor: u32,
    fields: Vec<FieldId>,
    columns: Vec<usize>,
}

fn by_sensor(columns: impl Iterator<Item = (usize, (u32, FieldId))>) -> Vec<Wanted> {
    let mut columns: Vec<(usize, (u32, FieldId))> = columns.collect();
    // Columns of a sensor stand side by side in the table, but not always in a query.
    columns.sort_unstable();
    columns.dedup();
    let mut sensors: Vec<Wanted> = Vec::new();
    for (column, (sensor, field)) in columns {
        match sensors.last_mut() {
            Some(last) if last.sensor == sensor => {
                last.fields.push(field);
                last.columns.push(column);
            }
            _ => sensors.push(Wanted { sensor, fields: vec![field], columns: vec![column] }),
        }
    }
    sensors
}

/// Reads sensors side by side.
#[derive(Debug)]
struct SideBySide {
    view: Arc<View>,
    /// The columns of the answer, as those of the table.
    wanted: Vec<usize>,
    arrow: SchemaRef,
    sensors: Vec<Wanted>,
    time: TimeRange,
    every: Option<Bin>,
    window_bytes: u64,
}

impl SideBySide {
    /// Parts of the time whose rows fit into a window, and about how many values each of them has.
    fn windows(&self) -> Result<(Vec<TimeRange>, usize)> {
        let ids: Vec<u32> = self.sensors.iter().map(|wanted| wanted.sensor).collect();
        let extent = self.view.snapshot().extent(&ids, &self.time).map_err(to_datafusion)?;
        let Some((extent, rows_max)) = extent else { return Ok((Vec::new(), 0)) };
        let columns: usize = self.sensors.iter().map(|wanted| wanted.fields.len() + 1).sum();
        let row_bytes = (8 * columns as u64).saturating_add(self.row_bytes());
        let bytes = (rows_max as u64).saturating_mul(row_bytes);
        let count = i128::from(bytes / self.window_bytes + 1);
        let first = self.every.map_or(extent.first_ns, |every| every.start_of(extent.first_ns));
        let span = i128::from(extent.last_ns) - i128::from(first) + 1;
        let mut width = (span + count - 1) / count;
        if let Some(every) = self.every {
            let every_ns = i128::from(every.width_ns);
            width = (width + every_ns - 1) / every_ns * every_ns;
        }
        let mut windows = Vec::new();
        let mut start = i128::from(first);
        while start <= i128::from(extent.last_ns) {
            let last = (start + width - 1).min(i128::from(extent.last_ns));
            windows.push(TimeRange::new(start as i64, last as i64).intersect(&self.time));
            start += width;
        }
        let values = (bytes / 8) as usize / windows.len().max(1);
        Ok((windows, values))
    }

    /// The rows of a window of about so many values.
    fn read(
        &self,
        window: &TimeRange,
        values: usize,
        stats: &Arc<ReadStats>,
    ) -> Result<Option<RecordBatch>> {
        let snapshot = self.view.snapshot();
        let read = |wanted: &Wanted, _: &mut ()| {
            let (sensor, fields) = (wanted.sensor, &wanted.fields);
            let series = snapshot.read_sensor_counted(sensor, window, fields, stats)?;
            Ok(match self.every {
                Some(every) => align(series, every),
                None => series,
            })
        };
        let series = spread(threads_for(values), self.sensors.iter().collect(), read)
            .map_err(to_datafusion)?;
        let times: Vec<&[i64]> = series.iter().map(|series| &series.time[..]).collect();
        let times: ScalarBuffer<i64> = union_of_times(&times).into();
        if times.is_empty() {
            return Ok(None);
        }
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.wanted.len()];
        for (wanted, series) in self.sensors.iter().zip(series) {
            let places = places(&times, &series.time);
            for (values, column) in series.fields.iter().zip(&wanted.columns) {
                let values = match &places {
                    None => Arc::clone(values),
                    Some(places) => take(values, places, None)?,
                };
                for (at, _) in self.wanted.iter().enumerate().filter(|(_, at)| *at == column) {
                    columns[at] = Some(Arc::clone(&values));
                }
            }
        }
        let rows = times.len();
        let time: ArrayRef = Arc::new(TimestampNanosecondArray::new(times, None));
        let columns = columns.into_iter().zip(self.arrow.fields()).map(|(column, field)| {
            column.unwrap_or_else(|| match field.is_nullable() {
                false => Arc::clone(&time),
                true => new_null_array(field.data_type(), rows),
            })
        });
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let columns = columns.collect();
        Ok(Some(RecordBatch::try_new_with_options(Arc::clone(&self.arrow), columns, &options)?))
    }
}

impl Source for SideBySide {
    fn name(&self) -> &'static str {
        LAYER
    }

    fn describe(&self) -> String {
        let every = self.every.map(|bin| format!(", every={}", format_duration(bin.width_ns)));
        let text = self.view.text(self.sensors.len(), self.time);
        format!("rows of {text}{}", every.unwrap_or_default())
    }

    fn partitions(&self) -> usize {
        1
    }

    fn row_bytes(&self) -> u64 {
        let snapshot = self.view.snapshot();
        let Some(first) = self.sensors.first() else { return 0 };
        // In the rule all sensors are read with the same fields.
        let bytes = snapshot.text_bytes_per_row(&first.fields);
        bytes.saturating_mul(self.sensors.len() as u64)
    }

    fn open(
        self: Arc<Self>,
        _partition: usize,
        _limit: Option<usize>,
        tally: &Tally,
    ) -> Result<Batches> {
        let stats = tally.start();
        let (windows, values) = self.windows()?;
        let rows = move |window: TimeRange| self.read(&window, values, &stats).transpose();
        Ok(sliced(windows.into_iter().filter_map(rows)))
    }
}

/// The latest value of each field in each bin, at the start of the bin.
fn align(series: SensorSeries, every: Bin) -> SensorSeries {
    let mut bins: Vec<i64> = Vec::new();
    let mut rows: Vec<Range<usize>> = Vec::new();
    for (row, time_ns) in series.time.iter().enumerate() {
        let bin = every.start_of(*time_ns);
        match (bins.last(), rows.last_mut()) {
            (Some(last), Some(range)) if *last == bin => range.end = row + 1,
            _ => {
                bins.push(bin);
                rows.push(row..row + 1);
            }
        }
    }
    let latest = |values: &ArrayRef| {
        let places: UInt32Array = rows
            .iter()
            .map(|rows| rows.clone().rev().find(|row| values.is_valid(*row)).map(|row| row as u32))
            .collect();
        // Every place lies within the array, of which there are as many rows as times.
        take(values, &places, None)
            .unwrap_or_else(|_| new_null_array(values.data_type(), bins.len()))
    };
    let fields = series.fields.iter().map(latest).collect();
    SensorSeries { time: bins.into(), fields }
}

/// Where the values of a sensor with `own` times stand among `times`; nothing when they are the same.
fn places(times: &ScalarBuffer<i64>, own: &ScalarBuffer<i64>) -> Option<UInt32Array> {
    if times == own {
        return None;
    }
    let mut next = 0;
    let place = times.iter().map(|time| {
        let is_own = own.get(next) == Some(time);
        next += usize::from(is_own);
        is_own.then(|| next as u32 - 1)
    });
    Some(place.collect())
}
