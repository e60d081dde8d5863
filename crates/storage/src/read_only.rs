//! Opening a database to read it, maybe beside the process that writes it.

use std::path::Path;
use std::sync::Arc;

use tidefall_ground::failure::Failure;
use tidefall_ground::manifest::log::ManifestLog;
use tidefall_ground::manifest::reached::Reached;
use tidefall_ground::options::DbOptions;
use tidefall_store::{DirLock, Disk, LocalDisk, LocalIo, ObjectIo};
use tidefall_types::{Error, Result, Seq};

use crate::Db;
use crate::commit::CommitQueue;
use crate::engine::Engine;
use crate::follower::Follower;

impl Db {
    /// Opens the database in `dir` as [`Db::open`] does. When it cannot be written from here, as another process writes it
    /// or the directory must not be written, it is opened as by [`Db::open_read_only`] if there is one; what would
    /// change it is refused with that reason.
    ///
    /// # Errors
    /// As [`Db::open`] and [`Db::open_read_only`].
    pub fn open_shared(dir: impl AsRef<Path>, options: DbOptions) -> Result<Self> {
        let dir = dir.as_ref();
        match DirLock::try_acquire(dir)? {
            Ok(lock) => Self::open_locked(dir, lock, options),
            Err(why) if Self::exists(dir) => {
                let why = Error::new(
                    why.kind(),
                    format!(
                        "{}; what was opened here only for reading has to be opened again then",
                        why.message()
                    ),
                );
                Self::open_to_read(Arc::new(LocalDisk::new(dir)), options, &why)
            }
            Err(why) => Err(why),
        }
    }

    /// Opens the database in `dir` only for reading, also while another process writes it: all that
    /// was acknowledged as durable before, and maybe what came meanwhile, also when that was on its way and is refused
    /// later. It shows one moment until [`Db::refresh`] is called. What the writer
    /// replaces stays readable for a minute.
    ///
    /// # Errors
    /// `NotFound` when there is no database, `Limit` when it changes too fast to find it at rest,
    /// and as [`Db::open`].
    pub fn open_read_only(dir: impl AsRef<Path>, options: DbOptions) -> Result<Self> {
        let dir = dir.as_ref();
        if !Self::exists(dir) {
            return Err(Error::not_found(format!("there is no database in {}", dir.display())));
        }
        Self::open_read_only_on(Arc::new(LocalDisk::new(dir)), options)
    }

    /// Opens the database on a disk only for reading, also while it is written.
    ///
    /// # Errors
    /// As [`Db::open_read_only`]; a disk without a database is one without tables.
    pub fn open_read_only_on(disk: Arc<dyn Disk>, options: DbOptions) -> Result<Self> {
        let why = Error::unsupported(
            "the database was opened only for reading; to change something, open it for writing, which one process at a time \
             can do",
        );
        Self::open_to_read(disk, options, &why)
    }

    /// Opens the database on a disk only for reading. `why` refuses what would change it.
    fn open_to_read(disk: Arc<dyn Disk>, options: DbOptions, why: &Error) -> Result<Self> {
        options.check()?;
        let io: Arc<dyn ObjectIo> = Arc::new(LocalIo::open_read_only(Arc::clone(&disk)));
        let manifest = (ManifestLog::unread(Arc::clone(&io)), Reached::default());
        // A reader writes nothing that could fail.
        let commits = CommitQueue::new(Seq(0), Failure::default(), 0);
        let engine = Arc::new(Engine::new(io, options, manifest, commits));
        let follower = Follower::new(disk, why.clone());
        follower.catch_up(&engine)?;
        Ok(Self::read_only(engine, follower))
    }

    /// Shows what was written since a database that was opened only for reading was opened or refreshed last, and says whether there
    /// was anything. Snapshots that were taken before stay as they are. A database that is written from here is always as it is now.
    ///
    /// It reads the log behind the manifest and the sensors of all tables anew, and holds the rows of that log twice meanwhile; the log may
    /// have twice the memory of its writer. Segments that are still there are not opened again.
    ///
    /// # Errors
    /// As [`Db::open_read_only`], and `Conflict` when the folder was moved, or replaced by another database or a copy of this one that went
    /// another way; what was shown before is shown still.
    pub fn refresh(&self) -> Result<bool> {
        self.follower().map_or(Ok(false), |follower| follower.catch_up(self.engine()))
    }
}
