//! Which of two writes is the later one, whatever their rows have become part of.

use tidefall_storage::{CascadeRequest, Target};
use tidefall_types::{Clock, NS_PER_DAY, SystemClock};

use crate::small::{open, read, write};

/// More parts of long columns than are left as they are.
const PARTS: i64 = 8;

#[test]
fn rows_in_memory_win_against_what_is_folded_later() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let cascade = |target| db.cascade(&CascadeRequest { table: None, target }).unwrap();
    let now = SystemClock.now_ns();
    let old = now - 200 * NS_PER_DAY;
    // A long segment that reaches from the old days into today.
    write(&db, "plant", &[(old, 0), (now, 1)]);
    cascade(Target::Long);
    // Stays in memory, while old rows move that are written later.
    write(&db, "plant", &[(now, 2)]);
    for day in 1..=PARTS {
        write(&db, "plant", &[(old + day * NS_PER_DAY, 0)]);
        cascade(Target::ByAge);
        assert_eq!(read(&db, "plant").last(), Some(&(now, 2)), "after {day} parts");
    }
    cascade(Target::Long);
    assert_eq!(read(&db, "plant").last(), Some(&(now, 2)));
    assert_eq!(read(&db, "plant").len() as i64, PARTS + 2);
}
