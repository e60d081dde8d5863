//! What is kept of a database that was damaged.

use tidefall_types::{ErrorKind, Result};

use super::names;
use super::{Disk, DiskEntry};

/// What to do about a database that does not open.
pub const ADVICE: &str =
    "restore it from a copy, or let `tidefall repair` tell what can be kept without it";

/// Gives files a second name in a directory of their own, durably. Those that are missing are passed over.
///
/// # Errors
/// `Io` and `Full` from the disk; some files may have their second name then, and all have their first.
pub fn keep_aside(disk: &dyn Disk, files: impl Iterator<Item = String>) -> Result<String> {
    let mut taken = 0;
    for entry in disk.list(names::DAMAGED_DIR)? {
        if let DiskEntry::Dir(name) = entry {
            taken = taken.max(names::parse_damaged_dir(&name).unwrap_or(0));
        }
    }
    let dir = names::damaged_dir(taken + 1);
    let mut dirs = Vec::new();
    for name in files {
        let aside = format!("{dir}/{name}");
        let parent = names::parent(&aside).to_owned();
        if !dirs.contains(&parent) {
            disk.create_dir(&parent)?;
            dirs.push(parent);
        }
        match disk.link(&name, &aside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    dirs.iter().try_for_each(|dir| disk.sync_dir(dir))?;
    Ok(dir)
}
