//! Fields of other types: a field gets a type that all of its values fit into, and what is stored of it is written anew in one
//! commit.
//!
//! 1. Shut the table's gate: rows are brought into the types of the fields before they wait to be committed, so none may be
//!    on their way.
//! 2. Drain the memory, as the log has rows in the old types. The manifest says that all of them are in objects.
//! 3. Write the objects anew that have the field, which fails at the first value that does not fit.
//! 4. Commit the schema with the new objects, and show readers both in one step.

use std::sync::{Arc, PoisonError};

use arrow_array::{Array, ArrayRef};
use tidefall_types::{
    ColumnKind, Error, FieldType, Result, Seq, SeriesBatch, TableSchema, WriteBatch,
};

use crate::Db;
use crate::cascade::{Boundaries, Take, drain, retype};
use crate::engine::Engine;
use crate::ingest::{all_fit, recast, unknown_column};
use crate::manifest::{Drained, Edit};
use crate::options::{Rewriting, Target};
use crate::panics::caught;
use crate::read::LiveObject;
use crate::table::Table;
use crate::written::Written;

/// Bytes of objects and of rows in memory that are written anew at most while a write waits for it: some ten seconds. Tests,
/// which run with assertions, have fewer.
const BRIEF_BYTES_MAX: u64 = if cfg!(debug_assertions) { 2 << 20 } else { 256 << 20 };

impl Db {
    /// Gives fields of a table other types. Their values stay what they are: they are written anew, and writers of the table
    /// wait for it. Readers go on.
    ///
    /// # Errors
    /// `NotFound` without the table or a field; `Conflict` for a value that does not fit into the new type, and for
    /// [`Rewriting::Brief`] when there is too much to be written; `Io`, `Full` and `Corrupt` from storage. All stays as it was
    /// then.
    pub fn retype(
        &self,
        table: &str,
        types: &[(String, FieldType)],
        rewriting: Rewriting,
    ) -> Result<()> {
        let _step = self.begin()?;
        let table = self.engine().table(table)?;
        self.retype_fields(&table, rewriting, || changes(&table.schema(), types))
    }

    /// Whether no row of a table, those that a delete hides among them, has a value of a field: it can get any type.
    ///
    /// # Errors
    /// `NotFound` without the table or the field, `Io` and `Corrupt` from storage.
    pub fn is_field_empty(&self, table: &str, field: &str) -> Result<bool> {
        let table = self.engine().table(table)?;
        table.check_whole()?;
        let schema = table.schema();
        let place = schema.fields.iter().position(|other| other.name == field);
        holds_nothing(&table, place.ok_or_else(|| unknown_column(&schema, field))?)
    }

    /// Gives the fields that cannot hold these columns types that can, as far as [`wider_types`] finds some.
    ///
    /// # Errors
    /// As [`Db::retype`] with [`Rewriting::Brief`].
    pub(crate) fn widen(&self, table: &Arc<Table>, columns: &[(&str, &ArrayRef)]) -> Result<()> {
        self.retype_fields(table, Rewriting::Brief, || wider_types(table, columns))
    }

    /// Makes the changes that are found when no rows are on their way.
    fn retype_fields(
        &self,
        table: &Arc<Table>,
        rewriting: Rewriting,
        changes: impl FnOnce() -> Result<Vec<Change>>,
    ) -> Result<()> {
        let engine = self.engine();
        engine.commits.check_may_wait()?;
        table.check_whole()?;
        let _shut = table.gate.shut();
        let _turns = (engine.maintain()?, engine.compact()?);
        caught(|| change_types(engine, table, &changes()?, rewriting))
    }
}

/// A field that gets another type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    place: usize,
    to: FieldType,
}

impl Change {
    /// Makes the change in a schema.
    pub(crate) fn make(self, schema: &mut TableSchema) {
        schema.fields[self.place].ty = self.to;
    }
}

fn change_types(
    engine: &Engine,
    table: &Arc<Table>,
    changes: &[Change],
    rewriting: Rewriting,
) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let schema = table.schema();
    if rewriting == Rewriting::Brief {
        check_brief(table, &schema, changes)?;
    }
    drain_all(engine, table)?;
    let objects = objects_with(table, changes)?;
    let Some(_claim) = table.claims.claim(&objects, table) else {
        return Err(Error::conflict(format!(
            "table {}: its objects are being written anew; try again",
            schema.name
        )));
    };
    let mut new = (*schema).clone();
    changes.iter().for_each(|change| change.make(&mut new));
    let convert = |place: usize, values: &ArrayRef| {
        recast(&schema, &schema.fields[place], new.fields[place].ty, values)
    };
    let written = engine.written();
    let types = |schema: &TableSchema| schema.fields.iter().map(|field| field.ty).collect();
    let (from, to): (Vec<_>, Vec<_>) = (types(&schema), types(&new));
    let edits = retype(engine, table, (&from, &to), &objects, &written, &convert)?;
    install(engine, table, changes, written, edits)
}

/// Writes all rows of a table that are in memory to objects.
fn drain_all(engine: &Engine, table: &Arc<Table>) -> Result<()> {
    let _flushing = engine.begin_flush()?;
    let schema = table.schema();
    if table.live().is_dropped {
        return Err(Error::not_found(format!("table {} was dropped meanwhile", schema.name)));
    }
    let boundaries = Boundaries::new(&schema.options, Target::ByAge, engine.now_ns());
    drain(engine, table, &boundaries, Take::All).map(drop)
}

/// Commits the new types with the new objects.
fn install(
    engine: &Engine,
    table: &Table,
    changes: &[Change],
    written: Written,
    mut edits: Vec<Edit>,
) -> Result<()> {
    let _alone = engine.install_alone();
    // Held until all is shown: whoever adds columns begins with the schema that is shown.
    let mut manifest = engine.manifest();
    let mut schema = (*table.schema()).clone();
    changes.iter().for_each(|change| change.make(&mut schema));
    edits.push(Edit::PutTable(schema.clone()));
    // All of the table: none of its rows was on its way.
    if let Some(upto) = engine.commits.applied().0.checked_sub(1).map(Seq) {
        edits.push(Edit::Drained(table.id, Drained { upto, before_ns: i64::MAX }));
    }
    engine.commit_written(&mut manifest, written, &edits)?;
    engine.show(table, edits, |_| {
        *table.schema.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(schema);
    });
    Ok(())
}

fn changes(schema: &TableSchema, types: &[(String, FieldType)]) -> Result<Vec<Change>> {
    let mut changes = Vec::with_capacity(types.len());
    for (name, to) in types {
        let place = schema.fields.iter().position(|field| field.name == *name);
        let place = place.ok_or_else(|| match schema.column(name).map(|column| column.kind) {
            None => unknown_column(schema, name),
            Some(kind) => Error::invalid(format!(
                "table {}: {name:?} is {}, and only fields get other types",
                schema.name,
                if kind == ColumnKind::Time { "the time" } else { "a tag" }
            )),
        })?;
        if schema.fields[place].ty != *to {
            changes.push(Change { place, to: *to });
        }
    }
    Ok(changes)
}

/// The objects that have one of the fields.
fn objects_with(table: &Table, changes: &[Change]) -> Result<Vec<Arc<LiveObject>>> {
    let all = table.live().objects.clone();
    let mut objects = Vec::with_capacity(all.len());
    for object in all {
        let fields = object.segment.fields()?;
        if fields.iter().any(|(id, _)| changes.iter().any(|change| change.place == id.index())) {
            objects.push(object);
        }
    }
    Ok(objects)
}

fn check_brief(table: &Table, schema: &TableSchema, changes: &[Change]) -> Result<()> {
    let stored: u64 = objects_with(table, changes)?.iter().map(|object| object.entry.bytes).sum();
    let bytes = stored + table.live().kv_bytes() as u64;
    let Some(Change { place, to }) = changes.first().filter(|_| bytes > BRIEF_BYTES_MAX) else {
        return Ok(());
    };
    let (field, table, ty) = (&schema.fields[*place], &schema.name, to.sql_name());
    Err(Error::conflict(format!(
        "table {table}: field {:?} is {}, and to make it {ty} {bytes} bytes would be written anew, too much while a write \
         waits; ALTER TABLE {table} ALTER COLUMN {} TYPE {ty} does it",
        field.name,
        field.ty.sql_name(),
        field.name
    )))
}

/// The fields whose types in the table cannot hold these columns, with types that can: that which holds the numbers of both,
/// or that of the column for a field that holds nothing as yet. Whether what is stored fits is found out when it is
/// written anew.
pub(crate) fn wider_types(table: &Table, columns: &[(&str, &ArrayRef)]) -> Result<Vec<Change>> {
    let schema = table.schema();
    let mut wider: Vec<Change> = Vec::new();
    for &(name, values) in columns {
        let place = schema.fields.iter().position(|field| field.name == name);
        let Some(place) = place.filter(|_| values.null_count() < values.len()) else { continue };
        let known = wider.iter_mut().find(|change| change.place == place);
        let ty = known.as_ref().map_or(schema.fields[place].ty, |change| change.to);
        let came = FieldType::from_arrow(values.data_type()).filter(|came| *came != ty);
        let Some(came) = came else { continue };
        let to = match all_fit(values, came, ty)? {
            Some(true) => None,
            Some(false) => ty.wider(came),
            None => holds_nothing(table, place)?.then_some(came),
        };
        match (to, known) {
            (None, _) => {}
            (Some(to), Some(known)) => known.to = to,
            (Some(to), None) => wider.push(Change { place, to }),
        }
    }
    Ok(wider)
}

/// The columns of rows.
pub(crate) fn columns_of(batch: &WriteBatch) -> Vec<(&str, &ArrayRef)> {
    batch.fields.iter().map(|field| (field.name.as_str(), &field.values)).collect()
}

/// The columns of all series.
pub(crate) fn columns_of_series(batch: &SeriesBatch) -> Vec<(&str, &ArrayRef)> {
    let names = || batch.fields.iter().map(String::as_str);
    batch.series.iter().flat_map(|series| names().zip(&series.fields)).collect()
}

/// Whether no row of a table has a value of a field.
fn holds_nothing(table: &Table, place: usize) -> Result<bool> {
    let sources = table.sources()?;
    let has_values = |values: &ArrayRef| values.null_count() < values.len();
    let mut runs = sources.runs.iter();
    if runs.any(|run| run.fields.get(place).is_some_and(|f| f.as_ref().is_some_and(has_values))) {
        return Ok(false);
    }
    for object in &sources.objects {
        let fields = object.segment.fields()?;
        let Some(column) = fields.iter().position(|(id, _)| id.index() == place) else { continue };
        for position in 0..object.segment.index_block_count()? {
            let index = object.segment.index_block_at(position)?;
            let mut chunks = (0..index.sensors().len()).map(|chunk| index.chunk(chunk));
            if chunks.any(|chunk| !chunk.field_page(column).is_empty()) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
