//! Many rows at once, straight to segments: the fastest way in.
//!
//! 1. Put rows into order and write the segments, while others read and write.
//! 2. Take a place among the writes, which says which deletes hide something of it.
//! 3. Install the segments.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use tidefall_codec::Profile;
use tidefall_ground::gate::Inside;
use tidefall_ground::manifest::records::Edit::AddSegment;
use tidefall_ground::texts::{first_within, text_bytes};
use tidefall_types::{Error, Result, Seq};

use crate::context::Context;
use crate::install::install;
use crate::merge::AtOnce;
use crate::order::CELL_ROWS;
use crate::packed::{Layout, Packed};
use crate::table::Table;
use crate::write::{Output, Segments, at_once};

/// How many of some rows are put into order at once: whole cells where their texts are not long.
fn part_rows(columns: &[ArrayRef], rows: Range<usize>, at_once: AtOnce) -> usize {
    let text_bytes = |count: usize| {
        let part = rows.start..rows.start + count;
        columns.iter().map(|column| text_bytes(column, part.clone())).sum()
    };
    let whole = |rows: usize| rows / CELL_ROWS * CELL_ROWS;
    let most = rows.len().min(whole(at_once.rows).max(CELL_ROWS));
    let count = first_within(most, at_once.text_bytes, text_bytes);
    if count < rows.len() && count >= CELL_ROWS { whole(count) } else { count }
}

/// What became of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loaded {
    /// It is durable and visible.
    Shown,
    /// The table has got other columns meanwhile, and nothing was written.
    Outdated,
}

/// Writes rows with these columns. Once their segments are written `enter` lets the load pass the gate of the table, and `take_place` gives it its
/// place among the writes, behind all that have come.
///
/// # Errors
/// Those of both; `Invalid` when a row lacks the value of a dimension, `NotFound` when the table is dropped meanwhile; `Io` and `Full` from the disk.
pub fn load(
    context: &Context,
    table: &Table,
    layout: &Arc<Layout>,
    columns: &[ArrayRef],
    enter: impl FnOnce() -> Result<Inside>,
    take_place: impl FnOnce() -> Result<Seq>,
) -> Result<Loaded> {
    let rows = columns.first().map_or(0, |column| column.len());
    let written = context.ground.written();
    let output = Output {
        table: table.id,
        profile: Profile::Fast,
        last_seq: Seq::default(),
        last_delete: Seq::default(),
    };
    let mut segments = Segments::new(context, output, layout, &written);
    let at_once = at_once(context, layout);
    let mut first = 0;
    while first < rows {
        context.ground.steps.check()?;
        let count = part_rows(columns, first..rows, at_once);
        let part = columns.iter().map(|column| column.slice(first, count));
        segments.append(&Packed::new(layout, &part.collect::<Vec<_>>())?)?;
        first += count;
    }
    let mut entries = segments.finish()?;
    // Until it is shown: who must see all that comes before it shuts the gate.
    let _inside = enter()?;
    // From here on nobody drops the table, and no delete is forgotten that hides something of this.
    let _flushing = context.ground.turns.flush();
    if table.live().is_dropped {
        let name = &table.schema().name;
        return Err(Error::not_found(format!(
            "table {name} was dropped during a load into it; nothing was written"
        )));
    }
    if table.version().layout != *layout {
        return Ok(Loaded::Outdated);
    }
    let seq = take_place()?;
    entries.iter_mut().for_each(|entry| entry.last_seq = seq);
    let bytes = entries.iter().map(|entry| entry.bytes).sum();
    let edits = entries.into_iter().map(|entry| AddSegment(table.id, entry).into()).collect();
    install(context, table, written, edits, |_| {})?;
    context.ground.worked.flushed(0, bytes);
    // There may be something to lay together.
    context.ground.alarms.raise(|alarm| alarm.is_flushed = true);
    Ok(Loaded::Shown)
}
