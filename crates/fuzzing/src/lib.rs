//! What fuzzers do: each function takes arbitrary bytes for something stored, reads all of it, and
//! checks what it may assume of the answer. A panic is a finding.
//!
//! The targets in `fuzz/` call these functions for as long as they are let, the tests with some
//! thousand inputs. The first byte of an input says how the others are taken; so one input in two or
//! more reaches what lies behind the checksums.

mod checksums;
mod forge;
mod forged;
mod log;
mod objects;
mod records;
mod segments;

use tidefall_types::{Error, ErrorKind};

pub use forged::forged;
pub use log::{manifest, wal};
pub use objects::{segment, sensors};
pub use records::{record, record_seeds};
pub use segments::records;

/// A function that takes arbitrary bytes.
pub type Target = fn(&[u8]);

/// All of them, with their names.
pub const TARGETS: [(&str, Target); 7] = [
    ("forged", forged),
    ("manifest", manifest),
    ("record", record),
    ("records", records),
    ("segment", segment),
    ("sensors", sensors),
    ("wal", wal),
];

/// Bytes that make no sense are damage, or more than is allowed; nothing else is wrong with them.
fn check_error(error: &Error) {
    let kinds = [ErrorKind::Corrupt, ErrorKind::Unsupported, ErrorKind::Limit];
    assert!(kinds.contains(&error.kind()), "{:?}: {error}", error.kind());
}
