//! How DataFusion finds tables: a catalog whose schemas are views of the database as it is now.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::TableType;
use tidefall_storage::{Db, Snapshot};
use tidefall_types::ErrorKind;

use crate::error::to_datafusion;
use crate::layers::{Layer, LayerSchema};
use crate::records::RecordsTable;
use crate::schemas::READINGS;
use crate::snapshots::snapshot_of_any;
use crate::table::Table;

/// The catalog of one database.
pub(crate) struct Catalog {
    db: Db,
}

impl Catalog {
    /// The catalog of `db`.
    pub(crate) fn new(db: Db) -> Self {
        Self { db }
    }
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog").finish_non_exhaustive()
    }
}

impl CatalogProvider for Catalog {
    /// Layers are left out: whoever lists all tables wants each of them once.
    fn schema_names(&self) -> Vec<String> {
        vec![READINGS.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let db = self.db.clone();
        match Layer::of_schema(name) {
            Some(layer) => Some(Arc::new(LayerSchema::new(db, layer))),
            None => {
                (name == READINGS).then(|| Arc::new(Readings { db }) as Arc<dyn SchemaProvider>)
            }
        }
    }
}

/// Every table with one row per reading.
struct Readings {
    db: Db,
}

impl fmt::Debug for Readings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readings").finish_non_exhaustive()
    }
}

/// A table of whichever kind as DataFusion sees it.
pub(crate) fn provider(db: &Db, snapshot: Snapshot) -> Arc<dyn TableProvider> {
    match snapshot {
        Snapshot::Series(snapshot) => Arc::new(Table::new(db.clone(), snapshot)),
        Snapshot::Records(snapshot) => Arc::new(RecordsTable::new(db.clone(), snapshot)),
    }
}

#[async_trait]
impl SchemaProvider for Readings {
    fn table_names(&self) -> Vec<String> {
        self.db.tables().iter().map(|table| table.name.clone()).collect()
    }

    /// Every scan of the table in a statement sees the same readings.
    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match snapshot_of_any(&self.db, name) {
            Ok(snapshot) => Ok(Some(provider(&self.db, snapshot))),
            // It may be the name of a table function.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(to_datafusion(error)),
        }
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        match self.db.schema(name) {
            Ok(_) => Ok(Some(TableType::Base)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(to_datafusion(error)),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.db.schema(name).is_ok()
    }
}
