//! From the key-value model's run files to short columns, and of several parts of one day to one.

use std::sync::Arc;

use tidefall_types::{Day, Result, TimeRange};

use super::boundaries::Boundaries;
use super::order::{has_writes_between, with_writes_between};
use super::rewrite::rewrite;
use crate::engine::Engine;
use crate::manifest::Model;
use crate::options::CascadeReport;
use crate::read::LiveObject;
use crate::table::Table;

/// Run files beyond which young ones are laid together, so that a point read does not open many.
const RUN_FILES_MAX: usize = 8;

/// Moves run files whose rows have come of age, and folds days that have several parts.
pub(crate) fn kv_to_short(
    engine: &Engine,
    table: &Arc<Table>,
    boundaries: &Boundaries,
) -> Result<CascadeReport> {
    let mut report = CascadeReport::default();
    let runs = table.live().objects_of(Model::Kv);
    let is_due = |object: &Arc<LiveObject>| object.entry.time.first_ns < boundaries.kv_ns;
    if runs.iter().any(is_due) || runs.len() > RUN_FILES_MAX {
        let mut others = table.live().objects_of(Model::Short);
        others.extend(table.live().objects_of(Model::Long));
        let inputs = with_writes_between(runs, others);
        if !has_writes_between(&inputs, table) {
            report += rewrite(engine, table, &inputs, &spans(&inputs, boundaries))?;
        }
    }
    let short = table.live().objects_of(Model::Short);
    for day in crowded_days(&short) {
        engine.steps.check()?;
        let time =
            day.first().map_or(TimeRange::new(0, -1), |object| whole_days(&object.entry.time));
        if !has_writes_between(&day, table) {
            report += rewrite(engine, table, &day, &[(Model::Short, time)])?;
        }
    }
    Ok(report)
}

fn whole_days(time: &TimeRange) -> TimeRange {
    Day::of(time.first_ns).range().union(&Day::of(time.last_ns).range())
}

/// The objects to write of some others.
fn spans(inputs: &[Arc<LiveObject>], boundaries: &Boundaries) -> Vec<(Model, TimeRange)> {
    let times = inputs.iter().map(|object| object.entry.time);
    let Some(time) = times.reduce(|all, more| all.union(&more)) else { return Vec::new() };
    let mut spans = boundaries.spans(&time);
    spans.retain(|(_, span)| inputs.iter().any(|object| object.entry.time.overlaps(span)));
    spans
}

/// Days with more than one object.
fn crowded_days(short: &[Arc<LiveObject>]) -> Vec<Vec<Arc<LiveObject>>> {
    let mut by_day: std::collections::BTreeMap<Day, Vec<Arc<LiveObject>>> = Default::default();
    for object in short {
        by_day.entry(Day::of(object.entry.time.first_ns)).or_default().push(Arc::clone(object));
    }
    by_day.into_values().filter(|objects| objects.len() > 1).collect()
}
