//! Tables of records: rows without identity, asked for by boxes over their dimensions.
//!
//! 1. `cover.rs`: conditions on dimensions become a union of boxes, which covers all rows that they hold for; `place.rs` knows where values of other types lie.
//! 2. `scan.rs`: a source that reads the rows in it.
//! 3. `totals.rs`: aggregates of all of them, from metrics where that can be.
//! 4. `knn.rs`: the rows with their distance to a point, from the nearest on where a query ends there; `rtree.rs`: the boxes that rows lie in.

mod cover;
mod knn;
mod named;
mod place;
mod rtree;
mod scan;
mod totals;

pub(crate) use cover::BOXES_MAX;
pub(crate) use knn::Knn;
pub(crate) use named::NamedDimensions;
pub(crate) use rtree::Rtree;
pub(crate) use totals::{TotalsPlanner, TotalsRule};

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use tidefall_storage::record_tables::read::Touched;
use tidefall_storage::record_tables::region::Regions;
use tidefall_storage::{Db, RecordsSnapshot, Snapshot};
use tidefall_types::{ColumnKind, Error, TableSchema};

use crate::error::to_datafusion;
use crate::inserted::InsertNode;
use crate::sink::Sink;
use crate::snapshots::snapshot_of_any;

use self::cover::Cover;
use self::knn::Near;

/// A table of records at one moment, to read from and to write to.
pub(crate) struct RecordsTable {
    db: Db,
    snapshot: Arc<RecordsSnapshot>,
    arrow: SchemaRef,
}

impl RecordsTable {
    /// The table of `db` that `snapshot` shows.
    pub(crate) fn new(db: Db, snapshot: RecordsSnapshot) -> Self {
        let schema = snapshot.schema();
        let field = |column: &tidefall_types::Column| {
            let is_dimension = match column.kind {
                ColumnKind::Field(id) => schema.dimensions.contains(&id),
                ColumnKind::Time | ColumnKind::Tag(_) => false,
            };
            Field::new(&column.name, schema.arrow_type(column.kind), !is_dimension)
        };
        let arrow = Arc::new(Schema::new(schema.columns.iter().map(field).collect::<Vec<_>>()));
        Self { db, snapshot: Arc::new(snapshot), arrow }
    }

    /// The table of this name as the statement that is being planned sees it, for a function that shows tables of records alone.
    ///
    /// # Errors
    /// `NotFound` without it, `Conflict` for one of another kind.
    fn named(db: &Db, name: &str, function: &str) -> tidefall_types::Result<Self> {
        match snapshot_of_any(db, name)? {
            Snapshot::Records(snapshot) => Ok(Self::new(db.clone(), snapshot)),
            Snapshot::Series(_) => Err(Error::conflict(format!(
                "{function} shows tables of records, and {name} has series; CREATE TABLE ... WITH (model = 'records') makes one of records"
            ))),
        }
    }

    /// A plan that reads some of the columns of `arrow`, which are those of the table and, with `near`, the distance behind them.
    fn plan(
        &self,
        arrow: &SchemaRef,
        near: Option<Arc<Near>>,
        (projection, filters, limit): (Option<&Vec<usize>>, &[Expr], Option<usize>),
        state: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = match projection {
            Some(columns) => columns.clone(),
            None => (0..arrow.fields().len()).collect(),
        };
        let schema = near.as_ref().map_or_else(|| self.table_schema(), |near| &near.schema);
        let fields = columns.iter().filter_map(|at| match schema.columns[*at].kind {
            ColumnKind::Field(id) => Some(id),
            ColumnKind::Time | ColumnKind::Tag(_) => None,
        });
        let (regions, _) = Cover::of_all(filters, self.table_schema());
        let (fields, arrow) = (fields.collect(), Arc::new(arrow.project(&columns)?));
        let read = scan::Read { regions, fields, arrow, near };
        scan::plan(&self.snapshot, read, limit, state.config().target_partitions())
    }

    /// Whether a condition says where its rows are.
    fn support(&self, filter: &Expr) -> TableProviderFilterPushDown {
        match Cover::of(filter, self.table_schema()) {
            None => TableProviderFilterPushDown::Unsupported,
            Some(cover) if cover.is_exact => TableProviderFilterPushDown::Exact,
            Some(_) => TableProviderFilterPushDown::Inexact,
        }
    }

    /// What is read.
    fn snapshot(&self) -> &Arc<RecordsSnapshot> {
        &self.snapshot
    }

    /// The columns.
    pub(crate) fn table_schema(&self) -> &Arc<TableSchema> {
        self.snapshot.schema()
    }

    /// The boxes that conditions, which all must hold, are about, if they are about nothing else.
    pub(crate) fn exact_boxes(&self, filters: &[Expr]) -> Option<Regions> {
        let (regions, is_exact) = Cover::of_all(filters, self.table_schema());
        let [regions] = <[Regions; 1]>::try_from(regions).ok()?;
        is_exact.then_some(regions)
    }

    /// How many rows are in some boxes.
    ///
    /// # Errors
    /// Those of storage.
    pub(crate) fn count(&self, regions: &Regions) -> tidefall_types::Result<u64> {
        let mut rows = 0;
        let asked = std::slice::from_ref(regions);
        for (place, hidden) in self.snapshot.places(asked)? {
            rows += Touched::new(&place, asked, &hidden).totals(&[])?.0;
        }
        Ok(rows)
    }
}

impl std::fmt::Debug for RecordsTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let table = &self.table_schema().name;
        f.debug_struct("RecordsTable").field("table", table).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for RecordsTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.arrow)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(filters.iter().map(|filter| self.support(filter)).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.plan(&self.arrow, None, (projection, filters, limit), state)
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        insert_op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if insert_op != InsertOp::Append {
            return Err(to_datafusion(Error::unsupported(
                "INSERT OVERWRITE and REPLACE are not supported: equal records are all kept; DELETE the old rows first",
            )));
        }
        let sink = Sink::new(self.db.clone(), Arc::clone(self.table_schema()));
        Ok(Arc::new(InsertNode::new(input, Arc::new(sink))))
    }
}
