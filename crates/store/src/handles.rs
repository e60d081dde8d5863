use std::collections::HashMap;

use tidefall_sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidefall_types::Result;

use super::limits::files_max;
use super::{Disk, DiskFile};

/// Open files kept for reuse: enough for the objects of a large query.
const OPEN_FILES_MAX: u64 = 256;
/// Of the files that the process may hold open, one in so many is kept at most. Usually they are 1,024, and on macOS 256:
/// what is written needs some as well, and so do the connections of a server and whatever else the process does.
const OPEN_FILES_SHARE: u64 = 4;

/// Files open for reading; the one unused for longest is closed when there are too many.
#[derive(Debug)]
pub(super) struct Handles {
    inner: Mutex<Inner>,
    files_max: usize,
}

impl Default for Handles {
    fn default() -> Self {
        let share = files_max().map_or(OPEN_FILES_MAX, |files| files / OPEN_FILES_SHARE);
        let files_max = share.clamp(1, OPEN_FILES_MAX) as usize;
        Self { inner: Mutex::default(), files_max }
    }
}

#[derive(Debug, Default)]
struct Inner {
    files: HashMap<Box<str>, Handle>,
    uses: u64,
    removals: u64,
}

#[derive(Debug)]
struct Handle {
    file: Arc<dyn DiskFile>,
    last_use: u64,
}

impl Handles {
    /// The open file called `name`.
    ///
    /// # Errors
    /// As [`Disk::open`].
    pub(super) fn open(&self, disk: &dyn Disk, name: &str) -> Result<Arc<dyn DiskFile>> {
        let removals = {
            let mut inner = self.lock();
            inner.uses += 1;
            let now = inner.uses;
            if let Some(handle) = inner.files.get_mut(name) {
                handle.last_use = now;
                return Ok(Arc::clone(&handle.file));
            }
            inner.removals
        };
        let file = disk.open(name)?;
        let mut inner = self.lock();
        // A handle opened while something was removed might be of the removed file, and would
        // keep its bytes on disk.
        if inner.removals == removals {
            inner.insert(name, Arc::clone(&file), self.files_max);
        }
        Ok(file)
    }

    /// Forgets `name`; to be called after its file is removed.
    pub(super) fn forget(&self, name: &str) {
        let mut inner = self.lock();
        inner.removals += 1;
        inner.files.remove(name);
    }

    // The map is whole between any two statements, so a panic elsewhere does not harm it.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn insert(&mut self, name: &str, file: Arc<dyn DiskFile>, files_max: usize) {
        if self.files.len() >= files_max {
            let oldest = self.files.iter().min_by_key(|(_, handle)| handle.last_use);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.files.remove(&oldest);
            }
        }
        self.files.insert(name.into(), Handle { file, last_use: self.uses });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalDisk;

    #[test]
    fn the_cache_is_bounded_and_forgets() {
        let dir = tempfile::tempdir().unwrap();
        let disk = LocalDisk::new(dir.path());
        let handles = Handles::default();
        for i in 0..handles.files_max + 10 {
            disk.create(&format!("f{i}")).unwrap();
            handles.open(&disk, &format!("f{i}")).unwrap();
            handles.open(&disk, "f0").unwrap();
        }
        assert_eq!(handles.lock().files.len(), handles.files_max);
        assert!(handles.lock().files.contains_key("f0"), "the most used file was closed");
        disk.remove("f0").unwrap();
        handles.forget("f0");
        assert!(handles.open(&disk, "f0").is_err());
    }
}
