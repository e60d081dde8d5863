//! What a database does by itself: commit in groups, make room in memory, let readings fall when
//! they are due, and end its log.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidefall_types::{Error, ErrorKind, Result};

use crate::cascade::{Boundaries, Outcome, Take, drain, kv_to_short, look_again, short_to_long};
use crate::engine::Engine;
use crate::manifest::Edit;
use crate::options::{CascadeReport, Target};
use crate::panics::caught;
use crate::table::Table;
use crate::wal::Wal;

/// How long a drain waits to be tried again when a full disk has kept rows in memory: soon after there is room,
/// writers are let in again, and until then the tries cost next to nothing.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// Writes all rows in memory to objects, each in the model that owns its time.
pub(crate) fn flush(engine: &Engine) -> Result<CascadeReport> {
    let had_unlogged = engine.has_unlogged.swap(false, Ordering::AcqRel);
    let flushed = for_all(&engine.tables(), |table| drain_table(engine, table));
    if flushed.is_err() && had_unlogged {
        // What is still in memory is for the next flush, at the latest for the close.
        engine.has_unlogged.store(true, Ordering::Release);
    }
    engine.cut_log()?;
    flushed
}

/// Writes all rows of a table that are in memory to objects, each in the model that owns its time.
fn drain_table(engine: &Engine, table: &Arc<Table>) -> Result<CascadeReport> {
    let boundaries = Boundaries::new(&table.schema().options, Target::ByAge, engine.now_ns());
    drain(engine, table, &boundaries, Take::All)
}

/// Does something to each table, also behind one with which it failed or panicked, so that one damaged
/// object does not keep other tables from being tended. Returns the first error.
pub(crate) fn for_all(
    tables: &[Arc<Table>],
    act: impl Fn(&Arc<Table>) -> Result<CascadeReport>,
) -> Result<CascadeReport> {
    let mut report = CascadeReport::default();
    let mut failure = None;
    for table in tables {
        match caught(|| act(table)) {
            Ok(done) => report += done,
            Err(error) => {
                failure.get_or_insert(error);
            }
        }
    }
    failure.map_or(Ok(report), Err)
}

/// Between two parts of a step that may take long: does not go on when the database closes, and drains memory when that is full.
/// Nobody else does meanwhile, and writers wait for it.
pub(crate) fn between_parts(engine: &Engine) -> Result<()> {
    engine.steps.check()?;
    if engine.is_full() {
        match flush(engine) {
            Ok(_) => engine.set_blocked(None),
            // The upkeep tries again when this step ends. This step may yet make room.
            Err(error) => {
                tracing::warn!(%error, "rows in memory could not be moved while others are");
                if error.kind() == ErrorKind::Full {
                    engine.set_blocked(Some(error));
                    engine.raise(|alarm| alarm.is_full = true);
                }
            }
        }
    }
    Ok(())
}

/// Lets the readings of a table fall, and takes those away that are too old to keep: each step, whatever became of the others, unless
/// the disk is full or writes have ended. Returns the first error.
pub(crate) fn cascade_table(
    engine: &Engine,
    table: &Arc<Table>,
    target: Target,
) -> Result<CascadeReport> {
    table.check_whole()?;
    look_again(table);
    let boundaries = Boundaries::new(&table.schema().options, target, engine.now_ns());
    let take = if target == Target::ByAge { Take::Due } else { Take::All };
    let drained = drain(engine, table, &boundaries, take);
    engine.steps.check()?;
    // Behind the drain, which may bring readings that are too old already; and also when there was no room for it, as
    // this makes some.
    let retained = crate::cascade::retain(engine, table);
    let mut outcome = Outcome::default();
    outcome.note(drained)?;
    outcome.note(retained)?;
    outcome.check(between_parts(engine))?;
    kv_to_short(engine, table, &boundaries, &mut outcome)?;
    short_to_long(engine, table, &boundaries, target, &mut outcome)?;
    outcome.end()
}

/// Forgets what is not needed any more after readings have fallen: the log of what is in objects, and deletes that
/// hide nothing.
pub(crate) fn forget(engine: &Engine) -> Result<()> {
    let released = release_log(engine);
    let cut = engine.cut_log();
    let retired = engine.tables().into_iter().map(|table| engine.retire_tombstones(&table));
    retired.fold(released.and(cut), Result::and)
}

/// Drains the tables that keep the oldest part of a log that is too long. A few rows may stay in memory for years when
/// they are of the future or come of age late, and all that was logged behind them would stay with them.
fn release_log(engine: &Engine) -> Result<()> {
    let Some(place) = engine.place_to_cut() else { return Ok(()) };
    let keeps_it = |table: &Arc<Table>| table.live().all_runs().any(|run| run.first_seq < place);
    let keepers: Vec<_> = engine.tables().into_iter().filter(keeps_it).collect();
    for_all(&keepers, |table| drain_table(engine, table)).map(drop)
}

/// Starts the thread that writes the log and shows what is in it.
pub(crate) fn spawn_committer(engine: &Arc<Engine>) -> Result<JoinHandle<()>> {
    let engine = Arc::clone(engine);
    std::thread::Builder::new()
        .name("tidefall-commit".into())
        .spawn(move || engine.commits.run(&engine.wal, |bytes| engine.rows_came(bytes)))
        .map_err(|error| Error::io("starting a thread", &error))
}

/// A longer pause is never over, and clocks end somewhere.
const PAUSE_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Starts the thread that drains memory when it is full and lets readings fall when they are due.
pub(crate) fn spawn_tide(engine: &Arc<Engine>) -> Result<JoinHandle<()>> {
    let engine = Arc::clone(engine);
    std::thread::Builder::new()
        .name("tidefall-tide".into())
        .spawn(move || {
            let pause = engine.options.cascade_pause.min(PAUSE_MAX);
            let mut next_tend = Instant::now() + pause;
            while let Some(due) = wait_for_work(&engine, next_tend) {
                if due.drains {
                    in_a_step(&engine, drain_all, |drained| note(&engine, drained));
                }
                if due.tends {
                    in_a_step(&engine, tend, |tended| {
                        if let Err(error) = tended {
                            tracing::error!(%error, "readings could not be moved");
                        }
                    });
                    next_tend = Instant::now() + pause;
                }
            }
        })
        .map_err(|error| Error::io("starting a thread", &error))
}

/// What the upkeep has to do.
#[derive(Debug, Clone, Copy)]
struct Due {
    /// Rows in memory are to be drained.
    drains: bool,
    /// It is time to look at which readings have come of age.
    tends: bool,
}

/// Does a part of the upkeep. While the database closes none begins, and one that is under way may end early.
fn in_a_step(engine: &Engine, act: impl Fn(&Engine) -> Result<()>, note: impl FnOnce(Result<()>)) {
    let Ok(_step) = engine.steps.begin() else { return };
    if engine.commits.failure().is_some() {
        // Nothing can be written any more, and whoever asks is told why.
        return;
    }
    let done = caught(|| {
        let _maintenance = engine.maintain()?;
        act(engine)
    });
    if engine.steps.check().is_ok() {
        note(done);
    }
}

/// Notes how a drain ended.
fn note(engine: &Engine, drained: Result<()>) {
    let was_blocked = engine.blocked().is_some();
    match drained {
        Ok(()) if was_blocked => {
            engine.set_blocked(None);
            tracing::info!("there is room again: readings are moved, and writes taken");
        }
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::Full => {
            if !was_blocked {
                tracing::error!(%error, "readings cannot leave memory until there is room");
            }
            engine.set_blocked(Some(error));
        }
        Err(error) => {
            tracing::error!(%error, "readings could not be moved");
            // Memory cannot be freed: writers must learn why instead of waiting.
            engine.commits.fail(&error);
        }
    }
}

/// Waits until there is something to do; nothing when the database closes.
fn wait_for_work(engine: &Engine, next_tend: Instant) -> Option<Due> {
    let is_blocked = engine.blocked().is_some();
    let pause = next_tend.saturating_duration_since(Instant::now());
    let pause = if is_blocked { pause.min(FULL_PAUSE) } else { pause };
    let guard = engine.alarm.0.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut guard, _) = engine
        .alarm
        .1
        .wait_timeout_while(guard, pause, |alarm| {
            (is_blocked || !alarm.is_full) && !alarm.is_closing
        })
        .unwrap_or_else(PoisonError::into_inner);
    let alarm = std::mem::take(&mut *guard);
    drop(guard);
    // Memory as it is now: the drain may have ended since somebody called for it, or nobody may have. And however often
    // memory is full, what is due is not put off.
    let due = Due { drains: is_blocked || engine.is_full(), tends: Instant::now() >= next_tend };
    (!alarm.is_closing).then_some(due)
}

fn drain_all(engine: &Engine) -> Result<()> {
    if engine.blocked().is_some() {
        make_room(engine);
    }
    flush(engine).map(drop)
}

/// Does what frees room on the disk and needs next to none, each step whatever becomes of the others.
fn make_room(engine: &Engine) {
    let warn = |done: Result<()>| {
        if let Err(error) = done {
            tracing::warn!(%error, "room on the disk could not be freed");
        }
    };
    warn(engine.sweep());
    for table in engine.tables() {
        warn(caught(|| crate::cascade::drop_old(engine, &table)).map(drop));
    }
}

/// Ends the log, and notes where if readings are only there: so a file that goes missing is noticed.
pub(crate) fn close_log(engine: &Engine, wal: Wal) -> Result<()> {
    let end = wal.next_seq();
    let is_as_found = wal.is_as_found();
    match wal.close() {
        // The next open finds what this one has found.
        Err(error) if is_as_found && error.kind() == ErrorKind::Full => return Ok(()),
        closed => closed?,
    }
    let mut manifest = engine.manifest();
    let state = manifest.state();
    if end <= state.wal_from || end == state.log_end {
        return Ok(());
    }
    engine.commit(&mut manifest, &[Edit::LogEnd(end)])
}

/// Lets readings fall that have come of age, and forgets what is not needed any more: each, whatever becomes of the
/// others.
fn tend(engine: &Engine) -> Result<()> {
    let swept = engine.sweep();
    let moved = for_all(&engine.tables(), |table| cascade_table(engine, table, Target::ByAge));
    moved.map(drop).and(forget(engine)).and(swept)
}
