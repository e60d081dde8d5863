//! Tables of records: the two ways in, deletes, and what readers get.

use arrow_array::{Array, ArrayRef, BooleanArray, new_null_array};
use arrow_select::filter::filter;
use tidefall_ground::convert::fitted;
use tidefall_ground::gate::Inside;
use tidefall_ground::kept::{arrow_error, compact};
use tidefall_ground::texts::text_bytes;
use tidefall_records::change::Change as RecordsChange;
use tidefall_records::load::{Loaded, load};
use tidefall_records::order::CELL_ROWS;
use tidefall_records::packed::Packed;
use tidefall_records::record::LogRecord;
use tidefall_records::region::Regions;
use tidefall_records::snapshot::RecordsSnapshot;
use tidefall_records::table::Rows;
use tidefall_records::{Context, Table};
use tidefall_sync::Arc;
use tidefall_sync::atomic::Ordering;
use tidefall_types::{Error, FieldColumn, Result, RowError, TableSchema};

use crate::Db;
use crate::options::{Ack, BadRows, WriteOptions, WriteReport};
use crate::table::Change;

/// Rows of a durable write that go straight to segments: it takes about as long to write them there as to log them, and they need no memory. Tests, which run
/// with assertions, have fewer.
pub(crate) const LOAD_ROWS: usize = if cfg!(debug_assertions) { 500 } else { 8 * CELL_ROWS };

impl Db {
    /// Writes records and waits until they are acknowledged; a column that is missing is null in all of them. Of the options those count that say when a
    /// write is acknowledged, and what becomes of bad rows. Many records at once go straight to segments.
    ///
    /// # Errors
    /// Nothing is written after
    ///
    /// - `NotFound` without the table or a column of this name, `Conflict` for a table of another kind,
    /// - `Invalid` for columns of different lengths or one that comes twice, and for values that no column can hold,
    /// - that of the first bad row, with [`BadRows::Reject`]: `Conflict` for a value of another type, `Invalid` for one that does not fit, and
    ///   for a row without the value of a dimension, `Limit` for a text that is too long,
    /// - `Limit` for more than the log takes at once, `Full` when the disk is, and the damage of a table that cannot be read.
    ///
    /// After `Io`, which ends writes, nobody knows until the database is opened again.
    pub fn write_records(
        &self,
        table: &str,
        columns: &[FieldColumn],
        options: &WriteOptions,
    ) -> Result<WriteReport> {
        let _step = self.begin()?;
        let engine = self.engine();
        engine.commits.check_may_wait()?;
        let rows = check_columns(columns)?;
        loop {
            let table = engine.records_table(table)?;
            table.check_whole()?;
            let layout = Arc::clone(&table.version().layout);
            let (fitted, bad) = fit(&table.schema(), columns, rows, options.bad_rows)?;
            let report = WriteReport { rows: rows - bad.len(), replaced: Some(0), bad };
            if report.rows == 0 {
                return Ok(report);
            }
            let enter = || Ok(Inside::WithOthers(table.gate.enter()));
            // The log takes no more texts at once than can be brought back from it.
            let texts =
                fitted.iter().map(|column| text_bytes(column, 0..report.rows)).sum::<usize>();
            let is_much = report.rows >= LOAD_ROWS || texts > engine.logged_texts_max();
            if options.ack == Ack::Durable && is_much {
                let take_place = || {
                    engine.commits.submit_and_wait(Change::Records {
                        table: Arc::clone(&table),
                        change: RecordsChange::Mark,
                        record: None,
                    })
                };
                let context: &Context = &engine.kinds.records;
                match load(context, &table, &layout, &fitted, enter, take_place)? {
                    Loaded::Shown => return Ok(report),
                    Loaded::Outdated => continue,
                }
            }
            let rows = match report.rows >= CELL_ROWS {
                true => Rows::Packed(Packed::new(&layout, &fitted)?),
                false => {
                    let alone = fitted.into_iter().map(compact).collect::<Result<_>>()?;
                    Rows::Loose(alone)
                }
            };
            engine.wait_for_memory(rows.size_bytes())?;
            let inside = enter()?;
            if table.version().layout != layout {
                continue;
            }
            self.commit_records(table, rows, options.ack)?;
            drop(inside);
            return Ok(report);
        }
    }

    fn commit_records(&self, table: Arc<Table>, rows: Rows, ack: Ack) -> Result<()> {
        let engine = self.engine();
        let record = match ack {
            Ack::Durable => Some(LogRecord::of_rows(&rows)?),
            Ack::Memory => None,
        };
        let change = RecordsChange::Rows(rows);
        engine.commits.submit_and_wait(Change::Records { table, change, record })?;
        if ack == Ack::Memory {
            // After the rows are visible, or a flush that misses them could clear it.
            engine.has_unlogged.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Deletes the records in some boxes that were written before.
    ///
    /// # Errors
    /// `NotFound` without the table, `Conflict` for one of another kind, `Invalid` for boxes of other dimensions, `Full` when the log finds no
    /// room, `Io` when the disk fails, and the damage of a table that cannot be read. Nothing is deleted then, but after `Io`, which ends
    /// writes, nobody knows until the database is opened again.
    pub fn delete_records(&self, table: &str, regions: &Regions) -> Result<()> {
        let _step = self.begin()?;
        let engine = self.engine();
        engine.commits.check_may_wait()?;
        let table = engine.records_table(table)?;
        table.check_whole()?;
        let dimensions = table.schema().dimensions.len();
        if regions.boxes().iter().any(|region| region.sides().len() != dimensions) {
            let name = &table.schema().name;
            return Err(Error::invalid(format!(
                "table {name} has {dimensions} dimensions, a box of the delete another number"
            )));
        }
        if regions.is_empty() {
            return Ok(());
        }
        let record = Some(LogRecord::of_delete(regions)?);
        let change = RecordsChange::Delete(regions.clone());
        engine.commits.submit_and_wait(Change::Records { table, change, record })?;
        Ok(())
    }

    /// One consistent view of a table of records as it is now.
    ///
    /// # Errors
    /// `NotFound` without the table, `Conflict` for one of another kind, and the damage of one that cannot be read.
    pub fn records(&self, table: &str) -> Result<RecordsSnapshot> {
        let table = self.engine().records_table(table)?;
        table.check_whole()?;
        let applied = self.engine().commits.applied();
        RecordsSnapshot::of(&table, applied)
    }
}

/// Checks that columns have one length, which is returned, and different names.
fn check_columns(columns: &[FieldColumn]) -> Result<usize> {
    let rows = columns.first().map_or(0, |column| column.values.len());
    for (place, FieldColumn { name, values }) in columns.iter().enumerate() {
        if values.len() != rows {
            let found = values.len();
            return Err(Error::invalid(format!(
                "column {name:?} has {found} values, the first one {rows}"
            )));
        }
        if columns[..place].iter().any(|other| other.name == *name) {
            return Err(Error::invalid(format!("column {name:?} appears twice in one batch")));
        }
    }
    Ok(rows)
}

/// The columns of a table with the values of a batch, without bad rows, and these.
fn fit(
    schema: &TableSchema,
    columns: &[FieldColumn],
    rows: usize,
    bad_rows: BadRows,
) -> Result<(Vec<ArrayRef>, Vec<RowError>)> {
    if let Some(other) = columns.iter().find(|column| schema.column(&column.name).is_none()) {
        return Err(tidefall_series::ingest::unknown_column(schema, &other.name));
    }
    let mut bad = Vec::new();
    let all: Vec<ArrayRef> = schema
        .fields
        .iter()
        .map(|field| {
            let came = columns.iter().find(|column| column.name == field.name);
            let values = came.map(|column| fitted(schema, field, &column.values, &mut bad));
            let values = values.transpose()?.flatten();
            Ok(values.unwrap_or_else(|| new_null_array(&field.ty.arrow(), rows)))
        })
        .collect::<Result<_>>()?;
    for id in &schema.dimensions {
        let (field, values) = (&schema.fields[id.index()], &all[id.index()]);
        let lacking = (0..rows).filter(|row| values.null_count() > 0 && values.is_null(*row));
        bad.extend(lacking.map(|row| {
            let (table, name) = (&schema.name, &field.name);
            let why =
                format!("table {table}: {name:?} is a dimension, and this row has no value for it");
            RowError { row, error: Error::invalid(why) }
        }));
    }
    if bad.is_empty() {
        return Ok((all, bad));
    }
    bad.sort_by_key(|error| error.row);
    bad.dedup_by_key(|error| error.row);
    if bad_rows == BadRows::Reject {
        let first = &bad[0];
        return Err(first.error.clone().context(format_args!("row {}", first.number())));
    }
    let mut is_good = vec![true; rows];
    bad.iter().for_each(|error| is_good[error.row] = false);
    let is_good = BooleanArray::from(is_good);
    let good = all.iter().map(|column| filter(column, &is_good).map_err(arrow_error));
    Ok((good.collect::<Result<_>>()?, bad))
}
