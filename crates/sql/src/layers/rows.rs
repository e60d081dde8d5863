//! `rows.plant`: a row for each time, a column for each sensor, or one for each of its fields.
//!
//! There is a row for each time at which one of the sensors of the table (or of those that were chosen) has a reading,
//! whichever columns are read. To learn these times costs a look at every sensor, unless a condition can only be true
//! where some of the columns have a value: then the times of their sensors are enough.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    EquivalenceProperties, PhysicalExpr, PhysicalSortExpr, create_physical_expr,
};
use datafusion::physical_plan::ExecutionPlan;
use tidefall_storage::{Bin, TagFilter};
use tidefall_types::{ColumnKind, Error, FieldId, TableSchema, TimeRange};

use super::labels::{Labels, make_unique};
use super::side_by_side::{SideBySide, Wanted};
use crate::error::to_datafusion;
use crate::pushdown::{Conditions, Support};
use crate::source::SourceNode;
use crate::tree::Tree;
use crate::view::View;

/// The most columns of a layer: DataFusion looks at all of them several times for each query.
const COLUMNS_MAX: usize = 20_000;
/// The share of the memory that the rows of a window may take, and its least.
const MEMORY_SHARE: u64 = 16;
const WINDOW_BYTES_MIN: u64 = 4 << 20;

/// A table with a column for each sensor.
#[derive(Debug)]
pub(super) struct RowsTable {
    view: Arc<View>,
    /// The sensors whose readings have rows.
    sensors: Vec<u32>,
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
            return Err(to_datafusion(Error::unsupported(format!(
                "rows.{table} would have a column for each of {} sensors and {} fields; choose some of \
                 them with rows('{table}', sensors => [...])",
                sensors.len(),
                schema.fields.len()
            ))));
        }
        let mut names = vec![schema.time_name().to_owned()];
        let mut columns = Vec::new();
        let ids = sensors.iter().map(|(sensor, _)| *sensor).collect();
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
        Ok(Self { view, sensors: ids, columns, arrow, every, window_bytes })
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
            false if self.needs_one_of(filter).is_some() => TableProviderFilterPushDown::Inexact,
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
        let shown: Vec<usize> =
            projection.cloned().unwrap_or_else(|| (0..self.arrow.fields().len()).collect());
        let arrow = Arc::new(self.arrow.project(&shown)?);
        let mut time = time_of(filters, self.view.schema());
        if let Some(every) = self.every {
            time = whole_bins(&time, every);
        }
        let source = SideBySide {
            view: Arc::clone(&self.view),
            arrow: Arc::clone(&arrow),
            sensors: self.wanted(&shown, filters),
            time,
            every: self.every,
            window_bytes: self.window_bytes,
        };
        let mut equivalence = EquivalenceProperties::new(Arc::clone(&arrow));
        if let Some(at) = shown.iter().position(|at| *at == 0) {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(arrow.field(at).name(), at));
            let ascending = SortOptions { descending: false, nulls_first: false };
            equivalence.add_ordering([PhysicalSortExpr::new(column, ascending)]);
        }
        Ok(Arc::new(SourceNode::new(Arc::new(source), equivalence, limit)))
    }
}

impl RowsTable {
    /// Sensors of which one must have a reading where `filter` is true, as far as can be told.
    fn needs_one_of(&self, filter: &Expr) -> Option<BTreeSet<u32>> {
        let columns = filter.column_refs();
        if columns.is_empty() || filter.is_volatile() {
            return None;
        }
        let sensor_of = |name: &str| {
            let at = self.arrow.index_of(name).ok()?;
            Some(self.columns.get(at.checked_sub(1)?)?.0)
        };
        let sensors: Option<BTreeSet<u32>> =
            columns.iter().map(|column| sensor_of(&column.name)).collect();
        // What cannot be evaluated tells nothing.
        sensors.filter(|_| matches!(self.is_true_of_nulls(filter), Ok(false)))
    }

    /// Whether a condition is true in a row without values.
    fn is_true_of_nulls(&self, filter: &Expr) -> Result<bool> {
        let of_nulls = filter.clone().transform_up(|node| match node {
            Expr::Column(column) => {
                let data_type = self.arrow.field_with_name(&column.name)?.data_type();
                Ok(Transformed::yes(Expr::Literal(ScalarValue::try_from(data_type)?, None)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        let physical = create_physical_expr(
            &of_nulls.data,
            &DFSchema::empty(),
            &ExecutionProps::new(),
            &PhysicalPlanningContext::default(),
        )?;
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?;
        let value = physical.evaluate(&row)?.into_array(1)?;
        let value = as_boolean_array(&value)?;
        Ok(value.is_valid(0) && value.value(0))
    }

    /// What is read of each sensor for the columns that are shown.
    fn wanted(&self, shown: &[usize], filters: &[Expr]) -> Vec<Wanted> {
        let needed = filters.iter().filter_map(|filter| self.needs_one_of(filter));
        let needed = needed.min_by_key(BTreeSet::len);
        let has_rows = |sensor: u32| needed.as_ref().is_none_or(|some| some.contains(&sensor));
        let mut places: Vec<(u32, FieldId, usize)> = Vec::with_capacity(shown.len());
        for (place, at) in shown.iter().enumerate().filter(|(_, at)| **at > 0) {
            let (sensor, field) = self.columns[at - 1];
            places.push((sensor, field, place));
        }
        places.sort_unstable();
        let mut sensors: Vec<Wanted> = Vec::new();
        for (sensor, field, place) in places {
            match sensors.last_mut() {
                Some(last) if last.sensor == sensor => {
                    last.fields.push(field);
                    last.places.push(place);
                }
                _ => sensors.push(Wanted {
                    sensor,
                    fields: vec![field],
                    places: vec![place],
                    has_rows: has_rows(sensor),
                }),
            }
        }
        let shown: BTreeSet<u32> = sensors.iter().map(|wanted| wanted.sensor).collect();
        let others = self.sensors.iter().filter(|sensor| !shown.contains(*sensor));
        sensors.extend(others.filter(|sensor| has_rows(**sensor)).map(|sensor| Wanted {
            sensor: *sensor,
            fields: Vec::new(),
            places: Vec::new(),
            has_rows: true,
        }));
        sensors
    }
}

/// Whether a condition looks at the time alone, in a way that the storage answers exactly.
fn is_time_range(filter: &Expr, schema: &TableSchema) -> bool {
    let columns = filter.column_refs();
    let is_time = columns.iter().all(|column| column.name == schema.time_name());
    !columns.is_empty() && is_time && Conditions::support(filter, schema) == Support::Exact
}

/// The time that conditions on nothing but the time ask for.
fn time_of(filters: &[Expr], schema: &TableSchema) -> TimeRange {
    let filters = filters.iter().filter(|filter| is_time_range(filter, schema));
    Conditions::of(filters, schema).time
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
