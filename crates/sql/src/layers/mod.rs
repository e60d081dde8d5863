//! The other views of a table (as in PL-NagareDB): `rows.plant` has a column for each sensor, `columns.plant` a row
//! for each. Nothing of them is stored; they are made of what a query asks for, in stages that fit into
//! memory.
//!
//! Both are relations: which rows and lists there are is settled by the table and, in the forms
//! `rows('plant', ...)` and `columns('plant', ...)`, by the arguments; conditions drop rows, and which columns are
//! read changes nothing.
//!
//! 1. `rows.rs`: a row for each time at which one of the sensors has a reading, read by `side_by_side.rs`.
//! 2. `columns.rs`: a row for each sensor with a reading, with lists of times and values.
//! 3. `arguments.rs`, `function.rs`: chosen sensors, aligned times, a part of the time.

mod arguments;
mod columns;
mod function;
mod labels;
mod rows;
mod side_by_side;

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::error::Result;
use tidefall_storage::Db;
use tidefall_types::{ErrorKind, TimeRange};

use crate::error::to_datafusion;
use crate::snapshots::snapshot;
use crate::view::View;

pub(crate) use arguments::NamedArguments;
pub(crate) use function::LayerFunction;

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
    /// All of them.
    pub(crate) const ALL: [Self; 2] = [Self::Rows, Self::Columns];

    /// The name of its schema, and of the function that shows a part of it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Columns => "columns",
        }
    }

    /// The layer that a schema shows.
    pub(crate) fn of_schema(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layer| layer.name() == name)
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
        let snapshot = match snapshot(&self.db, name) {
            Ok(snapshot) => snapshot,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(to_datafusion(error)),
        };
        let view = Arc::new(View::new(snapshot));
        let memory_bytes = self.db.stats().memory_bytes;
        Ok(Some(match self.layer {
            Layer::Rows => Arc::new(rows::RowsTable::of_all(view, memory_bytes)?),
            Layer::Columns => Arc::new(columns::ColumnsTable::of(view, None, TimeRange::ALL)),
        }))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.db.schema(name).is_ok()
    }
}
