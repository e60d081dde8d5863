use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use tidefall_sync::{Instant, Mutex, MutexGuard, PoisonError};
use tidefall_types::{Error, Result};

use super::lock::FileId;
use super::names;

/// How long a reader waits for a writer that deletes files, which takes a moment.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// What readers of other processes lock, as the writer of a database sees it.
#[derive(Debug)]
pub struct Readers {
    // The operating system knows the open file, not who of this process has locked it.
    file: Mutex<File>,
}

/// Nobody reads the database or begins to while it is held.
#[derive(Debug)]
pub struct KeptOut<'a> {
    file: MutexGuard<'a, File>,
}

impl Readers {
    /// Makes it known to readers of the database in `dir` that they can be seen.
    ///
    /// # Errors
    /// `Io` when the disk fails.
    pub fn watch(dir: &Path) -> Result<Self> {
        let path = dir.join(names::READERS);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| Error::io("making the file that readers lock", &error))?;
        Ok(Self { file: Mutex::new(file) })
    }

    /// Keeps readers out, unless there are any.
    pub fn keep_out(&self) -> Option<KeptOut<'_>> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.try_lock().ok()?;
        Some(KeptOut { file })
    }
}

impl Drop for KeptOut<'_> {
    fn drop(&mut self) {
        // Closing the file is not enough: a forked process may have it open, too.
        let _ = self.file.unlock();
    }
}

/// Says to the writer of a database that it is read, until it is dropped or the process dies.
#[derive(Debug)]
pub struct ReadLock(File);

impl ReadLock {
    /// Locks the database in `dir`; nothing where it was only written before there was anything to lock. Without a lock what is replaced may be
    /// deleted at once.
    ///
    /// # Errors
    /// `Io` when its disk knows no locks, or its writer is stopped while it deletes.
    pub fn acquire(dir: &Path) -> Result<Option<Self>> {
        let failed =
            |error: &std::io::Error| Error::io(format!("locking {}", names::READERS), error);
        let file = match File::open(dir.join(names::READERS)) {
            Ok(file) => file,
            // Its writer is of a version that keeps what it replaces for a minute in any case.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        let until = Instant::now() + WAIT_MAX;
        loop {
            match file.try_lock_shared() {
                Ok(()) => return Ok(Some(Self(file))),
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    tidefall_sync::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(failed(&error.into())),
            }
        }
    }
}

impl ReadLock {
    /// Whether it is what the writer of the database in `dir` looks at, who may have made another file since.
    pub fn is_of(&self, dir: &Path) -> bool {
        let held = self.0.metadata().ok().map(|metadata| FileId::of(&metadata));
        held.is_some_and(|held| held.is_at(&dir.join(names::READERS)))
    }
}

impl Drop for ReadLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_knows_whether_anybody_reads() {
        let dir = tempfile::tempdir().unwrap();
        assert!(ReadLock::acquire(dir.path()).unwrap().is_none());
        let readers = Readers::watch(dir.path()).unwrap();
        let locks: Vec<ReadLock> =
            (0..2).map(|_| ReadLock::acquire(dir.path()).unwrap().unwrap()).collect();
        for lock in locks {
            assert!(readers.keep_out().is_none());
            drop(lock);
        }
        let kept_out = readers.keep_out().unwrap();
        let file = File::open(dir.path().join(names::READERS)).unwrap();
        assert!(file.try_lock_shared().is_err(), "a reader begins while files are deleted");
        // One thread after the other: the first that ends would let readers in.
        std::thread::scope(|scope| {
            let other = scope.spawn(|| drop(readers.keep_out().unwrap()));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!other.is_finished());
            assert!(file.try_lock_shared().is_err(), "a reader begins while files are deleted");
            drop(kept_out);
        });
        assert!(ReadLock::acquire(dir.path()).unwrap().is_some());
    }
}
