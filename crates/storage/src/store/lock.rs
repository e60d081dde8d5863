use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
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

impl DirLock {
    /// Locks the database in `dir`, which is created if it is missing.
    ///
    /// # Errors
    /// `Locked` when another process, or another part of this one, writes it.
    pub fn acquire(dir: &Path) -> Result<Self> {
        let failed = |error: &std::io::Error| {
            Error::io(format!("locking the database in {}", dir.display()), error)
        };
        fs::create_dir_all(dir).map_err(|error| failed(&error))?;
        // It is never truncated before it is locked: the pid inside is that of the holder.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join(names::LOCK))
            .map_err(|error| failed(&error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(locked(dir, &mut file)),
            Err(TryLockError::Error(error)) => return Err(failed(&error)),
        }
        // The pid only helps people, so a full disk does not keep a database from opening.
        let noted = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
        if let Err(error) = noted {
            tracing::warn!(%error, "the lock file does not say which process holds it");
        }
        Ok(Self { file })
    }
}

fn locked(dir: &Path, file: &mut File) -> Error {
    let mut pid = String::new();
    let holder = match file.read_to_string(&mut pid) {
        Ok(_) if !pid.is_empty() => format!("process {pid}"),
        _ => "another process".to_owned(),
    };
    Error::locked(format!(
        "{holder} writes the database in {}; stop it, or open the database read-only",
        dir.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidefall_types::ErrorKind;

    #[test]
    fn the_second_writer_is_told_who_is_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er");
        let lock = DirLock::acquire(&path).unwrap();
        let error = DirLock::acquire(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked);
        assert!(error.message().contains(&std::process::id().to_string()), "{error}");
        drop(lock);
        DirLock::acquire(&path).unwrap();
    }
}
