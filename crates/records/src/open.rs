//! A table of what the manifest names, without what is only in the log.

use std::sync::Arc;

use tidefall_ground::manifest::TableState;
use tidefall_ground::manifest::records::Stored;
use tidefall_types::{Result, Seq};

use crate::context::Context;
use crate::table::Table;
use crate::version::LiveSegment;

/// Opens a table. Segments that an earlier one has open are shared with it.
///
/// # Errors
/// `Corrupt` when its deletes are damaged.
pub fn open(
    context: &Context,
    (state, stored): (&TableState, &Stored),
    earlier: &Arc<Vec<Arc<LiveSegment>>>,
) -> Result<Table> {
    let table = Table::new(state.schema.clone());
    let mut before = (*table.version()).clone();
    before.segments = Arc::clone(earlier);
    // What the log has comes with its records.
    let (version, _) =
        before.following((state, stored), Seq::default(), |entry| context.live_segment(entry))?;
    table.change_version(&mut table.live(), |shown| *shown = version);
    Ok(table)
}
