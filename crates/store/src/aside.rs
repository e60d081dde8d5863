//! What is kept of a database that was damaged.

use std::collections::HashMap;
use std::ops::Range;

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

/// Copies objects to a directory of their own, durably, for stores that give no second names. Those that are missing are passed over, and those of
/// which an earlier try has made a copy: one that fails time and again must not fill the store with copies of the others.
///
/// # Errors
/// `Io` and `Full` from the store; objects that are copied by then stay there.
pub fn copy_aside(io: &dyn ObjectIo, objects: impl Iterator<Item = String>) -> Result<String> {
    let found = io.list(names::DAMAGED_DIR)?;
    let (mut taken, mut copies) = (0, HashMap::<_, Vec<&str>>::new());
    for (copy, bytes) in &found {
        let Some((number, name)) = names::parse_below_damaged_dir(copy) else { continue };
        taken = number.max(taken);
        copies.entry((name, *bytes)).or_default().push(copy);
    }
    let dir = names::damaged_dir(taken + 1);
    for name in objects {
        let copied = io.size(&name).and_then(|size| {
            let mut likely = copies.get(&(name.as_str(), size)).into_iter().flatten();
            match likely.any(|copy| is_copy(io, &name, copy, size)) {
                true => Ok(()),
                false => copy(io, &name, size, &format!("{dir}/{name}")),
            }
        });
        match copied {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(dir)
}

/// Whether two objects of a size are known to have the same bytes.
fn is_copy(io: &dyn ObjectIo, name: &str, copy: &str, size: u64) -> bool {
    let read = |name, range: &Range<u64>| io.read_range(name, range.clone()).ok();
    pieces(size).all(|range| {
        let bytes = read(name, &range);
        bytes.is_some() && bytes == read(copy, &range)
    })
}

fn copy(io: &dyn ObjectIo, name: &str, size: u64, to: &str) -> Result<()> {
    let mut writer = io.writer(to)?;
    for range in pieces(size) {
        writer.append(&io.read_range(name, range)?)?;
    }
    // A copy that lacks something must not take its place.
    match writer.bytes_written() == size {
        true => writer.finish(),
        false => Err(cut_short(name, writer.bytes_written(), size as usize)),
    }
}

fn pieces(size: u64) -> impl Iterator<Item = Range<u64>> {
    let starts = (0..size).step_by(COPIED_BYTES as usize);
    starts.map(move |start| start..size.min(start + COPIED_BYTES))
}
