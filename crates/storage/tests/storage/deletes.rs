//! Rows that were deleted leave the disk, and their delete is forgotten then.

use tidefall_storage::{CascadeRequest, Db, TagFilter, Target};
use tidefall_types::TimeRange;

use crate::small::{open, read, write};

fn cascade(db: &Db, target: Target) {
    db.cascade(&CascadeRequest { table: None, target }).unwrap();
}

/// Rows in objects, and deletes that may hide some.
fn stored(db: &Db) -> (u64, usize) {
    let report = db.inspect().unwrap().remove(0);
    (report.models.iter().map(|model| model.rows).sum(), report.deletes)
}

/// A thousand rows of one day of 1970 in a long segment.
fn a_segment(db: &Db) -> Vec<(i64, i64)> {
    let rows: Vec<(i64, i64)> = (0..1000).map(|i| (i * 1_000_000_000, i)).collect();
    write(db, "plant", &rows);
    cascade(db, Target::Long);
    assert_eq!(stored(db), (1000, 0));
    rows
}

#[test]
fn a_segment_alone_is_written_anew_without_what_was_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let mut rows = a_segment(&db);
    let gone = TimeRange::new(rows[10].0, rows[19].0);
    db.delete("plant", &TagFilter::All, gone).unwrap();
    rows.drain(10..20);
    cascade(&db, Target::ByAge);
    assert_eq!((read(&db, "plant"), stored(&db)), (rows.clone(), (1000, 1)));
    cascade(&db, Target::Long);
    assert_eq!((read(&db, "plant"), stored(&db)), (rows.clone(), (990, 0)));
    // What comes back afterwards is there, and so it is after another start.
    write(&db, "plant", &[(gone.first_ns, -1)]);
    rows.insert(10, (gone.first_ns, -1));
    assert_eq!(read(&db, "plant"), rows);
    drop(db);
    let db = open(&dir);
    cascade(&db, Target::Long);
    assert_eq!((read(&db, "plant"), stored(&db)), (rows, (991, 0)));
}

#[test]
fn many_deletes_take_their_rows_out_without_being_asked() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let rows = a_segment(&db);
    let kept: Vec<(i64, i64)> = rows.iter().copied().filter(|(_, value)| value % 20 != 0).collect();
    for (time_ns, _) in rows.iter().filter(|(_, value)| value % 20 == 0) {
        db.delete("plant", &TagFilter::All, TimeRange::new(*time_ns, *time_ns)).unwrap();
    }
    assert_eq!((read(&db, "plant"), stored(&db)), (kept.clone(), (1000, 50)));
    cascade(&db, Target::ByAge);
    assert_eq!((read(&db, "plant"), stored(&db)), (kept.clone(), (950, 0)));
    drop(db);
    assert_eq!(read(&open(&dir), "plant"), kept);
}

#[test]
fn a_delete_of_other_times_does_not_stay() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let rows = a_segment(&db);
    let last_ns = rows[999].0;
    db.delete("plant", &TagFilter::All, TimeRange::new(last_ns + 1, i64::MAX)).unwrap();
    cascade(&db, Target::ByAge);
    assert_eq!((read(&db, "plant"), stored(&db)), (rows, (1000, 0)));
}
