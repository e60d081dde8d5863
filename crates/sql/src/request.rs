//! What rows are read of a table, said without a look at where they lie.
//!
//! Whoever has the rows can answer a request: its conditions are about tags, times and values, not about the numbers of sensors, and its
//! columns are told by ids, with the types that they had when it was made. [`Request::resolve`] finds the sensors where the rows are.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use tidefall_types::{ColumnKind, Error, FieldId, Seq, TableId, TimeRange};

use crate::error::to_datafusion;
use crate::pushdown::{Conditions, select_sensors};
use crate::view::View;

/// A read of rows.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The table.
    pub(crate) table: TableId,
    /// The place among the writes up to which it was seen when it was asked about: who answers shows no less.
    pub(crate) applied: Seq,
    /// Which rows are wanted; where they are not exact, others may come, too.
    pub(crate) conditions: Conditions,
    /// The wanted columns, ...
    pub(crate) columns: Vec<ColumnKind>,
    /// ... under which names, and of which types.
    pub(crate) arrow: SchemaRef,
    /// Rows that are enough.
    pub(crate) limit: Option<usize>,
}

impl Request {
    /// A request for some columns of what a view shows, by their places in its table.
    pub(crate) fn new(
        view: &View,
        conditions: Conditions,
        columns: &[usize],
        limit: Option<usize>,
    ) -> Result<Self> {
        let schema = view.schema();
        Ok(Self {
            table: schema.id,
            applied: view.snapshot().applied(),
            conditions,
            columns: columns.iter().map(|&at| schema.columns[at].kind).collect(),
            arrow: Arc::new(view.arrow().project(columns)?),
            limit,
        })
    }

    /// The times that it is about.
    pub(crate) fn time(&self) -> TimeRange {
        self.conditions.time
    }

    /// The wanted fields, in the order of their columns.
    pub(crate) fn fields(&self) -> Vec<FieldId> {
        let field = |kind: &ColumnKind| match kind {
            ColumnKind::Field(id) => Some(*id),
            _ => None,
        };
        self.columns.iter().filter_map(field).collect()
    }

    /// The sensors of a view that it is about, ordered by their tags.
    ///
    /// # Errors
    /// `Conflict` when the view is of another table or an earlier moment, or a column has another type there.
    pub(crate) fn resolve(&self, view: &View) -> Result<Vec<u32>> {
        let schema = view.schema();
        let shown = |kind: &ColumnKind| schema.columns.iter().any(|column| column.kind == *kind);
        let columns = self.columns.iter().zip(self.arrow.fields());
        let other = columns
            .into_iter()
            .find(|(kind, field)| !shown(kind) || schema.arrow_type(**kind) != *field.data_type());
        if view.snapshot().applied() < self.applied {
            return Err(to_datafusion(Error::conflict(format!(
                "table {} is shown as it was before it was asked about; ask again",
                schema.name
            ))));
        }
        if schema.id != self.table || other.is_some() {
            let column = other.map(|(_, field)| format!(", column {}", field.name()));
            return Err(to_datafusion(Error::conflict(format!(
                "table {} has changed{} since the statement was planned; run it again",
                schema.name,
                column.unwrap_or_default()
            ))));
        }
        select_sensors(view, &self.conditions)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::physical_plan::collect;
    use datafusion::prelude::{SessionContext, col, lit};
    use tidefall_storage::{Db, DbOptions, Rewriting};
    use tidefall_types::{ErrorKind, FieldType};

    use super::*;
    use crate::error::from_datafusion;
    use crate::{Session, scan};

    fn view(db: &Db) -> Arc<View> {
        Arc::new(View::new(db.snapshot("t").expect("a snapshot")))
    }

    /// What one process asks, another one answers that follows it.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_request_is_answered_where_the_rows_are() {
        let directory = tempfile::tempdir().expect("a directory");
        let db = Db::open(directory.path(), DbOptions::default()).expect("a database");
        let session = Session::new(db.clone());
        let made = "CREATE TABLE t (time TIMESTAMP, host TEXT, v DOUBLE, n BIGINT, PRIMARY KEY (host, time));
             INSERT INTO t VALUES ('2024-01-01', 'a', 1.0, 1), ('2024-01-02', 'b', 2.0, 2), ('2024-01-03', 'b', 3.0, 3)";
        session.collect(made).await.expect("a table");
        let elsewhere =
            Db::open_read_only(directory.path(), DbOptions::default()).expect("a follower");
        session.collect("INSERT INTO t VALUES ('2024-01-04', 'b', 4.0, 4)").await.expect("a row");

        let context = SessionContext::new().task_ctx();
        let schema = view(&db);
        let condition = col("host").eq(lit("b"));
        let conditions = Conditions::of([&condition], schema.schema());
        let request = Request::new(&schema, conditions, &[0, 2], None).expect("a request");

        // It was asked of a later moment than the follower knows.
        let early = request.resolve(&view(&elsewhere)).expect_err("a row is missing");
        assert_eq!(from_datafusion(early).kind(), ErrorKind::Conflict);
        elsewhere.refresh().expect("the same state");
        let mut answers = Vec::new();
        for db in [&db, &elsewhere] {
            let plan = scan::plan(&view(db), request.clone(), 2).expect("a plan");
            answers.push(collect(plan, Arc::clone(&context)).await.expect("rows"));
        }
        assert_eq!(answers[0].iter().map(|batch| batch.num_rows()).sum::<usize>(), 3);
        assert_eq!(answers[0], answers[1]);

        let types = [("v".to_owned(), FieldType::F32)];
        db.retype("t", &types, Rewriting::All).expect("another type");
        let other = request.resolve(&view(&db)).expect_err("another type");
        assert!(from_datafusion(other).message().contains("column v"));
    }
}
