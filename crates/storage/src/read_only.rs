//! Opening a database to read it, maybe beside the process that writes it.
//!
//! A writer moves what the log holds to objects, says so in the manifest, and cuts the log. Whoever reads the
//! manifest and then the log could thus find a part of the readings in neither. So:
//!
//! 1. Read the newest manifest.
//! 2. Open the files of the log behind it. They can be read from then on, also when they are deleted; of a log of very
//!    many files only the first ones, so that reading a later one may fail.
//! 3. Read what the manifest has become. When the log was cut meanwhile, tables have changed that its records
//!    may be of, or writes have come to objects, which records behind them may follow, start again with that.
//!    Otherwise the two say together what there was at the moment of step 2.
//! 4. Read the sensors and the records. The writer sees that the database is read (`store/readers.rs`), so the objects that the
//!    manifest names stay for a minute after they were replaced, and are there unless that takes longer. Records that were not durable yet may go: a writer that
//!    finds the disk full takes them back. So an error is only believed when it comes twice from the same state.

use std::path::Path;
use std::sync::Arc;

use tidefall_types::{Error, Result};

use crate::Db;
use crate::engine::Engine;
use crate::ingest::commit::CommitQueue;
use crate::manifest::State;
use crate::manifest::log::ManifestLog;
use crate::manifest::reached::Reached;
use crate::options::DbOptions;
use crate::recovery::{check_new, load_tables, replay, seq_behind};
use crate::store::{DirLock, Disk, LocalDisk, LocalIo, ObjectIo, SyncFailure};
use crate::wal::Replay;

/// How often manifest and log are looked for that belong together. It fails when the log is cut between two looks at
/// directories, which a writer that does nothing else may do for half of them.
const MOMENT_TRIES: usize = 64;

/// How often a state is read of which objects are gone before they are read. It takes as long as they stay.
const LOAD_TRIES: usize = 3;

/// How often an error is tried again that does not come twice from the same state. A writer on a full disk takes back
/// frames of the log that a reader has seen, once for each group of writes that is refused.
const ERROR_TRIES: usize = 16;

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
                Self::open_to_read(Arc::new(LocalDisk::to_read(dir)), options, &why)
            }
            Err(why) => Err(why),
        }
    }

    /// Opens the database in `dir` only for reading, also while another process writes it: all that
    /// was acknowledged as durable before, and maybe what came meanwhile, also when that was on its way and is refused
    /// later. It shows one moment; open it again to see what was written since. What the writer replaces stays readable for a minute.
    ///
    /// # Errors
    /// `NotFound` when there is no database, `Limit` when it changes too fast to find it at rest,
    /// and as [`Db::open`].
    pub fn open_read_only(dir: impl AsRef<Path>, options: DbOptions) -> Result<Self> {
        let dir = dir.as_ref();
        if !Self::exists(dir) {
            return Err(Error::not_found(format!("there is no database in {}", dir.display())));
        }
        Self::open_read_only_on(Arc::new(LocalDisk::to_read(dir)), options)
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
        let mut tries = 0;
        let mut last_error = None;
        loop {
            let (manifest, records) = moment(&io, &disk)?;
            let (version, tail) = (manifest.version(), records.tail());
            tries += 1;
            match load(&io, &options, manifest, records) {
                Ok(engine) => {
                    if engine.tables().iter().all(|table| table.damage.is_none())
                        || tries >= LOAD_TRIES
                        || ManifestLog::<State>::open(Arc::clone(&io))?.version() == version
                    {
                        return Ok(Self::read_only(engine, why.clone()));
                    }
                }
                Err(error) => {
                    let seen = Some((version, tail, error.clone()));
                    if tries >= ERROR_TRIES || seen == last_error {
                        return Err(error);
                    }
                    last_error = seen;
                }
            }
        }
    }
}

/// A manifest, and the log behind it, as they were at one moment.
fn moment(io: &Arc<dyn ObjectIo>, disk: &Arc<dyn Disk>) -> Result<(ManifestLog<State>, Replay)> {
    let reached = Reached::read(&**io)?;
    let mut manifest: ManifestLog<State> = ManifestLog::open(Arc::clone(io))?;
    if manifest.version() == 0
        && let Err(error) = check_new(&**io, disk)
    {
        // A writer may have begun meanwhile.
        manifest.refresh()?;
        if manifest.version() == 0 {
            return Err(error);
        }
    }
    reached.check(manifest.version())?;
    let mut last_error = None;
    for _ in 0..MOMENT_TRIES {
        let records = Replay::open(disk, manifest.state().wal_from);
        let mut newer = manifest.clone();
        newer.refresh()?;
        if newer.state().reads_log_as(manifest.state()) {
            match records {
                Ok(records) => return Ok((manifest, records)),
                // A file may be gone between being listed and being opened, but not twice.
                Err(error) if last_error.as_ref() == Some(&error) => return Err(error),
                Err(error) => last_error = Some(error),
            }
        }
        manifest = newer;
    }
    Err(Error::limit(format!(
        "the database changes too fast to be read: its writer moved readings out of the log in each of \
         {MOMENT_TRIES} tries to read both; try again, or ask the process that writes it"
    )))
}

/// What a manifest and the log behind it say.
fn load(
    io: &Arc<dyn ObjectIo>,
    options: &DbOptions,
    manifest: ManifestLog<State>,
    records: Replay,
) -> Result<Arc<Engine>> {
    let state = Arc::clone(manifest.state());
    // A reader writes nothing that could fail.
    let commits = CommitQueue::new(seq_behind(&state), SyncFailure::default());
    let engine = Arc::new(Engine::new(
        Arc::clone(io),
        options.clone(),
        (manifest, Reached::default()),
        commits,
    ));
    load_tables(&engine, &state)?;
    replay(&engine, &state, records)?;
    Ok(engine)
}
