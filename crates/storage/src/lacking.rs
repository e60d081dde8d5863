//! The tables and columns that writes lack, which are made before their rows are written: those of many writes by one
//! commit of the manifest, which costs the same for all of them as for one.

use std::collections::{BTreeMap, HashMap, HashSet};

use arrow_array::ArrayRef;
use tidefall_ground::manifest::log::ManifestLog;
use tidefall_ground::manifest::{Edit, State};
use tidefall_series::Table;
use tidefall_series::ingest::sensors_of_rows;
use tidefall_series::install::show;
use tidefall_sync::{Arc, MutexGuard, PoisonError};
use tidefall_types::{
    Error, ErrorKind, FieldType, Result, RowError, TableId, TableSchema, WriteBatch,
};

use crate::Db;
use crate::engine::Engine;
use crate::options::{Ack, BadRows, Existing, FieldTypes, Unknown, WriteOptions};
use crate::retype::wider_types;
use crate::table::Table as AnyTable;
use crate::write::{find_sensors, lacks_columns, refuse_repeats};

impl Db {
    /// Makes what tables and columns these writes, which are about to come one after the other with the same options,
    /// lack, all at once. One that will be refused gets no table for that; it is told so when it comes.
    ///
    /// # Errors
    /// `Full` when the disk is; nothing is made then. `Io`, or `Conflict` when another process has written the manifest, ends writes.
    pub fn prepare(&self, writes: &[(&str, &WriteBatch)], options: &WriteOptions) -> Result<()> {
        let _step = self.begin()?;
        if options.unknown == Unknown::Refuse {
            return Ok(());
        }
        let engine = self.engine();
        let mut wanted = Vec::new();
        // The schemas as the writes before have made them: one that does not fit those is refused, too.
        let mut schemas: HashMap<&str, TableSchema> = HashMap::new();
        // A malformed one is refused before it gets anything.
        for &(name, batch) in writes.iter().filter(|(_, batch)| batch.check().is_ok()) {
            let Ok(table) = engine.find_series(name) else { continue };
            let lacks = match (schemas.get(name), &table) {
                (Some(schema), _) => lacks_columns(schema, batch),
                (None, Some(table)) => lacks_columns(&table.schema(), batch),
                (None, None) => true,
            };
            if !lacks {
                continue;
            }
            // It grows without being copied: there may be as many columns as writes.
            let known = schemas.remove(name);
            let known = known.or_else(|| Some((*table.as_ref()?.schema()).clone()));
            let columns = known.as_ref().map(|schema| schema.columns.len());
            let mut schema = known.unwrap_or_else(|| empty_schema(name, batch));
            if !name.is_empty() && add_columns_of(batch, &mut schema).is_ok() {
                let planned = Planned::of(table.clone(), schema);
                let is_taken = self.check_write(&planned, batch, options, &mut Vec::new());
                schema = planned.made.into_schema();
                if let Ok(true) = is_taken {
                    schemas.insert(name, schema);
                    wanted.push((name, batch, table));
                    continue;
                }
            }
            if let Some(columns) = columns {
                schema.cut_back(columns);
                schemas.insert(name, schema);
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

    /// The table with all fields and tags that the batch needs, and with types that can hold `columns`, all values that come for
    /// fields. If it lacks any, `check` is asked before they are made whether the write is refused, which would leave them
    /// behind. None if it says that nothing of the write is left.
    pub(crate) fn table_for(
        &self,
        name: &str,
        batch: &WriteBatch,
        columns: &[(&str, &ArrayRef)],
        options: &WriteOptions,
        check: impl FnOnce(&Planned) -> Result<bool>,
    ) -> Result<Option<Found>> {
        let engine = self.engine();
        let unknown = options.unknown;
        let table = engine.find_series(name)?;
        if table.is_none() && unknown == Unknown::Refuse {
            return Err(engine.no_table(name));
        }
        let (mut lacks, mut wider, mut seen) = (true, Vec::new(), None);
        let schema = match &table {
            None => first_schema(name, batch)?,
            Some(table) => {
                table.check_whole()?;
                let mut schema = table.schema();
                lacks = unknown == Unknown::Create && lacks_columns(&schema, batch);
                if options.field_types == FieldTypes::Widen {
                    wider = wider_types(table, &schema, columns)?;
                }
                if !lacks && wider.is_empty() {
                    return Ok(Some(Found { table: Arc::clone(table), schema: Some(schema) }));
                }
                seen = Some(Arc::clone(&schema));
                let planned = Arc::make_mut(&mut schema);
                wider.iter().for_each(|change| change.make(planned));
                if lacks {
                    add_columns_of(batch, planned)?;
                }
                Arc::unwrap_or_clone(schema)
            }
        };
        if !check(&Planned::of(table.clone(), schema))? {
            return Ok(None);
        }
        if let Some(table) = table.as_ref().filter(|_| !wider.is_empty()) {
            match self.widen(table, columns) {
                // What does not fit is bad then.
                Err(error)
                    if error.kind() == ErrorKind::Conflict
                        && options.bad_rows == BadRows::SetAside => {}
                widened => {
                    widened?;
                    seen = None;
                }
            }
        }
        if !lacks {
            return Ok(table.map(|table| Found { table, schema: seen }));
        }
        let mut making = Making::begin(engine);
        making.add(name, batch, table)?;
        making.commit()?;
        Ok(Some(Found { table: engine.series_table(name)?, schema: None }))
    }

    /// Whether anything is left of a write which lacks its table or columns of it, when bad rows are set aside.
    ///
    /// # Errors
    /// Those with which the write will be refused.
    pub(crate) fn check_write(
        &self,
        planned: &Planned,
        batch: &WriteBatch,
        options: &WriteOptions,
        bad: &mut Vec<RowError>,
    ) -> Result<bool> {
        let (batch, fields) = self.fit(&planned.made, batch, options, bad)?;
        if options.ack == Ack::Durable {
            self.check_texts(&planned.made, &fields)?;
        }
        if options.existing == Existing::Refuse {
            refuse_repeats(planned.with_rows(), &batch, &planned.sensors(&batch)?)?;
        }
        Ok(bad.is_empty() || batch.rows() > 0)
    }
}

/// A table that has what a write needs.
pub(crate) struct Found {
    pub(crate) table: Arc<Table>,
    /// The schema in which it was found to have all of it: none when anything was made for that, as others may have made it otherwise. Whoever goes
    /// on asks again then.
    pub(crate) schema: Option<Arc<TableSchema>>,
}

/// A table as a write needs it that lacks columns of it, or all of it, before these are made.
pub(crate) struct Planned {
    /// The table that is there, and how many tags, the first ones of both, it has in common with the other.
    found: Option<(Arc<Table>, usize)>,
    /// One with all columns, and without rows.
    pub(crate) made: Table,
}

impl Planned {
    /// With all columns of `schema`: those of the table and what it lacks.
    fn of(found: Option<Arc<Table>>, schema: TableSchema) -> Self {
        // Other writes may add tags meanwhile.
        let found = found.map(|found| {
            let own = found.schema();
            let both = own.tags.iter().zip(&schema.tags).take_while(|(own, made)| own == made);
            let tags = both.count();
            (found, tags)
        });
        Self { found, made: Table::new(schema) }
    }

    /// The table that has the rows which are there.
    pub(crate) fn with_rows(&self) -> &Table {
        self.found.as_ref().map_or(&self.made, |(found, _)| found)
    }

    /// The sensor of each row, as [`find_sensors`] would number them, but that numbers which the table has not given out
    /// stand for new ones: it learns of none.
    pub(crate) fn sensors(&self, batch: &WriteBatch) -> Result<Vec<u32>> {
        let Some((table, tags)) = &self.found else { return find_sensors(&self.made, batch) };
        // Another write may add tags meanwhile; sensors without them stay what they are.
        let all_tags = table.schema().tags.len();
        let known = table.sensors.read().unwrap_or_else(PoisonError::into_inner);
        let mut new = self.made.sensors.write().unwrap_or_else(PoisonError::into_inner);
        let found = sensors_of_rows(&self.made.schema(), batch, |values| {
            let (own, added) = values.split_at(*tags);
            if added.iter().all(Option::is_none) {
                let mut own = own.to_vec();
                own.resize(all_tags, None);
                if let Some(sensor) = known.find(&own) {
                    return Ok(Some(sensor));
                }
            }
            Ok(Some(u32::MAX - 1 - new.find_or_add(values)?))
        })?;
        found.ok_or_else(|| Error::internal("a sensor was not numbered"))
    }
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
        Self { engine, manifest: engine.ground.manifest(), tables: BTreeMap::new() }
    }

    /// Adds what a batch needs for the table that its write has found, or else for one that it makes.
    fn add(&mut self, name: &str, batch: &WriteBatch, table: Option<Arc<Table>>) -> Result<()> {
        if let Some(made) = self.tables.get_mut(name) {
            return add_columns_of(batch, &mut made.schema);
        }
        // Another write may have made it meanwhile.
        let found = match table {
            None => self.engine.find_series(name)?,
            found => found,
        };
        let made = match found {
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
        self.engine.ground.commit(&mut self.manifest, &edits)?;
        for Made { table, schema } in self.tables.into_values() {
            let Some(table) = table else {
                self.engine.show_table(AnyTable::new(schema));
                continue;
            };
            show(&self.engine.kinds.series, &table, &self.manifest, |_| {})?;
        }
        Ok(())
    }
}

/// The schema of a table that is made by its first write.
fn first_schema(name: &str, batch: &WriteBatch) -> Result<TableSchema> {
    if name.is_empty() {
        return Err(Error::invalid("a table needs a name"));
    }
    let mut schema = empty_schema(name, batch);
    add_columns_of(batch, &mut schema)?;
    Ok(schema)
}

/// That schema before it has any column of the batch.
fn empty_schema(name: &str, batch: &WriteBatch) -> TableSchema {
    TableSchema::new(TableId::default(), name, time_name(batch))
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
