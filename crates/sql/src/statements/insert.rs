//! Times in `INSERT ... VALUES`, in all the forms in which people write them.

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{Expr, Insert, SetExpr, Statement, TableObject, Value};
use tidefall_storage::Db;
use tidefall_types::{Result, format_time, parse_time};

use super::{again, ident, table_name};

/// Replaces text in the place of the time by the one form that DataFusion reads.
///
/// # Errors
/// `Invalid` for a text that is no time, `NotFound` for a missing table.
pub(crate) fn read_insert_times(db: &Db, mut insert: Insert) -> Result<DfStatement> {
    if let TableObject::TableName(name) = &insert.table {
        let schema = db.schema(&table_name(name)?)?;
        let time = schema.time_name();
        let at = if insert.columns.is_empty() {
            schema.columns.iter().position(|column| column.name == time)
        } else {
            insert.columns.iter().position(|column| match column.0.as_slice() {
                [part] => part.as_ident().is_some_and(|name| ident(name) == time),
                _ => false,
            })
        };
        if let (Some(at), Some(source)) = (at, insert.source.as_mut())
            && let SetExpr::Values(values) = source.body.as_mut()
        {
            for row in &mut values.rows {
                if let Some(Expr::Value(value)) = row.content.get_mut(at)
                    && let Value::SingleQuotedString(text) = &mut value.value
                {
                    *text = format_time(parse_time(text)?);
                }
            }
        }
    }
    Ok(again(Statement::Insert(insert)))
}
