use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidefall_types::Result;

use super::{Disk, DiskFile};

/// Open files kept for reuse: enough for the objects of a large query, and far below the 1,024
/// that a process may usually hold open.
const OPEN_FILES_MAX: usize = 256;

/// Files open for reading; the one unused for longest is closed when there are too many.
#[derive(Debug, Default)]
pub(super) struct Handles {
    inner: Mutex<Inner>,
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
            inner.insert(name, Arc::clone(&file));
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
    fn insert(&mut self, name: &str, file: Arc<dyn DiskFile>) {
        if self.files.len() >= OPEN_FILES_MAX {
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
    use crate::store::MemDisk;

    #[test]
    fn the_cache_is_bounded_and_forgets() {
        let disk = MemDisk::new();
        let handles = Handles::default();
        for i in 0..OPEN_FILES_MAX + 10 {
            disk.create(&format!("f{i}")).unwrap();
            handles.open(&disk, &format!("f{i}")).unwrap();
            handles.open(&disk, "f0").unwrap();
        }
        assert_eq!(handles.lock().files.len(), OPEN_FILES_MAX);
        assert!(handles.lock().files.contains_key("f0"), "the most used file was closed");
        disk.remove("f0").unwrap();
        handles.forget("f0");
        assert!(handles.open(&disk, "f0").is_err());
    }
}
