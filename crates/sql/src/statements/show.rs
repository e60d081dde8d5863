//! `SHOW TABLES`, `DESCRIBE` and `SHOW CREATE TABLE`.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use tidefall_storage::Db;
use tidefall_types::{Column, ColumnKind, Result, TableSchema, format_duration};

use super::ready;
use crate::session::QueryStream;

/// A statement that is answered from the schemas.
pub(crate) enum Show {
    /// `SHOW TABLES`: name and kind of every table.
    Tables,
    /// `DESCRIBE t`: name, kind and type of every column.
    Columns(String),
    /// `SHOW CREATE TABLE t`: the statement that creates it.
    Create(String),
}

impl Show {
    /// Answers it.
    pub(crate) fn run(self, db: &Db) -> Result<QueryStream> {
        match self {
            Self::Tables => {
                let mut names: Vec<String> =
                    db.tables().iter().map(|table| table.name.clone()).collect();
                names.sort_unstable();
                let kinds = names.iter().map(|_| "series".to_owned()).collect();
                texts([("name", names), ("kind", kinds)])
            }
            Self::Columns(table) => {
                let schema = db.schema(&table)?;
                let columns = schema.columns.iter();
                texts([
                    ("column", columns.clone().map(|column| column.name.clone()).collect()),
                    ("kind", columns.clone().map(|column| kind(column).to_owned()).collect()),
                    ("type", columns.map(|column| sql_type(&schema, column).to_owned()).collect()),
                ])
            }
            Self::Create(table) => {
                let schema = db.schema(&table)?;
                texts([
                    ("name", vec![schema.name.clone()]),
                    ("statement", vec![create_statement(&schema)]),
                ])
            }
        }
    }
}

fn texts<const N: usize>(columns: [(&str, Vec<String>); N]) -> Result<QueryStream> {
    ready(RecordBatch::try_from_iter(columns.map(|(name, values)| {
        let values: ArrayRef = Arc::new(StringArray::from(values));
        (name, values)
    })))
}

fn kind(column: &Column) -> &'static str {
    match column.kind {
        ColumnKind::Time => "time",
        ColumnKind::Tag(_) => "tag",
        ColumnKind::Field(_) => "field",
    }
}

fn sql_type(schema: &TableSchema, column: &Column) -> &'static str {
    match column.kind {
        ColumnKind::Time => "TIMESTAMP",
        ColumnKind::Tag(_) => "TEXT",
        ColumnKind::Field(id) => schema.fields[id.index()].ty.sql_name(),
    }
}

fn create_statement(schema: &TableSchema) -> String {
    let columns: Vec<String> = schema
        .columns
        .iter()
        .map(|column| format!("{} {}", quoted(&column.name), sql_type(schema, column)))
        .collect();
    let key: Vec<String> =
        schema.tags.iter().map(String::as_str).chain([schema.time_name()]).map(quoted).collect();
    let options = &schema.options;
    let (kv, short) = (format_duration(options.kv_age_ns), format_duration(options.short_age_ns));
    let retention = match options.retention_ns {
        Some(age_ns) => format!(", retention = '{}'", format_duration(age_ns)),
        None => String::new(),
    };
    format!(
        "CREATE TABLE {} ({}, PRIMARY KEY ({})) WITH (cascade = 'kv {kv}, short {short}, long', \
         block = '{}'{retention})",
        quoted(&schema.name),
        columns.join(", "),
        key.join(", "),
        format_duration(options.block_ns),
    )
}

/// A name as it must be written in a statement: with quotes unless it reads the same without.
fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
