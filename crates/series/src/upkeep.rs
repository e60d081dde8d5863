//! What is done for a table by itself, besides what each write does.

use std::sync::Arc;

use tidefall_ground::manifest::Edit;
use tidefall_ground::manifest::series::Model;
use tidefall_ground::options::CascadeReport;
use tidefall_types::{Day, Month, Result};

use crate::cascade::{
    self, Boundaries, Effort, Look, Outcome, Take, Target, kv_to_short, look_again, retain,
    short_to_long,
};
use crate::context::Context;
use crate::install::commit;
use crate::read::LiveTombstone;
use crate::table::Table;

/// Writes rows of a table that are in memory to objects, each in the model that owns its time. Whoever calls holds the turn of flushes.
///
/// # Errors
/// Those of the disk; the rows stay in memory then.
pub fn flush(context: &Context, table: &Arc<Table>, take: Take) -> Result<CascadeReport> {
    cascade::flush(context, table, &boundaries(context, table), take)
}

/// The bytes of rows in memory that another model owns.
pub fn late_bytes(context: &Context, table: &Table) -> usize {
    let before_ns = boundaries(context, table).kv_ns;
    let live = table.live();
    live.all_runs().map(|run| run.bytes_before(before_ns)).sum()
}

fn boundaries(context: &Context, table: &Table) -> Boundaries {
    Boundaries::new(&table.schema().options, Target::ByAge, context.ground.now_ns())
}

/// Moves the readings of a table to the next model, and takes those away that are too old to keep: each step, whatever became of the others, unless
/// the disk is full or writes have ended. Whoever calls holds the turn of maintenance and the lock of the table.
///
/// # Errors
/// The first one.
pub fn cascade(
    context: &Context,
    table: &Arc<Table>,
    target: Target,
    effort: Effort,
    look: Look,
) -> Result<CascadeReport> {
    let ground = &context.ground;
    table.check_whole()?;
    look_again(table);
    let boundaries = Boundaries::new(&table.schema().options, target, ground.now_ns());
    let mut outcome = Outcome::default();
    // There may be many tables, and others wait for the database to close.
    ground.steps.check()?;
    // What others had may be asked for each second: a flush would bring each late day a part of its own each time.
    let flushed = match look {
        Look::First => {
            let take = if target == Target::ByAge { Take::Due } else { Take::All };
            let _flushing = ground.turns.flush();
            ground.steps.check()?;
            cascade::flush(context, table, &boundaries, take)
        }
        Look::Again => Ok(CascadeReport::default()),
    };
    ground.steps.check()?;
    // Behind the flush, which may bring readings that are too old already; and also when there was no room for it, as
    // this makes some.
    let retained = retain(context, table);
    outcome.note(flushed)?;
    outcome.note(retained)?;
    outcome.check(ground.steps.check())?;
    kv_to_short(context, table, &boundaries, effort, &mut outcome)?;
    short_to_long(context, table, &boundaries, target, &mut outcome)?;
    outcome.end()
}

/// Forgets deletes that hide nothing any more.
///
/// # Errors
/// Those of the commit.
pub fn retire_deletes(context: &Context, table: &Table) -> Result<()> {
    let ground = &context.ground;
    // A load that has its number, but is not to be seen yet, may be older than a delete that hides nothing else.
    let _flushing = ground.turns.flush();
    if table.live().is_dropped {
        return Ok(());
    }
    let _alone = ground.install_alone();
    // A delete in the log must not be forgotten before the log is cut behind it.
    let from = ground.manifest().state().wal_from;
    let version = table.version();
    // None that is earlier comes while nobody flushes.
    let in_memory = table.live().all_runs().map(|run| run.last_seq).min();
    let is_spent = |delete: &&LiveTombstone| {
        let mut objects = version.objects.within(&delete.time);
        delete.seq < from
            && in_memory.is_none_or(|seq| seq > delete.seq)
            && !objects.any(|object| delete.may_hide_in(&object.entry))
    };
    let spent = version.deletes.iter().filter(is_spent);
    let edits: Vec<Edit> =
        spent.map(|delete| Edit::RemoveTombstone(table.id, delete.seq)).collect();
    if edits.is_empty() {
        return Ok(());
    }
    commit(context, table, &mut ground.manifest(), ground.written(), &edits, |_| {})
}

/// For how long the oldest step of a table has been due: readings of an age moved to the next model, objects laid together, or what is too old
/// dropped; nothing where none is.
pub fn behind_ns(context: &Context, table: &Arc<Table>) -> Option<i64> {
    let now_ns = context.ground.now_ns();
    let to_compact = cascade::backlog(context, table).since_ns;
    let due = [to_move_since_ns(table, now_ns), to_compact, cascade::due_since_ns(context, table)];
    let since_ns = due.into_iter().flatten().min();
    since_ns.map(|since_ns| now_ns.saturating_sub(since_ns).max(0))
}

/// Since when a table has had an object that could have moved to the next model; nothing where none could.
fn to_move_since_ns(table: &Table, now_ns: i64) -> Option<i64> {
    let version = table.version();
    let options = &version.schema.options;
    let boundaries = Boundaries::new(options, Target::ByAge, now_ns);
    let long = boundaries.range(Model::Long);
    let due_since = version.objects.iter().filter_map(|object| {
        let time = &object.entry.time;
        // Whole days and whole months move.
        let of_age_ns = match object.entry.model {
            Model::Kv if time.first_ns < boundaries.kv_ns => {
                Day::of(time.first_ns).range().last_ns.saturating_add(options.kv_age_ns)
            }
            Model::Short if long.covers(time) => {
                let age_ns = options.short_age_ns.max(options.kv_age_ns);
                Month::of(time.last_ns).range().last_ns.saturating_add(age_ns)
            }
            _ => return None,
        };
        Some(of_age_ns.max(object.since_ns))
    });
    due_since.min()
}
