//! What is kept of a database that was damaged.

use tidefall_types::{ErrorKind, Result};

use super::names;
use super::{Disk, DiskEntry, ObjectIo, cut_short};

/// Bytes of an object that are copied at once: large enough for a store on which each read takes long.
const COPIED_BYTES: u64 = 4 << 20;

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

/// Copies objects to a directory of their own, durably, for stores that give no second names. Those that are missing are passed over.
///
/// # Errors
/// `Io` and `Full` from the store; objects that are copied by then stay there.
pub fn copy_aside(io: &dyn ObjectIo, objects: impl Iterator<Item = String>) -> Result<String> {
    let found = io.list(names::DAMAGED_DIR)?;
    let taken = found.iter().filter_map(|(name, _)| names::parse_below_damaged_dir(name)).max();
    let dir = names::damaged_dir(taken.unwrap_or(0) + 1);
    for name in objects {
        match copy(io, &name, &format!("{dir}/{name}")) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(dir)
}

fn copy(io: &dyn ObjectIo, name: &str, to: &str) -> Result<()> {
    let size = io.size(name)?;
    let mut writer = io.writer(to)?;
    for start in (0..size).step_by(COPIED_BYTES as usize) {
        writer.append(&io.read_range(name, start..size.min(start + COPIED_BYTES))?)?;
    }
    // A copy that lacks something must not take its place.
    match writer.bytes_written() == size {
        true => writer.finish(),
        false => Err(cut_short(name, writer.bytes_written(), size as usize)),
    }
}
