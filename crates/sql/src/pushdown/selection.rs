//! From conditions to sensors.

use std::slice;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::physical_expr::create_physical_expr;
use roaring::RoaringBitmap;
use tidefall_storage::{AggregateRequest, ReadStats, Sensors, TagFilter};
use tidefall_types::{ColumnKind, TimeRange};

use super::Conditions;
use crate::error::to_datafusion;
use crate::tree::Tree;
use crate::view::View;

/// The sensors that meet the conditions, ordered by their tags.
pub(crate) fn select_sensors(view: &View, conditions: &Conditions) -> Result<Vec<u32>> {
    select_among(view, conditions, None)
}

/// Those of the chosen sensors that meet the conditions, ordered by their tags; of others nothing is evaluated.
pub(crate) fn select_among(
    view: &View,
    conditions: &Conditions,
    chosen: Option<&RoaringBitmap>,
) -> Result<Vec<u32>> {
    Ok(view.snapshot().sort_sensors(&sensors_that_meet(view, conditions, chosen)?))
}

/// As [`select_among`], in no order.
pub(crate) fn sensors_that_meet(
    view: &View,
    conditions: &Conditions,
    chosen: Option<&RoaringBitmap>,
) -> Result<RoaringBitmap> {
    if conditions.time.is_empty() {
        return Ok(RoaringBitmap::new());
    }
    let found = view.snapshot().resolve(&conditions.tags).map_err(to_datafusion)?;
    let mut kept = match chosen {
        None => found,
        Some(chosen) => found & chosen,
    };
    for condition in &conditions.tag_exprs {
        let (sensors, values) =
            evaluate(view, kept.iter().collect(), slice::from_ref(condition), &conditions.time)?;
        let wanted: &BooleanArray = as_boolean_array(&values[0])?;
        // Sensors for which the condition is null are left out like those for which it is false.
        let matching = sensors
            .iter()
            .enumerate()
            .filter(|(at, _)| wanted.is_valid(*at) && wanted.value(*at))
            .map(|(_, sensor)| *sensor);
        kept = matching.collect();
    }
    Ok(kept)
}

/// The sensors that meet conditions, in their order: as a range where that is known or found without a look at each.
pub(crate) fn sensors_in_order(view: &View, conditions: &Conditions) -> Result<Sensors> {
    if conditions.tags == TagFilter::All && conditions.tag_exprs.is_empty() {
        let count = if conditions.time.is_empty() { 0 } else { view.snapshot().sensor_count() };
        return Ok((0..count).into());
    }
    let found = sensors_that_meet(view, conditions, None)?;
    Ok(match (found.min(), found.max()) {
        (Some(first), Some(last))
            if found.len() == u64::from(last - first) + 1 && last < u32::MAX =>
        {
            (first..last + 1).into()
        }
        _ => found.iter().collect::<Vec<u32>>().into(),
    })
}

/// The values of expressions over tags for each of `sensors`. Where an expression fails, sensors without a row in `time`
/// are left out of all of them: tags stay known when their readings are deleted, and nobody asks for these.
pub(crate) fn evaluate(
    view: &View,
    sensors: Vec<u32>,
    exprs: &[Expr],
    time: &TimeRange,
) -> Result<(Vec<u32>, Vec<ArrayRef>)> {
    let values = |sensors: &[u32]| -> Result<Vec<ArrayRef>> {
        exprs.iter().map(|expr| evaluate_per_sensor(view, sensors, expr)).collect()
    };
    match values(&sensors) {
        Ok(values) => Ok((sensors, values)),
        Err(error) => {
            let remaining = with_rows(view, &sensors, time)?;
            if remaining.len() == sensors.len() {
                return Err(error);
            }
            let values = values(&remaining)?;
            Ok((remaining, values))
        }
    }
}

/// Those of `sensors` that have a row in `time`.
fn with_rows(view: &View, sensors: &[u32], time: &TimeRange) -> Result<Vec<u32>> {
    let request = AggregateRequest {
        sensors: sensors.to_vec().into(),
        groups: (0..sensors.len() as u32).collect(),
        group_count: sensors.len() as u32,
        time: *time,
        bin: None,
        fields: Vec::new(),
        deviations: false,
        extremes: false,
        ends: false,
    };
    let stats = Arc::new(ReadStats::default());
    let found = view.snapshot().aggregate(&request, &stats).map_err(to_datafusion)?;
    Ok(found.group.iter().map(|group| sensors[*group as usize]).collect())
}

fn evaluate_per_sensor(view: &View, sensors: &[u32], expr: &Expr) -> Result<ArrayRef> {
    let schema = view.schema();
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    for column in expr.column_refs() {
        let Some(ColumnKind::Tag(tag)) = schema.column(&column.name).map(|column| column.kind)
        else {
            continue;
        };
        let data_type = schema.arrow_type(ColumnKind::Tag(tag));
        if fields.iter().any(|field: &Field| *field.name() == column.name) {
            continue;
        }
        fields.push(Field::new(&column.name, data_type, true));
        columns.push(view.tag(tag).of_sensors(sensors)?);
    }
    let schema = Arc::new(Schema::new(fields));
    let options = RecordBatchOptions::new().with_row_count(Some(sensors.len()));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?;
    let bare = expr.clone().transform_up(|node| match node {
        Expr::Column(column) => {
            Ok(Transformed::yes(Expr::Column(Column::new_unqualified(column.name))))
        }
        other => Ok(Transformed::no(other)),
    })?;
    let physical = create_physical_expr(
        &bare.data,
        &DFSchema::try_from(schema)?,
        &ExecutionProps::new(),
        &PhysicalPlanningContext::default(),
    )?;
    physical.evaluate(&batch)?.into_array(sensors.len())
}
