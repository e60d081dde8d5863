//! Readings that are too old to keep.

use tidefall_storage::{CascadeRequest, IfExists, Target};
use tidefall_types::{Clock, NS_PER_DAY, SystemClock, TableSchema};

use crate::small::{open, read, write};

#[test]
fn one_cascade_drops_what_is_too_old_wherever_it_is() {
    let now = SystemClock.now_ns();
    let (old, young) = (now - 400 * NS_PER_DAY, now - NS_PER_DAY);
    for target in [Target::ByAge, Target::Short, Target::Long] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let mut schema = TableSchema::new(Default::default(), "plant", "time");
        schema.options.retention_ns = Some(30 * NS_PER_DAY);
        db.create_table(&schema, IfExists::Fail).unwrap();
        // From memory first, then beside objects.
        for round in 0..2 {
            write(&db, "plant", &[(old + round, 0), (young + round, 1)]);
            db.cascade(&CascadeRequest { table: None, target }).unwrap();
            let kept: Vec<(i64, i64)> = (0..=round).map(|round| (young + round, 1)).collect();
            assert_eq!(read(&db, "plant"), kept, "{target:?}, round {round}");
        }
    }
}
