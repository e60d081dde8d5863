use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tidefall_sync::atomic::{AtomicBool, Ordering};
use tidefall_sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidefall_types::{Error, Result};

use super::lock::FileId;
use super::names;
use super::{DirLock, Disk, DiskEntry, DiskFile, ReadLock};

/// A directory of the local file system.
#[derive(Debug, Default)]
pub struct LocalDisk {
    root: PathBuf,
    // Directories, open. Each is opened before a name is made in it: when the name is there and must become durable, it
    // would be too late to find that no more files can be opened. A database has a handful of them.
    dirs: Mutex<HashMap<Box<str>, Arc<File>>>,
    /// The lock of whoever writes here.
    lock: Option<FileId>,
    read_lock: Mutex<Option<ReadLock>>,
    /// Whether it was said that there can be no such lock.
    is_unseen: AtomicBool,
}

impl LocalDisk {
    /// The disk whose names are relative to `root`, which stays where it is when the process goes to another working
    /// directory. Nothing is touched until it is used.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        let root = std::path::absolute(&root).unwrap_or(root);
        Self { root, ..Self::default() }
    }

    /// As [`LocalDisk::new`], for whoever has the right to write there.
    pub fn locked(root: impl Into<PathBuf>, lock: &DirLock) -> Self {
        Self { lock: lock.id(), ..Self::new(root) }
    }

    /// The directory that names are relative to.
    pub fn root(&self) -> &Path {
        &self.root
    }

    // Names reach here from the manifest too, so they are checked: none leads out of the root.
    fn path(&self, name: &str) -> Result<PathBuf> {
        if name.is_empty() {
            return Ok(self.root.clone());
        }
        if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(Error::invalid(format!("{name:?} is not a name inside of a database")));
        }
        Ok(self.root.join(name))
    }

    // The map is whole between any two statements, so a panic elsewhere does not harm it.
    fn dirs(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<File>>> {
        self.dirs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A directory, which stays open.
    fn dir(&self, dir: &str) -> Result<Arc<File>> {
        if let Some(file) = self.dirs().get(dir) {
            return Ok(Arc::clone(file));
        }
        let file = File::open(self.path(dir)?)
            .map_err(|error| Error::io(format!("opening directory {dir:?}"), &error))?;
        let file = Arc::new(file);
        self.dirs().insert(dir.into(), Arc::clone(&file));
        Ok(file)
    }

    fn open_with(&self, name: &str, options: &OpenOptions) -> Result<Arc<dyn DiskFile>> {
        let file = options.open(self.path(name)?).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(name),
            _ => Error::io(format!("opening {name}"), &error),
        })?;
        Ok(Arc::new(LocalFile { file, name: name.into() }))
    }
}

impl Disk for LocalDisk {
    fn begin_to_read(&self) {
        let mut held = self.read_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if held.as_ref().is_some_and(|held| held.is_of(&self.root)) {
            return;
        }
        match ReadLock::acquire(&self.root) {
            Ok(Some(lock)) => *held = Some(lock),
            Ok(None) => {}
            Err(error) if !self.is_unseen.swap(true, Ordering::Relaxed) => {
                tracing::warn!(%error, "the writer of the database does not know that it is read");
            }
            Err(_) => {}
        }
    }

    fn check_place(&self) -> Result<()> {
        if self.lock.is_none_or(|lock| lock.is_at(&self.root.join(names::LOCK))) {
            return Ok(());
        }
        Err(Error::conflict(format!(
            "the file {} in {} is not the one that was locked when the database was opened: its folder was moved, or other files were put \
             in its place; stop this process before its files are replaced",
            names::LOCK,
            self.root.display()
        )))
    }

    fn create_dir(&self, dir: &str) -> Result<()> {
        let path = self.path(dir)?;
        let failed = |error: &io::Error| Error::io(format!("creating directory {dir:?}"), error);
        if dir.is_empty() {
            // What is above the database belongs to its user, who may make it as they like.
            return fs::create_dir_all(&path).map_err(|error| failed(&error));
        }
        self.create_dir(names::parent(dir))?;
        self.dir(names::parent(dir))?;
        match fs::create_dir(&path) {
            // One of that name that is open is another, which was removed.
            Ok(()) => drop(self.dirs().remove(dir)),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(&error));
            }
            // Who made it may have been killed before the next step.
            Err(_) => {}
        }
        self.sync_dir(names::parent(dir))
    }

    fn create(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.dir(names::parent(name))?;
        self.open_with(name, OpenOptions::new().read(true).write(true).create_new(true))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.open_with(name, OpenOptions::new().read(true))
    }

    fn open_write(&self, name: &str) -> Result<Arc<dyn DiskFile>> {
        self.open_with(name, OpenOptions::new().read(true).write(true))
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        fs::hard_link(self.path(from)?, self.path(to)?).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(to),
            _ => Error::io(format!("linking {from} to {to}"), &error),
        })
    }

    fn remove(&self, name: &str) -> Result<()> {
        fs::remove_file(self.path(name)?)
            .map_err(|error| Error::io(format!("removing {name}"), &error))
    }

    fn list(&self, dir: &str) -> Result<Vec<DiskEntry>> {
        let failed = |error: io::Error| Error::io(format!("listing {dir:?}"), &error);
        let entries = match fs::read_dir(self.path(dir)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            // A name that is not UTF-8 is none of ours.
            let Ok(last) = entry.file_name().into_string() else { continue };
            let name = if dir.is_empty() { last } else { format!("{dir}/{last}") };
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => found.push(DiskEntry::Dir(name)),
                Ok(meta) => found.push(DiskEntry::File { name, size_bytes: meta.len() }),
                // It was removed since the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io(format!("looking at {name}"), &error)),
            }
        }
        Ok(found)
    }

    fn sync_dir(&self, dir: &str) -> Result<()> {
        self.dir(dir)?
            .sync_all()
            .map_err(|error| Error::io(format!("syncing directory {dir:?}"), &error))
    }
}

#[derive(Debug)]
struct LocalFile {
    file: File,
    name: Box<str>,
}

impl LocalFile {
    fn failed(&self, what: &str, error: &io::Error) -> Error {
        Error::io(format!("{what} {}", self.name), error)
    }
}

impl DiskFile for LocalFile {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(out, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => cut_short(&self.name, offset, out.len()),
            _ => self.failed(&format!("reading {} bytes at {offset} of", out.len()), &error),
        })
    }

    #[cfg(target_os = "linux")]
    fn will_read(&self, range: Range<u64>) {
        use rustix::fs::{Advice, fadvise};

        let length = std::num::NonZeroU64::new(range.end.saturating_sub(range.start));
        if length.is_some() {
            // A file system that does not know the hint reads when it is asked to.
            let _ = fadvise(&self.file, range.start, length, Advice::WillNeed);
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn will_read(&self, _range: Range<u64>) {}

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|error| self.failed("writing", &error))
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| self.failed("syncing", &error))
    }

    fn size(&self) -> Result<u64> {
        let meta = self.file.metadata().map_err(|error| self.failed("looking at", &error))?;
        Ok(meta.len())
    }

    fn truncate(&self, size_bytes: u64) -> Result<()> {
        self.file.set_len(size_bytes).map_err(|error| self.failed("truncating", &error))
    }
}

/// The error of a file that ends before bytes that must be there.
pub fn cut_short(name: &str, offset: u64, length: usize) -> Error {
    Error::corrupt(format!(
        "{name} is cut short: it ends before the {length} bytes at offset {offset}; restore it \
         from a copy"
    ))
}

/// The error of a name that is taken.
pub fn exists(name: &str) -> Error {
    Error::conflict(format!("{name} exists already"))
}
