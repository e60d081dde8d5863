use std::ops::Range;

use tidefall_sync::{Arc, OnceLock};
use tidefall_types::{Error, ErrorKind, Result};

use super::{Disk, DiskEntry, DiskFile};

/// The error of what must not be tried again, though a full disk or the like is the cause: what an fsync has failed to
/// make durable may be lost, however much room there is later.
pub fn final_error(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Full => error.with_kind(ErrorKind::Io),
        _ => error,
    }
}

/// Whether a disk has failed to make something durable, and how. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SyncFailure(Arc<OnceLock<Error>>);

impl SyncFailure {
    /// What every write gets after the failure, if there was one.
    pub fn get(&self) -> Option<Error> {
        self.0.get().cloned()
    }

    fn check(&self) -> Result<()> {
        self.get().map_or(Ok(()), Err)
    }

    /// What is written to another place than the one that was opened may be lost, or harm what is there.
    fn check_place(&self, disk: &dyn Disk) -> Result<()> {
        self.check()?;
        let closed = |error| Error::closed(format!("nothing more is written: {error}"));
        disk.check_place().map_err(|error| self.0.get_or_init(|| closed(error)).clone())
    }

    fn watch(&self, synced: Result<()>) -> Result<()> {
        synced.map_err(final_error).inspect_err(|error| {
            self.0.get_or_init(|| {
                Error::closed(format!(
                    "nothing more is written after a failed fsync; open the database again when \
                     the disk is well: {error}"
                ))
            });
        })
    }
}

/// A disk that changes nothing more once it has failed to make something durable, or is found in another place. That it is full, or that no more files
/// can be opened, is told as `Full` and ends nothing.
///
/// The operating system may have dropped the bytes of a failed fsync and yet let the next fsync
/// succeed (Rebello et al., "Can applications recover from fsync failures?", 2020), so no later
/// write can be relied on until everything has been read again from the start.
#[derive(Debug)]
pub struct GuardedDisk {
    inner: Arc<dyn Disk>,
    failure: SyncFailure,
}

impl GuardedDisk {
    /// `inner`, which has not failed as yet.
    pub fn new(inner: Arc<dyn Disk>) -> Self {
        Self { inner, failure: SyncFailure::default() }
    }

    /// Tells, then and later, whether the disk has failed.
    pub fn failure(&self) -> SyncFailure {
        self.failure.clone()
    }

    fn wrap(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let (disk, failure) = (Arc::clone(&self.inner), self.failure.clone());
        Arc::new(GuardedFile { inner: file, disk, failure })
    }
}

impl Disk for GuardedDisk {
    fn create_dir(&self, dir: &str) -> Result<()> {
        self.failure.check_place(&*self.inner)?;
        self.inner.create_dir(dir)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.failure.check_place(&*self.inner)?;
        Ok(self.wrap(self.inner.create(name)?))
    }

    // Nobody writes to a file that was opened for reading.
    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.inner.open(name)
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.failure.check_place(&*self.inner)?;
        Ok(self.wrap(self.inner.open_write(name)?))
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        self.failure.check_place(&*self.inner)?;
        self.inner.link(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.failure.check_place(&*self.inner)?;
        self.inner.remove(name)
    }

    fn list(&self, dir: &str) -> Result<Vec<DiskEntry>> {
        self.inner.list(dir)
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        self.failure.check_place(&*self.inner)?;
        self.failure.watch(self.inner.sync_dir(dir))
    }
}

#[derive(Debug)]
struct GuardedFile {
    inner: Arc<dyn DiskFile>,
    disk: Arc<dyn Disk>,
    failure: SyncFailure,
}

impl DiskFile for GuardedFile {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, out)
    }

    fn will_read(&self, range: Range<u64>) {
        self.inner.will_read(range);
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.failure.check_place(&*self.disk)?;
        self.inner.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        self.failure.check()?;
        self.failure.watch(self.inner.sync())?;
        self.failure.check_place(&*self.disk)
    }

    fn size(&self) -> Result<u64> {
        self.inner.size()
    }

    fn truncate(&self, size_bytes: u64) -> Result<()> {
        self.failure.check_place(&*self.disk)?;
        self.inner.truncate(size_bytes)
    }
}
