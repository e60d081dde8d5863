use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use tidefall_types::Result;

/// The operations of a file system that Tidefall relies on.
///
/// What it assumes of them: bytes of a file are durable once [`DiskFile::sync`] has returned, names
/// in a directory once [`Disk::sync_dir`] has; before that any part of them may be lost in any
/// order. `link` never replaces a file, also when two processes race.
pub trait Disk: Send + Sync + Debug {
    /// Says to whoever writes what is here that it is read from now on, for as long as this disk is in use; nothing where that
    /// cannot be said. It may be said again, and should be, as what is here may be moved.
    fn begin_to_read(&self) {}

    /// Whether what is written here is found again: the place that it is in is still the one that was opened.
    ///
    /// # Errors
    /// `Conflict` when it was moved, or something else was put in its place.
    fn check_place(&self) -> Result<()> {
        Ok(())
    }

    /// Makes a directory and those above it, durably; it is no error when it exists.
    ///
    /// # Errors
    /// `Io` when the disk fails.
    fn create_dir(&self, dir: &str) -> Result<()>;

    /// Makes an empty file, for writing.
    ///
    /// # Errors
    /// `Conflict` when the name exists, `NotFound` when its directory is missing, `Full` when there is no room for
    /// the name, or no more files can be opened; the file does not exist then.
    fn create(&self, name: &str) -> Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// `NotFound` without such a file, `Full` when no more files can be opened.
    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// `NotFound` without such a file, `Full` when no more files can be opened.
    fn open_write(&self, name: &str) -> Result<Arc<dyn DiskFile>>;

    /// Gives a file a second name in the same directory.
    ///
    /// # Errors
    /// `Conflict` when `to` exists, `Full` when there is no room for the name; it does not exist then.
    fn link(&self, from: &str, to: &str) -> Result<()>;

    /// Removes a name.
    ///
    /// # Errors
    /// `NotFound` without such a file.
    fn remove(&self, name: &str) -> Result<()>;

    /// What is in a directory, in no order; nothing when the directory is missing.
    ///
    /// # Errors
    /// `Io` when the disk fails.
    fn list(&self, dir: &str) -> Result<Vec<DiskEntry>>;

    /// Makes the names in a directory durable. Where one was created this opens no file.
    ///
    /// # Errors
    /// `Io` when the disk fails.
    fn sync_dir(&self, dir: &str) -> Result<()>;
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskEntry {
    /// A directory, with its full name.
    Dir(String),
    /// A file, with its full name and length.
    File {
        /// Its name, relative to the database.
        name: String,
        /// Its length.
        size_bytes: u64,
    },
}

/// An open file.
pub trait DiskFile: Send + Sync + Debug {
    /// Fills `out` with the bytes from `offset` on.
    ///
    /// # Errors
    /// `Corrupt` when the file ends before, `Io` when the disk fails.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;

    /// Says that these bytes will be read soon, so that a slow disk can begin. It may do nothing.
    fn will_read(&self, range: Range<u64>);

    /// Writes `bytes` at `offset`.
    ///
    /// # Errors
    /// `Io` when the disk fails, `Full` when it is full; any part of the bytes may then be written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Makes everything written durable.
    ///
    /// # Errors
    /// `Io` when the disk fails; what was not durable before may then be lost, and a later `sync`
    /// that succeeds says nothing about it.
    fn sync(&self) -> Result<()>;

    /// The length in bytes.
    ///
    /// # Errors
    /// `Io` when the disk fails.
    fn size(&self) -> Result<u64>;

    /// Cuts the file off at `size_bytes`.
    ///
    /// # Errors
    /// `Io` when the disk fails.
    fn truncate(&self, size_bytes: u64) -> Result<()>;
}
