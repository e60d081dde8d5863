//! Every name of a file, object or directory inside a database.

use tidefall_types::ObjectId;

/// The file whose lock the one writer of a database holds.
pub const LOCK: &str = "LOCK";
/// The file that readers of a database lock together.
pub const READERS: &str = "READERS";
/// The directory of the log.
pub const WAL_DIR: &str = "wal";
/// The directory of the manifest.
pub const MANIFEST_DIR: &str = "manifest";
/// The directory of everything that the manifest names.
pub const OBJECTS_DIR: &str = "objects";
/// The directory of what says which version the manifest had reached.
pub const REACHED_DIR: &str = "reached";
/// The directory of files that a repair has replaced, and of objects that may be of a manifest that is lost.
pub const DAMAGED_DIR: &str = "damaged";
/// How the names of files end that are not finished.
pub const TEMP_SUFFIX: &str = ".tmp";

const WAL_SUFFIX: &str = ".log";
const WAL_ID_SUFFIX: &str = ".id";
const DELTA_SUFFIX: &str = ".delta";
const CHECKPOINT_SUFFIX: &str = ".checkpoint";

/// How far the manifest has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Its version.
    pub version: u64,
    /// The number that the next object gets.
    pub next_object: u64,
}

/// The log file with this number; files are numbered from 1 without gaps.
pub fn wal_file(number: u64) -> String {
    format!("{WAL_DIR}/{number:016}{WAL_SUFFIX}")
}

/// The number in the name of a log file.
pub fn parse_wal_file(name: &str) -> Option<u64> {
    parse_number(name, WAL_DIR, WAL_SUFFIX)
}

/// The empty file that gives a log a number, by which a manifest that lies elsewhere knows it.
pub fn wal_id(id: u32) -> String {
    format!("{WAL_DIR}/{id:08x}{WAL_ID_SUFFIX}")
}

/// The number of a log, from the name of such a file.
pub fn parse_wal_id(name: &str) -> Option<u32> {
    let digits = name.strip_prefix(WAL_DIR)?.strip_prefix('/')?.strip_suffix(WAL_ID_SUFFIX)?;
    (digits.len() == 8).then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}

/// The manifest object that leads from `version - 1` to `version`.
pub fn manifest_delta(version: u64) -> String {
    format!("{MANIFEST_DIR}/{version:020}{DELTA_SUFFIX}")
}

/// The version in the name of a manifest delta.
pub fn parse_manifest_delta(name: &str) -> Option<u64> {
    parse_number(name, MANIFEST_DIR, DELTA_SUFFIX)
}

/// The manifest object that holds the whole state at `version`.
pub fn manifest_checkpoint(version: u64) -> String {
    format!("{MANIFEST_DIR}/{version:020}{CHECKPOINT_SUFFIX}")
}

/// The version in the name of a manifest checkpoint.
pub fn parse_manifest_checkpoint(name: &str) -> Option<u64> {
    parse_number(name, MANIFEST_DIR, CHECKPOINT_SUFFIX)
}

/// The empty file that says how far the manifest had come.
pub fn reached(mark: Mark) -> String {
    format!("{REACHED_DIR}/{:020}.{:016}", mark.version, mark.next_object)
}

/// How far the manifest had come, from the name of such a file.
pub fn parse_reached(name: &str) -> Option<Mark> {
    let (version, next_object) =
        name.strip_prefix(REACHED_DIR)?.strip_prefix('/')?.split_once('.')?;
    Some(Mark { version: parse_digits(version)?, next_object: parse_digits(next_object)? })
}

/// An object of data by this writer, with whose number its name can be no other writer's; those of earlier versions have none (0). `extension`
/// tells a person what is inside.
pub fn object(id: ObjectId, writer: u32, extension: &str) -> String {
    match writer {
        0 => format!("{OBJECTS_DIR}/{:016}.{extension}", id.0),
        _ => format!("{OBJECTS_DIR}/{:016}-{writer:08x}.{extension}", id.0),
    }
}

/// The id in the name of an object of data.
pub fn parse_object(name: &str) -> Option<ObjectId> {
    let (stem, _) = name.strip_prefix(OBJECTS_DIR)?.strip_prefix('/')?.split_once('.')?;
    let is_writer = |text: &str| text.len() == 8 && u32::from_str_radix(text, 16).is_ok();
    let number = match stem.split_once('-') {
        None => stem,
        Some((number, writer)) => is_writer(writer).then_some(number)?,
    };
    parse_digits(number).map(ObjectId)
}

/// Where a repair keeps what it has replaced, with the names that it had; repairs are numbered from 1.
pub fn damaged_dir(number: u64) -> String {
    format!("{DAMAGED_DIR}/{number}")
}

/// The number of the repair that made a directory.
pub fn parse_damaged_dir(name: &str) -> Option<u64> {
    parse_digits(name.strip_prefix(DAMAGED_DIR)?.strip_prefix('/')?)
}

/// The number of the repair that made the directory in which something lies, and the name of that before.
pub fn parse_below_damaged_dir(name: &str) -> Option<(u64, &str)> {
    let (number, name) = name.strip_prefix(DAMAGED_DIR)?.strip_prefix('/')?.split_once('/')?;
    Some((parse_digits(number)?, name))
}

/// The directory part of a name; empty for names at the top.
pub fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(dir, _)| dir)
}

fn parse_number(name: &str, dir: &str, suffix: &str) -> Option<u64> {
    parse_digits(name.strip_prefix(dir)?.strip_prefix('/')?.strip_suffix(suffix)?)
}

fn parse_digits(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_their_names() {
        for number in [0, 1, 9_999_999_999_999_999, u64::MAX] {
            assert_eq!(parse_wal_file(&wal_file(number)), Some(number));
            assert_eq!(parse_manifest_delta(&manifest_delta(number)), Some(number));
            assert_eq!(parse_manifest_checkpoint(&manifest_checkpoint(number)), Some(number));
            let mark = Mark { version: number, next_object: number / 2 };
            assert_eq!(parse_reached(&reached(mark)), Some(mark));
            assert_eq!(parse_damaged_dir(&damaged_dir(number)), Some(number));
            let below = format!("{}/objects/1.kv", damaged_dir(number));
            assert_eq!(parse_below_damaged_dir(&below), Some((number, "objects/1.kv")));
            for writer in [0, 1, 0xabc, u32::MAX] {
                assert_eq!(parse_wal_id(&wal_id(writer)), Some(writer));
                let name = object(ObjectId(number), writer, "run");
                assert_eq!(parse_object(&name), Some(ObjectId(number)), "{name}");
            }
        }
        assert_eq!(parse_manifest_delta(&manifest_checkpoint(1)), None);
        for name in ["1-.kv", "1-12.kv", "1-0123456g.kv", "-01234567.kv", "1-01234567-.kv"] {
            assert_eq!(parse_object(&format!("objects/{name}")), None, "{name}");
        }
        for name in ["wal/.log", "wal/+1.log", "wal/1.log.3.tmp", "log", "wal1.log"] {
            assert_eq!(parse_wal_file(name), None, "{name}");
        }
    }
}
