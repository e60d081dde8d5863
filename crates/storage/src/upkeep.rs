//! What a database does by itself: commit in groups, make room in memory, let readings fall when
//! they are due, and end its log.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tidefall_types::{Error, ErrorKind, Result};

use crate::cascade::{Boundaries, Take, drain, kv_to_short, short_to_long};
use crate::engine::{Alarm, Engine};
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
    let flushed = for_all(&engine.tables(), |table| {
        let boundaries = Boundaries::new(&table.schema().options, Target::ByAge, engine.now_ns());
        drain(engine, table, &boundaries, Take::All)
    });
    if flushed.is_err() && had_unlogged {
        // What is still in memory is for the next flush, at the latest for the close.
        engine.has_unlogged.store(true, Ordering::Release);
    }
    engine.cut_log()?;
    flushed
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

/// Lets the readings of a table fall, and takes those away that are too old to keep.
pub(crate) fn cascade_table(
    engine: &Engine,
    table: &Arc<Table>,
    target: Target,
) -> Result<CascadeReport> {
    table.check_whole()?;
    let boundaries = Boundaries::new(&table.schema().options, target, engine.now_ns());
    let take = if target == Target::ByAge { Take::Due } else { Take::All };
    let mut report = drain(engine, table, &boundaries, take)?;
    engine.steps.check()?;
    // Behind the drain, which may bring readings that are too old already.
    report += crate::cascade::retain(engine, table)?;
    report += kv_to_short(engine, table, &boundaries)?;
    report += short_to_long(engine, table, &boundaries, target)?;
    Ok(report)
}

/// Forgets what is not needed any more after readings have fallen: the log of what is in objects, and deletes that
/// hide nothing.
pub(crate) fn forget(engine: &Engine) -> Result<()> {
    engine.cut_log()?;
    engine.tables().iter().try_for_each(|table| engine.retire_tombstones(table))
}

/// Starts the thread that writes the log and shows what is in it.
pub(crate) fn spawn_committer(engine: &Arc<Engine>) -> Result<JoinHandle<()>> {
    let engine = Arc::clone(engine);
    std::thread::Builder::new()
        .name("tidefall-commit".into())
        .spawn(move || engine.commits.run(&engine.wal, |bytes| engine.rows_came(bytes)))
        .map_err(|error| Error::io("starting a thread", &error))
}

/// Starts the thread that drains memory when it is full and lets readings fall when they are due.
pub(crate) fn spawn_tide(engine: &Arc<Engine>) -> Result<JoinHandle<()>> {
    let engine = Arc::clone(engine);
    std::thread::Builder::new()
        .name("tidefall-tide".into())
        .spawn(move || {
            while let Some(alarm) = wait_for_alarm(&engine) {
                // While the database closes none begins, and one that is under way may end early.
                let Ok(_step) = engine.steps.begin() else { continue };
                let done = caught(|| round(&engine, alarm));
                if engine.steps.check().is_ok() {
                    note(&engine, alarm, done);
                }
            }
        })
        .map_err(|error| Error::io("starting a thread", &error))
}

/// Notes how a round ended.
fn note(engine: &Engine, alarm: Alarm, done: Result<()>) {
    let is_blocked = alarm.is_full.then(|| engine.blocked().is_some());
    match (done, is_blocked) {
        (Ok(()), Some(true)) => {
            engine.set_blocked(None);
            tracing::info!("the disk has room again: readings are moved, and writes taken");
        }
        (Ok(()), _) => {}
        (Err(error), Some(was_blocked)) if error.kind() == ErrorKind::Full => {
            if !was_blocked {
                tracing::error!(%error, "readings cannot leave memory until the disk has room");
            }
            engine.set_blocked(Some(error));
        }
        (Err(error), is_blocked) => {
            tracing::error!(%error, "readings could not be moved");
            if is_blocked.is_some() {
                // Memory cannot be freed: writers must learn why instead of waiting.
                engine.commits.fail(&error);
            }
        }
    }
}

/// Waits until there is something to do; nothing when the database closes.
fn wait_for_alarm(engine: &Engine) -> Option<Alarm> {
    let is_blocked = engine.blocked().is_some();
    let pause = engine.options.cascade_pause;
    let pause = if is_blocked { pause.min(FULL_PAUSE) } else { pause };
    let guard = engine.alarm.0.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut guard, _) = engine
        .alarm
        .1
        .wait_timeout_while(guard, pause, |alarm| {
            (is_blocked || !alarm.is_full) && !alarm.is_closing
        })
        .unwrap_or_else(PoisonError::into_inner);
    let mut alarm = std::mem::take(&mut *guard);
    // As it is now: the drain may have ended since somebody called for it, or nobody may have.
    alarm.is_full = is_blocked || engine.is_full();
    (!alarm.is_closing).then_some(alarm)
}

fn round(engine: &Engine, alarm: Alarm) -> Result<()> {
    let _maintenance = engine.maintain()?;
    if alarm.is_full { flush(engine).map(drop) } else { tend(engine) }
}

/// Ends the log, and notes where if readings are only there: so a file that goes missing is noticed.
pub(crate) fn close_log(engine: &Engine, wal: Wal) -> Result<()> {
    let end = wal.next_seq();
    wal.close()?;
    let mut manifest = engine.manifest();
    let state = manifest.state();
    if end <= state.wal_from || end == state.log_end {
        return Ok(());
    }
    engine.commit(&mut manifest, &[Edit::LogEnd(end)])
}

fn tend(engine: &Engine) -> Result<()> {
    let moved = for_all(&engine.tables(), |table| cascade_table(engine, table, Target::ByAge));
    forget(engine)?;
    engine.sweep()?;
    moved.map(drop)
}
