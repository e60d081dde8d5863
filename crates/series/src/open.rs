//! A table of what the manifest names, without what is only in the log.

use std::sync::PoisonError;

use tidefall_ground::manifest::TableState;
use tidefall_types::{Result, Seq};

use crate::catalog::object::read_sensors;
use crate::context::Context;
use crate::read::Objects;
use crate::table::Table;

/// Opens a table. Objects that an earlier one has open are shared with it.
///
/// # Errors
/// `Corrupt` when its sensors or deletes are damaged, `Io` from the disk.
pub fn open(context: &Context, stored: &TableState, earlier: &Objects) -> Result<Table> {
    let table = Table::new(stored.schema.clone());
    {
        let mut sensors = table.sensors.write().unwrap_or_else(PoisonError::into_inner);
        for part in &stored.sensors {
            read_sensors(&*context.ground.io, stored.schema.id, part, |frame| {
                sensors.decode(frame)
            })?;
        }
        sensors.add_tags(stored.schema.tags.len());
    }
    let earlier = table.version().with_objects(earlier.iter().cloned());
    // What the log has comes with its records.
    let (version, _) =
        earlier.following(stored, Seq::default(), |entry| context.live_object(entry))?;
    for object in version.objects.iter() {
        table.newest().take_all_within(&object.entry.time);
    }
    table.change_version(&mut table.live(), |shown| *shown = version);
    Ok(table)
}
