//! What a database does by itself: commit in groups, free memory, move readings to the next model when
//! they are due, and end its log.

use std::cell::Cell;
use std::time::Duration;

use tidefall_ground::alarms::Alarm;
use tidefall_ground::manifest::Edit;
use tidefall_ground::options::CascadeReport;
use tidefall_ground::tries::pauses;
use tidefall_ground::wal::Wal;
use tidefall_series::cascade::{Effort, Look, Take, Target};
use tidefall_sync::atomic::Ordering;
use tidefall_sync::thread::JoinHandle;
use tidefall_sync::{Arc, Instant, PoisonError};
use tidefall_types::{Error, ErrorKind, Result, caught};

use crate::engine::Engine;
use crate::table::Table;

/// How long a flush waits to be tried again when a full disk has kept rows in memory: soon after there is room,
/// writers are let in again, and until then the tries cost next to nothing.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// Writes all rows in memory to objects, each in the model that owns its time. Whoever calls holds [`Engine::begin_flush`], or is alone.
pub(crate) fn flush(engine: &Engine) -> Result<CascadeReport> {
    flush_while(engine, Take::All, || Ok(()))
}

/// As [`flush`] when the database closes, which nobody can try again: a store that fails for a moment is waited for.
pub(crate) fn flush_at_last(engine: &Engine) -> Result<()> {
    let mut pauses = pauses();
    loop {
        let flushed = flush(engine).map(drop);
        let Err(error) = &flushed else { return flushed };
        let Some(pause) = pauses.next().filter(|_| may_pass(engine, error)) else { return flushed };
        tracing::warn!(%error, "rows that only memory has are flushed again");
        tidefall_sync::thread::sleep(pause);
    }
}

/// Writes rows in memory to objects, as many as free memory for others. Whoever calls holds [`Engine::begin_flush`].
///
/// Rows that came late, to days that are in objects already, are few as a rule. Each day would get a part of its own of them, and each time
/// they would be looked up in what there is of it; so they stay until there are many, or the upkeep takes them.
pub(crate) fn flush_some(engine: &Engine) -> Result<CascadeReport> {
    // What the log has need not be written to close the database.
    let go_on = || engine.ground.steps.check();
    engine.ground.free_memory(|| {
        let mut flushed = flush_while(engine, Take::Young, go_on)?;
        // On a disk that was full the log would stay with them, and take what room there is.
        if engine.ground.memory.blocked().is_some()
            || all_late_bytes(engine) > engine.late_bytes_max()
        {
            flushed += flush_while(engine, Take::Late, go_on)?;
        }
        if flushed.steps > 0 && engine.ground.memory.is_full() {
            // More has come meanwhile than one flush takes.
            engine.ground.alarms.raise(|alarm| alarm.is_full = true);
        }
        Ok(flushed)
    })
}

/// The bytes of rows in memory that another model owns.
fn all_late_bytes(engine: &Engine) -> usize {
    engine.tables().iter().map(|table| table.late_bytes(&engine.kinds)).sum()
}

/// As [`flush`], one table after the other as long as it may go on.
fn flush_while(
    engine: &Engine,
    take: Take,
    go_on: impl Fn() -> Result<()>,
) -> Result<CascadeReport> {
    let had_unlogged = engine.has_unlogged.swap(false, Ordering::AcqRel);
    let flush = |table: &Table| go_on().and_then(|()| table.flush(&engine.kinds, take));
    let flushed = for_all(&engine.tables(), flush);
    if had_unlogged && (flushed.is_err() || take != Take::All) {
        // What is still in memory is for the next flush, at the latest for the close.
        engine.has_unlogged.store(true, Ordering::Release);
    }
    if flushed.is_ok() {
        engine.ground.alarms.raise(|alarm| alarm.is_flushed = true);
    }
    engine.note_backlog();
    engine.cut_log()?;
    flushed
}

/// Does something to each table, also behind one with which it failed or panicked, so that one damaged
/// object does not keep other tables from being tended. Returns the first error.
pub(crate) fn for_all(
    tables: &[Table],
    act: impl Fn(&Table) -> Result<CascadeReport>,
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

/// Rounds in which a cascade that is asked for looks again for what others had: so many before nobody else may have anything, and so many behind
/// that. Those in which it was ended for somebody who waited do not count.
const ROUNDS: usize = 4;

/// Moves all readings of a table that may move, for somebody who waits for it. Whoever calls holds the turn of maintenance.
pub(crate) fn cascade_all(engine: &Engine, table: &Table, target: Target) -> Result<CascadeReport> {
    table.forget_failures();
    table.take_refused();
    // Whoever waits to be alone with the table is so between these.
    let cascade = |look| {
        engine.moving(table, |table| table.cascade(&engine.kinds, target, Effort::All, look))
    };
    // Also what was left after a failure; the first one counts.
    let cascade_again = |moved| both(moved, || cascade(Look::Again));
    // This may take hours. Meanwhile run files are laid together, of all tables, ...
    let mut moved = cascade(Look::First);
    let mut rounds = ROUNDS;
    while rounds > 0 && table.take_refused() {
        rounds -= usize::from(!table.lock().take_left());
        moved = cascade_again(moved);
    }
    let (mut rounds, mut is_due) = (ROUNDS, true);
    while rounds > 0 && is_due {
        table.wait_for_retyping();
        let _turn = engine.compact()?;
        // ... and what others had each time is done behind it.
        if table.take_refused() {
            moved = cascade_again(moved);
        }
        moved = both(moved, || {
            engine.moving(table, |table| {
                table.check_whole().and_then(|()| table.compact(&engine.kinds))
            })
        });
        is_due = table.is_refused();
        rounds -= usize::from(!table.lock().take_left());
    }
    moved
}

/// What was done and what is done behind it, unless nothing more can be; the first error counts.
fn both(
    done: Result<CascadeReport>,
    act: impl FnOnce() -> Result<CascadeReport>,
) -> Result<CascadeReport> {
    let ends_all = |error: &Error| matches!(error.kind(), ErrorKind::Full | ErrorKind::Closed);
    if done.as_ref().is_err_and(ends_all) {
        return done;
    }
    let more = act();
    let mut report = done?;
    report += more?;
    Ok(report)
}

/// Forgets what is not needed any more after readings have moved: the log of what is in objects, and deletes that
/// hide nothing.
pub(crate) fn forget(engine: &Engine) -> Result<()> {
    let released = release_log(engine);
    let cut = engine.cut_log();
    let retired = engine.tables().into_iter().map(|table| table.retire_deletes(&engine.kinds));
    retired.fold(released.and(cut), Result::and)
}

/// Flushes the tables that keep the oldest part of a log that is too long. A few rows may stay in memory for years when
/// they are of the future or come of age late, and all that was logged behind them would stay with them.
fn release_log(engine: &Engine) -> Result<()> {
    let Some(place) = engine.place_to_cut() else { return Ok(()) };
    // Held first of all: none of them is dropped meanwhile.
    let _flushing = engine.begin_flush()?;
    let keeps_it = |table: &Table| table.oldest_seq().is_some_and(|seq| seq < place);
    let keepers: Vec<_> = engine.tables().into_iter().filter(keeps_it).collect();
    let flush = |table: &Table| {
        engine.ground.steps.check().and_then(|()| table.flush(&engine.kinds, Take::All))
    };
    for_all(&keepers, flush).map(drop)
}

/// Starts the thread that writes the log and shows what is in it.
pub(crate) fn spawn_committer(engine: &Arc<Engine>) -> Result<JoinHandle<()>> {
    let engine = Arc::clone(engine);
    tidefall_sync::thread::Builder::new()
        .name("tidefall-commit".into())
        .spawn(move || engine.commits.run(&engine.wal, |bytes| engine.ground.rows_came(bytes)))
        .map_err(|error| Error::io("starting a thread", &error))
}

/// How long what was left, because it was being laid together, waits to be looked at again.
const LEFT_PAUSE: Duration = Duration::from_secs(1);

/// A longer pause is never over, and clocks end somewhere.
const PAUSE_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Starts the thread that empties memory when it is full. It waits for no other step.
pub(crate) fn spawn_flusher(engine: &Arc<Engine>) -> Result<JoinHandle<()>> {
    spawn(engine, "tidefall-flush", |engine| {
        loop {
            let is_blocked = engine.ground.memory.blocked().is_some();
            let pause = if is_blocked { FULL_PAUSE } else { PAUSE_MAX };
            let called = |alarm: &mut Alarm| std::mem::take(&mut alarm.is_full) && !is_blocked;
            if !engine.ground.alarms.wait(Instant::now() + pause, called) {
                return;
            }
            // Memory as it is now: a flush may have ended since somebody called for it, or nobody may have called.
            if is_blocked || engine.ground.memory.is_full() {
                in_a_step(engine, flush_all, |flushed| note(engine, flushed));
            }
        }
    })
}

/// Starts the thread that lays together what memory has been emptied into, as there is of it, and by the clock takes away what is too old and what
/// nobody reads any more. No alarm puts that off, nor does a cascade, which may take hours, but for the end of one that is asked for.
pub(crate) fn spawn_compactor(engine: &Arc<Engine>) -> Result<JoinHandle<()>> {
    spawn(engine, "tidefall-compact", |engine| {
        let pause = engine.ground.options.cascade_pause.min(PAUSE_MAX);
        let mut next = Instant::now() + pause;
        let (mut is_full, is_done) = (false, Cell::new(true));
        loop {
            let called = |alarm: &mut Alarm| {
                let is_flushed = std::mem::take(&mut alarm.is_flushed);
                // What does not fit on the disk now does not a moment later.
                std::mem::take(&mut alarm.is_tended) || (is_flushed && !is_full)
            };
            let until = if is_done.get() { next } else { Instant::now() };
            if !engine.ground.alarms.wait(until, called) {
                return;
            }
            if Instant::now() >= next {
                next = Instant::now() + pause;
                in_a_step(engine, tidy, warn_of("what is too old could not be taken away"));
            }
            is_full = false;
            // Also where nothing can be done any more.
            is_done.set(true);
            let compact = |engine: &Engine| compact_until(engine, next).map(|all| is_done.set(all));
            in_a_step(engine, compact, |compacted| {
                is_full = compacted.as_ref().is_err_and(|error| error.kind() == ErrorKind::Full);
                warn_of("objects could not be laid together")(compacted);
            });
        }
    })
}

/// Takes away what is too old as a whole, and what nobody needs any more: each, whatever becomes of the others.
fn tidy(engine: &Engine) -> Result<()> {
    let dropped = for_all(&engine.tables(), |table| {
        let _turn = engine.compact()?;
        match table.damage() {
            None => engine.try_moving(table, |table| table.drop_old(&engine.kinds)),
            Some(_) => Ok(CascadeReport::default()),
        }
    });
    dropped.map(drop).and(engine.sweep())
}

/// Starts the thread that moves readings when they are due. No alarm puts that off.
pub(crate) fn spawn_maintenance(engine: &Arc<Engine>) -> Result<JoinHandle<()>> {
    spawn(engine, "tidefall-upkeep", |engine| {
        let pause = engine.ground.options.cascade_pause.min(PAUSE_MAX);
        let mut next = Instant::now() + pause;
        let mut left: Vec<Table> = Vec::new();
        loop {
            let is_all = left.is_empty() || Instant::now() + LEFT_PAUSE >= next;
            let until = if is_all { next } else { Instant::now() + LEFT_PAUSE };
            if !engine.ground.alarms.wait(until, |_| false) {
                return;
            }
            let warn = warn_of("readings could not be moved");
            if is_all {
                next = Instant::now() + pause;
                in_a_step(engine, tend, warn);
            } else {
                let again = |engine: &Engine| {
                    let _maintenance = engine.maintain()?;
                    cascade_tables(engine, &left, Look::Again)
                };
                in_a_step(engine, again, warn);
            }
            // A cascade that is asked for goes by the same signs.
            let _maintenance = engine.ground.turns.maintain();
            left = engine.tables();
            left.retain(|table| table.take_refused());
        }
    })
}

/// Says in the log what was done since the database was opened, and what is due, if there is something new or due.
fn tell(engine: &Engine) {
    let (has_news, work) = (engine.ground.worked.has_news(), engine.work());
    if !has_news && work.objects_to_compact == 0 && work.behind.is_none() {
        return;
    }
    tracing::info!(
        flushed_bytes = work.flushed_bytes,
        amplification = work.amplification(),
        delayed_writes = work.delayed_writes,
        delayed_s = work.delayed.as_secs_f64(),
        objects_to_compact = work.objects_to_compact,
        replaced_objects = work.replaced_objects,
        behind_s = work.behind.map_or(0, |behind| behind.as_secs()),
        "upkeep"
    );
}

fn spawn(
    engine: &Arc<Engine>,
    name: &str,
    run: impl FnOnce(&Engine) + Send + 'static,
) -> Result<JoinHandle<()>> {
    let engine = Arc::clone(engine);
    tidefall_sync::thread::Builder::new()
        .name(name.into())
        .spawn(move || run(&engine))
        .map_err(|error| Error::io("starting a thread", &error))
}

fn warn_of(what: &'static str) -> impl FnOnce(Result<()>) {
    move |done| {
        if let Err(error) = done {
            tracing::error!(%error, "{what}");
        }
    }
}

/// Does a part of the upkeep. While the database closes none begins, and one that is under way may end early.
fn in_a_step(engine: &Engine, act: impl Fn(&Engine) -> Result<()>, note: impl FnOnce(Result<()>)) {
    let Ok(_step) = engine.ground.steps.begin() else { return };
    if engine.commits.failure().is_some() {
        // Nothing can be written any more, and whoever asks is told why.
        return;
    }
    let done = caught(|| act(engine));
    if engine.ground.steps.check().is_ok() {
        note(done);
    }
}

/// Notes how a flush ended.
fn note(engine: &Engine, flushed: Result<()>) {
    let was_blocked = engine.ground.memory.blocked().is_some();
    match flushed.map_err(|error| full_if_away(engine, error)) {
        Ok(()) if was_blocked => {
            engine.ground.memory.set_blocked(None);
            tracing::info!("there is room again: readings are moved, and writes taken");
        }
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::Full => {
            if !was_blocked {
                tracing::error!(%error, "readings cannot leave memory until there is room");
            }
            engine.ground.memory.set_blocked(Some(error));
        }
        Err(error) => {
            tracing::error!(%error, "readings could not be moved");
            // Memory cannot be freed: writers must learn why instead of waiting.
            engine.commits.fail(&error);
        }
    }
}

/// A store that is away for a moment is as one that is full.
fn full_if_away(engine: &Engine, error: Error) -> Error {
    match may_pass(engine, &error) {
        true => error
            .context("readings cannot leave memory while the store of the objects fails")
            .with_kind(ErrorKind::Full),
        false => error,
    }
}

/// Whether an error is that of a store that is away for a moment, and not of a commit or the log, whose failures end writes.
pub(crate) fn may_pass(engine: &Engine, error: &Error) -> bool {
    let is_of_store = error.kind() == ErrorKind::Io && engine.ground.io.recovers();
    is_of_store && engine.commits.failure().is_none()
}

fn flush_all(engine: &Engine) -> Result<()> {
    if engine.ground.memory.blocked().is_some() {
        free_disk(engine);
    }
    let _flushing = engine.begin_flush()?;
    flush_some(engine).map(drop)
}

/// Lays together what has piled up, in each table as much as is due at once, and again until nothing is, or a time has come. What was laid together goes
/// when nobody reads it any more. Returns whether nothing is left.
fn compact_until(engine: &Engine, until: Instant) -> Result<bool> {
    loop {
        let compacted = for_all(&engine.tables(), |table| {
            // Given back after each: others may wait for it.
            let _turn = engine.compact()?;
            // On a full disk it would only take more of it.
            match table.damage().is_none() && engine.ground.memory.blocked().is_none() {
                true => engine.try_moving(table, |table| table.compact_once(&engine.kinds)),
                false => Ok(CascadeReport::default()),
            }
        });
        engine.note_backlog();
        let deleted = engine.delete_replaced();
        let is_done = compacted?.steps == 0;
        if is_done || Instant::now() >= until {
            return deleted.map(|()| is_done);
        }
    }
}

/// Does what frees space on the disk and needs next to none, each step whatever becomes of the others, unless that is being done.
fn free_disk(engine: &Engine) {
    let Some(_maintenance) = engine.ground.turns.try_to_maintain() else { return };
    let warn = |done: Result<()>| {
        if let Err(error) = done
            && error.kind() != ErrorKind::Closed
        {
            tracing::warn!(%error, "room on the disk could not be freed");
        }
    };
    warn(engine.sweep());
    for table in engine.tables() {
        // Who is alone with it may wait for room.
        let dropped = caught(|| engine.try_moving(&table, |table| table.drop_old(&engine.kinds)));
        warn(dropped.map(drop));
    }
}

/// Cuts a log that lies apart when no readings are only there, so that another one may take its place. Readings that are there stay there.
pub(crate) fn spend_log(engine: &Engine) -> Result<()> {
    let is_apart = engine.ground.manifest().log() != 0;
    let needs_log = |table: &Table| table.oldest_seq().is_some() || table.damage().is_some();
    if !is_apart || engine.tables().iter().any(needs_log) {
        return Ok(());
    }
    engine.cut_log()?;
    // Also files that a crash left behind: it would be taken for the log of an overtaken writer when it comes back.
    let from = engine.ground.manifest().state().wal_from;
    let mut wal = engine.wal.lock().unwrap_or_else(PoisonError::into_inner);
    wal.as_mut().map_or(Ok(()), |wal| wal.cut(from).map(drop))
}

/// Ends the log, and notes where if readings are only there, so that a file that goes missing is noticed, or if the log lies apart and none are.
pub(crate) fn close_log(engine: &Engine, wal: Wal) -> Result<()> {
    let end = wal.next_seq();
    let is_as_found = wal.is_as_found();
    match wal.close() {
        // The next open finds what this one has found.
        Err(error) if is_as_found && error.kind() == ErrorKind::Full => return Ok(()),
        closed => closed?,
    }
    let mut manifest = engine.ground.manifest();
    let state = manifest.state();
    let is_known = match end <= state.wal_from {
        true => manifest.log() == 0 || state.has_spent_log,
        false => end == state.log_end,
    };
    if is_known {
        return Ok(());
    }
    engine.ground.commit(&mut manifest, &[Edit::LogEnd(end)])
}

/// Moves readings that have come of age, and forgets what is not needed any more: each, whatever becomes of the
/// others.
fn tend(engine: &Engine) -> Result<()> {
    let _maintenance = engine.maintain()?;
    let moved = cascade_tables(engine, &engine.tables(), Look::First);
    engine.ground.alarms.raise(|alarm| alarm.is_tended = true);
    tell(engine);
    moved.and(forget(engine))
}

fn cascade_tables(engine: &Engine, tables: &[Table], look: Look) -> Result<()> {
    let cascade = |table: &Table| table.cascade(&engine.kinds, Target::ByAge, Effort::Some, look);
    // Of one table at a time: whoever needs one for himself waits for no other, and keeps none from being tended.
    for_all(tables, |table| engine.try_moving(table, cascade)).map(drop)
}
