//! Which log it is: a number, by which a manifest that lies elsewhere knows the log that goes with it.

use tidefall_store::names::{self, parse_wal_id};
use tidefall_store::{Disk, DiskEntry};
use tidefall_types::Result;

use crate::drawn::draw;

/// The number of the log on a disk; nothing if it has none as yet.
///
/// # Errors
/// `Io` when the disk fails.
pub fn known_id(disk: &dyn Disk) -> Result<Option<u32>> {
    let found = disk.list(names::WAL_DIR)?.into_iter();
    let mut ids = found.filter_map(|entry| match entry {
        DiskEntry::File { name, .. } => parse_wal_id(&name),
        DiskEntry::Dir(_) => None,
    });
    Ok(ids.next())
}

/// The number of the log on a disk, which is drawn if it has none as yet.
///
/// # Errors
/// `Io` and `Full` from the disk.
pub fn id(disk: &dyn Disk) -> Result<u32> {
    if let Some(id) = known_id(disk)? {
        return Ok(id);
    }
    let id = draw();
    disk.create_dir(names::WAL_DIR)?;
    disk.create(&names::wal_id(id))?;
    disk.sync_dir(names::WAL_DIR)?;
    Ok(id)
}
