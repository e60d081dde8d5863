//! The tables and columns that writes lack, which are made before their rows are written: those of many writes by one
//! commit of the manifest, which costs the same for all of them as for one.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, MutexGuard, PoisonError};

use tidefall_types::{Error, FieldType, Result, TableId, TableSchema, WriteBatch};

use crate::Db;
use crate::engine::Engine;
use crate::ingest::sensors_of_rows;
use crate::manifest::log::ManifestLog;
use crate::manifest::{Edit, State};
use crate::options::{Ack, Existing, Unknown, WriteOptions};
use crate::table::Table;
use crate::write::{find_sensors, refuse_repeats};

impl Db {
    /// Makes what tables and columns these writes, which are about to come one after the other with the same options,
    /// lack, all at once. One that will be refused gets no table for that; it is told so when it comes.
    ///
    /// # Errors
    /// `Io` and `Full` from the disk, and `Closed`; nothing is made then.
    pub fn prepare(&self, writes: &[(&str, &WriteBatch)], options: &WriteOptions) -> Result<()> {
        let _step = self.begin()?;
        if options.unknown == Unknown::Refuse {
            return Ok(());
        }
        let engine = self.engine();
        let mut wanted = Vec::new();
        // A malformed one is refused before it gets anything.
        for &(name, batch) in writes.iter().filter(|(_, batch)| batch.check().is_ok()) {
            let table = engine.table(name).ok();
            let lacks = table.as_ref().is_none_or(|table| lacks_columns(&table.schema(), batch));
            if lacks && self.check_before(name, table.as_ref(), batch, options).is_ok() {
                wanted.push((name, batch, table));
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let mut making = Making::begin(engine);
        for (name, batch, table) in wanted {
            if let Err(error) = making.add(name, batch, table) {
                tracing::debug!(table = name, %error, "a write gets no columns before it comes");
            }
        }
        making.commit()
    }

    /// The table with all columns that the batch needs.
    pub(crate) fn table_for(
        &self,
        name: &str,
        batch: &WriteBatch,
        options: &WriteOptions,
    ) -> Result<Arc<Table>> {
        let engine = self.engine();
        let table = match engine.table(name) {
            Ok(table) => {
                table.check_whole()?;
                if options.unknown == Unknown::Refuse || !lacks_columns(&table.schema(), batch) {
                    return Ok(table);
                }
                Some(table)
            }
            Err(error) if options.unknown == Unknown::Refuse => return Err(error),
            Err(_) => None,
        };
        self.check_before(name, table.as_ref(), batch, options)?;
        let mut making = Making::begin(engine);
        making.add(name, batch, table)?;
        making.commit()?;
        engine.table(name)
    }

    /// Checks that a write which lacks its table or columns of it is not refused, which would leave them behind.
    fn check_before(
        &self,
        name: &str,
        table: Option<&Arc<Table>>,
        batch: &WriteBatch,
        options: &WriteOptions,
    ) -> Result<()> {
        let schema = match table {
            None => first_schema(name, batch)?,
            Some(table) => {
                let mut schema = (*table.schema()).clone();
                add_columns_of(batch, &mut schema)?;
                schema
            }
        };
        let made = Table::new(schema);
        let (batch, fields) = self.fit(&made, batch, options, &mut Vec::new())?;
        if options.ack == Ack::Durable {
            self.check_texts(&made, &fields)?;
        }
        if options.existing == Existing::Refuse {
            match table {
                None => refuse_repeats(&made, &batch, &find_sensors(&made, &batch)?)?,
                Some(table) => {
                    refuse_repeats(table, &batch, &known_sensors(table, &made.schema(), &batch)?)?;
                }
            }
        }
        Ok(())
    }
}

/// The sensor of each row as the table knows it, which lacks tags that a schema has behind its own; numbers that it has
/// not given out stand for others.
fn known_sensors(table: &Table, schema: &TableSchema, batch: &WriteBatch) -> Result<Vec<u32>> {
    let sensors = table.sensors.read().unwrap_or_else(PoisonError::into_inner);
    let tags = table.schema().tags.len();
    let mut unknown = u32::MAX;
    let found = sensors_of_rows(schema, batch, |values| {
        let (known, new) = values.split_at(tags.min(values.len()));
        let found = if new.iter().all(Option::is_none) { sensors.find(known) } else { None };
        Ok(Some(found.unwrap_or_else(|| {
            unknown -= 1;
            unknown
        })))
    })?;
    found.ok_or_else(|| Error::internal("a sensor was not numbered"))
}

/// Tables and columns that one commit makes. Nobody else changes the manifest meanwhile.
struct Making<'a> {
    engine: &'a Engine,
    manifest: MutexGuard<'a, ManifestLog<State>>,
    tables: BTreeMap<String, Made>,
}

/// A table as it will be.
struct Made {
    /// As it is, if it is there.
    table: Option<Arc<Table>>,
    schema: TableSchema,
}

impl<'a> Making<'a> {
    fn begin(engine: &'a Engine) -> Self {
        Self { engine, manifest: engine.manifest(), tables: BTreeMap::new() }
    }

    /// Adds what a batch needs for the table that its write has found, or else for one that it makes.
    fn add(&mut self, name: &str, batch: &WriteBatch, table: Option<Arc<Table>>) -> Result<()> {
        if let Some(made) = self.tables.get_mut(name) {
            return add_columns_of(batch, &mut made.schema);
        }
        // Another write may have made it meanwhile.
        let made = match table.or_else(|| self.engine.table(name).ok()) {
            None => Made { table: None, schema: first_schema(name, batch)? },
            Some(table) => {
                table.check_whole()?;
                if !self.manifest.state().tables.contains_key(&table.id) {
                    return Err(Error::not_found(format!(
                        "table {name} was dropped during a write to it; send it again"
                    )));
                }
                let mut schema = (*table.schema()).clone();
                add_columns_of(batch, &mut schema)?;
                Made { table: Some(table), schema }
            }
        };
        self.tables.insert(name.to_owned(), made);
        Ok(())
    }

    /// Makes all of it durable, and shows it.
    fn commit(mut self) -> Result<()> {
        let new = self.tables.values_mut().filter(|made| made.table.is_none());
        for (made, id) in new.zip(self.manifest.state().next_table..) {
            made.schema.id = TableId(id);
        }
        let edits: Vec<Edit> =
            self.tables.values().map(|made| Edit::PutTable(made.schema.clone())).collect();
        self.engine.commit(&mut self.manifest, &edits)?;
        for Made { table, schema } in self.tables.into_values() {
            let Some(table) = table else {
                self.engine.show_table(Arc::new(Table::new(schema)));
                continue;
            };
            let tags = schema.tags.len();
            table.sensors.write().unwrap_or_else(PoisonError::into_inner).add_tags(tags);
            *table.schema.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(schema);
        }
        Ok(())
    }
}

/// The schema of a table that is made by its first write.
fn first_schema(name: &str, batch: &WriteBatch) -> Result<TableSchema> {
    if name.is_empty() {
        return Err(Error::invalid("a table needs a name"));
    }
    let mut schema = TableSchema::new(TableId::default(), name, time_name(batch));
    add_columns_of(batch, &mut schema)?;
    Ok(schema)
}

/// The name of the time column of a table that is made by its first write: `time`, behind as many underscores as make
/// it one that no column of the batch has.
fn time_name(batch: &WriteBatch) -> String {
    let tags = batch.tags.iter().map(|tag| tag.name.as_str());
    let taken: HashSet<&str> =
        tags.chain(batch.fields.iter().map(|field| field.name.as_str())).collect();
    let mut name = "time".to_owned();
    while taken.contains(name.as_str()) {
        name.insert(0, '_');
    }
    name
}

/// Adds the tags and fields of a batch that a schema lacks.
fn add_columns_of(batch: &WriteBatch, schema: &mut TableSchema) -> Result<()> {
    for tag in &batch.tags {
        if schema.column(&tag.name).is_none() {
            schema.add_tag(&tag.name)?;
        }
    }
    for field in &batch.fields {
        if schema.column(&field.name).is_none() {
            let ty = FieldType::from_arrow(field.values.data_type()).ok_or_else(|| {
                Error::invalid(format!(
                    "field {:?}: values of type {} cannot be stored",
                    field.name,
                    field.values.data_type()
                ))
            })?;
            schema.add_field(&field.name, ty)?;
        }
    }
    Ok(())
}

/// Whether a batch has columns that the table does not have.
pub(crate) fn lacks_columns(schema: &TableSchema, batch: &WriteBatch) -> bool {
    let tags = batch.tags.iter().map(|tag| &tag.name);
    let fields = batch.fields.iter().map(|field| &field.name);
    tags.chain(fields).any(|name| schema.column(name).is_none())
}
