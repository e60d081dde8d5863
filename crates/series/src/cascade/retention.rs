//! Readings that are older than a table keeps them are dropped.
//!
//! Objects go in the order in which they were written, as far as they share times: of two values of a reading the earlier
//! one must not be what is left.

use std::sync::Arc;

use tidefall_ground::manifest::Edit;
use tidefall_ground::options::CascadeReport;
use tidefall_types::{Result, TimeRange};

use super::failed::{Outcome, write_alone};
use super::rewrite::rewrite_and;
use crate::context::Context;
use crate::install::install;
use crate::read::LiveObject;
use crate::table::{Live, Table};

/// Drops objects that are too old as a whole, and cuts those that reach over the limit by more
/// than a month: what is younger than a month too old goes with its segment later.
///
/// # Errors
/// The first one; objects that can be read are cut all the same.
pub fn retain(context: &Context, table: &Arc<Table>) -> Result<CascadeReport> {
    let mut outcome = Outcome::default();
    outcome.note(drop_old(context, table))?;
    let Some(limit_ns) = limit_ns(context, table) else { return outcome.end() };
    let objects = table.version().objects.clone();
    let straddling = to_cut(&objects, limit_ns);
    let is_any_cut = !straddling.is_empty();
    for object in straddling {
        context.ground.steps.check()?;
        if table.is_waited_for() {
            break;
        }
        let kept = TimeRange::new(limit_ns, i64::MAX);
        let model = object.entry.model;
        let done = write_alone(table, &object, || {
            let lose = |live: &mut Live| live.lose(&times_before(limit_ns));
            rewrite_and(context, table, &[Arc::clone(&object)], &[(model, kept)], lose)
        });
        let is_cut = matches!(done, Ok(Some(_)));
        outcome.note(done.map(Option::unwrap_or_default))?;
        if !is_cut {
            // Those that were written later may have later values for its times.
            break;
        }
    }
    if is_any_cut {
        // What had to stay while one of them held earlier values.
        outcome.note(drop_old(context, table))?;
    }
    outcome.end()
}

/// Drops objects that are too old as a whole, which needs no room on the disk but for a line in the manifest.
///
/// # Errors
/// Those of the commit; all of them stay then.
pub fn drop_old(context: &Context, table: &Arc<Table>) -> Result<CascadeReport> {
    let mut report = CascadeReport::default();
    let Some(limit_ns) = limit_ns(context, table) else { return Ok(report) };
    let objects = table.version().objects.clone();
    let old = to_drop(&objects, limit_ns, |object| table.claims.has(object.entry.id));
    // What another step takes meanwhile goes the next time.
    let claim = (!old.is_empty()).then(|| table.claim(&old)).flatten();
    if claim.is_some() {
        report.steps += 1;
        report.rows_dropped += old.iter().map(|object| object.entry.rows).sum::<u64>();
        let edits = old.iter().map(|object| Edit::RemoveObject(table.id, object.entry.id));
        install(context, table, context.ground.written(), edits.collect(), |live| {
            live.lose(&times_before(limit_ns))
        })?;
    }
    Ok(report)
}

/// The times of what is too old.
fn times_before(limit_ns: i64) -> TimeRange {
    TimeRange::new(i64::MIN, limit_ns.saturating_sub(1))
}

/// The objects that are too old as a whole and may go, but for those whose values stand in place of what an earlier one, which
/// stays, has for the same times: that would come back.
fn to_drop(
    objects: &[Arc<LiveObject>],
    limit_ns: i64,
    must_stay: impl Fn(&LiveObject) -> bool,
) -> Vec<Arc<LiveObject>> {
    let is_old =
        |object: &&Arc<LiveObject>| object.entry.time.last_ns < limit_ns && !must_stay(object);
    let (mut old, mut staying): (Vec<_>, Vec<_>) = objects.iter().partition(is_old);
    // An object stays also for one that does.
    let mut next = 0;
    while next < staying.len() {
        let earlier = staying[next];
        staying.extend(old.extract_if(.., |object| is_over(object, earlier, limit_ns)));
        next += 1;
    }
    old.into_iter().cloned().collect()
}

/// The objects to cut in their order: those that reach far over the limit, and before them those that have earlier values
/// for the times that are cut away.
fn to_cut(objects: &[Arc<LiveObject>], limit_ns: i64) -> Vec<Arc<LiveObject>> {
    let straddling = objects.iter().filter(|object| object.entry.time.first_ns < limit_ns);
    let is_far =
        |object: &&Arc<LiveObject>| object.entry.time.first_ns < limit_ns.saturating_sub(SLACK_NS);
    let (mut cut, mut others): (Vec<_>, Vec<_>) = straddling.partition(is_far);
    let mut next = 0;
    while next < cut.len() {
        let later = cut[next];
        cut.extend(others.extract_if(.., |object| is_over(later, object, limit_ns)));
        next += 1;
    }
    cut.sort_by_key(|object| object.entry.last_seq);
    cut.into_iter().cloned().collect()
}

/// Whether an object has later values than another for some times before a limit.
fn is_over(object: &LiveObject, other: &LiveObject, limit_ns: i64) -> bool {
    let shared = object.entry.time.intersect(&other.entry.time);
    let is_later = object.entry.last_seq > other.entry.last_seq;
    is_later && !shared.is_empty() && shared.first_ns < limit_ns
}

/// Since when an object has been too old as a whole, in nanoseconds since 1970 UTC; nothing where none is.
pub fn due_since_ns(context: &Context, table: &Table) -> Option<i64> {
    let (limit_ns, now_ns) = (limit_ns(context, table)?, context.ground.now_ns());
    let version = table.version();
    let old = version.objects.iter().filter(|object| object.entry.time.last_ns < limit_ns);
    let age_ns = now_ns.saturating_sub(limit_ns);
    let due =
        old.map(|object| object.entry.time.last_ns.saturating_add(age_ns).max(object.since_ns));
    due.min()
}

/// Readings from before are too old; nothing when all are kept.
fn limit_ns(context: &Context, table: &Table) -> Option<i64> {
    let keep_ns = table.schema().options.retention_ns?;
    Some(context.ground.now_ns().saturating_sub(keep_ns))
}

/// How far an object may reach over the limit before it is written anew without its oldest rows.
const SLACK_NS: i64 = 31 * tidefall_types::NS_PER_DAY;
