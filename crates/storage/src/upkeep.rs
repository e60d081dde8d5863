//! What a database does by itself: commit in groups, make room in memory, let readings fall when
//! they are due, and end its log.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidefall_types::{Error, ErrorKind, Result};

use crate::cascade::{
    Boundaries, Effort, Outcome, Take, compact_once, drain, kv_to_short, look_again, short_to_long,
};
use crate::engine::{Alarm, Engine};
use crate::manifest::Edit;
use crate::options::{CascadeReport, Target};
use crate::panics::caught;
use crate::table::Table;
use crate::wal::Wal;

/// How long a drain waits to be tried again when a full disk has kept rows in memory: soon after there is room,
/// writers are let in again, and until then the tries cost next to nothing.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// Writes all rows in memory to objects, each in the model that owns its time. Whoever calls holds [`Engine::begin_flush`], or is alone.
pub(crate) fn flush(engine: &Engine) -> Result<CascadeReport> {
    flush_while(engine, Take::All, || Ok(()))
}

/// Writes rows in memory to objects, as many as make room for others. Whoever calls holds [`Engine::begin_flush`].
///
/// Rows that came late, to days that are in objects already, are few as a rule. Each day would get a part of its own of them, and each time
/// they would be looked up in what there is of it; so they stay until there are many, or the upkeep takes them.
pub(crate) fn flush_some(engine: &Engine) -> Result<CascadeReport> {
    // What the log has need not be written to close the database.
    let go_on = || engine.steps.check();
    engine.make_room(|| {
        let mut flushed = flush_while(engine, Take::Young, go_on)?;
        // On a disk that was full the log would stay with them, and take what room there is.
        if engine.blocked().is_some() || late_bytes(engine) > engine.late_bytes_max() {
            flushed += flush_while(engine, Take::Late, go_on)?;
        }
        Ok(flushed)
    })
}

/// The bytes of rows in memory that another model owns.
fn late_bytes(engine: &Engine) -> usize {
    let late = engine.tables().into_iter().map(|table| {
        let before_ns = boundaries(engine, &table).kv_ns;
        let live = table.live();
        live.all_runs().map(|run| run.bytes_before(before_ns)).sum::<usize>()
    });
    late.sum()
}

/// As [`flush`], one table after the other as long as it may go on.
fn flush_while(
    engine: &Engine,
    take: Take,
    go_on: impl Fn() -> Result<()>,
) -> Result<CascadeReport> {
    let had_unlogged = engine.has_unlogged.swap(false, Ordering::AcqRel);
    let flush = |table: &Arc<Table>| go_on().and_then(|()| drain_table(engine, table, take));
    let flushed = for_all(&engine.tables(), flush);
    if had_unlogged && (flushed.is_err() || take != Take::All) {
        // What is still in memory is for the next flush, at the latest for the close.
        engine.has_unlogged.store(true, Ordering::Release);
    }
    if flushed.is_ok() {
        engine.raise(|alarm| alarm.is_flushed = true);
    }
    engine.cut_log()?;
    flushed
}

/// Writes rows of a table that are in memory to objects, each in the model that owns its time.
fn drain_table(engine: &Engine, table: &Arc<Table>, take: Take) -> Result<CascadeReport> {
    drain(engine, table, &boundaries(engine, table), take)
}

fn boundaries(engine: &Engine, table: &Table) -> Boundaries {
    Boundaries::new(&table.schema().options, Target::ByAge, engine.now_ns())
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

/// Lets the readings of a table fall, and takes those away that are too old to keep: each step, whatever became of the others, unless
/// the disk is full or writes have ended. Returns the first error.
pub(crate) fn cascade_table(
    engine: &Engine,
    table: &Arc<Table>,
    target: Target,
    effort: Effort,
) -> Result<CascadeReport> {
    table.check_whole()?;
    look_again(table);
    let boundaries = Boundaries::new(&table.schema().options, target, engine.now_ns());
    let take = if target == Target::ByAge { Take::Due } else { Take::All };
    // There may be many tables, and others wait for the database to close.
    engine.steps.check()?;
    let drained = {
        let _flushing = engine.begin_flush()?;
        engine.steps.check()?;
        drain(engine, table, &boundaries, take)
    };
    engine.steps.check()?;
    // Behind the drain, which may bring readings that are too old already; and also when there was no room for it, as
    // this makes some.
    let retained = crate::cascade::retain(engine, table);
    let mut outcome = Outcome::default();
    outcome.note(drained)?;
    outcome.note(retained)?;
    outcome.check(engine.steps.check())?;
    kv_to_short(engine, table, &boundaries, effort, &mut outcome)?;
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
    let _flushing = engine.begin_flush()?;
    let flush = |table: &Arc<Table>| {
        engine.steps.check().and_then(|()| drain_table(engine, table, Take::All))
    };
    for_all(&keepers, flush).map(drop)
}

/// Starts the thread that writes the log and shows what is in it.
pub(crate) fn spawn_committer(engine: &Arc<Engine>) -> Result<JoinHandle<()>> {
    let engine = Arc::clone(engine);
    std::thread::Builder::new()
        .name("tidefall-commit".into())
        .spawn(move || engine.commits.run(&engine.wal, |bytes| engine.rows_came(bytes)))
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
            let is_blocked = engine.blocked().is_some();
            let pause = if is_blocked { FULL_PAUSE } else { PAUSE_MAX };
            let called = |alarm: &mut Alarm| std::mem::take(&mut alarm.is_full) && !is_blocked;
            if !wait_for(engine, Instant::now() + pause, called) {
                return;
            }
            // Memory as it is now: a flush may have ended since somebody called for it, or nobody may have called.
            if is_blocked || engine.is_full() {
                in_a_step(engine, flush_all, |flushed| note(engine, flushed));
            }
        }
    })
}

/// Starts the thread that lays together what memory has been emptied into. It goes by what there is, not by the clock.
pub(crate) fn spawn_compactor(engine: &Arc<Engine>) -> Result<JoinHandle<()>> {
    spawn(engine, "tidefall-compact", |engine| {
        let mut is_full = false;
        loop {
            let called = |alarm: &mut Alarm| {
                let is_flushed = std::mem::take(&mut alarm.is_flushed);
                // What finds no room now does not find it a moment later.
                std::mem::take(&mut alarm.is_tended) || (is_flushed && !is_full)
            };
            if !wait_for(engine, Instant::now() + PAUSE_MAX, called) {
                return;
            }
            is_full = false;
            in_a_step(engine, compact_all, |compacted| {
                is_full = compacted.as_ref().is_err_and(|error| error.kind() == ErrorKind::Full);
                warn_of("objects could not be laid together")(compacted);
            });
        }
    })
}

/// Starts the thread that lets readings fall when they are due. No alarm puts that off.
pub(crate) fn spawn_tide(engine: &Arc<Engine>) -> Result<JoinHandle<()>> {
    spawn(engine, "tidefall-tide", |engine| {
        let pause = engine.options.cascade_pause.min(PAUSE_MAX);
        let mut next = Instant::now() + pause;
        let mut left: Vec<Arc<Table>> = Vec::new();
        loop {
            let is_all = left.is_empty() || Instant::now() + LEFT_PAUSE >= next;
            let until = if is_all { next } else { Instant::now() + LEFT_PAUSE };
            if !wait_for(engine, until, |_| false) {
                return;
            }
            let warn = warn_of("readings could not be moved");
            if is_all {
                next = Instant::now() + pause;
                in_a_step(engine, tend, warn);
            } else {
                let again = |engine: &Engine| {
                    let _maintenance = engine.maintain()?;
                    cascade_tables(engine, &left)
                };
                in_a_step(engine, again, warn);
            }
            left = engine.tables();
            left.retain(|table| table.claims.take_refused());
        }
    })
}

/// Says in the log what was done since the database was opened, if there was something new, and what is due.
fn tell(engine: &Engine) {
    if !engine.worked.has_news() {
        return;
    }
    let work = engine.work();
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
    std::thread::Builder::new()
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

/// Waits until a moment, or until somebody has called, which it takes note of. False when the database closes.
fn wait_for(engine: &Engine, until: Instant, called: impl Fn(&mut Alarm) -> bool) -> bool {
    let pause = until.saturating_duration_since(Instant::now());
    let guard = engine.alarm.0.lock().unwrap_or_else(PoisonError::into_inner);
    let waits = |alarm: &mut Alarm| !alarm.is_closing && !called(alarm);
    let waited = engine.alarm.1.wait_timeout_while(guard, pause, waits);
    !waited.unwrap_or_else(PoisonError::into_inner).0.is_closing
}

/// Does a part of the upkeep. While the database closes none begins, and one that is under way may end early.
fn in_a_step(engine: &Engine, act: impl Fn(&Engine) -> Result<()>, note: impl FnOnce(Result<()>)) {
    let Ok(_step) = engine.steps.begin() else { return };
    if engine.commits.failure().is_some() {
        // Nothing can be written any more, and whoever asks is told why.
        return;
    }
    let done = caught(|| act(engine));
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

fn flush_all(engine: &Engine) -> Result<()> {
    if engine.blocked().is_some() {
        make_room(engine);
    }
    let _flushing = engine.begin_flush()?;
    flush_some(engine).map(drop)
}

/// Lays together what has piled up, in each table as much as is due at once, and again until nothing is. What was laid together goes when nobody
/// reads it any more.
fn compact_all(engine: &Engine) -> Result<()> {
    loop {
        let compacted = for_all(&engine.tables(), |table| {
            // Given back after each: others may wait for it.
            let _turn = engine.compact()?;
            let is_whole = table.damage.is_none() && !table.live().is_dropped;
            // On a full disk it would only take what room there is.
            match is_whole && engine.blocked().is_none() {
                true => compact_once(engine, table),
                false => Ok(CascadeReport::default()),
            }
        });
        let deleted = engine.delete_replaced();
        if compacted?.steps == 0 {
            return deleted;
        }
    }
}

/// Does what frees room on the disk and needs next to none, each step whatever becomes of the others, unless that is being done.
fn make_room(engine: &Engine) {
    let Some(_maintenance) = engine.try_to_maintain() else { return };
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
    let _maintenance = engine.maintain()?;
    let swept = engine.sweep();
    let moved = cascade_tables(engine, &engine.tables());
    engine.raise(|alarm| alarm.is_tended = true);
    tell(engine);
    moved.and(forget(engine)).and(swept)
}

fn cascade_tables(engine: &Engine, tables: &[Arc<Table>]) -> Result<()> {
    let cascade = |table: &Arc<Table>| cascade_table(engine, table, Target::ByAge, Effort::Some);
    for_all(tables, cascade).map(drop)
}
