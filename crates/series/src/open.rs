//! A table of what the manifest names, without what is only in the log.

use std::sync::PoisonError;

use tidefall_ground::manifest::TableState;
use tidefall_ground::manifest::series::Stored;
use tidefall_types::{Result, Seq};

use crate::catalog::object::read_sensors;
use crate::context::Context;
use crate::read::Objects;
use crate::table::Table;

/// Opens a table. Objects that an earlier one has open are shared with it.
///
/// # Errors
/// `Corrupt` when its sensors or deletes are damaged, `Io` from the disk.
pub fn open(
    context: &Context,
    (state, stored): (&TableState, &Stored),
    earlier: &Objects,
) -> Result<Table> {
    let table = Table::new(state.schema.clone());
    {
        let mut sensors = table.sensors.write().unwrap_or_else(PoisonError::into_inner);
        for part in &stored.sensors {
            read_sensors(&*context.ground.io, state.schema.id, part, |frame| {
                sensors.decode(frame)
            })?;
        }
        sensors.add_tags(state.schema.tags.len());
    }
    let earlier = table.version().with_objects(earlier.iter().cloned());
    // What the log has comes with its records.
    let (version, _) =
        earlier.following((state, stored), Seq::default(), |entry| context.live_object(entry))?;
    for object in version.objects.iter() {
        table.newest().take_all_within(&object.entry.time);
    }
    table.change_version(&mut table.live(), |shown| *shown = version);
    Ok(table)
}
