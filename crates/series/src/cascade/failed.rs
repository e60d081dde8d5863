//! Objects that cannot be read keep none but themselves from moving.

use std::sync::Arc;

use tidefall_ground::options::CascadeReport;
use tidefall_types::{Error, ErrorKind, Result, caught};

use super::order::{parts_around, parts_by, writes_between};
use crate::read::LiveObject;
use crate::table::Table;

/// What steps have come to of which each is taken whatever became of those before it.
#[derive(Debug, Default)]
pub struct Outcome {
    report: CascadeReport,
    failure: Option<Error>,
    failures: u64,
}

/// What steps have come to up to a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct SoFar {
    /// Bytes that they have written.
    pub(super) bytes: u64,
    /// How many have failed.
    pub(super) failures: u64,
}

impl Outcome {
    /// Notes how a step ended.
    ///
    /// # Errors
    /// The first of all errors, when this is one that no other step would get past: the disk is full, or writes have ended.
    pub(crate) fn note(&mut self, done: Result<CascadeReport>) -> Result<()> {
        match done {
            Ok(done) => self.report += done,
            Err(error) => {
                self.failures += 1;
                let is_of_all = matches!(error.kind(), ErrorKind::Full | ErrorKind::Closed);
                let first = self.failure.get_or_insert(error);
                if is_of_all {
                    return Err(first.clone());
                }
            }
        }
        Ok(())
    }

    /// Notes whether the next step may begin.
    ///
    /// # Errors
    /// As [`Outcome::note`].
    pub(crate) fn check(&mut self, done: Result<()>) -> Result<()> {
        self.note(done.map(|()| CascadeReport::default()))
    }

    /// How many steps were taken.
    pub(super) fn steps(&self) -> u64 {
        self.report.steps
    }

    /// What they have come to up to now.
    pub(super) fn so_far(&self) -> SoFar {
        SoFar { bytes: self.report.bytes, failures: self.failures }
    }

    /// What all steps have come to.
    ///
    /// # Errors
    /// The first error.
    pub(crate) fn end(self) -> Result<CascadeReport> {
        self.failure.map_or(Ok(self.report), Err)
    }
}

/// Begins another look at what is due.
pub fn look_again(table: &Table) {
    table.failed.forget_passing();
}

/// Has a group of objects written anew if that is wanted: as a whole, or the parts of it that may become one around what cannot be read and around
/// what was written between them. Nothing while somebody waits for all such steps to end.
pub(super) fn write_group(
    table: &Table,
    group: &[Arc<LiveObject>],
    outcome: &mut Outcome,
    is_wanted: &dyn Fn(&[Arc<LiveObject>]) -> bool,
    write: &dyn Fn(&[Arc<LiveObject>]) -> Result<CascadeReport>,
) -> Result<()> {
    let mut groups = vec![group.to_vec()];
    while let Some(group) = groups.pop() {
        if !is_wanted(&group) {
            continue;
        }
        let failed = table.failed.among(&table.version().objects);
        let mut readable = Vec::with_capacity(group.len());
        for object in group {
            match table.failed.error(&object) {
                Some(error) => outcome.note(Err(error))?,
                None => readable.push(object),
            }
        }
        for part in parts_around(readable, &failed) {
            if !is_wanted(&part) {
                continue;
            }
            if table.is_waited_for() {
                return Ok(());
            }
            // Others may be laying it together already.
            let Some(_claim) = table.claim(&part) else { continue };
            let between = writes_between(&part, table);
            if !between.is_empty() {
                let parts = parts_by(part, &between);
                if parts.len() > 1 {
                    groups.extend(parts);
                }
                continue;
            }
            let written = caught(|| write(&part));
            let is_found = written.as_ref().is_err_and(|error| table.failed.note(&part, error));
            outcome.note(written)?;
            if is_found {
                // Each time without one more of them.
                groups.push(part);
            }
        }
    }
    Ok(())
}

/// Has an object written anew, if it can be read as far as is known. Nothing if somebody else has it.
pub(super) fn write_alone(
    table: &Table,
    object: &Arc<LiveObject>,
    write: impl FnOnce() -> Result<CascadeReport>,
) -> Result<Option<CascadeReport>> {
    if let Some(error) = table.failed.error(object) {
        return Err(error);
    }
    let Some(_claim) = table.claim(std::slice::from_ref(object)) else {
        return Ok(None);
    };
    let written = caught(write);
    if let Err(error) = &written {
        table.failed.note(std::slice::from_ref(object), error);
    }
    written.map(Some)
}
