//! Segments of similar size become larger ones, whose leaves are narrower.
//!
//! Rows have no identity, so that any segments may become one. As soon as there are [`FAN_IN`] of one size they do; sizes are told apart by
//! factors of as many, and beyond [`LARGE_BYTES`], or when they have as many rows as a segment may have, they stay as they are. So a row is written anew at most
//! once for each factor of eight.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidefall_codec::Profile;
use tidefall_ground::manifest::Edit;
use tidefall_ground::manifest::records::Edit::AddSegment;
use tidefall_ground::options::CascadeReport;
use tidefall_types::{Error, ErrorKind, ObjectId, Result};

use crate::context::Context;
use crate::flush::report_of;
use crate::install::install;
use crate::merge::Visible;
use crate::read::Place;
use crate::retention::Old;
use crate::table::Table;
use crate::version::{LiveSegment, Version};
use crate::write::{Output, SEGMENT_ROWS_MAX, write_segments};

/// Segments of one size that become one.
const FAN_IN: usize = 8;
/// Segments of so many bytes, or of the size that begins with it, stay as they are.
const LARGE_BYTES: u64 = 128 << 20;

/// Lays segments together until none are due. Whoever calls holds the turn of compaction and the lock of the table.
///
/// # Errors
/// The first one.
pub fn compact(context: &Context, table: &Table) -> Result<CascadeReport> {
    let mut all = CascadeReport::default();
    loop {
        context.ground.steps.check()?;
        if table.lock.is_waited_for() {
            table.claims.refuse();
            return Ok(all);
        }
        let done = compact_once(context, table)?;
        if done.steps == 0 {
            return Ok(all);
        }
        all += done;
    }
}

/// Lays segments of one size together, if there are enough of one.
///
/// # Errors
/// Those of the disk; damage of a segment keeps that from being looked at again.
pub fn compact_once(context: &Context, table: &Table) -> Result<CascadeReport> {
    match due(table) {
        Some(group) => rewrite(context, table, &group, Profile::Dense),
        None => Ok(CascadeReport::default()),
    }
}

/// Writes segments in which deletes hide something anew without that. Whoever calls holds the turn of maintenance and the lock of the table.
///
/// # Errors
/// The first one.
pub fn apply_deletes(context: &Context, table: &Table) -> Result<CascadeReport> {
    let version = table.version();
    rewrite_each(context, table, |segment| {
        !version.deletes.hiding(segment.entry.deletes_upto(), &segment.bounds).is_empty()
    })
}

/// Writes each segment anew of which something holds, and that can be read.
///
/// # Errors
/// The first one. Others are written all the same, unless there is no room.
pub(crate) fn rewrite_each(
    context: &Context,
    table: &Table,
    is_due: impl Fn(&LiveSegment) -> bool,
) -> Result<CascadeReport> {
    let (mut all, mut failed) = (CascadeReport::default(), None);
    let version = table.version();
    for segment in version.segments.iter() {
        if table.failed.has(segment) || !is_due(segment) {
            continue;
        }
        context.ground.steps.check()?;
        if table.lock.is_waited_for() {
            table.claims.refuse();
            break;
        }
        match rewrite(context, table, std::slice::from_ref(segment), Profile::Dense) {
            Ok(done) => all += done,
            Err(error) if matches!(error.kind(), ErrorKind::Full | ErrorKind::Closed) => {
                return Err(error);
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(all), Err)
}

/// Takes segments away of which a delete hides all, or that are too old as a whole, which needs no room.
///
/// # Errors
/// Those of the commit.
pub fn drop_hidden(context: &Context, table: &Table) -> Result<CascadeReport> {
    let version = table.version();
    let old = Old::of(&version.schema, context.ground.now_ns());
    let is_hidden = |segment: &&Arc<LiveSegment>| {
        if old.as_ref().is_some_and(|old| old.has(segment)) {
            return true;
        }
        let later =
            version.deletes.iter().filter(|delete| delete.seq > segment.entry.deletes_upto());
        let mut boxes = later.flat_map(|delete| delete.regions.boxes());
        boxes.any(|region| region.covers(&segment.bounds))
    };
    let hidden: Vec<_> = version.segments.iter().filter(is_hidden).cloned().collect();
    let mut all = CascadeReport::default();
    for segment in hidden {
        let Some(_claim) = table.claim(std::slice::from_ref(&segment)) else { continue };
        let edits = vec![Edit::RemoveObject(table.id, segment.entry.id)];
        install(context, table, context.ground.written(), edits, |_| {})?;
        let rows_dropped = segment.entry.rows;
        all += CascadeReport { steps: 1, rows_dropped, ..CascadeReport::default() };
    }
    Ok(all)
}

/// How many segments are due to be laid together and nobody has.
pub fn backlog(table: &Table) -> usize {
    of_sizes(table).values().map(|segments| segments.len() / FAN_IN * FAN_IN).sum()
}

/// Since when segments are due to be laid together, in nanoseconds since 1970 UTC.
pub fn due_since_ns(table: &Table) -> Option<i64> {
    due(table)?.iter().map(|segment| segment.since_ns).max()
}

fn due(table: &Table) -> Option<Vec<Arc<LiveSegment>>> {
    let mut group = of_sizes(table).into_values().find(|segments| segments.len() >= FAN_IN)?;
    group.truncate(FAN_IN);
    Some(group)
}

/// Segments that may be laid together, by size.
fn of_sizes(table: &Table) -> BTreeMap<u32, Vec<Arc<LiveSegment>>> {
    let version = table.version();
    let mut sizes: BTreeMap<u32, Vec<Arc<LiveSegment>>> = BTreeMap::new();
    for segment in version.segments.iter() {
        let size = size(segment.entry.bytes);
        let is_full = segment.entry.rows >= SEGMENT_ROWS_MAX as u64;
        let is_free = !table.claims.has(segment.entry.id) && !table.failed.keeps_apart(segment);
        if size < self::size(LARGE_BYTES) && !is_full && is_free {
            sizes.entry(size).or_default().push(Arc::clone(segment));
        }
    }
    sizes
}

const fn size(bytes: u64) -> u32 {
    match bytes.checked_ilog(FAN_IN as u64) {
        Some(size) => size,
        None => 0,
    }
}

/// Writes segments anew as others without what deletes hide and what is too old, unless somebody else has one of them.
fn rewrite(
    context: &Context,
    table: &Table,
    segments: &[Arc<LiveSegment>],
    profile: Profile,
) -> Result<CascadeReport> {
    let Some(_claim) = table.claim(segments) else { return Ok(CascadeReport::default()) };
    let version = table.version();
    let rewritten = rewrite_claimed(context, table, segments, &version, profile);
    rewritten.or_else(|error: Error| {
        match table.failed.note(segments.iter().map(|segment| &**segment), &error) {
            // The others are laid together without it.
            true => {
                tracing::error!(table = version.schema.name, %error, "a segment cannot be read and stays as it is");
                Ok(CascadeReport::default())
            }
            false => Err(error),
        }
    })
}

fn rewrite_claimed(
    context: &Context,
    table: &Table,
    segments: &[Arc<LiveSegment>],
    version: &Version,
    profile: Profile,
) -> Result<CascadeReport> {
    let entries = || segments.iter().map(|segment| &segment.entry);
    let last_seq = entries().map(|entry| entry.last_seq).max().unwrap_or_default();
    let last_delete = version
        .deletes
        .last_seq()
        .max(entries().map(|entry| entry.last_delete).max().unwrap_or_default());
    let old = Old::of(&version.schema, context.ground.now_ns());
    let kept = |segment: &Arc<LiveSegment>| {
        let (place, hidden) = visible(segment, version)?;
        Ok((place, Old::with(hidden, old.as_ref())))
    };
    let places = segments.iter().map(kept).collect::<Result<Vec<_>>>()?;
    let output = Output { table: table.id, profile, last_seq, last_delete };
    let written = context.ground.written();
    let new = write_segments(context, output, &version.layout, &places, &written)?;
    let report = report_of(&new, entries().map(|entry| entry.rows).sum());
    // Texts may be too long for fewer.
    let are_as_many = segments.len() > 1 && new.len() >= segments.len();
    let left: Vec<ObjectId> = new.iter().filter(|_| are_as_many).map(|entry| entry.id).collect();
    let mut edits: Vec<Edit> =
        new.into_iter().map(|entry| AddSegment(table.id, entry).into()).collect();
    edits.extend(entries().map(|entry| Edit::RemoveObject(table.id, entry.id)));
    install(context, table, written, edits, |_| table.failed.leave(left))?;
    context.ground.worked.rewritten(report.bytes);
    Ok(report)
}

/// A segment, and what later deletes hide in it.
pub(crate) fn visible(segment: &LiveSegment, version: &Version) -> Result<Visible> {
    let hidden = version.deletes.hiding(segment.entry.deletes_upto(), &segment.bounds);
    Ok((Place::stored(&segment.segment)?, hidden))
}
