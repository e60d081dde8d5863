//! What a database is after it was opened again.

use tidefall_storage::{CascadeRequest, TagFilter, Target};
use tidefall_types::TimeRange;

use crate::small::{open, read, write};

#[test]
fn a_delete_that_the_manifest_and_the_log_hold_hides_what_it_hid() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    write(&db, "plant", &[(1, 10), (2, 20), (3, 30)]);
    db.delete("plant", &TagFilter::All, TimeRange::new(2, 2)).unwrap();
    write(&db, "plant", &[(4, 40)]);
    // The manifest takes in all deletes with the rows of the other table; those of this one stay
    // in the log only.
    write(&db, "other", &[(1, 1)]);
    let other = CascadeRequest { table: Some("other".into()), target: Target::Long };
    db.cascade(&other).unwrap();
    let wanted = [(1, 10), (3, 30), (4, 40)];
    assert_eq!(read(&db, "plant"), wanted);
    drop(db);
    assert_eq!(read(&open(&dir), "plant"), wanted);
}
