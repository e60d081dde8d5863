//! A commit in a store that may fail for a moment: whether it is there is found out.
//!
//! A put that failed may have done its work, or may do it still, while it is on its way. So only the same bytes are put again: whichever of the tries is the
//! first to arrive, the others find the name taken. What lies there is then ours, or that of another writer, which is the end of this one.

use std::time::Duration;

use tidefall_store::{ObjectIo, exists, final_error};
use tidefall_types::{Error, ErrorKind, Result};

/// How often a commit is put. With the pauses between, that is 13 s beside what the tries take, for which nobody else can commit: a store that is
/// away for longer ends writes.
const TRIES_MAX: u32 = 8;

/// The pause behind the first try; each one is twice as long as the one before. Tests have less.
const PAUSE: Duration = Duration::from_millis(if cfg!(debug_assertions) { 5 } else { 100 });

/// As [`ObjectIo::put_new`], again and again where an error may pass, until it is known whether the object is there.
///
/// # Errors
/// As [`ObjectIo::put_new`]; after an `Io` nobody knows whether the object exists.
pub(super) fn put_for_certain(io: &dyn ObjectIo, name: &str, parts: &[&[u8]]) -> Result<()> {
    let mut pause = PAUSE;
    let mut outcome = io.put_new(name, parts);
    for tries in 1.. {
        let Some(error) = unclear(io, &outcome) else { break };
        tracing::warn!(%error, name, "a commit is looked for, and tried again");
        match io.read_all(name) {
            Ok(found) if found == parts.concat() => return Ok(()),
            Ok(_) => return Err(exists(name)),
            Err(_) if tries == TRIES_MAX => break,
            Err(_) => {}
        }
        tidefall_sync::thread::sleep(pause);
        pause *= 2;
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
