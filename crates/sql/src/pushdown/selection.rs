//! From conditions to sensors.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::physical_expr::create_physical_expr;
use roaring::RoaringBitmap;
use tidefall_types::ColumnKind;

use super::Conditions;
use crate::error::to_datafusion;
use crate::table::View;

/// The sensors that meet the conditions, ordered by their tags.
pub(crate) fn select_sensors(view: &View, conditions: &Conditions) -> Result<Vec<u32>> {
    if conditions.time.is_empty() {
        return Ok(Vec::new());
    }
    let found = view.snapshot().resolve(&conditions.tags).map_err(to_datafusion)?;
    let kept = keep_matching(view, found, &conditions.tag_exprs)?;
    Ok(view.snapshot().sort_sensors(&kept))
}

fn keep_matching(view: &View, found: RoaringBitmap, conditions: &[Expr]) -> Result<RoaringBitmap> {
    let mut kept = found;
    for condition in conditions {
        let sensors: Vec<u32> = kept.iter().collect();
        let values = evaluate_per_sensor(view, &sensors, condition)?;
        let wanted: &BooleanArray = as_boolean_array(&values)?;
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

/// The value of an expression over tags for each of `sensors`.
pub(crate) fn evaluate_per_sensor(view: &View, sensors: &[u32], expr: &Expr) -> Result<ArrayRef> {
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
    let bare = expr.clone().transform(|node| match node {
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
