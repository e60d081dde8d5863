//! A commit in a store that may fail for a moment: whether it is there is found out.
//!
//! A put that failed may have done its work, or may do it still, while it is on its way. So only the same bytes are put again: whichever of the tries is the
//! first to arrive, the others find the name taken. What lies there is then ours, or that of another writer, which is the end of this one.

use tidefall_store::{ObjectIo, exists, final_error};
use tidefall_types::{Error, ErrorKind, Result};

use crate::tries::pauses;

/// As [`ObjectIo::put_new`], again and again where an error may pass, until it is known whether the object is there. Nobody else can commit meanwhile: a
/// store that is away for longer than all tries take ends writes.
///
/// # Errors
/// As [`ObjectIo::put_new`]; after an `Io` nobody knows whether the object exists.
pub(super) fn put_for_certain(io: &dyn ObjectIo, name: &str, parts: &[&[u8]]) -> Result<()> {
    let mut pauses = pauses();
    let mut outcome = io.put_new(name, parts);
    while let Some(error) = unclear(io, &outcome) {
        tracing::warn!(%error, name, "a commit is looked for, and tried again");
        match io.read_all(name) {
            Ok(found) if found == parts.concat() => return Ok(()),
            Ok(_) => return Err(exists(name)),
            Err(_) => {}
        }
        let Some(pause) = pauses.next() else { break };
        tidefall_sync::thread::sleep(pause);
        // An earlier try may arrive all the same.
        outcome = io.put_new(name, parts).map_err(final_error);
    }
    outcome
}

/// An error behind which it is not known whether the object is there, and is this one.
fn unclear<'a>(io: &dyn ObjectIo, outcome: &'a Result<()>) -> Option<&'a Error> {
    let is_unclear = |error: &&Error| matches!(error.kind(), ErrorKind::Io | ErrorKind::Conflict);
    outcome.as_ref().err().filter(is_unclear).filter(|_| io.recovers())
}
