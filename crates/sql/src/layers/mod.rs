//! The other views of a table (paper 1): `rows.plant` has a column for each sensor, `columns.plant` a row
//! for each. Nothing of them is stored; they are made of what a query asks for, in stages that fit into
//! memory.
//!
//! 1. `rows.rs`: sensors side by side. Rows are the times at which one of the columns that a query reads has
//!    a value; `rows('plant', sensors => ..., every => ...)` chooses sensors and aligns times.
//! 2. `columns.rs`: lists of times and values.

mod columns;
mod function;
mod labels;
mod rows;

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Expr;
use tidefall_storage::Db;
use tidefall_types::{Error, ErrorKind, TableSchema, TimeRange};

use crate::error::to_datafusion;
use crate::pushdown::{Conditions, Support};
use crate::table::View;

pub(crate) use function::{NamedArguments, RowsFunction};

/// The name of what reads a layer in `EXPLAIN`.
const LAYER: &str = "TidefallLayer";

/// A layer as a schema of SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    /// A column for each sensor.
    Rows,
    /// A row for each sensor.
    Columns,
}

impl Layer {
    /// The layer that a schema shows.
    pub(crate) fn of_schema(name: &str) -> Option<Self> {
        match name {
            "rows" => Some(Self::Rows),
            "columns" => Some(Self::Columns),
            _ => None,
        }
    }
}

/// Every table of a database in one layer.
pub(crate) struct LayerSchema {
    db: Db,
    layer: Layer,
}

impl LayerSchema {
    /// The tables of `db` in `layer`.
    pub(crate) fn new(db: Db, layer: Layer) -> Self {
        Self { db, layer }
    }
}

impl std::fmt::Debug for LayerSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LayerSchema").field("layer", &self.layer).finish_non_exhaustive()
    }
}

#[async_trait]
impl SchemaProvider for LayerSchema {
    fn table_names(&self) -> Vec<String> {
        self.db.tables().iter().map(|table| table.name.clone()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let snapshot = match self.db.snapshot(name) {
            Ok(snapshot) => snapshot,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(to_datafusion(error)),
        };
        let view = Arc::new(View::new(snapshot));
        let memory_bytes = self.db.stats().memory_bytes;
        Ok(Some(match self.layer {
            Layer::Rows => Arc::new(rows::RowsTable::of_all(view, memory_bytes)?),
            Layer::Columns => Arc::new(columns::ColumnsTable::new(view)),
        }))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.db.schema(name).is_ok()
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

fn unsupported(why: impl Into<String>) -> DataFusionError {
    to_datafusion(Error::unsupported(why.into()))
}
