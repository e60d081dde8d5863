//! Statements that DataFusion does not run: those that define, change or describe tables.

mod alter;
mod create;
mod delete;
mod insert;
mod show;

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::parser::ResetStatement;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Insert, ObjectName, ObjectType, Set, ShowCreateObject, Statement, visit_statements,
};
use tidefall_storage::{Db, IfExists, Rewriting};
use tidefall_types::{Error, ErrorKind, FieldType, Result, TableKind, TableSchema};

use crate::ast::plain;
use crate::blocking::blocking;
use crate::error::from_datafusion;
use crate::query_stream::QueryStream;
use crate::schemas::{CATALOG, READINGS};
use crate::settings;

pub(crate) use delete::delete;
pub(crate) use insert::plan_insert;
pub(crate) use show::Show;

/// What is to be done for a statement.
pub(crate) enum Action {
    /// Create or drop tables.
    Table(TableChange),
    /// Answer from the schemas.
    Show(Show),
    /// Delete rows.
    Delete(DfStatement),
    /// Change a setting.
    Set(DfStatement),
    /// Run a plan.
    Planned(Planned),
}

/// What there is a plan for.
pub(crate) enum Planned {
    /// Insert rows.
    Insert(Box<Insert>),
    /// What DataFusion plans as it is.
    Plain(DfStatement),
}

impl Action {
    /// What there is a plan for, if there is.
    pub(crate) fn planned(self) -> Option<Planned> {
        match self {
            Self::Planned(planned) => Some(planned),
            _ => None,
        }
    }

    fn plain(statement: DfStatement) -> Self {
        Self::Planned(Planned::Plain(statement))
    }
}

/// A change to tables.
pub(crate) enum TableChange {
    /// `CREATE TABLE`.
    Create(Box<TableSchema>, IfExists),
    /// `DROP TABLE`.
    Drop {
        /// The tables.
        names: Vec<String>,
        /// Whether missing ones are left out silently.
        if_exists: bool,
    },
    /// `ALTER TABLE`: fields get other types.
    Retype {
        /// The table.
        table: String,
        /// The fields and their types.
        types: Vec<(String, FieldType)>,
        /// Whether nothing is done without the table.
        if_exists: bool,
    },
}

/// Finds out what is to be done.
///
/// # Errors
/// `Unsupported` for statements that Tidefall does not have, `Invalid` for wrong ones.
pub(crate) fn action(statement: DfStatement) -> Result<Action> {
    let inner = match statement {
        DfStatement::Statement(inner) => *inner,
        DfStatement::Explain(ref explain) => {
            if let DfStatement::Statement(inner) = &*explain.statement
                && let Statement::Insert(_) | Statement::Delete(_) = &**inner
            {
                return Err(Error::unsupported(
                    "EXPLAIN has nothing to say of INSERT and DELETE; try a SELECT with the same rows",
                ));
            }
            return Ok(Action::plain(statement));
        }
        DfStatement::Reset(ResetStatement::Variable(ref name)) => {
            settings::check_free(&name.to_string())?;
            return Ok(Action::Set(statement));
        }
        DfStatement::CreateExternalTable(_) => return Err(unsupported("CREATE EXTERNAL TABLE")),
        DfStatement::CopyTo(_) => return Err(unsupported("COPY")),
    };
    Ok(match inner {
        Statement::CreateTable(create) => Action::Table(create::create_table(&create)?),
        Statement::AlterTable(alter) => Action::Table(alter::alter_table(&alter)?),
        Statement::Drop { object_type: ObjectType::Table, if_exists, names, .. } => {
            let names = names.iter().map(table_name).collect::<Result<_>>()?;
            Action::Table(TableChange::Drop { names, if_exists })
        }
        Statement::ShowTables { show_options, .. } => Action::Show(show::tables(&show_options)?),
        Statement::ShowColumns { show_options, .. } => Action::Show(show::columns(&show_options)?),
        Statement::ExplainTable { table_name: name, .. } => {
            Action::Show(Show::Columns(table_name(&name)?, None))
        }
        Statement::ShowCreate { obj_type: ShowCreateObject::Table, obj_name } => {
            Action::Show(Show::Create(table_name(&obj_name)?))
        }
        Statement::Insert(insert) => Action::Planned(Planned::Insert(Box::new(insert))),
        Statement::Delete(_) => Action::Delete(again(inner)),
        Statement::Set(Set::SingleAssignment { ref variable, ref values, .. }) => {
            settings::check_free(&variable.to_string())?;
            settings::check_zone(&variable.to_string(), values)?;
            Action::Set(again(settings::read_switch(inner)))
        }
        Statement::Query(_)
        | Statement::Explain { .. }
        | Statement::ShowVariable { .. }
        | Statement::ShowFunctions { .. } => Action::plain(again(inner)),
        other => return Err(unsupported(&first_words(&other.to_string()))),
    })
}

/// Whether a statement, with those within it, changes nothing that outlives its session.
pub(crate) fn is_read_only(statement: &DfStatement) -> bool {
    let inner = match statement {
        DfStatement::Statement(inner) => inner,
        DfStatement::Explain(explain) => return is_read_only(&explain.statement),
        DfStatement::Reset(_) => return true,
        DfStatement::CreateExternalTable(_) | DfStatement::CopyTo(_) => return false,
    };
    let only_reads = |statement: &Statement| match statement {
        Statement::Query(_)
        | Statement::Explain { .. }
        | Statement::ExplainTable { .. }
        | Statement::ShowTables { .. }
        | Statement::ShowCreate { .. }
        | Statement::ShowVariable { .. }
        | Statement::ShowColumns { .. }
        | Statement::ShowFunctions { .. }
        | Statement::Set(_) => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    };
    visit_statements(&**inner, only_reads).is_continue()
}

fn again(statement: Statement) -> DfStatement {
    DfStatement::Statement(Box::new(statement))
}

fn unsupported(what: &str) -> Error {
    Error::unsupported(format!("{what} is not supported; see docs/sql.md for the statements"))
}

fn first_words(text: &str) -> String {
    text.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

impl TableChange {
    /// Makes the change.
    pub(crate) async fn run(self, db: &Db) -> Result<QueryStream> {
        let db = db.clone();
        blocking(move || match self {
            Self::Create(schema, if_exists) => {
                let is_there = if_exists == IfExists::Keep && db.schema(&schema.name).is_ok();
                db.create_table(&schema, if_exists)?;
                match is_there {
                    true => status(&format!("table {} exists already", schema.name)),
                    false => status(&format!("table {} created", schema.name)),
                }
            }
            Self::Drop { names, if_exists } => {
                let mut dropped = Vec::new();
                for name in names {
                    if !if_exists || db.schema(&name).is_ok() {
                        db.drop_table(&name)?;
                        dropped.push(name);
                    }
                }
                match dropped.is_empty() {
                    true => status("there is no such table"),
                    false => status(&format!("table {} dropped", dropped.join(", "))),
                }
            }
            Self::Retype { table, if_exists: true, .. }
                if db.schema(&table).is_err_and(|error| error.kind() == ErrorKind::NotFound) =>
            {
                status("there is no such table")
            }
            Self::Retype { table, types, .. } => {
                if db.schema(&table)?.kind == TableKind::Records {
                    return Err(Error::unsupported(format!(
                        "the columns of {table}, a table of records, keep their types; make another table and INSERT INTO it SELECT ... FROM {table}"
                    )));
                }
                db.retype(&table, &types, Rewriting::All)?;
                status(&format!("table {table} altered"))
            }
        })
        .await
    }
}

/// The name of a table, which may stand in the schema of readings.
fn table_name(name: &ObjectName) -> Result<String> {
    let parts = name.0.iter().map(|part| part.as_ident().map(plain)).collect::<Option<Vec<_>>>();
    match parts.as_deref() {
        Some([table]) => Ok(table.clone()),
        Some([schema, table]) if schema == READINGS => Ok(table.clone()),
        Some([catalog, schema, table]) if catalog == CATALOG && schema == READINGS => {
            Ok(table.clone())
        }
        _ => Err(Error::not_found(format!(
            "{name}: tables are in the schema {READINGS}; write the table's name alone"
        ))),
    }
}

/// An answer of one row that says what was done.
pub(crate) fn status(text: &str) -> Result<QueryStream> {
    let column: ArrayRef = Arc::new(StringArray::from(vec![text]));
    ready(RecordBatch::try_from_iter([("status", column)]))
}

/// An answer of one batch.
fn ready(
    batch: std::result::Result<RecordBatch, datafusion::arrow::error::ArrowError>,
) -> Result<QueryStream> {
    let batch = batch.map_err(|error| from_datafusion(error.into()))?;
    let schema: SchemaRef = batch.schema();
    let stream = futures::stream::iter([Ok(batch)]);
    Ok(QueryStream::ready(Box::pin(RecordBatchStreamAdapter::new(schema, stream))))
}
