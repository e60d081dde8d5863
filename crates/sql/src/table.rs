//! A table as DataFusion sees it.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use tidefall_storage::{Db, TableSnapshot};
use tidefall_types::Error;

use crate::error::to_datafusion;
use crate::inserted::InsertNode;
use crate::pushdown::{Conditions, Support};
use crate::request::Request;
use crate::scan;
use crate::sink::Sink;
use crate::view::View;

/// A table at one moment, to read from and to write to.
pub(crate) struct Table {
    db: Db,
    view: Arc<View>,
}

impl Table {
    /// The table of `db` that `snapshot` shows.
    pub(crate) fn new(db: Db, snapshot: TableSnapshot) -> Self {
        Self { db, view: Arc::new(View::new(snapshot)) }
    }

    /// What is read.
    pub(crate) fn view(&self) -> &Arc<View> {
        &self.view
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("view", &self.view).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.view.arrow())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let schema = self.view.schema();
        let support = |filter: &&Expr| match Conditions::support(filter, schema) {
            Support::Exact => TableProviderFilterPushDown::Exact,
            Support::Part => TableProviderFilterPushDown::Inexact,
            Support::None => TableProviderFilterPushDown::Unsupported,
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
        let conditions = Conditions::of(filters, self.view.schema());
        let columns = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.view.arrow().fields().len()).collect(),
        };
        let request = Request::new(&self.view, conditions, &columns, limit)?;
        scan::plan(&self.view, request, state.config().target_partitions())
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        insert_op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if insert_op == InsertOp::Overwrite {
            return Err(to_datafusion(Error::unsupported(
                "INSERT OVERWRITE is not supported; DELETE the old rows first",
            )));
        }
        // Replacing is what every insert does: a later write of the same identity wins.
        let schema = Arc::new(self.view.schema().clone());
        let sink = Sink::new(self.db.clone(), schema);
        Ok(Arc::new(InsertNode::new(input, Arc::new(sink))))
    }
}
