//! `knn('trips', latitude => 40.75, longitude => -73.98)`: the records with their distance to a point, over some of their dimensions.
//!
//! It is a table as others are: conditions drop rows, and `ORDER BY distance LIMIT 10` keeps the ten nearest of those that they leave. Such a
//! sort is read from the nearest cell on (`by_time.rs` of the crate says so to `scan.rs`), until all others are farther away than what it has;
//! `distance < 0.5` leaves out what is.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{
    BinaryExpr, Expr, Operator, TableProviderFilterPushDown, TableType,
};
use datafusion::physical_plan::ExecutionPlan;
use tidefall_storage::Db;
use tidefall_storage::record_tables::distance::{At, Axis, Center};
use tidefall_types::{Error, FieldId, FieldType, TableSchema, parse_duration};

use super::RecordsTable;
use crate::error::{in_sql, to_datafusion};
use crate::literals::{literal, text, time};
use crate::nearest::{did_you_mean, nearest};
use crate::pushdown::end_of;

/// The name of the function.
pub(super) const NAME: &str = "knn";

/// The column with the distance, or, where the table has one of this name, the other.
const DISTANCE: [&str; 2] = ["distance", "knn_distance"];

pub(super) fn misused(what: &str) -> Error {
    Error::invalid(format!(
        "{NAME} {what}, as in {NAME}('trips', latitude => 40.75, longitude => (-73.98, 0.01)), where 0.01 is the length that counts as one"
    ))
}

/// The function.
#[derive(Debug)]
pub(crate) struct Knn {
    db: Db,
}

impl Knn {
    pub(crate) const NAME: &'static str = NAME;

    /// The function over the tables of `db`.
    pub(crate) const fn new(db: Db) -> Self {
        Self { db }
    }
}

impl TableFunctionImpl for Knn {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let table = KnnTable::of(&self.db, args.exprs()).map_err(to_datafusion)?;
        Ok(Arc::new(table))
    }
}

/// How far rows are from a point.
#[derive(Debug)]
pub(super) struct Near {
    pub(super) center: Center,
    /// The columns of the table, and behind them the distance, ...
    pub(super) schema: Arc<TableSchema>,
    /// ... which is this one.
    pub(super) field: FieldId,
    /// Rows that are farther away are not asked for.
    pub(super) within: f64,
}

/// The rows of a table, with their distance to a point.
#[derive(Debug)]
struct KnnTable {
    table: RecordsTable,
    arrow: SchemaRef,
    center: Center,
    schema: Arc<TableSchema>,
    field: FieldId,
}

impl KnnTable {
    /// Of the arguments as [`super::NamedDimensions`] leaves them.
    fn of(db: &Db, exprs: &[Expr]) -> tidefall_types::Result<Self> {
        let first = exprs.first().and_then(literal).and_then(text);
        let name = first.ok_or_else(|| misused("wants the name of a table first"))?;
        let table = RecordsTable::named(db, name, NAME)?;
        let mut axes: Vec<Axis> = Vec::new();
        let (threes, []) = exprs[1..].as_chunks() else {
            return Err(misused("wants the name of each dimension"));
        };
        for [name, at, scale] in threes {
            let name = literal(name).and_then(text).unwrap_or_default();
            let axis = axis(table.table_schema(), name, at, scale)?;
            if axes.iter().any(|known| known.dimension == axis.dimension) {
                return Err(misused(&format!("has {name} twice")));
            }
            axes.push(axis);
        }
        if axes.is_empty() {
            return Err(misused("wants a dimension at least"));
        }
        let mut schema = TableSchema::clone(table.table_schema());
        let is_free = |name: &&&str| schema.column(name).is_none();
        let distance = DISTANCE.iter().find(is_free).ok_or_else(|| {
            let names = DISTANCE.join(" and ");
            Error::conflict(format!("{NAME} adds a column, and {} has {names}", schema.name))
        })?;
        let field = schema.add_field(distance, FieldType::F64)?;
        let more = Field::new(*distance, DataType::Float64, true);
        let fields = table.arrow.fields().iter().cloned().chain([Arc::new(more)]);
        let arrow = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(Self { table, arrow, center: Center { axes }, schema: Arc::new(schema), field })
    }

    /// How far away the rows are at most for which a condition holds, if it says so alone.
    fn within(&self, condition: &Expr) -> Option<f64> {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { return None };
        let (column, op, value) = match (&**left, &**right) {
            (Expr::Column(column), Expr::Literal(value, _)) => (column, *op, value),
            (Expr::Literal(value, _), Expr::Column(column)) => (column, op.swap()?, value),
            _ => return None,
        };
        let is_distance = self.schema.columns.last().is_some_and(|last| last.name == column.name);
        let is_end = matches!(op, Operator::Lt | Operator::LtEq | Operator::Eq);
        (is_distance && is_end).then(|| end_of(Operator::LtEq, value).map(|end| end.value))?
    }
}

#[async_trait]
impl TableProvider for KnnTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.arrow)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match self.within(filter) {
            Some(_) => TableProviderFilterPushDown::Inexact,
            None => self.table.support(filter),
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let ends = filters.iter().filter_map(|filter| self.within(filter));
        let near = Near {
            center: self.center.clone(),
            schema: Arc::clone(&self.schema),
            field: self.field,
            within: ends.fold(f64::INFINITY, f64::min),
        };
        self.table.plan(&self.arrow, Some(Arc::new(near)), (projection, filters, limit), state)
    }
}

/// A dimension, where the point is in it, and the length that counts as one.
fn axis(schema: &TableSchema, name: &str, at: &Expr, scale: &Expr) -> tidefall_types::Result<Axis> {
    let field = |id: &FieldId| &schema.fields[id.index()];
    let dimension = schema.dimensions.iter().position(|id| field(id).name == name);
    let dimension = dimension.ok_or_else(|| {
        let names: Vec<&str> = schema.dimensions.iter().map(|id| &*field(id).name).collect();
        let known = names.join(", ");
        let hint = did_you_mean(&nearest(name, names)).map(|hint| format!("; {hint}"));
        let table = &schema.name;
        Error::not_found(format!(
            "{NAME}: {name} is not a dimension of {table}, which are {known}{}",
            hint.unwrap_or_default()
        ))
    })?;
    let is_time = field(&schema.dimensions[dimension]).ty == FieldType::Timestamp;
    let number = |value: &ScalarValue| match value.cast_to(&DataType::Float64) {
        Ok(ScalarValue::Float64(number)) if value.data_type().is_numeric() => number,
        _ => None,
    };
    let ty = field(&schema.dimensions[dimension]).ty;
    let place = match literal(at) {
        None => None,
        Some(value) if is_time => time(value)?.map(|time_ns| At::whole(ty, time_ns)),
        Some(value) => match value.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(Some(whole))) if value.data_type().is_integer() => {
                Some(At::whole(ty, whole))
            }
            _ => number(value).filter(|number| number.is_finite()).map(|at| At::of(ty, at)),
        },
    };
    let Some(place) = place else {
        let wanted = if is_time { "a time" } else { "a finite number" };
        return Err(misused(&in_sql(&format!("wants {wanted} for {name}, not {at}"))));
    };
    let length = match literal(scale) {
        Some(value) if value.is_null() => Some(1.0),
        Some(value) if is_time => {
            text(value).and_then(|text| parse_duration(text).ok()).map(|ns| ns as f64)
        }
        other => other.and_then(number),
    };
    let Some(scale) = length.filter(|length| *length > 0.0 && length.is_finite()) else {
        let wanted = if is_time { "a duration as '1h'" } else { "a number" };
        let what = format!("wants {wanted} above zero for the length of {name}, not {scale}");
        return Err(misused(&in_sql(&what)));
    };
    Ok(Axis { dimension, at: place, scale })
}
