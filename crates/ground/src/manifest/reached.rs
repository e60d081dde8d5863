//! How far the manifest had come, said outside of it: a manifest that has lost its newest files looks like one that
//! never had them, and what it does not name would count as left behind by a crash.
//!
//! 1. Once a commit that names new objects is durable, an empty file is made in `reached/`, durably, whose name has the
//!    version and the number that the next object gets; earlier files go. Likewise when the database closes in order.
//! 2. A manifest that ends before the version of the newest such file has lost something: it is not opened.
//! 3. One that gives the next object that number knows all objects that any commit ever named: others may be deleted.
//! 4. Of any other nobody knows whether a commit behind it is lost, as the process or the power may have gone before
//!    its file was made: objects that it does not name are kept aside.

use tidefall_store::names::{self, Mark};
use tidefall_store::{ADVICE, ObjectIo};
use tidefall_types::{Error, ErrorKind, Result};

use super::State;
use super::log::ManifestLog;

impl ManifestLog<State> {
    /// How far it has come.
    pub fn mark(&self) -> Mark {
        Mark { version: self.version(), next_object: self.state().next_object }
    }
}

/// The marks on storage.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Reached {
    marks: Vec<Mark>,
}

impl Reached {
    /// What is on storage. To be read before the manifest, which a writer may change meanwhile.
    ///
    /// # Errors
    /// `Io` when the disk fails.
    pub fn read(io: &dyn ObjectIo) -> Result<Self> {
        let found = io.list(names::REACHED_DIR)?;
        Ok(Self {
            marks: found.iter().filter_map(|(name, _)| names::parse_reached(name)).collect(),
        })
    }

    /// The newest mark, if anything is known.
    pub fn newest(&self) -> Option<Mark> {
        self.marks.iter().max().copied()
    }

    /// What a manifest has lost that ends at this version.
    pub fn loss(&self, version: u64) -> Option<String> {
        let newest = self.newest().filter(|newest| newest.version > version)?;
        Some(format!(
            "the manifest ends at version {version}, but had reached version {}: the newest files in {} are missing",
            newest.version,
            names::MANIFEST_DIR,
        ))
    }

    /// Checks that a manifest that ends at this version has not lost its newest files.
    ///
    /// # Errors
    /// `Corrupt` when it has.
    pub fn check(&self, version: u64) -> Result<()> {
        match self.loss(version) {
            None => Ok(()),
            Some(loss) => Err(Error::corrupt(format!("{loss}; nothing was changed; {ADVICE}"))),
        }
    }

    /// Whether this manifest names all objects that any commit ever named and that are still needed.
    pub fn knows_all_objects(&self, mark: Mark) -> bool {
        self.newest().is_some_and(|newest| newest.next_object == mark.next_object)
    }

    /// Says that the manifest has come as far as `mark`, and no further.
    ///
    /// # Errors
    /// `Io` and `Full` from the disk; what was said before still is.
    pub fn put(&mut self, io: &dyn ObjectIo, mark: Mark) -> Result<()> {
        if !self.marks.contains(&mark) {
            match io.put_new(&names::reached(mark), &[]) {
                // An earlier try may have made it and failed behind that.
                Err(error) if error.kind() != ErrorKind::Conflict => return Err(error),
                _ => self.marks.push(mark),
            }
        }
        let others: Vec<Mark> = self.marks.extract_if(.., |other| *other != mark).collect();
        others.iter().try_for_each(|other| io.delete(&names::reached(*other)))
    }
}
