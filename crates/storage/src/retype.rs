//! Fields of other types: a field gets a type that all of its values fit into, and what is stored of it is written anew in one
//! commit.
//!
//! 1. Write the objects anew that have the field, which fails at the first value that does not fit. Others write and load
//!    meanwhile, and what they bring to objects is written anew in further rounds.
//! 2. Shut the table's gate: rows are brought into the types of the fields before they wait to be committed, so none may be
//!    on their way. A load passes the gate once its objects are written, and looks then whether the types are what they were.
//! 3. Flush the memory, as the log has rows in the old types, and write anew what is left.
//! 4. Commit the schema with the new objects, and show readers both in one step. The manifest says that all rows which are in the
//!    log are in objects.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use arrow_array::{Array, ArrayRef};
use tidefall_ground::claims::Claim;
use tidefall_ground::convert::{all_fit, recast};
use tidefall_ground::manifest::{Edit, Flushed};
use tidefall_ground::written::Written;
use tidefall_series::Table;
use tidefall_series::cascade::{Boundaries, Take, Target, flush, retype};
use tidefall_series::ingest::unknown_column;
use tidefall_series::install::commit;
use tidefall_series::read::LiveObject;
use tidefall_types::{
    ColumnKind, Error, FieldId, FieldType, ObjectId, Result, Seq, SeriesBatch, TableSchema,
    WriteBatch, caught,
};

use crate::Db;
use crate::engine::Engine;
use crate::options::Rewriting;

/// Bytes of objects and of rows in memory that are written anew at most while a write waits for it. Tests, which run with
/// assertions, have fewer.
const BRIEF_BYTES_MAX: u64 = if cfg!(debug_assertions) { 2 << 20 } else { 256 << 20 };
/// Values of all fields in these objects, of which many take few bytes: some ten seconds.
const BRIEF_VALUES_MAX: u64 = if cfg!(debug_assertions) { 1 << 22 } else { 1 << 28 };

impl Db {
    /// Gives fields of a table other types. Their values stay what they are: they are written anew. Others read and write
    /// meanwhile; at the end writers of the table wait for a moment.
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
        let table = self.engine().series_table(table)?;
        self.retype_fields(&table, rewriting, || changes(&table.schema(), types))
    }

    /// Whether no row of a table, those that a delete hides among them, has a value of a field: it can get any type.
    ///
    /// # Errors
    /// `NotFound` without the table or the field, `Io` and `Corrupt` from storage.
    pub fn is_field_empty(&self, table: &str, field: &str) -> Result<bool> {
        let table = self.engine().series_table(table)?;
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
        let wider = || wider_types(table, &table.schema(), columns);
        self.retype_fields(table, Rewriting::Brief, wider)
    }

    /// Makes the changes that are found.
    fn retype_fields(
        &self,
        table: &Arc<Table>,
        rewriting: Rewriting,
        changes: impl Fn() -> Result<Vec<Change>>,
    ) -> Result<()> {
        let engine = self.engine();
        engine.commits.check_may_wait()?;
        table.check_whole()?;
        // One after the other: each would find objects that another has, and types that another has changed.
        let _alone = table.retyping.lock().unwrap_or_else(PoisonError::into_inner);
        let done = caught(|| {
            let Some(mut retyping) = Retyping::new(engine, table, changes()?) else {
                return Ok(());
            };
            if rewriting == Rewriting::Brief {
                retyping.check_brief()?;
            }
            retyping.check_memory()?;
            retyping.write_most_anew()?;
            let _alone = engine.alone_with(&table.lock)?;
            // What others had is left now, or has become something else. From here on only flushes and loads bring more.
            retyping.write_most_anew()?;
            let _shut = table.gate.shut();
            retyping.end()
        });
        // What was passed over meanwhile.
        engine.ground.alarms.raise(|alarm| alarm.is_tended = true);
        done
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

/// Rounds in which objects are written anew while others bring more of them.
const ROUNDS: usize = 4;
/// Bytes of objects of which that takes a moment.
const REST_BYTES: u64 = 1 << 20;

/// Fields that are getting other types.
struct Retyping<'a> {
    engine: &'a Engine,
    table: &'a Arc<Table>,
    /// As the table was at the last look; the changes are made in `after`.
    before: Arc<TableSchema>,
    after: TableSchema,
    changes: Vec<Change>,
    written: Written,
    /// The objects that are written anew, which nobody else takes.
    claims: Vec<Claim<'a>>,
    done: BTreeSet<ObjectId>,
    edits: Vec<Edit>,
}

impl<'a> Retyping<'a> {
    fn new(engine: &'a Engine, table: &'a Arc<Table>, changes: Vec<Change>) -> Option<Self> {
        if changes.is_empty() {
            return None;
        }
        let before = table.schema();
        let after = changed(&before, &changes);
        let (written, claims) = (engine.ground.written(), Vec::new());
        let (done, edits) = (BTreeSet::new(), Vec::new());
        Some(Self { engine, table, before, after, changes, written, claims, done, edits })
    }

    /// The objects that have one of the fields, and are not written anew as yet.
    fn objects(&self) -> Result<Vec<Arc<LiveObject>>> {
        let all = self.table.version().objects.clone();
        let mut objects = Vec::with_capacity(all.len());
        for object in all.iter().filter(|object| !self.done.contains(&object.entry.id)) {
            let fields = object.segment.fields()?;
            let changes = |id: FieldId| self.changes.iter().any(|it| it.place == id.index());
            if fields.iter().any(|(id, _)| changes(*id)) {
                objects.push(Arc::clone(object));
            }
        }
        Ok(objects)
    }

    fn check_brief(&self) -> Result<()> {
        let fields = self.before.fields.len() as u64;
        let objects = self.objects()?;
        let stored: u64 = objects.iter().map(|object| object.entry.bytes).sum();
        let rows: u64 = objects.iter().map(|object| object.entry.rows).sum();
        let (in_memory, bytes) = {
            let live = self.table.live();
            let rows: usize = live.all_runs().map(|run| run.rows()).sum();
            (rows as u64, stored + live.kv_bytes() as u64)
        };
        let rows = rows + in_memory;
        if bytes <= BRIEF_BYTES_MAX && rows.saturating_mul(fields) <= BRIEF_VALUES_MAX {
            return Ok(());
        }
        let Change { place, to } = self.changes[0];
        let (field, table, ty) = (&self.before.fields[place], &self.before.name, to.sql_name());
        Err(Error::conflict(format!(
            "table {table}: field {:?} is {}, and to make it {ty} {rows} rows of {bytes} bytes would be written anew, too much \
             while a write waits; ALTER TABLE {table} ALTER COLUMN {} TYPE {ty} does it",
            field.name,
            field.ty.sql_name(),
            field.name
        )))
    }

    /// Finds values in memory that do not fit, before it is flushed for them.
    fn check_memory(&self) -> Result<()> {
        for run in &self.table.sources()?.runs {
            for change in &self.changes {
                if let Some(Some(values)) = run.fields.get(change.place) {
                    self.convert(change.place, values)?;
                }
            }
        }
        Ok(())
    }

    fn convert(&self, place: usize, values: &ArrayRef) -> Result<ArrayRef> {
        recast(&self.before, &self.before.fields[place], self.after.fields[place].ty, values)
    }

    /// Writes objects anew until few are left that nobody else has.
    fn write_most_anew(&mut self) -> Result<()> {
        for _ in 0..ROUNDS {
            if self.write_anew()?.is_some_and(|bytes| bytes <= REST_BYTES) {
                break;
            }
        }
        Ok(())
    }

    /// Writes objects anew that are not as yet, and that nobody else has. Returns their bytes; nothing where somebody else was faster, and
    /// they are gone, or another's by now.
    fn write_anew(&mut self) -> Result<Option<u64>> {
        let mut objects = self.objects()?;
        // Read behind the objects: it has all their fields, also those that came meanwhile.
        self.before = self.table.schema();
        self.after = changed(&self.before, &self.changes);
        objects.retain(|object| !self.table.claims.has(object.entry.id));
        let Some(claim) = self.table.claim(&objects) else { return Ok(None) };
        self.claims.push(claim);
        let types = |schema: &TableSchema| schema.fields.iter().map(|field| field.ty).collect();
        let (from, to): (Vec<_>, Vec<_>) = (types(&self.before), types(&self.after));
        let convert = |place: usize, values: &ArrayRef| self.convert(place, values);
        let edits = retype(
            &self.engine.kinds.series,
            self.table,
            (&from, &to),
            &objects,
            &self.written,
            &convert,
        )?;
        self.edits.extend(edits);
        self.done.extend(objects.iter().map(|object| object.entry.id));
        Ok(Some(objects.iter().map(|object| object.entry.bytes).sum()))
    }

    /// Takes what is left, and commits. No rows are on their way.
    fn end(mut self) -> Result<()> {
        // What failed may have left rows in the log that are not in memory.
        if let Some(failure) = self.engine.commits.failure() {
            return Err(failure);
        }
        let _flushing = self.engine.begin_flush()?;
        let schema = self.table.schema();
        if self.table.live().is_dropped {
            return Err(Error::not_found(format!("table {} was dropped meanwhile", schema.name)));
        }
        let boundaries =
            Boundaries::new(&schema.options, Target::ByAge, self.engine.ground.now_ns());
        flush(&self.engine.kinds.series, self.table, &boundaries, Take::All)?;
        self.write_anew()?;
        // Nobody else has any, and none comes.
        match self.objects()?.is_empty() {
            true => self.install(),
            false => Err(Error::internal("an object was not written anew with the others")),
        }
    }

    /// Commits the new types with the new objects.
    fn install(self) -> Result<()> {
        let Self { engine, table, changes, written, mut edits, claims, .. } = self;
        let _alone = engine.ground.install_alone();
        // Held until all is shown: whoever adds columns begins with the schema that is shown.
        let mut manifest = engine.ground.manifest();
        let schema = changed(&table.schema(), &changes);
        edits.push(Edit::PutTable(schema));
        if let Some(upto) = engine.commits.applied().0.checked_sub(1).map(Seq) {
            edits.push(Edit::Flushed(table.id, Flushed::all(upto)));
        }
        commit(&engine.kinds.series, table, &mut manifest, written, &edits, |_| {})?;
        drop(claims);
        Ok(())
    }
}

/// A schema with changes.
fn changed(schema: &TableSchema, changes: &[Change]) -> TableSchema {
    let mut changed = schema.clone();
    changes.iter().for_each(|change| change.make(&mut changed));
    changed
}

fn changes(schema: &TableSchema, types: &[(String, FieldType)]) -> Result<Vec<Change>> {
    let mut changes = Vec::with_capacity(types.len());
    for (number, (name, to)) in types.iter().enumerate() {
        if types[..number].iter().any(|(other, _)| other == name) {
            return Err(Error::invalid(format!("field {name:?} is named twice")));
        }
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

/// The fields whose types in a schema of the table cannot hold these columns, with types that can: that which holds the numbers of both,
/// or that of the column for a field that holds nothing as yet. Whether what is stored fits is found out when it is
/// written anew.
pub(crate) fn wider_types(
    table: &Table,
    schema: &TableSchema,
    columns: &[(&str, &ArrayRef)],
) -> Result<Vec<Change>> {
    let mut wider: Vec<Change> = Vec::new();
    for &(name, values) in columns {
        let place = schema.fields.iter().position(|field| field.name == name);
        let Some(place) = place.filter(|_| values.null_count() < values.len()) else { continue };
        let known = wider.iter_mut().find(|change| change.place == place);
        let ty = known.as_ref().map_or(schema.fields[place].ty, |change| change.to);
        let came = FieldType::from_arrow(values.data_type()).filter(|came| *came != ty);
        let Some(came) = came else { continue };
        let is_time = came == FieldType::Timestamp;
        let to = match all_fit(values, came, ty)? {
            // Whole numbers take times as such only where there are some already.
            Some(true) if is_time && holds_nothing(table, place)? => Some(came),
            Some(true) => None,
            Some(false) => match ty.wider(came) {
                // Large ones without a sign come with others that may have one, unless they are too large for that.
                Some(FieldType::U64)
                    if ty.is_signed() && all_fit(values, came, FieldType::I64)? == Some(true) =>
                {
                    Some(FieldType::I64)
                }
                wider => wider,
            },
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
    for object in sources.version.objects.iter() {
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
