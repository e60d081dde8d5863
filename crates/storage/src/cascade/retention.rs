//! Readings that are older than a table keeps them are dropped.

use std::sync::Arc;

use tidefall_types::{Result, TimeRange};

use super::rewrite::rewrite;
use crate::engine::Engine;
use crate::manifest::Edit;
use crate::options::CascadeReport;
use crate::read::LiveObject;
use crate::table::Table;

/// Drops objects that are too old as a whole, and cuts those that reach over the limit by more
/// than a month: what is younger than a month too old goes with its segment later.
pub(crate) fn retain(engine: &Engine, table: &Arc<Table>) -> Result<CascadeReport> {
    let mut report = drop_old(engine, table)?;
    let Some(limit_ns) = limit_ns(engine, table) else { return Ok(report) };
    let straddling: Vec<Arc<LiveObject>> = table
        .live()
        .objects
        .iter()
        .filter(|object| object.entry.time.first_ns < limit_ns.saturating_sub(SLACK_NS))
        .cloned()
        .collect();
    for object in straddling {
        engine.steps.check()?;
        let kept = TimeRange::new(limit_ns, i64::MAX);
        let model = object.entry.model;
        report += rewrite(engine, table, &[object], &[(model, kept)])?;
    }
    Ok(report)
}

/// Drops objects that are too old as a whole, which needs no room on the disk but for a line in the manifest.
pub(crate) fn drop_old(engine: &Engine, table: &Arc<Table>) -> Result<CascadeReport> {
    let mut report = CascadeReport::default();
    let Some(limit_ns) = limit_ns(engine, table) else { return Ok(report) };
    let old: Vec<Arc<LiveObject>> = table
        .live()
        .objects
        .iter()
        .filter(|object| object.entry.time.last_ns < limit_ns)
        .cloned()
        .collect();
    if !old.is_empty() {
        report.steps += 1;
        report.rows_dropped += old.iter().map(|object| object.entry.rows).sum::<u64>();
        let edits = old.iter().map(|object| Edit::RemoveObject(table.id, object.entry.id));
        engine.install(table, engine.written(), edits.collect(), |_| {})?;
    }
    Ok(report)
}

/// Readings from before are too old; nothing when all are kept.
fn limit_ns(engine: &Engine, table: &Table) -> Option<i64> {
    let keep_ns = table.schema().options.retention_ns?;
    Some(engine.now_ns().saturating_sub(keep_ns))
}

/// How far an object may reach over the limit before it is written anew without its oldest rows.
const SLACK_NS: i64 = 31 * tidefall_types::NS_PER_DAY;
