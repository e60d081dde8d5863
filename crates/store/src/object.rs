use std::fmt::Debug;
use std::ops::Range;

use tidefall_types::{Error, ErrorKind, Result};

/// Objects: byte strings that are written once under a new name, read in ranges, and deleted.
///
/// Names are relative, with `/` between their parts. Reading behind the end of an object is
/// `Corrupt`, because offsets come from the object itself or from the manifest.
pub trait ObjectIo: Send + Sync + Debug {
    /// Creates `name` from `parts` laid end to end. On return it is durable; at any moment, also
    /// after power loss, it is there whole or not at all.
    ///
    /// # Errors
    /// `Conflict` when the name exists, which is then unchanged. `Io` when the disk fails; the
    /// object may then exist or not. `Full` when the disk is full; the object does not exist then.
    fn put_new(&self, name: &str, parts: &[&[u8]]) -> Result<()>;

    /// Starts an object that is too large for memory. It appears under `name` when its writer is
    /// finished.
    ///
    /// # Errors
    /// `Io` when the disk fails.
    fn writer(&self, name: &str) -> Result<Box<dyn ObjectWriter>>;

    /// The bytes of `name` from `range.start` up to `range.end`.
    ///
    /// # Errors
    /// `NotFound` without such an object, `Corrupt` when it ends before `range.end`.
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>>;

    /// Fills `out` with the bytes of `name` from `offset` on.
    ///
    /// # Errors
    /// As [`ObjectIo::read_range`].
    fn read_into(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<()>;

    /// Says that these bytes of `name` will be read soon, so that a slow disk can begin. It may do nothing.
    fn will_read(&self, name: &str, range: Range<u64>);

    /// Whether a read takes so long that all that are to come should be announced by [`ObjectIo::will_read`].
    fn is_slow(&self) -> bool {
        false
    }

    /// Whether an `Io` may pass by itself, as behind a network, and what can be read is durable: then what was to be written may be written again. On a
    /// disk it is not so, where a failed fsync may have lost what can still be read.
    fn recovers(&self) -> bool {
        false
    }

    /// The length of `name` in bytes.
    ///
    /// # Errors
    /// `NotFound` without such an object.
    fn size(&self, name: &str) -> Result<u64>;

    /// All objects in directory `dir` and below it, with their lengths in bytes, sorted by name: at least those that were there when it was
    /// asked, whoever made them.
    ///
    /// # Errors
    /// `Io` when the disk fails.
    fn list(&self, dir: &str) -> Result<Vec<(String, u64)>>;

    /// Says that nobody here reads `name` any more: what is held of it may be given back.
    fn let_go(&self, name: &str);

    /// Deletes `name`. It is no error when it is missing. The deletion need not be durable: a
    /// deleted object may be back after power loss.
    ///
    /// # Errors
    /// `Io` when the disk fails.
    fn delete(&self, name: &str) -> Result<()>;

    /// All bytes of `name`, for objects known to be small.
    ///
    /// # Errors
    /// As [`ObjectIo::read_range`].
    fn read_all(&self, name: &str) -> Result<Vec<u8>> {
        let size = self.size(name)?;
        self.read_range(name, 0..size)
    }
}

/// The error of reading an object that must be there: when it is missing, that is damage.
pub fn of_needed_object(name: &str, error: Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::corrupt(format!(
            "{name} is missing; open the database again in case another process has replaced it, \
             else restore it from a copy"
        )),
        _ => error,
    }
}

/// Checks that an object has as many bytes as the manifest says.
///
/// # Errors
/// `Corrupt` when it is missing or has another length; others as [`ObjectIo::size`].
pub fn check_size(io: &dyn ObjectIo, name: &str, bytes: u64) -> Result<()> {
    let size = io.size(name).map_err(|error| of_needed_object(name, error))?;
    if size == bytes {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "{name} has {size} bytes, the manifest says {bytes}; restore it from a copy"
    )))
}

/// An object while it is written. Dropped without [`ObjectWriter::finish`] it leaves nothing.
pub trait ObjectWriter: Send + Debug {
    /// Adds bytes at the end.
    ///
    /// # Errors
    /// `Io` when the disk fails; the writer is then of no more use.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// The bytes appended up to now.
    fn bytes_written(&self) -> u64;

    /// Makes the object durable and visible under its name.
    ///
    /// # Errors
    /// As [`ObjectIo::put_new`].
    fn finish(self: Box<Self>) -> Result<()>;
}
