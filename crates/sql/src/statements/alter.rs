//! `ALTER TABLE`.

use datafusion::sql::sqlparser::ast::{AlterColumnOperation, AlterTable, AlterTableOperation};
use tidefall_types::{Error, FieldType, Result};

use super::create::{Declared, declared};
use super::{TableChange, table_name};
use crate::ast::plain;

/// Reads the statement: columns that get other types.
///
/// # Errors
/// `Unsupported` for all else.
pub(super) fn alter_table(alter: &AlterTable) -> Result<TableChange> {
    let table = table_name(&alter.name)?;
    let mut types = Vec::with_capacity(alter.operations.len());
    for operation in &alter.operations {
        let retyped = retyped(operation)
            .map_err(|error| error.context(format!("ALTER TABLE {table}: {operation}")))?;
        types.push(retyped);
    }
    Ok(TableChange::Retype { table, types, if_exists: alter.if_exists })
}

fn retyped(operation: &AlterTableOperation) -> Result<(String, FieldType)> {
    let AlterTableOperation::AlterColumn { column_name, op } = operation else {
        return Err(Error::unsupported(
            "only ALTER COLUMN ... TYPE ... is supported; line protocol, imports and Python add columns by themselves",
        ));
    };
    let AlterColumnOperation::SetDataType { data_type, using: None, .. } = op else {
        return Err(Error::unsupported("only TYPE ... is supported, without USING"));
    };
    let ty = match declared(data_type)? {
        Declared::Time => FieldType::Timestamp,
        Declared::Field(ty) => ty,
    };
    Ok((plain(column_name), ty))
}
