//! The two ways in: rows in any order through the log and the key-value model, whole columns of
//! sensors straight to objects.

use arrow_array::ArrayRef;
use arrow_buffer::ScalarBuffer;
use roaring::RoaringBitmap;
use tidefall_ground::gate::Inside;
use tidefall_ground::kept::size_bytes;
use tidefall_ground::texts::{PIECE_TEXT_BYTES, all_text_bytes, rows_within};
use tidefall_series::Table;
use tidefall_series::cascade::{Loaded, load};
use tidefall_series::change::Change as SeriesChange;
use tidefall_series::ingest::record::LogRecord;
use tidefall_series::ingest::{Prepared, coerce, order_series, refuse_long_tags, sensors_of_rows};
use tidefall_series::read::Repeats;
use tidefall_series::rows::SensorRows;
use tidefall_series::uncounted::{Uncounted, Watch, rows_of};
use tidefall_sync::atomic::Ordering;
use tidefall_sync::{Arc, OnceLock, PoisonError, mpsc};
use tidefall_types::{
    Error, Result, RowError, Seq, SeriesBatch, TableSchema, WriteBatch, format_time,
};

use crate::Db;
use crate::commit::{Commit, Done};
use crate::options::{Ack, BadRows, Existing, FieldTypes, Unknown, WriteOptions, WriteReport};
use crate::retype::{columns_of, columns_of_series};
use crate::table::Change;

/// Bytes of texts that come into memory at once: a small part of the least share that rows have there.
const PART_TEXT_BYTES: usize = 2 * PIECE_TEXT_BYTES;

impl Db {
    /// Writes rows and waits until they are acknowledged.
    ///
    /// # Errors
    /// Nothing is written after
    ///
    /// - `NotFound` and `Conflict` for a table or columns that it lacks or has otherwise, `Invalid` for a malformed batch,
    /// - that of the first bad row, with [`BadRows::Reject`]: `Conflict` for a value of another type, `Invalid` for a number that does not
    ///   fit, `Limit` for a text that is too long, `Invalid` for tags that are,
    /// - `Conflict` for a reading that is there already, with [`Existing::Refuse`], for which objects may be read: `Io` and `Corrupt`,
    /// - `Limit` for more than the log takes at once (send it in parts), and for too many columns or sensors,
    /// - `Full` when the disk is, and the log or memory takes no more: try again later,
    /// - the damage of a table that cannot be read.
    ///
    /// After `Io` and `Conflict` of the disk, which end writes, nobody knows until the database is opened again. Those of all changes are
    /// told at [`Db`].
    pub fn write(
        &self,
        table: &str,
        batch: &WriteBatch,
        options: &WriteOptions,
    ) -> Result<WriteReport> {
        self.engine().commits.check_may_wait()?;
        let (send, receive) = mpsc::sync_channel(1);
        self.submit(table, batch, options, move |outcome| {
            // The receiver waits below; it is gone only if this thread is.
            let _ = send.send(outcome);
        })?;
        let closed = |_| Error::closed("the database was closed during a write");
        let (mut report, uncounted) = receive.recv().map_err(closed)??;
        if let Some(uncounted) = uncounted {
            report.replaced = uncounted.count();
        }
        Ok(report)
    }

    /// Writes rows; `done` is called with the outcome, from another thread, once they are
    /// acknowledged. With [`Existing::Count`] the report says that none was replaced where that is known at once; where
    /// it is not, `done` gets what is to be counted, on a thread of its own, as all writes behind it would wait.
    ///
    /// # Errors
    /// As [`Db::write`]; `done` is not called then, and gets those that come later. In what the database calls when a write is done it does
    /// not wait: `Conflict` there when fields of the table are getting other types, or another write wants to be alone, `Unsupported` when
    /// new sensors are too many for the log.
    pub fn submit(
        &self,
        table: &str,
        batch: &WriteBatch,
        options: &WriteOptions,
        done: impl FnOnce(Result<(WriteReport, Option<Uncounted>)>) + Send + 'static,
    ) -> Result<()> {
        let step = self.begin()?;
        batch.check()?;
        let engine = self.engine();
        engine.wait_for_memory(held_bytes(batch))?;
        let replaced = (options.existing != Existing::Replace).then_some(0);
        let mut bad = Vec::new();
        let (table, inside) = loop {
            bad.clear();
            let columns = columns_of(batch);
            let found = self.table_for(table, batch, &columns, options, |planned| {
                self.check_write(planned, batch, options, &mut bad)
            })?;
            let Some(found) = found else {
                drop(step);
                done(Ok((WriteReport { rows: 0, replaced, bad }, None)));
                return Ok(());
            };
            let inside = self.enter(&found.table, options.existing)?;
            // Fields keep their types while somebody is inside, and may have got others before.
            let schema = found.table.schema();
            let is_as = |seen: Arc<TableSchema>| schema.fields.starts_with(&seen.fields);
            if options.field_types == FieldTypes::Keep || found.schema.is_some_and(is_as) {
                break (found.table, inside);
            }
        };
        bad.clear();
        let batch = self.fit(&table, batch, options, &mut bad)?;
        let (batch, fields) = &batch;
        let report = WriteReport { rows: batch.rows(), replaced, bad };
        if batch.rows() == 0 {
            // It may close the database, which waits for all steps.
            drop((inside, step));
            done(Ok((report, None)));
            return Ok(());
        }
        if options.ack == Ack::Durable {
            self.check_texts(&table, fields)?;
        }
        let sensor: ScalarBuffer<u32> = find_sensors(&table, batch)?.into();
        if options.existing == Existing::Refuse {
            refuse_repeats(&table, batch, &sensor)?;
        }
        let watch = (options.existing == Existing::Count).then(Watch::default);
        let watched = watch.clone();
        let rows = Prepared::new(sensor, batch.time.clone(), fields.clone());
        let done = Box::new(move |outcome: Result<Seq>| {
            drop(inside);
            done(outcome.map(|_| with_doubts(report, watched.as_ref())));
        });
        match options.ack {
            Ack::Memory => self.keep(table, &rows, watch, done),
            Ack::Durable => {
                let mut rows = rows.part(0..rows.time.len())?;
                rows.put_in_order();
                engine.unburden_log(&table, rows.upto())?;
                let record = Some(LogRecord::of_rows(&table, &rows)?);
                let change = SeriesChange::Rows(rows);
                let change = Change::Series { table, change, record, watch };
                engine.commits.submit(Commit { change, done })
            }
        }
    }

    /// Lets a write pass the gate of its table: alone, if what it finds there must not change before it is written. What is called when a
    /// write is done must not wait for others to be.
    fn enter(&self, table: &Table, existing: Existing) -> Result<Inside> {
        let (gate, may_wait) = (&table.gate, !self.engine().commits.is_committer());
        let inside = match (existing == Existing::Refuse, may_wait) {
            (false, true) => Some(Inside::WithOthers(gate.enter())),
            (false, false) => gate.try_enter().map(Inside::WithOthers),
            (true, true) => Some(Inside::Alone(gate.shut())),
            (true, false) => gate.try_shut().map(Inside::Alone),
        };
        inside.ok_or_else(|| {
            Error::conflict(format!(
                "table {}: its fields are getting other types, or another write wants to be alone or is on its way where this one \
                 does; send the rows again",
                table.schema().name
            ))
        })
    }

    /// Brings rows into memory without logging them: those with many long texts in parts, each of which waits for
    /// memory. When the first is there nothing short of a failure of the disk keeps the others out, or an error would
    /// leave a part of the write behind: while a full disk holds everything in memory, and while the database closes,
    /// they come in without waiting.
    fn keep(
        &self,
        table: Arc<Table>,
        rows: &Prepared,
        watch: Option<Watch>,
        done: Done,
    ) -> Result<()> {
        let engine = self.engine();
        let mut done = Some(done);
        let failure = Arc::new(OnceLock::new());
        let mut first = 0;
        while let Some(tell) = done.take() {
            let count = rows_within(&rows.fields, first..rows.time.len(), PART_TEXT_BYTES);
            let mut part = rows.part(first..first + count)?;
            part.put_in_order();
            // For the first one the write has waited.
            if first > 0
                && let Err(error) = engine.wait_for_memory(0)
            {
                tracing::debug!(%error, "the rest of a write comes into memory all the same");
            }
            first += count;
            let failed = Arc::clone(&failure);
            let tell: Done = match first < rows.time.len() {
                true => {
                    done = Some(tell);
                    Box::new(move |outcome| {
                        // The first error is the one that counts.
                        outcome.err().map(|error| failed.set(error));
                    })
                }
                false => Box::new(move |outcome| {
                    tell(failed.get().cloned().map_or(outcome, Err));
                }),
            };
            let unlogged = Arc::clone(engine);
            engine.commits.submit(Commit {
                change: Change::Series {
                    table: Arc::clone(&table),
                    change: SeriesChange::Rows(part),
                    record: None,
                    watch: watch.clone(),
                },
                done: Box::new(move |outcome| {
                    // After the rows are visible, or a flush that misses them could clear it.
                    unlogged.has_unlogged.store(true, Ordering::Release);
                    tell(outcome);
                }),
            })?;
        }
        Ok(())
    }

    /// Refuses a write whose texts take more than what can be brought back from the log at once, however small they
    /// are there.
    pub(crate) fn check_texts(&self, table: &Table, fields: &[Option<ArrayRef>]) -> Result<()> {
        let engine = self.engine();
        let (bytes, max) = (all_text_bytes(fields), engine.logged_texts_max());
        if bytes <= max {
            return Ok(());
        }
        Err(Error::limit(format!(
            "table {}: a write with {bytes} bytes of texts is too large for the log, which takes up to {max} at once \
             with a memory budget of {} bytes; send it in parts",
            table.schema().name,
            engine.ground.options.memory_bytes
        )))
    }

    /// Whether [`Db::submit`] would take this batch at once, without waiting for memory or for the
    /// manifest: then it may be called where a thread must not be held up.
    pub fn is_ready_for(&self, table: &str, batch: &WriteBatch) -> bool {
        let engine = self.engine();
        let is_known = || match engine.find_series(table) {
            Ok(Some(table)) => table.gate.is_open() && !lacks_columns(&table.schema(), batch),
            _ => false,
        };
        engine.ground.memory.takes_at_once(held_bytes(batch))
            && engine.commits.takes_at_once()
            && is_known()
    }

    /// Writes whole columns straight to objects, each reading to the model that owns its time:
    /// the fastest way in for readings that lie sensor by sensor. All are durable and become
    /// visible at once when it returns; they count as written then.
    ///
    /// # Errors
    /// `Invalid` for a malformed batch, a sensor that appears twice or one whose tags are too long, `Limit` for a text that is and for too many
    /// columns or sensors, `NotFound` and `Conflict` for columns and values that do not fit the table, `NotFound` when it is dropped meanwhile;
    /// `Full` when the disk is, `Io` when it fails, and the damage of a table that cannot be read. Nothing is written then, but after a commit
    /// of the manifest that fails otherwise than by `Full`, which ends writes, nobody knows. Those of all changes are told at [`Db`].
    pub fn load(&self, table: &str, batch: &SeriesBatch, unknown: Unknown) -> Result<WriteReport> {
        let existing = Existing::Count;
        self.load_with(table, batch, &WriteOptions { unknown, existing, ..WriteOptions::default() })
    }

    /// As [`Db::load`]; the options say what becomes of readings that are there already, and of values that do not fit into
    /// the types of their fields. Whatever they say, a load is durable, and has no bad rows.
    ///
    /// # Errors
    /// As [`Db::load`], and `Conflict` for a reading that is there already, with [`Existing::Refuse`].
    pub fn load_with(
        &self,
        table: &str,
        batch: &SeriesBatch,
        options: &WriteOptions,
    ) -> Result<WriteReport> {
        let existing = options.existing;
        let _step = self.begin()?;
        self.engine().commits.check_may_wait()?;
        batch.check()?;
        let heads = batch.heads();
        let came: usize = batch.series.iter().map(|series| series.time.len()).sum();
        // The rows in order, as the schema has them that the table is to get.
        let mut ordered = None;
        let columns = columns_of_series(batch);
        let (before, of_its_own, times) = loop {
            let found = self.table_for(table, &heads, &columns, options, |planned| {
                let schema = planned.made.schema();
                check_heads(&planned.made, &schema, &heads)?;
                let (sensors, rows) = (planned.sensors(&heads)?, order_all(&schema, batch)?);
                check_series(planned.with_rows(), &heads, &sensors, &rows, came, existing)?;
                ordered = Some((schema, rows));
                Ok(true)
            })?;
            let found = found.ok_or_else(|| Error::internal("a load was taken for nothing"))?;
            let (table, Some(schema)) = (found.table, found.schema) else { continue };
            check_heads(&table, &schema, &heads)?;
            let sensors = find_sensors(&table, &heads)?;
            let rows = match ordered.take() {
                Some((expected, rows)) if expected.fields == schema.fields => rows,
                _ => order_all(&schema, batch)?,
            };
            check_series(&table, &heads, &sensors, &rows, came, existing)?;
            let of_its_own = (came - rows.iter().map(SensorRows::len).sum::<usize>()) as u64;
            let refused = existing == Existing::Refuse;
            let again = refused.then(|| (sensors.clone(), rows.clone()));
            let enter = || {
                let inside = self.enter(&table, existing)?;
                if let Some((sensors, rows)) = again {
                    // Rows that came while objects were written must be seen.
                    check_series(&table, &heads, &sensors, &rows, came, existing)?;
                }
                Ok(inside)
            };
            let series: Vec<_> = sensors.into_iter().zip(rows).collect();
            let times: Vec<_> =
                series.iter().map(|(sensor, rows)| (*sensor, rows.times.clone())).collect();
            match self.load_series(&table, &schema, series, enter)? {
                Loaded::Shown(before) => break (before, of_its_own, times),
                // Fields have got other types: the rows get them, too, or others again.
                Loaded::Outdated => {}
            }
        };
        let report = WriteReport { rows: came, replaced: None, bad: Vec::new() };
        if existing == Existing::Replace {
            return Ok(report);
        }
        let found = before.map_or(Ok(Repeats::default()), |before| before.repeats_of_series(times));
        let replaced = rows_of(found).map(|found| found + of_its_own);
        Ok(WriteReport { replaced, ..report })
    }

    // ---- steps of a write ----

    fn load_series(
        &self,
        table: &Arc<Table>,
        schema: &TableSchema,
        series: Vec<(u32, SensorRows)>,
        enter: impl FnOnce() -> Result<Inside>,
    ) -> Result<Loaded> {
        let take_place = |mark| {
            self.engine().commits.submit_and_wait(Change::Series {
                table: Arc::clone(table),
                change: SeriesChange::Mark(mark),
                record: None,
                watch: None,
            })
        };
        load(&self.engine().kinds.series, table, schema, series, enter, take_place)
    }

    /// The batch without bad rows, and its fields as the table stores them.
    pub(crate) fn fit<'a>(
        &self,
        table: &Table,
        batch: &'a WriteBatch,
        options: &WriteOptions,
        bad: &mut Vec<RowError>,
    ) -> Result<(std::borrow::Cow<'a, WriteBatch>, Vec<Option<ArrayRef>>)> {
        let schema = table.schema();
        check_tags(&schema, batch)?;
        let fields = coerce(&schema, batch, bad)?;
        {
            let sensors = table.sensors.read().unwrap_or_else(PoisonError::into_inner);
            refuse_long_tags(&schema, batch, &sensors, bad);
        }
        if bad.is_empty() {
            return Ok((std::borrow::Cow::Borrowed(batch), fields));
        }
        bad.sort_by_key(|error| error.row);
        bad.dedup_by_key(|error| error.row);
        if options.bad_rows == BadRows::Reject {
            let first = &bad[0];
            return Err(first.error.clone().context(format_args!("row {}", first.number())));
        }
        let good = tidefall_series::ingest::without_rows(batch, bad)?;
        let fields = coerce(&schema, &good, &mut Vec::new())?;
        Ok((std::borrow::Cow::Owned(good), fields))
    }
}

/// The sensor of each row; new ones are added. Storage learns of them with the rows.
pub(crate) fn find_sensors(table: &Table, batch: &WriteBatch) -> Result<Vec<u32>> {
    let schema = table.schema();
    {
        let sensors = table.sensors.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = sensors_of_rows(&schema, batch, |values| Ok(sensors.find(values)))? {
            return Ok(found);
        }
    }
    let mut sensors = table.sensors.write().unwrap_or_else(PoisonError::into_inner);
    let found = sensors_of_rows(&schema, batch, |values| sensors.find_or_add(values).map(Some))?;
    found.ok_or_else(|| Error::invalid("a sensor was not found"))
}

/// Whether a batch has columns that the table does not have.
pub(crate) fn lacks_columns(schema: &TableSchema, batch: &WriteBatch) -> bool {
    let tags = batch.tags.iter().map(|tag| &tag.name);
    let fields = batch.fields.iter().map(|field| &field.name);
    tags.chain(fields).any(|name| schema.column(name).is_none())
}

/// What the rows of a batch will take in memory, or about that.
fn held_bytes(batch: &WriteBatch) -> usize {
    let values = batch.fields.iter().map(|field| size_bytes(&field.values));
    batch.rows() * (size_of::<i64>() + size_of::<u32>()) + values.sum::<usize>()
}

/// The report of a write that is done, which does not say what was replaced where that is to be counted.
fn with_doubts(report: WriteReport, watch: Option<&Watch>) -> (WriteReport, Option<Uncounted>) {
    match watch.and_then(Watch::end) {
        Some(uncounted) => (WriteReport { replaced: None, ..report }, Some(uncounted)),
        None => (report, None),
    }
}

pub(crate) fn refuse_repeats(table: &Table, batch: &WriteBatch, sensor: &[u32]) -> Result<()> {
    let repeats = table.sources()?.repeats_of_rows(sensor, &batch.time)?;
    let Some(example) = repeats.example else { return Ok(()) };
    let is_it = |row: &usize| (sensor[*row], batch.time[*row]) == example;
    let row = (0..batch.rows()).rfind(is_it).unwrap_or_default();
    let example = format!("that of {}{}", tags_of(batch, row), format_time(example.1));
    Err(would_replace(table, (repeats.rows, batch.rows()), &example))
}

/// The tags of series must be tags of the table, and short enough.
fn check_heads(table: &Table, schema: &TableSchema, heads: &WriteBatch) -> Result<()> {
    check_tags(schema, heads)?;
    let mut bad = Vec::new();
    let sensors = table.sensors.read().unwrap_or_else(PoisonError::into_inner);
    refuse_long_tags(schema, heads, &sensors, &mut bad);
    match bad.into_iter().next() {
        None => Ok(()),
        Some(first) => Err(first.error.context(format_args!("series {}", first.row))),
    }
}

/// The rows of each series, in order of time, with the fields of the schema.
fn order_all(schema: &TableSchema, batch: &SeriesBatch) -> Result<Vec<SensorRows>> {
    batch.series.iter().map(|columns| order_series(schema, &batch.fields, columns)).collect()
}

/// Refuses two series of a sensor, and as [`refuse_repeats`] series that came with so many rows, if that is wished for.
/// Their tags are the rows of `heads`.
fn check_series(
    table: &Table,
    heads: &WriteBatch,
    sensors: &[u32],
    series: &[SensorRows],
    came: usize,
    existing: Existing,
) -> Result<()> {
    let mut seen = RoaringBitmap::new();
    if let Some(number) = sensors.iter().position(|sensor| !seen.insert(*sensor)) {
        return Err(Error::invalid(format!(
            "series {number} has the tags of one before it; put the readings of a sensor into one series"
        )));
    }
    if existing != Existing::Refuse {
        return Ok(());
    }
    let times = sensors.iter().copied().zip(series.iter().map(|rows| rows.times.clone()));
    let found = table.sources()?.repeats_of_series(times.collect())?;
    let kept: usize = series.iter().map(SensorRows::len).sum();
    let repeats = found.rows + (came - kept) as u64;
    if repeats == 0 {
        return Ok(());
    }
    let example = match found.example {
        None => "two of a sensor with the same time".to_owned(),
        Some((sensor, time_ns)) => {
            let row = sensors.iter().position(|other| *other == sensor).unwrap_or_default();
            format!("that of {}{}", tags_of(heads, row), format_time(time_ns))
        }
    };
    Err(would_replace(table, (repeats, came), &example))
}

fn tags_of(batch: &WriteBatch, row: usize) -> String {
    let tags = batch.tags.iter().filter_map(|tag| {
        let value = tidefall_series::ingest::tag_value(tag, tag.keys[row])?;
        Some(format!("{}={value:?}, ", tag.name))
    });
    tags.collect()
}

fn would_replace(table: &Table, (repeats, rows): (u64, usize), example: &str) -> Error {
    Error::conflict(format!(
        "table {}: {repeats} of {rows} rows would take the place of readings that are there already or of rows before \
         them, such as {example}; nothing of them was written",
        table.schema().name,
    ))
}

/// The tags of a batch must be tags of the table.
fn check_tags(schema: &TableSchema, batch: &WriteBatch) -> Result<()> {
    match batch.tags.iter().find(|tag| !schema.tags.contains(&tag.name)) {
        None => Ok(()),
        Some(tag) if schema.column(&tag.name).is_some() => Err(Error::conflict(format!(
            "table {}: {:?} is a field there, and a tag here",
            schema.name, tag.name
        ))),
        Some(tag) => Err(tidefall_series::ingest::unknown_column(schema, &tag.name)),
    }
}
