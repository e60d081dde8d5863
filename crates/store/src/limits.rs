use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidefall_types::{Error, Result};

/// Lets this process hold as many files open as it may allow itself: it usually starts with 1,024, and each connection
/// takes one as each object does that is read. For programs that serve; a library leaves the limits of its process alone.
///
/// # Errors
/// `Io` when the system does not take the limit that it has named; the process goes on with what it had.
pub fn allow_more_files() -> Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .map_err(|error| Error::io("raising the limit of open files", &io::Error::from(error)))
}

/// How many files this process may hold open; none when there is no limit.
pub(super) fn files_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}
