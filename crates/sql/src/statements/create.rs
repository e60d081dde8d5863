//! `CREATE TABLE`.

use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, CreateTable, CreateTableOptions, DataType, Expr, Ident, SetExpr,
    SqlOption, Statement, TableConstraint, TimezoneInfo, Value,
};
use datafusion::sql::sqlparser::parser::Parser;
use tidefall_storage::IfExists;
use tidefall_storage::record_tables::retention::time_dimension;
use tidefall_types::{
    Error, FieldType, NS_PER_DAY, Result, TableId, TableKind, TableOptions, TableSchema,
    parse_duration,
};

use super::{TableChange, table_name};
use crate::ast::plain;
use crate::dialect::TidefallDialect;

/// The kinds of columns a statement can declare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Declared {
    Time,
    Field(FieldType),
}

/// Reads the statement.
///
/// The columns of the `PRIMARY KEY` except the time are the tags. Without a key there are no tags,
/// and the first `TIMESTAMP` column is the time. Other `TIMESTAMP` columns are fields.
///
/// # Errors
/// `Invalid` for contradictions, `Unsupported` for what this version does not have.
pub(super) fn create_table(create: &CreateTable) -> Result<TableChange> {
    refuse_clauses(create)?;
    let name = table_name(&create.name)?;
    let wrong = |what: String| Error::invalid(format!("CREATE TABLE {name}: {what}"));
    let mut columns = Vec::with_capacity(create.columns.len());
    for column in &create.columns {
        let declared = declared(&column.data_type)
            .map_err(|error| error.context(format!("CREATE TABLE {name}: {}", column.name)))?;
        columns.push((plain(&column.name), declared));
    }
    let key = primary_key(create, &name)?;
    let given = read_options(&create.table_options)
        .map_err(|error| error.context(format!("CREATE TABLE {name}")))?;
    let if_exists = if create.if_not_exists { IfExists::Keep } else { IfExists::Fail };
    if given.kind == TableKind::Records {
        let schema = records(create, &name, &columns, key.as_deref(), &given)?;
        return Ok(TableChange::Create(Box::new(schema), if_exists));
    }
    let times: Vec<&str> = columns
        .iter()
        .filter(|(column, declared)| {
            *declared == Declared::Time && key.as_ref().is_none_or(|key| key.contains(column))
        })
        .map(|(column, _)| column.as_str())
        .collect();
    let time = match (times.as_slice(), &key) {
        ([time], _) | ([time, ..], None) => (*time).to_owned(),
        (all, Some(_)) => {
            return Err(wrong(format!(
                "a table has one column of type TIMESTAMP in its PRIMARY KEY, this one has {}",
                all.len()
            )));
        }
        ([], None) => {
            return Err(wrong("a table has a column of type TIMESTAMP, this one has none".into()));
        }
    };
    check_options(&create.columns, &time, &name)?;
    let tags: Vec<String> =
        key.unwrap_or_default().into_iter().filter(|column| *column != time).collect();
    let schema = build(&name, &columns, &time, &tags)?;
    if given.index.is_some() {
        return Err(wrong("index is an option of model = 'records'".into()));
    }
    let schema = TableSchema { options: given.table, ..schema };
    Ok(TableChange::Create(Box::new(schema), if_exists))
}

/// A table of records: all columns are fields, and some of them its dimensions.
fn records(
    create: &CreateTable,
    name: &str,
    columns: &[(String, Declared)],
    key: Option<&[String]>,
    given: &Given,
) -> Result<TableSchema> {
    let wrong = |what: String| Error::invalid(format!("CREATE TABLE {name}: {what}"));
    if key.is_some() {
        return Err(wrong(
            "records have no PRIMARY KEY: equal ones are all kept; index = '(a, b)' says by which columns they are asked for".into(),
        ));
    }
    if let Some(other) = &given.of_series {
        return Err(wrong(format!(
            "records have no {other}; their options are model, index and retention"
        )));
    }
    let index = given.index.as_deref().ok_or_else(|| {
        wrong("records need dimensions, as in index = '(latitude, longitude, time)'".into())
    })?;
    let mut schema = TableSchema::records(TableId(0), name);
    for (column, declared) in columns {
        schema.add_field(
            column,
            match declared {
                Declared::Time => FieldType::Timestamp,
                Declared::Field(ty) => *ty,
            },
        )?;
    }
    schema.set_dimensions(index)?;
    schema.options.retention_ns = given.table.retention_ns;
    if schema.options.retention_ns.is_some() && time_dimension(&schema).is_none() {
        let what = "retention goes by the first TIMESTAMP of the index, and there is none";
        return Err(wrong(what.into()));
    }
    for column in &create.columns {
        let is_dimension = index.contains(&plain(&column.name));
        for option in &column.options {
            match &option.option {
                ColumnOption::Null if !is_dimension => {}
                ColumnOption::NotNull if is_dimension => {}
                other => {
                    return Err(Error::unsupported(format!(
                        "CREATE TABLE {name}: {} {other}: dimensions are NOT NULL, all other columns may be NULL, and \
                         columns have no other options",
                        column.name
                    )));
                }
            }
        }
    }
    Ok(schema)
}

fn refuse_clauses(create: &CreateTable) -> Result<()> {
    let clause = if create.or_replace {
        "OR REPLACE"
    } else if create.query.is_some() {
        "AS SELECT"
    } else if create.temporary {
        "TEMPORARY"
    } else if create.external {
        "EXTERNAL"
    } else if create.like.is_some() || create.clone.is_some() {
        "LIKE"
    } else if create.partition_by.is_some() || create.partition_of.is_some() {
        "PARTITION"
    } else {
        return Ok(());
    };
    Err(Error::unsupported(format!("CREATE TABLE with {clause} is not supported")))
}

/// The names of the columns of the key, in its order.
fn primary_key(create: &CreateTable, table: &str) -> Result<Option<Vec<String>>> {
    let mut keys = Vec::new();
    for constraint in &create.constraints {
        let TableConstraint::PrimaryKey(key) = constraint else {
            return Err(Error::unsupported(format!(
                "CREATE TABLE {table}: {constraint}: only PRIMARY KEY is supported"
            )));
        };
        let columns = key.columns.iter().map(|column| match &column.column.expr {
            Expr::Identifier(name) => Ok(plain(name)),
            other => Err(Error::invalid(format!("PRIMARY KEY: {other} is not a column"))),
        });
        keys.push(columns.collect::<Result<Vec<_>>>()?);
    }
    let inline = create.columns.iter().filter(|column| {
        column.options.iter().any(|option| matches!(option.option, ColumnOption::PrimaryKey(_)))
    });
    keys.extend(inline.map(|column| vec![plain(&column.name)]));
    if keys.len() > 1 {
        return Err(Error::invalid(format!(
            "CREATE TABLE {table}: there are {} primary keys; write one PRIMARY KEY (tags, time)",
            keys.len()
        )));
    }
    Ok(keys.pop())
}

fn check_options(columns: &[ColumnDef], time: &str, table: &str) -> Result<()> {
    for column in columns {
        for option in &column.options {
            match &option.option {
                ColumnOption::Null | ColumnOption::PrimaryKey(_) => {}
                ColumnOption::NotNull if plain(&column.name) == time => {}
                other => {
                    return Err(Error::unsupported(format!(
                        "CREATE TABLE {table}: {} {other}: only the time is NOT NULL, and \
                         columns have no other options",
                        column.name
                    )));
                }
            }
        }
    }
    Ok(())
}

fn build(
    table: &str,
    columns: &[(String, Declared)],
    time: &str,
    tags: &[String],
) -> Result<TableSchema> {
    let wrong = |what: String| Error::invalid(format!("CREATE TABLE {table}: {what}"));
    for (at, (column, _)) in columns.iter().enumerate() {
        if columns[..at].iter().any(|(earlier, _)| earlier == column) {
            return Err(wrong(format!("the column {column} is declared twice")));
        }
    }
    let mut schema = TableSchema::new(TableId(0), table, time);
    for tag in tags {
        match columns.iter().find(|(column, _)| column == tag) {
            Some((_, Declared::Field(FieldType::Text))) => {}
            Some(_) => {
                return Err(wrong(format!("{tag} is in the PRIMARY KEY, so it must be TEXT")));
            }
            None => return Err(wrong(format!("there is no column {tag} for the PRIMARY KEY"))),
        }
        schema.add_tag(tag)?;
    }
    for (column, declared) in columns {
        match declared {
            Declared::Field(_) if tags.contains(column) => {}
            Declared::Field(ty) => {
                schema.add_field(column, *ty)?;
            }
            Declared::Time if column == time => {}
            Declared::Time => {
                schema.add_field(column, FieldType::Timestamp)?;
            }
        }
    }
    // Tags are numbered as in the key, by which rows are ordered; columns stand as declared.
    schema.columns.sort_by_key(|column| columns.iter().position(|(name, _)| *name == column.name));
    Ok(schema)
}

pub(super) fn declared(data_type: &DataType) -> Result<Declared> {
    let ty = match data_type {
        DataType::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone)
        | DataType::Datetime(_) => return Ok(Declared::Time),
        DataType::TinyInt(_) => FieldType::I8,
        DataType::SmallInt(_) | DataType::Int2(_) | DataType::Int16 => FieldType::I16,
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) | DataType::Int32 => {
            FieldType::I32
        }
        DataType::BigInt(_) | DataType::Int8(_) | DataType::Int64 => FieldType::I64,
        DataType::TinyIntUnsigned(_) | DataType::UTinyInt | DataType::UInt8 => FieldType::U8,
        DataType::SmallIntUnsigned(_)
        | DataType::USmallInt
        | DataType::UInt16
        | DataType::Int2Unsigned(_) => FieldType::U16,
        DataType::IntUnsigned(_)
        | DataType::IntegerUnsigned(_)
        | DataType::UInt32
        | DataType::Int4Unsigned(_) => FieldType::U32,
        DataType::BigIntUnsigned(_)
        | DataType::UBigInt
        | DataType::UInt64
        | DataType::Int8Unsigned(_) => FieldType::U64,
        DataType::Real | DataType::Float4 | DataType::Float32 | DataType::Float(_) => {
            FieldType::F32
        }
        DataType::Double(_) | DataType::DoublePrecision | DataType::Float8 | DataType::Float64 => {
            FieldType::F64
        }
        DataType::Bool | DataType::Boolean => FieldType::Bool,
        DataType::Text
        | DataType::String(_)
        | DataType::Varchar(_)
        | DataType::CharacterVarying(_)
        | DataType::Char(_)
        | DataType::Character(_) => FieldType::Text,
        other => {
            return Err(Error::unsupported(format!(
                "the type {other} is not supported; take TIMESTAMP, TEXT, BOOLEAN, TINYINT to \
                 BIGINT, their UNSIGNED forms, REAL or DOUBLE"
            )));
        }
    };
    Ok(Declared::Field(ty))
}

/// What `WITH` says.
#[derive(Debug, Default)]
struct Given {
    kind: TableKind,
    table: TableOptions,
    /// The columns of the index.
    index: Option<Vec<String>>,
    /// An option that series tables alone have.
    of_series: Option<String>,
}

fn read_options(options: &CreateTableOptions) -> Result<Given> {
    let given: &[SqlOption] = match options {
        CreateTableOptions::None => &[],
        CreateTableOptions::With(given) => given,
        _ => {
            return Err(Error::invalid("write the table's options as WITH (name = 'value', ...)"));
        }
    };
    let mut read = Given::default();
    for option in given {
        let SqlOption::KeyValue { key, value } = option else {
            return Err(Error::invalid(format!("{option} is not an option: write name = 'value'")));
        };
        let text = option_text(key, value)?;
        let name = plain(key);
        match name.as_str() {
            "cascade" => read_cascade(&text, &mut read.table)?,
            "block" => read.table.block_ns = read_block(&text)?,
            "retention" => read.table.retention_ns = Some(read_age("retention", &text)?),
            "index" => read.index = Some(read_index(&text)?),
            "model" => {
                read.kind = TableKind::from_name(&text).ok_or_else(|| {
                    Error::unsupported(format!(
                        "model = '{text}': this version has the models 'series' and 'records'; others come in a later version"
                    ))
                })?;
            }
            other => {
                return Err(Error::invalid(format!(
                    "there is no option {other}; the options are cascade, block, retention, index and \
                     model"
                )));
            }
        }
        if matches!(name.as_str(), "cascade" | "block") {
            read.of_series = Some(name);
        }
    }
    Ok(read)
}

/// Reads `(a, b)`: names of columns, as they would stand in a statement.
fn read_index(text: &str) -> Result<Vec<String>> {
    let wrong = || {
        Error::invalid(format!("index = '{text}': write the columns as in '(latitude, longitude)'"))
    };
    let statement = format!("SELECT 1 FROM t WHERE 1 IN {text}");
    let parsed = Parser::parse_sql(&TidefallDialect, &statement).map_err(|_| wrong())?;
    let [Statement::Query(query)] = parsed.as_slice() else { return Err(wrong()) };
    let SetExpr::Select(select) = query.body.as_ref() else { return Err(wrong()) };
    let Some(Expr::InList { list, .. }) = &select.selection else { return Err(wrong()) };
    let name = |column: &Expr| match column {
        Expr::Identifier(name) => Ok(plain(name)),
        _ => Err(wrong()),
    };
    list.iter().map(name).collect()
}

fn option_text(key: &Ident, value: &Expr) -> Result<String> {
    match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => Ok(text.clone()),
            other => Err(Error::invalid(format!("{key} = {other}: write the value as text"))),
        },
        other => Err(Error::invalid(format!("{key} = {other}: write the value as text"))),
    }
}

fn read_age(option: &str, text: &str) -> Result<i64> {
    let age_ns = parse_duration(text).map_err(|error| error.context(option))?;
    if age_ns == 0 {
        return Err(Error::invalid(format!("{option} = '{text}': must be longer than nothing")));
    }
    Ok(age_ns)
}

fn read_block(text: &str) -> Result<i64> {
    let block_ns = read_age("block", text)?;
    if NS_PER_DAY % block_ns != 0 {
        return Err(Error::invalid(format!(
            "block = '{text}': must divide a day, as 10m, 1h or 6h do, because data moves by days"
        )));
    }
    Ok(block_ns)
}

/// Reads `kv 1d, short 30d, long`. A model that is left out holds nothing.
fn read_cascade(text: &str, options: &mut TableOptions) -> Result<()> {
    let wrong = |why: &str| {
        Error::invalid(format!(
            "cascade = '{text}': {why}; write it as in 'kv 1d, short 30d, long'"
        ))
    };
    let mut steps = text.split(',').map(str::trim).peekable();
    let mut age = |model: &str| -> Result<Option<i64>> {
        match steps.peek().and_then(|step| step.strip_prefix(model)) {
            Some(age) => {
                let age = read_age("cascade", age)?;
                steps.next();
                Ok(Some(age))
            }
            None => Ok(None),
        }
    };
    let Some(kv_age_ns) = age("kv ")? else { return Err(wrong("kv comes first")) };
    let short_age_ns = age("short ")?.unwrap_or(kv_age_ns);
    if steps.next() != Some("long") || steps.next().is_some() {
        return Err(wrong("long comes last, without an age"));
    }
    if short_age_ns < kv_age_ns {
        return Err(wrong("short must hold older data than kv"));
    }
    options.kv_age_ns = kv_age_ns;
    options.short_age_ns = short_age_ns;
    Ok(())
}
