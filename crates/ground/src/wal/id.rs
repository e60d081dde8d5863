//! The numbers of a log, by which a manifest that lies elsewhere knows the log that goes with it.

use tidefall_store::names::{self, parse_wal_id};
use tidefall_store::{Disk, DiskEntry};
use tidefall_types::Result;

use crate::drawn::draw;

/// The numbers of the log on a disk. An open that was cut short leaves it with those of the open before as well.
///
/// # Errors
/// `Io` when the disk fails.
pub fn ids(disk: &dyn Disk) -> Result<Vec<u32>> {
    let found = disk.list(names::WAL_DIR)?.into_iter();
    let ids = found.filter_map(|entry| match entry {
        DiskEntry::File { name, .. } => parse_wal_id(&name),
        DiskEntry::Dir(_) => None,
    });
    Ok(ids.collect())
}

/// Draws another number for the log on a disk, durably.
///
/// # Errors
/// `Io` from the disk, and `Full` when there is no room for the name; it has the numbers that it had then.
pub fn add_id(disk: &dyn Disk) -> Result<u32> {
    let id = draw();
    disk.create_dir(names::WAL_DIR)?;
    disk.create(&names::wal_id(id))?;
    disk.sync_dir(names::WAL_DIR)?;
    Ok(id)
}

/// Takes all numbers from the log on a disk but one, if that is given. They may be back after power loss.
///
/// # Errors
/// `Io` when the disk fails.
pub fn remove_ids(disk: &dyn Disk, but: Option<u32>) -> Result<()> {
    let ids = ids(disk)?;
    let others = ids.iter().filter(|id| Some(**id) != but);
    others.map(|id| names::wal_id(*id)).try_for_each(|name| disk.remove(&name))
}
