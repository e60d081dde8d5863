//! From what lies on disk to an open database: the manifest's state, then the log behind it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tidefall_ground::manifest::log::ManifestLog;
use tidefall_ground::manifest::reached::Reached;
use tidefall_ground::manifest::{State, TableState};
use tidefall_ground::wal::{Record, Replay, split_table};
use tidefall_store::{ADVICE, Disk, ObjectIo, copy_aside, keep_aside, names};
use tidefall_types::{Error, ErrorKind, Result, Seq, TableId};

use crate::engine::Engine;
use crate::table::Table;

/// A sequence number above all that a state knows.
pub(crate) fn seq_behind(state: &State) -> Seq {
    let stored = state.tables.values().filter_map(TableState::last_seq).max();
    stored.map_or(state.wal_from, |seq| state.wal_from.max(Seq(seq.0 + 1)))
}

/// The manifest, for whoever writes it, and how far it had come.
///
/// # Errors
/// `Corrupt` when it is damaged, or lacks its newest files.
pub(crate) fn open_manifest(
    io: &Arc<dyn ObjectIo>,
    disk: &Arc<dyn Disk>,
) -> Result<(ManifestLog<State>, Reached)> {
    let reached = Reached::read(&**io)?;
    let manifest: ManifestLog<State> = ManifestLog::open(Arc::clone(io))?;
    if manifest.version() == 0 {
        check_new(&**io, disk)?;
    }
    reached.check(manifest.version())?;
    Ok((manifest, reached))
}

/// Whether a database without a manifest is a new one: it holds nothing that one must have named.
///
/// # Errors
/// `Corrupt` when the manifest is missing. What it named must not be taken for strays. `Io` and `Full` when the log cannot
/// be read now.
pub(crate) fn check_new(io: &dyn ObjectIo, disk: &Arc<dyn Disk>) -> Result<()> {
    let objects = io.list(names::OBJECTS_DIR)?;
    let count = objects.iter().filter(|(name, _)| names::parse_object(name).is_some()).count();
    let is_logged = is_logged(disk)?;
    if count == 0 && !is_logged {
        return Ok(());
    }
    let held = if is_logged { "a log with records" } else { "no records in the log" };
    Err(Error::corrupt(format!(
        "there is nothing in {}, but {count} objects in {} and {held}: without the manifest nobody knows what they are; \
         restore it from a copy. Nothing was changed",
        names::MANIFEST_DIR,
        names::OBJECTS_DIR
    )))
}

/// Whether there is a record in the log, or something that may be one.
///
/// # Errors
/// `Io` and `Full` when that cannot be read now.
pub(crate) fn is_logged(disk: &Arc<dyn Disk>) -> Result<bool> {
    let first = Replay::open(disk, Seq(0)).and_then(|mut records| records.next().transpose());
    match first {
        Ok(first) => Ok(first.is_some()),
        Err(error) if matches!(error.kind(), ErrorKind::Io | ErrorKind::Full) => Err(error),
        Err(_) => Ok(true),
    }
}

/// Makes tables of a state, without what is only in the log. One that is damaged is there, but only to be dropped. Objects that tables of an
/// earlier state have open are shared with them.
pub(crate) fn load_tables(engine: &Engine, state: &State) -> Result<Vec<Table>> {
    let load = |stored: &TableState| {
        let earlier = engine.table_by_id(stored.schema.id);
        Table::open(&engine.kinds, stored, earlier.as_ref())
    };
    state.tables.values().map(load).collect()
}

/// Deletes objects that the state does not name: a crash left them between being written and being
/// installed, or they were replaced some time ago. Those that were replaced just now stay as long as they would
/// if the database had not been closed. When a commit that named them may be lost they are kept aside, by a second name on `disk`, or as a copy where none is given.
///
/// `found` are the objects that lay there before anybody else could begin to write.
pub(crate) fn delete_strays(
    engine: &Engine,
    disk: Option<&dyn Disk>,
    state: &State,
    found: Vec<(String, u64)>,
) -> Result<()> {
    engine.ground.obsolete.add(&state.replaced);
    // Before what was replaced goes, which is none of them.
    let strays = strays(engine, state, found);
    if let Err(error) = engine.delete_replaced() {
        tracing::warn!(%error, "objects that were replaced stay for now");
    }
    let mark = engine.ground.manifest().mark();
    let knows_all = engine.ground.reached().knows_all_objects(mark);
    if !knows_all && !strays.is_empty() {
        let names = strays.iter().map(|(name, _)| name.clone());
        let kept = match disk {
            Some(disk) => keep_aside(disk, names),
            None => copy_aside(&*engine.ground.io, names),
        };
        let stay = |error: &Error| {
            tracing::warn!(%error, "objects that nothing names stay where they are");
            let ids = strays.iter().filter_map(|(name, _)| names::parse_object(name));
            ids.for_each(|id| engine.ground.skip_objects(id));
            // The next open must not take them for what it knows.
            engine.ground.leave_unmarked();
            Ok(())
        };
        match kept {
            Ok(kept_in) => tracing::warn!(
                objects = strays.len(),
                kept_in,
                "the manifest does not name some objects, and it is not known whether it ever did: they are kept aside; \
                 when no readings are missing they may be deleted"
            ),
            // A store that is away for a moment.
            Err(error) if disk.is_none() || error.kind() == ErrorKind::Full => return stay(&error),
            Err(error) => return Err(error),
        }
    }
    for (name, bytes) in strays {
        match engine.ground.io.delete(&name) {
            Ok(()) => tracing::info!(%name, bytes, "deleted an object that nothing names"),
            // It does no harm where it is, and the next open tries again.
            Err(error) => tracing::warn!(%name, %error, "an object that nothing names stays"),
        }
    }
    if !knows_all {
        engine.ground.mark_reached(mark);
    }
    Ok(())
}

/// Those of some objects that neither the tables nor what was replaced just now names.
pub(crate) fn strays(
    engine: &Engine,
    state: &State,
    mut found: Vec<(String, u64)>,
) -> Vec<(String, u64)> {
    let tables = state.tables.values();
    let known: HashSet<String> = tables.flat_map(TableState::object_names).collect();
    found.retain(|(name, _)| {
        let is_named = known.contains(name) || engine.ground.obsolete.has(name);
        names::parse_object(name).is_some() && !is_named
    });
    found
}

/// Brings what the log holds back into the memory of tables. Returns the number of rows, and the place behind the last record.
///
/// # Errors
/// `Corrupt` when the log is damaged, or ends before it did when the database was closed.
pub(crate) fn replay(tables: &[Table], state: &State, records: Replay) -> Result<(u64, Seq)> {
    let by_id: HashMap<TableId, &Table> = tables.iter().map(|table| (table.id(), table)).collect();
    let mut rows = 0;
    let mut end = state.wal_from;
    for record in records {
        let record = record?;
        let seq = record.seq;
        end = Seq(seq.0 + 1);
        rows += replay_record(&by_id, state, record)
            .map_err(|error| error.context(format_args!("record {seq} of the log")))
            .map_err(|error| match error.kind() {
                ErrorKind::Corrupt => Error::corrupt(format!("{error}; {ADVICE}")),
                _ => error,
            })?;
    }
    tables.iter().for_each(Table::replayed);
    if end < state.log_end {
        return Err(Error::corrupt(format!(
            "the log ends before record {end}, but had reached {} when the database was closed: \
             the last file in {} is missing or cut short; {ADVICE}",
            state.log_end,
            names::WAL_DIR
        )));
    }
    Ok((rows, end))
}

/// Checks that the manifest has had a table, of which it knew before the log did.
///
/// # Errors
/// `Corrupt` when it is too old.
pub(crate) fn check_table(state: &State, id: TableId) -> Result<()> {
    if id.0 < state.next_table {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "it is of table number {}, of which the manifest knows nothing: the newest files in {} are missing",
        id.0,
        names::MANIFEST_DIR
    )))
}

fn replay_record(tables: &HashMap<TableId, &Table>, state: &State, record: Record) -> Result<u64> {
    let Record { seq, kind, payload } = record;
    let (id, body) = split_table(&payload)?;
    check_table(state, id)?;
    // A table that is gone was dropped after this was written. Of one that is damaged the log keeps
    // what it holds.
    let Some(table) = tables.get(&id).filter(|table| table.damage().is_none()) else {
        return Ok(0);
    };
    table.replay(state.tables.get(&id), (seq, kind, body))
}
