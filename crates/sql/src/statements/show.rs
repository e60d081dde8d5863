//! `SHOW TABLES`, `SHOW COLUMNS`, `DESCRIBE` and `SHOW CREATE TABLE`.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::compute::kernels::comparison::{ilike, like};
use datafusion::sql::sqlparser::ast::{
    Expr, SelectItem, SetExpr, ShowStatementFilter, ShowStatementFilterPosition,
    ShowStatementOptions, Statement,
};
use datafusion::sql::sqlparser::parser::Parser;
use tidefall_storage::Db;
use tidefall_types::{
    Column, ColumnKind, Error, FieldId, Result, TableKind, TableSchema, format_duration,
};

use super::{ready, table_name};
use crate::dialect::TidefallDialect;
use crate::error::from_datafusion;
use crate::layers::Layer;
use crate::query_stream::QueryStream;
use crate::schemas::READINGS;

/// A statement that is answered from the schemas.
pub(crate) enum Show {
    /// `SHOW TABLES`: name and kind of every table that is wanted.
    Tables(Option<Pattern>),
    /// `DESCRIBE t`, `SHOW COLUMNS FROM t`: name, kind and type of every column that is wanted.
    Columns(String, Option<Pattern>),
    /// `SHOW CREATE TABLE t`: the statement that creates it.
    Create(String),
}

/// What names are wanted.
pub(crate) struct Pattern {
    text: String,
    ignores_case: bool,
}

impl Pattern {
    fn matches(&self, name: &str) -> Result<bool> {
        let (name, pattern) = (StringArray::new_scalar(name), StringArray::new_scalar(&self.text));
        let matches = if self.ignores_case { ilike } else { like }(&name, &pattern);
        Ok(matches.map_err(|error| from_datafusion(error.into()))?.value(0))
    }
}

/// Reads `SHOW TABLES`.
///
/// # Errors
/// `NotFound` for a schema that is not there, `Unsupported` for what cannot be chosen by.
pub(super) fn tables(options: &ShowStatementOptions) -> Result<Show> {
    if let Some(name) = options.show_in.as_ref().and_then(|show_in| show_in.parent_name.as_ref()) {
        let schema = name.to_string();
        if schema != READINGS && Layer::of_schema(&schema).is_none() {
            return Err(Error::not_found(format!("there is no schema {schema}")));
        }
    }
    Ok(Show::Tables(pattern("TABLES", options)?))
}

/// Reads `SHOW COLUMNS FROM t`.
///
/// # Errors
/// `Invalid` without a table, `Unsupported` for what cannot be chosen by.
pub(super) fn columns(options: &ShowStatementOptions) -> Result<Show> {
    let table = options.show_in.as_ref().and_then(|show_in| show_in.parent_name.as_ref());
    let Some(table) = table else {
        return Err(Error::invalid("SHOW COLUMNS wants a table, as in SHOW COLUMNS FROM plant"));
    };
    Ok(Show::Columns(table_name(table)?, pattern("COLUMNS", options)?))
}

fn pattern(what: &str, options: &ShowStatementOptions) -> Result<Option<Pattern>> {
    let unsupported = |clause: &dyn std::fmt::Display| {
        Err(Error::unsupported(format!("SHOW {what} {clause}: write LIKE or ILIKE with a pattern")))
    };
    if options.starts_with.is_some() || options.limit.is_some() || options.limit_from.is_some() {
        return unsupported(&"with STARTS WITH or LIMIT");
    }
    let filter = match &options.filter_position {
        None => return Ok(None),
        Some(
            ShowStatementFilterPosition::Infix(filter)
            | ShowStatementFilterPosition::Suffix(filter),
        ) => filter,
    };
    let (text, ignores_case) = match filter {
        ShowStatementFilter::Like(text) | ShowStatementFilter::NoKeyword(text) => (text, false),
        ShowStatementFilter::ILike(text) => (text, true),
        ShowStatementFilter::Where(_) => return unsupported(filter),
    };
    Ok(Some(Pattern { text: text.clone(), ignores_case }))
}

fn is_wanted(pattern: &Option<Pattern>, name: &str) -> Result<bool> {
    pattern.as_ref().map_or(Ok(true), |pattern| pattern.matches(name))
}

impl Show {
    /// Answers it.
    pub(crate) fn run(self, db: &Db) -> Result<QueryStream> {
        match self {
            Self::Tables(pattern) => {
                let (mut names, mut kinds) = (Vec::new(), Vec::new());
                for table in db.tables() {
                    if is_wanted(&pattern, &table.name)? {
                        names.push(table.name.clone());
                        kinds.push(table.kind.name().to_owned());
                    }
                }
                texts([("name", names), ("kind", kinds)])
            }
            Self::Columns(table, pattern) => {
                let schema = db.schema(&table)?;
                let mut columns = Vec::new();
                for column in &schema.columns {
                    if is_wanted(&pattern, &column.name)? {
                        columns.push(column);
                    }
                }
                let texts_of = |text: &dyn Fn(&Column) -> &str| {
                    columns.iter().map(|column| text(column).to_owned()).collect()
                };
                texts([
                    ("column", texts_of(&|column| column.name.as_str())),
                    ("kind", texts_of(&|column| kind(&schema, column))),
                    ("type", texts_of(&|column| schema.sql_type(column))),
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

fn kind(schema: &TableSchema, column: &Column) -> &'static str {
    match column.kind {
        ColumnKind::Time => "time",
        ColumnKind::Tag(_) => "tag",
        ColumnKind::Field(id) if schema.dimensions.contains(&id) => "dimension",
        ColumnKind::Field(_) => "field",
    }
}

fn create_statement(schema: &TableSchema) -> String {
    let columns: Vec<String> = schema
        .columns
        .iter()
        .map(|column| format!("{} {}", quoted(&column.name), schema.sql_type(column)))
        .collect();
    let options = &schema.options;
    let retention = match options.retention_ns {
        Some(age_ns) => format!(", retention = '{}'", format_duration(age_ns)),
        None => String::new(),
    };
    if schema.kind == TableKind::Records {
        let dimension = |id: &FieldId| quoted(&schema.fields[id.index()].name);
        let index: Vec<String> = schema.dimensions.iter().map(dimension).collect();
        return format!(
            "CREATE TABLE {} ({}) WITH (model = 'records', index = '({})'{retention})",
            quoted(&schema.name),
            columns.join(", "),
            index.join(", ").replace('\'', "''"),
        );
    }
    let key: Vec<String> =
        schema.tags.iter().map(String::as_str).chain([schema.time_name()]).map(quoted).collect();
    let (kv, short) = (format_duration(options.kv_age_ns), format_duration(options.short_age_ns));
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
    match plain && reads_as_name(name) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// Whether a word is a name wherever one may stand.
fn reads_as_name(word: &str) -> bool {
    let text = format!("SELECT {word} FROM {word}; CREATE TABLE {word} ({word} DOUBLE)");
    let statements = Parser::parse_sql(&TidefallDialect, &text).unwrap_or_default();
    let [Statement::Query(query), Statement::CreateTable(create)] = statements.as_slice() else {
        return false;
    };
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    matches!(select.projection.as_slice(), [SelectItem::UnnamedExpr(Expr::Identifier(_))])
        && create.columns.len() == 1
}
