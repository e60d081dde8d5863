//! A table of what the manifest names, without what is only in the log.

use std::sync::{Arc, PoisonError};

use tidefall_ground::manifest::TableState;
use tidefall_types::Result;

use crate::catalog::object::read_sensors;
use crate::context::Context;
use crate::read::{LiveTombstone, Objects};
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
    {
        let mut live = table.live();
        (live.objects, _) = earlier.following(&stored.objects, |entry| context.live_object(entry));
        let mut newest = table.newest();
        for object in live.objects.iter() {
            newest.take_all_within(&object.entry.time);
        }
        live.deletes = Arc::new(
            stored.tombstones.iter().map(LiveTombstone::of_stored).collect::<Result<_>>()?,
        );
    }
    Ok(table)
}
