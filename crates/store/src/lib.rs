//! Bytes on disk: objects that are written once, and the files below them.
//!
//! Two layers, so that faults and power loss can be tried out beneath the real code (`tidefall-simulation`):
//!
//! 1. [`Disk`] is what an operating system offers: files, links, directories, fsync. [`LocalDisk`]
//!    is the real one, [`GuardedDisk`] takes no more writes after a failed fsync. The log writes to
//!    it directly.
//! 2. [`ObjectIo`] is what the rest of the engine uses: objects that appear whole and durable under
//!    a new name or not at all. [`LocalIo`] builds them on a [`Disk`].
//!
//!    On stores where a read takes long, [`ReadAhead`] makes those that are announced side by side.
//!
//! Names are relative to the directory of the database, with `/` between their parts; all of them
//! are made in [`names`].

mod aside;
mod disk;
mod guard;
mod handles;
mod limits;
mod local_disk;
mod local_io;
mod lock;
pub mod names;
mod object;
mod read_ahead;
mod readers;

pub use aside::{ADVICE, copy_aside, keep_aside};
pub use disk::{Disk, DiskEntry, DiskFile};
pub use guard::final_error;
pub use guard::{GuardedDisk, SyncFailure};
pub use limits::allow_more_files;
pub use local_disk::{LocalDisk, cut_short, exists};
pub use local_io::LocalIo;
pub use lock::DirLock;
pub use object::{ObjectIo, ObjectWriter};
pub use object::{check_size, of_needed_object};
pub use read_ahead::ReadAhead;
pub use readers::{KeptOut, ReadLock, Readers};
