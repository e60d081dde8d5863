//! One error type for the whole program, in a few kinds that each name the caller's next step.

use std::any::Any;
use std::fmt;

/// Shorthand for results with Tidefall's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The input is wrong: correct it and send it again.
    Invalid,
    /// The thing named does not exist.
    NotFound,
    /// The thing exists already, or has another type: choose another name or type.
    Conflict,
    /// Stored bytes are damaged: other data stays readable; restore this object from a copy.
    Corrupt,
    /// The disk or the network failed: retry when it is well again.
    Io,
    /// The disk is full, or the system has no more open files or memory for this process: make room as the message
    /// says and try again; nothing is broken, and nothing needs a restart.
    Full,
    /// A limit of memory, time or size was reached: ask for less, or raise the limit.
    Limit,
    /// Another process writes this database: stop it, or open read-only.
    Locked,
    /// The database refuses writes after a failed fsync, or is closed: open it again.
    Closed,
    /// The request is understood, but this version cannot do it.
    Unsupported,
    /// A fault of Tidefall itself: report it, with what was asked.
    Internal,
}

impl ErrorKind {
    /// The kind as one lower-case word, as it stands in messages and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::NotFound => "not found",
            Self::Conflict => "conflict",
            Self::Corrupt => "corrupt",
            Self::Io => "io",
            Self::Full => "full",
            Self::Limit => "limit",
            Self::Locked => "locked",
            Self::Closed => "closed",
            Self::Unsupported => "unsupported",
            Self::Internal => "internal",
        }
    }
}

/// An error with its kind and a sentence that says what is wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    // Boxed so that `Result<T>` stays small on the hot paths that return it.
    message: Box<str>,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $kind:ident;)*) => {
        $($(#[$doc])*
        pub fn $name(message: impl Into<String>) -> Self {
            Self::new(ErrorKind::$kind, message)
        })*
    };
}

impl Error {
    /// An error of `kind` with `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into().into_boxed_str() }
    }

    constructors! {
        /// Wrong input.
        invalid => Invalid;
        /// A missing table, column, file or object.
        not_found => NotFound;
        /// A clash with what exists.
        conflict => Conflict;
        /// Damaged stored bytes.
        corrupt => Corrupt;
        /// A limit was reached.
        limit => Limit;
        /// Another writer holds the database.
        locked => Locked;
        /// The database is closed for writing.
        closed => Closed;
        /// Not available in this version.
        unsupported => Unsupported;
        /// A fault of Tidefall itself.
        internal => Internal;
    }

    /// A failure of the operating system while doing `what` (for example `writing wal/1.log`). Where something has run
    /// out the message ends with what to do about that.
    pub fn io(what: impl fmt::Display, source: &std::io::Error) -> Self {
        if let Some(advice) = advice_when_run_out(source) {
            return Self::new(ErrorKind::Full, format!("{what}: {source}; {advice} and try again"));
        }
        let kind = match source.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Io,
        };
        Self::new(kind, format!("{what}: {source}"))
    }

    /// The same message with another next step.
    #[must_use]
    pub fn with_kind(self, kind: ErrorKind) -> Self {
        Self { kind, ..self }
    }

    /// The end of work that panicked, which is a fault of Tidefall whatever was asked.
    pub fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self::internal(format!(
            "internal error: {}; this is a bug of Tidefall, please report it",
            text.unwrap_or("a panic without a text")
        ))
    }

    /// The same error with `context` in front of its message.
    #[must_use]
    pub fn context(self, context: impl fmt::Display) -> Self {
        Self::new(self.kind, format!("{context}: {}", self.message))
    }

    /// The same error, and behind its message what failed after it.
    #[must_use]
    pub fn followed_by(self, later: &Self) -> Self {
        Self::new(self.kind, format!("{}; {}", self.message, later.message))
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message without the kind.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// The number of the error of a system with too many open files, which the standard library has no name for. It is the
/// same on Linux and macOS.
const ENFILE: i32 = 23;
/// Likewise of a process with too many open files.
const EMFILE: i32 = 24;

/// What to do about an error that says that something of which there will be more later has run out.
fn advice_when_run_out(source: &std::io::Error) -> Option<&'static str> {
    use std::io::ErrorKind::{OutOfMemory, QuotaExceeded, StorageFull};

    Some(match (source.kind(), source.raw_os_error()) {
        (StorageFull | QuotaExceeded, _) => "free some space",
        (OutOfMemory, _) => "free some memory",
        (_, Some(EMFILE)) if cfg!(unix) => {
            "close what is not needed, or let the process open more files (`ulimit -n`),"
        }
        (_, Some(ENFILE)) if cfg!(unix) => {
            "close what is not needed, as the machine has too many open files,"
        }
        _ => return None,
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
