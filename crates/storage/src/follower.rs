//! A reader goes along with the process that writes the database.
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
//! 4. Read the sensors and the records. The writer sees that the database is read (`store/src/readers.rs`), so the objects that the
//!    manifest names stay for a minute after they were replaced, and are there unless that takes longer. Records that were not durable yet may go: a writer that
//!    finds the disk full takes them back. So an error is only believed when it comes twice from the same state.

use std::collections::HashSet;

use tidefall_ground::manifest::State;
use tidefall_ground::manifest::log::ManifestLog;
use tidefall_ground::manifest::reached::Reached;
use tidefall_ground::obsolete::Watched;
use tidefall_ground::wal::{self, LogTail, Replay};
use tidefall_store::Disk;
use tidefall_sync::{Arc, Mutex, PoisonError, Weak};
use tidefall_types::{Error, ObjectId, Result, Seq};

use crate::begin::check_together;
use crate::engine::Engine;
use crate::recovery::{check_new, load_tables, replay, seq_behind};
use crate::table::Table;

/// How often manifest and log are looked for that belong together. It fails when the log is cut between two looks at
/// directories, which a writer that does nothing else may do for half of them.
const PAIR_TRIES: usize = 64;

/// How often a state is read of which objects are gone before they are read. It takes as long as they stay.
const LOAD_TRIES: usize = 3;

/// How often an error is tried again that does not come twice from the same state. A writer on a full disk takes back
/// frames of the log that a reader has seen, once for each group of writes that is refused.
const ERROR_TRIES: usize = 16;

/// How a database that is opened only for reading goes along with whoever writes it.
#[derive(Debug)]
pub(crate) struct Follower {
    /// Refuses what would change it.
    why: Error,
    disk: Arc<dyn Disk>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// What is shown.
    now: Option<Position>,
    /// What was shown and is replaced. Snapshots may still read it, and its file has to stay open for them: its name may be gone.
    gone: Vec<Replaced>,
}

/// An object that is not shown any more.
#[derive(Debug)]
struct Replaced {
    id: ObjectId,
    name: String,
    /// Whoever still reads it.
    reader: Weak<Watched>,
}

/// What tells what a database shows from what it showed before: the version of its manifest, and the end of its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    version: u64,
    tail: Option<LogTail>,
}

impl Follower {
    pub(crate) fn new(disk: Arc<dyn Disk>, why: Error) -> Self {
        Self { why, disk, seen: Mutex::default() }
    }

    pub(crate) fn why(&self) -> &Error {
        &self.why
    }

    /// Shows the database as it is now, unless that is shown already, all tables in one step.
    ///
    /// # Errors
    /// `Limit` when it changes too fast, and those of an open; what was shown is shown still.
    pub(crate) fn catch_up(&self, engine: &Engine) -> Result<bool> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // Before anything is read. The file that says so may have come, or another in its place, since the last time.
        self.disk.begin_to_read();
        seen.let_go(engine);
        let (mut loads, mut errors) = (0, 0);
        let mut last_error = None;
        loop {
            let (manifest, records) = self.now(engine)?;
            let now = Position { version: manifest.version(), tail: records.tail() };
            if seen.now == Some(now) && !is_mended(engine, manifest.state()) {
                return Ok(false);
            }
            match load(engine, &manifest, records) {
                Ok((tables, applied)) => {
                    loads += 1;
                    let newest = || {
                        let mut newest = manifest.clone();
                        newest.refresh().map(|_| newest.version())
                    };
                    if tables.iter().all(|table| table.damage().is_none())
                        || loads >= LOAD_TRIES
                        || newest()? == now.version
                    {
                        *engine.ground.manifest() = manifest;
                        seen.now = Some(now);
                        seen.show(engine, tables);
                        engine.commits.follow(applied);
                        return Ok(true);
                    }
                }
                Err(error) => {
                    let failed = Some((now, error.clone()));
                    errors += 1;
                    if errors >= ERROR_TRIES || failed == last_error {
                        return Err(error);
                    }
                    last_error = failed;
                }
            }
        }
    }

    /// A manifest, and the log behind it, as they were at one moment.
    fn now(&self, engine: &Engine) -> Result<(ManifestLog<State>, Replay)> {
        let reached = Reached::read(&*engine.ground.io)?;
        let mut manifest = engine.ground.manifest().clone();
        manifest.refresh()?;
        if manifest.version() == 0
            && let Err(error) = check_new(&*engine.ground.io, &self.disk)
        {
            // A writer may have begun meanwhile.
            manifest.refresh()?;
            if manifest.version() == 0 {
                return Err(error);
            }
        }
        reached.check(manifest.version())?;
        let mut last_error = None;
        for _ in 0..PAIR_TRIES {
            let records = Replay::open(&self.disk, manifest.state().wal_from);
            // A writer takes the number of a log away once the manifest has another.
            let ids = wal::ids(&*self.disk)?;
            let mut newer = manifest.clone();
            newer.refresh()?;
            if newer.state().reads_log_as(manifest.state()) {
                check_together(&self.disk, newer.state(), &ids)?;
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
             {PAIR_TRIES} tries to read both; try again, or ask the process that writes it"
        )))
    }
}

impl Seen {
    /// Shows tables in place of those before.
    fn show(&mut self, engine: &Engine, tables: Vec<Table>) {
        let mut here: HashSet<*const ()> = HashSet::new();
        for table in &tables {
            here.extend(table.shown().iter().map(|(_, _, reader)| reader.as_ptr().cast()));
        }
        for table in engine.show_tables(tables) {
            let gone = table.shown().into_iter();
            let gone = gone.filter(|(_, _, reader)| !here.contains(&reader.as_ptr().cast()));
            self.gone.extend(gone.map(|(id, name, reader)| Replaced { id, name, reader }));
        }
        self.let_go(engine);
    }

    /// Gives back what is kept of objects that nobody reads any more.
    fn let_go(&mut self, engine: &Engine) {
        let unread = self.gone.extract_if(.., |gone| gone.reader.strong_count() == 0);
        engine.let_go(&unread.map(|gone| (gone.id, gone.name)).collect());
    }
}

/// Whether a table that is shown as damaged can be read: a file may have been put back.
fn is_mended(engine: &Engine, state: &State) -> bool {
    let shown = engine.tables();
    let is_whole = |table: &Table| {
        let stored = state.tables.get(&table.id());
        stored.is_some_and(|stored| Table::is_whole(&engine.kinds, stored))
    };
    let mut damaged = shown.iter().filter(|table| table.damage().is_some());
    damaged.any(is_whole)
}

/// What a manifest and the log behind it say, and the place behind all writes that are there.
fn load(
    engine: &Engine,
    manifest: &ManifestLog<State>,
    records: Replay,
) -> Result<(Vec<Table>, Seq)> {
    let state = manifest.state();
    let tables = load_tables(engine, state)?;
    let (_, behind) = replay(&tables, state, records)?;
    Ok((tables, behind.max(seq_behind(state))))
}
