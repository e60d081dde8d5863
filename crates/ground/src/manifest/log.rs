//! The manifest as numbered objects: deltas, each created only if absent, and checkpoints.
//!
//! 1. Version `n` is the state after deltas `1..=n`. A commit creates delta `n + 1`; of two writers
//!    that try, one fails. So a commit costs what it changes, not what is stored.
//! 2. Every [`CHECKPOINT_DELTAS`] commits the whole state is written too, beside the delta of the
//!    same version, so that opening reads a bounded number of objects.
//! 3. Opening lists the objects, takes the newest checkpoint and applies the deltas behind it. When a
//!    checkpoint is damaged, an older one with all deltas behind it gives the same state.
//!
//! `object.rs` says how an object is laid out.
//!
//! Two folders may have gone different ways from one version on, or be of two databases: a reader whose folder was replaced must see
//! that. So each open for writing draws a number by chance, the *writer* (0 in format 1). It stands in the heads of what that
//! open adds, so that deltas of two histories differ in their checksums, and the first edit of its first commit
//! puts it into the state: of a version whose delta was deleted the state still says who made it.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidefall_store::ObjectIo;
use tidefall_store::names;
use tidefall_sync::Arc;
use tidefall_types::{Error, ErrorKind, Result};

use super::certain::put_for_certain;
use super::object::{Kind, body_of, checksum_in, header};
use crate::drawn::draw;

/// Deltas between two checkpoints: with fewer, checkpoints cost more than the commits; with more,
/// opening reads more objects.
pub const CHECKPOINT_DELTAS: u64 = 64;

/// How often a reader starts again because the objects it had listed were deleted by the writer.
const LOAD_TRIES: usize = 5;

/// Writers that a state remembers beside the first of all.
const WRITERS_MAX: usize = 256;

/// Who has made the versions from one on, up to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    /// The number that it has drawn.
    pub number: u32,
    /// The first version that it made.
    pub from_version: u64,
    /// The number that its log had when it began, if that lies apart from what is here; else 0.
    #[serde(default, skip_serializing_if = "is_none")]
    pub log: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
fn is_none(log: &u32) -> bool {
    *log == 0
}

/// The first writer of a manifest, which tells databases apart, and the last ones, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writers(Vec<Writer>);

impl Writers {
    /// Adds the one that goes on from here.
    pub fn add(&mut self, writer: Writer) {
        self.0.push(writer);
        if self.0.len() > 1 + WRITERS_MAX {
            self.0.remove(1);
        }
    }

    /// The number of the log of the last one, if that lies apart; else 0.
    pub fn last_log(&self) -> u32 {
        self.0.last().map_or(0, |writer| writer.log)
    }

    /// Who made a version, if that is known.
    fn of(&self, version: u64) -> Option<u32> {
        let behind = self.0.partition_point(|writer| writer.from_version <= version);
        // Those that are forgotten came behind the first.
        let is_known = behind > 1 || self.0.len() <= WRITERS_MAX;
        self.0[..behind].last().filter(|_| is_known).map(|writer| writer.number)
    }

    /// Whether these are of the history that had come to a version with those, as far as is known.
    fn go_on_from(&self, earlier: &Self, version: u64) -> bool {
        match (self.of(version), earlier.of(version)) {
            (Some(now), Some(then)) => now == then,
            // One that began with format 1 has no first writer before its next one.
            _ => earlier.0.is_empty() || self.0.first() == earlier.0.first(),
        }
    }
}

/// A state that is changed by edits.
pub trait LogState: Serialize + DeserializeOwned + Clone + Default {
    /// A change. The same edits in the same order always give the same state.
    type Edit: Serialize + DeserializeOwned + Clone;

    /// The edit that adds a writer.
    fn begun_by(writer: Writer) -> Self::Edit;

    /// The writers that were added.
    fn writers(&self) -> &Writers;

    /// Makes a change.
    fn apply(&mut self, edit: &Self::Edit);
}

/// The log of a state, for its one writer or for a reader that follows it.
#[derive(Debug, Clone)]
pub struct ManifestLog<S> {
    io: Arc<dyn ObjectIo>,
    state: Arc<S>,
    version: u64,
    checkpoint: u64,
    failed: bool,
    writer: u32,
    /// The number of its writer's log, if that lies apart; else 0.
    log: u32,
    /// Of a reader: the checksum of the delta of this version, if that is there.
    read: Option<u32>,
}

impl<S: LogState> ManifestLog<S> {
    /// The latest state on `io`; the default state, at version 0, when there is none.
    ///
    /// # Errors
    /// `Corrupt`, naming the object, when one is damaged or missing that the state needs.
    pub fn open(io: Arc<dyn ObjectIo>) -> Result<Self> {
        let loaded = load(&*io)?;
        Ok(Self {
            io,
            state: Arc::new(loaded.state),
            version: loaded.version,
            checkpoint: loaded.checkpoint,
            failed: false,
            writer: draw(),
            log: 0,
            read: None,
        })
    }

    /// The default state, at version 0: what is on `io` is not read before [`ManifestLog::refresh`].
    pub fn unread(io: Arc<dyn ObjectIo>) -> Self {
        let state = Arc::new(S::default());
        Self { io, state, version: 0, checkpoint: 0, failed: false, writer: 0, log: 0, read: None }
    }

    /// The state. Whoever holds it sees no later changes.
    pub fn state(&self) -> &Arc<S> {
        &self.state
    }

    /// The number of this writer; 0 of a reader.
    pub fn writer(&self) -> u32 {
        self.writer
    }

    /// The number that its writer's log had when that began, if it lies apart; else 0.
    pub fn log(&self) -> u32 {
        self.log
    }

    /// The number of commits that led to the state.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether a commit would be tried.
    ///
    /// # Errors
    /// `Closed` after one that failed.
    pub fn check_open(&self) -> Result<()> {
        if self.failed {
            return Err(Error::closed(
                "the manifest takes no more changes, because one failed; open the database again",
            ));
        }
        Ok(())
    }

    /// Makes `edits` durable, all or none, applies them, and returns the new version.
    ///
    /// # Errors
    /// `Full` when the disk is full: the edits are not in the manifest then, and may be committed when there is
    /// room again. `Conflict` when another process has written this version, `Io` when the disk fails, or a store for longer than
    /// a moment. Nobody knows then whether the edits are in the manifest: every further commit is `Closed`.
    pub fn commit(&mut self, edits: &[S::Edit]) -> Result<u64> {
        self.check_open()?;
        if edits.is_empty() {
            return Ok(self.version);
        }
        self.put_edits(edits)
    }

    /// Commits that this writer has begun, whose log has a number if it lies apart, else 0, and `edits`. That ends all earlier writers: their
    /// next version is taken.
    ///
    /// # Errors
    /// As [`ManifestLog::commit`].
    pub fn begin(&mut self, log: u32, edits: &[S::Edit]) -> Result<()> {
        self.check_open()?;
        self.log = log;
        self.put_edits(edits).map(drop)
    }

    fn put_edits(&mut self, edits: &[S::Edit]) -> Result<u64> {
        let version = self.version + 1;
        let mut begun = Vec::new();
        let edits = match self.state.writers().of(version) {
            Some(number) if number == self.writer => edits,
            _ => {
                let (number, log) = (self.writer, self.log);
                let writer = Writer { number, from_version: version, log };
                begun.push(S::begun_by(writer));
                begun.extend_from_slice(edits);
                &begun
            }
        };
        let body = encode(edits)?;
        debug_assert!(
            serde_json::from_slice::<Vec<S::Edit>>(&body).is_ok(),
            "edits that cannot be read again"
        );
        // Until it is done: a panic in the middle must not be built on.
        self.failed = true;
        if let Err(error) = self.put(Kind::Delta, version, &body) {
            self.failed = error.kind() != ErrorKind::Full;
            return Err(match error.kind() {
                ErrorKind::Conflict => error.context(format!(
                    "another process writes this database and has made version {version} of its \
                     manifest; stop one of them and open the database again"
                )),
                _ => error.context("changing the manifest"),
            });
        }
        let state = Arc::make_mut(&mut self.state);
        for edit in edits {
            state.apply(edit);
        }
        self.version = version;
        self.failed = false;
        if version - self.checkpoint >= CHECKPOINT_DELTAS
            && let Err(error) = self.write_checkpoint()
        {
            // The deltas say the same; the next commit tries again.
            tracing::warn!(%error, version, "the manifest could not write a checkpoint");
        }
        Ok(version)
    }

    /// Takes in what the writer has committed since; whether there was anything.
    ///
    /// # Errors
    /// As [`ManifestLog::open`], and `Conflict` when what lies there does not go on from what was read before; the state then stays
    /// as it was.
    pub fn refresh(&mut self) -> Result<bool> {
        let (before, latest) = (self.version, Listing::read(&*self.io)?.latest());
        let now = match self.read {
            Some(_) => checksum_of_delta(&*self.io, before)?,
            None => None,
        };
        let is_same = before == 0 || (now.is_some() && now == self.read);
        let is_another = now.is_some() && now != self.read;
        if is_another || (latest < before && !is_same) {
            return Err(replaced());
        }
        if latest <= before {
            return Ok(false);
        }
        let is_near = latest - before <= CHECKPOINT_DELTAS;
        let following = (is_near && is_same)
            .then(|| follow(&*self.io, S::clone(&self.state), before, latest))
            .and_then(Result::ok);
        if let Some(state) = following {
            self.state = Arc::new(state);
            self.version = latest;
        } else {
            // The writer is far ahead: a checkpoint is nearer, and what was next may be deleted already.
            let loaded = load::<S>(&*self.io)?;
            let goes_on = loaded.state.writers().go_on_from(self.state.writers(), before);
            if loaded.version < before || !(is_same || goes_on) {
                return Err(replaced());
            }
            self.state = Arc::new(loaded.state);
            self.version = loaded.version;
            self.checkpoint = loaded.checkpoint;
        }
        // It may be damaged: a checkpoint says the same.
        self.read = checksum_of_delta(&*self.io, self.version).ok().flatten();
        Ok(self.version > before)
    }

    /// Deletes objects that are not needed to read any of the last `versions` versions. Returns
    /// the number deleted.
    ///
    /// Whatever part of it a crash leaves done, and in whatever order the disk makes it durable, each
    /// checkpoint that is left has all the deltas behind it: deltas only go once the checkpoints
    /// before them went at an earlier time.
    ///
    /// # Errors
    /// `Corrupt` when the checkpoint is damaged that would take their place, `Io` when the disk
    /// fails.
    pub fn gc(&self, versions: u64) -> Result<usize> {
        let Listing { deltas, checkpoints } = Listing::read(&*self.io)?;
        let oldest = (self.version + 1).saturating_sub(versions.max(1));
        let Some(&base) = checkpoints.range(..=oldest).next_back() else { return Ok(0) };
        let first = checkpoints.first().copied().unwrap_or(base);
        let deltas = deltas.range(..=first).map(|&version| names::manifest_delta(version));
        let checkpoints =
            checkpoints.range(..base).map(|&version| names::manifest_checkpoint(version));
        let needless: Vec<String> = deltas.chain(checkpoints).collect();
        if needless.is_empty() {
            return Ok(0);
        }
        // Its older likenesses go only when it can be read.
        read_checkpoint::<S>(&*self.io, base)?;
        needless.iter().try_for_each(|name| self.io.delete(name))?;
        Ok(needless.len())
    }

    /// Reads all objects of the manifest, also those that the state does not need any more because
    /// a checkpoint stands for them. Returns their number, and what is wrong.
    ///
    /// # Errors
    /// `Io` when they cannot be listed.
    pub fn verify(&self) -> Result<(u64, Vec<Error>)> {
        let io = &*self.io;
        let Listing { deltas, checkpoints } = Listing::read(io)?;
        let base = checkpoints.first().copied().unwrap_or(0);
        let missing = (base + 1..=self.version).filter(|version| !deltas.contains(version));
        let damages = missing
            .map(gone)
            .chain(deltas.iter().filter_map(|&version| read_delta::<S>(io, version).err()))
            .chain(
                checkpoints.iter().filter_map(|&version| read_checkpoint::<S>(io, version).err()),
            )
            .collect();
        Ok(((deltas.len() + checkpoints.len()) as u64, damages))
    }

    /// Writes a checkpoint of this version if there is none. To be called when the database closes:
    /// the state then stands on storage twice, and the next open reads one object.
    ///
    /// # Errors
    /// `Io` when the disk fails; nothing is lost then.
    pub fn checkpoint(&mut self) -> Result<()> {
        if self.failed || self.checkpoint == self.version {
            return Ok(());
        }
        self.write_checkpoint()
    }

    fn write_checkpoint(&mut self) -> Result<()> {
        let body = encode(&*self.state)?;
        match self.put(Kind::Checkpoint, self.version, &body) {
            Err(error) if error.kind() == ErrorKind::Conflict => self.mend_checkpoint(&body)?,
            written => written?,
        }
        self.checkpoint = self.version;
        Ok(())
    }

    /// Replaces the checkpoint of this version if it is damaged; the state was read without it then.
    fn mend_checkpoint(&self, body: &[u8]) -> Result<()> {
        match read_checkpoint::<S>(&*self.io, self.version) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                tracing::warn!(%error, "a damaged checkpoint of the manifest is written anew");
                self.io.delete(&names::manifest_checkpoint(self.version))?;
                self.put(Kind::Checkpoint, self.version, body)
            }
            whole => whole.map(drop),
        }
    }

    fn put(&self, kind: Kind, version: u64, body: &[u8]) -> Result<()> {
        let header = header(kind, self.writer, version, body);
        let (io, object) = (&*self.io, [&header[..], body]);
        match kind {
            Kind::Delta => put_for_certain(io, &names::manifest_delta(version), &object),
            Kind::Checkpoint => io.put_new(&names::manifest_checkpoint(version), &object),
        }
    }
}

/// The versions of which there are objects.
#[derive(Debug, Default, PartialEq, Eq)]
struct Listing {
    deltas: BTreeSet<u64>,
    checkpoints: BTreeSet<u64>,
}

impl Listing {
    fn read(io: &dyn ObjectIo) -> Result<Self> {
        let mut listing = Self::default();
        for (name, _) in io.list(names::MANIFEST_DIR)? {
            if let Some(version) = names::parse_manifest_delta(&name) {
                listing.deltas.insert(version);
            } else if let Some(version) = names::parse_manifest_checkpoint(&name) {
                listing.checkpoints.insert(version);
            }
        }
        Ok(listing)
    }

    fn latest(&self) -> u64 {
        let last = |versions: &BTreeSet<u64>| versions.last().copied().unwrap_or(0);
        last(&self.deltas).max(last(&self.checkpoints))
    }
}

struct Loaded<S> {
    state: S,
    version: u64,
    checkpoint: u64,
}

fn load<S: LogState>(io: &dyn ObjectIo) -> Result<Loaded<S>> {
    let mut listing = Listing::read(io)?;
    for _ in 1..LOAD_TRIES {
        let loaded = load_listed(io, &listing);
        if loaded.is_ok() {
            return loaded;
        }
        // What was listed may have been deleted meanwhile.
        let now = Listing::read(io)?;
        if now == listing {
            return loaded;
        }
        listing = now;
    }
    load_listed(io, &listing)
}

fn load_listed<S: LogState>(io: &dyn ObjectIo, listing: &Listing) -> Result<Loaded<S>> {
    let latest = listing.latest();
    let mut first_error = None;
    // Version 0 needs no object.
    for &base in listing.checkpoints.iter().rev().chain(&[0]) {
        let state = match base {
            0 => S::default(),
            base => match read_checkpoint(io, base) {
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    tracing::warn!(%error, "trying an older checkpoint of the manifest");
                    first_error.get_or_insert(error);
                    continue;
                }
                state => state?,
            },
        };
        return match follow(io, state, base, latest) {
            Ok(state) => Ok(Loaded { state, version: latest, checkpoint: base }),
            // An older checkpoint needs the same deltas.
            Err(error) => Err(first_error.unwrap_or(error)),
        };
    }
    Err(first_error.unwrap_or_else(|| Error::corrupt("the manifest cannot be read")))
}

/// The state at version `latest`, from that at `version`. Deltas are asked for by their names: a listing that was
/// made while the writer went on may lack some that are there.
fn follow<S: LogState>(io: &dyn ObjectIo, mut state: S, version: u64, latest: u64) -> Result<S> {
    for version in version + 1..=latest {
        let edits = read_delta::<S>(io, version).map_err(|error| match error.kind() {
            ErrorKind::NotFound => gone(version),
            _ => error,
        })?;
        edits.iter().for_each(|edit| state.apply(edit));
    }
    Ok(state)
}

fn gone(version: u64) -> Error {
    Error::corrupt(format!(
        "{} is missing, and with it a part of what the database holds; restore it from a copy",
        names::manifest_delta(version)
    ))
}

/// What a reader is told that has found something else than it had read.
fn replaced() -> Error {
    Error::conflict(
        "the database that was opened is not there any more: its folder was moved, or replaced by a copy or another \
         one; open it again",
    )
}

/// The checksum in the head of a delta, if it is there.
fn checksum_of_delta(io: &dyn ObjectIo, version: u64) -> Result<Option<u32>> {
    match io.read_all(&names::manifest_delta(version)) {
        Ok(bytes) => Ok(checksum_in(&bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_delta<S: LogState>(io: &dyn ObjectIo, version: u64) -> Result<Vec<S::Edit>> {
    read(io, &names::manifest_delta(version), Kind::Delta, version)
}

fn read_checkpoint<S: LogState>(io: &dyn ObjectIo, version: u64) -> Result<S> {
    read(io, &names::manifest_checkpoint(version), Kind::Checkpoint, version)
}

fn read<T: DeserializeOwned>(io: &dyn ObjectIo, name: &str, kind: Kind, version: u64) -> Result<T> {
    let bytes = io.read_all(name)?;
    let body = body_of(&bytes, kind, version).map_err(|error| error.context(name))?;
    serde_json::from_slice(body)
        .map_err(|error| Error::corrupt(format!("{name}: its text cannot be read: {error}")))
}

fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value)
        .map_err(|error| Error::invalid(format!("the manifest cannot hold this: {error}")))
}

#[cfg(test)]
mod tests;
