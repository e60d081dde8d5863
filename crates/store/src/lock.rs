use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tidefall_types::{Error, Result};

use super::names;

/// The right to write a database; given back when dropped, also when the process dies.
#[derive(Debug)]
pub struct DirLock {
    // The operating system ties the lock to the open file.
    file: File,
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a forked process may have it open, too.
        let _ = self.file.unlock();
    }
}

/// Which file a lock is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    /// Whether a name stands for this file now; also where that cannot be found out.
    pub(super) fn is_at(self, path: &Path) -> bool {
        match fs::metadata(path) {
            Ok(metadata) => Self::of(&metadata) == self,
            Err(error) => {
                !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            }
        }
    }
}

impl DirLock {
    /// Which file it holds. As long as it does, no other gets this id.
    pub(super) fn id(&self) -> Option<FileId> {
        self.file.metadata().ok().map(|metadata| FileId::of(&metadata))
    }

    /// Locks the database in `dir`, which is created if it is missing.
    ///
    /// # Errors
    /// `Locked` when another process, or another part of this one, writes it; `Io` when the disk fails, or `dir` must
    /// not be written.
    pub fn acquire(dir: &Path) -> Result<Self> {
        Self::try_acquire(dir)?
    }

    /// As [`DirLock::acquire`], but tells apart why a database that may be read cannot be written from here: that is the
    /// inner error.
    ///
    /// # Errors
    /// `Io` when the disk fails.
    pub fn try_acquire(dir: &Path) -> Result<Result<Self>> {
        let failed = |error: &io::Error| {
            Error::io(format!("locking the database in {}", dir.display()), error)
        };
        fs::create_dir_all(dir)
            .map_err(|error| Error::io(format!("making the folder {}", dir.display()), &error))?;
        // It is never truncated before it is locked: the pid inside is that of the holder.
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join(names::LOCK));
        let mut file = match opened {
            Ok(file) => file,
            Err(error) if is_forbidden(&error) => return Ok(Err(forbidden(dir, &error))),
            Err(error) => return Err(failed(&error)),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Err(locked(dir, &mut file))),
            Err(TryLockError::Error(error)) => return Err(failed(&error)),
        }
        // The pid only helps people, so a full disk does not keep a database from opening.
        let noted = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
        if let Err(error) = noted {
            tracing::warn!(%error, "the lock file does not say which process holds it");
        }
        Ok(Ok(Self { file }))
    }
}

/// Whether a file cannot be opened for writing because nobody, or not this user, may write where it is.
fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn forbidden(dir: &Path, error: &io::Error) -> Error {
    let what =
        format!("the folder {} cannot be written, so its database can only be read", dir.display());
    Error::io(what, error)
}

fn locked(dir: &Path, file: &mut File) -> Error {
    let mut pid = String::new();
    let holder = match file.read_to_string(&mut pid) {
        Ok(_) if pid == std::process::id().to_string() => {
            return Error::locked(format!(
                "this process, or one of its number in another container, writes the database in {} already: use it where it was \
                 opened, or close it there first",
                dir.display()
            ));
        }
        Ok(_) if !pid.is_empty() => format!("process {pid}"),
        _ => "another process".to_owned(),
    };
    Error::locked(format!(
        "{holder} writes the database in {}, and as long as it does, others can only read it: send it what shall change, as \
         `tidefall serve` takes statements at /api/v1/sql and line protocol at /write, or stop it first",
        dir.display()
    ))
}

#[cfg(test)]
mod tests {
    use tidefall_types::ErrorKind;

    use super::*;

    #[test]
    fn the_second_writer_is_told_who_is_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er");
        let lock = DirLock::acquire(&path).unwrap();
        let error = DirLock::acquire(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked);
        assert!(error.message().starts_with("this process, or one"), "{error}");
        drop(lock);
        DirLock::acquire(&path).unwrap();
    }
}
